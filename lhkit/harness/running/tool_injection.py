"""Tools that a run adds to or changes in a registry: distractors, tool failures.

A distractor is plausible, read-only and never the right tool. A call of one is answered with
`not_applicable` and counts as unexpected, also where a scenario allows extra reads.

A scripted failure (`tool_failures` of a scenario) takes the real path: the handler raises, and the
dispatcher treats it as any exception of a handler. A call that never reaches the handler (invalid,
not confirmed) uses up no failure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import JSON
from lhkit.conversation.tool_results import ToolErr, ToolResult
from lhkit.harness.scenarios.scenario import ToolFailure
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry

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


class _Refusal:
    """The handler of a distractor."""

    def __init__(self, reason: str) -> None:
        self._result = ToolErr(NOT_APPLICABLE, reason)

    def __call__(self, _args: Mapping[str, JSON], _deps: Any) -> ToolResult:
        return self._result


def distractors(count: int, locale: str) -> tuple[ToolDefinition, ...]:
    """Return the first `count` distractors, described in `locale` (or in English)."""
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
    """Return True if `tool` is a distractor."""
    return isinstance(tool.handler, _Refusal)


def real_tools(registry: ToolRegistry) -> tuple[ToolDefinition, ...]:
    """Return the tools of a registry without its distractors."""
    return tuple(tool for tool in registry.definitions if not is_distractor(tool))


class ScriptedFaultError(Exception):
    """Raised by the handler of a tool that a scenario lists under `tool_failures`."""


def inject_tool_failures(
    registry: ToolRegistry, failures: Sequence[ToolFailure], *, later: Collection[str] = ()
) -> ToolRegistry:
    """Return a registry whose listed tools fail at first, with its own counts.

    Args:
        registry: the tools.
        failures: which tools fail, and how often.
        later: tools that may be registered later; they fail, too.

    Raises:
        ScenarioError: a failure names an unknown tool; the message names the field.
    """
    for number, failure in enumerate(failures):
        if failure.tool not in registry and failure.tool not in later:
            known = ", ".join(registry)
            raise ScenarioError(
                f"tool_failures[{number}].tool: there is no tool {failure.tool!r}: choose one of "
                f"{known}"
            )
    if not failures:
        return registry
    times = {failure.tool: failure.times for failure in failures}

    def with_failures(tool: ToolDefinition) -> ToolDefinition:
        count = times.get(tool.name, 0)
        return replace(tool, handler=_failing(tool.handler, count)) if count else tool

    return registry.mapped(with_failures)


def _failing(handler: Handler, times: int) -> Handler:
    left = times

    def handle(args: Mapping[str, JSON], deps: Any) -> Any:
        nonlocal left
        if left > 0:
            left -= 1
            raise ScriptedFaultError
        return handler(args, deps)

    return handle
