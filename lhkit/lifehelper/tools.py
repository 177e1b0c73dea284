"""life-helper's six tools: schemas, handlers, summaries."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from itertools import chain, count
from typing import Any, TypeAlias, assert_never

from lhkit.errors import UsageError
from lhkit.json_values import JSON, compact
from lhkit.lifehelper.catalog import CATALOG_LOCALES, ProtocolCatalog, nearest_ids
from lhkit.lifehelper.prompts import reason
from lhkit.lifehelper.ranking import IndexRow, QueryWord, has_words, needles, query_words, ranked
from lhkit.lifehelper.rules import (
    AlreadyActive,
    Facts,
    NewHabit,
    Refusal,
    RuleLimits,
    entry_date,
    judge,
    parsed_date,
)
from lhkit.lifehelper.store import Store
from lhkit.locales import Catalog
from lhkit.tool_results import MAX_RESULT_BYTES, ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import TODAY

# Reading protocols out of a store. They are written only by `Store`, from the catalog.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCard:
    """One protocol in one language."""

    id: str
    category: str
    title: str
    summary: str
    steps: tuple[str, ...]
    anchor: str
    source: str
    url: str


_SELECT_PROTOCOL = (
    "SELECT id, category, title, summary, steps, anchor, source, url FROM protocol"
    " JOIN protocol_text ON protocol_id = id"
)


def find_protocol(store: Store, protocol_id: str, *, locale: str) -> ProtocolCard | None:
    """Return the protocol in `locale`, or None if there is no such id."""
    row = store.row(f"{_SELECT_PROTOCOL} WHERE id = ? AND locale = ?", [protocol_id, locale])
    if row is None:
        return None
    return ProtocolCard(**{**dict(row), "steps": tuple(json.loads(row["steps"]))})


def nearest_protocols(store: Store, protocol_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of protocols whose id or title resembles `protocol_id`, best first."""
    names: dict[str, list[str]] = {}
    for key, title in store.rows("SELECT protocol_id, title FROM protocol_text"):
        names.setdefault(key, []).append(title)
    return nearest_ids(protocol_id, names, n)


# The six tools' arguments and descriptions: the single source of truth about them.
#
# JSON Schema (Draft 2020-12), in Korean or English. Descriptions are short on purpose: a small
# model on a CPU reads all of them at every turn.


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


# What a person reads before a habit or an entry is written. Pure; texts come from the locales.
#
# Values are shown on one line, so that a sentence cannot imitate another line of the question.


_NUMBERED = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of the two tools that write, with the titles of `protocols`."""

    protocols: ProtocolCatalog

    def add_habit(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        """Return which protocol is added, in which frame, sentence and anchors."""
        return catalog.text(
            "summary.add_habit",
            title=self._title(args["protocol_id"], catalog.locale),
            frame=catalog.text(f"frame.{args['frame_level']}"),
            sentence=_line(args["framed_text"]),
            anchors=_anchors(args, catalog),
        )

    def log_tracker_entry(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        """Return what is saved for which habit and day."""
        return catalog.text(
            "summary.log_tracker_entry",
            habit=self._title(args["habit_id"], catalog.locale),
            date=args.get("date") or catalog.text("summary.today"),
            value=catalog.text(f"summary.{args['value']}"),
        )

    def _title(self, key: str, locale: str) -> str:
        """Return the title of a protocol or of a habit (`<protocol id>` or `<protocol id>-2`)."""
        protocol = self.protocols.get(key) or self.protocols.get(_NUMBERED.sub("", key))
        text = protocol.texts.get(locale) if protocol else None
        return text.title if text else _line(key)


def _anchors(args: Mapping[str, Any], catalog: Catalog) -> str:
    """Return the anchors that are given, each with what it is."""
    given = (
        ("when", args.get("anchor_when", "")),
        ("after_what", args.get("anchor_after_what", "")),
    )
    said = [catalog.text(f"summary.{key}", text=_line(text)) for key, text in given if _line(text)]
    return " / ".join(said) or "-"


def _line(text: str) -> str:
    return " ".join(text.split())


# The habit tracker: one entry per habit and day, and the two numbers people ask for.


DONE = "done"
BLANK = "blank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was logged for a habit on a day: `done`, or `blank` for a day left open."""

    habit_id: str
    date: date
    value: str


def find_entry(store: Store, habit_id: str, day: date) -> Entry | None:
    """Return the entry of a habit on a day."""
    return next(iter(list_entries(store, habit_id, start=day, end=day)), None)


def list_entries(
    store: Store, habit_id: str, *, start: date = date.min, end: date = date.max
) -> tuple[Entry, ...]:
    """Return the entries of a habit from `start` to `end`, both included, newest first."""
    rows = store.rows(
        "SELECT habit_id, date, value FROM tracker_entry"
        " WHERE habit_id = ? AND date BETWEEN ? AND ? ORDER BY date DESC",
        [habit_id, start.isoformat(), end.isoformat()],
    )
    return tuple(Entry(**{**dict(row), "date": date.fromisoformat(row["date"])}) for row in rows)


def put_entry(store: Store, entry: Entry) -> Entry | None:
    """Store `entry` in one transaction and return the one it replaced, if there was one.

    Raises:
        sqlite3.IntegrityError: there is no such habit.
    """
    with store.transaction():
        before = find_entry(store, entry.habit_id, entry.date)
        if before != entry:
            store.write(
                "INSERT OR REPLACE INTO tracker_entry VALUES (?, ?, ?)",
                [entry.habit_id, entry.date.isoformat(), entry.value],
            )
    return before


def done_days(entries: Iterable[Entry]) -> int:
    """Return how many of `entries` are done."""
    return sum(entry.value == DONE for entry in entries)


def done_rate(entries: Iterable[Entry]) -> float | None:
    """Return the share of `entries` that are done, 0..1; None if there are no entries."""
    values = [entry.value for entry in entries]
    return values.count(DONE) / len(values) if values else None


def current_streak(store: Store, habit_id: str, today: date) -> int:
    """Return the number of consecutive done days that end today or, if today is open, yesterday.

    A day without an entry ends a streak like a blank one; today may still be logged, so that it
    does not.
    """
    entries = list_entries(store, habit_id, end=today)
    done = {entry.date for entry in entries if entry.value == DONE}
    day = today if today in done else today - timedelta(days=1)
    length = 0
    while day - timedelta(days=length) in done:
        length += 1
    return length


# The user's habits: rows of the store as values, and the one way to add one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One habit. `title` is its protocol's, in the language that was asked for."""

    id: str
    protocol_id: str
    title: str
    status: str
    frame_level: str
    framed_text: str
    anchor_when: str | None
    anchor_after_what: str | None
    created_on: date


_SELECT_HABIT = (
    "SELECT habit.id, habit.protocol_id, coalesce(title, habit.protocol_id) AS title, status,"
    " frame_level, framed_text, anchor_when, anchor_after_what, created_on FROM habit"
    " LEFT JOIN protocol_text AS t ON t.protocol_id = habit.protocol_id AND t.locale = ?"
)


def list_habits(store: Store, *, status: str = "active", locale: str = "ko") -> tuple[Habit, ...]:
    """Return the habits of a status (`active`, `archived`, `all`), oldest first, then by id."""
    return _habits(store, "? IN ('all', status)", locale, status)


def find_habit(store: Store, habit_id: str, *, locale: str = "ko") -> Habit | None:
    """Return the habit of that id, whatever its status."""
    return next(iter(_habits(store, "habit.id = ?", locale, habit_id)), None)


def active_habit_of(store: Store, protocol_id: str, *, locale: str = "ko") -> Habit | None:
    """Return the active habit of a protocol; there is at most one."""
    condition = "habit.protocol_id = ? AND status = 'active'"
    return next(iter(_habits(store, condition, locale, protocol_id)), None)


def nearest_habits(store: Store, habit_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of active habits whose id or title resembles `habit_id`, best first."""
    names = {habit.id: [habit.title] for habit in list_habits(store)}
    return nearest_ids(habit_id, names, n)


def added_on(store: Store) -> tuple[date, ...]:
    """Return the days on which habits were added, archived ones included, oldest first."""
    rows = store.rows("SELECT created_on FROM habit ORDER BY created_on")
    return tuple(date.fromisoformat(row["created_on"]) for row in rows)


def free_habit_id(store: Store, protocol_id: str) -> str:
    """Return the id for a new habit: the protocol's, or with -2, -3, … when that is taken."""
    candidates = chain([protocol_id], (f"{protocol_id}-{number}" for number in count(2)))
    return next(each for each in candidates if find_habit(store, each) is None)


def insert_habit(store: Store, wish: NewHabit, *, created_on: date) -> str:
    """Store a new active habit, in one transaction, and return its id. Asks no rule.

    Raises:
        sqlite3.IntegrityError: the protocol is unknown or already active.
    """
    with store.transaction():
        habit_id = free_habit_id(store, wish.protocol_id)
        store.write(
            "INSERT INTO habit VALUES (?, ?, 'active', ?, ?, ?, ?, ?)",
            [
                habit_id,
                wish.protocol_id,
                wish.frame_level,
                wish.framed_text,
                wish.anchor_when,
                wish.anchor_after_what,
                created_on.isoformat(),
            ],
        )
    return habit_id


def _habits(store: Store, condition: str, locale: str, value: str) -> tuple[Habit, ...]:
    rows = store.rows(f"{_SELECT_HABIT} WHERE {condition} ORDER BY created_on, id", [locale, value])
    return tuple(
        Habit(**{**dict(row), "created_on": date.fromisoformat(row["created_on"])}) for row in rows
    )


# Finding protocols by a wish in words: SQLite FTS5 (trigram) proposes, `ranking` judges.
#
# The query is data: it is cut into words before it comes near the FTS syntax, so that quotes, `*`,
# `AND`, `NEAR` or `-` are never operators.


_FIELDS = tuple(field.name for field in fields(IndexRow))
_TRIGRAM = 3  # FTS5 cannot find anything shorter: LIKE does


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A protocol that was found, in one language."""

    id: str
    title: str
    category: str
    summary: str


def search_protocols(
    store: Store,
    *,
    query: str = "",
    category: str | None = None,
    limit: int = 5,
    locale: str = "ko",
) -> tuple[Hit, ...]:
    """Return up to `limit` protocols, best first; equal scores and no query: in order of id.

    Args:
        store: the database.
        query: words in any of the catalog's languages. A query without a word that says what is
            looked for ("추천해줘") is no condition; one of signs only finds nothing.
        category: only protocols of this category.
        limit: at most so many.
        locale: the language of the hits.
    """
    if query.strip() and not has_words(query):
        return ()
    words = query_words(query)
    ids = _ranked_ids(store, words) if words else _all_ids(store)
    hits = _hits(store, locale)
    found = (hits[key] for key in ids)
    return tuple(hit for hit in found if category in (None, hit.category))[:limit]


def _all_ids(store: Store) -> list[str]:
    return [row["id"] for row in store.rows("SELECT id FROM protocol_search ORDER BY id")]


def _ranked_ids(store: Store, words: Sequence[QueryWord]) -> list[str]:
    total = store.number("SELECT count(*) FROM protocol_search")
    return [key for key, _ in ranked(words, _candidates(store, words), total)]


def _candidates(store: Store, words: Sequence[QueryWord]) -> dict[str, IndexRow]:
    texts = sorted({needle for word in words for needle in needles(word)})
    long = [text for text in texts if len(text) >= _TRIGRAM]
    rows = [row for text in texts if len(text) < _TRIGRAM for row in _containing(store, text)]
    if long:
        phrases = " OR ".join(f'"{text}"' for text in long)
        rows += store.rows("SELECT * FROM protocol_search(?)", [phrases])
    return {row["id"]: IndexRow(**{key: row[key] for key in _FIELDS}) for row in rows}


def _containing(store: Store, text: str) -> list[sqlite3.Row]:
    return store.rows(
        "SELECT * FROM protocol_search"
        " WHERE instr(keywords || titles || labels || summaries || steps, ?)",
        [text],
    )


def _hits(store: Store, locale: str) -> dict[str, Hit]:
    rows = store.rows(
        "SELECT id, title, category, summary FROM protocol"
        " JOIN protocol_text ON protocol_id = id WHERE locale = ?",
        [locale],
    )
    return {row["id"]: Hit(**dict(row)) for row in rows}


# Results as the model gets them: compact JSON objects that fit its budget. Pure.
#
# When everything would be too large, the least needed part is left out and said so: a short answer
# is better than the encoder's "the result was left out".


BUDGET_BYTES = MAX_RESULT_BYTES - 64
"""What the data of a result may take; the rest is for the envelope."""

SEARCH_BUDGET_BYTES = 1400
"""Of a search with the default limit: it is read before the next call and should cost little."""

Payload: TypeAlias = dict[str, Any]

_SUMMARY_CHARS = (120, 60, 45, 30, 20)
_ENTRIES_SHOWN = (31, 14, 7, 3, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedHabit:
    """A habit with its entries in a range (newest first), and its current streak."""

    habit: Habit
    entries: tuple[Entry, ...]
    streak_days: int


def protocol_list(hits: Sequence[Hit]) -> Payload:
    """Return the hits of a search; summaries are cut when there are many."""
    budget_bytes = SEARCH_BUDGET_BYTES if len(hits) <= DEFAULT_LIMIT else BUDGET_BYTES
    return _fitted((_hits_payload(hits, chars) for chars in _SUMMARY_CHARS), budget_bytes)


def _hits_payload(hits: Sequence[Hit], summary_chars: int) -> Payload:
    protocols = [
        {
            "id": hit.id,
            "title": hit.title,
            "category": hit.category,
            "summary": _cut(hit.summary, summary_chars),
        }
        for hit in hits
    ]
    return {"protocols": protocols, "count": len(hits)}


def whole_protocol(card: ProtocolCard) -> Payload:
    """Return everything about one protocol."""
    return {
        "protocol": {
            "id": card.id,
            "category": card.category,
            "title": card.title,
            "summary": card.summary,
            "steps": list(card.steps),
            "anchor": card.anchor,
            "source": card.source,
            "url": card.url,
        }
    }


def habit_payload(row: Habit) -> Payload:
    """Return one habit; anchors that are absent are left out."""
    anchors = {"anchor_when": row.anchor_when, "anchor_after_what": row.anchor_after_what}
    return {
        "id": row.id,
        "title": row.title,
        "status": row.status,
        "frame_level": row.frame_level,
        "framed_text": row.framed_text,
        **{name: text for name, text in anchors.items() if text is not None},
        "created_on": row.created_on.isoformat(),
    }


def habit_list(rows: Sequence[Habit]) -> Payload:
    """Return the habits; when there are many, only id, title and status, then only the first."""
    whole: Payload = {"habits": [habit_payload(row) for row in rows], "count": len(rows)}
    shares = (len(rows) * share // 10 for share in range(10, 0, -1))
    return _fitted((whole, *(_brief_habits(rows, shown) for shown in shares)), BUDGET_BYTES)


def _brief_habits(rows: Sequence[Habit], shown: int) -> Payload:
    brief = [{"id": row.id, "title": row.title, "status": row.status} for row in rows[:shown]]
    return {"habits": brief, "count": len(rows), "left_out": "details"}


def tracker_report(tracked: Sequence[TrackedHabit]) -> Payload:
    """Return entries and numbers per habit; when there are many entries, only the newest."""
    variants = (_tracked_payload(tracked, shown) for shown in _ENTRIES_SHOWN)
    shares = (len(tracked) * share // 10 for share in range(10, 0, -1))
    return _fitted((*variants, *(_brief_report(tracked, shown) for shown in shares)), BUDGET_BYTES)


def _brief_report(tracked: Sequence[TrackedHabit], shown: int) -> Payload:
    numbers = [_numbers(each) for each in tracked[:shown]]
    return {"habits": numbers, "count": len(tracked), "left_out": "entries"}


def _tracked_payload(tracked: Sequence[TrackedHabit], shown: int) -> Payload:
    return {"habits": [_with_entries(each, shown) for each in tracked], "count": len(tracked)}


def _with_entries(tracked: TrackedHabit, shown: int) -> Payload:
    entries = {entry.date.isoformat(): entry.value for entry in tracked.entries[:shown]}
    left_out = len(tracked.entries) - len(entries)
    payload = {**_numbers(tracked), "entries": entries}
    return {**payload, "older_entries_left_out": left_out} if left_out else payload


def _numbers(tracked: TrackedHabit) -> Payload:
    """Return what would have to be counted: a small model copies better than it counts."""
    rate = done_rate(tracked.entries)
    return {
        "habit_id": tracked.habit.id,
        "title": tracked.habit.title,
        "done_days": done_days(tracked.entries),
        "logged_days": len(tracked.entries),
        "done_rate": None if rate is None else round(rate, 2),
        "streak_days": tracked.streak_days,
    }


def entry_payload(row: Entry) -> Payload:
    """Return one tracker entry."""
    return {"habit_id": row.habit_id, "date": row.date.isoformat(), "value": row.value}


def _fitted(variants: Iterable[Mapping[str, Any]], budget_bytes: int) -> Payload:
    """Return the first variant within the budget, or the last one."""
    last: Payload = {}
    for variant in variants:
        last = dict(variant)
        if len(compact(last).encode()) <= budget_bytes:
            break
    return last


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1].rstrip() + "…"


# What the six tools do: (validated arguments, `LifeHelper`) to a result for the model.
#
# Each handler is short and synchronous (it runs in the event loop's thread, which owns the store)
# and its check and its write are one transaction.


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelper:
    """What the tools work on: one conversation's dependencies.

    `now` returns the present with the user's time zone; days and weeks are those of that zone.
    `locale` is the language of titles and reasons.
    """

    store: Store
    now: Callable[[], datetime]
    locale: str = "ko"
    limits: RuleLimits = field(default_factory=RuleLimits)

    def today(self) -> date:
        """Return the user's date.

        Raises:
            ValueError: if the clock has no time zone (our bug: the user's day would be a guess).
        """
        now = self.now()
        if now.tzinfo is None:
            raise ValueError("LifeHelper.now must return a datetime with a time zone")
        return now.date()


def search_catalog(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Find protocols; nothing found is an empty list."""
    hits = search_protocols(
        deps.store,
        query=args.get("query", ""),
        category=args.get("category"),
        limit=args.get("limit", DEFAULT_LIMIT),
        locale=deps.locale,
    )
    return ToolOk(protocol_list(hits))


def query_protocol(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return one whole protocol."""
    protocol_id = args["protocol_id"]
    card = find_protocol(deps.store, protocol_id, locale=deps.locale)
    if card is None:
        refusal = Refusal(code="not_found", key="protocol_unknown", values={"id": protocol_id})
        return _refused(refusal, deps, nearest=nearest_protocols(deps.store, protocol_id))
    return ToolOk(whole_protocol(card))


def query_tracker(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return entries, done-rate and streak of one habit, or of all active ones."""
    dates = _date_range(args)
    if isinstance(dates, Refusal):
        return _refused(dates, deps)
    habits = _asked_habits(args, deps)
    if isinstance(habits, ToolErr):
        return habits
    tracked = [_tracked(habit, dates, deps) for habit in habits]
    return ToolOk({**_given_range(args), **tracker_report(tracked)})


def log_tracker_entry(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Store one entry; the same entry again changes nothing."""
    with deps.store.transaction():
        habit = find_habit(deps.store, args["habit_id"], locale=deps.locale)
        if habit is None or habit.status != "active":
            return _no_such_habit(args["habit_id"], habit, deps)
        day = entry_date(args.get("date"), deps.today())
        if isinstance(day, Refusal):
            return _refused(day, deps)
        entry = Entry(habit_id=habit.id, date=day, value=args["value"])
        before = put_entry(deps.store, entry)
    return ToolOk({"entry": entry_payload(entry), **_change(before, entry)})


def list_all_habits(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return the habits of a status, by default the active ones."""
    habits = list_habits(deps.store, status=args.get("status", "active"), locale=deps.locale)
    return ToolOk(habit_list(habits))


def add_habit(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Store a new habit if the rules allow it."""
    wish = _wish(args)
    with deps.store.transaction():
        today = deps.today()
        ruling = judge(wish, _facts(wish, deps), deps.limits, today)
        match ruling:
            case None:
                habit_id = insert_habit(deps.store, wish, created_on=today)
                return ToolOk({"habit": _stored(find_habit, habit_id, deps)})
            case AlreadyActive():
                stored = _stored(active_habit_of, wish.protocol_id, deps)
                return ToolOk({"habit": stored, "already_active": True})
            case Refusal():
                is_unknown = ruling.code == "not_found"
                nearest = nearest_protocols(deps.store, wish.protocol_id) if is_unknown else ()
                return _refused(ruling, deps, nearest=nearest)
            case _:
                assert_never(ruling)


def _wish(args: Mapping[str, Any]) -> NewHabit:
    return NewHabit(
        protocol_id=args["protocol_id"],
        frame_level=args["frame_level"],
        framed_text=args["framed_text"].strip(),
        anchor_when=args.get("anchor_when", "").strip() or None,
        anchor_after_what=args.get("anchor_after_what", "").strip() or None,
    )


def _facts(wish: NewHabit, deps: LifeHelper) -> Facts:
    return Facts(
        is_known=find_protocol(deps.store, wish.protocol_id, locale=deps.locale) is not None,
        is_active=active_habit_of(deps.store, wish.protocol_id) is not None,
        added_on=added_on(deps.store),
    )


def _stored(find: Callable[..., Habit | None], key: str, deps: LifeHelper) -> Payload:
    habit = find(deps.store, key, locale=deps.locale)
    if habit is None:
        raise AssertionError(f"{key} is in the store: the transaction is still open")
    return habit_payload(habit)


def _date_range(args: Mapping[str, Any]) -> tuple[date, date] | Refusal:
    start = parsed_date(args.get("from", date.min.isoformat()), argument="from")
    end = parsed_date(args.get("to", date.max.isoformat()), argument="to")
    if isinstance(start, Refusal):
        return start
    if isinstance(end, Refusal):
        return end
    if start > end:
        values = {"start": start.isoformat(), "end": end.isoformat()}
        return Refusal(code="invalid_date", key="range_reversed", values=values)
    return start, end


def _given_range(args: Mapping[str, Any]) -> Payload:
    return {name: args[name] for name in ("from", "to") if name in args}


def _asked_habits(args: Mapping[str, Any], deps: LifeHelper) -> tuple[Habit, ...] | ToolErr:
    if "habit_id" not in args:
        return list_habits(deps.store, locale=deps.locale)
    habit = find_habit(deps.store, args["habit_id"], locale=deps.locale)
    return (habit,) if habit else _no_such_habit(args["habit_id"], None, deps)


def _tracked(habit: Habit, dates: tuple[date, date], deps: LifeHelper) -> TrackedHabit:
    entries = list_entries(deps.store, habit.id, start=dates[0], end=dates[1])
    return TrackedHabit(
        habit=habit,
        entries=entries,
        streak_days=current_streak(deps.store, habit.id, deps.today()),
    )


def _no_such_habit(habit_id: str, habit: Habit | None, deps: LifeHelper) -> ToolErr:
    nearest = nearest_habits(deps.store, habit_id)
    key = "habit_archived" if habit else "habit_unknown" if nearest else "no_habits"
    refusal = Refusal(code="not_found", key=key, values={"id": habit_id})
    return _refused(refusal, deps, nearest=nearest)


def _change(before: Entry | None, entry: Entry) -> Payload:
    if before is None:
        return {}
    return {"already": True} if before == entry else {"previous": before.value}


def _refused(refusal: Refusal, deps: LifeHelper, *, nearest: tuple[str, ...] = ()) -> ToolErr:
    values = {**refusal.values, "nearest": ", ".join(nearest) or "-"}
    return ToolErr(refusal.code, reason(refusal.key, deps.locale, **values))
