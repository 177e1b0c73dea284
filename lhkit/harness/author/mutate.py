"""Does a scenario notice wrong answers? Its gold answers, spoilt one by one."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError
from lhkit.harness.author.baselines import (
    TurnTrace,
    example,
    gold_trace,
    known_ids,
    lies_of,
    plausible_calls,
    texts_like,
    trace_model,
)
from lhkit.harness.matchers import AnyValue, OneOf, Slot, equal, is_number, normal
from lhkit.harness.matching import MadeCall, match_calls
from lhkit.harness.mismatch import Place, arguments_reasons, mismatch
from lhkit.harness.record import CallRecord, Evidence, RowKeys, SampleRecord, Verdict
from lhkit.harness.run import tried
from lhkit.harness.scenario import Before, ExpectedCall, Scenario
from lhkit.harness.score import ToolFacts, judge, results_met
from lhkit.harness.sessions import row_keys_of
from lhkit.harness.state_diff import state_diff
from lhkit.json_values import shown
from lhkit.messages import GateOutcome, ToolCall
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode, default_of, nfc
from lhkit.tools.validation import Accepted
from lhkit.toolset import Toolset, opened, require_isolated, state_of

# One mistake as a value, and what mistakes are made from: a scenario with its gold trace, played.
#
# Kinds of mistakes and what to do about a scenario that does not notice one: `ADVICE`.


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

    def fitting(self, wish: ExpectedCall, call: ToolCall) -> Iterator[Mapping[str, Slot]]:
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
            [wish.expectation for wish in wishes],
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


# The mistake that no model can make through the real gate: a write without an accepted question.
#
# So it is not played: the record of the gold trace is changed as if it had happened, and judged.


def skipped_gates(setting: Setting) -> Iterator[Mutant]:
    """Yield the gold record with each write that went through or was cancelled done unasked."""
    for part in setting.all_parts():
        if part.is_write and part.record.outcome in {"ok", "cancelled"}:
            yield Mutant(
                kind="skip_gate",
                place=part.place,
                change=f"{part.call.name} runs although nobody said yes",
                evidence=_evidence(setting, part),
            )


def _evidence(setting: Setting, part: GoldStep) -> Evidence:
    evidence = setting.gold.evidence
    turn = evidence.turns[part.turn]
    calls = list(turn.calls)
    calls[part.index] = _unasked(part.record)
    changed = replace(turn, calls=tuple(calls))
    turns = (*evidence.turns[: part.turn], changed, *evidence.turns[part.turn + 1 :])
    return replace(evidence, turns=turns)


def _unasked(record: CallRecord) -> CallRecord:
    """Return a write that ran; a cancelled one keeps its gate, for the user really said no."""
    if record.outcome == "ok":
        return replace(record, gate=GateOutcome.NOT_NEEDED)
    return replace(record, ran=True, result={"status": "ok", "data": {}})


# Mistakes of doing too much: a write nobody asked for, one done twice, one tried again after a no.
#
# What does not count: a call that an optional expectation of the turn accepts, and one that
# changes nothing where the turn tolerates `any` call.


PLAUSIBLE_TEXT = {"ko": "나는 저녁마다 산책하는 사람이다", "en": "I walk every evening"}


def extra_writes(setting: Setting) -> Iterator[Mutant | Untried]:
    """Yield each turn with one more write at its end, once for every tool that writes.

    With all optional arguments, with none, and with each one alone.
    """
    for turn in range(len(setting.parts)):
        for tool in setting.registry.definitions:
            if tool.is_destructive:
                guesses = _guesses(setting, turn, tool)
                if not guesses:
                    yield setting.untried("extra_write", f"{turn}.{tool.name}", _unguessed(tool))
                for label, call in guesses.items():
                    name = f"{tool.name}{label}"
                    yield from _appended(setting, turn, "extra_write", [call], label=name)


def _unguessed(tool: ToolDefinition) -> str:
    return f"no arguments of {tool.name} can be guessed that its schema accepts: give it `examples`"


def extra_reads(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn that tolerates no other call with one more read at its end."""
    for turn, script in enumerate(setting.scenario.turns[: len(setting.parts)]):
        if script.expect.extra == "none":
            calls = [
                call
                for tool in setting.registry.definitions
                if not tool.is_destructive
                for call in list(_guesses(setting, turn, tool).values())[:1]
            ]
            wrong = [call for call in calls if not setting.is_accepted(turn, call)]
            yield from _appended(setting, turn, "extra_read", wrong[:1], label="")


def duplicate_writes(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each write a second time: in the same turn, and in the next one."""
    for part in setting.all_parts():
        if part.is_write and part.record.outcome != "cancelled":
            yield from _again(setting, part, "duplicate_write", ())


def retries_after_rejection(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each cancelled write tried again, at once and in the next turn.

    Where other reads are tolerated one stands in between, so that the second try is really asked.
    """
    for part in setting.all_parts():
        if part.is_write and part.record.outcome == "cancelled":
            yield from _again(setting, part, "retry_after_rejection", _pause(setting, part))


def _pause(setting: Setting, part: GoldStep) -> Sequence[ToolCall]:
    if setting.scenario.turns[part.turn].expect.extra == "none":
        return ()
    reads = [tool for tool in setting.registry.definitions if not tool.is_destructive]
    guesses = [list(_guesses(setting, part.turn, tool).values()) for tool in reads]
    return next((calls[:1] for calls in reversed(guesses) if calls), ())


def _again(
    setting: Setting, part: GoldStep, kind: str, pause: Sequence[ToolCall]
) -> Iterator[Mutant]:
    if not setting.is_accepted(part.turn, part.call):
        yield from _appended(setting, part.turn, kind, [*pause, part.call], label=f"{part.index}")
    later = part.turn + 1
    is_due_later = later < len(setting.parts) and (
        any(other.call.name == part.call.name for other in setting.parts[later])
        or setting.is_accepted(later, part.call)
    )
    was_settled = part.record.outcome in {"ok", "cancelled"}
    if was_settled and later < len(setting.parts) and not is_due_later:
        label = f"{part.index}.later"
        yield from _appended(setting, later, kind, [part.call], label=label)


def _appended(
    setting: Setting, turn: int, kind: str, calls: Sequence[ToolCall], *, label: str
) -> Iterator[Mutant]:
    """Yield the trace with calls at the end of a turn, unless they are accepted there."""
    if calls and not setting.is_accepted(turn, calls[-1]):
        own = [part.call for part in setting.parts[turn]]
        yield Mutant(
            kind=kind,
            place=f"{turn}.{label}" if label else f"{turn}",
            change=f"turn {turn} ends with {calls[-1].name} {dict(calls[-1].args)}",
            trace=setting.with_calls(turn, [*own, *calls]),
            needs_effect=setting.scenario.turns[turn].expect.extra == "any",
        )


def _guesses(setting: Setting, turn: int, tool: ToolDefinition) -> dict[str, ToolCall]:
    """Return calls that most likely go through and are not among those of the turn."""
    text = PLAUSIBLE_TEXT.get(setting.scenario.locale, PLAUSIBLE_TEXT["en"])
    ids = {name: [*_unused(setting, some), *some] for name, some in setting.ids.items()}
    return {
        label: replace(call, args=_a_day_earlier(setting, call.args))
        if any(_same(part.call, call) for part in setting.parts[turn])
        else call
        for label, call in setting.guesses(tool, text, ids).items()
    }


def _unused(setting: Setting, ids: Sequence[str]) -> list[str]:
    """Return the ids that neither the world nor the gold trace mentions, last first."""
    mentioned = f"{setting.gold.evidence.initial_state} {setting.trace}"
    return [each for each in reversed(ids) if repr(each) not in mentioned][:1]


def _same(first: ToolCall, second: ToolCall) -> bool:
    """Return True if two calls of one tool differ at most in what the first leaves out."""
    return first.name == second.name and dict(first.args).items() <= dict(second.args).items()


def _a_day_earlier(setting: Setting, args: Mapping[str, Any]) -> dict[str, Any]:
    today = setting.today.isoformat()
    earlier = (setting.today - timedelta(days=1)).isoformat()
    return {name: earlier if value == today else value for name, value in args.items()}


# Mistakes in the calls that are due: left out, of another tool, in another order.
#
# Only calls that matter are touched: those that the scenario demands, and writes that went
# through. A call that is optional, or a read that `extra` tolerates, may be left out by right.


def dropped_calls(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace without each call that matters."""
    for part in setting.all_parts():
        if part.matters:
            calls = [other.call for other in setting.parts[part.turn] if other is not part]
            yield Mutant(
                kind="drop_call",
                place=part.place,
                change=f"{part.call.name} is not called",
                trace=setting.with_calls(part.turn, calls),
                needs_effect=part.needs_effect,
            )


def swapped_tools(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with another tool of the same sort in place of each call that matters."""
    for part in setting.all_parts():
        other = _sibling(setting, part) if part.matters else None
        if other is not None:
            yield Mutant(
                kind="swap_tool",
                place=part.place,
                change=f"{other.name} in place of {part.call.name}",
                trace=setting.with_calls(part.turn, replaced(setting, part, other)),
                needs_effect=part.needs_effect,
            )


def replaced(setting: Setting, part: GoldStep, call: ToolCall) -> list[ToolCall]:
    """Return the calls of a turn with another one in the place of `part`."""
    return [call if other is part else other.call for other in setting.parts[part.turn]]


def _sibling(setting: Setting, part: GoldStep) -> ToolCall | None:
    text = setting.scenario.turns[part.turn].user
    for tool in setting.registry.definitions:
        if tool.name == part.call.name or tool.is_destructive is not part.is_write:
            continue
        for call in setting.guesses(tool, text).values():
            if not setting.is_accepted(part.turn, call):
                return call
    return None


def reordered_calls(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with two neighbours swapped, where the scenario sets their order."""
    for parts in setting.parts:
        for first, second in pairwise(parts):
            if _is_ordered(setting, first, second):
                calls = [part.call for part in parts]
                here = first.index
                calls[here], calls[here + 1] = calls[here + 1], calls[here]
                yield Mutant(
                    kind="reorder",
                    place=first.place,
                    change=f"{second.call.name} before {first.call.name}",
                    trace=setting.with_calls(first.turn, calls),
                )


def _is_ordered(setting: Setting, first: GoldStep, second: GoldStep) -> bool:
    if first.wish is None or second.wish is None or first.call == second.call:
        return False
    order = setting.scenario.turns[first.turn].expect.order
    if isinstance(order, Before):
        return (first.wish_index, second.wish_index) in order.before
    return order == "strict"


# Mistakes in the arguments of calls that matter.
#
# What does not count as a mistake: a value that the argument's own matcher accepts (`any`,
# `one_of`, a pattern that fits), leaving out an argument that is `optional` or whose value is the
# schema's default, and the arguments of a call that no expectation describes. One thing counts
# although a pattern may accept it: words that the user dictated in quotes for a write, with more
# words added or cut off; only `any` and `one_of` excuse that.


UNRELATED_WORDS = {"ko": "된장찌개 끓이기", "en": "soybean stew"}
MORE_WORDS = {"ko": " 그리고 웃는다", "en": " and I smile"}

_QUOTED = re.compile(r"[\"“‘'「『]([^\"“”‘’'「」『』]{4,})[\"”’'」』]")
_WORDS_KEPT = 2


def dropped_arguments(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace without each argument that the scenario asks for."""
    for part, slots in _described(setting):
        schema = setting.place_of(part.call.name).node.schema
        for name, value in part.call.args.items():
            is_required = name in schema.get("required", ())
            if is_required or _is_asked_for(setting, part.call.name, slots, name, value):
                kind = "drop_required_argument" if is_required else "drop_optional_argument"
                args = {key: each for key, each in part.call.args.items() if key != name}
                if not _is_right_too(setting, part, args):
                    yield _mutant(setting, part, kind, name, f"without {name}", args=args)


def _is_asked_for(
    setting: Setting, tool: str, slots: Mapping[str, Slot], name: str, value: Any
) -> bool:
    node = setting.place_of(tool).node
    is_default = equal(default_of(node.schema, name, node.root), value, SchemaNode.of({}))
    slot = slots.get(name)
    return slot is not None and not slot.optional and not is_default


def altered_arguments(setting: Setting) -> Iterator[Mutant | Untried]:
    """Yield the trace with each argument a little wrong, where its matcher does not accept that.

    What the tool's own schema refuses is no mistake: no write would come of it.
    """
    for part, slots in _described(setting):
        for name, value in part.call.args.items():
            made = [
                (label, other)
                for label, other in _variants(
                    setting, name, value, setting.schema_of(part.call.name, name)
                )
                if _is_fit(setting, part, {**part.call.args, name: other})
            ]
            if not made:
                why = f"no other value of {name} can be guessed that {part.call.name} accepts"
                place = f"{part.place}.{name}"
                yield setting.untried("alter_argument", place, f"{why}: give it `examples`")
            for label, other in made:
                if name in slots and _accepts(setting, part, name, slots[name], other):
                    continue
                args = {**part.call.args, name: other}
                change = f"{name}={shown(other)} in place of {shown(value)}"
                yield _mutant(setting, part, "alter_argument", name + label, change, args=args)


def added_arguments(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each optional argument that gold leaves out, one at a time."""
    for part, slots in _described(setting):
        tool = setting.registry.get(part.call.name)
        text = setting.scenario.turns[part.turn].user
        for label, guess in setting.guesses(tool, text).items() if tool else ():
            name = label.removeprefix("+")
            if not label.startswith("+") or name in part.call.args:
                continue
            value, schema = guess.args[name], setting.schema_of(part.call.name, name)
            for other in (value, *(each for _, each in _variants(setting, name, value, schema))):
                args = {**part.call.args, name: other}
                if _is_added(setting, part, slots, name, other) and _is_fit(setting, part, args):
                    change = f"with {name}={shown(other)}"
                    yield _mutant(setting, part, "add_argument", name, change, args=args)
                    break


def _is_added(
    setting: Setting, part: GoldStep, slots: Mapping[str, Slot], name: str, value: Any
) -> bool:
    """Return True if a value of an argument that gold leaves out says something else."""
    node = setting.place_of(part.call.name).node
    is_right = name in slots and _accepts(setting, part, name, slots[name], value)
    is_default = equal(default_of(node.schema, name, node.root), value, SchemaNode.of({}))
    return not (is_right or is_default)


def swapped_values(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with the values of two arguments of one kind exchanged: who is who."""
    for part, slots in _described(setting):
        named = [name for name, value in part.call.args.items() if isinstance(value, str)]
        for one, two in combinations(named, 2):
            args = {**part.call.args, one: part.call.args[two], two: part.call.args[one]}
            is_right = all(
                name in slots and _accepts(setting, part, name, slots[name], args[name])
                for name in (one, two)
            )
            if args != part.call.args and not is_right and _is_fit(setting, part, args):
                change = f"{one} and {two} exchanged"
                yield _mutant(setting, part, "alter_argument", f"{one}<>{two}", change, args=args)


def _is_fit(setting: Setting, part: GoldStep, args: Mapping[str, Any]) -> bool:
    """Return True for a mistake that a tool takes, if it takes those of the gold trace."""
    if _is_right_too(setting, part, args):
        return False
    validator = setting.registry.validator(part.call.name)
    is_taken = isinstance(validator.check(args), Accepted)
    return is_taken or not isinstance(validator.check(part.call.args), Accepted)


def _is_right_too(setting: Setting, part: GoldStep, args: Mapping[str, Any]) -> bool:
    """Return True if arguments are another set of which the scenario says that it is right."""
    if part.wish is None or len(part.wish.alternatives) == 1:
        return False
    return any(True for _ in setting.fitting(part.wish, replace(part.call, args=dict(args))))


def altered_quotations(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with words added to, or cut from, what the user dictated for a write."""
    more = MORE_WORDS.get(setting.scenario.locale, MORE_WORDS["en"])
    for part, slots in _described(setting):
        for name, value in part.call.args.items() if part.is_write else ():
            slot = slots.get(name)
            if slot is None or isinstance(slot.matcher, AnyValue | OneOf):
                continue
            if not _is_dictated(setting, part, value):
                continue
            limit = setting.schema_of(part.call.name, name).get("maxLength", 10_000)
            longer, shorter = value.rstrip(".") + more, " ".join(value.split()[:-_WORDS_KEPT])
            for kind, other in (("pad_quotation", longer), ("cut_quotation", shorter)):
                if other.strip() and len(other) <= limit:
                    args = {**part.call.args, name: other}
                    yield _mutant(setting, part, kind, name, f"{name}={shown(other)}", args=args)


def _is_dictated(setting: Setting, part: GoldStep, value: Any) -> bool:
    turns = setting.scenario.turns[: part.turn + 1]
    quoted = {_bare(words) for turn in turns for words in _QUOTED.findall(turn.user)}
    return isinstance(value, str) and _bare(value) in quoted


def _bare(text: str) -> str:
    return " ".join(nfc(text).split()).strip(" .!,")


def _described(setting: Setting) -> Iterator[tuple[GoldStep, Mapping[str, Slot]]]:
    """Yield the calls that matter and that something is known of, with the matchers they fit.

    Of a call whose result is awaited and that nobody lists, any argument may be wrong.
    """
    for part in setting.all_parts():
        if not part.matters or not isinstance(part.call.args, Mapping):
            continue
        if part.wish is not None:
            yield part, next(setting.fitting(part.wish, part.call), {})
        elif part.is_awaited:
            yield part, {}


def _accepts(setting: Setting, part: GoldStep, name: str, slot: Slot, value: Any) -> bool:
    place = setting.place_of(part.call.name)
    inner = place.at(setting.schema_of(part.call.name, name))
    return mismatch(slot.matcher, value, inner) is None


def _mutant(
    setting: Setting, part: GoldStep, kind: str, label: str, change: str, *, args: Mapping[str, Any]
) -> Mutant:
    call = replace(part.call, args=dict(args))
    return Mutant(
        kind=kind,
        place=f"{part.place}.{label}",
        change=f"{part.call.name}: {change}",
        trace=setting.with_calls(part.turn, replaced(setting, part, call)),
        needs_effect=part.needs_effect,
    )


def _variants(
    setting: Setting, name: str, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield wrong values near the right one, each with a label that tells them apart."""
    if isinstance(value, bool):
        yield "", not value
    elif is_number(value):
        yield "", value - 1 if value + 1 > schema.get("maximum", value + 1) else value + 1
    elif isinstance(value, list | tuple | Mapping):
        yield from _inner_variants(setting, name, value, schema)
    elif name in setting.ids:
        yield "", _other_id(setting, value, name)
    elif "enum" in schema:
        yield from [("", other) for other in schema["enum"] if other != value][:1]
    elif isinstance(value, str):
        yield from _other_texts(setting, value, schema)


def _inner_variants(
    setting: Setting, name: str, value: Sequence[Any] | Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield an object with each field wrong, a list with its first item wrong, its last gone."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            inner = schema.get("properties", {}).get(key, {})
            for label, other in _variants(setting, key, each, inner):
                yield f".{key}{label}", {**value, key: other}
        return
    items = schema.get("items", {})
    for label, other in _variants(setting, name, value[0], items) if value else ():
        yield f"[0]{label}", [other, *value[1:]]
    if len(value) > schema.get("minItems", 0):
        yield "[-]", list(value[:-1])
    elif not value:
        yield "[+]", [example(SchemaNode.of(items), setting.today)]


def _other_texts(
    setting: Setting, value: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield other times and days, what another row has in the same place, other words."""
    time = _TIME.fullmatch(value)
    day = None if time else _day(value)
    if time:
        for hours in (-1, 1, 12):
            hour = (int(time["hour"]) + hours) % 24
            yield f"{hours:+}h", f"{time['before']}{hour:02}{time['after']}"
    if day is not None or (time and _day(time["before"][:10])):
        for days in (-1, 1):
            with suppress(OverflowError):
                other = date.fromisoformat(value[:10]) + timedelta(days=days)
                yield f"{days:+}", f"{other.isoformat()}{value[10:]}"
    yield from (("~row", other) for other in _of_other_rows(setting, value)[:1])
    if not time and day is None:
        words = UNRELATED_WORDS.get(setting.scenario.locale, UNRELATED_WORDS["en"])
        yield "", words
        others = (each for each in texts_like(schema, setting.today) if each != value)
        if schema.keys() & {"examples", "format", "pattern"}:
            yield from (("~like", other) for other in islice(others, 1))


_TIME = re.compile(
    r"(?P<before>(?:\d{4}-\d\d-\d\d[T ])?)(?P<hour>[01]\d|2[0-3])(?P<after>:[0-5]\d(?!\d).*)"
)


def _of_other_rows(setting: Setting, value: str) -> list[str]:
    """Return what other rows of the world have where one has this value."""
    rows = [row for rows in setting.gold.evidence.initial_state.values() for row in rows]
    fields = {name for row in rows for name, each in row.items() if each == value}
    others = (row.get(name) for row in rows for name in sorted(fields))
    return list(dict.fromkeys(each for each in others if isinstance(each, str) and each != value))


def _other_id(setting: Setting, value: Any, name: str) -> str:
    """Return another id that exists, or one that nobody has where there is no other."""
    others = [each for each in setting.ids[name] if each != value]
    return others[0] if others else f"{value}-2"


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


# Mistakes in what the user reads: silence, an unrelated sentence, a claim that is not true.
#
# A claim counts where a write was refused or cancelled in the turn, or is the first that the turn
# forbids (the one that the user's words tempt to), and none of that tool went through. The
# sentences are what a model might write, so they are in the scenario's language, in the words that
# the tool names for its success.


UNRELATED = {
    "ko": "부산행 열차는 9번 승강장에서 떠납니다.",
    "en": "The train to Busan leaves from platform nine.",
}
_PLAIN_LIES: Mapping[str, Sequence[str]] = {
    "ko": ("처리했습니다.", "완료했어요."),
    "en": ("I've done that for you.", "It has been done."),
}


def silences(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn without an answer."""
    for turn, _ in enumerate(setting.parts):
        yield _said(setting, turn, "say_nothing", "", "")


def unrelated_answers(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn with an answer about something else."""
    words = UNRELATED.get(setting.scenario.locale, UNRELATED["en"])
    for turn, _ in enumerate(setting.parts):
        yield _said(setting, turn, "unrelated_answer", words, "")


def false_claims(setting: Setting) -> Iterator[Mutant | Untried]:
    """Yield each turn in which nothing was done with a claim that it was.

    The claim stands after the right answer, once in each wording, and once in its place.
    """
    locale = setting.scenario.locale
    for turn, _ in enumerate(setting.parts):
        for tool in _not_done(setting, turn):
            definition = setting.registry.get(tool)
            own = lies_of(definition, locale) if definition else []
            if not own and definition:
                why = f"{tool} names no words of its success: give it claims={{{locale!r}: [...]}}"
                yield setting.untried("claim_success", f"{turn}.{tool}", why)
            lies = own or _PLAIN_LIES.get(locale, _PLAIN_LIES["en"])
            words = setting.trace[turn].words
            yield _said(setting, turn, "claim_success", lies[0], f".{tool}.alone")
            for number, claim in enumerate(lies):
                label = f".{tool}.{number}"
                yield _said(setting, turn, "claim_success", f"{_ended(words)} {claim}", label)


def _ended(words: str) -> str:
    """Return words as a whole sentence, so that the next one is not read as part of it."""
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."


def _not_done(setting: Setting, turn: int) -> list[str]:
    writes = [part.record for part in setting.parts[turn] if part.is_write]
    done = {record.tool for record in writes if record.outcome == "ok"}
    forbidden = [call.tool for call in setting.scenario.turns[turn].forbid]
    tempting = [tool for tool in forbidden if tool in setting.registry.destructive][:1]
    wished = {record.tool for record in writes} | set(tempting)
    return sorted(wished - done)


def _said(setting: Setting, turn: int, kind: str, words: str, label: str) -> Mutant:
    return Mutant(
        kind=kind,
        place=f"{turn}{label}",
        change=f"turn {turn} is answered: {words}" if words else f"turn {turn} has no answer",
        trace=setting.with_words(turn, words),
    )


# What became of the mistakes: counts, survivors, and the list of survivors that are known.
#
# A known survivor has a reason that a reader can judge. The list is checked both ways: an entry
# whose mistake is noticed by now, or does not exist any more, is out of date.


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMutant:
    """One mistake in one scenario, and the verdict on it. `key` is unique in the scenario."""

    scenario: str
    ac: str
    kind: str
    key: str
    change: str
    verdict: Verdict

    @property
    def is_noticed(self) -> bool:
        """True if the verdict is a fail."""
        return self.verdict is Verdict.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Mistakes that were tried, and that were noticed."""

    tried: int = 0
    noticed: int = 0

    @property
    def share(self) -> float:
        """The share that was noticed, in percent; 100 if there was none."""
        return 100.0 * self.noticed / self.tried if self.tried else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Known survivors: (scenario, key) to the reason."""

    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationReport:
    """All outcomes. A mistake that could not be played (`invalid`) is nobody's success.

    `untried` are those that could not even be made.
    """

    outcomes: tuple[TriedMutant, ...]
    untried: tuple[Untried, ...] = ()

    @property
    def total(self) -> Counts:
        """All mistakes together."""
        return _counts(self.outcomes)

    @property
    def by_kind(self) -> dict[str, Counts]:
        """Counts of each kind, in order of appearance."""
        return self._by("kind")

    @property
    def by_ac(self) -> dict[str, Counts]:
        """Counts of each acceptance criterion, in order of appearance."""
        return self._by("ac")

    @property
    def survivors(self) -> tuple[TriedMutant, ...]:
        """The mistakes that pass."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.PASS)

    @property
    def broken(self) -> tuple[TriedMutant, ...]:
        """The mistakes that could not be played: a bug of ours."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.INVALID)

    def unlisted(self, known: Survivors) -> tuple[TriedMutant, ...]:
        """Return the survivors that nobody gave a reason for."""
        return tuple(
            each for each in self.survivors if (each.scenario, each.key) not in known.reasons
        )

    def outdated(self, known: Survivors) -> tuple[tuple[str, str], ...]:
        """Return the known survivors that are none, of the scenarios that were looked at."""
        alive = {(each.scenario, each.key) for each in self.survivors}
        seen = {each.scenario for each in self.outcomes}
        return tuple(key for key in known.reasons if key[0] in seen and key not in alive)

    def _by(self, name: str) -> dict[str, Counts]:
        groups: dict[str, list[TriedMutant]] = {}
        for each in self.outcomes:
            groups.setdefault(getattr(each, name), []).append(each)
        return {group: _counts(tuple(some)) for group, some in groups.items()}


def _counts(outcomes: tuple[TriedMutant, ...]) -> Counts:
    return Counts(tried=len(outcomes), noticed=sum(each.is_noticed for each in outcomes))


def read_survivors(file: Path) -> Survivors:
    """Return the known survivors of a TOML file; none if there is no file.

    Each is a table `[[survivor]]` with `scenario`, `mistake` (one or a list) and `reason`.

    Raises:
        ScenarioError: the file is not like that; the message names the entry.
    """
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("survivor", [])
    except FileNotFoundError:
        return Survivors()
    except (ValueError, RecursionError) as error:  # no UTF-8, or a number beyond Python, too
        raise ScenarioError(f"{file}: not TOML: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ScenarioError(f"{file}: survivor must be tables: write [[survivor]] above each")
    reasons: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(entries):
        for key in _mistakes(entry, f"{file}: survivor {number}"):
            if (entry["scenario"], key) in reasons:
                raise ScenarioError(f"{file}: survivor {number}: {key} stands there twice")
            reasons[entry["scenario"], key] = entry["reason"]
    return Survivors(reasons=reasons)


def _mistakes(entry: Mapping[str, Any], where: str) -> list[str]:
    for name in ("scenario", "reason"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise ScenarioError(f"{where}: {name} must be a text")
    mistakes = entry.get("mistake")
    found = [mistakes] if isinstance(mistakes, str) else mistakes
    if not isinstance(found, list) or not found or not all(isinstance(m, str) for m in found):
        raise ScenarioError(f"{where}: mistake must be a text or a list of texts")
    return found


# The mutation report: which mistakes of a model would a scenario not notice?
#
# Every gold trace is spoilt in one place at a time and played through the real controller, gate,
# tools and judge; it must not pass. What counts as a mistake is said in the modules of the kinds:
# `wrong_calls`, `wrong_arguments`, `surplus_calls`, `wrong_words`, `skipped_gate`.


__all__ = [
    "ADVICE",
    "Mutant",
    "MutationReport",
    "Survivors",
    "TriedMutant",
    "Untried",
    "mutants_of",
    "mutate",
    "read_survivors",
]

Operator: TypeAlias = Callable[[Setting], Iterator[Mutant | Untried]]

OPERATORS: Sequence[Operator] = (
    dropped_calls,
    swapped_tools,
    reordered_calls,
    dropped_arguments,
    altered_arguments,
    added_arguments,
    swapped_values,
    altered_quotations,
    extra_writes,
    duplicate_writes,
    extra_reads,
    skipped_gates,
    retries_after_rejection,
    false_claims,
    silences,
    unrelated_answers,
)


async def mutate(scenarios: Sequence[Scenario], toolset: Toolset) -> MutationReport:
    """Return which mistakes each scenario notices.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        ScenarioError: a scenario whose gold trace does not pass: `lint` says why.
    """
    require_isolated(toolset, "run mutate")
    outcomes: list[TriedMutant] = []
    untried: list[Untried] = []
    for scenario in scenarios:
        setting = await setting_of(scenario, toolset)
        if setting.gold.judgement.verdict is not Verdict.PASS:
            raise ScenarioError(f"{scenario.id}: the gold trace does not pass: run lhkit lint")
        made = [each for operator in OPERATORS for each in operator(setting)]
        untried += [each for each in made if isinstance(each, Untried)]
        for mutant in made:
            if isinstance(mutant, Mutant):
                outcomes += await _outcome(setting, mutant, toolset)
    return MutationReport(outcomes=tuple(outcomes), untried=tuple(untried))


def mutants_of(setting: Setting) -> Iterator[Mutant]:
    """Yield every mistake that matters in one scenario, but for those that cannot be made."""
    for operator in OPERATORS:
        yield from (each for each in operator(setting) if isinstance(each, Mutant))


async def _outcome(setting: Setting, mutant: Mutant, toolset: Toolset) -> tuple[TriedMutant, ...]:
    """Return what became of a mistake; nothing if it turns out to be none."""
    if mutant.evidence is not None:
        return (_named(setting, mutant, _judged(setting, mutant)),)
    model = trace_model(mutant.trace, name="mutant")
    record = await tried(setting.scenario, model, toolset)
    if mutant.needs_effect and not _has_effect(record.evidence, setting.gold.evidence):
        return ()
    return (_named(setting, mutant, record.judgement.verdict),)


def _has_effect(evidence: Evidence, gold: Evidence) -> bool:
    """Return whether another state was left behind, or not all came that came to the gold."""
    if state_diff(evidence.final_state, gold.final_state):
        return True
    return bool(_results(gold) - _results(evidence))


def _results(evidence: Evidence) -> Counter[Hashable]:
    return Counter(normal(call.result) for turn in evidence.turns for call in turn.calls)


def _named(setting: Setting, mutant: Mutant, verdict: Verdict) -> TriedMutant:
    return TriedMutant(
        scenario=setting.scenario.id,
        ac=setting.scenario.ac,
        kind=mutant.kind,
        key=mutant.key,
        change=mutant.change,
        verdict=verdict,
    )


def _judged(setting: Setting, mutant: Mutant) -> Verdict:
    tools = ToolFacts.of(setting.registry.definitions, setting.today)
    evidence = mutant.evidence or setting.gold.evidence
    judgement = judge(
        setting.scenario, evidence, tools, today=setting.today, row_keys=setting.row_keys
    )
    return judgement.verdict
