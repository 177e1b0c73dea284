"""A state and the widget that shows it: folds events, publishes at most 20 times a second."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from lhkit.locales import Catalog, load_catalog
from lhkit.notebook.events import PanelEvent
from lhkit.notebook.export import to_lines
from lhkit.notebook.loop import HomeLoop
from lhkit.notebook.render import View, patches, render
from lhkit.notebook.state import PanelState, fold
from lhkit.notebook.widget import PanelWidget

UPDATE_S = 0.05
"""At least so many seconds between two updates of the browser."""

_LABELS = (
    *("send", "stop", "retry", "clear", "markdown", "json", "scenario", "locale", "placeholder"),
    *("copy", "copied", "messages", "lost", "waiting"),
)


class Screen:
    """Shows a panel or a single card. All methods belong to the loop's thread.

    Args:
        loop: the loop of the panel.
        catalog: the texts.
        name: what the widget's `repr` says, before the conversation in words.
        receive: is handed messages of the browser, on the loop.
        has_input: False for a card alone.
        locales: the languages to choose from.
        title: stands above the messages, where there is one.
        clock: monotonic seconds.
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
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._catalog = catalog
        self._clock = clock
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
            name=lambda: "\n  ".join([name, *to_lines(self._state, self._catalog)]),
            document=self._document,
            receive=lambda content: loop.hand_over(self.take_message, content),
            has_input=has_input,
            locale=catalog.locale,
            locales=list(locales),
            title=title,
            labels=_labels(catalog, locales),
        )

    @property
    def state(self) -> PanelState:
        """What is shown, or will be within `UPDATE_S`."""
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
        self._soon()

    def take(self, event: PanelEvent) -> None:
        """Fold an event and show it soon."""
        self._state = fold(self._state, event, at_s=self._clock())
        self._soon()

    def flush(self) -> None:
        """Show the present state now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        view = render(self._state, self._catalog, self._view)
        changes = patches(self._view, view)
        self._view = view
        self._updated_s = self._clock()
        self.updates += 1
        self.widget.controls = dict(view.controls)  # first: a patch tells the page to look at them
        self.widget.status = view.status
        if changes:
            self._revision += 1
            self.widget.send_patches(self._revision, changes)

    def _soon(self) -> None:
        if self._timer is not None:
            return
        wait_s = max(0.0, self._updated_s + UPDATE_S - self._clock())
        self._timer = self._loop.later(wait_s, self.flush)
        if self._timer is None:
            self.flush()

    def _document(self) -> tuple[list[str], int]:
        fragments = self._view.fragments if self._view else ()
        return [fragment.html for fragment in fragments], self._revision

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what a page sent: that it shows this or no longer does, or a press."""
        match content:
            case {"type": "ready", "view": str(view)}:
                self._viewers.add(view)
                self.was_seen = True
                self.widget.resend()
            case {"type": "gone", "view": str()}:
                self._viewers.clear()  # a page that was reloaded or closed never said so
                self.widget.call_roll()
            case {"type": str()}:
                self._receive(content)
            case _:
                pass


def _labels(catalog: Catalog, locales: Sequence[str]) -> dict[str, str]:
    """Return the words of the page; each language is called what it calls itself."""
    names = {f"locale_{each}": load_catalog(each).text("notebook.locale_name") for each in locales}
    return {key: catalog.text(f"notebook.{key}") for key in _LABELS} | names
