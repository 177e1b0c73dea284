"""The runs of one suite over time: pass rate, violations and latency by date and commit.

A suite is a toolset with a set of scenarios. Runs of other suites and parts of a suite are counted
and left out; where there are only parts, those of the newest part are shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lhkit.base.errors import MissingRunError, RunError
from lhkit.base.locales import Catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import NOTHING, part_of
from lhkit.base.user_locale import user_catalog
from lhkit.harness.figures.frames import Column, data_frame
from lhkit.harness.figures.metrics import ScoreFigure, Summary
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import parse_moment
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.results import Run
from lhkit.harness.views.scores import figure_text
from lhkit.harness.views.tables import Cell, Table, interval_text, selection_line, shortened_list

if TYPE_CHECKING:
    import pandas as pd

_COMMIT_CHARS = 8
_SHOWN_SCORES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One run of a history.

    Attributes:
        folder: the run folder.
        manifest: the contents of its `manifest.json`.
        summary: its metrics.
        is_finished: whether it has every sample.
        changed_scenarios: the number of scenarios whose content differs from the newest run.
    """

    folder: Path
    manifest: Manifest
    summary: Summary
    is_finished: bool = True
    changed_scenarios: int = 0

    @property
    def started_at(self) -> str:
        """The start of the newest invocation, ISO 8601; empty if unknown."""
        return next((i.started_at or "" for i in reversed(self.manifest.invocations)), "")

    @property
    def commit(self) -> str:
        """The git commit; empty if unknown."""
        return self.manifest.git_commit or ""

    @property
    def arm(self) -> str:
        """The models with server, number type, card, dialect, constraint, stress, and the user.

        Weights and versions are not part of it: they change over time.
        """
        parts = []
        for model in self.summary.models:
            server = model.server.partition(" ")[0]
            parts += [model.model, server, model.dtype, model.device]
            parts += [model.dialect, model.constraint, model.stress]
        user = self.manifest.simulated_user
        parts += [] if user == "script" else [user]
        return " · ".join(part for part in parts if part and part not in {"off", "none"})


HISTORY = (
    Column("run", "str", lambda p: p.folder.name, "name of the run folder"),
    Column("started_at", "str", "started_at", "start of the newest invocation, ISO 8601"),
    Column("commit", "str", "commit", "git commit; empty if unknown"),
    Column(
        "arm",
        "str",
        "arm",
        "model, server, number type, card, dialect, constraint, stress and simulated user",
    ),
    Column("valid", "int64", "summary.total.valid", "samples that passed or failed"),
    Column("invalid", "int64", "summary.total.invalid", "samples with infrastructure errors"),
    Column("passed", "int64", "summary.total.passed", "samples that passed"),
    Column("pass_rate", "float64", "summary.total.pass_rate", "share of valid samples, 0 to 1"),
    Column("low", "float64", lambda p: _end(p, "low"), "lower end of its 95 % interval"),
    Column("high", "float64", lambda p: _end(p, "high"), "upper end of its 95 % interval"),
    Column("blocked", "int64", "summary.total.blocked", "violations that were blocked"),
    Column("occurred", "int64", "summary.total.occurred", "violations that occurred"),
    Column("turn_p95_s", "float64", "summary.total.turn.p95_s", "p95 of a user turn, in seconds"),
    Column(
        "first_token_p95_s",
        "float64",
        lambda p: p.summary.times["first_token"].p95_s,
        "p95 of the time to first token, in seconds",
    ),
    Column(
        "changed_scenarios",
        "int64",
        "changed_scenarios",
        "scenarios whose content differs from the newest run",
    ),
)
"""The columns of `History.frame`."""


def _end(point: HistoryPoint, name: str) -> float | None:
    interval = point.summary.total.interval
    return None if interval is None else float(getattr(interval, name))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History:
    """The finished runs of one suite, oldest first.

    Attributes:
        points: the runs.
        other_suites: the number of runs of other scenarios or another toolset.
        partial: the number of runs of a part of the suite, or with missing samples.
        unreadable: the folders whose run is invalid.
    """

    points: tuple[HistoryPoint, ...]
    other_suites: int = 0
    partial: int = 0
    unreadable: tuple[Path, ...] = ()

    @classmethod
    def load(cls, folder: Path | str, *, like: Run | None = None) -> "History":
        """Return the history of the runs in a folder and its subfolders.

        Args:
            folder: a folder with run folders, such as `runs`.
            like: a run of the suite; by default the newest run of a whole suite, or without one
                of a part.

        Raises:
            MissingRunError: there is no run.
            RunError: no run can be read.
        """
        points: list[HistoryPoint] = []
        unreadable: list[Path] = []
        reason: RunError | None = None
        for path in sorted(Path(folder).rglob(RECORDS)):
            try:
                run = Run.load(path.parent)
            except RunError as error:
                reason = reason or error
                unreadable.append(path.parent)
            else:
                points.append(_point(run, path.parent))
        if not points and reason is not None:
            raise reason
        if not points:
            raise MissingRunError(f"{folder} has no run. Give a folder of runs, such as runs")
        points.sort(key=_order)
        suites = [_suite(point.manifest) for point in points]
        finished = [
            (point.manifest, suite)
            for point, suite in zip(points, suites, strict=True)
            if point.is_finished
        ]
        whole = [
            (manifest, suite)
            for manifest, suite in finished
            if manifest.selection is None and not any(_is_part(suite, other) for other in suites)
        ]
        shown, suite = (whole or finished or [(Manifest(), suites[-1])])[-1]
        if like is not None:
            shown, suite = like.manifest, _suite(like.manifest)
        kept = [
            point
            for point, its in zip(points, suites, strict=True)
            if its == suite
            and point.is_finished
            and (point.manifest.selection is None or shown.selection is not None)
        ]
        partial = sum(its == suite or _is_part(its, suite) for its in suites) - len(kept)
        newest = kept[-1].manifest.scenarios if kept else {}
        return cls(
            points=tuple(
                replace(
                    point,
                    changed_scenarios=sum(
                        newest.get(name) != sha256
                        for name, sha256 in point.manifest.scenarios.items()
                    ),
                )
                for point in kept
            ),
            other_suites=len(points) - len(kept) - partial,
            partial=partial,
            unreadable=tuple(unreadable),
        )

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per run, oldest first; see `HISTORY` for the columns.

        Each score of a run is a further column, such as `score polite`: its rate or mean.
        """
        scores = (
            Column(f"score {name}", "float64", partial(_score_value, name), "rate or mean")
            for name in self.score_names
        )
        return data_frame((*HISTORY, *scores), self.points)

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the scores that a run has."""
        figures = (figure for point in self.points for figure in point.summary.scores)
        return tuple(dict.fromkeys(figure.name for figure in figures))

    def table(self, catalog: Catalog) -> Table:
        """Return one row per run, newest first, and notes on what is left out."""
        names = ("run", "date", "commit", "arm")
        rates = ("pass_interval", "violations")
        keys = [*(f"history.{name}" for name in names), *(f"table.{name}" for name in rates)]
        keys += ["history.turn"]
        shown = self.score_names[:_SHOWN_SCORES]
        return Table(
            title=catalog.text("history.title"),
            columns=(
                *(Cell(catalog.text(key)) for key in keys),
                *(Cell(name, "code") for name in shown),
            ),
            rows=tuple(
                (*_row(point, catalog), *(_score_cell(point, name, catalog) for name in shown))
                for point in reversed(self.points)
            ),
            notes=tuple(self._notes(catalog)),
        )

    def _notes(self, catalog: Catalog) -> Iterator[str]:
        suite = self.points[-1].manifest if self.points else Manifest()
        yield catalog.text(
            "history.suite",
            runs=len(self.points),
            scenarios=len(suite.scenarios),
            toolset=suite.toolset or DEFAULT_TOOLSET,
        )
        parts = [point.manifest.selection for point in self.points]
        if part := next(filter(None, reversed(parts)), None):
            yield catalog.text("history.part", part=selection_line(part, catalog))
        if not self.points:
            yield catalog.text("history.unfinished")
        for name, count in {"other_suites": self.other_suites, "partial": self.partial}.items():
            if count:
                yield catalog.text(f"history.{name}", count=count)
        if more := self.score_names[_SHOWN_SCORES:]:
            yield catalog.text("history.more_scores", names=shortened_list(more))
        if self.unreadable:
            names = shortened_list([folder.name for folder in self.unreadable])
            yield catalog.text("history.unreadable", count=len(self.unreadable), names=names)
        changed = [point for point in self.points if point.changed_scenarios]
        if changed:
            names = shortened_list([point.folder.name for point in changed])
            yield catalog.text("history.changed", runs=len(changed), names=names)

    def _repr_html_(self) -> str:
        """Return the table of the runs."""
        from lhkit.harness.views.html import table_html

        catalog = user_catalog()
        return table_html(self.table(catalog), catalog)

    def __repr__(self) -> str:
        return f"<History: {len(self.points)} runs>"


def _point(run: Run, folder: Path) -> HistoryPoint:
    manifest = run.manifest
    is_finished = len(run.records) >= len(manifest.scenarios) * manifest.repeats
    return HistoryPoint(
        folder=folder,
        manifest=manifest,
        summary=run.summary(),
        is_finished=is_finished,
    )


def _suite(manifest: Manifest) -> tuple[str, frozenset[str]]:
    return manifest.toolset or DEFAULT_TOOLSET, frozenset(manifest.scenarios)


def _is_part(suite: tuple[str, frozenset[str]], other: tuple[str, frozenset[str]]) -> bool:
    return suite[0] == other[0] and suite[1] < other[1]


def _order(point: HistoryPoint) -> tuple[float, str]:
    moment = parse_moment(point.started_at)
    return (moment.timestamp() if moment else 0.0, point.folder.name)


def _zone(moment: datetime) -> str:
    """Return the offset of a time from UTC, such as UTC+09:00; empty if unknown."""
    zone = moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :]
    return f"UTC{zone}" if zone else ""


def _figure(point: HistoryPoint, name: str) -> ScoreFigure | None:
    return next((figure for figure in point.summary.scores if figure.name == name), None)


def _score_value(name: str, point: HistoryPoint) -> float | None:
    figure = _figure(point, name)
    return None if figure is None else figure.value


def _score_cell(point: HistoryPoint, name: str, catalog: Catalog) -> Cell:
    figure = _figure(point, name)
    return Cell(NOTHING if figure is None else figure_text(figure, catalog))


def _row(point: HistoryPoint, catalog: Catalog) -> tuple[Cell, ...]:
    total = point.summary.total
    rate = f"{part_of(total.passed, total.valid)}{interval_text(total.interval)}"
    moment = parse_moment(point.started_at)
    return (
        Cell(point.folder.name, "code"),
        # in the zone of the run, which is named: runs of several machines stand side by side
        Cell(f"{moment:%Y-%m-%d %H:%M} {_zone(moment)}".rstrip() if moment else NOTHING),
        Cell(point.commit[:_COMMIT_CHARS], "code"),
        Cell(point.arm),
        Cell(rate, rate=total.pass_rate, interval=total.interval),
        Cell(f"{total.blocked} / {total.occurred}"),
        Cell(catalog.seconds(total.turn.p95_s)),
    )
