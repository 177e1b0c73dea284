"""The chat panel: a widget over a `ChatController`, with a method for every button."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError, UsageError, error_text
from lhkit.base.files import write_atomically
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Decision, QuestionOutcome
from lhkit.confirm.policy import ApprovalPolicy, PolicyGate, load_policy
from lhkit.conversation.events import ChatEvent
from lhkit.conversation.messages import SystemMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.running.sessions import LiveSession
from lhkit.models.base import ChatModel
from lhkit.models.client.served import unconstrained
from lhkit.models.families import UNFIT, unfit_values
from lhkit.notebook.panel.confirm import ButtonConfirmGate
from lhkit.notebook.panel.conversation import PanelConversation, with_store
from lhkit.notebook.panel.export import to_json, to_markdown
from lhkit.notebook.panel.loop import HomeLoop, PanelTasks, Work
from lhkit.notebook.panel.opt_in import NO_CONSENT, OptIns, opt_in_request
from lhkit.notebook.panel.screen import Screen
from lhkit.notebook.panel.state import ErrorItem, ModelChosen, OptedIn, PanelState, TurnDropped
from lhkit.settings import Settings, load_settings
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.notices import tool_notices
from lhkit.toolset import (
    DEFAULT,
    ToolsetSource,
    closing_session,
    is_blocking,
    load_toolset,
)

_log = logging.getLogger(__name__)


class ChatPanel:
    """A conversation with a model and tools, in the output of a cell.

    Args:
        model: the model.
        toolset: the tools, as for `lhkit eval --toolset`: a reference such as
            `shop.py:toolset`, a `Toolset`, a factory of one, or a bare `ToolRegistry`.
        world: the initial state, as under `world:` in a scenario; by default only a clock, or the
            stored data of a toolset with a `file`.
        file: where the toolset stores its data; None keeps it as long as the panel.
        store: the `deps` of the handlers of a bare registry.
        locale: language of the panel and of the tools (`ko`, `en`); by default that of the user.
        opt_in: True skips the question for consent, for scripts and CI.
        now: the clock of the tools; by default the wall clock.
        licence: a sentence on the model's licence terms; by default chosen by its name.
        record: a folder such as `runs/chats` for the conversation and the clicks, on this machine;
            the panel shows it. None records nothing.
        approvals: the policy of `lhkit approvals --write`, or its file: writes that it lets through
            run without a card; the panel says which. Never by default.
        examples: messages that fill the input at a click, by locale.
        settings: folders and clock; by default from the environment.
        logprobs: request the log-probabilities of calls, where the server reports them; answers
            take longer.
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
        locale: str | None = None,
        opt_in: bool = False,
        licence: str | None = None,
        record: Path | str | None = None,
        approvals: ApprovalPolicy | Path | str | None = None,
        examples: Mapping[str, Sequence[str]] | None = None,
        settings: Settings | None = None,
        logprobs: bool = False,
    ) -> None:
        self._settings = settings or load_settings()
        locale = locale or self._settings.locale
        policy = load_policy(approvals)
        tools = with_store(load_toolset(toolset), store)
        live_session = LiveSession(
            tools,
            world,
            Path(file) if file is not None else None,
            now=now or self._settings.now,
            locale=locale,
        )
        # A server started for this panel ends with it; other data may still be read.
        self._closed_with_panel = live_session if is_blocking(tools) else None
        self._is_closed = False
        self._loop = HomeLoop()
        self._tasks = PanelTasks(self._loop, self._show_error)
        self._screen = Screen(
            loop=self._loop,
            catalog=load_catalog(locale),
            name=f"ChatPanel(model={model.identity.model!r}, locale={locale!r})",
            receive=self._receive,
            locales=live_session.locales(),
            examples=examples or {},
        )
        self._gate = ButtonConfirmGate(locale=locale, screen=self._screen)
        self._policy_file = str(approvals) if isinstance(approvals, str | Path) else ""
        self._policy_gate: PolicyGate | None = None
        if policy is not None:
            front = live_session.measured(model.identity, lambda: self._screen.catalog.locale)
            self._policy_gate = PolicyGate(policy, self._gate, front)
        self._conversation = PanelConversation(
            model=model,
            live_session=live_session,
            confirm=self._policy_gate or self._gate,
            catalog=self._screen.catalog,
            on_event=self._on_event,
            logprobs=logprobs or (policy is not None and policy.reads_logprobs),
        )
        self._recorder = (
            ChatRecorder(Path(record), live_session, now=self._settings.now) if record else None
        )
        self._opt_ins = OptIns(self._settings.config_dir)
        self._licence = licence
        self._screen.apply(ModelChosen(identity=model.identity))
        for line in tool_notices(live_session.session.registry, self._screen.catalog):
            self._screen.apply(SystemMessage(text=line))
        self._show_doubts(model.identity, live_session.session.registry.definitions)
        self._show_record_folder()
        self._show_policy()
        if not (opt_in or self._opt_ins.has(model.identity)):
            self._ask_opt_in()

    @property
    def state(self) -> PanelState:
        """Everything that the panel shows; a frozen value."""
        return self._screen.state

    @property
    def is_busy(self) -> bool:
        """True while a turn runs; the next can be sent when it is False."""
        return self._tasks.is_busy

    @property
    def widget(self) -> Any:
        """The ipywidget, for a layout of your own."""
        return self._screen.widget

    def _ipython_display_(self) -> None:
        self._screen.display()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._screen.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return repr(self._screen.widget)

    async def send(self, text: str, *, answers: Iterable[Decision | bool] = ()) -> None:
        """Send a message, and wait for the end of the turn. Ignored while a turn runs.

        Args:
            text: the user's message; blank text is ignored.
            answers: decisions on this turn's confirmation cards, in order, for notebooks that run
                unattended: `Approve()`, `Edit(…)`, `Reject(…)`, or a bool, of which only True
                approves. Questions of a server in mid-call are then declined.

        Raises:
            UsageError: the user has not consented yet.
        """
        self._require_opt_in()
        if not self.is_busy and text.strip():
            self._gate.answer_from_code(answers)
            await self._run(self._conversation.controller.user_turn(text))

    async def retry(self) -> None:
        """Resume a failed turn, or repeat the last one.

        A turn that wrote data is not repeated; the panel shows a notice.
        """
        self._require_opt_in()
        if self.is_busy:
            return
        if self._conversation.controller.state.error is not None:
            await self._run(self._conversation.controller.retry())
        elif self.state.has_written(self._conversation.destructive):
            self._show_notice("notebook.retry_written")
        elif (text := self._conversation.drop_last_turn()) is not None:
            self._screen.apply(TurnDropped())
            if self._recorder is not None:
                self._recorder.discard_turn()
            await self._run(self._conversation.controller.user_turn(text))

    def stop(self) -> None:
        """End the running turn; an open card is cancelled."""
        if self._conversation.controller.state.is_streaming:
            self._gate.dismiss(QuestionOutcome.STOPPED)
            self._conversation.controller.stop()
        elif self._tasks.is_active:  # Send and Stop came together, before the turn began
            self._loop.call_soon(self.stop)

    def clear(self) -> None:
        """Clear the conversation. Ignored while a turn runs."""
        if self.is_busy:
            return
        needs_opt_in = self.state.needs_opt_in
        self._conversation.clear()
        if self._policy_gate is not None:
            self._policy_gate.begin()
        if self._recorder is not None:
            self._recorder.begin()
        if not needs_opt_in:
            self._show_notice("notebook.cleared")
        self._show_record_folder()
        self._show_policy()
        if needs_opt_in:
            self._ask_opt_in()

    def answer(self, card: str, decision: Decision | bool) -> None:
        """Answer a card from code.

        Args:
            card: the card's id, `panel.state.open_card.card`; ignored if it is not open.
            decision: `Approve()`, `Edit(…)` or `Reject(…)`, or a bool, of which only True approves.
                An edit with invalid arguments leaves the card open, with the error. A form of a
                server in mid-call is declined in any case.
        """
        self._gate.settle(card, decision)

    def opt_in(self) -> None:
        """Consent that text is sent to this model, and store the consent.

        Raises:
            OSError: the consent cannot be stored; it is valid for this panel.
        """
        self._screen.apply(OptedIn())
        self._opt_ins.add(self._conversation.model.identity)

    def set_locale(self, locale: str) -> None:
        """Switch the language. Ignored while a turn runs.

        Raises:
            UsageError: the locale is unknown, or the tools do not support it.
        """
        if self.is_busy:
            return
        catalog = load_catalog(locale)
        self._conversation.set_catalog(catalog)  # first: it raises if the tools do not support it
        self._screen.catalog = catalog
        self._gate.locale = locale
        self._show_policy()

    def close(self) -> None:
        """End the turn, cancel an open card, and remove the panel from the page.

        An MCP server that runs the tools ends after its running call.
        """
        self._gate.close()
        self.stop()
        self._screen.widget.close()
        self._is_closed = True
        if not self.is_busy:
            self._end_session()

    def _end_session(self) -> None:
        if self._closed_with_panel is not None:
            with closing_session(self._closed_with_panel.session):
                self._closed_with_panel = None

    def to_markdown(self) -> str:
        """Return the conversation as Markdown."""
        return to_markdown(self.state, self._screen.catalog)

    def to_json(self) -> str:
        """Return the conversation as JSON text."""
        return to_json(self.state, self._screen.catalog)

    def to_scenario(self, *, scenario_id: str | None = None, ac: str | None = None) -> str:
        """Return the conversation as a scenario file for `lhkit eval`.

        Args:
            scenario_id: its id; by default derived from the current time.
            ac: its acceptance criterion; by default the toolset's for its calls, if it names one.

        Raises:
            UsageError: the conversation is empty, or the toolset's `criterion` fails.
        """
        live_session = self._conversation.live_session
        return scenario_from_chat(
            self.state.chat.messages,
            initial_state=self._conversation.initial_state,
            final_state=live_session.world(),
            destructive=self._conversation.destructive,
            locale=self._screen.catalog.locale,
            scenario_id=scenario_id or self._scenario_id(),
            ac=ac,
            criterion=live_session.criterion,
            row_keys=live_session.row_keys(),
        )

    def save_scenario(self, path: Path | str | None = None) -> Path:
        """Write the scenario to a file, by default in `scenarios/`, and show its path.

        Raises:
            UsageError: the conversation is empty.
            OSError: the file cannot be written.
        """
        name = self._scenario_id()
        target = Path(path or f"scenarios/{name}.yaml")
        text = self.to_scenario(scenario_id=name)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text.encode())
        self._show_notice("notebook.scenario_saved", path=target)
        return target

    def _scenario_id(self) -> str:
        return f"chat-{self._settings.now():%Y%m%d-%H%M%S}"

    async def _run(self, turn: Work) -> None:
        try:
            await self._tasks.run_turn(turn, self._interrupt)
        finally:
            self._gate.answer_from_code(())  # none is left for another turn
            self._save_record()
            self._screen.flush()
            if self._is_closed:
                self._end_session()

    def _on_event(self, event: ChatEvent) -> None:
        self._screen.apply(event)
        if self._recorder is not None:
            self._recorder.handle(event)

    def _save_record(self) -> None:
        """Save the turn; an error is shown, and the next save includes the turn."""
        if self._recorder is None:
            return
        try:
            self._recorder.save(self._screen.catalog.locale)
        except (LhkitError, OSError) as error:
            self._show_error(error)

    def _show_doubts(self, identity: ModelIdentity, tools: Sequence[ToolDefinition]) -> None:
        if values := unfit_values(identity):
            self._show_notice(UNFIT, **values)
        for values in unconstrained(identity.dialect, identity.constraint, tools):
            self._show_notice("tools.unconstrained", **values)

    def _show_record_folder(self) -> None:
        if self._recorder is not None:
            self._show_notice("notebook.kept", folder=self._recorder.folder)

    def _policy_line(self) -> str:
        """Return what the policy of approvals lets run unasked here; empty without one."""
        if self._policy_gate is None:
            return ""
        return self._policy_gate.line(self._screen.catalog, file=self._policy_file)

    def _show_policy(self) -> None:
        if line := self._policy_line():
            self._screen.apply(SystemMessage(text=line))

    def _interrupt(self) -> None:
        self._gate.dismiss(QuestionOutcome.INTERRUPTED)
        self._conversation.controller.stop()

    def _require_opt_in(self) -> None:
        if self.state.needs_opt_in:
            raise UsageError(NO_CONSENT)

    def _ask_opt_in(self) -> None:
        identity = self._conversation.model.identity
        question = opt_in_request(identity, self._screen.catalog, self._licence)
        self._screen.apply(replace(question, policy=self._policy_line()))

    def _show_notice(self, key: str, **values: object) -> None:
        self._screen.apply(SystemMessage(text=self._screen.catalog.text(key, **values)))

    def _receive(self, content: Mapping[str, Any]) -> None:
        """Handle a pressed button, on the loop; an error is shown in the panel."""
        try:
            self._press(content)
        except (LhkitError, OSError) as error:
            self._show_error(error)

    def _press(self, content: Mapping[str, Any]) -> None:
        match content:
            case {"type": "send", "text": str(text), **rest}:
                if self._tasks.is_active:  # another page, or a cell, was faster
                    self._screen.widget.return_text(str(rest.get("view")), text)
                else:
                    self._tasks.start(self.send(text))
            case {"type": "retry"}:
                self._tasks.start(self.retry())
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

    def _show_error(self, error: BaseException) -> None:
        _log.warning("the panel failed", exc_info=error)
        text = self._screen.catalog.text("notebook.error", type=type(error).__name__)
        self._screen.apply(ErrorItem(text=text, detail=error_text(error)))
