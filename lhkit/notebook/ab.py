"""Two models beside each other: one message to both, cards on each side, and a vote."""

import asyncio
import copy
import re
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lhkit.confirm.decision import QuestionOutcome
from lhkit.errors import LhkitError, UsageError
from lhkit.events import ChatEvent, EndReason, TurnEnded
from lhkit.harness.chats import ChatRecorder
from lhkit.harness.record import Vote
from lhkit.harness.sessions import LiveSession
from lhkit.locales import DEFAULT_LOCALE, Catalog, load_catalog
from lhkit.models.base import ChatModel
from lhkit.notebook.board import Board, Press, stacked
from lhkit.notebook.board_state import SIDES, ABState, Revealed, Stage, VoteChoice, blinded
from lhkit.notebook.board_view import ab_lines, ab_parts
from lhkit.notebook.confirm import ButtonConfirmGate
from lhkit.notebook.conversation import PanelConversation
from lhkit.notebook.loop import HomeLoop, Running
from lhkit.notebook.opt_in import OptIns, licence_of
from lhkit.notebook.screen import Screen
from lhkit.notebook.state import OptInRequested, PanelState
from lhkit.responses import ModelIdentity
from lhkit.settings import Settings, load_settings
from lhkit.toolset import DEFAULT, BareToolset, Toolset, ToolsetSource, load_toolset

_NO_NAME = re.compile(r"[^\w.-]+")


def folders_of(identities: Sequence[ModelIdentity]) -> tuple[str, ...]:
    """Return what the folders of the models are called: what tells them apart, and no path."""
    told = [each.model for each in identities]
    if len({*told}) < len(told):
        told = [" ".join(filter(None, (each.model, each.dialect))) for each in identities]
    names = [_NO_NAME.sub("-", each).strip("-.") or "model" for each in told]
    if len({*names}) == len(names):
        return tuple(names)
    return tuple(f"{name}-{letter}" for name, letter in zip(names, "ab", strict=True))


class _Half:
    """One model with its own copy of the world, its own cards and its own records.

    `has_failed` if its last turn ended because the world failed, not the model: one that calls
    tools without end can be voted on.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        folder: Path,
        surroundings: Callable[[], LiveSession],
        loop: HomeLoop,
        catalog: Catalog,
        now: Callable[[], datetime],
    ) -> None:
        self.model = model
        self._make, self._loop, self._catalog = surroundings, loop, catalog
        self._around = surroundings()
        self.keeper = ChatRecorder(folder, self._around, now=now, model=model.identity)
        self._begin_talk("")

    def _begin_talk(self, title: str) -> None:
        self.has_failed = False
        self.screen = Screen(
            loop=self._loop,
            catalog=self._catalog,
            name=title,
            receive=lambda content: self.gate.take_message(content),  # noqa: PLW0108 - made below
            has_input=False,
            title=title,
        )
        self.gate = ButtonConfirmGate(locale=self._catalog.locale, screen=self.screen)
        self.talk = PanelConversation(
            model=self.model,
            surroundings=self._around,
            confirm=self.gate.deciding,
            catalog=self._catalog,
            take=self._take,
        )

    def begin(self, title: str) -> None:
        """Begin another conversation in a fresh world, under another title."""
        self._around.close()
        self.screen.widget.close()
        self._around = self._make()
        self.keeper.begin(self._around)
        self._begin_talk(title)

    def _take(self, event: ChatEvent) -> None:
        if isinstance(event, TurnEnded):
            self.has_failed = event.reason is EndReason.FAILED
        self.screen.take(blinded(event))
        self.keeper.hear(event)

    def turn(self, text: str | None) -> Coroutine[Any, Any, None]:
        """Return the work of a turn; without a text the one that failed is taken up again."""
        controller = self.talk.controller
        return controller.retry() if text is None else controller.user_turn(text)

    def stop(self, outcome: QuestionOutcome) -> None:
        """End the turn, if one runs; an open card is answered with no."""
        if self.talk.controller.state.is_streaming:
            self.gate.dismiss(outcome)
            self.talk.controller.stop()

    def close(self) -> None:
        """Answer an open card with no, end the turn, and take it off the page."""
        self.gate.close()
        self.stop(QuestionOutcome.CLOSED)
        self.screen.widget.close()


class ABPanel(Board[ABState]):
    """One message to two models, side by side, and a vote, without knowing which is which.

    Each model has its own copy of the world, which nothing outside keeps, and its own cards: a tool
    that changes data runs only after a click, on its side alone. Who stands left is drawn anew for
    every conversation. All is kept in two folders of `record`, one a model, which `lhkit compare`
    reads as pairs; a vote is on the disk before the panel says so.

    Example:
        ```
        ABPanel(models=[bare, tuned], toolset="mine.py:own", record="runs/ab", person="kim")
        ```

    Args:
        models: the two who answer.
        toolset: the tools, as for `ChatPanel`.
        record: the folder; conversations are kept under the models' names in it.
        world: the state that every conversation begins in, as under `world:` in a scenario.
        store: what the handlers of a bare registry get as `deps`; each side gets a deep copy. What
            they close over besides is one for both: give a `Toolset` then, whose `open` is called
            for each side and each conversation.
        person: who votes: `lhkit compare` tells people apart.
        locale: language of the panel and of the tools (`ko`, `en`).
        opt_in: True skips the question before anything is sent, for scripts and CI.
        now: the clock of the tools; by default the wall clock.
        draw: says whether the first model stands right; by default chance.
        settings: folders and clock; by default from the environment.

    Raises:
        UsageError: there are not two models, or the folders hold something else.
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
        locale: str = DEFAULT_LOCALE,
        opt_in: bool = False,
        now: Callable[[], datetime] | None = None,
        draw: Callable[[], bool] = lambda: bool(secrets.randbits(1)),
        settings: Settings | None = None,
    ) -> None:
        if len(models) != len(SIDES):
            raise UsageError(f"ABPanel compares two models, and {len(models)} were given")
        settings, catalog = settings or load_settings(), load_catalog(locale)
        loop = HomeLoop()
        super().__init__(ABState(), loop=loop, catalog=catalog, title=catalog.text("ab.title"))
        self._person = person
        self._draw = draw
        self._running = Running(loop, self._tell_fault)
        self._opt_ins = OptIns(settings.config_dir)
        own = load_toolset(toolset)

        def surroundings() -> LiveSession:
            fresh = _with_store(own, store)
            return LiveSession(
                fresh, copy.deepcopy(world), None, now=now or settings.now, locale=locale
            )

        folders = folders_of([model.identity for model in models])
        self._halves = [
            _Half(
                model=model,
                folder=Path(record) / folder,
                surroundings=surroundings,
                loop=loop,
                catalog=catalog,
                now=settings.now,
            )
            for model, folder in zip(models, folders, strict=True)
        ]
        self._both = stacked(self._board)
        self._seat()
        asked = () if opt_in else tuple(self._to_ask())
        self._change(opt_ins=asked, stage=Stage.OPT_IN if asked else Stage.READY)
        self._tell(catalog.text("ab.where", folder=record))

    @property
    def sides(self) -> tuple[PanelState, PanelState]:
        """What the conversations show, left and right, frozen values."""
        left, right = self._seated
        return left.screen.state, right.screen.state

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self._running.is_busy

    @property
    def widget(self) -> Any:
        """The ipywidget, to be put into a layout of one's own."""
        return self._both

    def _lines(self) -> list[str]:
        return ab_lines(self._state, self._catalog)

    def _parts(self) -> Sequence[str]:
        return ab_parts(self._state, self._catalog)

    async def send(self, text: str, *, answers: Iterable[bool] = ()) -> None:
        """Say one thing to both and wait for both. Ignored while a turn runs.

        After a vote it begins another conversation.

        Args:
            text: what the user says; blank text is ignored.
            answers: answers to the writes of each side from code, in order, for notebooks that run
                by themselves; only True is a yes. What a server asks in mid-call is then declined.

        Raises:
            UsageError: the user has not agreed yet that text goes to the models.
        """
        if self._state.stage is Stage.OPT_IN:
            raise UsageError(
                "nothing is sent before the user agrees: press the button in the panel, call "
                "panel.opt_in(), or make the panel with opt_in=True"
            )
        if self.is_busy or not text.strip() or not self._state.may_send:
            return
        if self._state.stage in {Stage.VOTED, Stage.UNBLINDED}:
            self.begin()
        given = tuple(answers)
        for half in self._halves:
            half.gate.answer_from_code(given)
        await self._run([half.turn(text) for half in self._halves])

    async def retry(self) -> None:
        """Go on where a model could not answer; the other one has its answer already."""
        if not self.is_busy and self._state.stage is Stage.FAILED:
            await self._run([half.turn(None) for half in self._halves if half.has_failed])

    def vote(self, choice: VoteChoice | str, reason: str = "") -> None:
        """Vote, or vote anew until the names are known. It is on the disk when this returns.

        Args:
            choice: `left`, `right`, `tie` (both good) or `both_bad`.
            reason: why, in words.

        Raises:
            UsageError: there is nothing to vote on, or the names are known.
            RunError: the vote cannot be written.
        """
        if not self._state.may_vote:
            raise UsageError(
                "a vote is taken when both have answered, and until the names are known: send a "
                "message first"
            )
        chosen, reason = VoteChoice(choice), reason.strip()
        for side, half in zip(SIDES, self._seated, strict=True):
            preference = chosen.of(side)
            half.keeper.vote(
                Vote(person=self._person, preference=preference, side=side, reason=reason)
            )
        self._keep()
        votes = self._state.votes + (self._state.choice is None)
        self._change(stage=Stage.VOTED, choice=chosen, reason=reason, votes=votes, told=())

    def unblind(self) -> None:
        """Tell which was which, with calls, times and raw text. The vote stays as it is then.

        Raises:
            UsageError: nobody has voted yet.
        """
        if self._state.stage is not Stage.VOTED:
            raise UsageError("the names are told after a vote: vote first")
        locale = self._catalog.locale
        left, right = (
            Revealed(identity=half.model.identity, record=half.keeper.record(locale))
            for half in self._seated
        )
        for side, half in zip(SIDES, self._seated, strict=True):
            title = f"{self._catalog.text(f'ab.{side}')} · {half.model.identity.model}"
            half.screen.widget.title = title
        self._change(stage=Stage.UNBLINDED, revealed=(left, right))

    def begin(self) -> None:
        """Begin another conversation: two fresh worlds, and a new order. Not while a turn runs."""
        if not self.is_busy and self._state.stage is not Stage.OPT_IN:
            self._seat()
            past = self._state
            self._show(ABState(votes=past.votes, conversation=past.conversation + 1))

    def stop(self) -> None:
        """End the running turns; open cards are answered with no."""
        self._stop(QuestionOutcome.STOPPED)

    def answer(self, card: str, *, is_allowed: bool) -> None:
        """Answer a card from code.

        Args:
            card: the card's id, such as `panel.sides[0].open_card.card` on the left. Nothing
                happens if it is not open.
            is_allowed: only True is a yes. What a server asks in mid-call is declined either way.
        """
        for half in self._halves:
            half.gate.settle(card, is_allowed=is_allowed)  # ids of cards differ between the sides

    def opt_in(self) -> None:
        """Agree that text goes to both models; remembered for the next time.

        Raises:
            OSError: the agreement cannot be written; it holds for this panel all the same.
        """
        self._change(stage=Stage.READY, opt_ins=())
        for half in self._halves:
            self._opt_ins.add(half.model.identity)

    def close(self) -> None:
        """End the turns, answer open cards with no, and take the panel off the page."""
        for half in self._halves:
            half.close()
        self._board.close()
        self._both.close()

    def _seat(self) -> None:
        """Draw who stands where, and give both a fresh world and an empty conversation."""
        self._seated = self._halves[::-1] if self._draw() else [*self._halves]
        for side, half in zip(SIDES, self._seated, strict=True):
            half.begin(self._catalog.text(f"ab.{side}"))
        self._both.children[0].children = [half.screen.widget for half in self._seated]

    async def _run(self, turns: Sequence[Coroutine[Any, Any, None]]) -> None:
        self._change(stage=Stage.ANSWERING, turns=self._state.turns + 1, told=())
        try:
            await self._running.turn(_all(turns), lambda: self._stop(QuestionOutcome.INTERRUPTED))
        finally:
            for half in self._halves:
                half.gate.answer_from_code(())
                half.screen.flush()
            try:
                self._keep()  # first: what can be voted on is on the disk
            except (LhkitError, OSError) as error:
                self._tell_fault(error)
            has_failed = any(half.has_failed for half in self._halves)
            self._change(stage=Stage.FAILED if has_failed else Stage.VOTING)

    def _keep(self) -> None:
        """Write both conversations, under one name."""
        first, second = self._halves
        first.keeper.keep(self._catalog.locale)
        second.keeper.keep(self._catalog.locale, name=first.keeper.name)

    def _stop(self, outcome: QuestionOutcome) -> None:
        for half in self._halves:
            half.stop(outcome)

    def _to_ask(self) -> Iterator[OptInRequested]:
        for half in self._halves:
            identity = half.model.identity
            if not self._opt_ins.has(identity):
                licence = licence_of(identity, self._catalog)
                yield OptInRequested(
                    model=identity.model, address=identity.base_url, licence=licence
                )

    def _carry_out(self, press: Press) -> None:
        state, message = self._state, press.fields.get("message", "")
        reason = press.fields.get(f"reason-{state.conversation}", state.reason)
        match press.name:
            case "send" if self._running.is_active or not state.may_send:
                self._board.give_back(press.view, message)
            case "send":
                self._running.start(self.send(message))
            case "retry":
                self._running.start(self.retry())
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
    """Run turns beside each other, to the end of all."""
    async with asyncio.TaskGroup() as group:
        for turn in turns:
            group.create_task(turn)


def _with_store(toolset: Toolset, store: Any) -> Toolset:
    if not isinstance(toolset, BareToolset) or store is None:
        return toolset
    return replace(toolset, assistant=replace(toolset.assistant, deps=copy.deepcopy(store)))
