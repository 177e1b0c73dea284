"""What lint can see without playing a scenario: tools, arguments, values, ids, patterns, language.

Also the codes of all checks with their level, and a remark within one scenario as a value.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from lhkit.harness.arguments import alternatives
from lhkit.harness.comparison import is_found
from lhkit.harness.faults import Path, did_you_mean, format_path
from lhkit.harness.loader import Origin
from lhkit.harness.matchers import MATCHER_KEYS, ArgumentSet, Matches
from lhkit.harness.scenario import ExpectedCall, ExpectedReply, ForbiddenCall, Scenario, Turn
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.json_values import shown
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import KnownKeys, spelling
from lhkit.tools.validation import value_fault


class Level(StrEnum):
    """An error makes a scenario unfit; a warning asks for a second look."""

    ERROR = "error"
    WARNING = "warning"


LEVELS: Mapping[str, Level] = {
    "file": Level.ERROR,  # the reader refuses it: no YAML, unknown field, id taken, bad matcher
    "world": Level.ERROR,  # the initial state is invalid
    "unknown_tool": Level.ERROR,
    "unknown_argument": Level.ERROR,
    "unknown_id": Level.ERROR,  # neither in the data nor made by the reference
    "missing_argument": Level.ERROR,  # the tool requires it, so every valid call would be wrong
    "refused_value": Level.ERROR,  # the tool's own schema refuses what is expected
    "empty_pattern": Level.ERROR,  # a regular expression that an empty text matches
    "locale": Level.ERROR,  # the words are in another language than the scenario says
    "underivable": Level.ERROR,  # no reference calls
    "gold": Level.ERROR,  # the reference fails
    "final_state": Level.ERROR,  # the reference does not reach `final`
    "violation": Level.ERROR,  # the reference breaks a rule
    "broken_tool": Level.ERROR,  # a tool raises in the reference, and nothing says that it should
    "silent": Level.ERROR,  # the silent model passes
    "always_call": Level.ERROR,  # the always-call model passes
    "not_isolated": Level.WARNING,  # so no tool was called, and what needs calls is unchecked
    "unused_fault": Level.WARNING,  # a tool breaks that the reference never calls
    "unchecked_reply": Level.WARNING,  # a turn that may end in silence
    "echo": Level.WARNING,  # the user's own words pass as a reply
}

NO_GOLD = frozenset(
    {
        "file",
        "world",
        "unknown_tool",
        "unknown_argument",
        "missing_argument",
        "refused_value",
        "underivable",
        "gold",
        "final_state",
        "violation",
    }
)
"""Codes of what keeps the reference of a scenario from being played, or from passing."""

_GOES_THROUGH = (None, "ok", "cancelled")  # with another result, an id may be wrong on purpose
_HANGUL = re.compile(r"[가-힣]")
_LATIN = re.compile(r"[A-Za-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, and where. `line` counts from 1; `field` is empty for a whole scenario."""

    level: Level
    code: str
    file: str
    line: int
    scenario: str
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.scenario}.{self.field}" if self.field else self.scenario
        return f"{self.file}:{self.line}: {self.level}: {place}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong within one scenario, by path."""

    code: str
    path: Path
    message: str

    def at(self, scenario_id: str, origin: Origin) -> Finding:
        """Return the finding, with its place in the file."""
        return Finding(
            level=LEVELS[self.code],
            code=self.code,
            file=str(origin.file),
            line=origin.line(self.path),
            scenario=scenario_id,
            field=format_path(self.path) if self.path else "",
            message=self.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is: tools, and ids by argument; `made` are those that the reference makes."""

    registry: ToolRegistry
    ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    made: Collection[str] = ()


def written_remarks(scenario: Scenario, known: Known) -> Iterator[Remark]:
    """Yield what is wrong with a scenario as it is written."""
    yield from _locale_remarks(scenario)
    for number, turn in enumerate(scenario.turns):
        path: Path = ("turns", number)
        lawless = {call.tool for call in turn.expect.calls if call.result == "unknown_tool"}
        for i, call in enumerate(turn.expect.calls):
            if call.result != "unknown_tool":
                yield from _call_remarks(call, (*path, "expect", "calls", i), known, scenario)
        for i, forbidden in enumerate(turn.forbid):
            yield from _call_remarks(forbidden, (*path, "forbid", i), known, scenario)
        for i, given in enumerate(turn.gold.calls or ()):
            here = (*path, "gold", "calls", i)
            if given.tool not in lawless:
                yield from _tool_remarks(given.tool, here, known)
            yield from _name_remarks(given.tool, given.args, (*here, "args"), known)
        yield from _reply_remarks(turn, (*path, "reply"))


def _call_remarks(
    call: ExpectedCall | ForbiddenCall, path: Path, known: Known, scenario: Scenario
) -> Iterator[Remark]:
    """Yield what is wrong with an expected or forbidden call, in each set of its arguments."""
    yield from _tool_remarks(call.tool, path, known)
    is_expected = isinstance(call, ExpectedCall)
    result = call.result if isinstance(call, ExpectedCall) else None
    user = " ".join(turn.user for turn in scenario.turns)
    places = [(*path, "args", *at) for at, _ in alternatives(call.args)]
    for at, slots in zip(places, call.alternatives, strict=True):
        for name, matcher in slots.items() if is_expected else ():
            if isinstance(matcher, Matches) and is_found(matcher.matches, ""):
                yield Remark("empty_pattern", (*at, name), _EMPTY.format(matcher.matches))
        if result == "validation":
            continue
        yield from _name_remarks(call.tool, slots, at, known)
        if is_expected:
            yield from _missing_remarks(call.tool, slots, at, known)
        for name, matcher in slots.items():
            for value in matcher.literal_values(scenario.today):
                yield from _value_remarks(call.tool, name, value, (*at, name), known)
                # what the user names may be forbidden and not exist
                if result in _GOES_THROUGH if is_expected else str(value) not in user:
                    yield from _id_remarks(name, value, (*at, name), known)


_EMPTY = "/{}/ matches an empty text, so it asks for nothing: demand at least one character"


def _tool_remarks(name: str, path: Path, known: Known) -> Iterator[Remark]:
    if name not in known.registry:
        choices = ", ".join(known.registry)
        message = f"there is no tool {name!r}: choose one of {choices}"
        yield Remark("unknown_tool", (*path, "tool"), message)


def _name_remarks(
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


def _missing_remarks(
    tool_name: str, slots: ArgumentSet, path: Path, known: Known
) -> Iterator[Remark]:
    """Yield required arguments without a matcher, but for those that a misspelt one means."""
    tool = known.registry.get(tool_name)
    if tool is None:
        return
    declared = KnownKeys.of(tool.parameters)
    unknown = [name for name in slots if not declared.has(spelling(name, declared.names))]
    meant = {m for u in unknown for m in get_close_matches(u.lower(), declared.names, n=1)}
    for name in tool.parameters.get("required", ()):
        if name not in slots and name not in meant:
            advice = f"{tool_name} requires {name!r}: give it a matcher, or every call is wrong"
            yield Remark("missing_argument", path, advice)


def _value_remarks(
    tool_name: str, name: str, value: Any, path: Path, known: Known
) -> Iterator[Remark]:
    tool = known.registry.get(tool_name)
    fault = None if tool is None else value_fault(tool.parameters, name, value)
    if fault is not None:
        message = f"{tool_name} refuses {name}={shown(value)}: {fault}"
        if isinstance(value, Mapping) and len(value) == 1:  # a matcher that was probably meant
            every = f"; a matcher of a value is one of {', '.join(MATCHER_KEYS)}"
            message += did_you_mean(next(iter(value)), MATCHER_KEYS) or every
        yield Remark("refused_value", path, message)


def _id_remarks(name: str, value: Any, path: Path, known: Known) -> Iterator[Remark]:
    if name in known.ids and value not in known.ids[name] and value not in known.made:
        message = f"there is no {name} {shown(value)} in the data of this scenario"
        yield Remark("unknown_id", path, message)


def _reply_remarks(turn: Turn, path: Path) -> Iterator[Remark]:
    expected = turn.reply
    if expected.matches is not None and is_found(expected.matches, ""):
        yield Remark("empty_pattern", (*path, "matches"), _EMPTY.format(expected.matches))
    elif not reply_reasons(expected, ""):
        yield Remark("unchecked_reply", path, "silence passes: demand words (contains_any, …)")
    elif expected != ExpectedReply() and not reply_reasons(expected, turn.user):
        yield Remark("echo", path, "the user's own words pass as a reply: demand other words")


def _locale_remarks(scenario: Scenario) -> Iterator[Remark]:
    user = " ".join(turn.user for turn in scenario.turns)
    is_spoken = _SPEAKS.get(scenario.locale)
    if is_spoken is not None and not is_spoken(user):
        message = f"the user does not speak {scenario.locale}: correct locale or words"
        yield Remark("locale", ("turns", 0, "user"), message)
    named = re.search(r"-(ko|en)(?:-|$)", scenario.id)
    if named is not None and named[1] != scenario.locale:
        message = f"the id says {named[1]}, the locale {scenario.locale}: make them agree"
        yield Remark("locale", ("id",), message)


_SPEAKS: Mapping[str, Callable[[str], bool]] = {
    "ko": lambda user: _HANGUL.search(user) is not None,
    "en": lambda user: len(_LATIN.findall(user)) > len(_HANGUL.findall(user)),
}
