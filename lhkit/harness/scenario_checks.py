"""Checks of a scenario's parts that a schema cannot say: matchers, patterns, order, days, clock."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from lhkit.errors import ScenarioError
from lhkit.harness.assignment import Problem, assign_ordered
from lhkit.harness.faults import Fault, Path, did_you_mean
from lhkit.harness.matchers import args_faults, row_faults
from lhkit.harness.patterns import pattern_fault
from lhkit.harness.relative_dates import DAY_WORDS, misspelt_days
from lhkit.harness.turn import Before, ExpectedReply, Gold, Listed, ScriptedFault, Turn
from lhkit.json_values import CLOCK_YEARS


def world_faults(world: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a clock that is no time with offset, and tables that are no lists of rows."""
    for name, value in world.items():
        if name == "now":
            if not is_moment(value):
                yield Fault(
                    ("world", "now"),
                    "must be a time with offset, from the year "
                    f"{CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}: 2026-06-15T09:00:00+09:00",
                )
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield Fault(("world", name), "must be a list of rows")


def day_faults(world: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """Yield the misspelt days of a world, each at its field.

    A row that has a field `date` alone is a row, whatever stands there.
    """
    for place, word in misspelt_days(world):
        is_row = len(place) == _ROW_DEPTH and isinstance(place[-1], int)
        if place and not is_row:
            yield _no_day((*path, *place), word)


_ROW_DEPTH = 2
"""`items[0]`: a table and the place in it."""


def _no_day(path: Path, word: str) -> Fault:
    return Fault(
        path,
        f"date: {word!r} is no day: write today, tomorrow-1w, last friday or monthstart-1m, or "
        f"YYYY-MM-DD without `date`{did_you_mean(word, DAY_WORDS)}",
    )


def twice_broken(faults: Sequence[ScriptedFault]) -> Iterator[Fault]:
    """Yield the tools that are listed under `faults` twice."""
    tools = [fault.tool for fault in faults]
    for number, tool in enumerate(tools):
        if tool in tools[:number]:
            yield Fault(
                ("faults", number, "tool"), f"{tool} stands here twice: write one entry with times"
            )


def is_moment(value: Any) -> bool:
    """Return True for a time with an offset, in a year that a clock may show."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and moment.year in CLOCK_YEARS


def turn_faults(turn: Turn, path: Path) -> Iterator[Fault]:
    """Yield what is wrong in a turn."""
    for number, call in enumerate(turn.expect.calls):
        yield from args_faults(call.args, (*path, "expect", "calls", number, "args"))
    for number, forbidden in enumerate(turn.forbid):
        yield from args_faults(forbidden.args, (*path, "forbid", number, "args"))
    yield from _gold_faults(turn.gold, (*path, "gold"))
    for number, row in enumerate(turn.expect.results):
        yield from row_faults(row, (*path, "expect", "results", number))
    if turn.expect.asks_whichever and not turn.expect.calls and turn.expect.extra == "none":
        yield Fault(
            (*path, "expect", "results" if turn.expect.results else "least"),
            "asks for calls, and none may be made: say which with extra: reads or extra: any",
        )
    yield from reply_faults(turn.reply, (*path, "reply"))
    yield from listed_faults(turn.final or {}, turn.gone or {}, path)
    if isinstance(turn.expect.order, Before):
        yield from _order_faults(turn.expect.order, len(turn.expect.calls), path)


def _gold_faults(gold: Gold, path: Path) -> Iterator[Fault]:
    for number, call in enumerate(gold.calls or ()):
        for place, word in misspelt_days(call.args):
            if place:  # an argument that is called date is one
                yield _no_day((*path, "calls", number, "args", *place), word)


def reply_faults(reply: ExpectedReply, path: Path) -> Iterator[Fault]:
    """Yield the patterns of a reply that cannot be searched for."""
    parts = ((("all_of", i), part) for i, part in enumerate(reply.all_of))
    for at, part in (((), reply), *parts):
        fault = None if part.matches is None else pattern_fault(part.matches)
        if fault is not None:
            yield Fault((*path, *at, "matches"), fault)


def listed_faults(final: Listed, gone: Listed, path: Path) -> Iterator[Fault]:
    """Yield what is wrong with the rows that are expected or gone."""
    for name, tables in (("final", final), ("gone", gone)):
        for table, rows in tables.items():
            for number, row in enumerate(rows):
                yield from row_faults(row, (*path, name, table, number))


def _order_faults(order: Before, n: int, path: Path) -> Iterator[Fault]:
    nothing = Problem(costs=[[]] * n, left_expected=[0] * n, left_actual=[])
    try:
        assign_ordered(nothing, order.before)
    except ScenarioError as error:
        yield Fault((*path, "expect", "order"), str(error).removeprefix("order: "))
