"""The conversation behind a panel: controller and tools, replaceable in the middle of a talk.

Another language or a repeated turn needs a new controller over the same history: kept in here.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from lhkit.chat.controller import ChatController
from lhkit.chat.transcript import Transcript
from lhkit.confirm.gate import ConfirmGate
from lhkit.harness.records.record import RowKeys
from lhkit.locales import Catalog
from lhkit.models.base import ChatModel
from lhkit.notebook.toolset import ToolsetSource, toolset_of
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.vocab.events import ChatEvent
from lhkit.vocab.json_values import JSON
from lhkit.vocab.messages import UserMessage


class Conversation:
    """One talk between a user, a model and tools.

    Args:
        model: who answers.
        source: the tools, see `toolset`.
        store: what the handlers of a bare registry get.
        confirm: who asks the user.
        catalog: texts for the user; its locale is that of the tools.
        take: is called with every event.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        source: ToolsetSource,
        store: Any,
        confirm: ConfirmGate,
        catalog: Catalog,
        take: Callable[[ChatEvent], None],
    ) -> None:
        self.model = model
        self._source, self._store = source, store
        self._confirm = confirm
        self._take = take
        self._toolset = toolset_of(source, catalog.locale, store)
        self._catalog = catalog
        self.controller = self._new_controller(Transcript())
        self.begun = deepcopy(self.world())  # they may go on changing it

    def speak(self, catalog: Catalog) -> None:
        """Go on in the language of `catalog`."""
        self._toolset = toolset_of(self._source, catalog.locale, self._store)
        self._catalog = catalog
        self.controller = self._new_controller(self.controller.state.transcript)

    def _new_controller(self, transcript: Transcript) -> ChatController:
        controller = ChatController(
            model=self.model,
            dispatcher=ToolDispatcher(self._toolset.registry, catalog=self._catalog),
            assistant=self._toolset.assistant,
            confirm=self._confirm,
            catalog=self._catalog,
            transcript=transcript,
        )
        controller.subscribe(self._take)
        return controller

    @property
    def destructive(self) -> frozenset[str]:
        """Names of the tools that change data."""
        return self._toolset.registry.destructive

    @property
    def row_keys(self) -> RowKeys:
        """The fields that tell the rows of a table apart, where the tools say so."""
        return self._toolset.row_keys

    def world(self) -> Mapping[str, JSON]:
        """Return the present state of what the tools work on, as plain JSON."""
        return self._toolset.world()

    def clear(self) -> None:
        """Forget what was said; what the tools wrote stays."""
        self.controller.clear()
        self.begun = deepcopy(self.world())  # they may go on changing it

    def take_back(self) -> str | None:
        """Forget the last turn and return what the user said in it; None if there was none."""
        messages = self.controller.state.messages
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, UserMessage):
                self.controller = self._new_controller(Transcript(messages=messages[:index]))
                return message.text
        return None
