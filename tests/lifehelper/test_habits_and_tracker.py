"""Rows as values: ids of habits, entries, done-rate, streak."""

import sqlite3
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.lifehelper.habits import (
    Entry,
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
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.world import parse_world, seed

DAY = date(2026, 6, 17)
NOW = "2026-06-17T09:00:00+09:00"


def wish(protocol_id: str) -> NewHabit:
    return NewHabit(
        protocol_id=protocol_id, frame_level="action", framed_text="나는 한다", anchor_when="7시"
    )


def seeded(store: Store, *habits: dict[str, str]) -> Store:
    seed(store, parse_world({"now": NOW, "habits": list(habits)}))
    return store


def entry(day: date, value: str = "done", habit_id: str = "daily-walk") -> Entry:
    return Entry(habit_id=habit_id, date=day, value=value)


def test_a_habit_reads_as_it_was_stored_with_its_title(store: Store) -> None:
    insert_habit(store, wish("daily-walk"), created_on=DAY)
    habit = find_habit(store, "daily-walk", locale="en")
    assert habit is not None
    assert (habit.title, habit.framed_text, habit.anchor_when) == (
        "Walk every day",
        "나는 한다",
        "7시",
    )
    assert (habit.anchor_after_what, habit.created_on, habit.status) == (None, DAY, "active")


def test_a_habit_takes_the_protocols_id_or_the_next_free_number(store: Store) -> None:
    old = {"protocol_id": "daily-walk", "status": "archived"}
    seeded(store, {**old, "id": "daily-walk"}, {**old, "id": "daily-walk-2"})
    assert insert_habit(store, wish("daily-walk"), created_on=DAY) == "daily-walk-3"


def test_a_second_active_habit_of_a_protocol_is_impossible(store: Store) -> None:
    insert_habit(store, wish("daily-walk"), created_on=DAY)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        insert_habit(store, wish("daily-walk"), created_on=DAY)
    assert [habit.id for habit in list_habits(store, status="all")] == ["daily-walk"]


def test_habits_are_listed_by_status_oldest_first(store: Store) -> None:
    seeded(
        store,
        {"protocol_id": "daily-walk", "created_on": "2026-05-02"},
        {"protocol_id": "caffeine-cutoff", "created_on": "2026-05-02"},
        {"protocol_id": "stretch-break", "created_on": "2026-03-01", "status": "archived"},
    )
    ids = {
        status: [habit.id for habit in list_habits(store, status=status)]
        for status in ("active", "archived", "all")
    }
    assert ids == {
        "active": ["caffeine-cutoff", "daily-walk"],
        "archived": ["stretch-break"],
        "all": ["stretch-break", "caffeine-cutoff", "daily-walk"],
    }
    assert added_on(store) == (date(2026, 3, 1), date(2026, 5, 2), date(2026, 5, 2))


def test_only_an_active_habit_is_the_active_habit_of_its_protocol(store: Store) -> None:
    seeded(
        store,
        {"protocol_id": "daily-walk", "status": "archived"},
        {"protocol_id": "daily-walk", "id": "daily-walk-2"},
    )
    habit = active_habit_of(store, "daily-walk")
    assert habit is not None
    assert habit.id == "daily-walk-2"
    assert active_habit_of(store, "stretch-break") is None


def test_nearest_habits_are_active_ones(store: Store) -> None:
    seeded(
        store,
        {"protocol_id": "daily-walk"},
        {"protocol_id": "stretch-break", "status": "archived"},
    )
    assert nearest_habits(store, "stretch") == ("daily-walk",)


def test_an_entry_is_stored_once_per_day_and_the_last_value_stays(store: Store) -> None:
    seeded(store, {"protocol_id": "daily-walk"})
    assert put_entry(store, entry(DAY)) is None
    assert put_entry(store, entry(DAY)) == entry(DAY)
    assert put_entry(store, entry(DAY, "blank")) == entry(DAY)
    assert list_entries(store, "daily-walk") == (entry(DAY, "blank"),)


def test_entries_are_of_one_habit_in_the_range_newest_first(store: Store) -> None:
    seeded(store, {"protocol_id": "daily-walk"}, {"protocol_id": "stretch-break"})
    days = [DAY - timedelta(days=back) for back in range(4)]
    for day in days:
        put_entry(store, entry(day))
    put_entry(store, entry(DAY, habit_id="stretch-break"))
    found = list_entries(store, "daily-walk", start=days[2], end=days[1])
    assert found == (entry(days[1]), entry(days[2]))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["done", "blank"])), max_size=12))
def test_there_is_one_entry_per_habit_and_day_whatever_is_logged(
    image: StoreImage, logged: list[tuple[int, str]]
) -> None:
    with image.fresh() as store:
        seeded(store, {"protocol_id": "daily-walk"})
        for back, value in logged:
            put_entry(store, entry(DAY - timedelta(days=back), value))
        stored = {(DAY - each.date).days: each.value for each in list_entries(store, "daily-walk")}
        assert stored == dict(logged)
        assert len(list_entries(store, "daily-walk")) == len(dict(logged))


@pytest.mark.parametrize(
    ("newest_first", "streak"),
    [
        ("", 0),
        ("d", 1),
        ("ddd", 3),
        (".dd", 2),  # today is still open
        ("bdd", 2),  # today is blank so far: it ended yesterday
        ("..d", 0),
        ("ddbd", 2),
        ("dd.d", 2),
        ("b", 0),
    ],
)
def test_the_streak_is_the_done_days_up_to_today_or_yesterday(
    store: Store, newest_first: str, streak: int
) -> None:
    seeded(store, {"protocol_id": "daily-walk"})
    for back, sign in enumerate(newest_first):
        if sign != ".":
            value = {"d": "done", "b": "blank"}[sign]
            put_entry(store, entry(DAY - timedelta(days=back), value))
    assert current_streak(store, "daily-walk", DAY) == streak


def test_the_streak_is_counted_over_months_and_ignores_later_days(store: Store) -> None:
    seeded(store, {"protocol_id": "daily-walk"})
    for back in range(-3, 40):
        put_entry(store, entry(DAY - timedelta(days=back)))
    assert current_streak(store, "daily-walk", DAY) == 40
