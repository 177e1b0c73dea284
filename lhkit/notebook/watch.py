"""A run while it plays, in a notebook: rates so far, the slowest samples, failures to open."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lhkit.harness.html import sample_html
from lhkit.harness.record import SampleRecord
from lhkit.harness.results import Run
from lhkit.harness.watch import (
    Followed,
    Watched,
    Watching,
    name,
    rate_words,
    sample_words,
    shown,
    title,
)
from lhkit.locales import DEFAULT_LOCALE, Catalog, load_catalog
from lhkit.notebook.ab_view import press_button
from lhkit.notebook.widget import Board, HomeLoop, Press, Running, in_cell, show
from lhkit.text import printable

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often a folder is looked into."""


class RunWatch:
    """What can be said of a run while it plays, in the output of a cell.

    It shows what `lhkit eval --watch` shows. A failure can be opened, and stays open while others
    come. Where the run is played, it is told of each sample; elsewhere it follows the run's folder,
    which another process may be writing, until that invocation has ended.

    Example:
        ```
        run = await lhkit.replay(scenarios, model, watch=RunWatch(asked=20), progress=False)

        lhkit.Run.load("runs/mine").watch()  # what `lhkit eval --name mine` is playing
        ```

    Args:
        folder: of the run to follow; None to be told by `replay(…, watch=…)`.
        asked: how many samples there will be, if it is told; a folder says it itself.
        locale: language of the view (`ko`, `en`).

    Raises:
        MissingRunError: there is no run in the folder.
        RunError: its manifest or a record is broken.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        asked: int | None = None,
        locale: str = DEFAULT_LOCALE,
    ) -> None:
        self._catalog = load_catalog(locale)
        self._loop = HomeLoop()
        self._running = Running(self._loop, self._show_fault)
        self._followed: Followed | None = None
        self._opened: SampleRecord | None = None
        self._fault = ""
        self._is_shown = False
        self._is_closed = asyncio.Event()
        if folder is not None:
            self._followed = Followed(Run.load(folder, keep_records=False).folder or Path(folder))
            self._followed.read()
        self._state = self._followed.state if self._followed else Watched(asked)
        self._watching = Watching(self._state, self._draw)
        self._board = Board(
            loop=self._loop,
            catalog=self._catalog,
            title=self._catalog.text("watch.title"),
            name=self._name,
            receive=self._press,
        )
        self._watching.draw()
        if self._followed and not self._followed.is_over:
            self._loop.later(0, lambda: self._running.start(self._look()))

    @property
    def state(self) -> Watched:
        """What is known of the run by now."""
        return self._watching.state

    @property
    def spent_s(self) -> float:
        """The seconds that counting and drawing took: at most a hundredth of a longer run's."""
        return self._watching.spent_s

    @property
    def drawn(self) -> int:
        """How often it was drawn."""
        return self._watching.drawn

    @property
    def widget(self) -> Any:
        """The ipywidget, to be put into a layout of one's own."""
        self._is_shown = True
        return self._board.widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return self._name()

    def _name(self) -> str:
        return "\n  ".join(["RunWatch()", *watch_lines(self.state, self._catalog)])

    def __call__(self, record: SampleRecord) -> None:
        """Take a sample that ended, as `replay` tells it. Where nothing shows this yet, it does."""
        if not self._is_shown:
            self._is_shown = True
            if in_cell():
                show(self._board.widget)
        self._watching(record)

    def open(self, sample: str) -> None:
        """Open one of the samples that are listed; an empty name closes what is open."""
        listed = (*self.state.failures, *self.state.slowest)
        self._opened = next((each for each in listed if name(each) == sample), None)
        self._watching.draw()

    def close(self) -> None:
        """Look no longer, and take the view off the page."""
        self._is_closed.set()
        self._board.widget.close()

    async def _look(self) -> None:
        """Bring what is shown up to date until the invocation has ended."""
        followed = self._followed
        while followed is not None and not followed.is_over and not self._is_closed.is_set():
            try:
                await asyncio.wait_for(self._is_closed.wait(), LOOK_S)
            except TimeoutError:
                if await asyncio.to_thread(followed.read):
                    self._watching.state = followed.state
                    self._watching.soon()

    def _show_fault(self, error: BaseException) -> None:
        _log.warning("the run can be watched no longer", exc_info=error)
        self._fault = str(error) or type(error).__name__
        self._watching.draw()

    def _press(self, press: Press) -> None:
        if press.name == "open":
            _, _, sample = press.value.partition(":")
            is_open = self._opened is not None and name(self._opened) == sample
            self.open("" if is_open else sample)

    def _draw(self, state: Watched) -> None:
        self._board.show(
            watch_parts(
                state,
                self._catalog,
                opened=self._opened,
                fault=self._fault,
                has_ended=state.is_over if self._followed is None else self._followed.is_over,
            )
        )


def watch_parts(
    state: Watched,
    catalog: Catalog,
    *,
    opened: SampleRecord | None,
    fault: str,
    has_ended: bool,
) -> Sequence[str]:
    """Return the parts of the view, top to bottom; one that did not change is the same text."""
    words = shown(state, catalog)
    rows = "".join(
        f'<tr><th scope="row">{escape(ac)}</th><td>{escape(rate)}</td></tr>'
        for ac, rate in words.rates
    )
    head = (
        f'<table class="lhkit-facts"><caption>{escape(words.title)}</caption><thead><tr>'
        f'<th scope="col">AC</th><th scope="col">{escape(catalog.text("watch.rate"))}</th></tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )
    over = catalog.text("watch.over") if has_ended else ""
    return (
        head,
        _listed("slowest", words.slowest, opened, catalog),
        _listed("failures", words.failures, opened, catalog),
        sample_html(opened) if opened is not None else "",
        f'<div class="lhkit-told" role="status">{escape(over)}</div>',
        f'<div class="lhkit-told" data-fault role="alert">{escape(printable(fault))}</div>'
        if fault
        else "",
    )


def _listed(
    kind: str,
    samples: Sequence[tuple[str, str]],
    opened: SampleRecord | None,
    catalog: Catalog,
) -> str:
    """Return samples, each behind a button that opens or closes it."""
    if not samples:
        return ""
    heading = escape(catalog.text(f"watch.{kind}"))
    is_open = "" if opened is None else name(opened)
    rows = "".join(
        '<li class="lhkit-told">'
        + press_button("open", each, value=f"{kind}:{each}", pressed=each == is_open)
        + f" {escape(about)}</li>"
        for each, about in samples
    )
    return f'<div class="lhkit-title">{heading}</div><ul class="lhkit-samples">{rows}</ul>'


def watch_lines(state: Watched, catalog: Catalog) -> Iterator[str]:
    """Yield the view in short, for where no widget can be shown; without times, which differ."""
    yield title(state, catalog)
    for ac in sorted(state.by_ac):
        yield f"{printable(ac)}: {rate_words(state.by_ac[ac])}"
    for record in state.failures:
        yield f"{name(record)} · {sample_words(record, timed=False)}"
