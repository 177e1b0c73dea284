"""A scenario's reference calls, played: what mistakes are made from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from lhkit.harness.author.examples import known_ids
from lhkit.harness.author.reference import TurnTrace, reference_trajectory, trace_model
from lhkit.harness.matchers import arguments_reasons
from lhkit.harness.matching import ActualCall, match_calls
from lhkit.harness.record import CallRecord, RowKeys, SampleRecord
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import ToolMetadata, results_met
from lhkit.harness.sessions import row_keys_of
from lhkit.harness.turn import ExpectedCall
from lhkit.messages import ToolCall
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, opened, read_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reference call, its record, and the expectation that it meets, if any.

    `is_awaited`: its result is one of the results that the scenario asks for.
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
        """Turn and call, counted from 0."""
        return f"{self.turn}.{self.index}"

    @property
    def is_write(self) -> bool:
        """True if the tool changes data."""
        return self.record.destructive

    @property
    def is_demanded(self) -> bool:
        """True if the scenario demands this very call."""
        return self.expected is not None and not self.expected.optional

    @property
    def matters(self) -> bool:
        """True if the scenario demands it or its result, or if it changed something."""
        has_changed = self.is_write and self.record.outcome == "ok"
        return self.is_demanded or self.is_awaited or has_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A scenario with its reference trace, the record of that, and its calls as steps, by turn."""

    scenario: Scenario
    registry: ToolRegistry
    ids: Mapping[str, Sequence[str]]
    today: date
    max_turns: int
    row_keys: RowKeys
    trace: tuple[TurnTrace, ...]
    record: SampleRecord
    steps: tuple[tuple[Step, ...], ...]

    @property
    def tools(self) -> ToolMetadata:
        """What judging has to know of the tools."""
        return ToolMetadata.of(self.registry.definitions, self.today)

    def with_calls(self, turn: int, calls: Sequence[ToolCall]) -> tuple[TurnTrace, ...]:
        """Return the trace with other calls in one turn, in no more messages than are allowed."""
        messages = _packed(calls, self.max_turns - 1, self.registry)
        return self._with(turn, replace(self.trace[turn], messages=messages))

    def with_words(self, turn: int, words: str) -> tuple[TurnTrace, ...]:
        """Return the trace with another reply in one turn."""
        return self._with(turn, replace(self.trace[turn], words=words))

    def _with(self, turn: int, changed: TurnTrace) -> tuple[TurnTrace, ...]:
        return (*self.trace[:turn], changed, *self.trace[turn + 1 :])

    def all_steps(self) -> Iterator[Step]:
        """Yield every reference call."""
        for steps in self.steps:
            yield from steps

    def fits(self, expected: ExpectedCall, tool: str, args: Any) -> bool:
        """Return True if an expectation accepts a call."""
        if expected.tool != tool or not isinstance(args, Mapping):
            return False
        schema = self.schema_of(tool)
        return any(
            not any(arguments_reasons(slots, args, schema, extra=False, today=self.today).values())
            for slots in expected.alternatives
        )

    def is_accepted(self, turn: int, call: ToolCall) -> bool:
        """Return True if an optional expectation that no step meets accepts a call."""
        taken = {step.expected_index for step in self.steps[turn]}
        return any(
            expected.optional and i not in taken and self.fits(expected, call.name, call.args)
            for i, expected in enumerate(self.scenario.turns[turn].expect.calls)
        )

    def schema_of(self, tool: str) -> Mapping[str, Any]:
        """Return the schema of a tool's arguments, with all defaults."""
        definition = self.registry.get(tool)
        return definition.schema_on(self.today) if definition else {}


async def play_reference(scenario: Scenario, toolset: Toolset) -> Played:
    """Play the reference trace of a scenario.

    Raises:
        ScenarioError: there is no reference trace, or the initial state is invalid.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, ids, today = session.registry, known_ids(session), session.today
        max_turns = session.assistant.max_turns
        row_keys = row_keys_of(session, read_state(session))
    trace = reference_trajectory(scenario, registry)
    record = await tried(scenario, trace_model(trace, name="gold"), toolset)
    return Played(
        scenario=scenario,
        registry=registry,
        ids=ids,
        today=today,
        max_turns=max_turns,
        row_keys=row_keys,
        trace=trace,
        record=record,
        steps=tuple(_steps(scenario, trace, record, registry, today)),
    )


def _steps(
    scenario: Scenario,
    trace: Sequence[TurnTrace],
    record: SampleRecord,
    registry: ToolRegistry,
    today: date,
) -> Iterator[tuple[Step, ...]]:
    """Yield the calls of each turn, with the expectations that they meet."""
    turns, tools = record.evidence.turns, ToolMetadata.of(registry.definitions, today)
    awaited = {
        (n, j) for t in range(len(turns)) for _, n, j in results_met(scenario, turns, t, today)
    }
    for t, (script, turn) in enumerate(zip(scenario.turns, turns, strict=False)):
        match = match_calls(
            script.expect.calls,
            [ActualCall(tool=c.tool, args=c.raw_args, result=c.outcome) for c in turn.calls],
            schemas=tools.schemas,
            extra="any",
            today=today,
        )
        met = {j: i for i, j in match.right}
        yield tuple(
            Step(
                turn=t,
                index=j,
                call=call,
                record=made,
                expected=script.expect.calls[met[j]] if j in met else None,
                expected_index=met.get(j),
                is_awaited=(t, j) in awaited,
            )
            for j, (call, made) in enumerate(zip(trace[t].calls, turn.calls, strict=False))
        )


def _packed(
    calls: Sequence[ToolCall], limit: int, registry: ToolRegistry
) -> tuple[tuple[ToolCall, ...], ...]:
    """Return one call a message, or fuller ones where that would be too many.

    Of the writes of one message only the first is asked about, so each keeps its own.
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
