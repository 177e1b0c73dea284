"""One mistake as a value, and what mistakes are made from: a scenario with its gold trace, played.

Kinds of mistakes and what to do about a scenario that does not notice one: `ADVICE`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from lhkit.harness.authoring.bluff import known_ids
from lhkit.harness.authoring.gold import TurnTrace, gold_trace, trace_model
from lhkit.harness.expectations.comparison import Place, arguments_reasons
from lhkit.harness.expectations.matchers import parse_slot
from lhkit.harness.expectations.matching import match_calls
from lhkit.harness.records.record import CallRecord, Evidence, RowKeys, SampleRecord
from lhkit.harness.replay.environment import Environment, opened, row_keys_of, state_of
from lhkit.harness.replay.trial import tried
from lhkit.harness.scenarios.script import ExpectedCall, Scenario
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode
from lhkit.vocab.messages import ToolCall

ADVICE: Mapping[str, str] = {
    "drop_call": "make the call required, or list its row under final",
    "swap_tool": "make the call required",
    "reorder": "set order: strict",
    "drop_required_argument": "demand result: ok",
    "drop_optional_argument": "take 'optional' from the argument",
    "alter_argument": "tighten the argument's matcher",
    "pad_quotation": "anchor the pattern (^…$) or use text: the user dictated the words",
    "cut_quotation": "demand all the words that the user dictated",
    "extra_write": "set extra: reads, or list the rows under final",
    "duplicate_write": "set extra: reads",
    "extra_read": "set extra: none",
    "skip_gate": "demand result: ok, so that asking is part of it",
    "retry_after_rejection": "set extra: reads, or forbid the tool in the next turn",
    "claim_success": "list such claims under reply.excludes",
    "say_nothing": "demand words: reply.contains_any or reply.matches",
    "unrelated_answer": "demand words of the matter: reply.contains_any",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A gold trace with one mistake in it. `place` tells it from others of its kind.

    Played as a `trace` through the runner; a mistake that no model can make through the real gate
    comes as `evidence` instead, and is only judged. Where the scenario tolerates `any` call, a
    surplus one is a mistake only if it leaves another state behind (`needs_effect`).
    """

    kind: str
    place: str
    change: str
    trace: tuple[TurnTrace, ...] = ()
    evidence: Evidence | None = None
    needs_effect: bool = False

    @property
    def key(self) -> str:
        """Its name within the scenario, such as `alter_argument@0.1.date+1`."""
        return f"{self.kind}@{self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One call of the gold trace: where it stands, what came of it, what it is expected as."""

    turn: int
    index: int
    call: ToolCall
    record: CallRecord
    wish: ExpectedCall | None
    wish_index: int | None

    @property
    def place(self) -> str:
        """Turn and call, counted from 0."""
        return f"{self.turn}.{self.index}"

    @property
    def is_write(self) -> bool:
        """True if the tool changes data."""
        return self.record.destructive

    @property
    def matters(self) -> bool:
        """True if the scenario demands the call, or the call changed something."""
        is_demanded = self.wish is not None and not self.wish.optional
        return is_demanded or (self.is_write and self.record.outcome == "ok")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A scenario, its gold trace, and what became of that."""

    scenario: Scenario
    registry: ToolRegistry
    ids: Mapping[str, Sequence[str]]
    today: date
    max_turns: int
    row_keys: RowKeys
    trace: tuple[TurnTrace, ...]
    gold: SampleRecord
    parts: tuple[tuple[Part, ...], ...]

    def with_calls(self, turn: int, calls: Sequence[ToolCall]) -> tuple[TurnTrace, ...]:
        """Return the trace with other calls in one turn, in no more messages than are allowed."""
        messages = _packed(calls, self.max_turns - 1, self.registry)
        return self._with(turn, replace(self.trace[turn], messages=messages))

    def with_words(self, turn: int, words: str) -> tuple[TurnTrace, ...]:
        """Return the trace with another reply in one turn."""
        return self._with(turn, replace(self.trace[turn], words=words))

    def _with(self, turn: int, changed: TurnTrace) -> tuple[TurnTrace, ...]:
        return (*self.trace[:turn], changed, *self.trace[turn + 1 :])

    def all_parts(self) -> Iterator[Part]:
        """Yield every call of the gold trace."""
        for parts in self.parts:
            yield from parts

    def is_accepted(self, turn: int, call: ToolCall) -> bool:
        """Return True if an optional expectation that gold leaves alone wants just this call."""
        taken = {part.wish_index for part in self.parts[turn]}
        wishes = self.scenario.turns[turn].expect.calls
        return any(
            wish.optional and i not in taken and self._fits(wish, call)
            for i, wish in enumerate(wishes)
        )

    def _fits(self, wish: ExpectedCall, call: ToolCall) -> bool:
        if wish.tool != call.name:
            return False
        slots = {name: parse_slot(raw) for name, raw in wish.args.items()}
        schema = self.place_of(call.name).node.root
        reasons = arguments_reasons(slots, call.args, schema, extra=False, today=self.today)
        return not any(reasons.values())

    def place_of(self, tool: str) -> Place:
        """Return where the arguments of a tool are compared."""
        definition = self.registry.get(tool)
        node = SchemaNode.of(definition.schema_on(self.today) if definition else {})
        return Place(node.at(node.branches()[0]), self.today)

    def schema_of(self, tool: str, argument: str) -> Mapping[str, Any]:
        """Return the schema of one argument."""
        properties = self.place_of(tool).node.schema.get("properties", {})
        found: Mapping[str, Any] = properties.get(argument, {})
        return found


async def setting_of(scenario: Scenario, environment: Environment) -> Setting:
    """Play the gold trace of a scenario and return what mistakes can be made from.

    Raises:
        ScenarioError: there is no gold trace, or the world cannot be.
    """
    with opened(environment, scenario.world, scenario.locale) as session:
        registry, ids, today = session.registry, known_ids(session), session.today
        max_turns = session.assistant.max_turns
        row_keys = row_keys_of(session, state_of(session))
    trace = gold_trace(scenario, registry)
    gold = await tried(scenario, trace_model(trace, name="gold"), environment)
    return Setting(
        scenario=scenario,
        registry=registry,
        ids=ids,
        today=today,
        max_turns=max_turns,
        row_keys=row_keys,
        trace=trace,
        gold=gold,
        parts=tuple(_parts(scenario, trace, gold, registry, today)),
    )


def _parts(
    scenario: Scenario,
    trace: Sequence[TurnTrace],
    gold: SampleRecord,
    registry: ToolRegistry,
    today: date,
) -> Iterator[tuple[Part, ...]]:
    schemas = {tool.name: tool.schema_on(today) for tool in registry.definitions}
    for t, (script, played) in enumerate(zip(scenario.turns, gold.turns, strict=False)):
        wishes = script.expect.calls
        found = match_calls(
            [asdict(wish) for wish in wishes],
            [{"tool": c.tool, "args": c.raw_args, "result": c.outcome} for c in played.calls],
            schemas=schemas,
            extra="any",
            today=today,
        )
        role = {j: i for i, j in found.right}
        calls = zip(trace[t].calls, played.calls, strict=False)
        yield tuple(
            Part(
                turn=t,
                index=j,
                call=call,
                record=record,
                wish=wishes[role[j]] if j in role else None,
                wish_index=role.get(j),
            )
            for j, (call, record) in enumerate(calls)
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
