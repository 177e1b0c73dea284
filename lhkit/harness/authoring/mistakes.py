"""The kinds of mistakes: each function yields reference trajectories with one mistake.

What the scenario accepts is no mistake: other arguments that match an expectation, a missing
optional call, an unexpected call that `extra` allows and that changes nothing. Nor is a call that
the tool's schema refuses, as it writes nothing.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import islice, pairwise
from typing import Any, TypeAlias

from lhkit.base.json_values import shown
from lhkit.base.schema import SchemaNode, property_schema
from lhkit.conversation.messages import GateOutcome, ToolCall
from lhkit.harness.authoring.examples import example, plausible_calls, texts_like
from lhkit.harness.authoring.reference import TurnTrace, success_claims
from lhkit.harness.authoring.reference_run import ReferenceRun, Step
from lhkit.harness.records.record import Trajectory
from lhkit.harness.scenarios.scenario import Before
from lhkit.harness.scenarios.values import is_number
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.validation import Accepted

ADVICE: Mapping[str, str] = {
    "drop_call": "make the call required, or list its row under final or under expect.results",
    "swap_tool": "make the call required, or list more of its result under expect.results",
    "reorder": "set order: strict",
    "drop_required_argument": "require result: ok",
    "drop_optional_argument": "remove 'optional' from the argument",
    "alter_argument": "tighten the argument's matcher; if no call is listed, expect.results",
    "extra_write": "set extra: reads, or list the rows under final",
    "duplicate_write": "set extra: reads",
    "extra_read": "set extra: none",
    "skip_gate": "require result: ok, which includes the confirmation",
    "retry_after_rejection": "set extra: reads, or forbid the tool in the next turn",
    "claim_success": "write reply: {claims: none}, or add success phrases to the tool's claims",
    "say_nothing": "require text: reply.contains_any or reply.matches",
    "unrelated_answer": "require text of the subject: reply.contains_any",
}
"""How to make a scenario detect a mistake, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A reference trajectory with one mistake.

    Attributes:
        kind: key of `ADVICE`.
        place: distinguishes it from others of its kind.
        change: description for users.
        trace: what the model does.
        trajectory: instead of `trace`, a transcript to score, if the gate prevents the mistake.
        needs_effect: True if it is a mistake only with another final state or a missing result,
            because the scenario allows other calls.
    """

    kind: str
    place: str
    change: str
    trace: tuple[TurnTrace, ...] = ()
    trajectory: Trajectory | None = None
    needs_effect: bool = False

    @property
    def key(self) -> str:
        """Unique name in the scenario, such as `alter_argument@0.1.date+1`."""
        return f"{self.kind}@{self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """A mistake that could not be made, with the reason."""

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
_DEFAULT_CLAIMS: Mapping[str, Sequence[str]] = {
    "ko": ("처리했습니다.", "완료했어요."),
    "en": ("I've done that for you.", "It has been done."),
}


def wrong_calls(reference: ReferenceRun) -> Mistakes:
    """Yield calls that matter left out, and replaced by another tool's."""
    for step in reference.all_steps():
        if step.matters:
            change = f"{step.call.name} is not called"
            yield _with_call(reference, step, None, "drop_call", "", change)
            text = reference.scenario.turns[step.turn].user
            for tool in reference.registry.definitions:
                if tool.name == step.call.name or tool.is_destructive is not step.is_write:
                    continue
                guesses = _guesses(reference, tool, text, reference.ids)
                wrong = [call for call in guesses if not reference.is_accepted(step.turn, call)]
                if wrong:
                    change = f"{tool.name} in place of {step.call.name}"
                    yield _with_call(reference, step, wrong[0], "swap_tool", "", change)
                    break


def reordered_calls(reference: ReferenceRun) -> Mistakes:
    """Yield two consecutive calls swapped, if their order is required."""
    for turn, steps in enumerate(reference.steps):
        order = reference.scenario.turns[turn].expect.order
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
                    trace=reference.with_calls(turn, calls),
                )


def wrong_arguments(reference: ReferenceRun) -> Mistakes:
    """Yield arguments of calls that matter left out, and slightly wrong."""
    for step in reference.all_steps():
        args = step.call.args
        is_described = step.expected is not None or step.is_awaited
        if not (step.matters and is_described and isinstance(args, Mapping)):
            continue
        node = SchemaNode.of(reference.tools.schemas.get(step.call.name, {}))
        branch = node.branches()[0]
        for name, value in args.items():
            rest = {other: args[other] for other in args if other != name}
            if not _is_expected(reference, step, rest):
                kind = "required" if name in branch.get("required", ()) else "optional"
                yield _with_args(reference, step, rest, f"drop_{kind}_argument", name, "left out")
            schema = node.at(property_schema(branch, name)).branches()[0]
            variants = [
                (label, other, {**args, name: other})
                for label, other in _variants(reference, name, value, schema)
            ]
            valid = [variant for variant in variants if _is_valid(reference, step, variant[2])]
            if not valid:
                why = f"no other value of {name} is known that {step.call.name} accepts"
                yield _untried(
                    reference, "alter_argument", f"{step.place}.{name}", why, "`examples`"
                )
            for label, other, changed in valid:
                if not _is_expected(reference, step, changed):
                    change = f"{shown(other)} in place of {shown(value)}"
                    place = f"{name}{label}"
                    yield _with_args(reference, step, changed, "alter_argument", place, change)


def _is_expected(reference: ReferenceRun, step: Step, args: Mapping[str, Any]) -> bool:
    """Return whether the expectation of a step accepts other arguments."""
    return step.expected is not None and reference.fits(step.expected, step.call.name, args)


def _is_valid(reference: ReferenceRun, step: Step, args: Mapping[str, Any]) -> bool:
    """Return whether the tool accepts arguments, or refuses those of the reference as well."""
    check = reference.registry.validator(step.call.name).check
    return isinstance(check(args), Accepted) or not isinstance(check(step.call.args), Accepted)


def _variants(
    reference: ReferenceRun, name: str, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield wrong values near the right one, with unique labels."""
    if isinstance(value, bool):
        yield "", not value
    elif is_number(value):
        yield "", value - 1 if value + 1 > schema.get("maximum", value + 1) else value + 1
    elif isinstance(value, list | tuple | Mapping):
        yield from _inner_variants(reference, name, value, schema)
    elif name in reference.ids:
        others = [known for known in reference.ids[name] if known != value]
        yield "", others[0] if others else f"{value}-2"
    elif "enum" in schema:
        yield from [("", other) for other in schema["enum"] if other != value][:1]
    elif isinstance(value, str):
        yield from _other_texts(reference, value, schema)


def _inner_variants(
    reference: ReferenceRun,
    name: str,
    value: Sequence[Any] | Mapping[str, Any],
    schema: Mapping[str, Any],
) -> Iterator[tuple[str, Any]]:
    """Yield an object with a field wrong; a list with its first item wrong or its last removed."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            of_key = schema.get("properties", {}).get(key, {})
            for label, other in _variants(reference, key, inner, of_key):
                yield f".{key}{label}", {**value, key: other}
        return
    items = schema.get("items", {})
    for label, other in _variants(reference, name, value[0], items) if value else ():
        yield f"[0]{label}", [other, *value[1:]]
    if len(value) > schema.get("minItems", 0):
        yield "[-]", list(value[:-1])
    elif not value:
        yield "[+]", [example(SchemaNode.of(items), reference.today)]


def _other_texts(
    reference: ReferenceRun, value: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield times and days near the value, or another text."""
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
        yield "", _localized(_OTHER_TEXT, reference)
        if schema.keys() & {"examples", "format", "pattern"}:
            similar = (text for text in texts_like(schema, reference.today) if text != value)
            yield from (("~like", text) for text in islice(similar, 1))


_TIME = re.compile(
    r"(?P<before>(?:\d{4}-\d\d-\d\d[T ])?)(?P<hour>[01]\d|2[0-3])(?P<after>:[0-5]\d(?!\d).*)"
)


def extra_calls(reference: ReferenceRun) -> Mistakes:
    """Yield turns with an extra write, for every tool, and with an extra read.

    Writes have all arguments, or the required ones only.
    """
    for turn, script in enumerate(reference.scenario.turns[: len(reference.steps)]):
        reads = []
        for tool in reference.registry.definitions:
            guesses = _unused_calls(reference, turn, tool)
            if not tool.is_destructive:
                reads += guesses[:1]
            elif not guesses:
                why = f"no arguments of {tool.name} are known that its schema accepts"
                yield _untried(reference, "extra_write", f"{turn}.{tool.name}", why, "`examples`")
            for label, call in zip(("", "-"), guesses if tool.is_destructive else (), strict=False):
                yield from _appended(reference, turn, "extra_write", [call], f".{tool.name}{label}")
        wrong = [call for call in reads if not reference.is_accepted(turn, call)]
        if script.expect.extra == "none":
            yield from _appended(reference, turn, "extra_read", wrong[:1], "")


def repeated_writes(reference: ReferenceRun) -> Mistakes:
    """Yield writes repeated in the same turn and in the next one.

    After a rejection this is a retry; a read in between, if allowed, makes the gate ask again.
    """
    for step in reference.all_steps():
        if not step.is_write:
            continue
        turn, later = step.turn, step.turn + 1
        is_retry = step.record.outcome == "cancelled"
        kind = "retry_after_rejection" if is_retry else "duplicate_write"
        pause = _allowed_read(reference, turn) if is_retry else []
        yield from _appended(reference, turn, kind, [*pause, step.call], f".{step.index}")
        is_expected_later = later < len(reference.steps) and any(
            other.call.name == step.call.name for other in reference.steps[later]
        )
        was_done = step.record.outcome in {"ok", "cancelled"}
        if was_done and later < len(reference.steps) and not is_expected_later:
            yield from _appended(reference, later, kind, [step.call], f".{step.index}.later")


def _allowed_read(reference: ReferenceRun, turn: int) -> Sequence[ToolCall]:
    """Return a read that is allowed in a turn, if any."""
    if reference.scenario.turns[turn].expect.extra == "none":
        return []
    tools = [tool for tool in reference.registry.definitions if not tool.is_destructive]
    guesses = (_unused_calls(reference, turn, tool) for tool in reversed(tools))
    return next((calls[:1] for calls in guesses if calls), [])


def skipped_gates(reference: ReferenceRun) -> Mistakes:
    """Yield transcripts in which a write ran without confirmation.

    The gate prevents this, so the transcript is scored without a run. A rejected write keeps its
    decision and runs nevertheless.
    """
    trajectory = reference.record.trajectory
    for step in reference.all_steps():
        if step.is_write and step.record.outcome in {"ok", "cancelled"}:
            turn = trajectory.turns[step.turn]
            unasked = replace(step.record, gate=GateOutcome.NOT_NEEDED)
            if step.record.outcome == "cancelled":
                unasked = replace(step.record, ran=True, result={"status": "ok", "data": {}})
            calls = (*turn.calls[: step.index], unasked, *turn.calls[step.index + 1 :])
            turns = list(trajectory.turns)
            turns[step.turn] = replace(turn, calls=calls)
            yield Mistake(
                kind="skip_gate",
                place=step.place,
                change=f"{step.call.name} runs without confirmation",
                trajectory=replace(trajectory, turns=tuple(turns)),
            )


def wrong_replies(reference: ReferenceRun) -> Mistakes:
    """Yield turns with no reply, an unrelated reply, and a false success claim.

    A claim is false for a tool whose writes all failed or were rejected in the turn, and for the
    first forbidden write. It follows the right reply, in each wording of the tool, or replaces it.
    A turn that ends with its calls has no reply.
    """
    locale = reference.scenario.locale
    for turn, trace in enumerate(reference.trace[: len(reference.steps)]):
        if reference.is_one_message and not reference.record.trajectory.turns[turn].reply:
            continue
        yield _with_reply(reference, turn, "say_nothing", "", "")
        yield _with_reply(
            reference, turn, "unrelated_answer", _localized(_UNRELATED, reference), ""
        )
        for tool in _unsuccessful_tools(reference, turn):
            definition = reference.registry.get(tool)
            claims = success_claims(definition, locale) if definition else []
            if not claims and definition:
                why = f"{tool} has no success phrases"
                missing = f"claims={{{locale!r}: [...]}}"
                yield _untried(reference, "claim_success", f"{turn}.{tool}", why, missing)
            claims = claims or [*_DEFAULT_CLAIMS.get(locale, _DEFAULT_CLAIMS["en"])]
            yield _with_reply(reference, turn, "claim_success", claims[0], f".{tool}.alone")
            end = "" if trace.reply.endswith((".", "!", "?", "…")) else "."
            for number, claim in enumerate(claims):
                reply = f"{trace.reply}{end} {claim}"
                yield _with_reply(reference, turn, "claim_success", reply, f".{tool}.{number}")


def _unsuccessful_tools(reference: ReferenceRun, turn: int) -> list[str]:
    writes = [step.record for step in reference.steps[turn] if step.is_write]
    forbidden = [call.tool for call in reference.scenario.turns[turn].forbid]
    tempting = [tool for tool in forbidden if tool in reference.registry.destructive][:1]
    done = {record.tool for record in writes if record.outcome == "ok"}
    return sorted({record.tool for record in writes}.union(tempting) - done)


def _localized(texts: Mapping[str, str], reference: ReferenceRun) -> str:
    return texts.get(reference.scenario.locale, texts["en"])


def _untried(reference: ReferenceRun, kind: str, place: str, why: str, missing: str) -> Untried:
    scenario = reference.scenario.id
    return Untried(scenario=scenario, kind=kind, place=place, why=f"{why}: give it {missing}")


def _with_call(
    reference: ReferenceRun, step: Step, call: ToolCall | None, kind: str, label: str, change: str
) -> Mistake:
    """Return the trajectory with another call, or none, instead of a step."""
    calls = [call if other is step else other.call for other in reference.steps[step.turn]]
    return Mistake(
        kind=kind,
        place=f"{step.place}{label}",
        change=change,
        trace=reference.with_calls(step.turn, [other for other in calls if other is not None]),
        needs_effect=step.is_awaited and not step.is_demanded,
    )


def _with_args(
    reference: ReferenceRun, step: Step, args: Mapping[str, Any], kind: str, name: str, change: str
) -> Mistake:
    call = replace(step.call, args=dict(args))
    return _with_call(reference, step, call, kind, f".{name}", f"{call.name}: {name}: {change}")


def _with_reply(reference: ReferenceRun, turn: int, kind: str, reply: str, label: str) -> Mistake:
    return Mistake(
        kind=kind,
        place=f"{turn}{label}",
        change=f"turn {turn} is answered: {reply}" if reply else f"turn {turn} has no answer",
        trace=reference.with_reply(turn, reply),
    )


def _appended(
    reference: ReferenceRun, turn: int, kind: str, calls: Sequence[ToolCall], label: str
) -> Mistakes:
    """Yield the trajectory with more calls in a turn, unless the last one is accepted there."""
    if calls and not reference.is_accepted(turn, calls[-1]):
        existing = [step.call for step in reference.steps[turn]]
        yield Mistake(
            kind=kind,
            place=f"{turn}{label}",
            change=f"turn {turn} ends with {calls[-1].name} {dict(calls[-1].args)}",
            trace=reference.with_calls(turn, [*existing, *calls]),
            needs_effect=reference.scenario.turns[turn].expect.extra == "any",
        )


def _guesses(
    reference: ReferenceRun, tool: ToolDefinition, text: str, ids: Mapping[str, Sequence[str]]
) -> list[ToolCall]:
    validator = reference.registry.validator(tool.name)
    return plausible_calls(tool, validator, ids=ids, text=text, today=reference.today)


def _unused_calls(reference: ReferenceRun, turn: int, tool: ToolDefinition) -> list[ToolCall]:
    """Return calls that most likely succeed and are not among those of the turn.

    They use ids that neither the initial state nor the reference mentions, else an earlier day.
    """
    mentioned = f"{reference.record.trajectory.initial_state} {reference.trace}"
    ids = {
        name: [*[id_ for id_ in reversed(known) if repr(id_) not in mentioned][:1], *known]
        for name, known in reference.ids.items()
    }
    existing = [step.call for step in reference.steps[turn] if step.call.name == tool.name]
    today, earlier = (f"{reference.today - timedelta(days=n)}" for n in (0, 1))
    calls = []
    for call in _guesses(reference, tool, _localized(_SOME_TEXT, reference), ids):
        args = dict(call.args)
        if any(dict(step.args).items() <= args.items() for step in existing):
            args = {name: earlier if args[name] == today else args[name] for name in args}
        calls.append(replace(call, args=args))
    return calls


KINDS: Sequence[Callable[[ReferenceRun], Mistakes]] = (
    wrong_calls,
    reordered_calls,
    wrong_arguments,
    extra_calls,
    repeated_writes,
    skipped_gates,
    wrong_replies,
)
