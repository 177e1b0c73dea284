"""The tools after the clock was set back."""

from collections.abc import Awaitable, Callable
from datetime import date

import pytest

from lhkit.lifehelper.habits import list_entries, list_habits
from lhkit.lifehelper.tools import LifeHelper
from lhkit.tool_results import ToolErr, ToolOk, ToolResult
from tests.lifehelper.conftest import SetClock

pytestmark = pytest.mark.anyio

Call = Callable[..., Awaitable[ToolResult]]
HABIT = {"frame_level": "identity", "framed_text": "나는 매일 걷는 사람이다", "anchor_when": "아침"}


@pytest.mark.parametrize("back", ["2026-06-16T09:00", "2026-05-01T09:00", "1970-01-01T00:00"])
async def test_tools_keep_working_after_the_clock_is_set_back(
    call: Call, clock: SetClock, deps: LifeHelper, back: str
) -> None:
    assert isinstance(await call("add_habit", protocol_id="daily-walk", **HABIT), ToolOk)
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
    assert [habit.id for habit in list_habits(deps.store)] == ["daily-walk"]


async def test_add_habit_quota_holds_after_the_clock_is_set_back(
    call: Call, clock: SetClock
) -> None:
    assert isinstance(await call("add_habit", protocol_id="daily-walk", **HABIT), ToolOk)
    clock.set("2026-06-15T09:00")  # the Monday of the same week
    second = await call("add_habit", protocol_id="stretch-break", **HABIT)
    assert isinstance(second, ToolErr)
    assert second.code == "r3_quota"
