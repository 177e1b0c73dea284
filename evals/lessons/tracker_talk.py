"""Talk about what the tracker holds: of a habit on a day or in a span, and of several at once."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from evals.lessons.scene import (
    Habit,
    Last,
    SaidDay,
    Scene,
    Settled,
    Words,
    data_of,
    past_days,
    plain_day,
    ranges,
    rows_of,
    with_sibling,
)
from lhkit.dates.said import SaidDates
from lhkit.models.scripted import Reply, call

# ---------------------------------------------------------------------------------------- one habit

_DONE = "done"
_MOST_LINES = 4


def listed_first(scene: Scene) -> list[Reply]:
    """Return the look at the habits that has to come first, unless the model has seen them."""
    if scene.is_listed:
        return []
    scene.is_listed = True
    return [call("list_habits")]


def query(habit_id: str | None, first: date | None = None, last: date | None = None) -> Reply:
    """Return the call for a habit (or all) and a span (or all time)."""
    told = {
        "habit_id": habit_id,
        "from": first.isoformat() if first else None,
        "to": last.isoformat() if last else None,
    }
    return call("query_tracker", **{key: each for key, each in told.items() if each})


def on_a_day(scene: Scene) -> None:
    """Was a habit done on a day? Sometimes asked again about another day or habit."""
    _grown(scene)
    habit = scene.habit()
    said = asked_day(scene, habit)
    calls = [*listed_first(scene), query(habit.id, said.day, said.day)]
    kind = scene.rng.choice(("asked_day", "asked_day", "asked_did", "asked_day_plain"))
    words = day_words(scene, said.day, is_plain=kind == "asked_day_plain")
    scene.add(_day_line(scene, kind, habit, said), scene.acts(calls, words))
    day = said.day
    while scene.chance(0.4) and len(scene.lines) < _MOST_LINES:
        habit, day = scene.rng.choice(_STEPS)(scene, habit, day)
    closed(scene)


def archived_on_a_day(scene: Scene) -> None:
    """Was an archived habit done on a day? Its id stands in the list of all."""
    habit = scene.habit("archived")
    said = asked_day(scene, habit)
    calls = [call("list_habits", status="all"), query(habit.id, said.day, said.day)]
    scene.is_listed = True
    user = _day_line(scene, "asked_archived", habit, said)
    scene.add(user, scene.acts(calls, day_words(scene, said.day)))


def in_a_range(scene: Scene) -> None:
    """How often, at what rate, or when not, in a span. Sometimes asked about another span."""
    _grown(scene)
    habit = scene.habit()
    kind = scene.rng.choice(("count", "count", "count", "rate", "missed"))
    said = asked_range(scene, habit)
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    by_deed = "_did" if kind == "count" and scene.chance(0.3) else ""
    slots = {"name": scene.name(habit.id), "did": _did(scene, habit)}
    user = scene.user(f"asked_{kind}{by_deed}", **slots, range=said.text)
    scene.add(user, scene.acts(calls, range_words(scene, said, kind)))
    if scene.chance(0.25):
        said = asked_range(scene, habit)
        again = [query(habit.id, said.first, said.last)]
        user = scene.user("then_range", range=said.text)
        scene.add(user, scene.acts(again, range_words(scene, said, kind)))
    if scene.has_choice and scene.chance(0.25):
        other = another(scene, habit)
        again = [query(other.id, said.first, said.last)]
        user = scene.user("then_habit", name=scene.name(other.id))
        scene.add(user, scene.acts(again, range_words(scene, said, kind)))
    closed(scene)


def streak(scene: Scene) -> None:
    """How many days in a row. Sometimes asked about another habit as well."""
    _grown(scene)
    habit = scene.habit()
    calls = [*listed_first(scene), query(habit.id)]
    user = scene.user("asked_streak", name=scene.name(habit.id))
    scene.add(user, scene.acts(calls, _streak_words()))
    if scene.has_choice and scene.chance(0.4):
        other = another(scene, habit)
        key = scene.rng.choice(("then_habit", "asked_streak"))
        user = scene.user(key, name=scene.name(other.id))
        scene.add(user, scene.acts([query(other.id)], _streak_words()))
    closed(scene)


def _grown(scene: Scene) -> None:
    """At the start, sometimes add a habit that resembles another one of the world."""
    if not scene.lines and scene.chance(0.3):
        scene.world = with_sibling(scene.world, scene.phrases, scene.rng)


def closed(scene: Scene) -> None:
    """Sometimes end with a remark or thanks: nothing is looked up for it."""
    if scene.chance(0.15):
        key = scene.rng.choice(("thanks", "tracker_remark"))
        scene.add(scene.user(key), scene.says(key))


def another(scene: Scene, habit: Habit) -> Habit:
    """Return another active habit."""
    return scene.rng.choice([each for each in scene.world.of_status("active") if each != habit])


def asked_day(scene: Scene, habit: Habit) -> SaidDay:
    """Return a day up to today; mostly one that has an entry."""
    if scene.chance(0.08):
        word = "오늘" if scene.locale == "ko" else "today"
        return SaidDay(text=word, noun=word, day=scene.world.today)
    days = past_days(scene.world.today, scene.locale)
    kept = _kept_days(scene, habit)
    known = [said for said in days if said.day in kept]
    return scene.rng.choice(known if known and scene.chance(0.6) else days)


def asked_range(scene: Scene, habit: Habit) -> SaidDates:
    """Return a span; mostly one that has an entry."""
    spans = ranges(scene.world.today, scene.locale)
    kept = _kept_days(scene, habit)
    known = [said for said in spans if any(said.first <= day <= said.last for day in kept)]
    return scene.rng.choice(known if known and scene.chance(0.7) else spans)


def _kept_days(scene: Scene, habit: Habit) -> set[date]:
    return {day for habit_id, day, _ in scene.world.entries if habit_id == habit.id}


def vague(scene: Scene) -> None:
    """No habit named: asked back, then answered."""
    if not scene.has_choice:
        return
    scene.add(scene.user("tracker_vague"), scene.says("ask_which_tracker"))
    habit = scene.habit()
    said = asked_range(scene, habit)
    user = scene.user("asked_count", name=scene.name(habit.id), range=said.text)
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    scene.add(user, scene.acts(calls, range_words(scene, said, "count")))


def mended_date(scene: Scene) -> None:
    """A date in words is refused; the day as YYYY-MM-DD is taken."""
    habit = scene.habit()
    said = asked_day(scene, habit)
    wrong = call("query_tracker", **{"habit_id": habit.id, "from": said.noun, "to": said.noun})
    before = listed_first(scene)
    calls = [*before, wrong, query(habit.id, said.day, said.day)]
    user = _day_line(scene, "asked_day", habit, said)
    scene.add(user, scene.acts(calls, day_words(scene, said.day)), slips=[len(before)])


def breaks(scene: Scene) -> None:
    """The tracker fails once: said so; when asked again, it is read again."""
    habit = scene.habit()
    said = asked_range(scene, habit)
    asked = query(habit.id, said.first, said.last)
    scene.breaks("query_tracker")
    user = scene.user("asked_count", name=scene.name(habit.id), range=said.text)
    words = range_words(scene, said, "count")
    scene.add(user, scene.acts([*listed_first(scene), asked], words))
    scene.add(scene.user("try_again"), scene.acts([asked], words))


def only_report(settled: Settled) -> Mapping[str, Any]:
    """Return the tracker's report on the one habit that was asked for."""
    (report,) = data_of(settled)["habits"]
    return dict(report)


def unit(count: int) -> str:
    """Return the English word for so many days."""
    return "day" if count == 1 else "days"


def _day_line(scene: Scene, key: str, habit: Habit, said: SaidDay) -> str:
    slots = {"name": scene.name(habit.id), "did": _did(scene, habit)}
    return scene.user(key, **slots, day=said.text, the_day=said.noun)


def _did(scene: Scene, habit: Habit) -> str:
    """Return what the user did; Korean without its ending, so that another can follow."""
    did = scene.did(habit.id)
    return did.removesuffix("어") if scene.locale == "ko" else did


def _other_day(scene: Scene, habit: Habit, _day: date) -> tuple[Habit, date]:
    said = asked_day(scene, habit)
    user = scene.user("then_day", day=said.text, the_day=said.noun)
    return _asked_again(scene, user, habit, said.day)


def _other_habit(scene: Scene, habit: Habit, _day: date) -> tuple[Habit, date]:
    other = another(scene, habit) if scene.has_choice else habit
    said = asked_day(scene, other)
    name = scene.name(other.id)
    user = scene.user("then_habit_day", name=name, day=said.text, the_day=said.noun)
    return _asked_again(scene, user, other, said.day)


def _earlier(scene: Scene, habit: Habit, day: date) -> tuple[Habit, date]:
    key, back = scene.rng.choice((("then_day_before", 1), ("then_week_before", 7)))
    return _asked_again(scene, scene.user(key), habit, day - timedelta(days=back))


def _asked_again(scene: Scene, user: str, habit: Habit, day: date) -> tuple[Habit, date]:
    scene.add(user, scene.acts([query(habit.id, day, day)], day_words(scene, day)))
    return habit, day


_STEPS = (_other_day, _other_day, _other_habit, _earlier)


def day_words(scene: Scene, day: date, *, is_plain: bool = False) -> Last:
    """Return what is said about one habit on one day."""

    def last(settled: Settled, words: Words) -> str:
        report = only_report(settled)
        value = report["entries"].get(day.isoformat())
        key = {None: "day_none", _DONE: "day_done"}.get(value, "day_blank")
        plain = "_plain" if is_plain and value else ""
        return words(key + plain, day=scene.day_words(day), title=report["title"])

    return last


def _streak_words() -> Last:
    def last(settled: Settled, words: Words) -> str:
        report = only_report(settled)
        length = report["streak_days"]
        key = "streak" if length else "streak_zero"
        return words(key, title=report["title"], streak=length, unit=unit(length))

    return last


def range_words(scene: Scene, said: SaidDates, kind: str) -> Last:
    """Return what is said about one habit in a span; `kind` is count, rate or missed."""

    def last(settled: Settled, words: Words) -> str:
        report = only_report(settled)
        entries, done = report["entries"], report["done_days"]
        slots = {
            "range": said.text,
            "title": report["title"],
            "done": done,
            "unit": unit(done),
            "total": report["logged_days"],
            "percent": round(100 * (report["done_rate"] or 0)),
        }
        if not entries:
            return words("count_none", **slots)
        if kind == "missed":
            blank = [day for day, value in entries.items() if value != _DONE]
            key = "missed" if blank else "missed_none"
            return words(key, **slots, days=_dates(scene, blank))
        if not done:
            return words("count_zero", **slots)
        return words(kind, **slots)

    return last


def _dates(scene: Scene, days: Sequence[str]) -> str:
    return ", ".join(plain_day(date.fromisoformat(day), scene.locale) for day in days)


# --------------------------------------------------------------------------- several habits at once

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
