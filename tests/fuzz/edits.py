"""Translate bytes into changes of a JSON value, so that a fuzzer can change a valid record."""

import copy
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_NUMBER_BYTES = 2


def edited(whole: Any, data: bytes) -> Any:
    """Return `whole` with some values replaced.

    Each line of `data` is one change: two bytes select the place, the rest is the new value as
    JSON, or as text if it is not valid JSON. An empty rest deletes the value.
    """
    value = copy.deepcopy(whole)
    for line in data.split(b"\n"):
        places = list(_places(value, ()))
        if places and len(line) >= _NUMBER_BYTES:
            number = int.from_bytes(line[:_NUMBER_BYTES], "big")
            _change(value, places[number % len(places)], line[_NUMBER_BYTES:])
    return value


def _places(value: Any, here: Place) -> Iterator[Place]:
    if here:
        yield here
    members = value.items() if isinstance(value, dict) else ()
    members = enumerate(value) if isinstance(value, list) else members
    for name, member in members:
        yield from _places(member, (*here, name))


def _change(value: Any, place: Place, new: bytes) -> None:
    for name in place[:-1]:
        value = value[name]
    if new:
        value[place[-1]] = _parse(new)
    else:
        del value[place[-1]]


def _parse(data: bytes) -> Any:
    text = data.decode("utf-8", "surrogateescape")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
