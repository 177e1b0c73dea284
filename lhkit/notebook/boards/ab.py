"""A/B panel: two models side by side get the same messages, and the user votes."""

import asyncio
import copy
import re
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError, UsageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.confirm.decision import Decision, QuestionOutcome
from lhkit.conversation.events import ChatEvent, EndReason, TurnEnded
from lhkit.conversation.messages import SystemMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.records.record import Vote
from lhkit.harness.running.sessions import LiveSession
from lhkit.models.base import ChatModel
from lhkit.notebook.boards.board import Board, Press, stack_board
from lhkit.notebook.boards.board_state import SIDES, ABState, Revealed, Stage, VoteChoice, blinded
from lhkit.notebook.boards.board_view import ab_lines, ab_parts, ab_saved
from lhkit.notebook.panel.confirm import ButtonConfirmGate
from lhkit.notebook.panel.conversation import PanelConversation, with_store
from lhkit.notebook.panel.loop import HomeLoop, PanelTasks
from lhkit.notebook.panel.opt_in import NO_CONSENT, OptIns, opt_in_request
from lhkit.notebook.panel.screen import Screen
from lhkit.notebook.panel.state import PanelState
from lhkit.settings import Settings, load_settings
from lhkit.tools.notices import tool_notices
from lhkit.toolset import DEFAULT, ToolsetSource, load_toolset


def folder_names(identities: Sequence[ModelIdentity]) -> tuple[str, ...]:
    """Return a distinct folder name for each model, without path separators."""
    labels = [identity.model for identity in identities]
    if len({*labels}) < len(labels):
        labels = [f"{identity.model} {identity.dialect}".strip() for identity in identities]
    names = [re.sub(r"[^\w.-]+", "-", label).strip("-.") or "model" for label in labels]
    if len({*names}) == len(names):
        return tuple(names)
    return tuple(f"{name}-{letter}" for name, letter in zip(names, "ab", strict=True))


class _ModelChat:
    """A model's conversation, with its own session, cards and records.

    `has_failed` if the last turn ended in an infrastructure error. A model that exceeds the turn
    limit has not failed, and can be voted on.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        folder: Path,
        open_session: Callable[[], LiveSession],
        loop: HomeLoop,
        catalog: Catalog,
        now: Callable[[], datetime],
        on_rest: Callable[[], None],
    ) -> None:
        self.model = model
        self._on_rest = on_rest
        self._open_session, self._loop, self._catalog = open_session, loop, catalog
        self._live_session = open_session()
        self.recorder = ChatRecorder(folder, self._live_session, now=now, model=model.identity)
        self._begin_conversation("")
        for line in tool_notices(self._live_session.session.registry, catalog):
            self.screen.apply(SystemMessage(text=line))

    def _begin_conversation(self, title: str) -> None:
        self.has_failed = False
        self.screen = Screen(
            loop=self._loop,
            catalog=self._catalog,
            name=title,
            receive=lambda content: self.gate.take_message(content),  # noqa: PLW0108 - created below
            has_input=False,
            title=title,
            on_rest=self._on_rest,
        )
        self.gate = ButtonConfirmGate(locale=self._catalog.locale, screen=self.screen)
        self.conversation = PanelConversation(
            model=self.model,
            live_session=self._live_session,
            confirm=self.gate,
            catalog=self._catalog,
            on_event=self._on_event,
        )

    def begin(self, title: str) -> None:
        """Begin another conversation in a new session, under another title."""
        self._live_session.close()
        self.screen.widget.close()
        self._live_session = self._open_session()
        self.recorder.begin(self._live_session)
        self._begin_conversation(title)

    def _on_event(self, event: ChatEvent) -> None:
        if isinstance(event, TurnEnded):
            self.has_failed = event.reason is EndReason.FAILED
        self.screen.apply(blinded(event))
        self.recorder.handle(event)

    def turn(self, text: str | None) -> Coroutine[Any, Any, None]:
        """Return the coroutine of a turn; without a text it resumes the failed one."""
        controller = self.conversation.controller
        return controller.retry() if text is None else controller.user_turn(text)

    def stop(self, outcome: QuestionOutcome) -> None:
        """End the running turn; an open card is cancelled."""
        if self.conversation.controller.state.is_streaming:
            self.gate.dismiss(outcome)
            self.conversation.controller.stop()

    def close(self) -> None:
        """Cancel an open card, end the turn, and remove the conversation from the page."""
        self.gate.close()
        self.stop(QuestionOutcome.CLOSED)
        self.screen.widget.close()


class ABPanel(Board[ABState]):
    """Send messages to two models side by side, and vote without knowing which is which.

    Each model has its own session and its own cards: a tool that changes data runs only after a
    click, on its side alone. The sides are drawn at random for every conversation. Conversations
    and votes are recorded in one folder per model in `record`, which `lhkit compare` reads as
    pairs; a vote is saved before the panel shows it.

    Example:
        ```
        ABPanel(models=[bare, tuned], toolset="shop.py:toolset", record="runs/ab", person="kim")
        ```

    Args:
        models: the two models.
        toolset: the tools, as for `ChatPanel`.
        record: the folder for the records, with a folder per model.
        world: the initial state of every conversation, as under `world:` in a scenario.
        store: the `deps` of the handlers of a bare registry; each side gets a deep copy. Objects
            that handlers close over are shared by both sides: use a `Toolset` for those, whose
            `open` is called for each side and conversation.
        person: the voter's name, by which `lhkit compare` groups votes.
        locale: language of the panel and of the tools (`ko`, `en`); by default that of the user.
        opt_in: True skips the question for consent, for scripts and CI.
        now: the clock of the tools; by default the wall clock.
        draw: returns whether the first model is on the right; by default at random.
        settings: folders and clock; by default from the environment.

    Raises:
        UsageError: there are not two models, or the folders contain other runs.
    """

    def __init__(
        self,
        *,
        models: Sequence[ChatModel],
        record: Path | str,
        toolset: ToolsetSource = DEFAULT,
        world: Mapping[str, Any] | None = None,
        store: Any = None,
        person: str = "person",
        locale: str | None = None,
        opt_in: bool = False,
        now: Callable[[], datetime] | None = None,
        draw: Callable[[], bool] = lambda: bool(secrets.randbits(1)),
        settings: Settings | None = None,
    ) -> None:
        if len(models) != len(SIDES):
            raise UsageError(f"ABPanel needs two models: got {len(models)}")
        settings = settings or load_settings()
        locale = locale or settings.locale
        catalog = load_catalog(locale)
        loop = HomeLoop()
        super().__init__(ABState(), loop=loop, catalog=catalog, title=catalog.text("ab.title"))
        self._person = person
        self._draw = draw
        self._tasks = PanelTasks(loop, self._show_error)
        self._opt_ins = OptIns(settings.config_dir)
        tools = load_toolset(toolset)

        def open_session() -> LiveSession:
            return LiveSession(
                with_store(tools, copy.deepcopy(store)),
                copy.deepcopy(world),
                None,
                now=now or settings.now,
                locale=locale,
            )

        folders = folder_names([model.identity for model in models])
        self._chats = [
            _ModelChat(
                model=model,
                folder=Path(record) / folder,
                open_session=open_session,
                loop=loop,
                catalog=catalog,
                now=settings.now,
                on_rest=self._saved.renew,
            )
            for model, folder in zip(models, folders, strict=True)
        ]
        self._box = stack_board(self._board)
        self._draw_sides()
        identities = [model.identity for model in models]
        has_consent = opt_in or all(map(self._opt_ins.has, identities))
        # a message goes to both, so both are named where one is new
        opt_ins = () if has_consent else tuple(opt_in_request(each, catalog) for each in identities)
        self._update(opt_ins=opt_ins, stage=Stage.OPT_IN if opt_ins else Stage.READY)
        self._show_notice(catalog.text("ab.where", folder=record))

    @property
    def sides(self) -> tuple[PanelState, PanelState]:
        """The states of the conversations, left and right; frozen values."""
        left, right = self._sides
        return left.screen.state, right.screen.state

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self._tasks.is_busy

    @property
    def widget(self) -> Any:
        """The ipywidget, for a layout of your own."""
        return self._box

    def _lines(self) -> list[str]:
        return ab_lines(self._state, self._catalog)

    def _parts(self) -> Sequence[str]:
        return ab_parts(self._state, self._catalog)

    def _saved_parts(self) -> Sequence[str]:
        return ab_saved(self._state, self.sides, self._catalog)

    async def send(self, text: str, *, answers: Iterable[Decision | bool] = ()) -> None:
        """Send a message to both models, and wait for both. Ignored while a turn runs.

        After a vote it begins another conversation.

        Args:
            text: the user's message; blank text is ignored.
            answers: decisions on each side's confirmation cards, as for `ChatPanel.send`.

        Raises:
            UsageError: the user has not consented yet.
        """
        if self._state.stage is Stage.OPT_IN:
            raise UsageError(NO_CONSENT)
        if self.is_busy or not text.strip() or not self._state.may_send:
            return
        if self._state.stage in {Stage.VOTED, Stage.UNBLINDED}:
            self.begin()
        code_answers = tuple(answers)
        for chat in self._chats:
            chat.gate.answer_from_code(code_answers)
        await self._run([chat.turn(text) for chat in self._chats])

    async def retry(self) -> None:
        """Resume the turns that failed; the other model has replied already."""
        if not self.is_busy and self._state.stage is Stage.FAILED:
            await self._run([chat.turn(None) for chat in self._chats if chat.has_failed])

    def vote(self, choice: VoteChoice | str, reason: str = "") -> None:
        """Save a vote; it can be changed until the models are revealed.

        Args:
            choice: `left`, `right`, `tie` (both good) or `both_bad`.
            reason: the reason, as free text.

        Raises:
            UsageError: there is nothing to vote on, or the models are revealed.
            RunError: the vote cannot be written.
        """
        if not self._state.may_vote:
            raise UsageError(
                "a vote is possible after both models have replied, and until they are revealed: "
                "send a message first"
            )
        chosen, reason = VoteChoice(choice), reason.strip()
        for side, chat in zip(SIDES, self._sides, strict=True):
            preference = chosen.preference(side)
            chat.recorder.vote(
                Vote(person=self._person, preference=preference, side=side, reason=reason)
            )
        self._save_records()
        votes = self._state.votes + (self._state.choice is None)
        self._update(stage=Stage.VOTED, choice=chosen, reason=reason, votes=votes, notices=())

    def unblind(self) -> None:
        """Reveal the models, with calls, times and raw text. The vote is then final.

        Raises:
            UsageError: there is no vote yet.
        """
        if self._state.stage is not Stage.VOTED:
            raise UsageError("the models are revealed after a vote: vote first")
        locale = self._catalog.locale
        left, right = (
            Revealed(identity=chat.model.identity, record=chat.recorder.record(locale))
            for chat in self._sides
        )
        for side, chat in zip(SIDES, self._sides, strict=True):
            title = f"{self._catalog.text(f'ab.{side}')} · {chat.model.identity.model}"
            chat.screen.widget.title = title
        self._update(stage=Stage.UNBLINDED, revealed=(left, right))

    def begin(self) -> None:
        """Begin another conversation with new sides. Ignored while a turn runs."""
        if not self.is_busy and self._state.stage is not Stage.OPT_IN:
            self._draw_sides()
            previous = self._state
            self._show(ABState(votes=previous.votes, conversation=previous.conversation + 1))

    def stop(self) -> None:
        """End the running turns; open cards are cancelled."""
        self._stop(QuestionOutcome.STOPPED)

    def answer(self, card: str, decision: Decision | bool) -> None:
        """Answer a card from code.

        Args:
            card: the card's id, such as `panel.sides[0].open_card.card` on the left; ignored if it
                is not open.
            decision: as for `ChatPanel.answer`.
        """
        for chat in self._chats:
            chat.gate.settle(card, decision)  # card ids differ between the sides

    def opt_in(self) -> None:
        """Consent that text is sent to both models, and store the consent.

        Raises:
            OSError: the consent cannot be stored; it is valid for this panel.
        """
        self._update(stage=Stage.READY, opt_ins=())
        for chat in self._chats:
            self._opt_ins.add(chat.model.identity)

    def close(self) -> None:
        """End the turns, cancel open cards, and remove the panel from the page."""
        for chat in self._chats:
            chat.close()
        self._board.close()
        self._box.close()

    def _draw_sides(self) -> None:
        self._sides = self._chats[::-1] if self._draw() else [*self._chats]
        for side, chat in zip(SIDES, self._sides, strict=True):
            chat.begin(self._catalog.text(f"ab.{side}"))
        self._box.children[0].children = [chat.screen.widget for chat in self._sides]

    async def _run(self, turns: Sequence[Coroutine[Any, Any, None]]) -> None:
        self._update(stage=Stage.ANSWERING, turns=self._state.turns + 1, notices=())
        try:
            await self._tasks.run_turn(_all(turns), lambda: self._stop(QuestionOutcome.INTERRUPTED))
        finally:
            for chat in self._chats:
                chat.gate.answer_from_code(())
                chat.screen.flush()
            try:
                self._save_records()  # before the user can vote
            except (LhkitError, OSError) as error:
                self._show_error(error)
            has_failed = any(chat.has_failed for chat in self._chats)
            self._update(stage=Stage.FAILED if has_failed else Stage.VOTING)

    def _save_records(self) -> None:
        """Save both conversations, under one name."""
        first, second = self._chats
        first.recorder.save(self._catalog.locale)
        second.recorder.save(self._catalog.locale, name=first.recorder.name)

    def _stop(self, outcome: QuestionOutcome) -> None:
        for chat in self._chats:
            chat.stop(outcome)

    def _handle(self, press: Press) -> None:
        state, message = self._state, press.fields.get("message", "")
        reason = press.fields.get(f"reason-{state.conversation}", state.reason)
        match press.name:
            case "send" if self._tasks.is_active or not state.may_send:
                self._board.return_text(press.view, message)
            case "send":
                self._tasks.start(self.send(message))
            case "retry":
                self._tasks.start(self.retry())
            case "vote" if press.value in {*VoteChoice} and state.may_vote:
                self.vote(press.value, reason)
            case "reason" if state.choice is not None and state.may_vote:
                self.vote(state.choice, reason)
            case "unblind" if state.stage is Stage.VOTED:
                self.unblind()
            case "stop":
                self.stop()
            case "begin":
                self.begin()
            case "opt_in":
                self.opt_in()
            case _:
                pass


async def _all(turns: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run turns concurrently, and wait for all."""
    async with asyncio.TaskGroup() as group:
        for turn in turns:
            group.create_task(turn)
