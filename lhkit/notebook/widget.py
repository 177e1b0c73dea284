"""The shell in the browser: traits, patches and messages. It holds no logic and no state.

The list of messages is state of the widget (a reloaded page gets it whole) but travels as
patches, so that an update sends only what changed.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lhkit.notebook.render import Patch
from lhkit.text import whole_unicode

STATIC = Path(__file__).parent / "static"


class SafeWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is skipped by mypy
    """A widget whose messages always arrive: half a surrogate pair in one would stop it.

    A model can write one in JSON, and the kernel's messages are UTF-8.
    """

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits as a page gets them."""
        state: dict[str, Any] = _whole(super().get_state(key, drop_defaults))
        return state

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the pages."""
        super().send(_whole(content), buffers)


def _whole(value: Any) -> Any:
    match value:
        case str():
            return whole_unicode(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case _:
            return value


class PanelWidget(SafeWidget):
    """One panel or card as the browser sees it.

    Args:
        name: returns what `repr` says; without an address, so that saved outputs are stable.
        document: returns the HTML of all messages and the number of the last patch.
        receive: is handed every message of the browser, in whatever thread that comes.
    """

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"

    fragments = traitlets.List(traitlets.Unicode()).tag(sync=True)
    revision = traitlets.Int(0).tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    controls = traitlets.Dict().tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locales = traitlets.List(traitlets.Unicode()).tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)
    has_input = traitlets.Bool(default_value=True).tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        name: Callable[[], str],
        document: Callable[[], tuple[list[str], int]],
        receive: Callable[[Mapping[str, Any]], None],
        **traits: Any,
    ) -> None:
        self._name = name
        self._document = document
        super().__init__(**traits)
        self.on_msg(lambda _widget, content, _buffers: receive(content))

    def __repr__(self) -> str:
        return self._name()

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits for a page that opens, with the messages as they are now."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if {"fragments", "revision"} & state.keys():
            fragments, revision = self._document()
            state |= {"fragments": _whole(fragments), "revision": revision}
        return state

    def send_patches(self, revision: int, changes: Sequence[Patch]) -> None:
        """Send what changed; `revision` numbers the patches from 1, without a gap."""
        self.send({"type": "patch", "revision": revision, "changes": list(changes)})

    def resend(self) -> None:
        """Send all messages, to a page that may have missed some, and that we hear it."""
        self.send_state(["fragments", "revision"])
        self.send({"type": "here"})

    def call_roll(self) -> None:
        """Ask the pages that show this to say so once more."""
        self.send({"type": "roll_call"})

    def give_back(self, view: str, text: str) -> None:
        """Put words that were not taken back into the text area of a page."""
        self.send({"type": "unsent", "view": view, "text": text})

    def send_file(self, name: str, text: str) -> None:
        """Let the browser save a file."""
        self.send({"type": "file", "name": name, "text": text})
