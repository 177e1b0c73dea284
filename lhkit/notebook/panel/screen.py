"""Screens: a panel's state and its widget in the browser.

Events are folded into the state and published at most 20 times a second. The list of messages is
state of the widget (a reloaded page gets all of it), but travels as patches.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any

import anywidget
import traitlets

from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import whole_unicode
from lhkit.notebook.panel.export import to_lines
from lhkit.notebook.panel.front_end import SavedOutput
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.render import Patch, View, patches, render
from lhkit.notebook.panel.saved import saved_conversation, saved_lines, saved_page
from lhkit.notebook.panel.state import PanelEvent, PanelState, fold

UPDATE_S = 0.05
"""The shortest time between two updates of the browser, in seconds."""

_LABELS = (
    *("send", "stop", "retry", "clear", "markdown", "json", "scenario", "locale", "placeholder"),
    *("copy", "copied", "messages", "lost", "waiting", "examples"),
)


class Screen:
    """Shows a panel or a single card. All methods are called in the loop's thread.

    Args:
        loop: the loop of the panel.
        catalog: the texts.
        name: the first line of the widget's `repr`, before the conversation.
        receive: called with messages of the browser, on the loop.
        has_input: False for a card alone.
        locales: the languages to choose from.
        title: the heading, if any.
        examples: messages to choose from, by locale.
        on_rest: called after an update while no turn runs, or a card is open.
    """

    def __init__(
        self,
        *,
        loop: HomeLoop,
        catalog: Catalog,
        name: str,
        receive: Callable[[Mapping[str, Any]], None],
        has_input: bool = True,
        locales: Sequence[str] = (),
        title: str = "",
        examples: Mapping[str, Sequence[str]] = MappingProxyType({}),
        on_rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._on_rest, self._examples = name, on_rest, examples
        self._saved = SavedOutput(self._copy, lambda content: self.widget.send(content))  # noqa: PLW0108 - created below
        self._loop = loop
        self._catalog = catalog
        self._receive = receive
        self._state = PanelState()
        self._view: View | None = None
        self._revision = 0
        self._updated_s = -UPDATE_S
        self._timer: Any = None
        self._viewers: set[str] = set()
        self.was_seen = False
        self.updates = 0
        self.widget = PanelWidget(
            name=lambda: "\n  ".join(self._lines()),
            document=self._document,
            receive=lambda content: loop.call_soon(self.take_message, content),
            has_input=has_input,
            locale=catalog.locale,
            locales=list(locales),
            title=title,
            labels=_labels(catalog, locales),
            examples=list(examples.get(catalog.locale, ())),
        )

    @property
    def state(self) -> PanelState:
        """The state that is shown now, or within `UPDATE_S`."""
        return self._state

    @property
    def is_watched(self) -> bool:
        """True while a front end that can click shows it."""
        return bool(self._viewers)

    @property
    def catalog(self) -> Catalog:
        """The texts."""
        return self._catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.widget.labels = _labels(catalog, self.widget.locales)
        self.widget.locale = catalog.locale
        self.widget.examples = list(self._examples.get(catalog.locale, ()))
        self._schedule_flush()

    def apply(self, event: PanelEvent) -> None:
        """Fold an event, and show it soon."""
        self._state = fold(self._state, event, at_s=monotonic())
        self._schedule_flush()

    def flush(self) -> None:
        """Show the state now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        view = render(self._state, self._catalog, self._view)
        changes = patches(self._view, view)
        self._view = view
        self._updated_s = monotonic()
        self.updates += 1
        self.widget.controls = dict(view.controls)  # first: the page reads them on a patch
        self.widget.status = view.status
        if changes:
            self._revision += 1
            self.widget.send_patches(self._revision, changes)
        if not self._state.is_busy or self._state.open_card is not None:
            self._saved.renew()
            self._on_rest()

    def display(self) -> None:
        """Display the widget in the running cell, and the copy that its notebook keeps."""
        self._saved.display(self.widget, self._name)

    def _copy(self) -> tuple[str, str]:
        model = self._state.identity.model if self._state.identity else self._name
        note = self._catalog.text("notebook.saved", name=model)
        parts = saved_conversation(self._state, self._catalog)
        html = saved_page(parts, self._catalog, note=note)
        return html, saved_lines(self._lines(), self._catalog)

    def _lines(self) -> list[str]:
        return [self._name, *to_lines(self._state, self._catalog)]

    def _schedule_flush(self) -> None:
        if self._timer is not None:
            return
        wait_s = max(0.0, self._updated_s + UPDATE_S - monotonic())
        self._timer = self._loop.call_later(wait_s, self.flush)
        if self._timer is None:
            self.flush()

    def _document(self) -> tuple[list[str], int]:
        fragments = self._view.fragments if self._view else ()
        return [fragment.html for fragment in fragments], self._revision

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Handle a message of a page: ready, gone, or a pressed button."""
        match content:
            case {"type": "ready", "view": str(view)}:
                self._viewers.add(view)
                self.was_seen = True
                self.widget.resend()
                self._saved.resend()
            case {"type": "gone", "view": str()}:
                self._viewers.clear()  # a page that is reloaded or closed sends nothing
                self.widget.ask_viewers()
            case {"type": str()}:
                self._receive(content)
            case _:
                pass


def _labels(catalog: Catalog, locales: Sequence[str]) -> dict[str, str]:
    """Return the texts of the page; languages have their own names."""
    names = {f"locale_{each}": load_catalog(each).text("notebook.locale_name") for each in locales}
    return {key: catalog.text(f"notebook.{key}") for key in _LABELS} | names


STATIC = Path(__file__).parents[1] / "static"


def script(name: str) -> str:
    """Return a script of a widget, after the functions that all of them share."""
    return "\n".join((STATIC / each).read_text(encoding="utf-8") for each in ("shared.js", name))


class SafeWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is skipped by mypy
    """A widget that replaces lone surrogates, which the kernel cannot send as UTF-8.

    A model can write them as JSON escapes.

    Args:
        name: returns the `repr`, without an address, so that saved outputs are stable.
        receive: called with every message of the browser, in any thread.
    """

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

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits as they are sent to a page."""
        state: dict[str, Any] = _whole(super().get_state(key, drop_defaults))
        return state

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the pages."""
        super().send(_whole(content), buffers)

    def return_text(self, view: str, text: str) -> None:
        """Put text that was not sent back into the text area of a page."""
        self.send({"type": "unsent", "view": view, "text": text})


def _whole(value: Any) -> Any:
    match value:
        case str():
            return whole_unicode(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case _:
            return value


class PanelWidget(SafeWidget):
    """The widget of a panel or card, without logic or state of its own.

    `document` returns the HTML of all messages, and the number of the last patch.
    """

    _esm = script("panel.js")
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
    examples = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, *, document: Callable[[], tuple[list[str], int]], **options: Any) -> None:
        self._document = document
        super().__init__(**options)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits for a page that opens, with the current messages."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if {"fragments", "revision"} & state.keys():
            fragments, revision = self._document()
            state |= {"fragments": _whole(fragments), "revision": revision}
        return state

    def send_patches(self, revision: int, changes: Sequence[Patch]) -> None:
        """Send changes; `revision` numbers the patches from 1, without a gap."""
        self.send({"type": "patch", "revision": revision, "changes": list(changes)})

    def resend(self) -> None:
        """Send all messages to a page that may have missed some, and acknowledge it."""
        self.send_state(["fragments", "revision"])
        self.send({"type": "here"})

    def ask_viewers(self) -> None:
        """Ask the pages that show this widget to report again."""
        self.send({"type": "roll_call"})

    def send_file(self, name: str, text: str) -> None:
        """Let the browser save a file."""
        self.send({"type": "file", "name": name, "text": text})
