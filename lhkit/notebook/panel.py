"""The chat panel: a widget over a `ChatController`. What a button does is a method here.

It decides nothing that is said (`chat`), writes no HTML (`render`), knows no domain (`toolset`).
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lhkit.confirm.decision import QuestionOutcome
from lhkit.errors import LhkitError, UsageError
from lhkit.events import ChatEvent
from lhkit.files import write_whole
from lhkit.harness.author.from_chat import scenario_from_chat
from lhkit.harness.chats import ChatRecorder
from lhkit.harness.sessions import LiveSession
from lhkit.locales import DEFAULT_LOCALE, load_catalog
from lhkit.messages import SystemMessage
from lhkit.models.base import ChatModel
from lhkit.notebook.confirm import ButtonConfirmGate
from lhkit.notebook.conversation import PanelConversation
from lhkit.notebook.events import ErrorItem, ModelChosen, OptedIn, OptInRequested, TurnDropped
from lhkit.notebook.export import to_json, to_markdown
from lhkit.notebook.loop import HomeLoop, Running, Work
from lhkit.notebook.opt_in import OptIns, licence_of
from lhkit.notebook.screen import Screen
from lhkit.notebook.state import PanelState
from lhkit.settings import Settings, load_settings
from lhkit.toolset import DEFAULT, BareToolset, ToolsetSource, closed_after, load_toolset, waits_of

_log = logging.getLogger(__name__)


class ChatPanel:
    """A conversation with a model and tools, in the output of a cell.

    Args:
        model: who answers.
        toolset: the tools, as `lhkit eval --toolset` takes them: a reference such as
            `kitchen.py:Kitchen`, a `Toolset`, what makes one, or a bare `ToolRegistry`.
        world: the state to begin in, as under `world:` in a scenario; by default a clock alone,
            or the kept data of a toolset that keeps it.
        file: where a toolset that keeps its data has it; None for no longer than the panel.
        store: what the handlers of a bare registry get as `deps`.
        locale: language of the panel and of the tools (`ko`, `en`).
        opt_in: True skips the question before anything is sent, for scripts and CI.
        now: the clock of the tools; by default the wall clock.
        licence: a sentence on the model's licence terms; by default one that fits its name.
        record: a folder such as `runs/chats`: what is said, shown and clicked is kept there, on
            this machine, and the panel says so; None keeps nothing.
        settings: folders and clock; by default from the environment.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        toolset: ToolsetSource = DEFAULT,
        world: Mapping[str, Any] | None = None,
        file: Path | str | None = None,
        now: Callable[[], datetime] | None = None,
        store: Any = None,
        locale: str = DEFAULT_LOCALE,
        opt_in: bool = False,
        licence: str | None = None,
        record: Path | str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        own = load_toolset(toolset)
        if isinstance(own, BareToolset) and store is not None:
            own = replace(own, assistant=replace(own.assistant, deps=store))
        surroundings = LiveSession(
            own,
            world,
            Path(file) if file is not None else None,
            now=now or self._settings.now,
            locale=locale,
        )
        # A server that was started for this panel ends with it; other data may still be asked for.
        self._ends_with_panel = surroundings if waits_of(own) else None
        self._is_closed = False
        self._loop = HomeLoop()
        self._running = Running(self._loop, self._show_fault)
        self._screen = Screen(
            loop=self._loop,
            catalog=load_catalog(locale),
            name=f"ChatPanel(model={model.identity.model!r}, locale={locale!r})",
            receive=self._receive,
            locales=surroundings.locales(),
        )
        self._gate = ButtonConfirmGate(locale=locale, screen=self._screen)
        self._talk = PanelConversation(
            model=model,
            surroundings=surroundings,
            confirm=self._gate.deciding,
            catalog=self._screen.catalog,
            take=self._take,
        )
        self._keeper = (
            ChatRecorder(Path(record), surroundings, now=self._settings.now) if record else None
        )
        self._opt_ins = OptIns(self._settings.config_dir)
        self._licence = licence
        self._screen.take(ModelChosen(identity=model.identity))
        self._say_kept()
        if not (opt_in or self._opt_ins.has(model.identity)):
            self._ask_opt_in()

    @property
    def state(self) -> PanelState:
        """Everything the panel shows, a frozen value."""
        return self._screen.state

    @property
    def is_busy(self) -> bool:
        """True while a turn runs; the next can be sent when it is False."""
        return self._running.is_busy

    @property
    def widget(self) -> Any:
        """The ipywidget, to be put into a layout of one's own."""
        return self._screen.widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._screen.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return repr(self._screen.widget)

    async def send(self, text: str, *, answers: Iterable[bool] = ()) -> None:
        """Say something and wait for the end of the turn. Ignored while a turn runs.

        Args:
            text: what the user says; blank text is ignored.
            answers: answers to the writes of this turn from code, in order, for notebooks that run
                by themselves; only True is a yes. What a server asks in mid-call is then declined.

        Raises:
            UsageError: the user has not agreed yet that text goes to the model.
        """
        self._require_opt_in()
        if not self.is_busy and text.strip():
            self._gate.answer_from_code(answers)
            await self._run(self._talk.controller.user_turn(text))

    async def retry(self) -> None:
        """Take up the last turn again: go on after a fault, else ask the same once more.

        A turn that wrote something is not asked again; the panel says so.
        """
        self._require_opt_in()
        if self.is_busy:
            return
        if self._talk.controller.state.error is not None:
            await self._run(self._talk.controller.retry())
        elif self.state.has_written(self._talk.destructive):
            self._note("notebook.retry_written")
        elif (text := self._talk.take_back()) is not None:
            self._screen.take(TurnDropped())
            if self._keeper is not None:
                self._keeper.take_back()
            await self._run(self._talk.controller.user_turn(text))

    def stop(self) -> None:
        """End the running turn; an open card is answered with no."""
        if self._talk.controller.state.is_streaming:
            self._gate.dismiss(QuestionOutcome.STOPPED)
            self._talk.controller.stop()
        elif self._running.is_active:  # Send and Stop came together: the turn is about to begin
            self._loop.hand_over(self.stop)

    def clear(self) -> None:
        """Forget the conversation and say so. Does nothing while a turn runs."""
        if self.is_busy:
            return
        needs_opt_in = self.state.needs_opt_in
        self._talk.clear()
        if self._keeper is not None:
            self._keeper.begin()
        if needs_opt_in:
            self._say_kept()
            self._ask_opt_in()
        else:
            self._note("notebook.cleared")
            self._say_kept()

    def answer(self, card: str, *, is_allowed: bool) -> None:
        """Answer a card from code.

        Args:
            card: the card's id, `panel.state.open_card.card`. Nothing happens if it is not open.
            is_allowed: only True is a yes. What a server asks in mid-call is declined either way.
        """
        self._gate.settle(card, is_allowed=is_allowed)

    def opt_in(self) -> None:
        """Agree that text goes to this model; remembered for the next time.

        Raises:
            OSError: the agreement cannot be written; it holds for this panel all the same.
        """
        self._screen.take(OptedIn())
        self._opt_ins.add(self._talk.model.identity)

    def set_locale(self, locale: str) -> None:
        """Go on in another language. Does nothing while a turn runs.

        Raises:
            UsageError: there is no such locale, or the tools have no texts in it.
        """
        if self.is_busy:
            return
        catalog = load_catalog(locale)
        self._talk.speak(catalog)  # first: tools may not speak it, and then nothing has changed
        self._screen.catalog = catalog
        self._gate.locale = locale

    def close(self) -> None:
        """End the turn, answer an open card with no, and take the panel off the page.

        A server that runs the tools (`mcp:…`) ends, too, when what it had begun is finished.
        """
        self._gate.close()
        self.stop()
        self._screen.widget.close()
        self._is_closed = True
        if not self.is_busy:
            self._end_session()

    def _end_session(self) -> None:
        if self._ends_with_panel is not None:
            with closed_after(self._ends_with_panel.session):
                self._ends_with_panel = None

    def to_markdown(self) -> str:
        """Return the conversation as Markdown."""
        return to_markdown(self.state, self._screen.catalog)

    def to_json(self) -> str:
        """Return the conversation as JSON text."""
        return to_json(self.state)

    def to_scenario(self, *, scenario_id: str | None = None, ac: str | None = None) -> str:
        """Return the conversation as a scenario file for `lhkit eval`.

        Args:
            scenario_id: its name; by default one made of the present time.
            ac: the acceptance criterion it belongs to; by default `chat`, with life-helper the one
                that fits best.

        Raises:
            UsageError: nothing has been said yet.
        """
        return scenario_from_chat(
            self.state.chat.messages,
            initial_state=self._talk.begun,
            final_state=self._talk.world(),
            destructive=self._talk.destructive,
            locale=self._screen.catalog.locale,
            scenario_id=scenario_id or self._scenario_id(),
            ac=ac or self._talk.criterion,
            row_keys=self._talk.row_keys,
        )

    def save_scenario(self, path: Path | str | None = None) -> Path:
        """Write the scenario and say where; by default to `scenarios/` in the working folder.

        Raises:
            UsageError: nothing has been said yet.
            OSError: the file cannot be written.
        """
        name = self._scenario_id()
        target = Path(path or f"scenarios/{name}.yaml")
        text = self.to_scenario(scenario_id=name)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text.encode())
        self._note("notebook.scenario_saved", path=target)
        return target

    def _scenario_id(self) -> str:
        return f"chat-{self._settings.now():%Y%m%d-%H%M%S}"

    async def _run(self, turn: Work) -> None:
        try:
            await self._running.turn(turn, self._interrupt)
        finally:
            self._gate.answer_from_code(())  # none is left over for another turn
            self._keep()
            self._screen.flush()
            if self._is_closed:
                self._end_session()

    def _take(self, event: ChatEvent) -> None:
        self._screen.take(event)
        if self._keeper is not None:
            self._keeper.hear(event)

    def _keep(self) -> None:
        """Write the turn down; a fault is shown, and the next turn brings this one along."""
        if self._keeper is None:
            return
        try:
            self._keeper.keep(self._screen.catalog.locale)
        except (LhkitError, OSError) as error:
            self._show_fault(error)

    def _say_kept(self) -> None:
        if self._keeper is not None:
            self._note("notebook.kept", folder=self._keeper.folder)

    def _interrupt(self) -> None:
        self._gate.dismiss(QuestionOutcome.INTERRUPTED)
        self._talk.controller.stop()

    def _require_opt_in(self) -> None:
        if self.state.needs_opt_in:
            raise UsageError(
                "nothing is sent before the user agrees: press the button in the panel, call "
                "panel.opt_in(), or make the panel with opt_in=True"
            )

    def _ask_opt_in(self) -> None:
        identity = self._talk.model.identity
        licence = self._licence or licence_of(identity, self._screen.catalog)
        asked = OptInRequested(model=identity.model, address=identity.base_url, licence=licence)
        self._screen.take(asked)

    def _note(self, key: str, **values: object) -> None:
        self._screen.take(SystemMessage(text=self._screen.catalog.text(key, **values)))

    def _receive(self, content: Mapping[str, Any]) -> None:
        """Carry out a button's press, on the loop; a fault is shown in the panel."""
        try:
            self._press(content)
        except (LhkitError, OSError) as error:
            self._show_fault(error)

    def _press(self, content: Mapping[str, Any]) -> None:
        match content:
            case {"type": "send", "text": str(text), **more}:
                if self._running.is_active:  # another page, or a cell, was faster
                    self._screen.widget.give_back(str(more.get("view")), text)
                else:
                    self._running.start(self.send(text))
            case {"type": "retry"}:
                self._running.start(self.retry())
            case {"type": "stop"}:
                self.stop()
            case {"type": "clear"}:
                self.clear()
            case {"type": "opt_in"}:
                self.opt_in()
            case {"type": "locale", "value": str(locale)}:
                self.set_locale(locale)
            case {"type": "export", "format": "markdown"}:
                self._screen.widget.send_file("chat.md", self.to_markdown())
            case {"type": "export", "format": "json"}:
                self._screen.widget.send_file("chat.json", self.to_json())
            case {"type": "scenario"}:
                self.save_scenario()
            case _:
                self._gate.take_message(content)

    def _show_fault(self, error: BaseException) -> None:
        _log.warning("the panel failed", exc_info=error)
        text = self._screen.catalog.text("notebook.fault", type=type(error).__name__)
        self._screen.take(ErrorItem(text=text, detail=str(error)))
