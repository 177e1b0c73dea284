"""What can be seen without playing: tools, arguments, values, ids, patterns, language."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from typing import Any

from lhkit.harness.arguments import alternatives
from lhkit.harness.author.findings import Remark
from lhkit.harness.faults import Path, did_you_mean
from lhkit.harness.matchers import MATCHER_KEYS, ArgumentSet, Matches
from lhkit.harness.patterns import is_found
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.harness.turn import ExpectedCall, ExpectedReply, ForbiddenCall, Turn
from lhkit.json_values import shown
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import KnownKeys, spelling
from lhkit.tools.validation import value_fault

_GOES_THROUGH = (None, "ok", "cancelled")  # with another result, an id may be wrong on purpose
_HANGUL = re.compile(r"[가-힣]")
_LATIN = re.compile(r"[A-Za-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is: tools, and ids by argument; `made` are those that the gold trace makes."""

    registry: ToolRegistry
    ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    made: Collection[str] = ()


def written_remarks(scenario: Scenario, known: Known) -> Iterator[Remark]:
    """Yield what is wrong with a scenario as it is written."""
    yield from _locale_remarks(scenario)
    for number, turn in enumerate(scenario.turns):
        path: Path = ("turns", number)
        yield from _turn_remarks(turn, path, known, scenario)
        yield from _reply_remarks(turn, (*path, "reply"))


def _turn_remarks(turn: Turn, path: Path, known: Known, scenario: Scenario) -> Iterator[Remark]:
    lawless = {call.tool for call in turn.expect.calls if call.result == "unknown_tool"}
    for i, call in enumerate(turn.expect.calls):
        yield from _expected_remarks(call, (*path, "expect", "calls", i), known, scenario.today)
    for i, forbidden in enumerate(turn.forbid):
        yield from _forbidden_remarks(forbidden, (*path, "forbid", i), known, scenario)
    for i, given in enumerate(turn.gold.calls or ()):
        here = (*path, "gold", "calls", i)
        if given.tool not in lawless:
            yield from _tool_remarks(given.tool, here, known)
        yield from _argument_remarks(given.tool, given.args, (*here, "args"), known)


def _expected_remarks(
    call: ExpectedCall, path: Path, known: Known, today: date | None
) -> Iterator[Remark]:
    if call.result == "unknown_tool":
        return
    yield from _tool_remarks(call.tool, path, known)
    tool = known.registry.get(call.tool)
    for at, slots in _sets(call, path):
        yield from _pattern_remarks(slots, at)
        if tool is None or call.result == "validation":
            continue
        yield from _argument_remarks(call.tool, slots, at, known)
        meant = _meant_arguments(slots, KnownKeys.of(tool.parameters))
        for name in tool.parameters.get("required", ()):
            if name not in slots and name not in meant:
                advice = f"{call.tool} requires {name!r}: give it a matcher, or every call is wrong"
                yield Remark("missing_argument", at, advice)
        for name, value in _literals(slots, today):
            yield from _value_remarks(call.tool, name, value, (*at, name), known)
            if call.result in _GOES_THROUGH:
                yield from _id_remarks(name, value, (*at, name), known)


def _sets(call: ExpectedCall | ForbiddenCall, path: Path) -> Iterator[tuple[Path, ArgumentSet]]:
    """Yield each set of a call's arguments, with its place."""
    places = (at for at, _ in alternatives(call.args))
    for at, slots in zip(places, call.alternatives, strict=True):
        yield (*path, "args", *at), slots


def _forbidden_remarks(
    call: ForbiddenCall, path: Path, known: Known, scenario: Scenario
) -> Iterator[Remark]:
    yield from _tool_remarks(call.tool, path, known)
    said = " ".join(turn.user for turn in scenario.turns)
    for at, slots in _sets(call, path):
        yield from _argument_remarks(call.tool, slots, at, known)
        for name, value in _literals(slots, scenario.today):
            yield from _value_remarks(call.tool, name, value, (*at, name), known)
            if str(value) not in said:  # what the user names may be forbidden and not exist
                yield from _id_remarks(name, value, (*at, name), known)


def _tool_remarks(name: str, path: Path, known: Known) -> Iterator[Remark]:
    if name not in known.registry:
        choices = ", ".join(known.registry)
        yield Remark(
            "unknown_tool", (*path, "tool"), f"there is no tool {name!r}: choose one of {choices}"
        )


def _argument_remarks(
    tool_name: str, args: Mapping[str, Any], path: Path, known: Known
) -> Iterator[Remark]:
    tool = known.registry.get(tool_name)
    declared = KnownKeys.of(tool.parameters) if tool else None
    for name in args:
        if declared is not None and not declared.has(spelling(name, declared.names)):
            advice = did_you_mean(name, tuple(declared.names)) or (
                f": choose one of {', '.join(declared.names)}"
            )
            message = f"{tool_name} has no argument {name!r}{advice}"
            yield Remark("unknown_argument", (*path, name), message)


def _meant_arguments(names: Iterable[str], declared: KnownKeys) -> frozenset[str]:
    """Return the arguments that names which are none were probably meant to be."""
    unknown = (name for name in names if not declared.has(spelling(name, declared.names)))
    return frozenset(
        each for name in unknown for each in get_close_matches(name.lower(), declared.names, n=1)
    )


def _value_remarks(
    tool_name: str, name: str, value: Any, path: Path, known: Known
) -> Iterator[Remark]:
    tool = known.registry.get(tool_name)
    fault = None if tool is None else value_fault(tool.parameters, name, value)
    if fault is not None:
        message = f"{tool_name} refuses {name}={shown(value)}: {fault}{_meant(value)}"
        yield Remark("refused_value", path, message)


def _meant(value: Any) -> str:
    """Return which matcher a value that is refused was probably meant to be; else all there are."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    every = f"; a matcher of a value is one of {', '.join(MATCHER_KEYS)}"
    return did_you_mean(next(iter(value)), MATCHER_KEYS) or every


def _id_remarks(name: str, value: Any, path: Path, known: Known) -> Iterator[Remark]:
    if name in known.ids and value not in known.ids[name] and value not in known.made:
        message = f"there is no {name} {shown(value)} in the data of this scenario"
        yield Remark("unknown_id", path, message)


def _literals(slots: ArgumentSet, today: date | None) -> Iterator[tuple[str, Any]]:
    """Yield every value that a matcher names, with its argument."""
    for name, matcher in slots.items():
        for value in matcher.named(today):
            yield name, value


def _pattern_remarks(slots: ArgumentSet, path: Path) -> Iterator[Remark]:
    for name, matcher in slots.items():
        if isinstance(matcher, Matches) and is_found(matcher.matches, ""):
            yield Remark("empty_pattern", (*path, name), _EMPTY.format(matcher.matches))


_EMPTY = "/{}/ matches an empty text, so it asks for nothing: demand at least one character"


_CANCELLED = re.compile("cancel|취소", re.IGNORECASE)


def _reply_remarks(turn: Turn, path: Path) -> Iterator[Remark]:
    expected = turn.reply
    pattern = expected.matches
    cancelling = next((c.tool for c in turn.expect.calls if "cancel" in c.tool.casefold()), None)
    words = (*expected.contains_any, *expected.contains_all)
    if cancelling and words and pattern is None and all(map(_CANCELLED.search, words)):
        message = (
            f"{words[0]!r} is said of {cancelling} when it is done and when the person said no "
            "(`cancelled`): demand other words, or name the tool delete_… or remove_…"
        )
        yield Remark("ambiguous_reply", path, message)
    if pattern is not None and is_found(pattern, ""):
        yield Remark("empty_pattern", (*path, "matches"), _EMPTY.format(pattern))
    elif not reply_reasons(expected, ""):
        yield Remark("unchecked_reply", path, "silence passes: demand words (contains_any, …)")
    elif expected != ExpectedReply() and not reply_reasons(expected, turn.user):
        yield Remark("echo", path, "the user's own words pass as a reply: demand other words")


def _locale_remarks(scenario: Scenario) -> Iterator[Remark]:
    said = " ".join(turn.user for turn in scenario.turns)
    is_spoken = _SPEAKS.get(scenario.locale)
    if is_spoken is not None and not is_spoken(said):
        message = f"the user does not speak {scenario.locale}: correct locale or words"
        yield Remark("locale", ("turns", 0, "user"), message)
    named = re.search(r"-(ko|en)(?:-|$)", scenario.id)
    if named is not None and named[1] != scenario.locale:
        message = f"the id says {named[1]}, the locale {scenario.locale}: make them agree"
        yield Remark("locale", ("id",), message)


_SPEAKS: Mapping[str, Callable[[str], bool]] = {
    "ko": lambda said: _HANGUL.search(said) is not None,
    "en": lambda said: len(_LATIN.findall(said)) > len(_HANGUL.findall(said)),
}
