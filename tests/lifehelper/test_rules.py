"""The rules R3, R7 and R8, their precedence, and dates of tracker entries."""

from datetime import date, timedelta
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lhkit.lifehelper.rules import (
    AlreadyActive,
    Facts,
    NewHabit,
    Refusal,
    check_habit,
    find_broken_rules,
    parse_date,
)
from lhkit.lifehelper.toolset import LifeHelperToolset
from tests.rows import check_rows

Row = dict[str, Any]
WEDNESDAY = date(2026, 6, 17)


def habit(**changes: str | None) -> NewHabit:
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


def test_check_habit_returns_none_without_a_broken_rule() -> None:
    assert check_habit(habit(), facts(), WEDNESDAY) is None


@check_rows("broken", list(product([False, True], repeat=5)))
def test_check_habit_applies_the_rules_in_order(broken: tuple[bool, ...]) -> None:
    unknown, active, unanchored, negative, full = broken
    ruling = check_habit(
        habit(
            anchor_when=None if unanchored else "오전 7시",
            framed_text="커피를 마시지 않는다" if negative else "나는 걷는다",
        ),
        facts(*[WEDNESDAY] * full, is_known=not unknown, is_active=active),
        WEDNESDAY,
    )
    order = ("not_found", "already_active", "r8_anchor", "r7_framing", "r3_quota")
    assert code(ruling) == next(
        (name for name, is_so in zip(order, broken, strict=True) if is_so), None
    )


@check_rows(
    ("when", "after", "is_refused"),
    [(None, None, True), ("7시", None, False), (None, "양치", False), ("7시", "양치", False)],
)
def test_r8_requires_an_anchor(when: str | None, after: str | None, is_refused: bool) -> None:
    ruling = check_habit(habit(anchor_when=when, anchor_after_what=after), facts(), WEDNESDAY)
    assert (code(ruling) == "r8_anchor") == is_refused


@check_rows(
    ("sentence", "key"),
    [
        ("야식 금지", "framing_negative"),
        ("I never snack", "framing_negative"),
        ("...", "framing_blank"),
        ("나는 …한다", "framing_blank"),
    ],
)
def test_r7_refuses_negative_and_blank_sentences(sentence: str, key: str) -> None:
    ruling = check_habit(habit(framed_text=sentence), facts(), WEDNESDAY)
    assert isinstance(ruling, Refusal)
    assert (ruling.code, ruling.key) == ("r7_framing", key)


@check_rows(
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
    ruling = check_habit(habit(), facts(date.fromisoformat(added)), date.fromisoformat(today))
    assert (code(ruling) == "r3_quota") == is_refused


def test_r3_refusal_names_count_limit_and_next_date() -> None:
    assert check_habit(habit(), facts(WEDNESDAY), WEDNESDAY, habits_per_week=2) is None
    ruling = check_habit(habit(), facts(WEDNESDAY, WEDNESDAY), WEDNESDAY, habits_per_week=2)
    assert isinstance(ruling, Refusal)
    assert ruling.values == {"count": 2, "limit": 2, "next": "2026-06-22"}


@given(st.lists(st.dates(date(2020, 1, 1), date(2030, 1, 1)), max_size=12), st.integers(1, 3))
def test_r3_never_allows_more_than_the_limit_per_week(days: list[date], limit: int) -> None:
    added: list[date] = []
    for day in sorted(days):
        if check_habit(habit(), facts(*added), day, habits_per_week=limit) is None:
            added.append(day)
    weeks = [day - timedelta(days=day.weekday()) for day in added]
    assert all(weeks.count(week) <= limit for week in weeks)


@check_rows("text", ["2026-02-30", "0000-01-01", "２０２６-０１-０１", "x"])
def test_parse_date_refusal_names_the_argument(text: str) -> None:
    refusal = parse_date(text, argument="from")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.values["argument"]) == ("invalid_date", "from")


def row(name: str, created_on: str = "2026-06-17", **more: Any) -> Row:
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
        {"habits": before}, {"habits": after, "tracker": tracker or []}, today=WEDNESDAY, **options
    )
    return [code for code, _ in broken]


OLD = row("old", "2026-06-15", framed_text="나는 커피를 마시지 않는다", anchor_after_what=None)


@check_rows(
    ("before", "after", "expected"),
    [
        ([], [], []),
        ([], [row("a")], []),
        ([], [row("a"), row("b")], ["r3_quota"]),
        ([], [row("a", "2026-06-15"), row("b", "2026-06-21")], ["r3_quota"]),
        ([], [row("a", "2026-06-14"), row("b", "2026-06-15")], []),
        ([OLD], [OLD], []),
        ([OLD], [OLD, row("b")], ["r3_quota"]),
        ([OLD, row("b")], [OLD, row("b")], []),
        ([OLD, row("b")], [OLD, row("b", status="archived")], []),
        ([], [row("a", anchor_after_what=None)], ["r8_anchor"]),
        ([], [row("a", anchor_after_what=None, anchor_when="아침 8시")], []),
        ([], [row("a", framed_text="나는 커피를 마시지 않는다")], ["r7_framing"]),
        ([], [row("a", framed_text="I do not snack")], ["r7_framing"]),
        ([row("a")], [row("a", framed_text="I do not snack")], ["r7_framing"]),
        ([row("a")], [row("a", status="archived")], []),
    ],
)
def test_find_broken_rules_reports_changes(
    before: list[Row], after: list[Row], expected: list[str]
) -> None:
    assert codes(before, after) == expected


def test_find_broken_rules_accepts_another_limit() -> None:
    both = [row("a"), row("b")]
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
