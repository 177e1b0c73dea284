"""Static checks of scenarios, which run nothing, and the codes of all checks of lint."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from lhkit.base.json_values import shown
from lhkit.base.locales import Catalog
from lhkit.base.schema import KnownKeys, spelling
from lhkit.harness.scenarios.issues import Path, did_you_mean, format_path
from lhkit.harness.scenarios.loader import Origin
from lhkit.harness.scenarios.matchers import MATCHER_KEYS, ArgumentSet, Matches, alternatives
from lhkit.harness.scenarios.relative_dates import resolve_dates
from lhkit.harness.scenarios.scenario import (
    EditAnswer,
    ExpectedCall,
    ExpectedReply,
    ForbiddenCall,
    Scenario,
    Turn,
)
from lhkit.harness.scenarios.values import is_found
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import value_issue


class Level(StrEnum):
    """Severity of a finding: a scenario with an error is not usable."""

    ERROR = "error"
    WARNING = "warning"


LEVELS: Mapping[str, Level] = {
    "file": Level.ERROR,  # the loader refuses it, such as invalid YAML
    "world": Level.ERROR,  # the initial state is invalid
    "unknown_tool": Level.ERROR,
    "unknown_argument": Level.ERROR,
    "unknown_id": Level.ERROR,  # neither in the initial state nor created by the reference calls
    "missing_argument": Level.ERROR,  # the tool requires it, so every valid call would fail
    "refused_value": Level.ERROR,  # the tool's schema refuses an expected value
    "empty_pattern": Level.ERROR,  # a regular expression that an empty text matches
    "locale": Level.ERROR,  # the user writes in another language
    "underivable": Level.ERROR,  # the reference calls cannot be derived
    "variant": Level.ERROR,  # a wording lacks a fact of the message, or the reference fails in it
    "gold": Level.ERROR,  # the reference calls fail
    "final_state": Level.ERROR,  # the reference calls do not lead to `final`
    "violation": Level.ERROR,  # the reference calls break a rule
    "broken_tool": Level.ERROR,  # a tool raises in the reference calls unexpectedly
    "silent": Level.ERROR,  # the silent model passes
    "always_call": Level.ERROR,  # the always-call model passes, with an unexpected write
    "easy": Level.WARNING,  # it passes, as its calls only read or are expected
    "not_isolated": Level.WARNING,  # no tool was called, so checks that need calls are skipped
    "unused_tool_failure": Level.WARNING,  # a `tool_failures` entry that no reference call reaches
    "unchecked_reply": Level.WARNING,  # an empty reply passes
    "echo": Level.WARNING,  # the user's own message passes as a reply
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
"""Codes of findings because of which the reference calls cannot run or do not pass."""

_VALID_RESULTS = (None, "ok", "cancelled")  # with another result, an id may be wrong on purpose
_HANGUL = re.compile(r"[가-힣]")
_LATIN = re.compile(r"[A-Za-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem and its place; `line` counts from 1, `field` is empty for a whole scenario."""

    level: Level
    code: str
    file: str
    line: int
    scenario: str
    field: str
    message: str

    def __str__(self) -> str:
        return self._line(self.level, self.message)

    def text(self, catalog: Catalog) -> str:
        """Return the finding in a language, in one line."""
        level = catalog.text(f"lint.{self.level}")
        return self._line(level, catalog.translate(self.message))

    def _line(self, level: str, message: str) -> str:
        place = f"{self.scenario}.{self.field}" if self.field else self.scenario
        return f"{self.file}:{self.line}: {level}: {place}: {message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Remark:
    """A problem within a scenario, at a path."""

    code: str
    path: Path
    message: str

    def at(self, scenario_id: str, origin: Origin) -> Finding:
        """Return the finding with its place in the file."""
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
class KnownNames:
    """Tools, ids by argument, and ids that the reference calls create."""

    registry: ToolRegistry
    ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    created_ids: Collection[str] = ()


def static_remarks(scenario: Scenario, known: KnownNames) -> Iterator[Remark]:
    """Yield problems that can be found without running the scenario."""
    yield from _locale_remarks(scenario)
    yield from _variant_remarks(scenario)
    for number, turn in enumerate(scenario.turns):
        path: Path = ("turns", number)
        unknown = {call.tool for call in turn.expect.calls if call.result == "unknown_tool"}
        for i, call in enumerate(turn.expect.calls):
            if call.result != "unknown_tool":
                yield from _call_remarks(call, (*path, "expect", "calls", i), known, scenario)
        for i, forbidden in enumerate(turn.forbid):
            yield from _call_remarks(forbidden, (*path, "forbid", i), known, scenario)
        for i, reference in enumerate(turn.gold.calls or ()):
            call_path = (*path, "gold", "calls", i)
            if reference.tool not in unknown:
                yield from _tool_remarks(reference.tool, call_path, known)
            yield from _name_remarks(reference.tool, reference.args, (*call_path, "args"), known)
        yield from _edit_remarks(turn, (*path, "confirm"), known, scenario.today)
        yield from _reply_remarks(turn, (*path, "reply"))


def _edit_remarks(
    turn: Turn, path: Path, known: KnownNames, today: date | None
) -> Iterator[Remark]:
    """Yield edits of arguments that no write of the turn has, or of values that it refuses."""
    calls = [*(c.tool for c in turn.expect.calls), *(c.tool for c in turn.gold.calls or ())]
    tools = [known.registry[name] for name in calls if name in known.registry.destructive]
    is_list = isinstance(turn.confirm, tuple)
    for i, answer in enumerate(turn.confirm if is_list else [turn.confirm]):
        for name, value in answer.edit.items() if isinstance(answer, EditAnswer) else ():
            at = (*path, *([i] if is_list else ()), "edit", name)
            with_name = [tool for tool in tools if KnownKeys.of(tool.parameters).has(name)]
            resolved = resolve_dates(value, today)
            issues = [value_issue(tool.parameters, name, resolved) for tool in with_name]
            if tools and not with_name:
                message = f"no write of the turn has an argument {name!r}"
                yield Remark("unknown_argument", at, message)
            elif value is not None and issues and all(issues):
                message = f"{with_name[0].name} refuses {name}={shown(resolved)}: {issues[0]}"
                yield Remark("refused_value", at, message)


def _call_remarks(
    call: ExpectedCall | ForbiddenCall, path: Path, known: KnownNames, scenario: Scenario
) -> Iterator[Remark]:
    """Yield problems of an expected or forbidden call, for each set of arguments."""
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
                # a forbidden call may name an id of the user's that does not exist
                if result in _VALID_RESULTS if is_expected else str(value) not in user:
                    yield from _id_remarks(name, value, (*at, name), known)


_EMPTY = "/{}/ matches an empty text: require at least one character"


def _tool_remarks(name: str, path: Path, known: KnownNames) -> Iterator[Remark]:
    if name not in known.registry:
        choices = ", ".join(known.registry)
        message = f"tool {name!r} does not exist: choose one of {choices}"
        yield Remark("unknown_tool", (*path, "tool"), message)


def _name_remarks(
    tool_name: str, args: Mapping[str, Any], path: Path, known: KnownNames
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
    tool_name: str, slots: ArgumentSet, path: Path, known: KnownNames
) -> Iterator[Remark]:
    """Yield required arguments without a matcher, except those that are misspelt."""
    tool = known.registry.get(tool_name)
    if tool is None:
        return
    declared = KnownKeys.of(tool.parameters)
    misspelt = [name for name in slots if not declared.has(spelling(name, declared.names))]
    meant = {m for u in misspelt for m in get_close_matches(u.lower(), declared.names, n=1)}
    for name in tool.parameters.get("required", ()):
        if name not in slots and name not in meant:
            message = f"{tool_name} requires {name!r}: give it a matcher"
            yield Remark("missing_argument", path, message)


def _value_remarks(
    tool_name: str, name: str, value: Any, path: Path, known: KnownNames
) -> Iterator[Remark]:
    tool = known.registry.get(tool_name)
    issue = None if tool is None else value_issue(tool.parameters, name, value)
    if issue is not None:
        message = f"{tool_name} refuses {name}={shown(value)}: {issue}"
        if isinstance(value, Mapping) and len(value) == 1:  # probably a misspelt matcher
            choices = f"; matchers are {', '.join(MATCHER_KEYS)}"
            message += did_you_mean(next(iter(value)), MATCHER_KEYS) or choices
        yield Remark("refused_value", path, message)


def _id_remarks(name: str, value: Any, path: Path, known: KnownNames) -> Iterator[Remark]:
    if name in known.ids and value not in known.ids[name] and value not in known.created_ids:
        message = f"{name} {shown(value)} does not exist in the initial state"
        yield Remark("unknown_id", path, message)


def _reply_remarks(turn: Turn, path: Path) -> Iterator[Remark]:
    expected = turn.reply
    if expected.matches is not None and is_found(expected.matches, ""):
        yield Remark("empty_pattern", (*path, "matches"), _EMPTY.format(expected.matches))
    elif not reply_reasons(expected, ""):
        yield Remark(
            "unchecked_reply",
            path,
            "an empty reply passes: require text, such as with contains_any",
        )
    elif expected != ExpectedReply() and not all(
        reply_reasons(expected, text) for text in turn.texts
    ):
        yield Remark("echo", path, "the user's own message passes as a reply: require other text")


def _locale_remarks(scenario: Scenario) -> Iterator[Remark]:
    user = " ".join(turn.user for turn in scenario.turns)
    is_language = _IS_LANGUAGE.get(scenario.locale)
    if is_language is not None and not is_language(user):
        message = f"the user does not write in {scenario.locale}: correct locale or message"
        yield Remark("locale", ("turns", 0, "user"), message)
    named = re.search(r"-(ko|en)(?:-|$)", scenario.id)
    if named is not None and named[1] != scenario.locale:
        message = f"the id says {named[1]}, the locale {scenario.locale}: make them agree"
        yield Remark("locale", ("id",), message)


def _variant_remarks(scenario: Scenario) -> Iterator[Remark]:
    """Yield wordings in another language, and numbers and quotations that they lack."""
    is_language = _IS_LANGUAGE.get(scenario.locale)
    for t, turn in enumerate(scenario.turns):
        for v, text in enumerate(turn.variants):
            path: Path = ("turns", t, "variants", v)
            if is_language is not None and not is_language(text):
                message = f"it is not in {scenario.locale}: write it in the scenario's language"
                yield Remark("variant", path, message)
            facts = [fact.group() for fact in _FACT.finditer(turn.user)]
            if missing := [fact for fact in facts if fact not in text]:
                message = f"it lacks {', '.join(missing)} of `user`: keep all facts as they are"
                yield Remark("variant", path, message)


_FACT = re.compile(r'\d+|"[^"]+"|\{[^}]*\}')
"""Numbers, quotations and placeholders, which the expectations rely on."""

_IS_LANGUAGE: Mapping[str, Callable[[str], bool]] = {
    "ko": lambda user: _HANGUL.search(user) is not None,
    # a number, or a language that has no locale, is not in Korean
    "en": lambda user: (
        not _HANGUL.search(user) or len(_LATIN.findall(user)) > len(_HANGUL.findall(user))
    ),
}
