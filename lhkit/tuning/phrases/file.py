"""A phrase file and its templates."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, get_args

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from lhkit.errors import ScenarioError, TuningError
from lhkit.harness.matchers import Fault, equal, folded, shown_path
from lhkit.harness.matchers import Path as DataPath
from lhkit.harness.scenario import (
    Document,
    SourceFault,
    day_faults,
    read_document,
    read_yaml,
    shape_faults,
    world_with_days,
)
from lhkit.json_values import compact
from lhkit.locales import available_locales
from lhkit.tools.schema import SchemaNode

# Korean particles that fit the word before them, as format specifications. Pure.
#
# `"{word:을}".format(word=Word("물"))` is 물을; a leading `q` puts the word in quotes.


_ALONE_AFTER_VOWEL = {"이": "가", "아": "야"}
_AFTER_VOWEL = {
    "이에요": "예요",
    "이었": "였",
    "이어": "여",
    "이": "",
    "으로": "로",
    "을": "를",
    "은": "는",
    "과": "와",
}
"""How a particle begins after a vowel ("이랑", "이었어요", "으로는"); longer ones stand first."""
_DIGITS_WITH_FINAL = frozenset("013678")
_DIGITS_WITH_L = frozenset("178")
_FINAL_L = 8
_BRACKETED = re.compile(r"\([^()]*\)\W*$")


class Word(str):
    """A text that a template can put a particle after."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Return the text with quotes (`q`) and the particle that `spec` names."""
        quoted, particle = spec.startswith("q"), spec.removeprefix("q")
        plain = "".join(self)  # not str(self): formatting that would come back here
        return (f"'{plain}'" if quoted else plain) + particle_after(plain, particle)


def particle_after(word: str, particle: str) -> str:
    """Return the form of `particle` (written as after a consonant) that fits `word`."""
    spoken = re.sub(r"\W+$", "", _BRACKETED.sub("", word)) or word
    final = _final(spoken[-1:].casefold())
    if final and not (particle.startswith("으로") and final == _FINAL_L):
        return particle
    if particle in _ALONE_AFTER_VOWEL:
        return _ALONE_AFTER_VOWEL[particle]
    for begins, after_vowel in _AFTER_VOWEL.items():
        if particle.startswith(begins):
            return after_vowel + particle.removeprefix(begins)
    return particle


def _final(letter: str) -> int:
    """Return 0 for a letter that is spoken with an open end; 8 is ㄹ."""
    if "가" <= letter <= "힣":
        return (ord(letter) - ord("가")) % 28
    if letter.isdigit():
        return _FINAL_L if letter in _DIGITS_WITH_L else int(letter in _DIGITS_WITH_FINAL)
    return {"l": _FINAL_L, "r": 0, "m": 1, "n": 1}.get(letter, 0)


# Sentences with slots: `{argument}`, `{field}`, `{rows.title}`, `{rows:count}`. Pure.
#
# `{text:을}` adds the Korean particle that fits the word. Not `str.format`: a slot reaches into
# plain data only, never into an object. Also places in a result, such as `rows[0].id`.


COUNT = "count"
"""`{rows:count}` is how many rows there are."""

_FIRST_MARK = 0xE000
_SPEC = re.compile(
    COUNT
    + r"|q?(?:"
    + r"이(?!상|하(?!고)|내)[가-힣]*|을요?|은(?:요|커녕)?|과[는도의만요]?|으로(?!로)[가-힣]*|아|"
    + r"(?:에|의|도|만|께|까지|부터|한테|하고|처럼|보다|마다|밖에|만큼|대로|조차|마저|"
    + r"들|씩|쯤|요|인|일|임|입|같|뿐)[가-힣]*)?"
)
"""What may stand behind `:`: particles as after a consonant, and those that never change."""
_STEP = re.compile(r"([^.\[\]{}\s]+)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap in a sentence: a name, perhaps a key inside what it names, perhaps a particle."""

    name: str
    key: str = ""
    spec: str = ""

    def __str__(self) -> str:
        return self.name + (f".{self.key}" if self.key else "")


def parts_of(template: str) -> tuple[tuple[str, Gap | None], ...]:
    """Return a sentence as pieces of text, each with the slot that follows it.

    Raises:
        TuningError: a brace is not closed, or what stands in it is no name.
    """
    try:
        parsed = tuple(Formatter().parse(template))
    except ValueError as error:
        raise TuningError(
            f"{template!r}: {error}: a slot is {{name}}, a plain brace {{{{"
        ) from error
    return tuple(
        (text, None if field is None else _slot(field, spec or "", conversion, template))
        for text, field, spec, conversion in parsed
    )


def _slot(field: str, spec: str, conversion: str | None, template: str) -> Gap:
    name, _, key = field.partition(".")
    is_plain = name and not set(field) & set("[]{} ") and not key.count(".")
    if not is_plain or conversion:
        raise TuningError(
            f"{template!r}: {{{field}}} is no slot: write {{name}} or {{name.key}}; a plain brace "
            "is {{"
        )
    if not _SPEC.fullmatch(spec):
        raise TuningError(
            f"{template!r}: {{{field}:{spec}}}: {spec!r} is no particle that is known: write one "
            "as after a consonant (을, 은, 이, 과, 으로, 아, or longer: 이랑, 이라고, 이에요, "
            f"으로는) or one that never changes (에, 까지, …); any other word stands behind the "
            f"brace: {{{field}}}{spec}; {{rows:{COUNT}}} counts a list"
        )
    return Gap(name=name, key=key, spec=spec)


def slots_of(template: str) -> tuple[Gap, ...]:
    """Return the slots of a sentence, in order.

    Raises:
        TuningError: see `parts_of`.
    """
    return tuple(slot for _, slot in parts_of(template) if slot is not None)


def filled(
    template: str,
    word_of: Callable[[Gap], str | None],
    retyped: Callable[[str], str] = lambda text: text,
) -> str | None:
    """Return the sentence with its slots filled; None if one of them has no word.

    `retyped` may change what stands around the words, but not them: there, a character of Unicode's
    private use area stands for each.
    """
    around: list[str] = []
    words: dict[str, str] = {}
    for text, slot in parts_of(template):
        around.append(text)
        if slot is None:
            continue
        word = word_of(slot)
        if not word:
            return None
        mark = chr(_FIRST_MARK + len(words))
        words[mark] = format(Word(word), "" if slot.spec == COUNT else slot.spec)
        around.append(mark)
    return "".join(words.get(char, char) for char in retyped("".join(around)))


def word_in(
    data: Mapping[str, Any], slot: Gap, told: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return how a result's field is said; None if it is not there, empty, or no plain value.

    A list is said as an enumeration; `key` picks one field of an object, or of each in a list.
    `told` has other words for some values.

    Raises:
        TuningError: what is to be counted is no list.
    """
    value = data.get(slot.name)
    if slot.key:
        value = _picked(value, slot.key)
    if slot.spec == COUNT:
        return _count(value, slot)
    return listed(value, told)


def _picked(value: Any, key: str) -> Any:
    """Return a field of an object; of several, that of each, where it is a list its items."""
    if isinstance(value, Mapping):
        return value.get(key)
    if not isinstance(value, list | tuple):
        return None
    fields = [row.get(key) if isinstance(row, Mapping) else None for row in value]
    return [
        item for each in fields for item in (each if isinstance(each, list) and each else [each])
    ]


def _count(value: Any, slot: Gap) -> str | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise TuningError(f"{{{slot}:{COUNT}}}: that is no list, and only a list has a count")
    return str(len(value))


def listed(value: Any, told: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return how a plain value is said, or the plain values of a list; None for anything else."""
    values = value if isinstance(value, list | tuple) else [value]
    words = [plain_word(each) for each in values]
    if not words or None in words:
        return None
    return ", ".join(told.get(word, word) for word in words if word is not None)


def plain_word(value: Any) -> str | None:
    """Return how a text or a number is said; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part of a place in a result: a field, and perhaps which of several rows."""

    name: str
    index: int | None = None


def steps_of(place: str) -> tuple[Step, ...]:
    """Return the parts of a place such as `notes.id` or `notes[0].id`.

    Raises:
        TuningError: it is none.
    """
    parts = [_STEP.fullmatch(part) for part in place.split(".")]
    if None in parts:
        raise TuningError(
            f"{place!r} is no place in a result: write it like rows.id, or rows[0].id for the "
            "first of several rows"
        )
    return tuple(
        Step(name=part[1], index=None if part[2] is None else int(part[2]))
        for part in parts
        if part is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What stands at a place: different values, and the result with only the rows they are in.

    `rows` are those, or the whole result where there are none.
    """

    values: tuple[Any, ...]
    data: Mapping[str, Any]
    rows: tuple[Any, ...]


def taken(data: Mapping[str, Any], place: str, where: Mapping[str, Any]) -> Taken:
    """Return what stands at a place of a result, in the rows whose fields are as in `where`.

    A field that is a list goes on in all of its rows; nothing at all is no fault. Texts are
    compared without regard to case.

    Raises:
        TuningError: rows are there and none has such a field.
    """
    *ways, last = steps_of(place)
    rows: list[Any] = [data]
    for step in ways:
        rows = _within(rows, step.name)
        if step is not ways[-1] and step.index is not None:
            rows = rows[step.index : step.index + 1]
    for name in where:
        _within(rows, name)  # refuses a field that no row has
    rows = [row for row in rows if all(_is(row.get(key), value) for key, value in where.items())]
    if ways and ways[-1].index is not None:
        rows = rows[ways[-1].index : ways[-1].index + 1]
    values = _within(rows, last.name)
    if last.index is not None:
        values = values[last.index : last.index + 1]
    different = tuple({compact(value): value for value in values}.values())
    is_one_list = len(ways) == 1 and isinstance(data.get(ways[0].name), list)
    return Taken(
        values=different,
        data={**data, ways[0].name: rows} if is_one_list else data,
        rows=tuple(rows),
    )


def _within(rows: Sequence[Any], name: str) -> list[Any]:
    """Return what stands in a field of the rows, lists as their items."""
    objects = [row for row in rows if isinstance(row, Mapping)]
    if rows and not any(name in row for row in objects):
        fields = ", ".join(dict.fromkeys(key for row in objects for key in row)) or "none"
        raise TuningError(f"there is no {name!r} (fields there: {fields})")
    values = (row[name] for row in objects if row.get(name) is not None)
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _is(actual: Any, wanted: Any) -> bool:
    if isinstance(actual, str) and isinstance(wanted, str):
        return folded(actual) == folded(wanted)
    return equal(wanted, actual, SchemaNode.of({}))


# A phrase file: what people say to a toolset and what is answered, as its owner wrote it.
#
# Every fault is told by file, line and field. Whether the phrases fit a toolset is asked in
# `checks`.


TODO = "TODO"
"""A text that begins with this is still to be written."""

HOW = "`lhkit tune init` writes a file to fill in"

MORE = "Mend these; what comes after them is checked then."
"""How faults end that hide others: the file's form comes first, its fit to the tools, the play."""

_Click: TypeAlias = Literal["accept", "reject"]
_Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]
_Values: TypeAlias = Mapping[str, tuple[Any, ...]]


class _Strict:
    """Tells pydantic to refuse unknown fields; a plain base so that values stay dataclasses."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic's name and type


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence(_Strict):
    """What a user says, with slots for arguments. `args` are arguments it means without a slot."""

    text: _Words
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseReply(_Strict):
    """What is answered, with slots.

    `each` says how a row of a list is told: `{list: "{title} at {start}"}`. Of several ways the
    first is taken whose slots the row has. `join` stands between the rows. It is not said of a
    call that was given one of the arguments `without`.
    """

    text: _Words
    each: Mapping[str, _Words | tuple[_Words, ...]] = field(default_factory=dict)
    join: str = ", "
    without: tuple[_Words, ...] = ()

    def ways(self, name: str) -> tuple[str, ...]:
        """Return how a row of that list is told; empty where nothing is written for it."""
        written = self.each.get(name, ())
        return (written,) if isinstance(written, str) else written


_Replies: TypeAlias = Mapping[str, tuple[_Words | PhraseReply, ...]]


def reply_of(written: str | PhraseReply) -> PhraseReply:
    """Return a reply, however short it is written."""
    return written if isinstance(written, PhraseReply) else PhraseReply(text=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPhrases(_Strict):
    """What is said of one tool.

    `values` are what its arguments may be; `failing` are values that the tool refuses or does not
    find; `slots` are further slots of its sentences, rows of values that belong together among
    them. `replies` are keyed by what a call came to: `ok`, `not_found`, `several`, `refused`,
    `cancelled`, or an error code of the tool. Without `say` nobody asks for it alone.
    """

    say: tuple[_Words | Sentence, ...] | None = None
    values: _Values = field(default_factory=dict)
    failing: _Values = field(default_factory=dict)
    slots: _Values = field(default_factory=dict)
    replies: _Replies = field(default_factory=dict)

    def sentences(self) -> tuple[Sentence, ...]:
        """Return what users say, each with its fixed arguments."""
        return tuple(
            each if isinstance(each, Sentence) else Sentence(text=each) for each in self.say or ()
        )


_Slots: TypeAlias = Mapping[str, tuple[Any, ...] | _Words]
"""Slots of a talk: their values, or `tool.argument` for the values of a tool's argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk(_Strict):
    """What needs no tool: what users say and what fits as an answer to all of it."""

    say: Annotated[tuple[_Words, ...], Field(min_length=1)]
    answer: Annotated[tuple[_Words, ...], Field(min_length=1)]
    slots: _Slots = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WishedCall(_Strict):
    """A call that a line of a follow-up means. Its arguments may hold the follow-up's slots.

    `replies` go before those of the line.
    """

    tool: _Words
    args: Mapping[str, Any] = field(default_factory=dict)
    replies: _Replies = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkLine(_Strict):
    """One thing that is said in a follow-up: `calls` that it means, or an `answer` and none.

    `confirm` is what the user clicks, at each question of the line or at one after the other.
    `replies` go before those of the tool. `outcome` is what the last call has to come to, so that
    the next line fits.
    """

    say: Annotated[tuple[_Words, ...], Field(min_length=1)]
    calls: tuple[WishedCall, ...] = ()
    answer: tuple[_Words, ...] = ()
    confirm: _Click | Annotated[tuple[_Click, ...], Field(min_length=1)] = "accept"
    outcome: str | None = None
    replies: _Replies = field(default_factory=dict)

    @property
    def has_no(self) -> bool:
        """Whether the user says no to something."""
        return "reject" in self.confirm

    def all_replies(self) -> Iterator[Sequence[str | PhraseReply]]:
        """Yield the replies of the line and those of its calls, outcome by outcome."""
        for table in (self.replies, *(call.replies for call in self.calls)):
            yield from table.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp(_Strict):
    """Lines that belong together, one after the other; a slot means the same in all of them.

    `world` is a state of its own to begin in.
    """

    lines: Annotated[tuple[TalkLine, ...], Field(min_length=1)]
    slots: _Slots = field(default_factory=dict)
    world: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalePhrases(_Strict):
    """Everything in one language.

    `two_wishes` joins `{first}` and `{second}` in one message. `before` and `after` are words that
    people put around a wish. `near_misses` sound like a wish and are none. `worlds` take the place
    of the file's.
    """

    tools: Mapping[str, ToolPhrases] = field(default_factory=dict)
    small_talk: tuple[Talk, ...] = ()
    out_of_scope: tuple[Talk, ...] = ()
    near_misses: tuple[Talk, ...] = ()
    follow_ups: tuple[FollowUp, ...] = ()
    two_wishes: tuple[_Words, ...] = ()
    before: tuple[_Words, ...] = ()
    after: tuple[_Words, ...] = ()
    told: Mapping[str, _Words] = field(default_factory=dict)
    worlds: tuple[Mapping[str, Any], ...] = ()


BeginningShare: TypeAlias = Literal[
    "cancelled",
    "failing",
    "two_wishes",
    "follow_ups",
    "near_misses",
    "small_talk",
    "out_of_scope",
]
"""Kinds of conversations, by what they begin with; `cancelled` is a no at the question."""

Shares: TypeAlias = Mapping[
    BeginningShare | Literal["before", "after"], Annotated[float, Field(ge=0, le=1)]
]
"""Fractions: of the conversations, and of the wishes with words before or after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases(_Strict):
    """A whole file.

    `worlds` are states that conversations begin in, as in a scenario. With `typos`, some sentences
    are typed carelessly; the words in their slots never are.
    """

    locales: Annotated[Mapping[str, LocalePhrases], Field(min_length=1)]
    worlds: Annotated[tuple[Mapping[str, Any], ...], Field(min_length=1)] = ({},)
    typos: bool = True
    shares: Shares = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstState:
    """A state that conversations begin in, and where it stands in the file."""

    path: DataPath
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseFile:
    """Phrases and where each of them stands."""

    file: Path
    document: Document
    phrases: Phrases

    def worlds(self, locale: str) -> tuple[FirstState, ...]:
        """Return the states that conversations of a language begin in."""
        own = self.phrases.locales[locale].worlds
        path: DataPath = ("locales", locale, "worlds") if own else ("worlds",)
        return tuple(
            FirstState(path=(*path, number), state=state)
            for number, state in enumerate(own or self.phrases.worlds)
        )

    def own_worlds(self, locale: str) -> dict[int, FirstState]:
        """Return the states of a language's follow-ups that have one of their own, by number."""
        path: DataPath = ("locales", locale, "follow_ups")
        return {
            number: FirstState(path=(*path, number, "world"), state=each.world)
            for number, each in enumerate(self.phrases.locales[locale].follow_ups)
            if each.world is not None
        }

    def place(self, path: DataPath) -> str:
        """Return `file:line: field`, for a sentence about a fault."""
        return f"{self.file}:{self.document.line(path)}: {shown_path(path)}"


_ADAPTER = TypeAdapter(Phrases)


def read_phrases(file: Path) -> PhraseFile:
    """Return the phrases of a file.

    Raises:
        TuningError: the file cannot be read, is empty, is no YAML, has a TODO left, or a field of
            it is wrong; one line for each fault: `file:line: field: what is wrong`.
    """
    try:
        document = read_document(file)
    except ScenarioError as error:
        raise TuningError(f"{error}: {HOW}") from error
    refuse_faults(file, document, tuple(map(_with_hint, document.faults)))
    if document.value is None:
        raise TuningError(f"{file} is empty: {HOW}")
    if not isinstance(document.value, dict):
        raise TuningError(f"{file}:1: must be a mapping with `locales:`: {HOW}")
    _refuse_todos(file, document)
    return PhraseFile(file=file, document=document, phrases=_parsed(file, document))


def todo_count(text: str) -> int:
    """Return how many TODOs are left in the text of a phrase file: those that are refused."""
    return sum(1 for _ in _todos(read_yaml(text).value, ()))


def lines_to_quote(file: Path) -> tuple[int, ...]:
    """Return the lines of a readable file that some other YAML readers refuse.

    These have a question mark without quotes between brackets or braces.
    """
    depth = 0
    lines: dict[int, None] = {}
    for event in yaml.parse(file.read_text(encoding="utf-8-sig"), Loader=yaml.CSafeLoader):
        match event:
            case yaml.CollectionStartEvent() if depth or event.flow_style:
                depth += 1
            case yaml.CollectionEndEvent() if depth:
                depth -= 1
            case yaml.ScalarEvent(style=None | "", value=value) if depth and "?" in value:
                lines[event.start_mark.line + 1] = None
    return tuple(lines)


def _with_hint(fault: Fault) -> Fault:
    """Tell of what most often makes a sentence with slots no YAML."""
    if not fault.message.startswith("not YAML"):
        return fault
    hint = "(a text that begins with { or holds ': ' needs quotes)"
    return replace(fault, message=f"{fault.message} {hint}")


def refuse_faults(file: Path, document: Document, faults: tuple[Fault, ...]) -> None:
    """Do nothing if there are no faults.

    Raises:
        TuningError: there are some; a line for each, in order of appearance, and that more is
            checked when they are mended.
    """
    found = sorted(faults, key=lambda each: document.line(each.path))
    if found:
        told = (
            SourceFault(
                file=file,
                line=document.line(each.path),
                place=shown_path(each.path),
                message=each.message,
            )
            for each in found
        )
        raise TuningError("\n".join([*map(str, told), MORE]))


def _refuse_todos(file: Path, document: Document) -> None:
    todos = sorted(_todos(document.value, ()), key=document.line)
    if todos:
        path, others = todos[0], len(todos) - 1
        more = f" ({others} more after it)" if others else ""
        raise TuningError(
            f"{file}:{document.line(path)}: {shown_path(path)}: a TODO is left{more}: "
            "write your own words there, or delete the line"
        )


def _todos(value: Any, path: DataPath) -> Iterator[DataPath]:
    if isinstance(value, str) and value.lstrip().startswith(TODO):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            if str(key).startswith(TODO):
                yield (*path, key)
            yield from _todos(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _todos(item, (*path, number))


def _parsed(file: Path, document: Document) -> Phrases:
    try:
        phrases = _ADAPTER.validate_json(compact(document.value), strict=True)
    except ValidationError as error:
        refuse_faults(file, document, shape_faults(error, _ADAPTER, document))
        raise AssertionError("pydantic refused without a reason") from error
    known = available_locales()
    unknown = (
        Fault(("locales", locale), f"must be one of {', '.join(known)}")
        for locale in phrases.locales
        if locale not in known
    )
    refuse_faults(file, document, (*unknown, *_shares_beyond_one(phrases)))
    return _with_days(phrases, file, document)


def _shares_beyond_one(phrases: Phrases) -> Iterator[Fault]:
    beginning = [phrases.shares.get(kind, 0) for kind in get_args(BeginningShare)]
    if (total := math.fsum(beginning)) > 1:
        told = "conversations begin with one of these, and the shares add up to"
        yield Fault(("shares",), f"{told} {total:g}: to 1 at most (before and after do not count)")


def _with_days(phrases: Phrases, file: Path, document: Document) -> Phrases:
    """Return the phrases with the days in their worlds that are told from the world's clock."""
    faults: list[Fault] = []

    def dated(world: Mapping[str, Any], path: DataPath) -> Mapping[str, Any]:
        faults.extend(day_faults(world, path))
        try:
            return world_with_days(world)
        except ScenarioError as error:
            faults.append(Fault(path, str(error)))
            return world

    def numbered(
        worlds: Sequence[Mapping[str, Any]], path: DataPath
    ) -> tuple[Mapping[str, Any], ...]:
        return tuple(dated(world, (*path, number)) for number, world in enumerate(worlds))

    def follow_up(each: FollowUp, path: DataPath) -> FollowUp:
        return each if each.world is None else replace(each, world=dated(each.world, path))

    told = replace(
        phrases,
        worlds=numbered(phrases.worlds, ("worlds",)),
        locales={
            name: replace(
                spoken,
                worlds=numbered(spoken.worlds, ("locales", name, "worlds")),
                follow_ups=tuple(
                    follow_up(each, ("locales", name, "follow_ups", number, "world"))
                    for number, each in enumerate(spoken.follow_ups)
                ),
            )
            for name, spoken in phrases.locales.items()
        },
    )
    refuse_faults(file, document, tuple(faults))
    return told
