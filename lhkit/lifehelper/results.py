"""Results as the model gets them: compact JSON objects that fit its budget.

When everything would be too large, the least needed part is left out and said so: a short answer
is better than the encoder's "the result was left out".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.json_values import compact
from lhkit.lifehelper.habits import Entry, Habit, done_days, done_rate
from lhkit.lifehelper.schemas import DEFAULT_LIMIT
from lhkit.lifehelper.search import Hit, ProtocolCard
from lhkit.tool_results import MAX_RESULT_BYTES

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
