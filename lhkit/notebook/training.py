"""A training while it goes on, in a notebook: its curves, and what it made of scenarios by then."""

import asyncio
import logging
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from lhkit.locales import DEFAULT_LOCALE, Catalog, load_catalog
from lhkit.notebook.widget import Board, HomeLoop, Press, Running
from lhkit.text import printable
from lhkit.tuning.curves import CURVES
from lhkit.tuning.scores import SCORES, score_words, shown_scores

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a training's folder shows: when it was written, a picture, a line for each score."""

    written: tuple[int, ...] = ()
    picture: bytes = b""
    scores: tuple[str, ...] = ()


class TrainingWatch:
    """The curves of a training in the output of a cell, drawn anew as it goes on.

    It follows the folder, which a command in a terminal may be writing, until it is closed. With
    `lhkit tune run --eval` it shows each score, too.

    Example:
        ```
        lhkit.notebook.TrainingWatch("tuned/training")  # of `lhkit tune run --into tuned`
        ```

    Args:
        folder: of the training; it need not be there yet.
        locale: language of what stands around the picture (`ko`, `en`), which has its own.

    Raises:
        TuningError: its scores cannot be read.
    """

    def __init__(self, folder: Path | str, *, locale: str = DEFAULT_LOCALE) -> None:
        self._folder = Path(folder)
        self._catalog = load_catalog(locale)
        self._loop = HomeLoop()
        self._running = Running(self._loop, self._show_fault)
        self._is_closed = asyncio.Event()
        self._board = Board(
            loop=self._loop,
            catalog=self._catalog,
            title=self._catalog.text("tune.watch"),
            name=self._name,
            receive=_ignore,
        )
        self._seen = _Seen()
        self._draw(_seen(self._folder, self._catalog))
        self._loop.later(0, lambda: self._running.start(self._look()))

    @property
    def widget(self) -> Any:
        """The ipywidget, to be put into a layout of one's own."""
        return self._board.widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return self._name()

    def _name(self) -> str:
        return "\n  ".join(["TrainingWatch()", *self._lines()])

    def _lines(self) -> Sequence[str]:
        none_yet = () if self._seen.picture else (self._catalog.text("tune.no_picture"),)
        return (*none_yet, *self._seen.scores)

    def close(self) -> None:
        """Look no longer, and take the view off the page."""
        self._is_closed.set()
        self._board.widget.close()

    async def _look(self) -> None:
        """Bring what is shown up to date until it is closed."""
        while not self._is_closed.is_set():
            try:
                await asyncio.wait_for(self._is_closed.wait(), _LOOK_S)
            except TimeoutError:
                if _written(self._folder) != self._seen.written:
                    self._draw(await asyncio.to_thread(_seen, self._folder, self._catalog))

    def _show_fault(self, error: BaseException) -> None:
        _log.warning("the training can be watched no longer", exc_info=error)
        told = escape(printable(str(error) or type(error).__name__))
        fault = f'<div class="lhkit-told" data-fault role="alert">{told}</div>'
        self._board.show((*self._board.widget.parts, fault))

    def _draw(self, seen: _Seen) -> None:
        self._seen = seen
        lines = [f"<li>{escape(printable(each))}</li>" for each in self._lines()]
        self._board.show((_picture(seen, self._catalog), f"<ul>{''.join(lines)}</ul>"))


def _ignore(_: Press) -> None:
    """Nothing can be pressed in it."""


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / f"{CURVES}.svg", folder / SCORES


def _written(folder: Path) -> tuple[int, ...]:
    """Return when the files were written that are shown, for those that are there."""
    return tuple(each.stat().st_mtime_ns if each.exists() else 0 for each in _files(folder))


def _seen(folder: Path, catalog: Catalog) -> _Seen:
    written = _written(folder)  # first: what is written meanwhile is seen the next time
    picture, _ = _files(folder)
    return _Seen(
        written=written,
        picture=picture.read_bytes() if picture.exists() else b"",
        scores=tuple(score_words(each, catalog) for each in shown_scores(folder)),
    )


def _picture(seen: _Seen, catalog: Catalog) -> str:
    """Return the curves as an image, which runs no script, whoever wrote the file."""
    if not seen.picture:
        return ""
    title = escape(catalog.text("tune.watch"))
    data = b64encode(seen.picture).decode()
    return f'<img class="lhkit-curves" alt="{title}" src="data:image/svg+xml;base64,{data}">'
