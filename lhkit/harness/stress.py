"""The same scenarios under stress: more tools, another order, tools that break."""

import random
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.scenario import Scenario, ScriptedFault
from lhkit.json_values import JSON
from lhkit.models.base import ChatModel, ModelRequest, PerConversation, ReadsAhead
from lhkit.responses import Finished, ModelEvent, ModelIdentity
from lhkit.tool_results import ToolErr, ToolResult
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


# Stress: the same scenarios with more tools, in another order. One flag, seeded.
#
# Wraps the toolset and the model, so that nothing else of the harness knows. The label stands in
# the model's identity, so that it reaches the manifest, every record, and the content hash of every
# sample.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """What is made harder. `seed` chooses the order."""

    distractors: int = 0
    shuffle: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """The same stress in words that `parse_stress` reads; empty if there is none."""
        words = [f"distractors={self.distractors}"] if self.distractors else []
        words += ["shuffle"] if self.shuffle else []
        words += [f"seed={self.seed}"] if words and self.seed else []
        return ",".join(words)


def parse_stress(text: str) -> Stress:
    """Return what `distractors=10,shuffle,seed=3` asks for; any part may be left out.

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
    if most is None and part == "shuffle":
        return True
    if most is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number) <= most:
        return int(number)
    raise UsageError(
        f"--stress has no part {part!r}: use distractors=N (at most {MAX_DISTRACTORS}), shuffle, "
        "seed=N, with commas between them"
    )


def stressed(source: ModelSource, toolset: Toolset, stress: Stress) -> tuple[ModelSource, Toolset]:
    """Return model and toolset under `stress`; the same ones if there is none."""
    if not stress.label:
        return source, toolset

    def maker(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        if callable(source):
            return _Labelled(source(scenario, registry), stress.label)
        if isinstance(source, PerConversation):
            return _Labelled(source.conversation(), stress.label)
        return _Shared(source, stress.label)

    return maker, _with_more_tools(toolset, stress)


class _Labelled:
    """A model whose identity tells the stress."""

    def __init__(self, inner: ChatModel, label: str) -> None:
        self._inner = inner
        self.identity: ModelIdentity = replace(inner.identity, stress=label)
        self.needs_isolation = getattr(inner, "needs_isolation", False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the inner model's events."""
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    who = event.identity or self.identity  # of several servers the one it was
                    labelled = replace(who, stress=self.identity.stress)
                    yield replace(event, identity=labelled)
                else:
                    yield event

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt read, if the inner model can."""
        if isinstance(self._inner, ReadsAhead):
            await self._inner.warm(request)

    async def aclose(self) -> None:
        """Close the inner model."""
        await self._inner.aclose()


class _Shared(_Labelled):
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
