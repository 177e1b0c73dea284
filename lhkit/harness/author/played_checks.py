"""What shows when scripted models play a scenario.

Gold must pass; the no-op and the always-call baseline must not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.author.examples import known_ids
from lhkit.harness.author.findings import LEVELS, Level, Remark
from lhkit.harness.author.gold import (
    TurnTrace,
    always_call_model,
    gold_trace,
    silent_model,
    trace_model,
)
from lhkit.harness.author.noting import NotingToolset
from lhkit.harness.author.read_checks import Known, written_remarks
from lhkit.harness.faults import Path
from lhkit.harness.record import CallRecord, SampleRecord, Verdict
from lhkit.harness.rescore import tools_that_came
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import ALL_REPLIES
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, isolation_fault, opened

_STEP = re.compile(r"(\w+)|\[(\d+)\]")
_BROKEN_TOOL = "handler_error"


async def played_remarks(scenario: Scenario, toolset: Toolset) -> tuple[Remark, ...]:
    """Return all remarks on one scenario."""
    try:
        with opened(toolset, scenario.world, scenario.locale) as session:
            registry, ids = session.registry, known_ids(session)
    except UsageError as error:
        return tuple(_told("world", error, scenario.id))
    nameless = [
        Remark("unknown_tool", ("faults", i, "tool"), f"there is no tool {fault.tool!r}")
        for i, fault in enumerate(scenario.faults)
        if fault.tool not in registry and fault.tool not in scenario.called
    ]
    if nameless:
        return tuple(nameless)
    try:
        trace = gold_trace(scenario, registry)
    except UsageError as error:
        known = Known(registry=registry, ids=ids, made=_any_id(ids))
        written = tuple(written_remarks(scenario, known))
        wrong = [each.path for each in written if LEVELS[each.code] is Level.ERROR]
        told = _told("underivable", error, scenario.id)
        return (*written, *(each for each in told if not _is_beside(each.path, wrong)))
    if isolation_fault(toolset):  # playing would call tools; without it nobody knows new ids
        return tuple(written_remarks(scenario, Known(registry=registry)))
    gold = await tried(scenario, trace_model(trace, name="gold"), toolset)
    came = [each for each in tools_that_came(gold.evidence) if each.name not in registry]
    known = Known(
        registry=ToolRegistry([*registry.definitions, *came]) if came else registry,
        ids=ids,
        made=_ids_in(gold.evidence.final_state),
    )
    return (
        *written_remarks(scenario, known),
        *_gold_remarks(gold),
        *await _broken_tools(scenario, gold, trace, toolset),
        *_unused_faults(scenario, gold),
        *await _too_easy(scenario, toolset),
    )


def _is_beside(path: Path, others: Sequence[Path]) -> bool:
    """Return whether one of the others is about the same call of the same turn, or a part of it."""
    calls = ("expect", "calls")
    return any(path[2:4] == calls and path[:5] == other[:5] for other in others)


async def _too_easy(scenario: Scenario, toolset: Toolset) -> list[Remark]:
    """Return a remark for each model that must fail and does not."""
    calling = await tried(scenario, always_call_model(scenario, toolset), toolset)
    silent = await tried(scenario, silent_model(), toolset)
    remarks = []
    if silent.judgement.verdict is Verdict.PASS:
        remarks.append(Remark("silent", (), "a model that does nothing passes: demand words"))
    if calling.judgement.verdict is Verdict.PASS:
        message = "a model that calls every tool and claims success passes: forbid or exclude more"
        remarks.append(Remark("always_call", (), message))
    return remarks


def _told(code: str, error: UsageError, scenario_id: str) -> Iterator[Remark]:
    """Yield the lines of an exception, with the field that each begins with as a path."""
    for line in str(error).splitlines():
        place, _, message = line.removeprefix(f"{scenario_id}.").partition(": ")
        yield Remark(code, _path_of(place), message)


def _path_of(place: str) -> Path:
    steps = [found[0] or found[1] for found in _STEP.findall(place)]
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _gold_remarks(gold: SampleRecord) -> Iterator[Remark]:
    if gold.judgement.verdict is Verdict.INVALID:
        last = gold.judgement.reasons[-1].strip().splitlines()[-1] if gold.judgement.reasons else ""
        yield Remark("gold", (), f"the gold trace cannot be played: {last}")
        return
    turns, rest = _by_turn(gold.judgement.reasons)
    for turn, reasons in turns.items():
        yield Remark("gold", ("turns", turn), f"the gold trace fails: {'; '.join(reasons)}")
    for violation in gold.judgement.violations:
        told = f"{violation.code}: {violation.detail}"
        if violation.code == "unlisted_write" or told in turns.get(
            -1 if violation.turn is None else violation.turn, ()
        ):
            continue
        path: Path = () if violation.turn is None else ("turns", violation.turn)
        yield Remark("violation", path, f"the gold trace breaks a rule: {told}")
        rest = [reason for reason in rest if reason != told]
    yield from _end_remarks(rest, is_followed=not turns)


def _by_turn(reasons: Sequence[str]) -> tuple[dict[int, list[str]], list[str]]:
    """Return the reasons of each turn, and those of the whole conversation."""
    turns: dict[int, list[str]] = {}
    rest = []
    for reason in reasons:
        turn = re.match(r"turn (\d+): (.*)", reason, re.DOTALL)
        if turn is None:
            rest.append(reason)
        else:
            turns.setdefault(int(turn[1]), []).append(turn[2])
    return turns, rest


def _end_remarks(reasons: Sequence[str], *, is_followed: bool) -> Iterator[Remark]:
    """Yield what is wrong with all replies, and with the data at the end.

    Data that are wrong after a turn that failed are no mistake of their own, and a row that is not
    there and another that is are one.
    """
    words = [reason for reason in reasons if reason.startswith(ALL_REPLIES)]
    if words:
        told = "; ".join(reason.removeprefix(ALL_REPLIES) for reason in words)
        yield Remark("gold", ("reply",), f"the gold trace fails: {told}")
    rows = {reason: _ROW.match(reason) for reason in reasons if reason not in words}
    unmet = [(reason, row) for reason, row in rows.items() if row is not None]
    others = [reason for reason, row in rows.items() if row is None]
    if not is_followed:
        return
    for reason, row in unmet:
        told = "; ".join([reason, *others])
        path = (row[1], row[2], int(row[3]))
        yield Remark("final_state", path, f"the gold trace does not reach it: {told}")
        others = []
    for reason in others:
        yield Remark("final_state", ("final",), f"the gold trace does not reach it: {reason}")


_ROW = re.compile(r"(final|gone)\.(\w+)\[(\d+)\]: ")


async def _broken_tools(
    scenario: Scenario,
    gold: SampleRecord,
    trace: Sequence[TurnTrace],
    toolset: Toolset,
) -> list[Remark]:
    """Return the tools that fail by themselves, with the line that does; it is played again."""
    broken = list(_unexpectedly_broken(scenario, gold))
    if not broken:
        return []
    watched = NotingToolset(inner=toolset)
    await tried(scenario, trace_model(trace, name="gold"), watched.toolset)
    return [
        Remark("broken_tool", ("turns", turn), _broken(call, watched.place(call.tool, call.args)))
        for turn, call in broken
    ]


def _unexpectedly_broken(
    scenario: Scenario, gold: SampleRecord
) -> Iterator[tuple[int, CallRecord]]:
    """Yield each call whose tool fails by itself, with its turn; who expects it says so."""
    scripted = {fault.tool for fault in scenario.faults}
    for number, (turn, played) in enumerate(zip(scenario.turns, gold.evidence.turns, strict=False)):
        meant = {call.tool for call in turn.expect.calls if call.result == _BROKEN_TOOL}
        for call in played.calls:
            if call.outcome == _BROKEN_TOOL and call.tool not in scripted | meant:
                yield number, call


def _broken(call: CallRecord, place: str) -> str:
    at = f" at {place}" if place else ""
    told = f"{call.tool} fails in the gold trace ({call.result.get('reason')}){at}"
    return f"{told}: mend the tool or `world`"


def _unused_faults(scenario: Scenario, gold: SampleRecord) -> Iterator[Remark]:
    broken = {
        c.tool for turn in gold.evidence.turns for c in turn.calls if c.outcome == _BROKEN_TOOL
    }
    for i, fault in enumerate(scenario.faults):
        if fault.tool not in broken:
            message = f"the gold trace never meets it: no call of {fault.tool} gets that far"
            yield Remark("unused_fault", ("faults", i), message)


def _any_id(ids: Mapping[str, Sequence[str]]) -> frozenset[str]:
    return frozenset(each for some in ids.values() for each in some)


def _ids_in(state: Mapping[str, Sequence[Mapping[str, Any]]]) -> frozenset[str]:
    """Return the ids of all rows."""
    return frozenset(
        value
        for rows in state.values()
        for row in rows
        for name, value in row.items()
        if (name == "id" or name.endswith("_id")) and isinstance(value, str)
    )
