"""The kinds of mistakes: each function yields a played scenario with one mistake in it.

A call that the scenario accepts is no mistake: other arguments that fit an expectation of the
turn, an optional call that is left out, a surplus one that `extra` tolerates and that changes
nothing. What the tool's own schema refuses is none either: no write would come of it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import islice, pairwise
from typing import Any, TypeAlias

from lhkit.harness.author.examples import example, plausible_calls, texts_like
from lhkit.harness.author.reference import TurnTrace, claims_of_success
from lhkit.harness.author.reference_run import Played, Step
from lhkit.harness.equality import is_number
from lhkit.harness.record import Evidence
from lhkit.harness.turn import Before
from lhkit.json_values import shown
from lhkit.messages import GateOutcome, ToolCall
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.schema import SchemaNode, property_schema
from lhkit.tools.validation import Accepted

ADVICE: Mapping[str, str] = {
    "drop_call": "make the call required, or list its row under final or under expect.results",
    "swap_tool": "make the call required, or list more of its result under expect.results",
    "reorder": "set order: strict",
    "drop_required_argument": "demand result: ok",
    "drop_optional_argument": "take 'optional' from the argument",
    "alter_argument": "tighten the argument's matcher; if no call is listed, expect.results",
    "extra_write": "set extra: reads, or list the rows under final",
    "duplicate_write": "set extra: reads",
    "extra_read": "set extra: none",
    "skip_gate": "demand result: ok, so that asking is part of it",
    "retry_after_rejection": "set extra: reads, or forbid the tool in the next turn",
    "claim_success": "write reply: {claims: none}, or name the tool's own words in its claims",
    "say_nothing": "demand words: reply.contains_any or reply.matches",
    "unrelated_answer": "demand words of the matter: reply.contains_any",
}
"""The kinds, and what to do about a scenario that does not notice one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A reference trace with one mistake in it. `place` tells it from others of its kind.

    It is played as a `trace`; a mistake that no model can make through the real gate comes as
    `evidence` instead, and is only judged. With `needs_effect` it is a mistake only if it leaves
    another state or lacks a result: the scenario tolerates other calls.
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
    """A mistake that could not be made, and why: whether it would be noticed is unknown."""

    scenario: str
    kind: str
    place: str
    why: str


Mistakes: TypeAlias = Iterator[Mistake | Untried]

_SOME_TEXT = {"ko": "나는 저녁마다 산책한다", "en": "I walk every evening"}
_OTHER_TEXT = {"ko": "된장찌개 끓이기", "en": "soybean stew"}
_UNRELATED = {
    "ko": "부산행 열차는 9번 승강장에서 떠납니다.",
    "en": "The train to Busan leaves from platform nine.",
}
_PLAIN_CLAIMS: Mapping[str, Sequence[str]] = {
    "ko": ("처리했습니다.", "완료했어요."),
    "en": ("I've done that for you.", "It has been done."),
}


def wrong_calls(played: Played) -> Mistakes:
    """Yield each call that matters left out, and with another tool of the same sort."""
    for step in played.all_steps():
        if step.matters:
            change = f"{step.call.name} is not called"
            yield _with_call(played, step, None, "drop_call", "", change)
            text = played.scenario.turns[step.turn].user
            for tool in played.registry.definitions:
                if tool.name == step.call.name or tool.is_destructive is not step.is_write:
                    continue
                guesses = _guesses(played, tool, text, played.ids)
                wrong = [call for call in guesses if not played.is_accepted(step.turn, call)]
                if wrong:
                    change = f"{tool.name} in place of {step.call.name}"
                    yield _with_call(played, step, wrong[0], "swap_tool", "", change)
                    break


def reordered_calls(played: Played) -> Mistakes:
    """Yield two neighbours swapped, where the scenario sets their order."""
    for turn, steps in enumerate(played.steps):
        order = played.scenario.turns[turn].expect.order
        for first, second in pairwise(steps):
            places = (first.expected_index, second.expected_index)
            is_ordered = places in order.before if isinstance(order, Before) else order == "strict"
            if is_ordered and None not in places and first.call != second.call:
                calls = [step.call for step in steps]
                calls[first.index : first.index + 2] = [second.call, first.call]
                yield Mistake(
                    kind="reorder",
                    place=first.place,
                    change=f"{second.call.name} before {first.call.name}",
                    trace=played.with_calls(turn, calls),
                )


def wrong_arguments(played: Played) -> Mistakes:
    """Yield each argument of a call that matters left out, and a little wrong."""
    for step in played.all_steps():
        args = step.call.args
        is_described = step.expected is not None or step.is_awaited
        if not (step.matters and is_described and isinstance(args, Mapping)):
            continue
        node = SchemaNode.of(played.schema_of(step.call.name))
        branch = node.branches()[0]
        for name, value in args.items():
            rest = {other: args[other] for other in args if other != name}
            if not _is_right(played, step, rest):
                kind = "required" if name in branch.get("required", ()) else "optional"
                yield _with_args(played, step, rest, f"drop_{kind}_argument", name, "left out")
            schema = node.at(property_schema(branch, name)).branches()[0]
            variants = [
                (label, other, {**args, name: other})
                for label, other in _variants(played, name, value, schema)
            ]
            taken = [each for each in variants if _is_taken(played, step, each[2])]
            if not taken:
                why = f"no other value of {name} can be guessed that {step.call.name} accepts"
                yield _untried(played, "alter_argument", f"{step.place}.{name}", why, "`examples`")
            for label, other, changed in taken:
                if not _is_right(played, step, changed):
                    change = f"{shown(other)} in place of {shown(value)}"
                    place = f"{name}{label}"
                    yield _with_args(played, step, changed, "alter_argument", place, change)


def _is_right(played: Played, step: Step, args: Mapping[str, Any]) -> bool:
    """Return True if the expectation that a call meets accepts other arguments, too."""
    return step.expected is not None and played.fits(step.expected, step.call.name, args)


def _is_taken(played: Played, step: Step, args: Mapping[str, Any]) -> bool:
    """Return True if the tool takes other arguments, or refuses those of the reference, too."""
    check = played.registry.validator(step.call.name).check
    return isinstance(check(args), Accepted) or not isinstance(check(step.call.args), Accepted)


def _variants(
    played: Played, name: str, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield wrong values near the right one, each with a label that tells them apart."""
    if isinstance(value, bool):
        yield "", not value
    elif is_number(value):
        yield "", value - 1 if value + 1 > schema.get("maximum", value + 1) else value + 1
    elif isinstance(value, list | tuple | Mapping):
        yield from _inner_variants(played, name, value, schema)
    elif name in played.ids:
        others = [known for known in played.ids[name] if known != value]
        yield "", others[0] if others else f"{value}-2"
    elif "enum" in schema:
        yield from [("", other) for other in schema["enum"] if other != value][:1]
    elif isinstance(value, str):
        yield from _other_texts(played, value, schema)


def _inner_variants(
    played: Played, name: str, value: Sequence[Any] | Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield an object with each field wrong; a list with its first item wrong, its last gone."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            of_key = schema.get("properties", {}).get(key, {})
            for label, other in _variants(played, key, inner, of_key):
                yield f".{key}{label}", {**value, key: other}
        return
    items = schema.get("items", {})
    for label, other in _variants(played, name, value[0], items) if value else ():
        yield f"[0]{label}", [other, *value[1:]]
    if len(value) > schema.get("minItems", 0):
        yield "[-]", list(value[:-1])
    elif not value:
        yield "[+]", [example(SchemaNode.of(items), played.today)]


def _other_texts(
    played: Played, value: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield other times and days near a text, or other words."""
    time = _TIME.fullmatch(value)
    for hours in (-1, 1, 12) if time else ():
        hour = (int(time["hour"]) + hours) % 24 if time else 0
        yield f"{hours:+}h", _TIME.sub(rf"\g<before>{hour:02}\g<after>", value)
    with suppress(ValueError, OverflowError):
        day = date.fromisoformat(value[:10] if time else value)
        for days in (-1, 1):
            yield f"{days:+}", f"{day + timedelta(days=days)}{value[10:]}"
        return
    if time is None:
        yield "", _of(_OTHER_TEXT, played)
        if schema.keys() & {"examples", "format", "pattern"}:
            alike = (text for text in texts_like(schema, played.today) if text != value)
            yield from (("~like", text) for text in islice(alike, 1))


_TIME = re.compile(
    r"(?P<before>(?:\d{4}-\d\d-\d\d[T ])?)(?P<hour>[01]\d|2[0-3])(?P<after>:[0-5]\d(?!\d).*)"
)


def extra_calls(played: Played) -> Mistakes:
    """Yield each turn with one more write of every tool, and with one more read.

    Of a write with all arguments and with the required ones only.
    """
    for turn, script in enumerate(played.scenario.turns[: len(played.steps)]):
        reads = []
        for tool in played.registry.definitions:
            guesses = _unused_calls(played, turn, tool)
            if not tool.is_destructive:
                reads += guesses[:1]
            elif not guesses:
                why = f"no arguments of {tool.name} can be guessed that its schema accepts"
                yield _untried(played, "extra_write", f"{turn}.{tool.name}", why, "`examples`")
            for label, call in zip(("", "-"), guesses if tool.is_destructive else (), strict=False):
                yield from _appended(played, turn, "extra_write", [call], f".{tool.name}{label}")
        wrong = [call for call in reads if not played.is_accepted(turn, call)]
        if script.expect.extra == "none":
            yield from _appended(played, turn, "extra_read", wrong[:1], "")


def repeated_writes(played: Played) -> Mistakes:
    """Yield each write a second time, in the same turn and in the next one.

    Of a cancelled one that is a retry; where reads are tolerated, one stands in between, so that
    the second try is really asked.
    """
    for step in played.all_steps():
        if not step.is_write:
            continue
        turn, later = step.turn, step.turn + 1
        is_retry = step.record.outcome == "cancelled"
        kind = "retry_after_rejection" if is_retry else "duplicate_write"
        pause = _read_before(played, turn) if is_retry else []
        yield from _appended(played, turn, kind, [*pause, step.call], f".{step.index}")
        is_due_later = later < len(played.steps) and any(
            other.call.name == step.call.name for other in played.steps[later]
        )
        was_done = step.record.outcome in {"ok", "cancelled"}
        if was_done and later < len(played.steps) and not is_due_later:
            yield from _appended(played, later, kind, [step.call], f".{step.index}.later")


def _read_before(played: Played, turn: int) -> Sequence[ToolCall]:
    """Return a read that is tolerated in a turn, if any."""
    if played.scenario.turns[turn].expect.extra == "none":
        return []
    tools = [tool for tool in played.registry.definitions if not tool.is_destructive]
    guesses = (_unused_calls(played, turn, tool) for tool in reversed(tools))
    return next((calls[:1] for calls in guesses if calls), [])


def skipped_gates(played: Played) -> Mistakes:
    """Yield the record of the reference with each write done without an accepted question.

    No model can do so through the real gate, so it is judged and not played. A write that the user
    cancelled keeps its gate and runs nevertheless.
    """
    evidence = played.record.evidence
    for step in played.all_steps():
        if step.is_write and step.record.outcome in {"ok", "cancelled"}:
            turn = evidence.turns[step.turn]
            unasked = replace(step.record, gate=GateOutcome.NOT_NEEDED)
            if step.record.outcome == "cancelled":
                unasked = replace(step.record, ran=True, result={"status": "ok", "data": {}})
            calls = (*turn.calls[: step.index], unasked, *turn.calls[step.index + 1 :])
            turns = list(evidence.turns)
            turns[step.turn] = replace(turn, calls=calls)
            yield Mistake(
                kind="skip_gate",
                place=step.place,
                change=f"{step.call.name} runs without a yes of the user",
                evidence=replace(evidence, turns=tuple(turns)),
            )


def wrong_words(played: Played) -> Mistakes:
    """Yield each turn without an answer, with an unrelated one, and with a false claim of success.

    A claim is false where a write was refused or cancelled in the turn, or is the first that the
    turn forbids, and none of that tool went through. It stands after the right answer, once in each
    wording that the tool names, and once in its place.
    """
    locale = played.scenario.locale
    for turn, trace in enumerate(played.trace[: len(played.steps)]):
        yield _with_words(played, turn, "say_nothing", "", "")
        yield _with_words(played, turn, "unrelated_answer", _of(_UNRELATED, played), "")
        for tool in _not_done(played, turn):
            definition = played.registry.get(tool)
            claims = claims_of_success(definition, locale) if definition else []
            if not claims and definition:
                why = f"{tool} names no words of its success"
                words = f"claims={{{locale!r}: [...]}}"
                yield _untried(played, "claim_success", f"{turn}.{tool}", why, words)
            claims = claims or [*_PLAIN_CLAIMS.get(locale, _PLAIN_CLAIMS["en"])]
            yield _with_words(played, turn, "claim_success", claims[0], f".{tool}.alone")
            end = "" if trace.words.endswith((".", "!", "?", "…")) else "."
            for number, claim in enumerate(claims):
                words = f"{trace.words}{end} {claim}"
                yield _with_words(played, turn, "claim_success", words, f".{tool}.{number}")


def _not_done(played: Played, turn: int) -> list[str]:
    writes = [step.record for step in played.steps[turn] if step.is_write]
    forbidden = [call.tool for call in played.scenario.turns[turn].forbid]
    tempting = [tool for tool in forbidden if tool in played.registry.destructive][:1]
    done = {record.tool for record in writes if record.outcome == "ok"}
    return sorted({record.tool for record in writes}.union(tempting) - done)


def _of(texts: Mapping[str, str], played: Played) -> str:
    return texts.get(played.scenario.locale, texts["en"])


def _untried(played: Played, kind: str, place: str, why: str, missing: str) -> Untried:
    advice = f"{why}: give it {missing}"
    return Untried(scenario=played.scenario.id, kind=kind, place=place, why=advice)


def _with_call(
    played: Played, step: Step, call: ToolCall | None, kind: str, label: str, change: str
) -> Mistake:
    """Return the trace with another call, or none, in the place of a step."""
    calls = [call if other is step else other.call for other in played.steps[step.turn]]
    return Mistake(
        kind=kind,
        place=f"{step.place}{label}",
        change=change,
        trace=played.with_calls(step.turn, [made for made in calls if made is not None]),
        needs_effect=step.is_awaited and not step.is_demanded,
    )


def _with_args(
    played: Played, step: Step, args: Mapping[str, Any], kind: str, name: str, change: str
) -> Mistake:
    call = replace(step.call, args=dict(args))
    return _with_call(played, step, call, kind, f".{name}", f"{call.name}: {name}: {change}")


def _with_words(played: Played, turn: int, kind: str, words: str, label: str) -> Mistake:
    return Mistake(
        kind=kind,
        place=f"{turn}{label}",
        change=f"turn {turn} is answered: {words}" if words else f"turn {turn} has no answer",
        trace=played.with_words(turn, words),
    )


def _appended(
    played: Played, turn: int, kind: str, calls: Sequence[ToolCall], label: str
) -> Mistakes:
    """Yield the trace with calls at the end of a turn, unless the last is accepted there."""
    if calls and not played.is_accepted(turn, calls[-1]):
        own = [step.call for step in played.steps[turn]]
        yield Mistake(
            kind=kind,
            place=f"{turn}{label}",
            change=f"turn {turn} ends with {calls[-1].name} {dict(calls[-1].args)}",
            trace=played.with_calls(turn, [*own, *calls]),
            needs_effect=played.scenario.turns[turn].expect.extra == "any",
        )


def _guesses(
    played: Played, tool: ToolDefinition, text: str, ids: Mapping[str, Sequence[str]]
) -> list[ToolCall]:
    validator = played.registry.validator(tool.name)
    return plausible_calls(tool, validator, ids=ids, text=text, today=played.today)


def _unused_calls(played: Played, turn: int, tool: ToolDefinition) -> list[ToolCall]:
    """Return calls that most likely go through and are not among those of the turn.

    About what neither the initial state nor the reference mentions where there is such; else a day
    earlier.
    """
    mentioned = f"{played.record.evidence.initial_state} {played.trace}"
    ids = {
        name: [*[each for each in reversed(known) if repr(each) not in mentioned][:1], *known]
        for name, known in played.ids.items()
    }
    own = [step.call for step in played.steps[turn] if step.call.name == tool.name]
    today, earlier = (f"{played.today - timedelta(days=n)}" for n in (0, 1))
    calls = []
    for call in _guesses(played, tool, _of(_SOME_TEXT, played), ids):
        args = dict(call.args)
        if any(dict(step.args).items() <= args.items() for step in own):
            args = {name: earlier if args[name] == today else args[name] for name in args}
        calls.append(replace(call, args=args))
    return calls


KINDS: Sequence[Callable[[Played], Mistakes]] = (
    wrong_calls,
    reordered_calls,
    wrong_arguments,
    extra_calls,
    repeated_writes,
    skipped_gates,
    wrong_words,
)
