"""The same scenarios under stress: tools renamed, distractors beside them, faults in them."""

import random
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.scenario import Scenario, ScriptedFault
from lhkit.json_values import JSON
from lhkit.messages import (
    Finished,
    Message,
    ModelEvent,
    ModelIdentity,
    ToolCall,
    ToolCallMessage,
    ToolCallParsed,
    ToolErr,
    ToolResult,
)
from lhkit.models.base import ChatModel, ModelRequest, PerConversation, ReadsAhead
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Session, Toolset, ToolsetAround

# Tools that break on purpose: what a scenario lists under `faults`, played through the real path.
#
# The handler raises, and the dispatcher does with it what it does with any handler that raises. A
# call that never reaches the handler (refused, not confirmed) uses up no fault.


ModelSource: TypeAlias = ChatModel | Callable[[Scenario, ToolRegistry], ChatModel]
"""One model for all samples, or a maker of one for each (it is closed after its sample)."""


class ScriptedFaultError(Exception):
    """Raised in place of a tool's work, because the scenario says so."""


def breaking(
    registry: ToolRegistry, faults: Sequence[ScriptedFault], *, coming: Collection[str] = ()
) -> ToolRegistry:
    """Return the tools of which some fail at first; the count starts anew with every return.

    Args:
        registry: the tools.
        faults: which fail, and how often.
        coming: tools that may be registered later; they fail, too.

    Raises:
        ScenarioError: a fault names a tool that is not there; the message names the field.
    """
    for number, fault in enumerate(faults):
        if fault.tool not in registry and fault.tool not in coming:
            known = ", ".join(registry)
            raise ScenarioError(
                f"faults[{number}].tool: there is no tool {fault.tool!r}: choose one of {known}"
            )
    if not faults:
        return registry
    times = {fault.tool: fault.times for fault in faults}

    def broken(tool: ToolDefinition) -> ToolDefinition:
        count = times.get(tool.name, 0)
        return replace(tool, handler=_failing(tool.handler, count)) if count else tool

    return registry.following(broken)


def _failing(handler: Handler, times: int) -> Handler:
    left = times

    def handle(args: Mapping[str, JSON], deps: Any) -> Any:
        nonlocal left
        if left > 0:
            left -= 1
            raise ScriptedFaultError
        return handler(args, deps)

    return handle


# Tools that are offered and never the right ones: plausible, read-only, harmless.
#
# A call of one is answered with `not_applicable` and counts as surplus, also where a scenario
# tolerates reads: choosing among many tools is what they test.


NOT_APPLICABLE: Final = "not_applicable"

_FALLBACK_LOCALE = "en"

_REASON = {
    "ko": "이 도구로는 지금 부탁을 처리할 수 없습니다. 다른 도구를 쓰세요.",
    "en": "This tool cannot serve the request. Use another one.",
}

_TEXT: Mapping[str, Any] = {"type": "string", "maxLength": 80}
_NUMBER: Mapping[str, Any] = {"type": "number"}

_TABLE: tuple[tuple[str, str, str, Mapping[str, Mapping[str, Any]]], ...] = (
    ("get_weather", "도시의 날씨를 본다", "Read the weather of a city", {"city": _TEXT}),
    ("convert_unit", "값의 단위를 바꾼다", "Convert a value", {"value": _NUMBER, "unit": _TEXT}),
    ("search_recipes", "재료로 요리법을 찾는다", "Find recipes by ingredient", {"query": _TEXT}),
    ("list_reminders", "알림 목록을 본다", "List the reminders", {"status": _TEXT}),
    ("query_calendar", "하루의 일정을 본다", "Read a day's appointments", {"date": _TEXT}),
    ("search_music", "노래를 찾는다", "Find songs", {"query": _TEXT}),
    ("get_step_count", "하루의 걸음 수를 본다", "Read a day's steps", {"date": _TEXT}),
    ("translate_text", "글을 옮긴다", "Translate a text", {"text": _TEXT, "language": _TEXT}),
    ("list_alarms", "알람 목록을 본다", "List the alarms", {}),
    ("query_sleep_log", "수면 기록을 본다", "Read the sleep log", {"from": _TEXT, "to": _TEXT}),
    ("find_places", "가까운 장소를 찾는다", "Find places nearby", {"query": _TEXT}),
    ("get_exchange_rate", "환율을 본다", "Read an exchange rate", {"currency": _TEXT}),
    ("search_contacts", "연락처를 찾는다", "Find contacts", {"name": _TEXT}),
    ("read_news", "오늘의 소식을 본다", "Read today's news", {"topic": _TEXT}),
    ("list_shopping_items", "장보기 목록을 본다", "List what to buy", {}),
    ("query_medication", "약 정보를 본다", "Read about a medicine", {"name": _TEXT}),
    ("get_heart_rate", "심박수를 본다", "Read the heart rate", {"date": _TEXT}),
    ("search_videos", "운동 영상을 찾는다", "Find exercise videos", {"query": _TEXT}),
    ("list_goals", "회사의 목표를 본다", "List the goals at work", {"status": _TEXT}),
    ("count_calories", "음식의 열량을 본다", "Read a food's calories", {"food": _TEXT}),
)

MAX_DISTRACTORS: Final = len(_TABLE)


def distractors(count: int, locale: str) -> tuple[ToolDefinition, ...]:
    """Return the first `count` of them, described in `locale` (in English where we lack it)."""
    return tuple(
        ToolDefinition(
            name=name,
            description=korean if locale == "ko" else english,
            parameters={"type": "object", "properties": properties},
            handler=_Refusal(_REASON.get(locale, _REASON[_FALLBACK_LOCALE])),
        )
        for name, korean, english, properties in _TABLE[:count]
    )


def is_distractor(tool: ToolDefinition) -> bool:
    """Return True if `tool` is one of these."""
    return isinstance(tool.handler, _Refusal)


def counted_tools(registry: ToolRegistry) -> tuple[ToolDefinition, ...]:
    """Return the tools that may be the right ones: all but these."""
    return tuple(tool for tool in registry.definitions if not is_distractor(tool))


class _Refusal:
    """The handler of a distractor."""

    def __init__(self, reason: str) -> None:
        self._result = ToolErr(NOT_APPLICABLE, reason)

    def __call__(self, _args: Mapping[str, JSON], _deps: Any) -> ToolResult:
        return self._result


# Other names for tools and arguments, and the way back. Pure: values in, values out.
#
# The model is shown a disguised request and answers in the disguise; whoever dispatches, matches
# or reads a record sees the real names. What a name meant before the disguise means nothing in it.


UNSEEN = "unseen:"
"""Marks a real name that a model wrote although it was shown another one."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SUBSCHEMAS = ("if", "then", "else", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguise:
    """Which name stands for which, one to one; what is not listed keeps its name."""

    tools: Mapping[str, str]
    arguments: Mapping[str, str]

    @property
    def inverse(self) -> "Disguise":
        """The same names the other way round."""
        return Disguise(tools=_turned(self.tools), arguments=_turned(self.arguments))

    def request(self, request: ModelRequest) -> ModelRequest:
        """Return the request as the model is to see it."""
        return replace(
            request,
            tools=tuple(self.tool(each) for each in request.tools),
            instructions=self.text(request.instructions),
            messages=tuple(map(self._message, request.messages)),
        )

    def event(self, event: ModelEvent) -> ModelEvent:
        """Return what the model gave in terms of the real names; its raw text stays as it is."""
        match event:
            case ToolCallParsed(call=call):
                return replace(event, call=self.real(call))
            case Finished():
                return replace(
                    event,
                    calls=tuple(map(self.real, event.calls)),
                )
            case _:
                return event

    def tool(self, tool: ToolDefinition) -> ToolDefinition:
        """Return one tool under its other names."""
        return replace(
            tool,
            name=self.tools.get(tool.name, tool.name),
            description=self.text(tool.description),
            parameters=self._schema(tool.parameters),
        )

    def text(self, text: str) -> str:
        """Return prose with the names replaced.

        Only what is surely a name: every tool; an argument if it has an underscore, stands in
        quotes, or is followed by a bracket. An ordinary word like `date` is left alone.
        """
        return _pattern(self.tools, self.arguments).sub(self._instead, text)

    def real(self, call: ToolCall) -> ToolCall:
        """Return a call under its real names."""
        tools, arguments = _turned(self.tools), _turned(self.arguments)
        args = call.args
        if isinstance(args, Mapping):
            args = {_back(name, arguments): value for name, value in args.items()}
        return replace(call, name=_back(call.name, tools), args=args)

    def _message(self, message: Message) -> Message:
        if not isinstance(message, ToolCallMessage):
            return message
        args = message.args
        if isinstance(args, Mapping):
            args = {_forth(name, self.arguments): value for name, value in args.items()}
        return replace(
            message,
            name=_forth(message.name, self.tools),
            args=args,
            result=self._result(message.result),
        )

    def _result(self, result: ToolResult) -> ToolResult:
        if not isinstance(result, ToolErr):
            return result
        return replace(result, reason=self.text(result.reason))

    def _instead(self, found: re.Match[str]) -> str:
        name = found[0].strip("'")
        return found[0].replace(name, self.tools.get(name) or self.arguments[name])

    def _schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object schema with its own properties renamed, not those of nested ones."""
        return {key: self._keyword(key, value) for key, value in schema.items()}

    def _keyword(self, key: str, value: Any) -> Any:
        match key:
            case "properties" | "dependentSchemas":
                return {self._named(name): self._described(each) for name, each in value.items()}
            case "required":
                return [self._named(name) for name in value]
            case "dependentRequired":
                return {
                    self._named(name): [*map(self._named, all_)] for name, all_ in value.items()
                }
            case _ if key in _LISTS:
                return [self._schema(each) for each in value]
            case _ if key in _SUBSCHEMAS:
                return self._schema(value)
            case _:
                return value

    def _named(self, name: str) -> str:
        return self.arguments.get(name, name)

    def _described(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping) or "description" not in schema:
            return schema
        return {**schema, "description": self.text(schema["description"])}


def disguise(tools: Iterable[ToolDefinition], seed: int) -> Disguise:
    """Return names that say nothing: `tool_3`, `field_12`; an argument has one name everywhere."""
    known = tuple(tools)
    arguments = dict.fromkeys(name for tool in known for name in _arguments(tool))
    return Disguise(
        tools=_numbered("tool", [tool.name for tool in known], seed),
        arguments=_numbered("field", list(arguments), seed),
    )


def enlarged(names: Disguise, tools: Iterable[ToolDefinition]) -> Disguise:
    """Return names also for tools that came later: the next numbers, in the order of their coming.

    What had a name keeps it.
    """
    late = [tool for tool in tools if tool.name not in names.tools]
    if not late:
        return names
    arguments = dict.fromkeys(name for tool in late for name in _arguments(tool))
    return Disguise(
        tools=_more("tool", names.tools, [tool.name for tool in late]),
        arguments=_more("field", names.arguments, arguments),
    )


def _more(prefix: str, known: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    new = [name for name in names if name not in known]
    numbered = enumerate(new, start=len(known) + 1)
    return {**known, **{name: f"{prefix}_{number}" for number, name in numbered}}


def _arguments(tool: ToolDefinition) -> tuple[str, ...]:
    return tuple(tool.parameters.get("properties", {}))


def _numbered(prefix: str, names: list[str], seed: int) -> dict[str, str]:
    order = random.Random(f"{prefix} {seed}")
    numbers = order.sample(range(1, len(names) + 1), len(names))
    return {name: f"{prefix}_{number}" for name, number in zip(names, numbers, strict=True)}


def _turned(names: Mapping[str, str]) -> dict[str, str]:
    return {other: name for name, other in names.items()}


def _back(name: str, real: Mapping[str, str]) -> str:
    """Return the real name; one that was never shown does not count as itself."""
    if name in real:
        return real[name]
    return f"{UNSEEN}{name}" if name in real.values() else name


def _forth(name: str, other: Mapping[str, str]) -> str:
    return name.removeprefix(UNSEEN) if name.startswith(UNSEEN) else other.get(name, name)


def _pattern(tools: Mapping[str, str], arguments: Mapping[str, str]) -> re.Pattern[str]:
    names = sorted((*tools, *arguments), key=len, reverse=True)  # `get-item-list` is no `get-item`
    sure = [re.escape(name) for name in names if "_" in name or name in tools]
    words = [re.escape(name) for name in arguments if "_" not in name]
    parts = [rf"(?<![A-Za-z0-9_])(?:{'|'.join(sure)})(?![A-Za-z0-9_])"] if sure else []
    if words:
        either = "|".join(words)
        parts += [rf"'(?:{either})'", rf"(?<![A-Za-z0-9_'])(?:{either})(?=\()"]
    return re.compile("|".join(parts) or r"(?!)")


# Stress: the same scenarios with more tools, other names, another order. One flag, seeded.
#
# Wraps the toolset and the model, so that nothing else of the harness knows: dispatching,
# matching, violations and records are in the real names. The label stands in the model's identity,
# so that it reaches the manifest, every record, and the content hash of every sample.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """What is made harder. `seed` chooses the names and the order."""

    distractors: int = 0
    rename: bool = False
    shuffle: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """The same stress in words that `parse_stress` reads; empty if there is none."""
        words = [f"distractors={self.distractors}"] if self.distractors else []
        words += [name for name in ("rename", "shuffle") if getattr(self, name)]
        words += [f"seed={self.seed}"] if words and self.seed else []
        return ",".join(words)


def parse_stress(text: str) -> Stress:
    """Return what `distractors=10,rename,shuffle,seed=3` asks for; any part may be left out.

    Raises:
        UsageError: a part is unknown, twice there, or its number is out of range.
    """
    chosen: dict[str, Any] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name in chosen:
            raise UsageError(f"--stress names {name} twice: name it once")
        chosen[name] = _setting(name, number, part)
    return Stress(**chosen)


def _setting(name: str, number: str, part: str) -> Any:
    most = {"distractors": MAX_DISTRACTORS, "seed": 2**32}.get(name)
    if most is None and part in {"rename", "shuffle"}:
        return True
    if most is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number) <= most:
        return int(number)
    raise UsageError(
        f"--stress has no part {part!r}: use distractors=N (at most {MAX_DISTRACTORS}), rename, "
        "shuffle, seed=N, with commas between them"
    )


def stressed(source: ModelSource, toolset: Toolset, stress: Stress) -> tuple[ModelSource, Toolset]:
    """Return model and toolset under `stress`; the same ones if there is none.

    A maker of models (`gold_model`) knows the tools by their real names: what it says is put into
    the disguise first, and so goes the same way as a real model's words.
    """
    if not stress.label:
        return source, toolset

    def maker(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        names = _Names(registry, stress)
        if not callable(source):
            if isinstance(source, PerConversation):
                return _Disguised(source.conversation(), names.of, stress.label)
            return _Shared(source, names.of, stress.label)
        knowing = _Disguised(source(scenario, registry), names.back, stress.label)
        return _Disguised(knowing, names.of, stress.label)

    return maker, _with_more_tools(toolset, stress)


class _Names:
    """The other names of one conversation. Tools that come in it get theirs when they are shown."""

    def __init__(self, registry: ToolRegistry, stress: Stress) -> None:
        in_order = sorted(registry.definitions, key=lambda tool: tool.name)  # not as shuffled
        self._renames = stress.rename
        self._known = disguise(in_order if stress.rename else (), stress.seed)

    def of(self, request: ModelRequest) -> Disguise:
        """Return the names for a request with the real ones."""
        if self._renames:
            self._known = enlarged(self._known, request.tools)
        return self._known

    def back(self, _request: ModelRequest) -> Disguise:
        """Return the way back from a request in the disguise."""
        return self._known.inverse


class _Disguised:
    """A model that sees other names than the application: those that `names` gives a request."""

    def __init__(
        self, inner: ChatModel, names: Callable[[ModelRequest], Disguise], label: str
    ) -> None:
        self._inner = inner
        self._names = names
        self.identity: ModelIdentity = replace(inner.identity, stress=label)
        self.needs_isolation = getattr(inner, "needs_isolation", False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the inner model's events, in the real names."""
        names = self._names(request)
        async with aclosing(self._inner.stream(names.request(request))) as events:
            async for event in events:
                told = names.event(event)
                if isinstance(told, Finished):
                    who = told.identity or self.identity  # of several servers the one it was
                    told = replace(told, identity=replace(who, stress=self.identity.stress))
                yield told

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt read in the disguise, if the inner model can."""
        if isinstance(self._inner, ReadsAhead):
            await self._inner.warm(self._names(request).request(request))

    async def aclose(self) -> None:
        """Close the inner model."""
        await self._inner.aclose()


class _Shared(_Disguised):
    """The same over a model that other samples use too."""

    async def aclose(self) -> None:
        """Leave the model open: it is not ours."""


def _with_more_tools(toolset: Toolset, stress: Stress) -> Toolset:
    """Return a toolset that opens the same worlds with more tools, in another order."""
    known: dict[str, tuple[ToolRegistry, ToolRegistry]] = {}

    def registry(session: Session, locale: str) -> ToolRegistry:
        real = session.registry
        if locale not in known or known[locale][0] is not real:
            known[locale] = (real, _enlarged(real, locale, stress))
        return known[locale][1]

    return ToolsetAround(inner=toolset, registry=registry)


def _enlarged(real: ToolRegistry, locale: str, stress: Stress) -> ToolRegistry:
    added = distractors(stress.distractors, locale)
    taken = [tool.name for tool in added if tool.name in real]
    if taken:
        raise UsageError(f"--stress: there already is a tool {taken[0]!r}: use fewer distractors")
    tools = [*real.definitions, *added]
    if stress.shuffle:
        random.Random(f"order {stress.seed}").shuffle(tools)
    enlarged = ToolRegistry(tools)
    enlarged.follow(real)
    return enlarged
