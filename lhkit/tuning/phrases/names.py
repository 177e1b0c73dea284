"""Names made up: the words by which a phrase file calls things, replaced in a conversation.

Who always hears of the same forty foods learns them by heart, and which tool each of them goes
with; for a food that is new the nearest known one is called. With a name that was never there
before, what is said has to be copied. In the world, in what is said and in what is called for a
word is replaced by the same one.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, product
from typing import Any, TypeAlias

from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import property_of
from lhkit.tuning.phrases.check import values_of
from lhkit.tuning.phrases.file import FollowUp, LocalePhrases, ToolPhrases, parts_of, reply_of
from lhkit.tuning.phrases.values import (
    JoinedArguments,
    LookUp,
    Value,
    given_values,
    is_day,
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
"""Of a syllable of Hangul, by their place in Unicode: those that no ear takes for a slip."""

_SYLLABLES = (2, 2, 3, 3, 4)
_ONSETS = (*"bcdfghjklmnprstvwz", "br", "cl", "dr", "fl", "gr", "pl", "pr", "sh", "st", "th", "tr")
_VOWELS = (*"aeiouaeo", "ai", "ea", "ee", "oo")
_CODAS = ("", "", "", *"lmnrst", "ck", "nd", "st")

_LETTERS = re.compile(r"[^\W\d_]+")
_HANGUL = re.compile("[가-힣]{2,}")
_LATIN = re.compile("[a-z]{3,}")


Names: TypeAlias = tuple[frozenset[str], ...]
"""Words in lower case; those of one group name things of one kind."""


def names_of(phrases: LocalePhrases, registry: ToolRegistry) -> Names:
    """Return the words of all names that stand for nothing else.

    Names are what is said for an argument that takes any text, and what is looked up; arguments
    that share one are of one kind. A word is none that is also said for something else (a number,
    a day, one of a few choices), that a sentence means without a slot, or that a reply says of
    itself; nor is one with a digit.
    """
    tools = [(tool, phrases.tools[tool.name]) for tool in _spoken(phrases, registry)]
    groups: list[set[str]] = []
    others = set(chain.from_iterable(map(_words, phrases.told.values())))
    for tool, spoken in tools:
        for argument in tool.parameters.get("properties", {}):
            ours, no_names = _named(tool, spoken, argument)
            others |= no_names
            alike = [group for group in groups if group & ours]
            groups = [*(group for group in groups if group not in alike), ours.union(*alike)]
    fixed = list(chain.from_iterable(_fixed(each) for _, each in tools))
    return _without(groups, fixed, others)


def _named(tool: ToolDefinition, spoken: ToolPhrases, argument: str) -> tuple[set[str], set[str]]:
    """Return the words with which an argument names something, and those of its other values."""
    values = values_of(spoken, tool, argument)
    is_fixed = sum(len(value.words) for value in values) == 1
    names: set[str] = set()
    others: set[str] = set()
    for value in (*values, *map(value_of, spoken.failing.get(argument, ()))):
        said = set(chain.from_iterable(map(_words, value.words)))
        longest = max((len(_words(each)) for each in value.words), default=0)
        is_name = longest <= _LONGEST and not is_fixed
        ours = said & _called(value, tool.parameters, argument) if is_name else set()
        names |= ours
        others |= set() if ours else said
    return names, others


def _without(
    groups: Iterable[AbstractSet[str]], texts: Iterable[str], others: AbstractSet[str] = frozenset()
) -> Names:
    """Return the names that are none of others, stand in no text, and are words of one script."""
    together = "\n".join(texts).casefold()
    found = set(_LETTERS.findall(together))

    def is_free(word: str) -> bool:
        if _HANGUL.fullmatch(word):
            return word not in others and word not in together  # there with an ending behind it
        return bool(_LATIN.fullmatch(word)) and word not in others and word not in found

    return tuple(filter(None, (frozenset(filter(is_free, group)) for group in groups)))


def _spoken(phrases: LocalePhrases, registry: ToolRegistry) -> Iterator[ToolDefinition]:
    return (tool for tool in registry.definitions if tool.name in phrases.tools)


def _called(value: Value, parameters: Mapping[str, Any], argument: str) -> set[str]:
    """Return the words with which a call takes up what is said for a value."""
    if value.look_up is not None:
        is_said = bool(slots_in(value.look_up))
        texts = (
            value.words if is_said else (*_texts(value.look_up.args), *_texts(value.look_up.where))
        )
    else:
        is_taken = value.value in value.words and _takes_any_text(parameters, argument)
        texts = value.words if is_taken else ()
    return set(chain.from_iterable(map(_words, texts)))


def _takes_any_text(parameters: Mapping[str, Any], argument: str) -> bool:
    schema = property_of(parameters, argument)
    is_limited = is_day(parameters, argument) or given_values(parameters, argument)
    return not is_limited and "pattern" not in schema


def _words(text: str) -> list[str]:
    return text.casefold().split()


def _fixed(spoken: ToolPhrases) -> Iterator[str]:
    """Yield what sentences say and mean without a slot, and what replies say of themselves."""
    for sentence in spoken.sentences():
        if sentence.args:
            yield from _said(sentence.text)
            yield from _texts(sentence.args)
    for replies in spoken.replies.values():
        for written in replies:
            yield from _said(reply_of(written).text)


def _said(template: str) -> Iterator[str]:
    return (text for text, _ in parts_of(template))


def _texts(raw: Any) -> Iterator[str]:
    """Yield the texts inside plain data."""
    match raw:
        case str():
            yield from _said(raw)
        case Mapping():
            for each in raw.values():
                yield from _texts(each)
        case LookUp():
            yield from _texts((raw.args, raw.where))
        case list() | tuple():
            for each in raw:
                yield from _texts(each)
        case _:
            pass


def unfixed(names: Names, follow_up: FollowUp) -> Names:
    """Return the names that a follow-up does not say by itself: they may be others in it."""
    texts: list[str] = []
    for line in follow_up.lines:
        told = (reply_of(each).text for replies in line.replies.values() for each in replies)
        for template in (*line.say, *line.answer, *told):
            texts += _said(template)
        for call in line.calls:
            texts += _texts(call.args)
    return _without(names, texts)


def others_for(names: Names, rng: random.Random) -> dict[str, str]:
    """Return for each name another word: one made up, or another of its kind. No two are alike."""
    taken = {word for group in names for word in group}
    others: dict[str, str] = {}
    for group, script in product(names, (_HANGUL, _LATIN)):
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
        if word not in taken and script.fullmatch(word):
            return word
    return None


def _hangul(rng: random.Random) -> str:
    return "".join(
        chr(
            ord("가")
            + (rng.choice(_INITIALS) * 21 + rng.choice(_MEDIALS)) * 28
            + rng.choice(_FINALS)
        )
        for _ in range(rng.choice(_SYLLABLES))
    )


def _latin(rng: random.Random) -> str:
    count = rng.choice(_SYLLABLES) - 1
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(count)
    )


def renamed(told: Any, others: Mapping[str, str]) -> Any:
    """Return plain data with every name in its texts replaced; keys stay. So it does look-ups."""
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
    """Return a text with its names replaced; a capital stays one."""
    if not any(word in others for word in _words(text)):
        return text
    return "".join(_as_before(each, others) for each in re.split(r"(\s+)", text))


def _as_before(word: str, others: Mapping[str, str]) -> str:
    other = others.get(word.casefold(), word)
    return other.capitalize() if word[:1].isupper() else other
