"""A board: parts of HTML with buttons, keys and fields, and what is pressed in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import traitlets

from lhkit.locales import Catalog
from lhkit.notebook.loop import HomeLoop
from lhkit.notebook.widget import STATIC, SafeWidget


class BoardWidget(SafeWidget):
    """One board as the browser sees it.

    Args:
        name: returns what `repr` says.
        receive: is handed every message of the browser, in whatever thread that comes.
    """

    _esm = STATIC / "board.js"
    _css = STATIC / "panel.css"

    parts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        name: Callable[[], str],
        receive: Callable[[Mapping[str, Any]], None],
        **traits: Any,
    ) -> None:
        self._name = name
        super().__init__(**traits)
        self.on_msg(lambda _widget, content, _buffers: receive(content))

    def __repr__(self) -> str:
        return self._name()


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """What was pressed in a board, with the fields as they were; `view` names the page."""

    name: str
    value: str = ""
    fields: Mapping[str, str]
    view: str = ""


class Board:
    """Shows parts of HTML and hands on what is pressed. All methods belong to the loop's thread.

    Args:
        loop: the loop of the panel.
        catalog: the texts.
        title: what the board is called for those who hear it.
        name: returns what the widget's `repr` says.
        receive: is handed presses, on the loop.
    """

    def __init__(
        self,
        *,
        loop: HomeLoop,
        catalog: Catalog,
        title: str,
        name: Callable[[], str],
        receive: Callable[[Press], None],
    ) -> None:
        self._receive = receive
        words = {key: catalog.text(f"notebook.{key}") for key in ("waiting", "lost")}
        self.widget = BoardWidget(
            name=name,
            receive=lambda content: loop.hand_over(self.take_message, content),
            labels={**words, "title": title},
            locale=catalog.locale,
        )

    def show(self, parts: Sequence[str]) -> None:
        """Show these parts, top to bottom."""
        self.widget.parts = list(parts)

    def give_back(self, view: str, text: str) -> None:
        """Put words that were not taken back into the text area of a page."""
        self.widget.send({"type": "unsent", "view": view, "text": text})

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what a page sent; what is no press is ignored."""
        match content:
            case {"type": "ready"}:
                self.widget.send_state("parts")
                self.widget.send({"type": "here"})
            case {"type": "press", "press": str(name), "value": str(value), "fields": dict(fields)}:
                told = {str(key): each for key, each in fields.items() if isinstance(each, str)}
                view = str(content.get("view", ""))
                self._receive(Press(name=name, value=value, fields=told, view=view))
            case _:
                pass


def stacked(sides: Sequence[Any], board: Any) -> Any:
    """Return widgets beside each other, over a board, as one widget."""
    row = ipywidgets.Box(list(sides))
    row.add_class("lhkit-sides")
    both = ipywidgets.Box([row, board])
    both.add_class("lhkit-ab")
    return both
