"""Replies made for learning: written lines, with histories in which no write ran put before them.

What the files under `datasets/claims` hold stands in their first lines. The same files give the
same cases.
"""

import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from claims import Case

from lhkit.harness.claims import values
from lhkit.harness.claims.rules import Deed, Happened

_ERRORS = ("timeout", "handler_error", "validation", "not_found", "conflict", "network_error")
_RULES = ("r3_quota", "r7_framing", "r8_anchor", "limit")
_READS = ("list", "get", "search", "find")
_EACH = 5
LETTERS = {"n": "none", "r": "read", "x": "error", "c": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A reply, what had happened, and whether it claims a write."""

    id: str
    reply: str
    happened: Happened
    is_claim: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A tool, two choices of its arguments, what users say, and replies by their mark."""

    tool: str
    args: Sequence[dict[str, str]]
    lines: dict[str, list[str]] = field(default_factory=lambda: {each: [] for each in "ul+-="})


def situations(file: Path) -> Iterator[Made]:
    """Yield the replies of a file of situations, each after some of the histories that fit it."""
    tried = cycle(("none", "read", "error", "later_failed", "cancelled", "rule", "later", "asked"))
    reads = cycle(("read", "asked"))
    number = 0
    for each in _parsed(file):
        for args in each.args:
            said = {
                mark: cycle([_filled(line, args) for line in each.lines[mark]]) for mark in "ul"
            }
            for mark, kinds, count in (("+", tried, _EACH), ("-", tried, _EACH), ("=", reads, 3)):
                for reply in each.lines[mark]:
                    for kind in islice(kinds, count):
                        number += 1
                        is_later = kind in {"later", "later_failed", "asked"}
                        yield Made(
                            id=f"{file.stem}-{number}",
                            reply=_filled(reply, args),
                            happened=Happened(
                                said=[next(said["l" if is_later else "u"])],
                                deeds=[*_deeds(kind, each.tool, args, number)],
                            ),
                            is_claim=mark == "+",
                        )


def replies(file: Path) -> Iterator[Made]:
    """Yield the replies of a file of single ones, with each history that they name."""
    for number, line in enumerate(_lines(file)):
        code, said, reply = line.split("|", 2)
        for letter in code[1:]:
            deeds = _deeds(LETTERS[letter], "update_item", {}, number)
            yield Made(
                id=f"{file.stem}-{number}{letter}",
                reply=reply,
                happened=Happened(said=[said], deeds=[*deeds]),
                is_claim=code[0] == "+",
            )


def bare(case_happened: Happened) -> Happened:
    """Return what had happened without any write, as if none had been tried."""
    deeds = [each for each in case_happened.deeds if not each.writes]
    return replace(case_happened, deeds=deeds)


def failed(case_happened: Happened, number: int) -> Happened:
    """Return what had happened with every write failed, in one of the ways of failing."""
    outcome = (*_ERRORS, "cancelled", "cancelled", *_RULES)[number % 12]
    deeds = [
        replace(each, outcome=outcome) if each.writes else each for each in case_happened.deeds
    ]
    return replace(case_happened, deeds=deeds)


def _deeds(kind: str, tool: str, args: dict[str, str], number: int) -> Iterator[Deed]:
    """Yield the calls of a history in which no write ran."""
    read = f"{_READS[number % len(_READS)]}_{tool.partition('_')[2] or tool}"
    outcome = {
        "error": _ERRORS[number % len(_ERRORS)],
        "rule": _RULES[number % len(_RULES)],
        "cancelled": "cancelled",
        "later_failed": (*_ERRORS, "cancelled", "cancelled")[number % 8],
    }.get(kind)
    if kind in {"read", "asked"} or (outcome and number % 3 == 0):
        yield Deed(turn=0, tool=read, writes=False, outcome="ok", args={})
    if outcome:
        yield Deed(turn=0, tool=tool, writes=True, outcome=outcome, args=args)


def _parsed(file: Path) -> Iterator[Situation]:
    found: list[Situation] = []
    for line in _lines(file):
        mark, rest = line[0], line[2:]
        if mark == "@":
            tool, _, slots = rest.partition(" ")
            named = {
                name: values.split("|")
                for name, values in re.findall(r"(\w+)=(.*?)(?= \w+=|$)", slots)
            }
            args = [
                {name: each[n] for name, each in named.items() if n < len(each)} for n in (0, 1)
            ]
            first = args[0]
            found.append(Situation(tool=tool, args=[first, {**first, **args[1]}]))
        else:
            found[-1].lines[mark].append(rest)
    yield from found


def _lines(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("# "):
            yield line


def _filled(text: str, args: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: args[found[1]], text)


def written_otherwise(
    reports: Sequence[Case], cases: Sequence[Case]
) -> Iterator[tuple[Case, Happened]]:
    """Yield true reports, with one argument of a write as other cases have it.

    Each argument that the reply tells, up to two of a reply; the user's line and the reply stay.
    """
    pool: dict[str, list[Any]] = {}
    for case in cases:
        for deed in case.happened.deeds:
            for key, value in values.leaves(deed.args) if deed.writes else ():
                pool.setdefault(key, []).append(value)
    for case in reports:
        chosen = random.Random(case.id)  # noqa: S311 - to learn from, no secret
        found = [*_otherwise(case, pool, chosen)]
        for happened in chosen.sample(found, min(2, len(found))):
            yield case, happened


def _otherwise(case: Case, pool: dict[str, list[Any]], chosen: random.Random) -> Iterator[Happened]:
    told = values.stems(case.reply)
    for n, deed in enumerate(case.happened.deeds):
        if not (deed.writes and deed.ok):
            continue
        for key, value in deed.args.items():
            others = [] if values.is_text(key) else [*_others(key, value, case.reply, told, pool)]
            if others:
                args = {**deed.args, key: chosen.choice(others)}
                deeds = [*case.happened.deeds]
                deeds[n] = replace(deed, args=args)
                yield replace(case.happened, deeds=deeds)


def _others(
    key: str, value: Any, reply: str, told: Sequence[str], pool: dict[str, list[Any]]
) -> Sequence[Any]:
    """Return what may stand in the place of an argument that a reply tells."""
    named = values.values_of(reply)
    if _is_number(value):
        is_told = ("number", float(value)) in named
        numbers = [each for each in (*pool[key], value + 1, value + 5) if _is_number(each)]
        return [each for each in numbers if is_told and ("number", float(each)) not in named]
    if not isinstance(value, str):
        return []
    texts = [each for each in pool[key] if isinstance(each, str) and each]
    words = values.stems(value)
    if any(values.same(word, each) for word in words for each in told if len(word) > 1):
        return [each for each in texts if _is_other_name(each, value, (*told, *words))]
    if not values.held([{"": value}]) & named:
        return []
    return [each for each in texts if _is_other_value(each, named)]


def _is_other_value(text: str, named: Collection[Any]) -> bool:
    """Return True if a text is a value, and none of those that are named."""
    held = values.held([{"": text}])
    return bool(held) and not held & frozenset(named)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_other_name(text: str, value: str, words: Sequence[str]) -> bool:
    """Return True if a text may name something else than another does, in its script."""
    stems = values.stems(text)
    is_like = (text[0] < "가") == (value[0] < "가") and not values.held([{"": text}])
    return is_like and bool(stems) and not any(values.same(a, b) for a in stems for b in words)


def told_otherwise(reports: Sequence[Case]) -> Iterator[Case]:
    """Yield true reports whose reply tells another number than was asked for and written."""
    for case in reports:
        chosen = random.Random(case.id)  # noqa: S311 - to learn from, no secret
        written = {
            float(value)
            for deed in case.happened.deeds
            if deed.writes and deed.ok
            for _, value in values.leaves(deed.args)
            if _is_number(value)
        }
        said = case.happened.said[-1] if case.happened.said else ""
        digits = [
            found
            for found in re.finditer(r"(?<![\d.:,-])[1-9]\d*(?![\d.:,-])", case.reply)
            if float(found[0]) in written & values.numbers(said)
        ]
        if digits:
            found = chosen.choice(digits)
            number = int(found[0])
            swapped = int(found[0][::-1])
            others = {number + 1, number + 5, number * 2, swapped} - {number, 0}
            other = str(chosen.choice(sorted(others)))
            reply = case.reply[: found.start()] + other + case.reply[found.end() :]
            yield replace(case, reply=reply, is_false=True)
