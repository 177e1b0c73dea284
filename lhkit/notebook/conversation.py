"""The conversation behind a panel: controller and session, replaceable in the middle of a talk.

Another language or a repeated turn needs a new controller over the same history: kept in here.
"""

from collections.abc import Callable, Mapping

from lhkit.chat.controller import ChatController
from lhkit.chat.transcript import Transcript
from lhkit.confirm.gate import ConfirmGate
from lhkit.events import ChatEvent
from lhkit.harness.record import RowKeys
from lhkit.harness.sessions import LiveSession
from lhkit.json_values import JSON
from lhkit.locales import Catalog
from lhkit.messages import UserMessage
from lhkit.models.base import ChatModel
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import assistant_of


class PanelConversation:
    """One talk between a user, a model and tools.

    Args:
        model: who answers.
        surroundings: the session with the tools.
        confirm: who asks the user.
        catalog: texts for the user; its locale is that of the tools.
        take: is called with every event.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        surroundings: LiveSession,
        confirm: ConfirmGate,
        catalog: Catalog,
        take: Callable[[ChatEvent], None],
    ) -> None:
        self.model = model
        self._surroundings = surroundings
        self._confirm = confirm
        self._take = take
        self._catalog = catalog
        self.controller = self._new_controller(Transcript())
        self.begun = self.world()

    def speak(self, catalog: Catalog) -> None:
        """Go on in the language of `catalog`."""
        self._surroundings.set_locale(catalog.locale)
        self._catalog = catalog
        self.controller = self._new_controller(self.controller.state.transcript)

    def _new_controller(self, transcript: Transcript) -> ChatController:
        session = self._surroundings.session
        controller = ChatController(
            model=self.model,
            dispatcher=ToolDispatcher(session.registry, catalog=self._catalog),
            assistant=assistant_of(session),
            confirm=self._confirm,
            catalog=self._catalog,
            transcript=transcript,
        )
        controller.subscribe(self._take)
        return controller

    @property
    def destructive(self) -> frozenset[str]:
        """Names of the tools that change data."""
        return self._surroundings.session.registry.destructive

    @property
    def criterion(self) -> str | None:
        """What a scenario of this talk is filed under; None for what fits best."""
        return self._surroundings.criterion()

    @property
    def row_keys(self) -> RowKeys:
        """The fields that tell the rows of a table apart, where the tools say so."""
        return self._surroundings.row_keys()

    def world(self) -> Mapping[str, JSON]:
        """Return the present state of what the tools work on, as plain JSON."""
        return self._surroundings.world()

    def clear(self) -> None:
        """Forget what was said; what the tools wrote stays."""
        self.controller.clear()
        self.begun = self.world()

    def take_back(self) -> str | None:
        """Forget the last turn and return what the user said in it; None if there was none."""
        transcript = self.controller.state.transcript
        if not transcript.user_turns:
            return None
        asked = transcript.messages[transcript.turn_start]
        self.controller = self._new_controller(transcript.without_last_turn())
        return asked.text if isinstance(asked, UserMessage) else None
