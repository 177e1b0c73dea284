"""Talk about several habits' records at once: all of them, two of them, the best, the undone."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from lhkit.lifehelper.dates.said import SaidDates
from lhkit.models.scripted import call
from lhkit.tuning.life_helper.scene import Last, Scene, Settled, Words, rows_of
from lhkit.tuning.life_helper.spoken_dates import SaidDay
from lhkit.tuning.life_helper.tracker_talk import (
    asked_day,
    asked_range,
    closed,
    query,
    unit,
)
from lhkit.tuning.life_helper.worlds import Habit

_VALUES = {
    "ko": {"done": "완료", "blank": "공란", "": "기록 없음"},
    "en": {"done": "done", "blank": "blank", "": "without an entry"},
}


def everything(scene: Scene) -> None:
    """All habits in a span, or the best of them."""
    said = _span(scene)
    is_best = scene.chance(0.35)

    def last(settled: Settled, words: Words) -> str:
        rows = rows_of(settled, "habits")
        if not rows:
            return words("habits_none")
        items = _items(rows, scene.locale)
        if not is_best:
            return words("all_report", range=said.text, items=items)
        best = max(rows, key=lambda row: row["done_days"])
        key = "best" if best["done_days"] else "best_none"
        return words(key, title=best["title"], range=said.text, items=items)

    user = scene.user("asked_best" if is_best else "asked_all", range=said.text)
    scene.add(user, scene.acts([query(None, said.first, said.last)], last))
    closed(scene)


def undone(scene: Scene) -> None:
    """Which habits have nothing done in a span? Sometimes after a look at the list."""
    said = _span(scene)
    is_listed = scene.chance(0.5)
    before = [call("list_habits")] if is_listed else []
    scene.is_listed = scene.is_listed or is_listed

    def last(settled: Settled, words: Words) -> str:
        empty = [row["title"] for row in rows_of(settled, "habits") if not row["done_days"]]
        key = "undone" if empty else "undone_none"
        return words(key, range=said.text, titles=scene.listing(empty or [""]))

    user = scene.user("asked_undone_listed" if is_listed else "asked_undone", range=said.text)
    scene.add(user, scene.acts([*before, query(None, said.first, said.last)], last))


def two_in_a_range(scene: Scene) -> None:
    """Two habits named in one line: one look at everything answers both."""
    pair = scene.two_habits()
    said = asked_range(scene, pair[0])

    def last(settled: Settled, words: Words) -> str:
        items = _items(_of(pair, settled), scene.locale)
        return words("all_report", range=said.text, items=items)

    user = scene.user("asked_two", **_names(scene, pair), range=said.text)
    scene.add(user, scene.acts([query(None, said.first, said.last)], last))
    closed(scene)


def two_on_a_day(scene: Scene) -> None:
    """Two habits on a day, and sometimes on another day."""
    pair = scene.two_habits()
    said = asked_day(scene, pair[0])
    user = scene.user("asked_two_day", **_names(scene, pair), day=said.text, the_day=said.noun)
    _ask_both(scene, user, pair, said)
    if scene.chance(0.4):
        said = asked_day(scene, pair[1])
        user = scene.user("then_day", day=said.text, the_day=said.noun)
        _ask_both(scene, user, pair, said)
    closed(scene)


def _ask_both(scene: Scene, user: str, pair: Sequence[Habit], said: SaidDay) -> None:
    calls = [query(None, said.day, said.day)]
    scene.add(user, scene.acts(calls, _pair_words(scene, pair, said.day)))


def _span(scene: Scene) -> SaidDates:
    return asked_range(scene, scene.habit())


def _names(scene: Scene, pair: Sequence[Habit]) -> Mapping[str, str]:
    first, second = (scene.name(habit.id) for habit in pair)
    return {"name": first, "name2": second}


def _of(pair: Sequence[Habit], settled: Settled) -> Sequence[Mapping[str, Any]]:
    """Return the rows of the two in the order of the tool, which is easier to follow."""
    asked = {habit.id for habit in pair}
    return [row for row in rows_of(settled, "habits") if row["habit_id"] in asked]


def _pair_words(scene: Scene, pair: Sequence[Habit], day: date) -> Last:
    def last(settled: Settled, words: Words) -> str:
        first, second = _of(pair, settled)
        values = [row["entries"].get(day.isoformat(), "") for row in (first, second)]
        said = [_VALUES[scene.locale][value] for value in values]
        return words(
            "both_done" if set(values) == {"done"} else "each_value",
            day=scene.day_words(day),
            title=first["title"],
            title2=second["title"],
            value=said[0],
            value2=said[1],
        )

    return last


def _items(rows: Sequence[Mapping[str, Any]], locale: str) -> str:
    return ". ".join(_item(row["title"], row["done_days"], locale) for row in rows)


def _item(title: str, done: int, locale: str) -> str:
    return f"{title}: {done}일" if locale == "ko" else f"{title}: {done} {unit(done)}"
