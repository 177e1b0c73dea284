"""The handlers of the six tools, called through the dispatcher as in a chat."""

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.tool_results import (
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    encode_tool_result,
)
from lhkit.lifehelper import tools
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.habits import list_entries, list_habits
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.tools import LifeHelper
from lhkit.lifehelper.world import parse_world, seed, snapshot
from tests.lifehelper.conftest import SetClock

Call = Callable[..., Awaitable[ToolResult]]
NOW = "2026-06-17T09:00:00+09:00"
WALK = {
    "protocol_id": "daily-walk",
    "frame_level": "identity",
    "framed_text": "나는 매일 걷는 사람이다",
    "anchor_after_what": "점심 식사",
}

pytestmark = pytest.mark.anyio


def data(result: ToolResult) -> Any:
    assert isinstance(result, ToolOk), result
    return result.data


def error(result: ToolResult) -> ToolErr:
    assert isinstance(result, ToolErr), result
    return result


def given_world(store: Store, *habits: dict[str, Any], tracker: Any = ()) -> None:
    seed(store, parse_world({"now": NOW, "habits": list(habits), "tracker": list(tracker)}))


async def test_search_catalog_returns_id_title_category_and_summary(call: Call) -> None:
    assert data(await call("search_catalog", query="카페인을 줄이고 싶어")) == {
        "protocols": [
            {
                "id": "caffeine-cutoff",
                "title": "오후 2시 이후 카페인 끊기",
                "category": "nutrition",
                "summary": "오후 2시 이후 카페인 끊기.",
            }
        ],
        "count": 1,
    }


async def test_search_catalog_accepts_category_and_limit(call: Call) -> None:
    result = data(await call("search_catalog", category="movement", limit=1))
    assert [protocol["id"] for protocol in result["protocols"]] == ["daily-walk"]


@pytest.mark.parametrize(
    "args",
    [{"query": "가" * 51}, {"category": "astrology"}, {"limit": 0}, {"limit": 11}, {"limit": "5"}],
)
async def test_search_catalog_refuses_arguments_out_of_bounds(
    call: Call, args: dict[str, Any]
) -> None:
    assert error(await call("search_catalog", **args)).code == "validation"


async def test_query_protocol_returns_all_fields(call: Call) -> None:
    protocol = data(await call("query_protocol", protocol_id="daily-walk"))["protocol"]
    assert protocol == {
        "id": "daily-walk",
        "category": "movement",
        "title": "매일 20분 걷기",
        "summary": "매일 20분 걷기.",
        "steps": ["천천히 해요", "천천히 해요"],
        "anchor": "천천히 해요",
        "source": "A public guide",
        "url": "https://example.org",
    }


@pytest.mark.parametrize("tool", ["query_protocol", "add_habit"])
async def test_unknown_protocol_returns_not_found_with_nearest_ids(call: Call, tool: str) -> None:
    refusal = error(await call(tool, **{**WALK, "protocol_id": "caffeine"}))
    assert refusal.code == "not_found"
    assert "caffeine-cutoff" in refusal.reason


async def test_add_habit_stores_an_approved_habit(call: Call, store: Store) -> None:
    stored = {
        "id": "daily-walk",
        "title": "매일 20분 걷기",
        "status": "active",
        "frame_level": "identity",
        "framed_text": "나는 매일 걷는 사람이다",
        "anchor_after_what": "점심 식사",
        "created_on": "2026-06-17",
    }
    assert data(await call("add_habit", **WALK)) == {"habit": stored}
    assert data(await call("list_habits"))["habits"] == [stored]
    assert snapshot(store)["habits"][0]["anchor_when"] is None


async def test_add_habit_strips_texts_and_drops_blank_anchors(call: Call, store: Store) -> None:
    await call("add_habit", **{**WALK, "framed_text": "  나는 걷는다 ", "anchor_when": "  "})
    habit = snapshot(store)["habits"][0]
    assert (habit["framed_text"], habit["anchor_when"]) == ("나는 걷는다", None)


@pytest.mark.parametrize("confirm", [None, ScriptedGate([False])])
@pytest.mark.parametrize(
    ("tool", "args"),
    [("add_habit", WALK), ("log_tracker_entry", {"habit_id": "stretch-break", "value": "done"})],
)
async def test_writing_tools_write_nothing_without_approval(
    call: Call, store: Store, tool: str, args: dict[str, Any], confirm: Any
) -> None:
    given_world(store, {"protocol_id": "stretch-break"})
    before = snapshot(store)
    assert await call(tool, confirm=confirm, **args) == ToolCancelled()
    assert snapshot(store) == before


async def test_add_habit_is_idempotent_for_an_active_protocol(call: Call, store: Store) -> None:
    await call("add_habit", **WALK)
    before = snapshot(store)
    again = data(await call("add_habit", **{**WALK, "framed_text": "나는 뛴다"}))
    assert again["already_active"] is True
    assert again["habit"]["framed_text"] == "나는 매일 걷는 사람이다"
    assert snapshot(store) == before


async def test_add_habit_accepts_an_archived_protocol(call: Call, store: Store) -> None:
    given_world(store, {"protocol_id": "daily-walk", "status": "archived"})
    assert data(await call("add_habit", **WALK))["habit"]["id"] == "daily-walk-2"


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        ({"anchor_after_what": ""}, "r8_anchor", "anchor_when"),
        ({"anchor_after_what": " \n"}, "r8_anchor", "anchor_after_what"),
        ({"framed_text": "커피를 마시지 않는다"}, "r7_framing", "않는다"),
        ({"framed_text": "   "}, "r7_framing", "framed_text"),
    ],
)
async def test_add_habit_refusal_names_what_is_accepted(
    call: Call, store: Store, change: dict[str, Any], code: str, hint: str
) -> None:
    refusal = error(await call("add_habit", **{**WALK, **change}))
    assert refusal.code == code
    assert hint in refusal.reason
    assert snapshot(store)["habits"] == []


async def test_add_habit_refuses_a_second_habit_until_next_monday(
    call: Call, store: Store, clock: Any
) -> None:
    await call("add_habit", **WALK)
    second = {**WALK, "protocol_id": "stretch-break"}
    clock.set("2026-06-21T23:59")
    refusal = error(await call("add_habit", **second))
    assert refusal.code == "r3_quota"
    assert "2026-06-22" in refusal.reason
    clock.set("2026-06-22T00:00")
    assert data(await call("add_habit", **second))["habit"]["created_on"] == "2026-06-22"
    assert len(snapshot(store)["habits"]) == 2


@pytest.mark.parametrize(
    ("handle", "args"),
    [
        (tools.add_habit, {**WALK, "protocol_id": "stretch-break"}),
        (tools.log_tracker_entry, {"habit_id": "daily-walk", "value": "done"}),
    ],
)
async def test_writing_tools_hold_the_write_lock_from_check_to_write(
    tmp_path: Path, catalog: ProtocolCatalog, handle: Any, args: dict[str, Any]
) -> None:
    path = tmp_path / "life.db"
    with Store.open(path, catalog) as store:
        given_world(store, {"protocol_id": "daily-walk"})
        other = sqlite3.connect(path, timeout=0, isolation_level=None)

        def now() -> datetime:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("DELETE FROM tracker_entry")
            return datetime.fromisoformat(NOW)

        assert isinstance(handle(args, LifeHelper(store=store, now=now, locale="ko")), ToolOk)
        other.close()


async def test_add_habit_applies_the_limit_of_deps(store: Store, clock: Any) -> None:
    deps = LifeHelper(store=store, now=clock, locale="ko", habits_per_week=2)
    for key in ("daily-walk", "stretch-break"):
        assert isinstance(tools.add_habit({**WALK, "protocol_id": key}, deps), ToolOk)
    third = tools.add_habit({**WALK, "protocol_id": "water-on-waking"}, deps)
    assert error(third).code == "r3_quota"


async def test_add_habit_uses_the_date_in_the_clocks_time_zone(call: Call, clock: Any) -> None:
    clock.set("2026-06-18T00:30")  # still the 17th in UTC
    assert data(await call("add_habit", **WALK))["habit"]["created_on"] == "2026-06-18"


async def test_today_raises_for_a_clock_without_time_zone(store: Store) -> None:
    deps = LifeHelper(store=store, now=lambda: datetime(2026, 6, 17), locale="ko")
    with pytest.raises(ValueError, match="time zone"):
        tools.add_habit(WALK, deps)


async def test_log_tracker_entry_defaults_to_today(call: Call, store: Store) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    entry = {"habit_id": "daily-walk", "date": "2026-06-17", "value": "done"}
    logged = await call("log_tracker_entry", habit_id="daily-walk", value="done")
    assert data(logged) == {"entry": entry}
    assert snapshot(store)["tracker"] == [entry]


async def test_log_tracker_entry_is_idempotent_and_replaces_values(
    call: Call, store: Store
) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    log = {"habit_id": "daily-walk", "date": "2026-06-16"}
    await call("log_tracker_entry", **log, value="done")
    again = data(await call("log_tracker_entry", **log, value="done"))
    assert again == {"entry": {**log, "value": "done"}, "already": True}
    changed = data(await call("log_tracker_entry", **log, value="blank"))
    assert changed == {"entry": {**log, "value": "blank"}, "previous": "done"}
    assert snapshot(store)["tracker"] == [{**log, "value": "blank"}]


@pytest.mark.parametrize("day", ["2026-06-18", "2026-02-30", "0000-00-00"])
async def test_log_tracker_entry_refuses_future_and_impossible_dates(
    call: Call, store: Store, day: str
) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    refusal = await call("log_tracker_entry", habit_id="daily-walk", value="done", date=day)
    assert error(refusal).code == "invalid_date"
    assert day in error(refusal).reason
    assert snapshot(store)["tracker"] == []


@pytest.mark.parametrize("day", ["어제", "2026-6-1", "20260617", "2026-06-17T00:00"])
async def test_log_tracker_entry_refuses_other_date_formats(
    call: Call, store: Store, day: str
) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    result = await call("log_tracker_entry", habit_id="daily-walk", value="done", date=day)
    assert error(result).code == "validation"


async def test_unknown_habit_returns_not_found_with_active_ids(call: Call, store: Store) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    for tool in ("log_tracker_entry", "query_tracker"):
        refusal = error(await call(tool, habit_id="walk", value="done"))
        assert refusal.code == "not_found"
        assert "daily-walk" in refusal.reason


async def test_unknown_habit_without_any_habits_suggests_add_habit(call: Call) -> None:
    refusal = error(await call("log_tracker_entry", habit_id="daily-walk", value="done"))
    assert refusal.code == "not_found"
    assert "add_habit" in refusal.reason


async def test_log_tracker_entry_refuses_an_archived_habit(call: Call, store: Store) -> None:
    given_world(
        store,
        {"protocol_id": "daily-walk", "status": "archived"},
        {"protocol_id": "daily-walk", "id": "daily-walk-2"},
    )
    refusal = error(await call("log_tracker_entry", habit_id="daily-walk", value="done"))
    assert refusal.code == "not_found"
    assert "보관" in refusal.reason
    assert "daily-walk-2" in refusal.reason
    assert snapshot(store)["tracker"] == []


async def test_query_tracker_reports_entries_rate_and_streak_per_habit(
    call: Call, store: Store
) -> None:
    values = {"2026-06-17": "done", "2026-06-16": "done", "2026-06-15": "blank"}
    given_world(
        store,
        {"protocol_id": "daily-walk", "created_on": "2026-05-01"},
        {"protocol_id": "stretch-break", "created_on": "2026-05-09"},
        {"protocol_id": "water-on-waking", "status": "archived"},
        tracker=[{"habit_id": "daily-walk", "date": d, "value": v} for d, v in values.items()],
    )
    assert data(await call("query_tracker")) == {
        "habits": [
            {
                "habit_id": "daily-walk",
                "title": "매일 20분 걷기",
                "done_days": 2,
                "logged_days": 3,
                "done_rate": 0.67,
                "streak_days": 2,
                "entries": values,
            },
            {
                "habit_id": "stretch-break",
                "title": "한 시간마다 스트레칭",
                "done_days": 0,
                "logged_days": 0,
                "done_rate": None,
                "streak_days": 0,
                "entries": {},
            },
        ],
        "count": 2,
    }


async def test_query_tracker_applies_the_range_but_not_to_the_streak(
    call: Call, store: Store
) -> None:
    days = ["2026-06-17", "2026-06-16", "2026-06-15"]
    given_world(
        store,
        {"protocol_id": "daily-walk"},
        tracker=[{"habit_id": "daily-walk", "date": day, "value": "done"} for day in days],
    )
    args = {"habit_id": "daily-walk", "from": "2026-06-15", "to": "2026-06-16"}
    report = data(await call("query_tracker", **args))
    assert (report["from"], report["to"]) == ("2026-06-15", "2026-06-16")
    assert list(report["habits"][0]["entries"]) == ["2026-06-16", "2026-06-15"]
    assert report["habits"][0]["streak_days"] == 3


@pytest.mark.parametrize(
    ("newest_first", "streak"),
    [
        ("", 0),
        ("d", 1),
        (".dd", 2),  # today is still open
        ("bdd", 2),  # today is blank so far: it ended yesterday
        ("..d", 0),
        ("ddbd", 2),
        ("dd.d", 2),
        ("b", 0),
        ("d" * 40, 40),  # over months
    ],
)
async def test_query_tracker_streak_ends_today_or_yesterday(
    call: Call, store: Store, newest_first: str, streak: int
) -> None:
    values = {"d": "done", "b": "blank"}
    today = date(2026, 6, 17)
    tracker = [
        {"habit_id": "daily-walk", "date": today - timedelta(days=back), "value": values[sign]}
        for back, sign in enumerate(newest_first)
        if sign in values
    ]
    given_world(store, {"protocol_id": "daily-walk"}, tracker=tracker)
    report = data(await call("query_tracker", habit_id="daily-walk"))
    assert report["habits"][0]["streak_days"] == streak


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["done", "blank"])), max_size=12))
def test_log_tracker_entry_keeps_one_entry_per_day(
    image: StoreImage, logged: list[tuple[int, str]]
) -> None:
    with image.fresh() as store:
        given_world(store, {"protocol_id": "daily-walk"})
        deps = LifeHelper(store=store, now=lambda: datetime.fromisoformat(NOW), locale="ko")
        days = [f"{date(2026, 6, 17) - timedelta(days=back)}" for back, _ in logged]
        for day, (_, value) in zip(days, logged, strict=True):
            args = {"habit_id": "daily-walk", "date": day, "value": value}
            assert isinstance(tools.log_tracker_entry(args, deps), ToolOk)
        rows = {row["date"]: row["value"] for row in snapshot(store)["tracker"]}
        assert rows == {day: value for day, (_, value) in zip(days, logged, strict=True)}
        assert len(snapshot(store)["tracker"]) == len(rows)


@pytest.mark.parametrize(
    "dates",
    [{"from": "2026-06-31"}, {"to": "2026-00-10"}, {"from": "2026-06-02", "to": "2026-06-01"}],
)
async def test_query_tracker_refuses_an_impossible_range(call: Call, dates: dict[str, str]) -> None:
    assert error(await call("query_tracker", **dates)).code == "invalid_date"


async def test_query_tracker_reports_an_archived_habit_by_id(call: Call, store: Store) -> None:
    given_world(store, {"protocol_id": "daily-walk", "status": "archived"})
    assert data(await call("query_tracker"))["count"] == 0
    assert data(await call("query_tracker", habit_id="daily-walk"))["count"] == 1


async def test_query_tracker_cuts_a_long_history_to_the_newest_entries(
    call: Call, store: Store
) -> None:
    days = [f"2026-{month:02}-{day:02}" for month in (3, 4, 5) for day in range(1, 31)]
    given_world(
        store,
        {"protocol_id": "daily-walk"},
        tracker=[{"habit_id": "daily-walk", "date": day, "value": "done"} for day in days],
    )
    result = await call("query_tracker", habit_id="daily-walk")
    report = data(result)["habits"][0]
    assert next(iter(report["entries"])) == "2026-05-30"
    assert len(report["entries"]) + report["older_entries_left_out"] == 90
    assert report["done_rate"] == 1.0
    assert "_truncated" not in encode_tool_result(result)


@pytest.mark.parametrize("tool", ["list_habits", "query_tracker"])
async def test_results_with_many_habits_fit_the_size_limit(
    real_image: StoreImage, real_catalog: Any, clock: Any, tool: str
) -> None:
    habits = [{"protocol_id": key, "framed_text": "가" * 80} for key in real_catalog]
    days = [f"2026-06-{day:02}" for day in range(1, 16)]
    tracker = [{"habit_id": k, "date": d, "value": "done"} for k in real_catalog for d in days]
    with real_image.fresh() as store:
        given_world(store, *habits, tracker=tracker)
        deps = LifeHelper(store=store, now=clock, locale="ko")
        handle = {"list_habits": tools.list_all_habits, "query_tracker": tools.query_tracker}
        result = handle[tool]({}, deps)
    assert "_truncated" not in encode_tool_result(result)
    assert data(result)["count"] == len(habits)
    assert 5 < len(data(result)["habits"]) < len(habits)
    assert data(result)["left_out"]


@pytest.mark.parametrize(("status", "count"), [("active", 1), ("archived", 2), ("all", 3)])
async def test_list_habits_filters_by_status(
    call: Call, store: Store, status: str, count: int
) -> None:
    given_world(
        store,
        {"protocol_id": "daily-walk"},
        {"protocol_id": "stretch-break", "status": "archived"},
        {"protocol_id": "water-on-waking", "status": "archived"},
    )
    assert data(await call("list_habits", status=status))["count"] == count


async def test_ids_with_odd_characters_return_not_found(call: Call, store: Store) -> None:
    given_world(store, {"protocol_id": "daily-walk"})
    for odd in ("\ud83d", "' OR 1=1 --", "{nearest}", "%", "걷기"):
        assert error(await call("query_protocol", protocol_id=odd)).code == "not_found"
        assert error(await call("query_tracker", habit_id=odd)).code == "not_found"


async def test_refusals_and_titles_follow_the_locale(store: Store, clock: Any) -> None:
    deps = LifeHelper(store=store, now=clock, locale="en")
    refusal = error(tools.add_habit({**WALK, "anchor_after_what": ""}, deps))
    assert refusal.reason.startswith("An anchor is missing")
    assert data(tools.add_habit(WALK, deps))["habit"]["title"] == "Walk every day"


@pytest.mark.parametrize("back", ["2026-06-16T09:00", "2026-05-01T09:00", "1970-01-01T00:00"])
async def test_tools_keep_working_after_the_clock_is_set_back(
    call: Call, clock: SetClock, deps: LifeHelper, back: str
) -> None:
    assert isinstance(await call("add_habit", **WALK), ToolOk)
    logged = await call("log_tracker_entry", habit_id="daily-walk", value="done")
    assert isinstance(logged, ToolOk)
    clock.set(back)
    report = await call("query_tracker", habit_id="daily-walk")
    assert isinstance(report, ToolOk)
    assert report.data["habits"][0]["streak_days"] == 0  # that day is in the future now
    assert isinstance(await call("list_habits"), ToolOk)
    ahead = await call("log_tracker_entry", habit_id="daily-walk", value="blank", date="2026-06-17")
    assert isinstance(ahead, ToolErr)
    assert ahead.code == "invalid_date"
    again = await call("log_tracker_entry", habit_id="daily-walk", value="done")
    assert isinstance(again, ToolOk)
    entries = list_entries(deps.store, "daily-walk")
    assert {entry.date for entry in entries} == {date(2026, 6, 17), clock.now.date()}
    assert [habit.id for habit in list_habits(deps.store, locale="ko")] == ["daily-walk"]


async def test_add_habit_quota_holds_after_the_clock_is_set_back(
    call: Call, clock: SetClock
) -> None:
    assert isinstance(await call("add_habit", **WALK), ToolOk)
    clock.set("2026-06-15T09:00")  # the Monday of the same week
    second = await call("add_habit", **{**WALK, "protocol_id": "stretch-break"})
    assert isinstance(second, ToolErr)
    assert second.code == "r3_quota"


protocols = st.sampled_from(["daily-walk", "stretch-break", "water-on-waking", "no-such"])
steps = st.lists(st.tuples(protocols, st.integers(0, 9)), max_size=10)


@given(steps)
def test_no_sequence_of_add_habit_calls_breaks_a_rule(
    image: StoreImage, adds: list[tuple[str, int]]
) -> None:
    day = datetime.fromisoformat(NOW)
    with image.fresh() as store:
        for key, days_later in adds:
            day = day.fromordinal(day.toordinal() + days_later).replace(tzinfo=day.tzinfo)
            deps = LifeHelper(store=store, now=lambda day=day: day, locale="ko")  # type: ignore[misc]
            before = snapshot(store)
            result = tools.add_habit({**WALK, "protocol_id": key}, deps)
            wrote = isinstance(result, ToolOk) and "already_active" not in result.data
            assert (snapshot(store) != before) == wrote
        habits = snapshot(store)["habits"]
    weeks = [datetime.fromisoformat(habit["created_on"]).isocalendar()[:2] for habit in habits]
    active = [habit["protocol_id"] for habit in habits]
    assert len(set(weeks)) == len(weeks)
    assert len(set(active)) == len(active)
