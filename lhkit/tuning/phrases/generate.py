"""Conversations drawn from a phrase file."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import product
from typing import Any, TypeAlias, TypeVar

from lhkit.chat.step import MAX_TURNS
from lhkit.errors import TuningError
from lhkit.harness.matchers import is_number
from lhkit.json_values import compact
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import (
    ToolCall,
    ToolCallMessage,
    ToolCancelled,
    ToolErr,
    ToolOk,
    encode_tool_result,
)
from lhkit.models.dialects.json import JsonDialect
from lhkit.models.scripted import Reply as Answer
from lhkit.models.scripted import say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.data import END_OF_ANSWER, TrainingSequence
from lhkit.tuning.noise import AFTER_SHARE, BEFORE_SHARE, careless, is_literal, surrounded
from lhkit.tuning.phrases.check import (
    failing_sentences,
    kinds_of,
    single,
    slot_values,
    values_of,
)
from lhkit.tuning.phrases.file import (
    COUNT,
    TODO,
    FollowUp,
    Gap,
    LocalePhrases,
    PhraseFile,
    PhraseReply,
    Sentence,
    Shares,
    Taken,
    Talk,
    TalkLine,
    ToolPhrases,
    filled,
    listed,
    plain_word,
    reply_of,
    slots_of,
    taken,
    word_in,
)
from lhkit.tuning.phrases.names import (
    NO_NAMES,
    NameWords,
    names_in,
    names_of,
    renamed,
    replacements,
)
from lhkit.tuning.phrases.values import (
    SAY,
    Filling,
    Fillings,
    JoinedArguments,
    LookUp,
    Value,
    calls_for,
    expected_of,
    given_values,
    is_any_text,
    is_day,
    item_choices,
    lone_slot,
    meant,
    part_of,
    schema_fault,
    slot_value_of,
    slots_in,
    value_of,
)
from lhkit.tuning.teacher import Act, Conversation, Line

# What the expert does: the calls of a wish, then words for what really came of them.


_OURS = frozenset({"handler_error", "validation", "unknown_tool", "repeated_call"})
"""Results that no phrase is written for: the tool broke, or the call should not have been made."""

_TRUNCATED = "_truncated"
_CALLED_WITH = "value"
"""`{argument.value}` is what was called with, not what was said."""

_NO_WORDS = "–"
"""Drawn where nothing fits; such a play is never learnt from."""

_SHOWN_ROWS = 3
_SHOWN_CHARS = 60


class MisfitError(TuningError):
    """What was played does not fit what is written: told once for all plays of the same `cause`."""

    def __init__(self, place: str, message: str, *cause: str) -> None:
        super().__init__(f"{place}: {message}")
        self.cause = (place, *cause)


def refuse(misfit: MisfitError) -> None:
    """Raise it: the first one ends the play."""
    raise misfit


def raise_misfit(_name: str, misfit: MisfitError) -> None:
    """Raise it, whichever conversation it came from."""
    raise misfit


def require_playable(misfits: Sequence[MisfitError]) -> None:
    """Do nothing if everything fitted when it was played.

    Raises:
        TuningError: something did not; a line for each cause, with how often it came.
    """
    if not misfits:
        return
    counts = Counter(each.cause for each in misfits)
    firsts = {each.cause: each for each in reversed(misfits)}
    told = (
        f"{each} ({counts[cause] - 1} more of this)" if counts[cause] > 1 else str(each)
        for cause, each in sorted(firsts.items(), key=lambda item: _numbered(item[0][0]))
    )
    raise TuningError("\n".join(told))


def _numbered(place: str) -> tuple[int, str]:
    found = re.search(r":(\d+): ", place)
    return int(found[1]) if found else 0, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What stands for an argument: what is said for it, and its place in the file."""

    words: str
    place: str
    is_to_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One call, the words that stand for its arguments, and what may be said afterwards.

    An argument may be a `LookUp`: then it is called for first. `words` are those of replies, by
    slot. `place` says where a part of the tool's phrases stands: `file:line: field`. One that
    `is_to_fail` was drawn from `failing`; one that `is_reading` changes nothing. It has to come to
    `outcome`, if one is given. `told` is how values of results are said. `talk` names the
    conversation, `line` is the place of what is said, and `sources` are those of the arguments.
    """

    tool: str
    locale: str
    args: Mapping[str, Any]
    words: Mapping[str, str]
    replies: Mapping[str, Sequence[str | PhraseReply]]
    place: Callable[..., str]
    is_to_fail: bool = False
    is_reading: bool = False
    outcome: str | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    talk: str = ""
    line: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict)

    def calls(self) -> int:
        """Return how many calls it takes at most."""
        return calls_for(self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What became of a wish: a key of its `replies`, the reply under it, and that in words.

    `is_blind` if a list was empty, and the reply is one for results and does not speak of it.
    `there` are the slots that a reply could have. `is_unasked` if the user was to say no to it, or
    to one before it, and was not asked.
    """

    wish: Wish
    outcome: str
    reply: str
    text: str
    is_blind: bool = False
    there: frozenset[str] = frozenset()
    is_unasked: bool = False


def ignore(_said: Drawn) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class _Missed:
    """There is no value to call with: what is said then, best first, and fields to name."""

    outcomes: tuple[str, ...]
    data: Mapping[str, Any]


_Known: TypeAlias = dict[str, ToolCallMessage]
"""Results of this turn that still hold, by call."""

_T = TypeVar("_T")
_Course: TypeAlias = Generator[ToolCall, ToolCallMessage, _T]


@dataclass(slots=True)
class Memory:
    """Results that still hold when the next line of a follow-up is said."""

    known: _Known = field(default_factory=dict)


def acting(
    wishes: Sequence[Wish],
    *,
    seed: int,
    most_calls: int,
    notify: Callable[[Drawn], None] = ignore,
    refuse: Callable[[MisfitError], None] = refuse,
    before: Memory | None = None,
    after: Memory | None = None,
    is_rejected: bool = False,
) -> Act:
    """Return an act that makes the calls one after the other and then speaks of all of them.

    Args:
        wishes: in the order in which they are carried out.
        seed: decides the words.
        most_calls: so many fit into a turn.
        notify: told of each wish when all of them are carried out.
        refuse: told of what does not fit; unless it raises, the turn ends without words.
        before: what is known when it begins.
        after: is given what is known when it ends.
        is_rejected: the user says no, if asked.

    Raises (when it acts):
        MisfitError: a tool broke, a look-up does not find what it should, no reply fits what came
            of a call, or there are too many calls.
    """

    def act(settled: Sequence[ToolCallMessage]) -> Answer:
        known = dict(before.known) if before else {}
        rng = random.Random(seed)
        course = _course(wishes, rng, known, is_rejected=is_rejected)
        try:
            call = next(course)
            for message in settled:
                call = course.send(message)
        except StopIteration as end:
            told: Sequence[Drawn] = end.value
            if after is not None:
                after.known = known
            for each in told:
                notify(each)
            return say(" ".join(dict.fromkeys(each.text for each in told)))
        except MisfitError as misfit:
            refuse(misfit)
            return say(_NO_WORDS)
        if len(settled) >= most_calls:
            refuse(
                MisfitError(
                    wishes[0].place("say"),
                    f"it takes more than {most_calls} calls, and a turn of your assistant allows "
                    "no more: raise its max_turns",
                    "calls",
                )
            )
            return say(_NO_WORDS)
        return Answer(calls=(call,))

    return act


def _course(
    wishes: Sequence[Wish], rng: random.Random, known: _Known, *, is_rejected: bool
) -> _Course[Sequence[Drawn]]:
    """Yield each call, be sent its result, and return what is said in the end."""
    told: list[Drawn] = []
    for wish in wishes:
        rows: dict[str, Any] = {}
        args = yield from _arguments(wish.args, wish, known, rows)
        if isinstance(args, _Missed):
            missed = _Field(args.data, wish.args, rows)
            told.append(_words(wish, args.outcomes, missed, rng, told))
            continue
        message = yield from _called(wish.tool, args, known)
        outcomes, data = _outcomes(wish, wish.tool, args, message)
        told.append(_words(wish, outcomes, _Field(data, args, rows), rng, told))
        if wish.is_reading:
            continue
        known.pop(_call_key(wish.tool, args))  # to try again is another call
        if isinstance(message.result, ToolOk):
            known.clear()  # it may have changed what a look-up would find
    if is_rejected and not any(each.outcome == "cancelled" for each in told):
        told[-1] = replace(told[-1], is_unasked=True)
    return told


@dataclass(frozen=True, slots=True)
class _Field:
    """What a reply may speak of: the result, the arguments, and the rows that were looked up."""

    data: Mapping[str, Any]
    args: Mapping[str, Any]
    rows: Mapping[str, Any]


def _arguments(
    args: Mapping[str, Any], wish: Wish, known: _Known, rows: dict[str, Any]
) -> _Course[dict[str, Any] | _Missed]:
    """Return the arguments with everything looked up; put the row of each into `rows`."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, LookUp):
            looked_up = yield from _looked_up(value, wish, known)
            if isinstance(looked_up, _Missed):
                return looked_up
            found[name] = looked_up.values[0]
            rows[name] = looked_up.rows[0]
        else:
            found[name] = value
    return found


def _looked_up(look_up: LookUp, wish: Wish, known: _Known) -> _Course[Taken | _Missed]:
    args = yield from _arguments(look_up.args, wish, known, {})
    if isinstance(args, _Missed):
        return args
    message = yield from _called(look_up.tool, args, known)
    outcomes, data = _outcomes(replace(wish, is_reading=False), look_up.tool, args, message)
    if outcomes[0] != "ok":
        return _Missed(tuple(each for each in outcomes if each != "ok"), data)
    asked = f"{look_up.tool} {compact(args)}, {look_up.take}"
    try:
        found = taken(data, look_up.take, look_up.where)
    except TuningError as error:
        raise MisfitError(
            wish.place("values"), f"{asked}: {error}", look_up.tool, look_up.take, str(error)
        ) from error
    if not found.values:
        return _Missed(("not_found",), found.data)
    if len(found.values) == 1:
        return found
    if "several" in wish.replies:
        return _Missed(("several",), found.data)
    raise MisfitError(
        wish.place("values"),
        f"{asked}: {len(found.values)} different values are there, in {_shown(found)}: say which "
        "with `where: {field: …}`, take the first like rows[0].id, or write under `several` in "
        "`replies` how to ask back",
        look_up.tool,
        look_up.take,
        "several",
    )


def _shown(found: Taken) -> str:
    """Return the rows that were found, or the values where they stand in one row."""
    some = found.rows if len(found.rows) > 1 else found.values
    texts = [compact(each) for each in some[:_SHOWN_ROWS]]
    short = [text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…" for text in texts]
    more = f" and {len(some) - len(short)} more" if len(some) > len(short) else ""
    return ", ".join(short) + more


def _called(tool: str, args: Mapping[str, Any], known: _Known) -> _Course[ToolCallMessage]:
    """Return what a call came to; one whose result is known and still holds is not made again."""
    key = _call_key(tool, args)
    if key not in known:
        known[key] = yield ToolCall(name=tool, args=dict(args))
    return known[key]


def _call_key(tool: str, args: Mapping[str, Any]) -> str:
    return compact([tool, dict(args)])


def _words(
    wish: Wish,
    outcomes: Sequence[str],
    field: _Field,
    rng: random.Random,
    before: Sequence[Drawn],
) -> Drawn:
    """Return a reply that can be filled: one that was not said before in this answer, if any."""
    if wish.outcome is not None and wish.outcome not in outcomes:
        raise MisfitError(
            wish.place("outcome"),
            f"{wish.tool} came to `{outcomes[0]}` with {_called_with(field.args)}, not to "
            f"`{wish.outcome}`: change the line, or give these lines a `world` of their own",
            outcomes[0],
        )
    for outcome in [wish.outcome] if wish.outcome else outcomes:
        replies = list(wish.replies.get(outcome, ()))
        written = map(reply_of, rng.sample(replies, len(replies)))
        if fitting := [*_filled_replies(wish, outcome, field, written)]:
            said = {each.text for each in before}
            return next((each for each in fitting if each.text not in said), fitting[0])
    raise _unsaid(wish, outcomes, field)


def _filled_replies(
    wish: Wish, outcome: str, field: _Field, replies: Iterable[PhraseReply]
) -> Iterator[Drawn]:
    """Yield the replies that hold for this call and whose slots all have something to say."""
    for reply in replies:
        if not field.args.keys().isdisjoint(reply.without):
            continue
        try:
            text = filled(reply.text, partial(_word, wish, field, reply))
        except TuningError as error:
            told = f"{reply.text!r}: {error}"
            raise MisfitError(wish.place("replies"), told, wish.tool, told) from error
        if text is not None:
            is_blind = outcome == "ok" and wish.is_reading and _is_blind(reply, field)
            yield Drawn(
                wish=wish,
                outcome=outcome,
                reply=reply.text,
                text=text,
                is_blind=is_blind,
                there=frozenset(_slots_there(wish, field)),
            )


def _is_blind(reply: PhraseReply, field: _Field) -> bool:
    """Return True if every list of a result is empty and the reply speaks of none."""
    lists = {name: value for name, value in field.data.items() if isinstance(value, list)}
    spoken = {slot.name for slot in slots_of(reply.text)}
    return bool(lists) and not any(lists.values()) and spoken.isdisjoint(lists)


def _word(wish: Wish, field: _Field, reply: PhraseReply, slot: Gap) -> str | None:
    """Return what a slot of a reply says; None if there is nothing for it to say."""
    if slot.spec == COUNT and not slot.key:
        is_given = isinstance(field.args.get(slot.name), list) or slot.name not in field.data
        return word_in(field.args if is_given else field.data, slot)
    if str(slot) in wish.words:
        return wish.words[str(slot)]
    if slot.key and slot.name in field.rows:
        before = {slot.name: field.rows[slot.name]}
        for source in (field.data, before):  # what a result tells of the row is newer
            if (word := word_in(source, slot, wish.told)) is not None:
                return word
    if slot.key == _CALLED_WITH and slot.name in field.args:
        return listed(field.args[slot.name])
    ways = reply.ways(slot.name)
    if ways and not slot.key:
        return _enumerated(field.data.get(slot.name), ways, reply.join, wish.told)
    return word_in(field.data, slot, wish.told)


def _enumerated(rows: Any, ways: Sequence[str], join: str, told: Mapping[str, str]) -> str | None:
    """Return the rows of a list, each told in the first way that it has the fields for."""
    if not isinstance(rows, list) or not rows:
        return None
    texts = [
        next(
            (
                text
                for way in ways
                if isinstance(row, Mapping)
                and (text := filled(way, partial(word_in, row, told=told))) is not None
            ),
            None,
        )
        for row in rows
    ]
    return None if None in texts else join.join(each for each in texts if each is not None)


def _outcomes(
    wish: Wish, tool: str, args: Mapping[str, Any], message: ToolCallMessage
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return under which keys a reply may stand, best first, and the fields it may name.

    These are the fields that the model sees.
    """
    match message.result:
        case ToolCancelled():
            return ("cancelled",), {}
        case ToolErr(code=code, reason=reason):
            if code in _OURS:
                raise MisfitError(
                    wish.place("say"),
                    f"the tool {tool} answered {code} to {compact(args)} ({reason}): mend the "
                    "tool, or change the values or worlds of the phrase file",
                    tool,
                    code,
                )
            is_missing = code.endswith("not_found")
            keys = (code, "not_found", "refused") if is_missing else (code, "refused")
            return keys, {"code": code, "reason": reason}
        case ToolOk():
            text = encode_tool_result(message.result, message.max_bytes)
            data: Mapping[str, Any] = json.loads(text)["data"]
            if _TRUNCATED in data:
                raise MisfitError(
                    wish.place("say"),
                    f"the result of {tool} {compact(args)} takes more than {message.max_bytes} "
                    "bytes, so that the model is shown nothing of it: put fewer rows into the "
                    "worlds, let the tool return less, or raise Assistant(max_result_bytes=…)",
                    tool,
                    _TRUNCATED,
                )
            return _outcomes_of(
                data, asks_several="several" in wish.replies and wish.is_reading
            ), data


def _outcomes_of(data: Mapping[str, Any], *, asks_several: bool) -> tuple[str, ...]:
    """Return the keys for a result: one that holds nothing at all is not found.

    With an empty list beside other fields it may be either, and so with numbers alone (none left
    may be good news); the replies decide, by their slots. Several rows may be `several`.
    """
    if asks_several and any(isinstance(rows, list) and len(rows) > 1 for rows in data.values()):
        return ("several", "ok")
    if not data or any(data.values()):
        return ("ok", "not_found") if [] in data.values() else ("ok",)
    is_numbers_only = all(is_number(value) for value in data.values())
    return ("ok", "not_found") if is_numbers_only else ("not_found", "ok")


def _unsaid(wish: Wish, outcomes: Sequence[str], field: _Field) -> MisfitError:
    """Return that no reply can be filled, at the first one with a slot that is never there."""
    there = _slots_there(wish, field)
    keys = " or ".join(f"`{outcome}`" for outcome in outcomes)
    told = (
        f"{wish.tool} came to `{outcomes[0]}` with {_called_with(field.args)} and no reply for it "
        f"can be filled (slots there: {', '.join(there) or 'none'})"
    )
    for outcome in outcomes:
        for number, written in enumerate(wish.replies.get(outcome, ())):
            for at, slot in _not_there(reply_of(written), field, there):
                place = wish.place("replies", outcome, number, *at)
                return MisfitError(
                    place,
                    f"{{{slot}}} is not there: {told}: mend it, or write one without it",
                    wish.tool,
                    outcomes[0],
                )
    place = wish.place("replies")
    return MisfitError(place, f"{told}: write one under {keys}", wish.tool, outcomes[0])


def _slots_there(wish: Wish, field: _Field) -> tuple[str, ...]:
    """Return the slots that a reply may have, as they are written."""
    of_rows = [
        f"{name}.{key}" for name, row in field.rows.items() if isinstance(row, dict) for key in row
    ]
    of_data = [slot for name, value in field.data.items() for slot in _slots_of_value(name, value)]
    return tuple(dict.fromkeys([*wish.words, *of_data, *of_rows]))


def _slots_of_value(name: str, value: Any) -> Iterator[str]:
    """Yield the slots for a field of a result; rows have none without a key."""
    rows = [each for each in _listed(value) if isinstance(each, Mapping)]
    if isinstance(value, list):
        yield f"{name}:{COUNT}"
    if rows:
        yield from dict.fromkeys(f"{name}.{key}" for row in rows for key in row)
    else:
        yield name


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _not_there(
    reply: PhraseReply, field: _Field, there: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the slots of a reply that no result of this kind has, each with its place in it.

    What an empty list would hold is not known.
    """
    for slot in slots_of(reply.text):
        value, ways = field.data.get(slot.name), reply.ways(slot.name)
        if value == [] or (slot.key == _CALLED_WITH and slot.name in field.args):
            continue
        if ways and isinstance(value, list) and not slot.key:
            known = {
                f"{slot.name}.{key}" for row in value if isinstance(row, Mapping) for key in row
            }
            inside = [each for way in ways for each in slots_of(way)]
            for each in inside if slot.spec != COUNT else ():
                if f"{slot.name}.{each.name}" not in known:
                    yield ("each", slot.name), str(each)
        elif _as_written(slot) not in there:
            yield (), _as_written(slot)


def _as_written(slot: Gap) -> str:
    return f"{slot}:{COUNT}" if slot.spec == COUNT else str(slot)


def _called_with(args: Mapping[str, Any]) -> str:
    return compact({name: value for name, value in args.items() if not isinstance(value, LookUp)})


# What became of the wishes of a phrase file, tool by tool. Pure.


_TOO_MANY = 1 / 3
"""Share of wishes not found from which a file is told to look for what its worlds do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How the wishes for one tool ended.

    `outcomes` counts them by key of `replies`, the most frequent first. `unused` are replies that
    were never said, such as `ok[1] (phrases.yaml:23)`. `missing` is the share of wishes that were
    not found, though their words are not from `failing`. `blind` are replies under `ok` that were
    said of an empty list without a word about it.
    """

    tool: str
    outcomes: Mapping[str, int]
    unused: Sequence[str]
    missing: float
    blind: Sequence[str] = ()

    @property
    def is_missing_much(self) -> bool:
        """True if the worlds hold too little of what is asked for."""
        return self.missing > _TOO_MANY


def answers_of(book: PhraseFile, said: Sequence[Drawn]) -> tuple[Answers, ...]:
    """Return how the wishes ended, by tool in the order of the file.

    Replies of a language in which nothing was said are not looked at.
    """
    locales = {each.wish.locale for each in said}
    spoken = [phrases for name, phrases in book.phrases.locales.items() if name in locales]
    tools = dict.fromkeys(tool for phrases in spoken for tool in phrases.tools)
    return tuple(
        Answers(
            tool=tool,
            outcomes=dict(Counter(each.outcome for each in ours).most_common()),
            unused=tuple(_unused(book, tool, ours, locales)),
            missing=_missing(ours),
            blind=tuple(dict.fromkeys(each.reply for each in ours if each.is_blind)),
        )
        for tool in tools
        for ours in ([each for each in said if each.wish.tool == tool],)
    )


def _missing(said: Sequence[Drawn]) -> float:
    meant = [each.outcome for each in said if not each.wish.is_to_fail]
    return sum(outcome.endswith("not_found") for outcome in meant) / max(1, len(meant))


def _unused(book: PhraseFile, tool: str, said: Sequence[Drawn], locales: set[str]) -> Iterator[str]:
    """Yield the replies that were never said; of an outcome that never came, only its key."""
    used = {(each.wish.locale, each.outcome, each.reply) for each in said}
    for locale in sorted(locales):
        phrases = book.phrases.locales[locale].tools.get(tool)
        offered = _offered(locale)
        for outcome, replies in phrases.replies.items() if phrases else ():
            path = ("locales", locale, "tools", tool, "replies", outcome)
            texts = [reply_of(reply).text for reply in replies]
            silent = [
                n
                for n, text in enumerate(texts)
                if (locale, outcome, text) not in used and text not in offered
            ]
            if silent and len(silent) == len(replies):
                yield f"{outcome} ({book.file.name}:{book.document.line(path)})"
                continue
            there = [
                each.there for each in said if (each.wish.locale, each.outcome) == (locale, outcome)
            ]
            for number in silent:
                line = book.document.line((*path, number))
                empty = _never_there(reply_of(replies[number]), there)
                yield f"{outcome}[{number}] ({book.file.name}:{line}{empty})"


def _never_there(reply: PhraseReply, there: Sequence[frozenset[str]]) -> str:
    """Return the first slot of a reply that was never there; empty without one."""
    known = frozenset[str]().union(*there)
    never = (
        slot
        for slot in slots_of(reply.text)
        if slot.key != _CALLED_WITH and not reply.ways(slot.name) and _as_written(slot) not in known
    )
    return next((f": {{{_as_written(slot)}}}?" for slot in never), "")


def _offered(locale: str) -> frozenset[str]:
    """Return the replies that a skeleton comes with: nobody has to use them."""
    words = load_catalog(locale)
    return frozenset(words.text(f"tune_own.reply_{outcome}") for outcome in _OFFERED)


# Days of calls that the model can hardly know, or that contradict what it had read. Pure.


_DAY = re.compile(r"\d{4}-\d\d-\d\d(?=T|$)")
_TOLD_DAY = re.compile(
    r"^(?P<words>.+?) = (?P<first>\d{4}-\d\d-\d\d)(?: \.\. (?P<last>\d{4}-\d\d-\d\d))?$",
    re.MULTILINE,
)
"""As `said_dates` tells it in the context of an assistant."""

_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|\d+")
_ENDS = {
    "from": ("to", "until", "till"),
    "since": ("until", "till", "to"),
    "start": ("end", "stop"),
    "starts": ("ends",),
    "begin": ("end",),
    "begins": ("ends",),
    "first": ("last",),
    "after": ("before",),
    "in": ("out",),
}
"""How the first and the last day of a span are called, as a part of both names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OddPlace:
    """What is odd about one place of the file: how often, and one case of it."""

    place: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRemarks:
    """What is odd about the days of the calls, the most frequent first.

    `reversed` are spans that end before they begin, `others` days where the model was told another
    one for the same words, `unread` days that stood nowhere in what it had read. `days` counts all.
    """

    days: int
    reversed: Sequence[OddPlace]
    others: Sequence[OddPlace]
    unread: Sequence[OddPlace]


@dataclass(frozen=True, slots=True)
class _Called:
    """A call of a conversation: its arguments, what had been read, and whose wish it was."""

    args: Mapping[str, Any]
    read: str
    wish: Wish
    sources: Mapping[str, Source]


def day_remarks(
    played: Sequence[TrainingSequence], said: Sequence[Drawn], beginnings: Mapping[str, str]
) -> DayRemarks:
    """Return what is odd about the days of calls.

    Args:
        played: conversations as texts.
        said: what became of their wishes.
        beginnings: by language what each text begins with, the tools: no days to be copied.
    """
    wishes: dict[str, list[Wish]] = {}
    for each in said:
        wishes.setdefault(each.wish.talk, []).append(each.wish)
    calls = [
        call
        for sequence in played
        for call in _calls_in(
            sequence,
            wishes.get(sequence.id.rpartition(".")[0], ()),
            beginnings.get(sequence.group, ""),
        )
    ]
    days = [(call, name, day) for call in calls for name, day in _days_in(call.args)]
    others: list[tuple[str, str]] = []
    unread: list[tuple[str, str]] = []
    for call, name, day in days:
        if day in call.read:
            continue
        source = call.sources.get(name, Source(words="", place=call.wish.line))
        told = _other_day(source.words, day, call.read)
        if told is None:
            unread.append((source.place, f"{source.words!r}: {name} is {day}"))
        else:
            others.append((source.place, f"{told}, and {name} is {day}"))
    return DayRemarks(
        days=len(days),
        reversed=_counted(each for call in calls for each in _reversed(call)),
        others=_counted(others),
        unread=_counted(unread),
    )


def unasked(said: Sequence[Drawn]) -> tuple[OddPlace, ...]:
    """Return the lines at which a user was to say no and nobody asked, the most frequent first."""
    return _counted(
        (each.wish.place("confirm"), f"{each.wish.tool} came to `{each.outcome}`")
        for each in said
        if each.is_unasked
    )


def _counted(found: Iterable[tuple[str, str]]) -> tuple[OddPlace, ...]:
    """Return a remark for each place, with the first example of it."""
    listed = list(found)
    examples = dict(reversed(listed))
    counts = Counter(place for place, _ in listed)
    return tuple(
        OddPlace(place=place, count=count, example=examples[place])
        for place, count in counts.most_common()
    )


def _calls_in(
    sequence: TrainingSequence, wishes: Sequence[Wish], beginning: str
) -> Iterator[_Called]:
    """Yield the calls of a conversation that one of its wishes made."""
    known = [planned for wish in wishes for planned in _planned(wish)]
    start = len(beginning) if sequence.text.startswith(beginning) else 0
    for begin, end in sequence.answers:
        answer = sequence.text[begin:end].removesuffix(END_OF_ANSWER)
        for call in JsonDialect().parse(answer).calls:
            given = call.args if isinstance(call.args, Mapping) else {}
            for wish, tool, args, sources in known:
                if tool == call.name and all(given.get(key) == args[key] for key in args):
                    yield _Called(given, sequence.text[start:begin], wish, sources)
                    break


def _planned(
    wish: Wish,
) -> Iterator[tuple[Wish, str, Mapping[str, Any], Mapping[str, Source]]]:
    """Yield the calls of a wish, without what is looked up for them."""

    def planned(
        tool: str, args: Mapping[str, Any], sources: Mapping[str, Source]
    ) -> Iterator[tuple[Wish, str, Mapping[str, Any], Mapping[str, Source]]]:
        plain = {name: each for name, each in args.items() if not isinstance(each, LookUp)}
        yield wish, tool, plain, sources
        for name, each in args.items():
            if isinstance(each, LookUp):
                ours = dict.fromkeys(each.args, sources[name]) if name in sources else {}
                yield from planned(each.tool, each.args, ours)

    yield from planned(wish.tool, wish.args, wish.sources)


def _days_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the days of arguments, each with the name that it has there."""
    match value:
        case str() if found := _DAY.match(value):
            yield name, found[0]
        case Mapping():
            for key, each in value.items():
                yield from _days_in(each, name or key)
        case list():
            for each in value:
                yield from _days_in(each, name)
        case _:
            return


def _other_day(words: str, day: str, read: str) -> str | None:
    """Return what was told last of these words, or with them, where this is another day."""
    said = words.casefold()
    told: str | None = None
    for each in _TOLD_DAY.finditer(read):
        named, first, last = each["words"].casefold(), each["first"], each["last"]
        if not said or not (named in said or said in named):
            continue
        if first <= day <= (last or first) if named in said else day in {first, last}:
            return None
        told = each[0]
    return told


def _reversed(call: _Called) -> Iterator[tuple[str, str]]:
    """Yield the place of each span that ends before it begins, and its days.

    None of a wish that is to come to something else, or of a value that the tool is to refuse.
    """
    days = {name: each for name, value in call.args.items() for _, each in _days_in([value])}
    for first, last in product(days, days):
        if not _is_span(first, last) or days[last] >= days[first] or call.wish.outcome:
            continue
        sources = [call.sources[name] for name in (first, last) if name in call.sources]
        if any(each.is_to_fail for each in sources):
            continue
        places = {each.place for each in sources}
        words = " … ".join(dict.fromkeys(each.words for each in sources))
        yield (
            places.pop() if len(places) == 1 else call.wish.line,
            f"{words!r}: {first} {days[first]}, {last} {days[last]}",
        )


def _is_span(first: str, last: str) -> bool:
    """Return True if two names differ in one part, as `from_day` and `to_day` do."""
    ours, theirs = (
        [part.casefold() for part in _NAME_PARTS.findall(name)] for name in (first, last)
    )
    other = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    return (
        len(ours) == len(theirs) and len(other) == 1 and other[0][1] in _ENDS.get(other[0][0], ())
    )


# The phrase file that `lhkit tune init` writes: everything that the tools say, and TODOs.


_PLAIN_KEY = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off)$)[a-z_]\w*", re.ASCII | re.IGNORECASE
)
_ID = re.compile(r"(?:(\w+?)_)?(?:id|uuid)|([a-z]\w*?)Id", re.ASCII)
_OFFERED = ("cancelled", "refused", "not_found")
_OF_SCHEMAS = "en"
_LATIN = re.compile("[A-Za-z]")
_DAYS = {"today": "today", "tomorrow": "today+1d", "yesterday": "today-1d"}


def skeleton(
    registries: Mapping[str, ToolRegistry],
    *,
    world: Mapping[str, Any],
    reference: str,
    reader: str,
) -> str:
    """Return a commented YAML text to fill in.

    Args:
        registries: the tools by language; a part of the file for each.
        world: a state that the toolset opens.
        reference: how the toolset is called on the command line.
        reader: language of the comments above; those of a part are in its own language.
    """
    told = load_catalog(reader)
    lines = [*_comment(told.text("tune_own.head", reference=reference)), ""]
    lines += [*_comment(told.text("tune_own.worlds")), "worlds:", f"  - {_flow(world)}", ""]
    lines += [*_comment(told.text("tune_own.typos")), "typos: true", "", "locales:"]
    for locale, registry in registries.items():
        lines += _indented(_locale_lines(locale, registry), 1)
    return "\n".join(lines) + "\n"


def _locale_lines(locale: str, registry: ToolRegistry) -> Iterator[str]:
    words = told = load_catalog(locale)
    yield f"{locale}:"
    yield "  tools:"
    for number, tool in enumerate(registry.definitions):
        hints = told if number == 0 else None
        yield from _indented(_tool(tool, registry, words, told, hints), 2)
        yield ""
    yield from _hint("two_wishes", told, 1)
    yield "  two_wishes:"
    yield from _items(words.text("tune_own.joints").splitlines(), 2)
    yield from _hint("around", told, 1)
    yield f"  before: {_flow(words.text('tune_own.before').splitlines())}"
    yield f"  after: {_flow(words.text('tune_own.after').splitlines())}"
    yield from _hint("small_talk", told, 1)
    yield "  small_talk:"
    for kind in ("greeting", "thanks"):
        yield from _indented(_talk(words, kind), 2)
    yield from _hint("out_of_scope", told, 1)
    yield "  out_of_scope:"
    yield f"    - say: [{TODO}]"
    yield f"      answer: {_flow([words.text('tune_own.outside_answer')])}"
    yield from _hint("near_misses", told, 1)
    yield from _hint("follow_ups", told, 1)


def _hint(key: str, told: Catalog | None, depth: int) -> Iterator[str]:
    """Yield the explanation of a field as comments; nothing without a catalog."""
    if told is not None:
        yield from _indented(_comment(told.text(f"tune_own.{key}")), depth)


def _talk(words: Catalog, kind: str) -> Iterator[str]:
    yield f"- say: {_flow(words.text(f'tune_own.{kind}').splitlines())}"
    yield f"  answer: {_flow(words.text(f'tune_own.{kind}_answer').splitlines())}"


def _tool(
    tool: ToolDefinition,
    registry: ToolRegistry,
    words: Catalog,
    told: Catalog,
    hints: Catalog | None,
) -> Iterator[str]:
    yield from _comment(f"{tool.name}: {tool.description}")
    if tool.is_destructive:
        yield from _hint("writes", told, 0)
    yield f"{tool.name}:"
    yield from _hint("say", hints, 1)
    yield "  say:"
    yield from _items(_sentences(tool), 2)
    arguments = tuple(tool.parameters.get("properties", {}))
    if arguments:
        yield from _hint("values", hints, 1)
        yield "  values:"
    for name in arguments:
        yield from _indented(_argument(tool, name, registry, words, told), 2)
    yield from _hint("failing", hints, 1)
    yield from _hint("slots", hints, 1)
    yield from _hint("replies", hints, 1)
    yield "  replies:"
    outcomes = ("cancelled",) if tool.is_destructive else ()
    yield f"    ok: [{TODO}]"
    for outcome in (*outcomes, "refused", "not_found"):
        yield f"    {outcome}: {_flow([words.text(f'tune_own.reply_{outcome}')])}"


def _sentences(tool: ToolDefinition) -> tuple[str, ...]:
    """Return a sentence with the required arguments, and one with each optional one besides."""
    required = [name for name in tool.parameters.get("required", ()) if not _is_fixed(tool, name)]
    optional = [
        name
        for name in tool.parameters.get("properties", {})
        if name not in tool.parameters.get("required", ())
    ]
    slots = [required, *([*required, name] for name in optional)]
    return tuple(" ".join([TODO, *(f"{{{name}}}" for name in each)]) for each in slots)


def _is_fixed(tool: ToolDefinition, name: str) -> bool:
    return len(given_values(tool.parameters, name)) == 1


def _argument(
    tool: ToolDefinition, name: str, registry: ToolRegistry, words: Catalog, told: Catalog
) -> Iterator[str]:
    is_required = name in tool.parameters.get("required", ())
    about = told.text("tune_own.required" if is_required else "tune_own.optional")
    described = tool.parameters["properties"][name].get("description", "")
    accepts = expected_of(tool.parameters, name)
    yield from _comment(f"{name} ({about}): {accepts}. {described}".rstrip(". "))
    source = _source(tool, name, registry)
    if source is not None:
        yield from _hint("look_up", told, 0)
        if any(is_day(source.parameters, each) for each in source.parameters.get("required", ())):
            yield from _hint("look_up_days", told, 0)
    yield f"{_yaml_key(name)}:"
    entries = _entries(tool, name, words) if source is None else _look_up(source)
    yield from _indented(entries, 1)


def _source(tool: ToolDefinition, name: str, registry: ToolRegistry) -> ToolDefinition | None:
    """Return the tool whose result may hold an argument that looks like an id; None without one.

    It is one that the argument's description names, else one whose name speaks of the same thing,
    else the first that only reads.
    """
    looks = _ID.fullmatch(name)
    if looks is None or given_values(tool.parameters, name):
        return None
    thing = looks[1] or looks[2] or name
    described = str(tool.parameters["properties"][name].get("description", ""))
    readers = [each for each in registry.definitions if not each.is_destructive and each != tool]
    takes_it = [each for each in readers if name in each.parameters.get("required", ())]
    readers = [each for each in readers if each not in takes_it]
    ranked = sorted(
        readers,
        key=lambda each: (each.name not in described, thing not in each.name),
    )
    return next(iter(ranked), None)


def _look_up(source: ToolDefinition) -> Iterator[str]:
    """Yield an entry that looks an id up: by what is said if the tool takes a text, else by row."""
    properties = source.parameters.get("properties", {})
    required = source.parameters.get("required", ())
    texts = [name for name in properties if is_any_text(source.parameters, name)]
    asked = next((name for name in texts if name in required), next(iter(texts), None))
    args = dict.fromkeys(required, TODO) | ({} if asked is None else {asked: f"{{{SAY}}}"})
    yield f"- say: [{TODO}]"
    yield f"  tool: {_flow(source.name)}"
    if args:
        yield f"  args: {_flow(args)}"
    yield f"  take: {TODO}.id"
    if asked is None:
        yield f"  where: {_flow({TODO: f'{{{SAY}}}'})}"


def _entries(tool: ToolDefinition, name: str, words: Catalog) -> Iterator[str]:
    given = item_choices(tool.parameters, name) or given_values(tool.parameters, name)
    is_free = is_any_text(tool.parameters, name)
    for value in given:
        yield f"- {_entry(value, is_said=is_free or _is_word_of(value, words.locale))}"
    days = _days(tool, name, words) if not given else ()
    for entry in days:
        yield f"- {_flow(entry)}"
    if not given and not days:
        yield f"- {TODO}"


def _entry(value: Value, *, is_said: bool) -> str:
    """Return a plain value, or one with its words; a place for them where nobody knows them."""
    is_plain = is_said and plain_word(value.value) in value.words
    if is_plain or isinstance(value.value, bool):
        return _flow(value.value)
    said = value.words[0] if is_said and value.words else TODO
    return _flow({"say": said, "value": value.value})


def _is_word_of(value: Value, locale: str) -> bool:
    """Return False for the words of a schema, which are English, in another language's part."""
    return locale == _OF_SCHEMAS or not any(map(_LATIN.search, value.words))


def _days(tool: ToolDefinition, name: str, words: Catalog) -> tuple[dict[str, str], ...]:
    if not is_day(tool.parameters, name):
        return ()
    entries = ({"say": words.text(f"tune_own.{key}"), "date": day} for key, day in _DAYS.items())
    return tuple(
        each for each in entries if not schema_fault(tool.parameters, name, value_of(each))
    )


def _items(texts: list[str] | tuple[str, ...], depth: int) -> Iterator[str]:
    yield from _indented((f"- {_flow(text)}" for text in texts), depth)


def _indented(lines: Any, depth: int) -> Iterator[str]:
    for line in lines:
        yield f"{'  ' * depth}{line}" if line else line


def _comment(text: str) -> list[str]:
    return [f"# {_escaped(line)}".rstrip() for line in text.splitlines()]


def _yaml_key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else _flow(name)


def _flow(value: Any) -> str:
    """Return a value on one line; JSON is YAML, but for some characters."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Return one line with everything that YAML forbids or nobody sees as YAML's escapes."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


# Training conversations from phrases: which sentences, values and answers, drawn with a seed.
#
# What the tools answer is not here: `tuning.simulation` plays them for real.


_WEIGHTS: Mapping[str, float] = {
    "call": 55,
    "cancelled": 12,
    "failing": 11,
    "two_wishes": 10,
    "follow_ups": 16,
    "near_misses": 8,
    "small_talk": 6,
    "out_of_scope": 6,
}
"""Kinds of conversations; the file's `shares` of some come first."""

_FOLLOW_UP = "follow_ups"
_MADE_UP = "-made-up-names"
_JOINED_SHARE = 0.25
_MOST_LINES = 4

_TRIES = 8
"""Draws of one conversation in search of a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawingStage:
    """The tools of one language, and the day of each of its worlds.

    `own_days` are those of follow-ups with a world of their own, by number. `most_calls` is how
    many calls the assistant makes in a turn, before it answers. `notify` is told of each wish when
    it is played, `refuse` of what does not fit then. For conversations with other names `opens`
    is asked whether a state can be opened, and `drop` is told by name of those that do not fit.
    `instructions` are those of the assistant.
    """

    registry: ToolRegistry
    days: Sequence[date]
    own_days: Mapping[int, date] = field(default_factory=dict)
    most_calls: int = MAX_TURNS - 1
    instructions: str = ""
    notify: Callable[[Drawn], None] = ignore
    refuse: Callable[[MisfitError], None] = refuse
    opens: Callable[[Mapping[str, Any]], bool] = lambda _world: True
    drop: Callable[[str, MisfitError], None] = raise_misfit


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Lines and their calls, which are not to be made twice in a row."""

    lines: tuple[Line, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def conversations(
    book: PhraseFile,
    stages: Mapping[str, DrawingStage],
    *,
    count: int,
    seed: int,
    korean_share: float,
    made_up_names: float = 0.0,
) -> Iterator[Conversation]:
    """Yield `count` conversations; the same arguments give the same ones.

    One that was drawn before is drawn anew some times. It is then taken all the same: where few
    phrases are written for a kind, it keeps its share.

    Args:
        book: phrases that fit the tools (`checks.check_fit`).
        stages: by locale of the file.
        count: how many.
        seed: decides everything.
        korean_share: share of Korean ones where the file has both languages.
        made_up_names: share of conversations in which names are others (`names.replacements`).
    """
    names = {
        locale: names_of(book.phrases.locales[locale], stage.registry, _states(book, locale))
        for locale, stage in stages.items()
        if made_up_names
    }
    seen: set[tuple[object, ...]] = set()
    for number in range(count):
        rng = random.Random(f"own-tools/{seed}/{number}")
        locale = _drawn_locale(tuple(stages), korean_share, rng)
        own = names[locale] if made_up_names and rng.random() < made_up_names else NO_NAMES
        drawing = _Drawing(book, locale, stages[locale], rng, own)
        kind = drawing.kind()
        for _ in range(_TRIES):
            told = drawing.conversation(f"own-tools.{seed}.{number}", kind)
            if identity(told) not in seen:
                break
        seen.add(identity(told))
        yield told


def _states(book: PhraseFile, locale: str) -> list[Mapping[str, Any]]:
    return [each.state for each in (*book.worlds(locale), *book.own_worlds(locale).values())]


def has_made_up_names(told: Conversation) -> bool:
    """Return True for a conversation in which names are others than in the file."""
    return told.name.endswith(_MADE_UP)


def identity(told: Conversation) -> tuple[object, ...]:
    """Return what makes a conversation another one: what is said, answered and there at first."""
    lines = ((line.user, line.confirm) for line in told.lines)
    return (told.locale, compact(told.world), *lines)


def _drawn_locale(locales: Sequence[str], korean_share: float, rng: random.Random) -> str:
    shares = [korean_share if locale == "ko" else 1 - korean_share for locale in locales]
    return rng.choices(locales, shares if any(shares) else None)[0]


def _weights(kinds: Sequence[str], shares: Shares) -> dict[str, float]:
    """Return how often each kind is drawn: as asked for, the others as always in what is left."""
    asked: dict[str, float] = {kind: share for kind, share in shares.items() if kind in kinds}
    usual = sum(_WEIGHTS[kind] for kind in kinds if kind not in asked)
    left = 1 - sum(asked.values())
    return {kind: asked[kind] if kind in asked else left * _WEIGHTS[kind] / usual for kind in kinds}


class _Drawing:
    """Draws one conversation."""

    def __init__(
        self,
        book: PhraseFile,
        locale: str,
        stage: DrawingStage,
        rng: random.Random,
        names: NameWords = NO_NAMES,
    ) -> None:
        self._book = book
        self._phrases: LocalePhrases = book.phrases.locales[locale]
        self._locale = locale
        self._stage = stage
        self._registry = stage.registry
        self._tools = tuple(
            tool
            for tool in stage.registry.definitions
            if tool.name in self._phrases.tools and self._phrases.tools[tool.name].say
        )
        self._rng = rng
        worlds = book.worlds(locale)
        number = rng.randrange(len(worlds))
        self._first = worlds[number].state, stage.days[number]
        self._world, self._today = self._first
        self._makers = self._possible()
        self._names = names
        self._others: Mapping[str, str] = {}

    def kind(self, *, is_first: bool = True) -> str:
        """Return what the next line is about."""
        weights = _weights([*self._makers], self._book.phrases.shares)
        kinds = {kind: each for kind, each in weights.items() if is_first or kind != _FOLLOW_UP}
        return self._rng.choices([*kinds], [*kinds.values()])[0]

    def conversation(self, name: str, kind: str) -> Conversation:
        """Return a conversation that begins with lines of that kind; others may follow."""
        self._world, self._today = self._first
        self._others = {}
        self._name = name
        if kind != _FOLLOW_UP:
            self._rename(self._names)
        drawn = [self._makers[kind]()]
        while (
            sum(len(each.lines) for each in drawn) < _MOST_LINES
            and self._rng.random() < _JOINED_SHARE
            and kind != _FOLLOW_UP
        ):
            following = self._makers[self.kind(is_first=False)]()
            if not following.calls or following.calls[0] not in drawn[-1].calls:
                drawn.append(following)
        return Conversation(
            name=self._name,
            kind=kind,
            locale=self._locale,
            world=renamed(self._world, self._others),
            lines=tuple(line for each in drawn for line in each.lines),
        )

    def _rename(self, names: NameWords) -> None:
        """Draw other words for names, if the world can be with them."""
        others = replacements(names, self._rng)
        if others and self._stage.opens(renamed(self._world, others)):
            self._others = others
            self._name += _MADE_UP

    def _possible(self) -> dict[str, Callable[[], _Drawn]]:
        """Return the kinds of lines that these phrases and tools allow."""
        writes = [tool for tool in self._tools if tool.is_destructive]
        failing = [tool for tool in self._tools if self._failing(tool)]
        makers: dict[str, Callable[[], _Drawn]] = {
            "call": lambda: self._called(self._wish(self._any(self._tools))),
            "cancelled": lambda: self._rejected(self._wish(self._any(writes))),
            "failing": lambda: self._called(self._failing_wish(self._any(failing))),
            "two_wishes": self._two_wishes,
            _FOLLOW_UP: self._follow_up,
            "small_talk": lambda: self._talk(self._phrases.small_talk),
            "out_of_scope": lambda: self._talk(self._phrases.out_of_scope),
            "near_misses": lambda: self._talk(self._phrases.near_misses),
        }
        possible = kinds_of(self._phrases, self._registry)
        return {kind: make for kind, make in makers.items() if kind in possible}

    def _any(self, tools: Sequence[ToolDefinition]) -> ToolDefinition:
        return self._rng.choice(tools)

    def _called(self, *wished: tuple[str, Wish], user: str = "") -> _Drawn:
        wishes = [wish for _, wish in wished]
        line = Line(user=self._surrounded(user or wished[0][0]), act=self._acting(wishes))
        return _Drawn((line,), tuple((wish.tool, wish.args) for wish in wishes))

    def _acting(
        self,
        wishes: Sequence[Wish],
        before: Memory | None = None,
        after: Memory | None = None,
        *,
        is_rejected: bool = False,
    ) -> Act:
        return acting(
            wishes,
            seed=self._rng.getrandbits(32),
            most_calls=self._stage.most_calls,
            notify=self._stage.notify,
            refuse=partial(self._stage.drop, self._name) if self._others else self._stage.refuse,
            before=before,
            after=after,
            is_rejected=is_rejected,
        )

    def _rejected(self, wished: tuple[str, Wish]) -> _Drawn:
        drawn = self._called(wished)
        return replace(drawn, lines=(replace(drawn.lines[0], confirm="reject"),))

    def _two_wishes(self) -> _Drawn:
        for _ in range(_TRIES):
            first, second = (self._wish(tool) for tool in self._rng.sample(self._tools, 2))
            if first[1].calls() + second[1].calls() <= self._stage.most_calls:
                break
        else:
            return self._called(first)
        words = {"first": first[0].rstrip(".!?~ "), "second": second[0]}
        joint = self._rng.choice(self._phrases.two_wishes)
        user = filled(joint, lambda slot: words[slot.name]) or ""
        return self._called(first, second, user=user)

    def _talk(self, talks: Sequence[Talk]) -> _Drawn:
        talk = self._rng.choice(talks)
        fillings = self._filled_in(self._slots(talk.slots), (*talk.say, *talk.answer))
        answer = _told(self._rng.choice(talk.answer), fillings)
        user = _spoken(self._rng.choice(talk.say), fillings, self._typed)
        return _Drawn((Line(user=user, act=lambda _settled: say(answer)),))

    def _follow_up(self) -> _Drawn:
        """Return lines that belong together; sets the world, if they have one of their own."""
        number = self._rng.randrange(len(self._phrases.follow_ups))
        follow_up = self._phrases.follow_ups[number]
        if follow_up.world is not None:
            self._world, self._today = follow_up.world, self._stage.own_days[number]
        if self._names is not NO_NAMES:
            self._rename(names_in(self._names, follow_up, self._phrases, self._registry))
        fillings = self._filled_in(self._slots(follow_up.slots), _used_in(follow_up))
        memory: Memory | None = None
        lines: list[Line] = []
        for index, line in enumerate(follow_up.lines):
            user = _spoken(self._rng.choice(line.say), fillings, self._typed)
            if not line.calls:
                answer = _told(self._rng.choice(line.answer), fillings)
                lines.append(Line(user=user, act=partial(_answering, answer)))
                continue
            if not lines:
                user = self._surrounded(user)
            wishes = [
                self._meant(line, at, fillings, ("follow_ups", number, "lines", index), user)
                for at in range(len(line.calls))
            ]
            before, memory = memory, Memory()
            act = self._acting(wishes, before, memory, is_rejected=line.has_no)
            lines.append(Line(user=user, act=act, confirm=line.confirm))
        return _Drawn(tuple(lines))

    def _meant(
        self,
        line: TalkLine,
        at: int,
        fillings: Fillings,
        path: tuple[str | int, ...],
        user: str,
    ) -> Wish:
        """Return the wish that a call of a line means."""
        call, is_last = line.calls[at], at + 1 == len(line.calls)
        tool = self._registry[call.tool]
        args = {name: meant(part_of(raw), self._today, fillings) for name, raw in call.args.items()}
        phrases = self._phrases.tools.get(call.tool, ToolPhrases())
        return Wish(
            tool=call.tool,
            locale=self._locale,
            args=self._in_order(tool, args),
            words={name: each.told for name, each in fillings.items()},
            replies={**phrases.replies, **line.replies, **call.replies},
            place=lambda *keys: self._place_of(line, at, path, *keys),
            is_to_fail=True,
            is_reading=not tool.is_destructive,
            outcome=line.outcome if is_last else None,
            told=self._phrases.told,
            talk=self._name,
            line=self._placed(*path),
            sources={
                name: self._source(raw, user, fillings, (*path, "calls", at, "args", name), path)
                for name, raw in call.args.items()
            },
        )

    def _place_of(
        self, line: TalkLine, at: int, path: tuple[str | int, ...], *keys: str | int
    ) -> str:
        """Return the place of a part of a line; replies are its call's, its own or the tool's."""
        call = line.calls[at]
        if len(keys) > 1 and keys[0] == "replies":
            if keys[1] in call.replies:
                return self._placed(*path, "calls", at, *keys)
            if keys[1] not in line.replies:
                return self._placed("tools", call.tool, *keys)
        return self._placed(*path, *keys)

    def _placed(self, *path: str | int) -> str:
        return self._book.place(("locales", self._locale, *path))

    def _source(
        self,
        raw: Any,
        user: str,
        fillings: Fillings,
        path: tuple[str | int, ...],
        line: tuple[str | int, ...],
    ) -> Source:
        """Return what stands for an argument of a follow-up: a slot of it, or the whole line."""
        slot = lone_slot(raw) if isinstance(raw, str) else None
        if slot is None:
            return Source(words=user, place=self._placed(*path))
        name = slot.partition(".")[0]
        filling, talk = fillings[slot], line[:2]  # follow_ups, which of them
        entries = self._phrases.follow_ups[int(talk[1])].slots[name]
        if isinstance(entries, str):
            tool, _, argument = entries.partition(".")
            phrases = self._phrases.tools.get(tool, ToolPhrases())
            table = "slots" if argument in phrases.slots else "values"
            place = self._placed("tools", tool, table, argument, filling.entry)
        else:
            place = self._placed(*talk, "slots", name, filling.entry)
        return Source(words=filling.said, place=place)

    def _slots(self, slots: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
        """Return the values of each slot; those of one argument are drawn without repeating."""
        return {
            name: slot_values(entries, self._phrases, self._registry)
            for name, entries in slots.items()
        }

    def _filled_in(
        self, slots: Mapping[str, Sequence[Value]], texts: Sequence[str]
    ) -> dict[str, Filling]:
        """Return what each slot of the texts says and means, drawn once."""
        drawn: dict[str, Value] = {}
        for name, values in slots.items():
            fresh = [each for each in values if each not in drawn.values()]
            drawn[name] = self._rng.choice(fresh or values)
        used = dict.fromkeys(slot for text in texts for slot in slots_of(text))
        fillings: dict[str, Filling] = {}
        for slot in used:
            if slot.name in drawn and str(slot) not in fillings:
                value = drawn[slot.name]
                part = value.parts.get(slot.key) if slot.key else value
                if part is None:  # of a result, which has a list of that name
                    continue
                word = self._rng.choice(part.words) if part.words else ""
                filling = self._renamed(part.filling(self._today, word))
                entry = slots[slot.name].index(value)
                fillings[str(slot)] = replace(filling, entry=entry)
        return fillings

    def _renamed(self, filling: Filling) -> Filling:
        said, told, value = (
            renamed(each, self._others) for each in (filling.said, filling.told, filling.value)
        )
        return replace(filling, said=said, told=told, value=value)

    def _wish(self, tool: ToolDefinition) -> tuple[str, Wish]:
        """Return what a user says who wants a tool, and the call that is meant."""
        sentence = self._rng.choice(self._phrases.tools[tool.name].sentences())
        return self._worded(tool, sentence, failing=None)

    def _failing(self, tool: ToolDefinition) -> list[tuple[Sentence, str]]:
        return failing_sentences(self._phrases.tools[tool.name])

    def _failing_wish(self, tool: ToolDefinition) -> tuple[str, Wish]:
        sentence, argument = self._rng.choice(self._failing(tool))
        return self._worded(tool, sentence, failing=argument)

    def _worded(
        self, tool: ToolDefinition, sentence: Sentence, *, failing: str | None
    ) -> tuple[str, Wish]:
        phrases = self._phrases.tools[tool.name]
        said = slots_of(sentence.text)
        parts = {name: part_of(raw) for name, raw in sentence.args.items()}
        written = [
            sentence.text,
            *(f"{{{slot}}}" for part in parts.values() for slot in slots_in(part)),
        ]
        names = dict.fromkeys(slot.name for text in written for slot in slots_of(text))
        slots: dict[str, Sequence[Value]] = {
            name: tuple(map(value_of, phrases.failing[name]))
            if name == failing
            else tuple(map(slot_value_of, phrases.slots[name]))
            if name in phrases.slots
            else values_of(phrases, tool, name)
            for name in names
        }
        fillings = self._filled_in(slots, written)
        words = {name: each.said for name, each in fillings.items()}
        args = {
            name: value.on(self._today) for name, value in single(sentence, phrases, tool).items()
        }
        args |= {name: meant(part, self._today, fillings) for name, part in parts.items()}
        path = ("locales", self._locale, "tools", tool.name)
        line = self._book.place((*path, "say", phrases.sentences().index(sentence)))
        text = filled(sentence.text, lambda slot: words[str(slot)]) or ""
        sources = {name: Source(words=text, place=line) for name in args}
        for slot in said:
            ours = _filled_args(slot, tool, phrases, fillings)
            args |= ours
            is_to_fail = slot.name == failing
            table = "slots" if slot.name in phrases.slots else "values"
            place = self._book.place(
                (*path, "failing" if is_to_fail else table, slot.name, fillings[str(slot)].entry)
            )
            source = Source(words=words[str(slot)], place=place, is_to_fail=is_to_fail)
            sources |= dict.fromkeys(ours, source)
        wish = Wish(
            tool=tool.name,
            locale=self._locale,
            args=self._in_order(tool, args),
            words={name: each.told for name, each in fillings.items()},
            replies=phrases.replies,
            place=lambda *keys: self._book.place((*path, *keys)),
            is_to_fail=failing is not None,
            is_reading=not tool.is_destructive,
            told=self._phrases.told,
            talk=self._name,
            line=line,
            sources=sources,
        )
        return filled(sentence.text, lambda slot: words[str(slot)], self._typed) or "", wish

    def _typed(self, text: str) -> str:
        """Return a sentence as somebody may have typed it."""
        if not self._book.phrases.typos or is_literal(text):
            return text
        return careless(text, self._locale, self._rng)

    def _surrounded(self, text: str) -> str:
        """Return a line with a word of the file before or after it, unless it is in there."""
        before = [f"{word.strip()} " for word in self._phrases.before]
        after = [word.strip() for word in self._phrases.after if word.strip() not in text]
        after = [f" {word}" if word[0].isalnum() else word for word in after]
        shares = self._book.phrases.shares
        return surrounded(
            text,
            before=before,
            after=after,
            rng=self._rng,
            keep_end=True,
            before_share=shares.get("before", BEFORE_SHARE),
            after_share=shares.get("after", AFTER_SHARE),
        )

    def _in_order(self, tool: ToolDefinition, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the order of the schema: one way to write a call."""
        names = [name for name in tool.parameters.get("properties", {}) if name in args]
        return {name: self._also_in_order(args[name]) for name in names}

    def _also_in_order(self, value: Any) -> Any:
        if not isinstance(value, LookUp):
            return value
        return replace(value, args=self._in_order(self._registry[value.tool], value.args))


def _filled_args(
    slot: Gap, tool: ToolDefinition, phrases: ToolPhrases, fillings: Fillings
) -> Mapping[str, Any]:
    """Return the arguments that a slot of a sentence fills: its own, or those of a row."""
    value = fillings[str(slot)].value
    if slot.name not in phrases.slots:
        return {slot.name: value} if slot.name in tool.parameters["properties"] else {}
    if slot.key:
        return {slot.key: value}
    return value if isinstance(value, JoinedArguments) else {}


def _answering(answer: str, _settled: Sequence[ToolCallMessage]) -> Answer:
    return say(answer)


def _spoken(text: str, fillings: Fillings, typed: Callable[[str], str]) -> str:
    return filled(text, lambda slot: fillings[str(slot)].said, typed) or ""


def _told(text: str, fillings: Fillings) -> str:
    return filled(text, lambda slot: fillings[str(slot)].told) or ""


def _used_in(follow_up: FollowUp) -> tuple[str, ...]:
    """Return everything in a follow-up that may hold slots of it."""
    said = [text for line in follow_up.lines for text in (*line.say, *line.answer)]
    replies = (
        reply_of(reply).text
        for line in follow_up.lines
        for several in line.all_replies()
        for reply in several
    )
    known = set(follow_up.slots)
    spoken = [text for text in replies if known & {slot.name for slot in slots_of(text)}]
    parts = [
        f"{{{slot}}}"
        for line in follow_up.lines
        for call in line.calls
        for raw in call.args.values()
        for slot in slots_in(part_of(raw))
    ]
    return (*said, *spoken, *parts)
