"""Lint scenarios: static checks, and runs of scripted models.

The reference must pass; the silent and the always-call model must fail. Whether a scenario detects
smaller mistakes is checked by `mutate`.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, compact
from lhkit.conversation.tool_results import ToolResult
from lhkit.harness.authoring.checks import (
    LEVELS,
    Finding,
    KnownNames,
    Level,
    Remark,
    static_remarks,
)
from lhkit.harness.authoring.examples import known_ids
from lhkit.harness.authoring.reference import (
    always_call_model,
    reference_trajectory,
    silent_model,
    trace_model,
)
from lhkit.harness.records.record import CallRecord, SampleRecord, Verdict
from lhkit.harness.running.rescore import recorded_new_tools
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.issues import Path
from lhkit.harness.scenarios.loader import Sources
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scoring.verdict import ALL_REPLIES
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    Session,
    Toolset,
    WrappedToolset,
    isolation_issue,
    opened,
    user_code_location,
)

_BROKEN_TOOL = "handler_error"
_RUN_CHECKS = (
    "gold",
    "final_state",
    "violation",
    "broken_tool",
    "silent",
    "always_call",
    "easy",
    "unused_tool_failure",
    "unknown_id",
)
"""Codes of the checks that call tools."""


async def lint(
    sources: Sources, toolset: Toolset, *, tick: Callable[[], object] = lambda: None
) -> tuple[Finding, ...]:
    """Return the problems of scenarios, by file and line.

    Args:
        sources: from `read_sources`; issues of the files are findings, too.
        toolset: the tools that the scenarios run with.
        tick: called after each scenario, to show progress.
    """
    findings = []
    for issue in sources.issues:
        scenario_id, _, field = issue.place.partition(".")
        findings.append(
            Finding(
                level=Level.ERROR,
                code="file",
                file=str(issue.file),
                line=issue.line,
                scenario=scenario_id,
                field=field,
                message=issue.message,
            )
        )
    reason = isolation_issue(toolset)
    if reason and sources.scenarios:
        first = sources.scenarios[0].id
        remark = Remark("not_isolated", (), f"{', '.join(_RUN_CHECKS)} were not checked: {reason}")
        findings.append(remark.at(first, sources.origins[first]))
    for scenario in sources.scenarios:
        origin = sources.origins[scenario.id]
        remarks = await scenario_remarks(scenario, toolset)
        findings += [remark.at(scenario.id, origin) for remark in remarks]
        tick()
    return tuple(sorted(findings, key=lambda finding: (finding.file, finding.line)))


async def scenario_remarks(scenario: Scenario, toolset: Toolset) -> tuple[Remark, ...]:
    """Return the problems of a scenario."""
    try:
        with opened(toolset, scenario.world, scenario.locale) as session:
            registry, ids = session.registry, known_ids(session)
            stops = bool(session.assistant.stops_after_calls)
    except UsageError as error:
        return tuple(_remarks_of("world", error, scenario.id))
    unknown = [
        Remark(
            "unknown_tool", ("tool_failures", i, "tool"), f"tool {failure.tool!r} does not exist"
        )
        for i, failure in enumerate(scenario.tool_failures)
        if failure.tool not in registry and failure.tool not in scenario.called_tools
    ]
    if unknown:
        return tuple(unknown)
    try:
        reference = trace_model(reference_trajectory(scenario, registry), name="gold")
    except UsageError as error:
        all_ids = [id_ for values in ids.values() for id_ in values]
        known = KnownNames(registry=registry, ids=ids, created_ids=all_ids)
        static = [*static_remarks(scenario, known)]
        invalid = [remark.path[:5] for remark in static if LEVELS[remark.code] is Level.ERROR]
        # an invalid call has no reference either: one remark is enough
        underivable = _remarks_of("underivable", error, scenario.id)
        calls = ("expect", "calls")
        return (
            *static,
            *(
                remark
                for remark in underivable
                if remark.path[2:4] != calls or remark.path[:5] not in invalid
            ),
        )
    if isolation_issue(toolset):  # no tool may be called
        return tuple(static_remarks(scenario, KnownNames(registry=registry)))
    record = await run_sample(scenario, reference, toolset)
    came = [tool for tool in recorded_new_tools(record.trajectory) if tool.name not in registry]
    rows = chain.from_iterable(record.trajectory.final_state.values())
    known = KnownNames(
        registry=ToolRegistry([*registry.definitions, *came]) if came else registry,
        ids=ids,
        created_ids={
            value
            for name, value in chain.from_iterable(row.items() for row in rows)
            if (name == "id" or name.endswith("_id")) and isinstance(value, str)
        },
    )
    return (
        *(
            remark
            for remark in static_remarks(scenario, known)
            if not (stops and _is_unreached_reply(remark, scenario))
        ),
        *_reference_remarks(record),
        *await _wording_remarks(scenario, record, reference, toolset),
        *await _tool_failure_remarks(scenario, record, reference, toolset),
        *await _trivial_model_remarks(scenario, toolset),
    )


def _is_unreached_reply(remark: Remark, scenario: Scenario) -> bool:
    """Return whether this is about the reply of a turn that ends with its calls."""
    if remark.code != "unchecked_reply":
        return False
    _, number, *_ = remark.path
    return isinstance(number, int) and bool(scenario.turns[number].expect.calls)


async def _wording_remarks(
    scenario: Scenario, record: SampleRecord, reference: ScriptedModel, toolset: Toolset
) -> list[Remark]:
    """Return which wordings make the reference fail that passes in the first one."""
    remarks: list[Remark] = []
    for wording in list(scenario.wordings())[1:] if record.is_passed else ():
        where = f"in wording {wording.wording + 1}"
        other = _reference_remarks(await run_sample(wording, reference, toolset))
        remarks += [Remark("variant", each.path, f"{where}, {each.message}") for each in other]
    return remarks


def _remarks_of(code: str, error: UsageError, scenario_id: str) -> Iterator[Remark]:
    """Yield a remark per line of an error, which starts with the path of a field."""
    for line in str(error).splitlines():
        place, _, message = line.removeprefix(f"{scenario_id}.").partition(": ")
        steps = [int(step) if step.isdecimal() else step for step in re.findall(r"\w+", place)]
        yield Remark(code, tuple(steps), message)


def _reference_remarks(record: SampleRecord) -> Iterator[Remark]:
    """Yield why the reference fails: by turn, violated rule, reply, and rows of the final state."""
    score = record.score
    if score.verdict is Verdict.INVALID:
        last = score.reasons[-1].strip().splitlines()[-1] if score.reasons else ""
        yield Remark("gold", (), f"the reference cannot be run: {last}")
        return
    turns: dict[int, list[str]] = {}
    rest: list[str] = []
    for reason in score.reasons:
        if turn := re.match(r"turn (\d+): ", reason):
            turns.setdefault(int(turn[1]), []).append(reason[turn.end() :])
        else:
            rest.append(reason)
    for number, reasons in turns.items():
        yield Remark("gold", ("turns", number), f"the reference fails: {'; '.join(reasons)}")
    for violation in score.violations:
        text = f"{violation.code}: {violation.detail}"
        path: Path = () if violation.turn is None else ("turns", violation.turn)
        known = () if violation.turn is None else turns.get(violation.turn, ())
        if violation.code != "unlisted_write" and text not in known:
            yield Remark("violation", path, f"the reference breaks a rule: {text}")
            rest = [reason for reason in rest if reason != text]
    replies = [
        reason.removeprefix(ALL_REPLIES) for reason in rest if reason.startswith(ALL_REPLIES)
    ]
    if replies:
        yield Remark("gold", ("reply",), f"the reference fails: {'; '.join(replies)}")
    if not turns:  # after a failed turn, a wrong final state is no finding of its own
        yield from _state_remarks([reason for reason in rest if not reason.startswith(ALL_REPLIES)])


def _state_remarks(reasons: Sequence[str]) -> Iterator[Remark]:
    """Yield problems of the final state; a missing row and an unexpected one are one remark."""
    listed = [(reason, row) for reason in reasons if (row := _ROW.match(reason))]
    others = [reason for reason in reasons if not _ROW.match(reason)]
    for reason, row in listed:
        text = "; ".join([reason, *others])
        path = (row[1], row[2], int(row[3]))
        yield Remark("final_state", path, f"the reference does not lead to it: {text}")
        others = []
    for reason in others:
        yield Remark("final_state", ("final",), f"the reference does not lead to it: {reason}")


_ROW = re.compile(r"(final|gone)\.(\w+)\[(\d+)\]: ")


async def _tool_failure_remarks(
    scenario: Scenario, record: SampleRecord, reference: ScriptedModel, toolset: Toolset
) -> list[Remark]:
    """Return tools that raise unexpectedly, with the line, and tool failures that never occur.

    The reference runs a second time to find the line.
    """
    scripted = {failure.tool for failure in scenario.tool_failures}
    expected = {
        (number, call.tool)
        for number, turn in enumerate(scenario.turns)
        for call in turn.expect.calls
        if call.result == _BROKEN_TOOL
    }
    failed: list[tuple[int, CallRecord]] = [
        (number, call)
        for number, turn in enumerate(record.trajectory.turns)
        for call in turn.calls
        if call.outcome == _BROKEN_TOOL
    ]
    unexpected = [
        (number, call)
        for number, call in failed
        if call.tool not in scripted and (number, call.tool) not in expected
    ]
    places: dict[str, str] = {}
    if unexpected:
        await run_sample(scenario, reference, _record_places(toolset, places))
    remarks = []
    for number, call in unexpected:
        place = places.get(compact([call.tool, call.args]))
        at = f" at {place}" if place else ""
        text = f"{call.tool} fails in the reference ({call.result.get('reason')}){at}"
        remarks.append(Remark("broken_tool", ("turns", number), f"{text}: fix the tool or `world`"))
    broken = {call.tool for _, call in failed}
    for i, failure in enumerate(scenario.tool_failures):
        if failure.tool not in broken:
            text = f"no call of {failure.tool} in the reference reaches it"
            remarks.append(Remark("unused_tool_failure", ("tool_failures", i), text))
    return remarks


def _record_places(toolset: Toolset, places: dict[str, str]) -> Toolset:
    """Return a toolset that stores by call where its tools raise."""

    def wrap(tool: ToolDefinition) -> ToolDefinition:
        async def handle(args: Mapping[str, JSON], deps: Any) -> ToolResult:
            try:
                returned = tool.handler(args, deps)
                return await returned if inspect.isawaitable(returned) else returned
            except (Exception, SystemExit) as error:
                places[compact([tool.name, args])] = user_code_location(error)
                raise

        return replace(tool, handler=handle)

    def registry(session: Session, _locale: str) -> ToolRegistry:
        return session.registry.mapped(wrap)

    return WrappedToolset(inner=toolset, registry=registry)


async def _trivial_model_remarks(scenario: Scenario, toolset: Toolset) -> list[Remark]:
    """Return a remark for each trivial model that passes."""
    calling = await run_sample(scenario, always_call_model(scenario, toolset), toolset)
    silent = await run_sample(scenario, silent_model(), toolset)
    remarks = []
    if silent.is_passed:
        remarks.append(
            Remark("silent", (), "a model that does nothing passes: require text in the reply")
        )
    if calling.is_passed:
        text = "a model that calls every tool and claims success passes"
        if _has_unexpected_write(scenario, calling):
            remarks.append(Remark("always_call", (), f"{text}: forbid or exclude more"))
        else:
            message = f"{text}, without an unexpected write: its calls cannot tell models apart"
            remarks.append(Remark("easy", (), message))
    return remarks


def _has_unexpected_write(scenario: Scenario, record: SampleRecord) -> bool:
    """Return whether a tool that may write was called in a turn that does not expect it."""
    return any(
        call.destructive and call.tool not in {expected.tool for expected in turn.expect.calls}
        for turn, recorded in zip(scenario.turns, record.trajectory.turns, strict=False)
        for call in recorded.calls
    )
