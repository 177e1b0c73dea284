"""`find_broken_rules` reports changes of state that break a rule, but no earlier rows."""

from datetime import date
from typing import Any

import pytest

from lhkit.lifehelper.rules import find_broken_rules
from lhkit.lifehelper.toolset import LifeHelperToolset

TODAY = date(2026, 6, 17)  # a Wednesday
Row = dict[str, Any]


def habit(name: str, created_on: str = "2026-06-17", **more: Any) -> Row:
    return {
        "id": name,
        "protocol_id": name,
        "status": "active",
        "frame_level": "identity",
        "framed_text": "나는 물을 마시는 사람이다",
        "anchor_when": None,
        "anchor_after_what": "아침 식사",
        "created_on": created_on,
        **more,
    }


def entry(day: str) -> Row:
    return {"habit_id": "a", "date": day, "value": "done"}


def codes(
    before: list[Row], after: list[Row], tracker: list[Row] | None = None, **options: Any
) -> list[str]:
    broken = find_broken_rules(
        {"habits": before}, {"habits": after, "tracker": tracker or []}, today=TODAY, **options
    )
    return [code for code, _ in broken]


OLD = habit("old", "2026-06-15", framed_text="나는 커피를 마시지 않는다", anchor_after_what=None)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], []),
        ([], [habit("a")], []),
        ([], [habit("a"), habit("b")], ["r3_quota"]),
        ([], [habit("a", "2026-06-15"), habit("b", "2026-06-21")], ["r3_quota"]),
        ([], [habit("a", "2026-06-14"), habit("b", "2026-06-15")], []),
        ([OLD], [OLD], []),
        ([OLD], [OLD, habit("b")], ["r3_quota"]),
        ([OLD, habit("b")], [OLD, habit("b")], []),
        ([OLD, habit("b")], [OLD, habit("b", status="archived")], []),
        ([], [habit("a", anchor_after_what=None)], ["r8_anchor"]),
        ([], [habit("a", anchor_after_what=None, anchor_when="아침 8시")], []),
        ([], [habit("a", framed_text="나는 커피를 마시지 않는다")], ["r7_framing"]),
        ([], [habit("a", framed_text="I do not snack")], ["r7_framing"]),
        ([habit("a")], [habit("a", framed_text="I do not snack")], ["r7_framing"]),
        ([habit("a")], [habit("a", status="archived")], []),
    ],
)
def test_find_broken_rules_reports_changes(
    before: list[Row], after: list[Row], expected: list[str]
) -> None:
    assert codes(before, after) == expected


def test_find_broken_rules_accepts_another_limit() -> None:
    both = [habit("a"), habit("b")]
    assert codes([], both, habits_per_week=2) == []


def test_find_broken_rules_reports_future_entries() -> None:
    assert codes([], [], [entry("2026-06-17"), entry("2026-06-18")]) == ["invalid_date"]


def test_session_reports_broken_rules() -> None:
    session = LifeHelperToolset().open({"now": "2026-06-17T09:00:00+09:00"}, "ko")
    before = session.state()
    session.store.write(
        "INSERT INTO habit SELECT id, id, 'active', 'identity', 'I do not snack', NULL, NULL,"
        " '2026-06-17' FROM protocol LIMIT 2"
    )
    broken = session.broken_rules(before, session.state())
    assert sorted(code for code, _ in broken) == [
        "r3_quota",
        "r7_framing",
        "r7_framing",
        "r8_anchor",
        "r8_anchor",
    ]
    assert "2 habits added in week 2026-W25, allowed 1" in [detail for _, detail in broken]
