"""What shows when scripted models play a scenario: gold must pass, silence and bluff must not."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.authoring.bluff import bluff_model, known_ids
from lhkit.harness.authoring.gold import TurnTrace, gold_trace, silent_model, trace_model
from lhkit.harness.authoring.lint.finding import Remark
from lhkit.harness.authoring.lint.watched import Watched
from lhkit.harness.authoring.lint.written import Known, written_remarks
from lhkit.harness.expectations.matchers import Path
from lhkit.harness.records.record import CallRecord, SampleRecord, Verdict
from lhkit.harness.replay.environment import Environment, opened
from lhkit.harness.replay.trial import tried
from lhkit.harness.scenarios.script import Scenario

_STEP = re.compile(r"(\w+)|\[(\d+)\]")
_BROKEN_TOOL = "handler_error"


async def played_remarks(scenario: Scenario, environment: Environment) -> tuple[Remark, ...]:
    """Return all remarks on one scenario."""
    try:
        with opened(environment, scenario.world, scenario.locale) as session:
            registry, ids = session.registry, known_ids(session)
    except UsageError as error:
        return tuple(_told("world", error, scenario.id))
    nameless = [
        Remark("unknown_tool", ("faults", i, "tool"), f"there is no tool {fault.tool!r}")
        for i, fault in enumerate(scenario.faults)
        if fault.tool not in registry
    ]
    if nameless:
        return tuple(nameless)
    try:
        trace = gold_trace(scenario, registry)
    except UsageError as error:
        known = Known(registry=registry, ids=ids, made=_any_id(ids))
        return (*written_remarks(scenario, known), *_told("underivable", error, scenario.id))
    gold = await tried(scenario, trace_model(trace, name="gold"), environment)
    known = Known(registry=registry, ids=ids, made=_ids_in(gold.final_state))
    return (
        *written_remarks(scenario, known),
        *_gold_remarks(gold),
        *await _broken_tools(scenario, gold, trace, environment),
        *_unused_faults(scenario, gold),
        *await _too_easy(scenario, environment),
    )


async def _too_easy(scenario: Scenario, environment: Environment) -> list[Remark]:
    """Return a remark for each model that must fail and does not."""
    bluff = await tried(scenario, bluff_model(scenario, environment), environment)
    silent = await tried(scenario, silent_model(), environment)
    remarks = []
    if silent.verdict is Verdict.PASS:
        remarks.append(Remark("silent", (), "a model that does nothing passes: demand words"))
    if bluff.verdict is Verdict.PASS:
        message = "a model that calls every tool and claims success passes: forbid or exclude more"
        remarks.append(Remark("bluff", (), message))
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
    if gold.verdict is Verdict.INVALID:
        last = gold.reasons[-1].strip().splitlines()[-1] if gold.reasons else ""
        yield Remark("gold", (), f"the gold trace cannot be played: {last}")
        return
    for reason in gold.reasons if gold.verdict is not Verdict.PASS else ():
        yield _gold_remark(reason)
    for violation in gold.violations:
        path: Path = () if violation.turn is None else ("turns", violation.turn)
        message = f"the gold trace breaks a rule: {violation.code}: {violation.detail}"
        yield Remark("violation", path, message)


def _gold_remark(reason: str) -> Remark:
    turn = re.match(r"turn (\d+): (.*)", reason, re.DOTALL)
    if turn is not None:
        return Remark("gold", ("turns", int(turn[1])), f"the gold trace fails: {turn[2]}")
    row = re.match(r"(final|gone)\.(\w+)\[(\d+)\]: ", reason)
    path: Path = (row[1], row[2], int(row[3])) if row else ("final",)
    return Remark("final_state", path, f"the gold trace does not reach it: {reason}")


async def _broken_tools(
    scenario: Scenario,
    gold: SampleRecord,
    trace: Sequence[TurnTrace],
    environment: Environment,
) -> list[Remark]:
    """Return the tools that fail by themselves, with the line that does; it is played again."""
    broken = list(_unexpectedly_broken(scenario, gold))
    if not broken:
        return []
    watched = Watched(inner=environment)
    await tried(scenario, trace_model(trace, name="gold"), watched)
    return [
        Remark("broken_tool", ("turns", turn), _broken(call, watched.place(call.tool, call.args)))
        for turn, call in broken
    ]


def _unexpectedly_broken(
    scenario: Scenario, gold: SampleRecord
) -> Iterator[tuple[int, CallRecord]]:
    """Yield each call whose tool fails by itself, with its turn; who expects it says so."""
    scripted = {fault.tool for fault in scenario.faults}
    for number, (turn, played) in enumerate(zip(scenario.turns, gold.turns, strict=False)):
        meant = {call.tool for call in turn.expect.calls if call.result == _BROKEN_TOOL}
        for call in played.calls:
            if call.outcome == _BROKEN_TOOL and call.tool not in scripted | meant:
                yield number, call


def _broken(call: CallRecord, place: str) -> str:
    at = f" at {place}" if place else ""
    told = f"{call.tool} fails in the gold trace ({call.result.get('reason')}){at}"
    return f"{told}: mend the tool or `world`"


def _unused_faults(scenario: Scenario, gold: SampleRecord) -> Iterator[Remark]:
    broken = {c.tool for turn in gold.turns for c in turn.calls if c.outcome == _BROKEN_TOOL}
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
