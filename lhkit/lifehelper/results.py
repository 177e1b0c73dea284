"""Results as the model gets them: compact JSON objects that fit its budget.

When everything would be too large, the least needed part is left out and said so: a short answer
is better than the encoder's "the result was left out".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.json_values import compact
from lhkit.lifehelper.habits import DONE, Entry, Habit
from lhkit.lifehelper.schemas import DEFAULT_LIMIT
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


def protocol_list(hits: Sequence[Mapping[str, Any]]) -> Payload:
    """Return the hits of a search; summaries are cut when there are many."""
    budget_bytes = SEARCH_BUDGET_BYTES if len(hits) <= DEFAULT_LIMIT else BUDGET_BYTES
    variants = (
        {
            "protocols": [{**hit, "summary": _cut(hit["summary"], chars)} for hit in hits],
            "count": len(hits),
        }
        for chars in _SUMMARY_CHARS
    )
    return _fitted(variants, budget_bytes)


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
    brief = [{"id": row.id, "title": row.title, "status": row.status} for row in rows]
    cut = (
        {"habits": brief[:shown], "count": len(rows), "left_out": "details"}
        for shown in _shares(len(rows))
    )
    return _fitted((whole, *cut), BUDGET_BYTES)


def tracker_report(tracked: Sequence[TrackedHabit]) -> Payload:
    """Return entries and numbers per habit; when there are many entries, only the newest."""
    count = len(tracked)
    variants = (
        {"habits": [_with_entries(each, shown) for each in tracked], "count": count}
        for shown in _ENTRIES_SHOWN
    )
    brief = (
        {"habits": [*map(_numbers, tracked[:shown])], "count": count, "left_out": "entries"}
        for shown in _shares(count)
    )
    return _fitted((*variants, *brief), BUDGET_BYTES)


def _with_entries(tracked: TrackedHabit, shown: int) -> Payload:
    entries = {entry.date.isoformat(): entry.value for entry in tracked.entries[:shown]}
    left_out = len(tracked.entries) - len(entries)
    payload = {**_numbers(tracked), "entries": entries}
    return {**payload, "older_entries_left_out": left_out} if left_out else payload


def _numbers(tracked: TrackedHabit) -> Payload:
    """Return what would have to be counted: a small model copies better than it counts."""
    logged = len(tracked.entries)
    done = sum(entry.value == DONE for entry in tracked.entries)
    return {
        "habit_id": tracked.habit.id,
        "title": tracked.habit.title,
        "done_days": done,
        "logged_days": logged,
        "done_rate": round(done / logged, 2) if logged else None,
        "streak_days": tracked.streak_days,
    }


def entry_payload(row: Entry) -> Payload:
    """Return one tracker entry."""
    return {"habit_id": row.habit_id, "date": row.date.isoformat(), "value": row.value}


def _shares(count: int) -> Iterator[int]:
    """Yield how many of so many are shown: all, nine tenths, and so on."""
    yield from (count * share // 10 for share in range(10, 0, -1))


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
