"""The six tools' arguments and descriptions: the single source of truth about them.

JSON Schema (Draft 2020-12), in Korean or English. Descriptions are short on purpose: a small
model on a CPU reads all of them at every turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.errors import UsageError
from lhkit.json_values import JSON
from lhkit.lifehelper.catalog import CATALOG_LOCALES
from lhkit.tools.definition import TODAY

ID_CHARS = 64
QUERY_CHARS = 50
SENTENCE_CHARS = 80
ANCHOR_CHARS = 40
MAX_LIMIT = 10
DEFAULT_LIMIT = 5

FRAME_LEVELS = ("identity", "action", "outcome")
STATUSES = ("active", "archived", "all")
VALUES = ("done", "blank")

_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "search_catalog": {
        "ko": "바라는 것에 맞는 습관 프로토콜을 찾는다",
        "en": "Find habit protocols for a wish",
    },
    "query_protocol": {
        "ko": "프로토콜 하나의 단계와 앵커를 자세히 본다",
        "en": "Read one protocol in full",
    },
    "query_tracker": {
        "ko": "습관 기록, 달성률, 연속 일수를 본다",
        "en": "Read tracker entries, done-rate and streak",
    },
    "log_tracker_entry": {
        "ko": "습관의 하루 기록을 저장한다",
        "en": "Save a habit's entry for a day",
    },
    "list_habits": {
        "ko": "사용자의 습관 목록을 본다",
        "en": "List the user's habits",
    },
    "add_habit": {
        "ko": "프로토콜을 새 습관으로 추가한다",
        "en": "Add a protocol as a new habit",
    },
}

_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "query": {"ko": "찾을 말", "en": "words to find"},
    "protocol_id": {"ko": "search_catalog가 준 id", "en": "id from search_catalog"},
    "habit_id": {"ko": "list_habits가 준 id", "en": "id from list_habits"},
    "date": {"ko": "YYYY-MM-DD, 없으면 오늘", "en": "YYYY-MM-DD, default today"},
    "value": {"ko": "done=했음, blank=공란", "en": "done, or blank = not done"},
    "from": {"ko": "시작일 YYYY-MM-DD", "en": "first day YYYY-MM-DD"},
    "to": {"ko": "끝일 YYYY-MM-DD", "en": "last day YYYY-MM-DD"},
    "frame_level": {"ko": "정체성, 행동, 결과", "en": "kind of sentence"},
    "framed_text": {"ko": "'나는 …한다' 긍정문", "en": "positive sentence: I …"},
    "anchor_when": {"ko": "언제 (예: 오전 7시)", "en": "when, e.g. 7 a.m."},
    "anchor_after_what": {"ko": "무엇을 한 뒤 (예: 양치)", "en": "after what, e.g. lunch"},
}


_IMPLIED: Mapping[str, Mapping[str, JSON]] = {"log_tracker_entry": {"date": TODAY}}
"""What the handlers fill in where the schemas, which the model reads, have no default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolText:
    """What the model is told of one tool, and what it means to leave out an argument."""

    description: str
    parameters: Mapping[str, Any]
    implied: Mapping[str, JSON]


def tool_texts(categories: Sequence[str], locale: str) -> Mapping[str, ToolText]:
    """Return the six tools by name, in the order in which the model sees them.

    Args:
        categories: the values that `search_catalog` takes for `category`.
        locale: `ko` or `en`.

    Raises:
        UsageError: if there are no descriptions in that locale.
    """
    if locale not in CATALOG_LOCALES:
        raise UsageError(f"no tool texts for locale {locale!r}: choose one of {CATALOG_LOCALES}")
    schemas = {
        "search_catalog": _object(_search_arguments(categories, locale)),
        "query_protocol": _object(
            {"protocol_id": _text("protocol_id", locale, ID_CHARS)}, "protocol_id"
        ),
        "query_tracker": _object(_query_tracker_arguments(locale)),
        "log_tracker_entry": _object(_log_arguments(locale), "habit_id", "value"),
        "list_habits": _object({"status": _choice(STATUSES, default="active")}),
        "add_habit": _object(
            _add_habit_arguments(locale), "protocol_id", "frame_level", "framed_text"
        ),
    }
    return {
        name: ToolText(
            description=_DESCRIPTIONS[name][locale],
            parameters=schema,
            implied=_IMPLIED.get(name, {}),
        )
        for name, schema in schemas.items()
    }


def _search_arguments(categories: Sequence[str], locale: str) -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    return {
        "query": _text("query", locale, QUERY_CHARS, min_chars=0),
        "category": _choice(categories),
        "limit": limit,
    }


def _query_tracker_arguments(locale: str) -> dict[str, Any]:
    return {
        "habit_id": _text("habit_id", locale, ID_CHARS),
        "from": _date("from", locale),
        "to": _date("to", locale),
    }


def _log_arguments(locale: str) -> dict[str, Any]:
    return {
        "habit_id": _text("habit_id", locale, ID_CHARS),
        "value": {**_choice(VALUES), "description": _ARGUMENTS["value"][locale]},
        "date": _date("date", locale),
    }


def _add_habit_arguments(locale: str) -> dict[str, Any]:
    frame = {**_choice(FRAME_LEVELS), "description": _ARGUMENTS["frame_level"][locale]}
    anchors = ("anchor_when", "anchor_after_what")
    return {
        "protocol_id": _text("protocol_id", locale, ID_CHARS),
        "frame_level": frame,
        "framed_text": _text("framed_text", locale, SENTENCE_CHARS),
        **{name: _text(name, locale, ANCHOR_CHARS, min_chars=0) for name in anchors},
    }


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return {**schema, "required": list(required)} if required else schema


def _text(name: str, locale: str, max_chars: int, *, min_chars: int = 1) -> dict[str, Any]:
    bounds = {"minLength": min_chars} if min_chars else {}
    description = _ARGUMENTS[name][locale]
    return {"type": "string", "description": description, **bounds, "maxLength": max_chars}


def _date(name: str, locale: str) -> dict[str, Any]:
    return {
        "type": "string",
        "description": _ARGUMENTS[name][locale],
        "pattern": r"^\d{4}-\d{2}-\d{2}$",
        "maxLength": 10,
    }


def _choice(values: Sequence[str], *, default: str | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "enum": list(values)}
    return schema if default is None else {**schema, "default": default}
