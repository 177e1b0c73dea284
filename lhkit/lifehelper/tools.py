"""The handlers of the six tools, and the payloads of their results.

Each handler takes the validated arguments and a `LifeHelper`. It is short and synchronous (it runs
in the event loop's thread, which owns the store) and checks and writes in one transaction.

Payloads fit the size limit of a tool result: the least important part of a large one is left out
and marked as such, since otherwise the encoder would replace the whole result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias, assert_never

from lhkit.base.json_values import compact
from lhkit.conversation.tool_results import MAX_RESULT_BYTES, ToolErr, ToolOk, ToolResult
from lhkit.lifehelper.habits import (
    DONE,
    Entry,
    Habit,
    current_streak,
    find_active_habit,
    find_habit,
    insert_habit,
    list_creation_dates,
    list_entries,
    list_habits,
    nearest_habits,
    put_entry,
)
from lhkit.lifehelper.prompts import refusal_message
from lhkit.lifehelper.rules import (
    HABITS_PER_WEEK,
    AlreadyActive,
    Facts,
    NewHabit,
    Refusal,
    check_habit,
    parse_date,
    parse_entry_date,
)
from lhkit.lifehelper.schemas import DEFAULT_LIMIT
from lhkit.lifehelper.search import find_protocol, nearest_protocols, search_protocols
from lhkit.lifehelper.store import Store

BUDGET_BYTES = MAX_RESULT_BYTES - 64
"""The maximum size of a payload; the rest is for the tool result's other fields."""

SEARCH_BUDGET_BYTES = 1400
"""The same for a search with the default limit, which precedes most other calls."""

_SUMMARY_CHARS = (120, 60, 45, 30, 20)
_ENTRIES_SHOWN = (31, 14, 7, 3, 1, 0)

Payload: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelper:
    """The dependencies of the tools in one conversation.

    `now` returns the current time in the user's time zone, which also defines days and weeks.
    `locale` is the language of titles and refusals. `habits_per_week` is the limit of rule R3.
    """

    store: Store
    now: Callable[[], datetime]
    locale: str
    habits_per_week: int = HABITS_PER_WEEK

    def today(self) -> date:
        """Return the current date in the user's time zone.

        Raises:
            ValueError: the clock has no time zone (an internal error).
        """
        now = self.now()
        if now.tzinfo is None:
            raise ValueError("LifeHelper.now must return a datetime with a time zone")
        return now.date()


def search_catalog(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Search protocols; without a match the list is empty."""
    hits = search_protocols(
        deps.store,
        query=args.get("query", ""),
        category=args.get("category"),
        limit=args.get("limit", DEFAULT_LIMIT),
        locale=deps.locale,
    )
    variants = (
        {
            "protocols": [{**hit, "summary": _cut(hit["summary"], chars)} for hit in hits],
            "count": len(hits),
        }
        for chars in _SUMMARY_CHARS
    )
    is_default = len(hits) <= DEFAULT_LIMIT
    return ToolOk(_first_fitting(variants, SEARCH_BUDGET_BYTES if is_default else BUDGET_BYTES))


def query_protocol(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return one protocol in full."""
    protocol_id = args["protocol_id"]
    protocol = find_protocol(deps.store, protocol_id, locale=deps.locale)
    if protocol is None:
        refusal = Refusal(code="not_found", key="protocol_unknown", values={"id": protocol_id})
        return _refused(refusal, deps, nearest=nearest_protocols(deps.store, protocol_id))
    return ToolOk({"protocol": protocol})


def query_tracker(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return entries, done-rate and streak of one habit, or of all active habits."""
    start = parse_date(args.get("from", date.min.isoformat()), argument="from")
    end = parse_date(args.get("to", date.max.isoformat()), argument="to")
    if isinstance(start, Refusal):
        return _refused(start, deps)
    if isinstance(end, Refusal):
        return _refused(end, deps)
    if start > end:
        values = {"start": start.isoformat(), "end": end.isoformat()}
        refusal = Refusal(code="invalid_date", key="range_reversed", values=values)
        return _refused(refusal, deps)
    if "habit_id" in args:
        habit = find_habit(deps.store, args["habit_id"], locale=deps.locale)
        if habit is None:
            return _habit_not_found(args["habit_id"], None, deps)
        habits: tuple[Habit, ...] = (habit,)
    else:
        habits = list_habits(deps.store, locale=deps.locale)
    tracked = [
        _TrackedHabit(
            habit=habit,
            entries=list_entries(deps.store, habit.id, start=start, end=end),
            streak_days=current_streak(deps.store, habit.id, deps.today()),
        )
        for habit in habits
    ]
    requested_range = {name: args[name] for name in ("from", "to") if name in args}
    return ToolOk({**requested_range, **_tracker_payload(tracked)})


def log_tracker_entry(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Store one entry; storing an equal entry again changes nothing."""
    with deps.store.transaction():
        habit = find_habit(deps.store, args["habit_id"], locale=deps.locale)
        if habit is None or habit.status != "active":
            return _habit_not_found(args["habit_id"], habit, deps)
        day = parse_entry_date(args.get("date"), deps.today())
        if isinstance(day, Refusal):
            return _refused(day, deps)
        entry = Entry(habit_id=habit.id, date=day, value=args["value"])
        before = put_entry(deps.store, entry)
    payload: Payload = {
        "entry": {"habit_id": entry.habit_id, "date": day.isoformat(), "value": entry.value}
    }
    if before == entry:
        payload["already"] = True
    elif before is not None:
        payload["previous"] = before.value
    return ToolOk(payload, changed=before != entry)


def list_all_habits(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return the habits of a status, by default the active ones."""
    habits = list_habits(deps.store, status=args.get("status", "active"), locale=deps.locale)
    count = len(habits)
    full: Payload = {"habits": [_habit_payload(habit) for habit in habits], "count": count}
    brief = [{"id": habit.id, "title": habit.title, "status": habit.status} for habit in habits]
    shortened = (
        {"habits": brief[:shown], "count": count, "left_out": "details"}
        for shown in _decreasing(count)
    )
    return ToolOk(_first_fitting((full, *shortened), BUDGET_BYTES))


def add_habit(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Store a new habit if the rules allow it."""
    habit = NewHabit(
        protocol_id=args["protocol_id"],
        frame_level=args["frame_level"],
        framed_text=args["framed_text"].strip(),
        anchor_when=args.get("anchor_when", "").strip() or None,
        anchor_after_what=args.get("anchor_after_what", "").strip() or None,
    )
    with deps.store.transaction():
        facts = Facts(
            is_known=find_protocol(deps.store, habit.protocol_id, locale=deps.locale) is not None,
            is_active=find_active_habit(deps.store, habit.protocol_id, locale=deps.locale)
            is not None,
            added_on=list_creation_dates(deps.store),
        )
        today = deps.today()
        decision = check_habit(habit, facts, today, habits_per_week=deps.habits_per_week)
        match decision:
            case None:
                habit_id = insert_habit(deps.store, habit, created_on=today)
                stored = find_habit(deps.store, habit_id, locale=deps.locale)
                return ToolOk({"habit": _habit_payload(stored)}, changed=True)
            case AlreadyActive():
                stored = find_active_habit(deps.store, habit.protocol_id, locale=deps.locale)
                return ToolOk(
                    {"habit": _habit_payload(stored), "already_active": True}, changed=False
                )
            case Refusal():
                is_unknown = decision.code == "not_found"
                nearest = nearest_protocols(deps.store, habit.protocol_id) if is_unknown else ()
                return _refused(decision, deps, nearest=nearest)
            case _:
                assert_never(decision)


def _habit_not_found(habit_id: str, habit: Habit | None, deps: LifeHelper) -> ToolErr:
    nearest = nearest_habits(deps.store, habit_id, locale=deps.locale)
    key = "habit_archived" if habit else "habit_unknown" if nearest else "no_habits"
    refusal = Refusal(code="not_found", key=key, values={"id": habit_id})
    return _refused(refusal, deps, nearest=nearest)


def _refused(refusal: Refusal, deps: LifeHelper, *, nearest: tuple[str, ...] = ()) -> ToolErr:
    values = {**refusal.values, "nearest": ", ".join(nearest) or "-"}
    reason = refusal_message(refusal.key, deps.locale, **values)
    return ToolErr(refusal.code, reason, changed=False)


def _habit_payload(habit: Habit | None) -> Payload:
    if habit is None:
        raise AssertionError("the transaction that stored or found the habit is still open")
    anchors = {"anchor_when": habit.anchor_when, "anchor_after_what": habit.anchor_after_what}
    return {
        "id": habit.id,
        "title": habit.title,
        "status": habit.status,
        "frame_level": habit.frame_level,
        "framed_text": habit.framed_text,
        **{name: text for name, text in anchors.items() if text is not None},
        "created_on": habit.created_on.isoformat(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrackedHabit:
    """A habit with its entries in a date range (newest first) and its current streak."""

    habit: Habit
    entries: tuple[Entry, ...]
    streak_days: int


def _tracker_payload(tracked: Sequence[_TrackedHabit]) -> Payload:
    """Return entries and counts per habit; of many entries only the newest."""
    count = len(tracked)
    variants = (
        {"habits": [_with_entries(item, shown) for item in tracked], "count": count}
        for shown in _ENTRIES_SHOWN
    )
    brief = (
        {"habits": [*map(_counts, tracked[:shown])], "count": count, "left_out": "entries"}
        for shown in _decreasing(count)
    )
    return _first_fitting((*variants, *brief), BUDGET_BYTES)


def _with_entries(tracked: _TrackedHabit, shown: int) -> Payload:
    entries = {entry.date.isoformat(): entry.value for entry in tracked.entries[:shown]}
    left_out = len(tracked.entries) - len(entries)
    payload = {**_counts(tracked), "entries": entries}
    return {**payload, "older_entries_left_out": left_out} if left_out else payload


def _counts(tracked: _TrackedHabit) -> Payload:
    """Return the counts of a habit: a small model copies better than it counts."""
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


def _decreasing(count: int) -> Iterator[int]:
    """Yield `count`, nine tenths of it, eight tenths, and so on."""
    yield from (count * tenths // 10 for tenths in range(10, 0, -1))


def _first_fitting(variants: Iterable[Mapping[str, Any]], budget_bytes: int) -> Payload:
    """Return the first variant within the budget, or the last one."""
    last: Payload = {}
    for variant in variants:
        last = dict(variant)
        if len(compact(last).encode()) <= budget_bytes:
            break
    return last


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1].rstrip() + "…"
