"""One mistake as a value, and what mistakes are made from: a scenario with its gold trace, played.

Kinds of mistakes and what to do about a scenario that does not notice one: `ADVICE`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from lhkit.harness.author.always_call import known_ids, plausible_calls
from lhkit.harness.author.gold import TurnTrace, gold_trace, trace_model
from lhkit.harness.matchers import ArgumentSet, Place, arguments_reasons
from lhkit.harness.matching import MadeCall, match_calls
from lhkit.harness.record import CallRecord, Evidence, RowKeys, SampleRecord
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import results_met
from lhkit.harness.sessions import row_keys_of
from lhkit.harness.turn import ExpectedCall
from lhkit.messages import ToolCall
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode
from lhkit.toolset import Toolset, opened, state_of

ADVICE: Mapping[str, str] = {
    "drop_call": "make the call required, or list its row under final or under expect.results",
    "swap_tool": "make the call required, or tell more of what it comes to under expect.results",
    "reorder": "set order: strict",
    "drop_required_argument": "demand result: ok",
    "drop_optional_argument": "take 'optional' from the argument",
    "alter_argument": "tighten the argument's matcher; if no call is listed, expect.results",
    "add_argument": "say which values of the argument are right, or take it out",
    "pad_quotation": "anchor the pattern (^…$) or use text: the user dictated the words",
    "cut_quotation": "demand all the words that the user dictated",
    "extra_write": "set extra: reads, or list the rows under final",
    "duplicate_write": "set extra: reads",
    "extra_read": "set extra: none",
    "skip_gate": "demand result: ok, so that asking is part of it",
    "retry_after_rejection": "set extra: reads, or forbid the tool in the next turn",
    "claim_success": "write reply: {claims: none}, or name the tool's own words in its claims",
    "say_nothing": "demand words: reply.contains_any or reply.matches",
    "unrelated_answer": "demand words of the matter: reply.contains_any",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A gold trace with one mistake in it. `place` tells it from others of its kind.

    Played as a `trace` through the runner; a mistake that no model can make through the real gate
    comes as `evidence` instead, and is only judged. Where the scenario tolerates `any` call, a
    surplus one is a mistake only if it leaves another state behind (`needs_effect`), and where it
    asks for results of whichever calls, another one only if a result does not come, either.
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
class Untried:
    """A mistake that could not be made, and why: nobody knows whether it would be noticed."""

    scenario: str
    kind: str
    place: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldStep:
    """One call of the gold trace: where it stands, what came of it, what it is expected as.

    `is_awaited`: what it came to is one of the results that the scenario asks for.
    """

    turn: int
    index: int
    call: ToolCall
    record: CallRecord
    wish: ExpectedCall | None
    wish_index: int | None
    is_awaited: bool = False

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
        """True if the scenario demands it or what it came to, or if it changed something."""
        has_changed = self.is_write and self.record.outcome == "ok"
        return self.is_demanded or self.is_awaited or has_changed

    @property
    def is_demanded(self) -> bool:
        """True if the scenario demands just this call."""
        return self.wish is not None and not self.wish.optional

    @property
    def needs_effect(self) -> bool:
        """True if another call in its place is right that comes to the same."""
        return self.is_awaited and not self.is_demanded


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
    parts: tuple[tuple[GoldStep, ...], ...]

    def with_calls(self, turn: int, calls: Sequence[ToolCall]) -> tuple[TurnTrace, ...]:
        """Return the trace with other calls in one turn, in no more messages than are allowed."""
        messages = _packed(calls, self.max_turns - 1, self.registry)
        return self._with(turn, replace(self.trace[turn], messages=messages))

    def guesses(
        self, tool: ToolDefinition, text: str, ids: Mapping[str, Sequence[str]] | None = None
    ) -> dict[str, ToolCall]:
        """Return calls that the schema of a tool accepts, by a label (`plausible_calls`)."""
        validator = self.registry.validator(tool.name)
        return plausible_calls(
            tool, validator, ids=self.ids if ids is None else ids, text=text, today=self.today
        )

    def untried(self, kind: str, place: str, why: str) -> Untried:
        """Return that a mistake could not be made here."""
        return Untried(scenario=self.scenario.id, kind=kind, place=place, why=why)

    def with_words(self, turn: int, words: str) -> tuple[TurnTrace, ...]:
        """Return the trace with another reply in one turn."""
        return self._with(turn, replace(self.trace[turn], words=words))

    def _with(self, turn: int, changed: TurnTrace) -> tuple[TurnTrace, ...]:
        return (*self.trace[:turn], changed, *self.trace[turn + 1 :])

    def all_parts(self) -> Iterator[GoldStep]:
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
        return any(True for _ in self.fitting(wish, call))

    def fitting(self, wish: ExpectedCall, call: ToolCall) -> Iterator[ArgumentSet]:
        """Yield each set of right arguments that a call of the expected tool fits."""
        schema = self.place_of(call.name).node.root
        for slots in wish.alternatives:
            reasons = arguments_reasons(slots, call.args, schema, extra=False, today=self.today)
            if not any(reasons.values()):
                yield slots

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


async def setting_of(scenario: Scenario, toolset: Toolset) -> Setting:
    """Play the gold trace of a scenario and return what mistakes can be made from.

    Raises:
        ScenarioError: there is no gold trace, or the world cannot be.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, ids, today = session.registry, known_ids(session), session.today
        max_turns = session.assistant.max_turns
        row_keys = row_keys_of(session, state_of(session))
    trace = gold_trace(scenario, registry)
    gold = await tried(scenario, trace_model(trace, name="gold"), toolset)
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
) -> Iterator[tuple[GoldStep, ...]]:
    schemas = {tool.name: tool.schema_on(today) for tool in registry.definitions}
    awaited = {
        (n, j)
        for t in range(len(gold.evidence.turns))
        for _, n, j in results_met(scenario, gold.evidence.turns, t, today)
    }
    for t, (script, played) in enumerate(zip(scenario.turns, gold.evidence.turns, strict=False)):
        wishes = script.expect.calls
        found = match_calls(
            wishes,
            [MadeCall(tool=c.tool, args=c.raw_args, result=c.outcome) for c in played.calls],
            schemas=schemas,
            extra="any",
            today=today,
        )
        role = {j: i for i, j in found.right}
        calls = zip(trace[t].calls, played.calls, strict=False)
        yield tuple(
            GoldStep(
                turn=t,
                index=j,
                call=call,
                record=record,
                wish=wishes[role[j]] if j in role else None,
                wish_index=role.get(j),
                is_awaited=(t, j) in awaited,
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
