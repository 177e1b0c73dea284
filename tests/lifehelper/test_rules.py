"""R3, R7, R8 as pure functions, and the order in which they speak."""

import subprocess
import sys
from datetime import date, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

WEDNESDAY = date(2026, 6, 17)
LIMITS = RuleLimits()


def wish(**changes: str | None) -> NewHabit:
    base = {
        "protocol_id": "daily-walk",
        "frame_level": "identity",
        "framed_text": "나는 매일 걷는 사람이다",
        "anchor_when": "오전 7시",
    }
    return NewHabit(**{**base, **changes})  # type: ignore[arg-type]


def facts(*added_on: date, is_known: bool = True, is_active: bool = False) -> Facts:
    return Facts(is_known=is_known, is_active=is_active, added_on=added_on)


def code(ruling: object) -> str | None:
    if isinstance(ruling, AlreadyActive):
        return "already_active"
    return ruling.code if isinstance(ruling, Refusal) else None


def test_a_habit_that_breaks_no_rule_may_be_added() -> None:
    assert judge(wish(), facts(), LIMITS, WEDNESDAY) is None


@pytest.mark.parametrize("broken", list(product([False, True], repeat=5)))
def test_the_first_broken_rule_in_the_fixed_order_decides(broken: tuple[bool, ...]) -> None:
    unknown, active, unanchored, negative, full = broken
    ruling = judge(
        wish(
            anchor_when=None if unanchored else "오전 7시",
            framed_text="커피를 마시지 않는다" if negative else "나는 걷는다",
        ),
        facts(*[WEDNESDAY] * full, is_known=not unknown, is_active=active),
        LIMITS,
        WEDNESDAY,
    )
    order = ("not_found", "already_active", "r8_anchor", "r7_framing", "r3_quota")
    assert code(ruling) == next(
        (name for name, is_so in zip(order, broken, strict=True) if is_so), None
    )


@pytest.mark.promise("rule.r8")
@pytest.mark.parametrize(
    ("when", "after", "is_refused"),
    [(None, None, True), ("7시", None, False), (None, "양치", False), ("7시", "양치", False)],
)
def test_r8_wants_one_anchor(when: str | None, after: str | None, is_refused: bool) -> None:
    ruling = judge(wish(anchor_when=when, anchor_after_what=after), facts(), LIMITS, WEDNESDAY)
    assert (code(ruling) == "r8_anchor") == is_refused


@pytest.mark.promise("rule.r7")
@pytest.mark.parametrize(
    ("sentence", "key"),
    [
        ("야식 금지", "framing_negative"),
        ("I never snack", "framing_negative"),
        ("...", "framing_blank"),
        ("나는 …한다", "framing_blank"),
    ],
)
def test_r7_refuses_with_its_kind(sentence: str, key: str) -> None:
    ruling = judge(wish(framed_text=sentence), facts(), LIMITS, WEDNESDAY)
    assert isinstance(ruling, Refusal)
    assert (ruling.code, ruling.key) == ("r7_framing", key)


@pytest.mark.promise("rule.r3")
@pytest.mark.parametrize(
    ("added", "today", "is_refused"),
    [
        ("2026-06-15", "2026-06-21", True),  # Monday and Sunday of one week
        ("2026-06-14", "2026-06-15", False),  # Sunday, then Monday
        ("2026-06-15", "2026-06-22", False),
        ("2025-12-29", "2026-01-04", True),  # one ISO week over the turn of the year
        ("2026-12-28", "2027-01-03", True),
        ("2026-01-05", "2025-01-06", False),  # the same week number of another year
    ],
)
def test_r3_counts_iso_weeks(added: str, today: str, is_refused: bool) -> None:
    ruling = judge(wish(), facts(date.fromisoformat(added)), LIMITS, date.fromisoformat(today))
    assert (code(ruling) == "r3_quota") == is_refused


def test_r3_allows_as_many_as_its_limit_and_says_when_the_next_is_possible() -> None:
    two = RuleLimits(habits_per_week=2)
    assert judge(wish(), facts(WEDNESDAY), two, WEDNESDAY) is None
    ruling = judge(wish(), facts(WEDNESDAY, WEDNESDAY), two, WEDNESDAY)
    assert isinstance(ruling, Refusal)
    assert ruling.values == {"count": 2, "limit": 2, "next": "2026-06-22"}


@given(st.lists(st.dates(date(2020, 1, 1), date(2030, 1, 1)), max_size=12), st.integers(1, 3))
def test_a_user_who_obeys_r3_never_adds_more_than_the_limit_in_a_week(
    days: list[date], limit: int
) -> None:
    added: list[date] = []
    for day in sorted(days):
        limits = RuleLimits(habits_per_week=limit)
        if judge(wish(), facts(*added), limits, day) is None:
            added.append(day)
    weeks = [day - timedelta(days=day.weekday()) for day in added]
    assert all(weeks.count(week) <= limit for week in weeks)


@pytest.mark.parametrize(
    "text", ["2026-02-30", "2026-13-01", "0000-01-01", "２０２６-０１-０１", "x"]
)
def test_a_date_that_no_calendar_has_is_refused_by_name(text: str) -> None:
    refusal = parsed_date(text, argument="from")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.values["argument"]) == ("invalid_date", "from")


def test_an_entry_is_for_today_by_default_and_never_for_the_future() -> None:
    assert entry_date(None, WEDNESDAY) == WEDNESDAY
    assert entry_date("2026-06-17", WEDNESDAY) == WEDNESDAY
    assert entry_date("2024-02-29", WEDNESDAY) == date(2024, 2, 29)
    assert code(entry_date("2026-06-18", WEDNESDAY)) == "invalid_date"
    assert code(entry_date("2026-06-31", WEDNESDAY)) == "invalid_date"


def test_the_rules_load_no_database_and_no_event_loop() -> None:
    script = "import sys, lhkit.lifehelper.rules; print('sqlite3' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
