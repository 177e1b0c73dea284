"""Names made up: the words by which a phrase file calls things, replaced in a conversation.

Who always hears of the same forty foods learns them by heart, and which tool each of them goes
with; for a food that is new the nearest known one is called. With a name that was never there
before, what is said has to be copied. In the world, in what is said and in what is called for a
word is replaced by the same one.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

from lhkit.errors import TuningError
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.check import slot_values, values_of
from lhkit.tuning.phrases.file import FollowUp, LocalePhrases, ToolPhrases, parts_of, reply_of
from lhkit.tuning.phrases.values import (
    JoinedArguments,
    LookUp,
    Value,
    is_any_text,
    slot_value_of,
    slots_in,
    value_of,
)

_LONGEST = 3
"""Words of a name; what is longer is a text, such as a message."""

_MADE_UP_SHARE = 0.5
"""Of the names. The others change places, so that none of them tells what is meant to be done."""

_TRIES = 100
_INITIALS = (0, 2, 3, 5, 6, 7, 9, 11, 12, 14, 15, 16, 17, 18)
_MEDIALS = (0, 1, 4, 5, 6, 8, 13, 18, 20)
_FINALS = (0, 0, 0, 0, 1, 4, 8, 16, 17, 21)
"""With the two above: what a syllable of Hangul is put together from, by its place in Unicode."""

_ONSETS = (*"bcdfghjklmnprstvwz", "br", "cl", "dr", "fl", "gr", "pl", "pr", "sh", "st", "th", "tr")
_VOWELS = (*"aeiouaeo", "ai", "ea", "ee", "oo")
_CODAS = ("", "", "", *"lmnrst", "ck", "nd", "st")
_HANGUL_SYLLABLES = (2, 2, 3, 3, 4)
_LATIN_SYLLABLES = (2, 2, 3)

_LETTERS = re.compile(r"[^\W\d_]+")
_HANGUL = re.compile("[가-힣]{2,}")
_LATIN = re.compile("[a-z]{3,}")
_NAMING = ("enum", "const", "default", "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameWords:
    """The words of names, in lower case; those of one group name things of one kind.

    `known` are all words of the phrase file: what is made up is none of them.
    """

    groups: tuple[frozenset[str], ...]
    known: frozenset[str] = frozenset()


NO_NAMES = NameWords(groups=())


def names_of(
    phrases: LocalePhrases, registry: ToolRegistry, worlds: Sequence[Mapping[str, Any]]
) -> NameWords:
    """Return the words of all names in a language, which stand for nothing else there.

    Names are what is said for an argument that takes any text, and what is looked up; arguments
    that share one are of one kind. Taken are words of small Latin letters, three at least, and of
    Hangul, two syllables at least. A word is none that a schema names, that is a key of a world,
    that is also said for something else (a number, a day, one of a few choices), that a sentence
    means without a slot, or that a reply says of itself; nor is one that not every way of saying
    its value holds.

    Args:
        phrases: of the language.
        registry: its tools.
        worlds: all states that its conversations begin in.
    """
    groups: list[set[str]] = []
    reserved = {word for tool in registry.definitions for word in _named_by(tool.parameters)}
    reserved |= set(chain.from_iterable(map(_words, (*phrases.told.values(), *_keys(worlds)))))
    for tool in registry.definitions:
        spoken = phrases.tools.get(tool.name, ToolPhrases())
        for argument in tool.parameters.get("properties", {}):
            ours, no_names = _named(tool, spoken, argument)
            reserved |= no_names
            alike = [group for group in groups if group & ours]
            groups = [*(group for group in groups if group not in alike), ours.union(*alike)]
        for entries in spoken.slots.values():
            reserved |= _said_for_others([*map(slot_value_of, entries)])
    fixed = chain.from_iterable(map(_fixed, phrases.tools.values()))
    known = chain.from_iterable(map(_letters, chain(_everything(phrases), _texts(worlds))))
    return _free(
        NameWords(groups=tuple(map(frozenset, groups)), known=frozenset(known)), fixed, reserved
    )


def names_in(
    names: NameWords, follow_up: FollowUp, phrases: LocalePhrases, registry: ToolRegistry
) -> NameWords:
    """Return the names that a follow-up says in its slots alone: they may be others in it."""
    slots = (slot_values(each, phrases, registry) for each in follow_up.slots.values())
    return _free(names, _said_by(follow_up), _said_for_others([*chain.from_iterable(slots)]))


def _named(tool: ToolDefinition, spoken: ToolPhrases, argument: str) -> tuple[set[str], set[str]]:
    """Return the words with which an argument names something, and those that are no names."""
    values = values_of(spoken, tool, argument)
    is_fixed = sum(len(value.words) for value in values) == 1  # it may be meant without being said
    entries = (*values, *map(value_of, spoken.failing.get(argument, ())))
    names: set[str] = set()
    reserved = _ambiguous(entries)
    for value in entries:
        said = set(chain.from_iterable(map(_words, value.words)))
        is_short = all(len(_words(each)) <= _LONGEST for each in value.words)
        takes_up = value.look_up is not None or is_any_text(tool.parameters, argument)
        ours = said & _meant(value) if is_short and takes_up and not is_fixed else set()
        names |= ours
        reserved |= set() if ours else said | _meant(value)
    return names, reserved


def _said_for_others(values: Sequence[Value]) -> set[str]:
    """Return the words of a slot's values that are said for something else than they name."""
    found = _ambiguous(values)
    for value in values:
        meant = _meant(value).union(*map(_meant, value.parts.values()))
        found |= {word for each in value.words for word in _words(each)} - meant
        found |= _said_for_others([*value.parts.values()])
    return found


def _ambiguous(values: Iterable[Value]) -> set[str]:
    """Return the words of what values mean that not every way of saying or telling it holds.

    Each way of saying what is looked up by itself (`{say}`) means that way, and however it is told
    then, only the words of that are at stake.
    """
    found: set[str] = set()
    for value in values:
        found |= _ambiguous(part for part in value.parts.values() if part.words)
        ways = [set(_words(each)) for each in (*value.words, *filter(None, [value.told]))]
        is_row = bool(value.parts) and bool(ways)
        meant = set().union(*map(_meant, value.parts.values())) if is_row else _meant(value)
        if value.look_up is not None and slots_in(value.look_up):
            meant &= set(_words(value.told or ""))
        found |= {word for word in meant if not (ways and all(word in way for way in ways))}
    return found


def _meant(value: Value) -> set[str]:
    """Return the words of what a value means: those of the text, or with which it is looked up."""
    if value.look_up is not None and slots_in(value.look_up):
        return set(chain.from_iterable(map(_words, value.words)))
    texts = _texts(value.value if value.look_up is None else value.look_up)
    return set(chain.from_iterable(map(_words, texts)))


def _words(text: str) -> list[str]:
    return text.casefold().split()


def _letters(text: str) -> list[str]:
    return _LETTERS.findall(text.casefold())


def _named_by(schema: Any) -> Iterator[str]:
    """Yield the words that a schema names itself: choices, constants, defaults, examples."""
    if isinstance(schema, Mapping):
        for key, each in schema.items():
            if key in _NAMING:
                yield from chain.from_iterable(map(_words, _texts(each)))
            yield from _named_by(each)
    elif isinstance(schema, list | tuple):
        yield from chain.from_iterable(map(_named_by, schema))


def _keys(raw: Any) -> Iterator[str]:
    """Yield the keys of plain data, also of what is inside."""
    if isinstance(raw, Mapping):
        yield from map(str, raw)
        yield from _keys(tuple(raw.values()))
    elif isinstance(raw, list | tuple):
        yield from chain.from_iterable(map(_keys, raw))


def _texts(raw: Any) -> Iterator[str]:
    """Yield the texts of plain data or of a look-up, without their slots."""
    match raw:
        case str():
            yield from _around(raw)
        case Mapping():
            yield from _texts(tuple(raw.values()))
        case LookUp():
            yield from _texts((raw.args, raw.where))
        case list() | tuple():
            yield from chain.from_iterable(map(_texts, raw))
        case _:
            pass


def _around(template: str) -> Iterator[str]:
    """Yield what stands around the slots of a sentence; a text that is none is taken whole."""
    try:
        yield from (text for text, _ in parts_of(template))
    except TuningError:  # a brace in a world
        yield template


def _fixed(spoken: ToolPhrases) -> Iterator[str]:
    """Yield what sentences say and mean without a slot, and what replies say of themselves."""
    for sentence in spoken.sentences():
        if sentence.args:
            yield from _texts((sentence.text, sentence.args))
    yield from _texts(tuple(_replies(spoken.replies.values())))


def _replies(replies: Iterable[Iterable[Any]]) -> Iterator[str]:
    return (reply_of(each).text for several in replies for each in several)


def _said_by(follow_up: FollowUp) -> Iterator[str]:
    """Yield what the lines of a follow-up say and mean without a slot."""
    for line in follow_up.lines:
        called = tuple(call.args for call in line.calls)
        yield from _texts((line.say, line.answer, called, tuple(_replies(line.all_replies()))))


def _everything(phrases: LocalePhrases) -> Iterator[str]:
    """Yield all texts that people say, with those of their values."""
    for spoken in phrases.tools.values():
        yield from _texts([sentence.text for sentence in spoken.sentences()])
        yield from _texts((spoken.values, spoken.failing, spoken.slots))
    for talk in (*phrases.small_talk, *phrases.out_of_scope, *phrases.near_misses):
        yield from _texts((talk.say, talk.slots))
    for follow_up in phrases.follow_ups:
        yield from _said_by(follow_up)
        yield from _texts((follow_up.slots, follow_up.world))


def _free(names: NameWords, texts: Iterable[str], reserved: Iterable[str]) -> NameWords:
    """Return the names that are not reserved and stand in no text."""
    together = "\n".join(texts).casefold()
    taken = {*reserved, *_letters(together)}

    def is_free(word: str) -> bool:
        if _HANGUL.fullmatch(word):
            return word not in taken and word not in together  # there with an ending behind it
        return word not in taken and _LATIN.fullmatch(word) is not None

    groups = (frozenset(filter(is_free, group)) for group in names.groups)
    return replace(names, groups=tuple(filter(None, groups)))


def replacements(names: NameWords, rng: random.Random) -> dict[str, str]:
    """Return another word for each name: one made up, or a name of its kind. No two are alike."""
    taken = {*names.known, *chain.from_iterable(names.groups)}
    others: dict[str, str] = {}
    for group, script in product(names.groups, (_HANGUL, _LATIN)):
        ours = [word for word in sorted(group) if script.fullmatch(word)]
        kept = [word for word in ours if rng.random() >= _MADE_UP_SHARE]
        others |= zip(kept, rng.sample(kept, len(kept)), strict=True)
        for word in ours:
            if word not in others and (fresh := _made_up(script, taken, rng)):
                taken.add(fresh)
                others[word] = fresh
    return others


def _made_up(script: re.Pattern[str], taken: set[str], rng: random.Random) -> str | None:
    """Return a word that is none yet; None if chance does not find one."""
    for _ in range(_TRIES):
        word = _hangul(rng) if script is _HANGUL else _latin(rng)
        if word not in taken:
            return word
    return None


def _hangul(rng: random.Random) -> str:
    syllables = (
        (rng.choice(_INITIALS) * 21 + rng.choice(_MEDIALS)) * 28 + rng.choice(_FINALS)
        for _ in range(rng.choice(_HANGUL_SYLLABLES))
    )
    return "".join(chr(ord("가") + each) for each in syllables)


def _latin(rng: random.Random) -> str:
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
        for _ in range(rng.choice(_LATIN_SYLLABLES))
    )


def renamed(told: Any, others: Mapping[str, str]) -> Any:
    """Return plain data, or a look-up, with every name in its texts replaced.

    A name is a word between spaces, whatever its case; a capital stays one. Keys stay, and tuples
    become lists.
    """
    match told:
        case str():
            new: Any = _replaced(told, others)
        case Mapping():
            pairs = ((key, renamed(each, others)) for key, each in told.items())
            new = JoinedArguments(pairs) if isinstance(told, JoinedArguments) else dict(pairs)
        case list() | tuple():
            new = [renamed(each, others) for each in told]
        case LookUp():
            new = replace(told, args=renamed(told.args, others), where=renamed(told.where, others))
        case _:
            new = told
    return new


def _replaced(text: str, others: Mapping[str, str]) -> str:
    if not any(word in others for word in _words(text)):
        return text
    return "".join(_as_before(each, others) for each in re.split(r"(\s+)", text))


def _as_before(word: str, others: Mapping[str, str]) -> str:
    other = others.get(word.casefold(), word)
    return other.capitalize() if word[:1].isupper() and other != word else other
