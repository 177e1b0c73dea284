"""Texts of `shapes.yaml` and `talk.yaml` in the words of a domain. Pure."""

import re
from collections.abc import Callable, Mapping
from re import Match

from evals.head_start.domains import Domain
from lhkit.tuning.phrases.file import particle_after

_NOUN = re.compile(r"<(\w+)(?::([^<>]+))?>")
_A = re.compile(r"\b([Aa]) (?=[aeio])")
_SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?(?::([^{}]+))?\}")


def nouns_of(domain: Domain, locale: str) -> Mapping[str, str]:
    """Return what `<thing>`, `<state>` and the like are in a domain."""
    the = "the " if domain.has_article and locale == "en" else ""
    desk = domain.desk[locale]
    number = domain.aspects.get("number")
    unit = number.unit[locale] if number is not None and number.unit is not None else ""
    return {
        "thing": domain.thing[locale],
        "things": domain.things[locale],
        "label": domain.label.said[locale],
        "counter": domain.counter,
        "the": the,
        "The": the.capitalize(),
        "desk": desk,
        "Desk": desk[:1].upper() + desk[1:],
        **({"unit": unit} if number is not None else {}),
        **{role: aspect.said[locale] for role, aspect in domain.aspects.items()},
    }


def worded(text: str, nouns: Mapping[str, str]) -> str | None:
    """Return a text with its `<nouns>`, which take Korean particles; None if it needs others."""
    if any(found[1] not in nouns for found in _NOUN.finditer(text)):
        return None
    told = _NOUN.sub(
        lambda found: nouns[found[1]] + particle_after(nouns[found[1]], found[2] or ""), text
    )
    return _A.sub(r"\1n ", told)


def roles_in(text: str) -> frozenset[str]:
    """Return what the slots of a text stand for."""
    return frozenset(found[1] for found in _SLOT.finditer(text))


def renamed(text: str, slot_of: Callable[[str, str], str | None]) -> str | None:
    """Return a text with other slots; None if one has none.

    Args:
        text: with slots by what they stand for, such as `{item:을}` or `{row.state}`.
        slot_of: gives the slot (`book_id`, `book.status`) for a role and a key or none.
    """
    missing = False

    def new(found: Match[str]) -> str:
        nonlocal missing
        slot = slot_of(found[1], found[2] or "")
        missing = missing or slot is None
        return f"{{{slot}:{found[3]}}}" if found[3] else f"{{{slot}}}"

    told = _SLOT.sub(new, text)
    return None if missing else told


def slug(text: str, joint: str = "_") -> str:
    """Return a text as a part of a name: letters and digits."""
    return joint.join(re.findall(r"[a-z0-9]+", text.lower()))


def camel(name: str) -> str:
    """Return `find_book` as `findBook`."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
