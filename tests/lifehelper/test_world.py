"""The initial state: validation, seeding and snapshots."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.lifehelper.framing import find_negation, is_blank
from lhkit.lifehelper.habits import list_creation_dates
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.world import DEFAULT_SENTENCE, parse_world, seed, snapshot
from tests.rows import check_rows

NOW = "2026-06-15T09:00:00+09:00"
WALK = {"protocol_id": "daily-walk"}


def world(*habits: dict[str, Any], tracker: Any = (), now: str = NOW) -> dict[str, Any]:
    return {"now": now, "habits": list(habits), "tracker": list(tracker)}


def entry(day: Any = "2026-06-14", habit_id: str = "daily-walk") -> dict[str, Any]:
    return {"habit_id": habit_id, "date": day, "value": "done"}


def test_seed_fills_in_defaults_that_break_no_rule(store: Store) -> None:
    seed(store, parse_world(world(WALK, {"protocol_id": "stretch-break"})))
    first, second = snapshot(store)["habits"]
    assert first == {
        "id": "daily-walk",
        "protocol_id": "daily-walk",
        "status": "active",
        "frame_level": "identity",
        "framed_text": DEFAULT_SENTENCE,
        "anchor_when": None,
        "anchor_after_what": "아침 식사",
        "created_on": "2026-05-18",
    }
    assert second["created_on"] == "2026-05-11"
    assert find_negation(DEFAULT_SENTENCE) is None
    assert not is_blank(DEFAULT_SENTENCE)
    assert len({day.isocalendar()[:2] for day in list_creation_dates(store)}) == 2


def test_seed_adds_no_default_anchor_to_a_given_one(store: Store) -> None:
    seed(store, parse_world(world({**WALK, "anchor_when": "오후 1시"})))
    habit = snapshot(store)["habits"][0]
    assert (habit["anchor_when"], habit["anchor_after_what"]) == ("오후 1시", None)


def test_seed_with_an_empty_world(store: Store) -> None:
    seed(store, parse_world({"now": NOW}))
    assert snapshot(store) == {"habits": [], "tracker": []}


def test_parse_world_accepts_dates_as_text_or_yaml_dates(store: Store) -> None:
    seed(store, parse_world(world(WALK, tracker=[entry(date(2026, 6, 13)), entry()])))
    assert [row["date"] for row in snapshot(store)["tracker"]] == ["2026-06-13", "2026-06-14"]


@check_rows(
    ("data", "field"),
    [
        ({}, "world.now"),
        ({"now": "2026-06-15T09:00:00"}, "world.now"),
        ({"now": NOW, "habit": []}, "world.habit:"),
        (world({}), "world.habits.0.protocol_id"),
        (world({**WALK, "status": "paused"}), "world.habits.0.status"),
        (world({**WALK, "frame_level": "goal"}), "world.habits.0.frame_level"),
        (world({**WALK, "framed_text": " "}), "world.habits.0.framed_text"),
        (world({**WALK, "framed_text": "가" * 81}), "world.habits.0.framed_text"),
        (world({**WALK, "anchor_when": ""}), "world.habits.0.anchor_when"),
        (world({**WALK, "created_on": "2026-02-30"}), "world.habits.0.created_on"),
        (
            world({**WALK, "title": "x"}),
            "world.habits.0.title: unknown field; choose among protocol_id, id, status",
        ),
        (
            world(WALK, tracker=[{**entry(), "day": 1}]),
            "world.tracker.0.day: unknown field; choose among habit_id, date, value",
        ),
        (world(WALK, tracker=[{"habit_id": "daily-walk"}]), "world.tracker.0.date"),
        (world(WALK, tracker=[{**entry(), "value": "yes"}]), "world.tracker.0.value"),
        (world(tracker=[entry()]), "world.tracker.0.habit_id"),
        (world(WALK, tracker=[entry(), entry("2026-06-16")]), "world.tracker.1.date"),
        (world(WALK, tracker=[entry(), entry()]), "habit_id and date"),
        (world(WALK, WALK), "world.habits: duplicate id daily-walk"),
        (world(WALK, {**WALK, "id": "other"}), "protocol_id of an active habit"),
        ([], "world"),
        (None, "world"),
    ],
)
def test_parse_world_names_the_invalid_field(data: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_world(data)
    assert field in str(caught.value)


def test_parse_world_suggests_the_toolset_option() -> None:
    with pytest.raises(UsageError, match=r"items: unknown field .* now, habits, tracker, .*--tool"):
        parse_world({"now": NOW, "items": []})


def test_seed_refuses_an_unknown_protocol_and_writes_nothing(store: Store) -> None:
    with pytest.raises(UsageError, match=r"world\.habits\.1\.protocol_id.*daily-walk"):
        seed(store, parse_world(world({"protocol_id": "stretch-break"}, {"protocol_id": "walk"})))
    assert snapshot(store) == {"habits": [], "tracker": []}


days = st.dates(date(2026, 1, 1), date(2026, 6, 15))
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(lambda t: t.strip())
habits = st.fixed_dictionaries(
    {"protocol_id": st.sampled_from(["daily-walk", "stretch-break", "water-on-waking"])},
    optional={
        "status": st.sampled_from(["active", "archived"]),
        "frame_level": st.sampled_from(["identity", "action", "outcome"]),
        "framed_text": texts,
        "anchor_when": texts,
        "anchor_after_what": texts,
        "created_on": days,
    },
)


def entries_of(ids: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    if not ids:
        return st.just([])
    one = st.fixed_dictionaries(
        {
            "habit_id": st.sampled_from(ids),
            "date": days,
            "value": st.sampled_from(["done", "blank"]),
        }
    )
    return st.lists(one, unique_by=lambda row: (str(row["habit_id"]), row["date"]), max_size=5)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    chosen: list[dict[str, Any]] = draw(
        st.lists(habits, unique_by=lambda habit: str(habit["protocol_id"]), max_size=3)
    )
    tracker = draw(entries_of([habit["protocol_id"] for habit in chosen]))
    return {"now": NOW, "habits": chosen, "tracker": tracker}


@given(worlds())
def test_snapshot_round_trips_through_seed(image: StoreImage, start: dict[str, Any]) -> None:
    with image.fresh() as first, image.fresh() as second:
        seed(first, parse_world(start))
        state = snapshot(first)
        seed(second, parse_world({"now": NOW, **state}))
        assert snapshot(second) == state
    assert len(state["tracker"]) == len(start["tracker"])
    assert [habit["id"] for habit in state["habits"]] == sorted(h["id"] for h in state["habits"])
