"""What the six tools do: (validated arguments, `LifeHelper`) to a result for the model.

Each handler is short and synchronous (it runs in the event loop's thread, which owns the store)
and its check and its write are one transaction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, assert_never

from lhkit.lifehelper.habits import (
    Entry,
    Habit,
    active_habit_of,
    added_on,
    current_streak,
    find_habit,
    insert_habit,
    list_entries,
    list_habits,
    nearest_habits,
    put_entry,
)
from lhkit.lifehelper.prompts import reason
from lhkit.lifehelper.results import (
    Payload,
    TrackedHabit,
    entry_payload,
    habit_list,
    habit_payload,
    protocol_list,
    tracker_report,
)
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
from lhkit.lifehelper.schemas import DEFAULT_LIMIT
from lhkit.lifehelper.search import find_protocol, nearest_protocols, search_protocols
from lhkit.lifehelper.store import Store
from lhkit.tool_results import ToolErr, ToolOk, ToolResult


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
    return ToolOk({"protocol": card})


def query_tracker(args: Mapping[str, Any], deps: LifeHelper) -> ToolResult:
    """Return entries, done-rate and streak of one habit, or of all active ones."""
    dates = _date_range(args)
    if isinstance(dates, Refusal):
        return _refused(dates, deps)
    habits = _asked_habits(args, deps)
    if isinstance(habits, ToolErr):
        return habits
    tracked = [_tracked(habit, dates, deps) for habit in habits]
    given_range = {name: args[name] for name in ("from", "to") if name in args}
    return ToolOk({**given_range, **tracker_report(tracked)})


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
