"""The run of a scenario's reference calls, from which mutants are made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.examples import known_ids
from lhkit.harness.authoring.reference import TurnTrace, reference_trajectory, trace_model
from lhkit.harness.records.record import CallRecord, RowKeys, SampleRecord
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.sessions import read_row_keys
from lhkit.harness.scenarios.matchers import arguments_fit
from lhkit.harness.scenarios.scenario import ExpectedCall, Scenario
from lhkit.harness.scoring.matching import ActualCall, match_calls
from lhkit.harness.scoring.verdict import ToolMetadata, match_results
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, opened, read_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A reference call, its record, and the expectation that it matches, if any.

    Attributes:
        turn: index of the user turn.
        index: index of the call in the turn.
        call: the call.
        record: its record.
        expected: the expectation that it matches.
        expected_index: index of that expectation.
        is_awaited: True if the scenario requires its result (`expect.results`).
    """

    turn: int
    index: int
    call: ToolCall
    record: CallRecord
    expected: ExpectedCall | None
    expected_index: int | None
    is_awaited: bool

    @property
    def place(self) -> str:
        """Turn and call, from 0."""
        return f"{self.turn}.{self.index}"

    @property
    def is_write(self) -> bool:
        """True if the tool changes data."""
        return self.record.destructive

    @property
    def is_demanded(self) -> bool:
        """True if the scenario requires this call."""
        return self.expected is not None and not self.expected.optional

    @property
    def matters(self) -> bool:
        """True if the scenario requires it or its result, or if it changed data."""
        has_changed = self.is_write and self.record.outcome == "ok"
        return self.is_demanded or self.is_awaited or has_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """A scenario with its reference trajectory, the record, and the calls as steps by turn.

    `is_one_message`: a turn ends after its first message with calls.
    """

    scenario: Scenario
    registry: ToolRegistry
    tools: ToolMetadata
    ids: Mapping[str, Sequence[str]]
    today: date
    max_turns: int
    row_keys: RowKeys
    trace: tuple[TurnTrace, ...]
    record: SampleRecord
    steps: tuple[tuple[Step, ...], ...]
    is_one_message: bool = False

    def with_calls(self, turn: int, calls: Sequence[ToolCall]) -> tuple[TurnTrace, ...]:
        """Return the trajectory with other calls in a turn, within the allowed messages."""
        if self.is_one_message:
            messages: tuple[tuple[ToolCall, ...], ...] = (tuple(calls),) if calls else ()
        else:
            messages = _pack(calls, self.max_turns - 1, self.registry)
        return self._with_turn(turn, replace(self.trace[turn], messages=messages))

    def with_reply(self, turn: int, reply: str) -> tuple[TurnTrace, ...]:
        """Return the trajectory with another reply in a turn."""
        return self._with_turn(turn, replace(self.trace[turn], reply=reply))

    def _with_turn(self, turn: int, changed: TurnTrace) -> tuple[TurnTrace, ...]:
        return (*self.trace[:turn], changed, *self.trace[turn + 1 :])

    def all_steps(self) -> Iterator[Step]:
        """Yield every reference call."""
        for steps in self.steps:
            yield from steps

    def fits(self, expected: ExpectedCall, tool: str, args: Any) -> bool:
        """Return whether an expectation accepts a call."""
        if expected.tool != tool or not isinstance(args, Mapping):
            return False
        schema, today = self.tools.schemas.get(tool, {}), self.today
        return arguments_fit(expected.alternatives, args, schema, extra=False, today=today)

    def is_accepted(self, turn: int, call: ToolCall) -> bool:
        """Return whether an optional expectation that no step matches accepts a call."""
        matched = {step.expected_index for step in self.steps[turn]}
        return any(
            expected.optional and i not in matched and self.fits(expected, call.name, call.args)
            for i, expected in enumerate(self.scenario.turns[turn].expect.calls)
        )


async def run_reference(scenario: Scenario, toolset: Toolset) -> ReferenceRun:
    """Run the reference calls of a scenario.

    Raises:
        ScenarioError: they cannot be derived, or the initial state is invalid.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, ids, today = session.registry, known_ids(session), session.today
        max_turns = session.assistant.max_turns
        is_one_message = bool(session.assistant.stops_after_calls)
        row_keys = read_row_keys(session, read_state(session))
    tools = ToolMetadata.of(registry.definitions, today)
    trace = reference_trajectory(scenario, registry)
    record = await run_sample(scenario, trace_model(trace, name="gold"), toolset)
    return ReferenceRun(
        scenario=scenario,
        registry=registry,
        tools=tools,
        ids=ids,
        today=today,
        max_turns=max_turns,
        row_keys=row_keys,
        trace=trace,
        record=record,
        steps=tuple(_steps(scenario, trace, record, tools, today)),
        is_one_message=is_one_message,
    )


def _steps(
    scenario: Scenario,
    trace: Sequence[TurnTrace],
    record: SampleRecord,
    tools: ToolMetadata,
    today: date,
) -> Iterator[tuple[Step, ...]]:
    """Yield the calls of each turn with the expectations that they match."""
    turns = record.trajectory.turns
    awaited = {
        (n, j) for t in range(len(turns)) for _, n, j in match_results(scenario, turns, t, today)
    }
    for t, (script, turn) in enumerate(zip(scenario.turns, turns, strict=False)):
        match = match_calls(
            script.expect.calls,
            [ActualCall(tool=c.tool, args=c.raw_args, result=c.outcome) for c in turn.calls],
            schemas=tools.schemas,
            extra="any",
            today=today,
        )
        expected_by_call = {j: i for i, j in match.right}
        yield tuple(
            Step(
                turn=t,
                index=j,
                call=call,
                record=call_record,
                expected=script.expect.calls[expected_by_call[j]]
                if j in expected_by_call
                else None,
                expected_index=expected_by_call.get(j),
                is_awaited=(t, j) in awaited,
            )
            for j, (call, call_record) in enumerate(zip(trace[t].calls, turn.calls, strict=False))
        )


def _pack(
    calls: Sequence[ToolCall], limit: int, registry: ToolRegistry
) -> tuple[tuple[ToolCall, ...], ...]:
    """Return the calls as messages: one each, or several where that would exceed the limit.

    The gate asks for the first write of a message only, so no message has two.
    """
    messages = [[call] for call in calls]
    at = 0
    while len(messages) > limit and at + 1 < len(messages):
        both = [*messages[at], *messages[at + 1]]
        if sum(call.name in registry.destructive for call in both) > 1:
            at += 1
        else:
            messages[at : at + 2] = [both]
    return tuple(map(tuple, messages))
