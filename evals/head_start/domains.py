"""What generated toolsets are about: words of many domains, in two languages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.harness.scenario import read_yaml

FOLDER = Path(__file__).parent
LOCALES = ("en", "ko")

Texts: TypeAlias = Mapping[str, str]
"""One meaning by language."""

_NAME = [["name", "label", "title"], "name", "이름"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of few values; `orders` are ways to ask for it, `~` is the thing that is to have it."""

    value: str
    said: Texts
    orders: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """What is known of each thing, such as its state; `names` are those a field may have.

    A number goes up to `most`, in `unit`.
    """

    names: tuple[str, ...]
    said: Texts
    choices: tuple[Choice, ...] = ()
    unit: Texts | None = None
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Things of one sort and who looks after them. `aspects` are by what they stand for."""

    key: str
    desk: Texts
    thing: Texts
    things: Texts
    counter: str
    has_article: bool
    names: tuple[Texts, ...]
    label: Aspect
    aspects: Mapping[str, Aspect]


def words_of(name: str) -> Any:
    """Return what stands in a file of this folder."""
    return read_yaml((FOLDER / name).read_text(encoding="utf-8")).value


@cache
def domains() -> tuple[Domain, ...]:
    """Return all domains."""
    return tuple(_domain(key, raw) for key, raw in words_of("domains.yaml").items())


def _domain(key: str, raw: Mapping[str, Any]) -> Domain:
    one, many, korean, counter = raw["thing"]
    aspects = {
        "kind": _choosing(raw["kind"]) if "kind" in raw else None,
        "state": _choosing(raw["state"]) if "state" in raw else None,
        "place": _placing(raw["place"]) if "place" in raw else None,
        "number": _counting(raw["number"]) if "number" in raw else None,
        "person": _plain(raw["person"]) if "person" in raw else None,
        "day": _plain(raw["day"]) if "day" in raw else None,
    }
    return Domain(
        key=key,
        desk=_texts(raw["desk"]),
        thing=_texts((one, korean)),
        things=_texts((many, korean)),
        counter=counter,
        has_article=raw.get("the", False),
        names=tuple(map(_texts, raw["names"])),
        label=_plain(raw.get("label", _NAME)),
        aspects={role: aspect for role, aspect in aspects.items() if aspect is not None},
    )


def _texts(pair: Sequence[str]) -> Texts:
    return dict(zip(LOCALES, pair, strict=True))


def _plain(raw: Sequence[Any]) -> Aspect:
    names, *said = raw
    return Aspect(names=tuple(names), said=_texts(said))


def _choosing(raw: Sequence[Any]) -> Aspect:
    names, english, korean, choices = raw
    return Aspect(
        names=tuple(names), said=_texts((english, korean)), choices=tuple(map(_choice, choices))
    )


def _choice(raw: Sequence[Any]) -> Choice:
    value, english, korean, *orders = raw
    return Choice(
        value=value,
        said=_texts((english, korean)),
        orders={
            locale: tuple(each) for locale, each in zip(LOCALES, orders or ((), ()), strict=True)
        },
    )


def _placing(raw: Sequence[Any]) -> Aspect:
    names, english, korean, places = raw
    choices = tuple(
        Choice(value=place[0], said=_texts(place), orders=dict.fromkeys(LOCALES, ()))
        for place in places
    )
    return Aspect(names=tuple(names), said=_texts((english, korean)), choices=choices)


def _counting(raw: Sequence[Any]) -> Aspect:
    names, english, korean, unit, counter, most = raw
    return Aspect(
        names=tuple(names),
        said=_texts((english, korean)),
        unit=_texts((unit, counter)),
        most=most,
    )
