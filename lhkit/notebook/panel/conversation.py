"""The conversation of a panel: its session, and a controller that can be replaced.

Another language, or a repeated turn, needs a new controller over the same history.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lhkit.base.locales import Catalog
from lhkit.chat.controller import ChatController
from lhkit.chat.state import Transcript
from lhkit.confirm.gate import ConfirmGate
from lhkit.conversation.events import ChatEvent
from lhkit.conversation.messages import UserMessage
from lhkit.harness.running.sessions import LiveSession
from lhkit.harness.scoring.success_claims import guess_false_claim
from lhkit.models.base import ChatModel
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import BareToolset, Toolset, assistant_of


def with_store(toolset: Toolset, store: Any) -> Toolset:
    """Return a toolset whose handlers get `store` as `deps`, if it is a bare registry's."""
    if not isinstance(toolset, BareToolset) or store is None:
        return toolset
    return replace(toolset, assistant=replace(toolset.assistant, deps=store))


class PanelConversation:
    """A conversation between a user and a model with tools.

    Args:
        model: the model.
        live_session: the session with the tools.
        confirm: the confirm gate.
        catalog: texts for the user; its locale is that of the tools.
        on_event: called with every event.
        logprobs: request log-probabilities.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        live_session: LiveSession,
        confirm: ConfirmGate,
        catalog: Catalog,
        on_event: Callable[[ChatEvent], None],
        logprobs: bool = False,
    ) -> None:
        self._logprobs = logprobs
        self.model = model
        self.live_session = live_session
        self._confirm = confirm
        self._on_event = on_event
        self._catalog = catalog
        self.controller = self._new_controller(Transcript())
        self.initial_state = self.live_session.world()

    def set_catalog(self, catalog: Catalog) -> None:
        """Switch to the language of `catalog`."""
        self.live_session.set_locale(catalog.locale)
        self._catalog = catalog
        self.controller = self._new_controller(self.controller.state.transcript)

    def _new_controller(self, transcript: Transcript) -> ChatController:
        session = self.live_session.session
        controller = ChatController(
            model=self.model,
            dispatcher=ToolDispatcher(
                session.registry, catalog=self._catalog, today=lambda: session.today
            ),
            assistant=assistant_of(session),
            confirm=self._confirm,
            catalog=self._catalog,
            transcript=transcript,
            watch=self.live_session.watch(),
            guess=guess_false_claim(session.registry),
            logprobs=self._logprobs,
        )
        controller.subscribe(self._on_event)
        return controller

    @property
    def destructive(self) -> frozenset[str]:
        """Names of the tools that change data."""
        return self.live_session.session.registry.destructive

    def clear(self) -> None:
        """Clear the messages; data that the tools wrote stays."""
        self.controller.clear()
        self.initial_state = self.live_session.world()

    def drop_last_turn(self) -> str | None:
        """Drop the last turn, and return its user message; None if there is no turn."""
        transcript = self.controller.state.transcript
        if not transcript.user_turns:
            return None
        message = transcript.messages[transcript.turn_start]
        self.controller = self._new_controller(transcript.without_last_turn())
        return message.text if isinstance(message, UserMessage) else None
