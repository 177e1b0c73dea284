"""What is wrong with a scenario, found by reading and by playing it."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.author.baselines import (
    TurnTrace,
    always_call_model,
    gold_trace,
    known_ids,
    silent_model,
    trace_model,
)
from lhkit.harness.matchers import (
    MATCHER_KEYS,
    DateIs,
    Equals,
    Matcher,
    Matches,
    OneOf,
    Path,
    Pattern,
    Slot,
    Text,
    alternatives,
    shown_path,
)
from lhkit.harness.record import CallRecord, SampleRecord, Verdict
from lhkit.harness.run import tools_that_came, tried
from lhkit.harness.scenario import (
    ExpectedCall,
    ExpectedReply,
    ForbiddenCall,
    Origin,
    Scenario,
    SourceFault,
    Sources,
    Turn,
    did_you_mean,
)
from lhkit.harness.score import ALL_REPLIES, reply_reasons
from lhkit.json_values import JSON, compact, shown
from lhkit.messages import ToolResult
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import KnownKeys, spelling
from lhkit.tools.validation import value_fault
from lhkit.toolset import (
    Session,
    Toolset,
    ToolsetAround,
    isolation_fault,
    opened,
    place_in_their_code,
)

# What lint has to say: the codes with their level, and one remark or finding as a value.


class Level(StrEnum):
    """An error makes a scenario unfit; a warning asks for a second look."""

    ERROR = "error"
    WARNING = "warning"


LEVELS: Mapping[str, Level] = {
    "file": Level.ERROR,  # the reader refuses it: no YAML, unknown field, id taken, bad matcher
    "world": Level.ERROR,  # the initial state cannot be
    "unknown_tool": Level.ERROR,
    "unknown_argument": Level.ERROR,
    "unknown_id": Level.ERROR,  # names a thing that is neither in the data nor comes to be
    "missing_argument": Level.ERROR,  # the tool requires it, so every valid call would be wrong
    "refused_value": Level.ERROR,  # the tool's own schema refuses what is expected
    "empty_pattern": Level.ERROR,  # a regular expression that an empty text matches
    "locale": Level.ERROR,  # the words are in another language than the scenario says
    "underivable": Level.ERROR,  # no gold trace
    "gold": Level.ERROR,  # the gold trace fails
    "final_state": Level.ERROR,  # the gold trace does not reach `final`
    "violation": Level.ERROR,  # the gold trace breaks a rule
    "broken_tool": Level.ERROR,  # a tool fails in the gold trace, and nothing says that it should
    "silent": Level.ERROR,  # the no-op baseline passes
    "always_call": Level.ERROR,  # the always-call baseline passes
    "not_isolated": Level.WARNING,  # so no tool was called, and what needs calls is unchecked
    "unused_fault": Level.WARNING,  # a tool breaks that the gold trace never calls
    "ambiguous_reply": Level.WARNING,  # words that a done call and a refused one share
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
"""Codes of what keeps the gold trace of a scenario from being played, or from passing."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong within one scenario, by path."""

    code: str
    path: Path
    message: str

    def at(self, scenario_id: str, origin: Origin) -> "Finding":
        """Return the finding, with its place in the file."""
        return Finding(
            level=LEVELS[self.code],
            code=self.code,
            file=str(origin.file),
            line=origin.line(self.path),
            scenario=scenario_id,
            field=shown_path(self.path) if self.path else "",
            message=self.message,
        )


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


# What can be seen without playing: tools, arguments, values, ids, patterns, language.


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


def _sets(
    call: ExpectedCall | ForbiddenCall, path: Path
) -> Iterator[tuple[Path, Mapping[str, Slot]]]:
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


def _literals(slots: Mapping[str, Slot], today: date | None) -> Iterator[tuple[str, Any]]:
    """Yield every value that a matcher names, with its argument."""
    for name, slot in slots.items():
        for value in _named(slot.matcher, today):
            yield name, value


def _named(matcher: Matcher, today: date | None) -> Iterator[Any]:
    match matcher:
        case Equals(value=value):
            yield value
        case Text(text=text):
            yield text
        case DateIs():
            yield matcher.resolved(today)
        case OneOf(options=options):
            for option in options:
                yield from _named(option, today)
        case _:
            pass


def _pattern_remarks(slots: Mapping[str, Slot], path: Path) -> Iterator[Remark]:
    for name, slot in slots.items():
        matcher = slot.matcher
        if isinstance(matcher, Matches) and matcher.pattern.is_in(""):
            yield Remark("empty_pattern", (*path, name), _EMPTY.format(matcher.pattern.text))


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
    if pattern is not None and Pattern(pattern).is_in(""):
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


# A toolset that notes where its tools raise: the dispatcher tells a model the type only.


@dataclass(frozen=True, slots=True, kw_only=True)
class NotingToolset:
    """Another toolset, whose tools note their exceptions."""

    inner: Toolset
    places: dict[str, str] = field(default_factory=dict)

    @property
    def toolset(self) -> Toolset:
        """The toolset to play in."""
        return ToolsetAround(inner=self.inner, registry=self._registry)

    def place(self, tool: str, args: Mapping[str, Any] | None) -> str:
        """Return `file:line` of the line of its author that a call failed at; perhaps none."""
        return self.places.get(compact([tool, args]), "")

    def _registry(self, session: Session, _locale: str) -> ToolRegistry:
        handlers = {name: self._watched(tool) for name, tool in session.registry.items()}
        return session.registry.with_handlers(handlers)

    def _watched(self, tool: ToolDefinition) -> Handler:
        async def handle(args: Mapping[str, JSON], deps: Any) -> ToolResult:
            try:
                returned = tool.handler(args, deps)
                return await returned if inspect.isawaitable(returned) else returned
            except (Exception, SystemExit) as error:
                self.places[compact([tool.name, args])] = place_in_their_code(error)
                raise

        return handle


# What shows when scripted models play a scenario: gold must pass, the no-op and
# the always-call baseline must not.


_STEP = re.compile(r"(\w+)|\[(\d+)\]")
_BROKEN_TOOL = "handler_error"


async def played_remarks(scenario: Scenario, toolset: Toolset) -> tuple[Remark, ...]:
    """Return all remarks on one scenario."""
    try:
        with opened(toolset, scenario.world, scenario.locale) as session:
            registry, ids = session.registry, known_ids(session)
    except UsageError as error:
        return tuple(_told("world", error, scenario.id))
    nameless = [
        Remark("unknown_tool", ("faults", i, "tool"), f"there is no tool {fault.tool!r}")
        for i, fault in enumerate(scenario.faults)
        if fault.tool not in registry and fault.tool not in scenario.called
    ]
    if nameless:
        return tuple(nameless)
    try:
        trace = gold_trace(scenario, registry)
    except UsageError as error:
        known = Known(registry=registry, ids=ids, made=_any_id(ids))
        written = tuple(written_remarks(scenario, known))
        wrong = [each.path for each in written if LEVELS[each.code] is Level.ERROR]
        told = _told("underivable", error, scenario.id)
        return (*written, *(each for each in told if not _is_beside(each.path, wrong)))
    if isolation_fault(toolset):  # playing would call tools; without it nobody knows new ids
        return tuple(written_remarks(scenario, Known(registry=registry)))
    gold = await tried(scenario, trace_model(trace, name="gold"), toolset)
    came = [each for each in tools_that_came(gold.evidence) if each.name not in registry]
    known = Known(
        registry=ToolRegistry([*registry.definitions, *came]) if came else registry,
        ids=ids,
        made=_ids_in(gold.evidence.final_state),
    )
    return (
        *written_remarks(scenario, known),
        *_gold_remarks(gold),
        *await _broken_tools(scenario, gold, trace, toolset),
        *_unused_faults(scenario, gold),
        *await _too_easy(scenario, toolset),
    )


def _is_beside(path: Path, others: Sequence[Path]) -> bool:
    """Return whether one of the others is about the same call of the same turn, or a part of it."""
    calls = ("expect", "calls")
    return any(path[2:4] == calls and path[:5] == other[:5] for other in others)


async def _too_easy(scenario: Scenario, toolset: Toolset) -> list[Remark]:
    """Return a remark for each model that must fail and does not."""
    calling = await tried(scenario, always_call_model(scenario, toolset), toolset)
    silent = await tried(scenario, silent_model(), toolset)
    remarks = []
    if silent.judgement.verdict is Verdict.PASS:
        remarks.append(Remark("silent", (), "a model that does nothing passes: demand words"))
    if calling.judgement.verdict is Verdict.PASS:
        message = "a model that calls every tool and claims success passes: forbid or exclude more"
        remarks.append(Remark("always_call", (), message))
    return remarks


def _told(code: str, error: UsageError, scenario_id: str) -> Iterator[Remark]:
    """Yield the lines of an exception, with the field that each begins with as a path."""
    for line in str(error).splitlines():
        place, _, message = line.removeprefix(f"{scenario_id}.").partition(": ")
        yield Remark(code, _path_of(place), message)


def _path_of(place: str) -> Path:
    steps = [found[0] or found[1] for found in _STEP.findall(place)]
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _gold_remarks(gold: SampleRecord) -> Iterator[Remark]:
    if gold.judgement.verdict is Verdict.INVALID:
        last = gold.judgement.reasons[-1].strip().splitlines()[-1] if gold.judgement.reasons else ""
        yield Remark("gold", (), f"the gold trace cannot be played: {last}")
        return
    turns, rest = _by_turn(gold.judgement.reasons)
    for turn, reasons in turns.items():
        yield Remark("gold", ("turns", turn), f"the gold trace fails: {'; '.join(reasons)}")
    for violation in gold.judgement.violations:
        told = f"{violation.code}: {violation.detail}"
        if violation.code == "unlisted_write" or told in turns.get(
            -1 if violation.turn is None else violation.turn, ()
        ):
            continue
        path: Path = () if violation.turn is None else ("turns", violation.turn)
        yield Remark("violation", path, f"the gold trace breaks a rule: {told}")
        rest = [reason for reason in rest if reason != told]
    yield from _end_remarks(rest, is_followed=not turns)


def _by_turn(reasons: Sequence[str]) -> tuple[dict[int, list[str]], list[str]]:
    """Return the reasons of each turn, and those of the whole conversation."""
    turns: dict[int, list[str]] = {}
    rest = []
    for reason in reasons:
        turn = re.match(r"turn (\d+): (.*)", reason, re.DOTALL)
        if turn is None:
            rest.append(reason)
        else:
            turns.setdefault(int(turn[1]), []).append(turn[2])
    return turns, rest


def _end_remarks(reasons: Sequence[str], *, is_followed: bool) -> Iterator[Remark]:
    """Yield what is wrong with all replies, and with the data at the end.

    Data that are wrong after a turn that failed are no mistake of their own, and a row that is not
    there and another that is are one.
    """
    words = [reason for reason in reasons if reason.startswith(ALL_REPLIES)]
    if words:
        told = "; ".join(reason.removeprefix(ALL_REPLIES) for reason in words)
        yield Remark("gold", ("reply",), f"the gold trace fails: {told}")
    rows = {reason: _ROW.match(reason) for reason in reasons if reason not in words}
    unmet = [(reason, row) for reason, row in rows.items() if row is not None]
    others = [reason for reason, row in rows.items() if row is None]
    if not is_followed:
        return
    for reason, row in unmet:
        told = "; ".join([reason, *others])
        path = (row[1], row[2], int(row[3]))
        yield Remark("final_state", path, f"the gold trace does not reach it: {told}")
        others = []
    for reason in others:
        yield Remark("final_state", ("final",), f"the gold trace does not reach it: {reason}")


_ROW = re.compile(r"(final|gone)\.(\w+)\[(\d+)\]: ")


async def _broken_tools(
    scenario: Scenario,
    gold: SampleRecord,
    trace: Sequence[TurnTrace],
    toolset: Toolset,
) -> list[Remark]:
    """Return the tools that fail by themselves, with the line that does; it is played again."""
    broken = list(_unexpectedly_broken(scenario, gold))
    if not broken:
        return []
    watched = NotingToolset(inner=toolset)
    await tried(scenario, trace_model(trace, name="gold"), watched.toolset)
    return [
        Remark("broken_tool", ("turns", turn), _broken(call, watched.place(call.tool, call.args)))
        for turn, call in broken
    ]


def _unexpectedly_broken(
    scenario: Scenario, gold: SampleRecord
) -> Iterator[tuple[int, CallRecord]]:
    """Yield each call whose tool fails by itself, with its turn; who expects it says so."""
    scripted = {fault.tool for fault in scenario.faults}
    for number, (turn, played) in enumerate(zip(scenario.turns, gold.evidence.turns, strict=False)):
        meant = {call.tool for call in turn.expect.calls if call.result == _BROKEN_TOOL}
        for call in played.calls:
            if call.outcome == _BROKEN_TOOL and call.tool not in scripted | meant:
                yield number, call


def _broken(call: CallRecord, place: str) -> str:
    at = f" at {place}" if place else ""
    told = f"{call.tool} fails in the gold trace ({call.result.get('reason')}){at}"
    return f"{told}: mend the tool or `world`"


def _unused_faults(scenario: Scenario, gold: SampleRecord) -> Iterator[Remark]:
    broken = {
        c.tool for turn in gold.evidence.turns for c in turn.calls if c.outcome == _BROKEN_TOOL
    }
    for i, fault in enumerate(scenario.faults):
        if fault.tool not in broken:
            message = f"the gold trace never meets it: no call of {fault.tool} gets that far"
            yield Remark("unused_fault", ("faults", i), message)


def _any_id(ids: Mapping[str, Sequence[str]]) -> frozenset[str]:
    return frozenset(each for some in ids.values() for each in some)


def _ids_in(state: Mapping[str, Sequence[Mapping[str, Any]]]) -> frozenset[str]:
    """Return the ids of all rows."""
    return frozenset(
        value
        for rows in state.values()
        for row in rows
        for name, value in row.items()
        if (name == "id" or name.endswith("_id")) and isinstance(value, str)
    )


# Are scenarios fit to be asked? Every fault with file, line, field and what to do.
#
# Two kinds of checks: `written` looks at what stands there, `played` plays scripted models through
# the real runner. Whether a scenario notices mistakes is `mutate`'s business.


__all__ = ["LEVELS", "NO_GOLD", "Finding", "Level", "lint"]


def _nobody() -> None:
    """Tell nobody that a scenario is done."""


async def lint(
    sources: Sources, toolset: Toolset, *, tick: Callable[[], object] = _nobody
) -> tuple[Finding, ...]:
    """Return what is wrong with the scenarios, by file and line.

    Args:
        sources: as read by `read_sources`; faults of the files are findings too.
        toolset: knows the tools and the data, and is what the scenarios are played in.
        tick: called after each scenario, for who shows how far it is.
    """
    found = [_of_the_file(fault) for fault in sources.faults]
    fault = isolation_fault(toolset)
    if fault and sources.scenarios:
        first = sources.scenarios[0].id
        remark = Remark("not_isolated", (), f"{', '.join(_PLAYED)} were not checked: {fault}")
        found.append(remark.at(first, sources.origins[first]))
    for scenario in sources.scenarios:
        origin = sources.origins[scenario.id]
        remarks = await played_remarks(scenario, toolset)
        found += [remark.at(scenario.id, origin) for remark in remarks]
        tick()
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))


_PLAYED = (
    "gold",
    "final_state",
    "violation",
    "broken_tool",
    "silent",
    "always_call",
    "unused_fault",
    "unknown_id",
)
"""Codes of the checks that call tools."""


def _of_the_file(fault: SourceFault) -> Finding:
    scenario, _, field = fault.place.partition(".")
    return Finding(
        level=Level.ERROR,
        code="file",
        file=str(fault.file),
        line=fault.line,
        scenario=scenario,
        field=field,
        message=fault.message,
    )
