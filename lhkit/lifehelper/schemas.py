"""The JSON Schemas (Draft 2020-12) and descriptions of the six tools, in Korean and English.

Descriptions are short on purpose: a small model on a CPU reads all of them at every turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON
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
"""Defaults of the handlers that the schemas, which the model reads, do not contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolText:
    """Description and schema of one tool, and the implied values of omitted arguments."""

    description: str
    parameters: Mapping[str, Any]
    implied: Mapping[str, JSON]


def tool_texts(categories: Sequence[str], locale: str) -> Mapping[str, ToolText]:
    """Return the texts of the six tools by name, in the order in which the model sees them.

    Args:
        categories: the values that `search_catalog` accepts for `category`.
        locale: `ko` or `en`.

    Raises:
        UsageError: the locale has no descriptions.
    """
    if locale not in CATALOG_LOCALES:
        raise UsageError(f"No tool texts for locale {locale!r}: choose one of {CATALOG_LOCALES}.")
    about = {name: {"description": texts[locale]} for name, texts in _ARGUMENTS.items()}

    def text(name: str, most: int, *, least: int = 1) -> dict[str, Any]:
        bounds = {"minLength": least} if least else {}
        return {"type": "string", **about[name], **bounds, "maxLength": most}

    def day(name: str) -> dict[str, Any]:
        pattern = r"^\d{4}-\d{2}-\d{2}$"
        return {"type": "string", **about[name], "pattern": pattern, "maxLength": 10}

    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    schemas = {
        "search_catalog": _object(
            query=text("query", QUERY_CHARS, least=0), category=_choice(categories), limit=limit
        ),
        "query_protocol": _object("protocol_id", protocol_id=text("protocol_id", ID_CHARS)),
        "query_tracker": _object(
            habit_id=text("habit_id", ID_CHARS), **{"from": day("from"), "to": day("to")}
        ),
        "log_tracker_entry": _object(
            *("habit_id", "value"),
            habit_id=text("habit_id", ID_CHARS),
            value={**_choice(VALUES), **about["value"]},
            date=day("date"),
        ),
        "list_habits": _object(status={**_choice(STATUSES), "default": "active"}),
        "add_habit": _object(
            *("protocol_id", "frame_level", "framed_text"),
            protocol_id=text("protocol_id", ID_CHARS),
            frame_level={**_choice(FRAME_LEVELS), **about["frame_level"]},
            framed_text=text("framed_text", SENTENCE_CHARS),
            anchor_when=text("anchor_when", ANCHOR_CHARS, least=0),
            anchor_after_what=text("anchor_after_what", ANCHOR_CHARS, least=0),
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


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _choice(values: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}
