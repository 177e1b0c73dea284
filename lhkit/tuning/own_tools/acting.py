"""What the expert does: the calls of a wish, then words for what really came of them."""

import json
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from lhkit.errors import TuningError
from lhkit.harness.expectations.equality import is_number
from lhkit.models.scripted import Reply, say
from lhkit.tuning.expert import Act
from lhkit.tuning.own_tools.templates import Slot, Taken, filled, taken, word_in
from lhkit.tuning.own_tools.values import LookUp, calls_for
from lhkit.vocab.json_values import compact
from lhkit.vocab.messages import ToolCall, ToolCallMessage
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, ToolResult, encode_tool_result

_OURS = frozenset({"handler_error", "validation", "unknown_tool", "repeated_call"})
"""Results that no phrase is written for: the tool broke, or the call should not have been made."""

_SHOWN_ROWS = 3
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One call, the words that stand for its arguments, and what may be said afterwards.

    An argument may be a `LookUp`: then it is called for first. `place` says where a part of the
    tool's phrases stands: `file:line: field`. One that `is_to_fail` was drawn from `failing`.
    """

    tool: str
    locale: str
    args: Mapping[str, Any]
    words: Mapping[str, str]
    replies: Mapping[str, Sequence[str]]
    place: Callable[[str], str]
    is_to_fail: bool = False

    def calls(self) -> int:
        """Return how many calls it takes at most."""
        return calls_for(self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What became of a wish: a key of its `replies`, the reply under it, and that in words."""

    wish: Wish
    outcome: str
    reply: str
    text: str


def ignore(_said: Said) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class _Missed:
    """There is no value to call with: what is said then, best first, and fields to name."""

    outcomes: tuple[str, ...]
    data: Mapping[str, Any]


_Known: TypeAlias = dict[str, ToolResult]
"""Results of this turn that still hold, by call."""

_T = TypeVar("_T")
_Course: TypeAlias = Generator[ToolCall, ToolResult, _T]


def acting(
    wishes: Sequence[Wish],
    *,
    seed: int,
    most_calls: int,
    notify: Callable[[Said], None] = ignore,
) -> Act:
    """Return an act that makes the calls one after the other and then speaks of all of them.

    Args:
        wishes: in the order in which they are carried out.
        seed: decides the words.
        most_calls: so many fit into a turn.
        notify: told of each wish when all of them are carried out.

    Raises (when it acts):
        TuningError: a tool broke, a look-up does not find what it should, no reply fits what came
            of a call, or there are too many calls.
    """

    def act(settled: Sequence[ToolCallMessage]) -> Reply:
        rng = random.Random(seed)  # noqa: S311 - a choice of words, no secret
        course = _course(wishes, rng)
        try:
            call = next(course)
            for message in settled:
                call = course.send(message.result)
        except StopIteration as end:
            told: Sequence[Said] = end.value
            for each in told:
                notify(each)
            return say(" ".join(each.text for each in told))
        if len(settled) >= most_calls:
            raise TuningError(
                f"{wishes[0].place('say')}: it takes more than {most_calls} calls, and a turn of "
                "your assistant allows no more: raise its max_turns"
            )
        return Reply(calls=(call,))

    return act


def _course(wishes: Sequence[Wish], rng: random.Random) -> _Course[Sequence[Said]]:
    """Yield each call, be sent its result, and return what is said in the end."""
    known: _Known = {}
    told: list[Said] = []
    for wish in wishes:
        args = yield from _arguments(wish.args, wish, known)
        if isinstance(args, _Missed):
            told.append(_words(wish, args.outcomes, args.data, wish.args, rng))
            continue
        result = yield from _called(wish.tool, args, known)
        told.append(_words(wish, *_outcomes(wish, wish.tool, args, result), args, rng))
        known.clear()  # it may have changed what a look-up would find
        known[_key(wish.tool, args)] = result
    return told


def _arguments(
    args: Mapping[str, Any], wish: Wish, known: _Known
) -> _Course[dict[str, Any] | _Missed]:
    """Return the arguments with everything looked up."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, LookUp):
            looked_up = yield from _looked_up(value, wish, known)
            if isinstance(looked_up, _Missed):
                return looked_up
            found[name] = looked_up.values[0]
        else:
            found[name] = value
    return found


def _looked_up(look_up: LookUp, wish: Wish, known: _Known) -> _Course[Taken | _Missed]:
    args = yield from _arguments(look_up.args, wish, known)
    if isinstance(args, _Missed):
        return args
    result = yield from _called(look_up.tool, args, known)
    outcomes, data = _outcomes(wish, look_up.tool, args, result)
    if outcomes[0] != "ok":
        return _Missed(tuple(each for each in outcomes if each != "ok"), data)
    asked = f"{wish.place('values')}: {look_up.tool} {compact(args)}, {look_up.take}"
    try:
        found = taken(data, look_up.take, look_up.where)
    except TuningError as error:
        raise TuningError(f"{asked}: {error}") from error
    if not found.values:
        return _Missed(("not_found",), found.data)
    if len(found.values) == 1:
        return found
    if "several" in wish.replies:
        return _Missed(("several",), found.data)
    raise TuningError(
        f"{asked}: {len(found.values)} different values are there, in {_shown(found)}: say which "
        "with `where: {field: …}`, take the first like rows[0].id, or write under `several` in "
        "`replies` how to ask back"
    )


def _shown(found: Taken) -> str:
    """Return the rows that were found, or the values where they stand in one row."""
    some = found.rows if len(found.rows) > 1 else found.values
    texts = [compact(each) for each in some[:_SHOWN_ROWS]]
    short = [text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…" for text in texts]
    more = f" and {len(some) - len(short)} more" if len(some) > len(short) else ""
    return ", ".join(short) + more


def _called(tool: str, args: Mapping[str, Any], known: _Known) -> _Course[ToolResult]:
    """Return what a call came to; one whose result is known and still holds is not made again."""
    key = _key(tool, args)
    if key not in known:
        known[key] = yield ToolCall(name=tool, args=dict(args))
    return known[key]


def _key(tool: str, args: Mapping[str, Any]) -> str:
    return compact([tool, dict(args)])


def _words(
    wish: Wish,
    outcomes: Sequence[str],
    data: Mapping[str, Any],
    args: Mapping[str, Any],
    rng: random.Random,
) -> Said:
    for outcome in outcomes:
        replies = list(wish.replies.get(outcome, ()))
        for template in rng.sample(replies, len(replies)):
            text = filled(template, lambda slot: _word(wish, data, slot))
            if text is not None:
                return Said(wish=wish, outcome=outcome, reply=template, text=text)
    raise TuningError(_unsaid(wish, outcomes, data, args))


def _word(wish: Wish, data: Mapping[str, Any], slot: Slot) -> str | None:
    if slot.name in wish.words and not slot.key:
        return wish.words[slot.name]
    return word_in(data, slot)


def _outcomes(
    wish: Wish, tool: str, args: Mapping[str, Any], result: ToolResult
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return under which keys a reply may stand, best first, and the fields it may name.

    These are the fields that the model sees: a result that is too long has lost its data.
    """
    match result:
        case ToolCancelled():
            return ("cancelled",), {}
        case ToolErr(code=code, reason=reason):
            if code in _OURS:
                raise TuningError(
                    f"{wish.place('say')}: the tool {tool} answered {code} to {compact(args)} "
                    f"({reason}): mend the tool, or change the values or worlds of the phrase file"
                )
            is_missing = code.endswith("not_found")
            keys = (code, "not_found", "refused") if is_missing else (code, "refused")
            return keys, {"code": code, "reason": reason}
        case ToolOk():
            data: Mapping[str, Any] = json.loads(encode_tool_result(result))["data"]
            return _outcomes_of(data), data


def _outcomes_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys for a result: one that holds nothing at all is not found.

    With an empty list beside other fields it may be either, and so with numbers alone (none left
    may be good news); the replies decide, by their slots.
    """
    if not data or any(data.values()):
        return ("ok", "not_found") if [] in data.values() else ("ok",)
    is_numbers_only = all(is_number(value) for value in data.values())
    return ("ok", "not_found") if is_numbers_only else ("not_found", "ok")


def _unsaid(
    wish: Wish, outcomes: Sequence[str], data: Mapping[str, Any], args: Mapping[str, Any]
) -> str:
    fields = ", ".join([*wish.words, *data]) or "none"
    keys = " or ".join(f"`{outcome}`" for outcome in outcomes)
    told = {name: value for name, value in args.items() if not isinstance(value, LookUp)}
    return (
        f"{wish.place('replies')}: {wish.tool} came to `{outcomes[0]}` with {compact(told)} and no "
        f"reply for it can be filled (slots there: {fields}): write one under {keys}"
    )
