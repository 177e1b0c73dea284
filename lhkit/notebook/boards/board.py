"""Boards: HTML parts with buttons, keys and fields, for A/B votes and reviews."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import ipywidgets
import traitlets

from lhkit.base.errors import LhkitError, error_text
from lhkit.base.locales import Catalog
from lhkit.notebook.boards.board_state import BoardState
from lhkit.notebook.panel.front_end import SavedOutput
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.saved import saved_lines, saved_page
from lhkit.notebook.panel.screen import STATIC, SafeWidget, script
from lhkit.notebook.panel.state import PanelNotice

_log = logging.getLogger(__name__)

StateT = TypeVar("StateT", bound=BoardState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A pressed button, with the values of all fields; `view` is the id of the page.

    `nulls` are the names of the fields whose value is null.
    """

    name: str
    value: str = ""
    fields: Mapping[str, str]
    nulls: frozenset[str] = frozenset()
    view: str = ""


class BoardWidget(SafeWidget):
    """The widget of a board; `press` is called with presses, on the loop.

    `on_ready` is called when a page shows it.
    """

    _esm = script("board.js")
    _css = STATIC / "panel.css"

    parts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        loop: HomeLoop,
        press: Callable[[Press], None],
        on_ready: Callable[[], None],
        **options: Any,
    ) -> None:
        self._press, self._on_ready = press, on_ready
        super().__init__(
            receive=lambda content: loop.call_soon(self.take_message, content), **options
        )

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Handle a message of a page; unknown messages are ignored."""
        match content:
            case {"type": "ready"}:
                self.send_state("parts")
                self.send({"type": "here"})
                self._on_ready()
            case {"type": "press", "press": str(name), "value": str(value), "fields": dict(fields)}:
                texts = {str(key): text for key, text in fields.items() if isinstance(text, str)}
                nulls = frozenset(str(key) for key, text in fields.items() if text is None)
                view = str(content.get("view", ""))
                self._press(Press(name=name, value=value, fields=texts, nulls=nulls, view=view))
            case _:
                pass


class Board(ABC, Generic[StateT]):
    """A state with its widget, and a handler for presses; used in the loop's thread."""

    def __init__(self, state: StateT, *, loop: HomeLoop, catalog: Catalog, title: str) -> None:
        self._state = state
        self._catalog = catalog
        self._title = title
        self._saved = SavedOutput(self._copy, lambda content: self._board.send(content))  # noqa: PLW0108 - created below
        labels = {key: catalog.text(f"notebook.{key}") for key in ("waiting", "lost")}
        self._board = BoardWidget(
            loop=loop,
            name=self.__repr__,
            press=self._press,
            on_ready=self._saved.resend,
            labels={**labels, "title": title},
            locale=catalog.locale,
        )

    @property
    def state(self) -> StateT:
        """Everything that the board shows; a frozen value."""
        return self._state

    @property
    def widget(self) -> Any:
        """The ipywidget, for a layout of your own."""
        return self._board

    def _ipython_display_(self) -> None:
        self._saved.display(self.widget, f"{type(self).__name__}()")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return "\n  ".join([f"{type(self).__name__}()", *self._lines()])

    def _copy(self) -> tuple[str, str]:
        """Return what a notebook keeps of the board."""
        note = self._catalog.text("notebook.saved", name=self._title)
        html = saved_page(self._saved_parts(), self._catalog, note=note)
        return html, saved_lines(repr(self).split("\n"), self._catalog)

    @abstractmethod
    def _lines(self) -> list[str]:
        """Return the board in short, as text."""

    @abstractmethod
    def _parts(self) -> Sequence[str]:
        """Return the HTML of the board, top to bottom; unchanged parts are equal texts."""

    @abstractmethod
    def _saved_parts(self) -> Sequence[str]:
        """Return the HTML of the board without buttons and fields."""

    @abstractmethod
    def _handle(self, press: Press) -> None:
        """Handle a press; ignore unknown or currently impossible ones."""

    def _show(self, state: StateT) -> None:
        """Replace the state, and show it."""
        self._state = state
        self._board.parts = [str(part) for part in self._parts()]
        self._saved.renew()

    def _update(self, **changes: Any) -> None:
        self._show(replace(self._state, **changes))

    def _show_notice(self, text: str, *, is_error: bool = False) -> None:
        """Show a notice in place of the previous one."""
        self._update(notices=(PanelNotice(text=text, is_error=is_error),))

    def _show_error(self, error: BaseException) -> None:
        _log.warning("the board failed", exc_info=error)
        text = self._catalog.text("notebook.error", type=type(error).__name__)
        detail = error_text(error)
        message = detail if isinstance(error, LhkitError) else f"{text}\n{detail}"
        self._show_notice(message, is_error=True)

    def _press(self, press: Press) -> None:
        try:
            self._handle(press)
        except (LhkitError, OSError) as error:
            self._show_error(error)


def stack_board(board: Any) -> Any:
    """Return a widget with a row for two conversations side by side, above a board."""
    row = ipywidgets.Box([])
    row.add_class("lhkit-sides")
    box = ipywidgets.Box([row, board])
    box.add_class("lhkit-ab")
    return box
