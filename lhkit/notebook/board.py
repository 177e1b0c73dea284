"""A board: parts of HTML with buttons, keys and fields, and what is pressed in it.

One shell, one state and one way of keys for the vote under two conversations and for reviews.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import ipywidgets
import traitlets

from lhkit.errors import LhkitError
from lhkit.locales import Catalog
from lhkit.notebook.board_state import BoardState
from lhkit.notebook.loop import HomeLoop
from lhkit.notebook.screen import STATIC, SafeWidget
from lhkit.notebook.state import PanelNotice

_log = logging.getLogger(__name__)

StateT = TypeVar("StateT", bound=BoardState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """What was pressed in a board, with the fields as they were; `view` names the page."""

    name: str
    value: str = ""
    fields: Mapping[str, str]
    view: str = ""


class BoardWidget(SafeWidget):
    """One board as the browser sees it.

    Args:
        loop: the loop of the panel; presses are handed on there.
        name: returns what `repr` says.
        receive: is handed presses.
    """

    _esm = STATIC / "board.js"
    _css = STATIC / "panel.css"

    parts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        loop: HomeLoop,
        name: Callable[[], str],
        receive: Callable[[Press], None],
        **traits: Any,
    ) -> None:
        self._name = name
        self._receive = receive
        super().__init__(**traits)
        self.on_msg(lambda _widget, content, _buffers: loop.hand_over(self.take_message, content))

    def __repr__(self) -> str:
        return self._name()

    def give_back(self, view: str, text: str) -> None:
        """Put words that were not taken back into the text area of a page."""
        self.send({"type": "unsent", "view": view, "text": text})

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what a page sent; what is no press is ignored."""
        match content:
            case {"type": "ready"}:
                self.send_state("parts")
                self.send({"type": "here"})
            case {"type": "press", "press": str(name), "value": str(value), "fields": dict(fields)}:
                told = {str(key): each for key, each in fields.items() if isinstance(each, str)}
                view = str(content.get("view", ""))
                self._receive(Press(name=name, value=value, fields=told, view=view))
            case _:
                pass


class Board(ABC, Generic[StateT]):
    """Keeps a state, shows it, and carries out what is pressed; all on the loop's thread."""

    def __init__(self, state: StateT, *, loop: HomeLoop, catalog: Catalog, title: str) -> None:
        self._state = state
        self._catalog = catalog
        words = {key: catalog.text(f"notebook.{key}") for key in ("waiting", "lost")}
        self._board = BoardWidget(
            loop=loop,
            name=self.__repr__,
            receive=self._press,
            labels={**words, "title": title},
            locale=catalog.locale,
        )

    @property
    def state(self) -> StateT:
        """What stands on the board, a frozen value."""
        return self._state

    @property
    def widget(self) -> Any:
        """The ipywidget, to be put into a layout of one's own."""
        return self._board

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return "\n  ".join([f"{type(self).__name__}()", *self._lines()])

    @abstractmethod
    def _lines(self) -> list[str]:
        """Return the board in short, for where no widget can be shown."""

    @abstractmethod
    def _parts(self) -> Sequence[str]:
        """Return the HTML of the board, top to bottom; what did not change is the same text."""

    @abstractmethod
    def _carry_out(self, press: Press) -> None:
        """Do what was pressed; what cannot be done now, or is unknown, is ignored."""

    def _show(self, state: StateT) -> None:
        """Show another state from now on."""
        self._state = state
        self._board.parts = [str(each) for each in self._parts()]

    def _change(self, **changes: Any) -> None:
        self._show(replace(self._state, **changes))

    def _tell(self, text: str, *, is_fault: bool = False) -> None:
        """Say something on the board, until something else is to be said."""
        self._change(told=(PanelNotice(text=text, is_fault=is_fault),))

    def _tell_fault(self, error: BaseException) -> None:
        _log.warning("the board failed", exc_info=error)
        text = self._catalog.text("notebook.fault", type=type(error).__name__)
        told = str(error) if isinstance(error, LhkitError) else f"{text}\n{error}"
        self._tell(told, is_fault=True)

    def _press(self, press: Press) -> None:
        try:
            self._carry_out(press)
        except (LhkitError, OSError) as error:
            self._tell_fault(error)


def stacked(board: Any) -> Any:
    """Return a widget with room for two conversations beside each other, over a board."""
    row = ipywidgets.Box([])
    row.add_class("lhkit-sides")
    both = ipywidgets.Box([row, board])
    both.add_class("lhkit-ab")
    return both
