"""Talk about the tracker: what was done on a day or in a span, how often, in a row."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from lhkit.models.scripted import Reply, call
from lhkit.tuning.life_helper.scene import Last, Scene, Settled, Words, data_of
from lhkit.tuning.life_helper.spoken_dates import SaidDay, SaidRange, past_days, ranges

DONE = "done"


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
    """Was a habit done on a day? Sometimes asked again about another day."""
    habit = scene.habit()
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    name = scene.name(habit.id)
    calls = [*listed_first(scene), query(habit.id, said.day, said.day)]
    user = scene.user("asked_day", name=name, day=said.text, the_day=said.noun)
    scene.add(user, scene.acts(calls, _day_words(scene, said)))
    if scene.chance(0.3):
        other = scene.rng.choice(past_days(scene.world.today, scene.locale))
        again = [query(habit.id, other.day, other.day)]
        user = scene.user("then_day", day=other.text, the_day=other.noun)
        scene.add(user, scene.acts(again, _day_words(scene, other)))


def archived_on_a_day(scene: Scene) -> None:
    """Was an archived habit done on a day? Its id stands in the list of all."""
    habit = scene.habit("archived")
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    calls = [call("list_habits", status="all"), query(habit.id, said.day, said.day)]
    scene.is_listed = True
    name = scene.name(habit.id)
    user = scene.user("asked_archived", name=name, day=said.text, the_day=said.noun)
    scene.add(user, scene.acts(calls, _day_words(scene, said)))


def in_a_range(scene: Scene) -> None:
    """How often, at what rate, or when not, in a span. Sometimes asked about another span."""
    habit = scene.habit()
    kind = scene.rng.choice(("count", "count", "rate", "missed"))
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    user = scene.user(f"asked_{kind}", name=scene.name(habit.id), range=said.text)
    scene.add(user, scene.acts(calls, _range_words(scene, said, kind)))
    if scene.chance(0.25):
        other = scene.rng.choice(ranges(scene.world.today, scene.locale))
        again = [query(habit.id, other.first, other.last)]
        user = scene.user("then_range", range=other.text)
        scene.add(user, scene.acts(again, _range_words(scene, other, kind)))


def streak(scene: Scene) -> None:
    """How many days in a row."""
    habit = scene.habit()
    calls = [*listed_first(scene), query(habit.id)]

    def last(settled: Settled, words: Words) -> str:
        report = _only(settled)
        length = report["streak_days"]
        key = "streak" if length else "streak_zero"
        return words(key, title=report["title"], streak=length)

    scene.add(scene.user("asked_streak", name=scene.name(habit.id)), scene.acts(calls, last))


def everything(scene: Scene) -> None:
    """All habits in a span, or the best of them."""
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    is_best = scene.chance(0.35)
    calls = [query(None, said.first, said.last)]

    def last(settled: Settled, words: Words) -> str:
        counted = [
            (each["title"], _done(each["entries"])) for each in data_of(settled).get("habits", [])
        ]
        if not counted:
            return words("habits_none")
        if is_best:
            title, most = max(counted, key=lambda pair: pair[1])
            key = "best" if most else "best_none"
            return words(key, title=title, done=most, range=said.text)
        return words("all_report", range=said.text, items=_items(counted, scene.locale))

    user = scene.user("asked_best" if is_best else "asked_all", range=said.text)
    scene.add(user, scene.acts(calls, last))


def vague(scene: Scene) -> None:
    """No habit named: asked back, then answered."""
    if not scene.has_choice:
        return
    scene.add(scene.user("tracker_vague"), scene.says("ask_which_tracker"))
    habit = scene.habit()
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    user = scene.user("asked_count", name=scene.name(habit.id), range=said.text)
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    scene.add(user, scene.acts(calls, _range_words(scene, said, "count")))


def mended_date(scene: Scene) -> None:
    """A date in words is refused; the day as YYYY-MM-DD is taken."""
    habit = scene.habit()
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    wrong = call("query_tracker", **{"habit_id": habit.id, "from": said.noun, "to": said.noun})
    before = listed_first(scene)
    calls = [*before, wrong, query(habit.id, said.day, said.day)]
    user = scene.user("asked_day", name=scene.name(habit.id), day=said.text, the_day=said.noun)
    scene.add(user, scene.acts(calls, _day_words(scene, said)), slips=[len(before)])


def breaks(scene: Scene) -> None:
    """The tracker fails once: said so; when asked again, it is read again."""
    habit = scene.habit()
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    asked = query(habit.id, said.first, said.last)
    scene.breaks("query_tracker")
    user = scene.user("asked_count", name=scene.name(habit.id), range=said.text)
    words = _range_words(scene, said, "count")
    scene.add(user, scene.acts([*listed_first(scene), asked], words))
    scene.add(scene.user("try_again"), scene.acts([asked], words))


def _only(settled: Settled) -> Mapping[str, Any]:
    (report,) = data_of(settled)["habits"]
    return dict(report)


def _done(entries: Mapping[str, str]) -> int:
    return sum(value == DONE for value in entries.values())


def _day_words(scene: Scene, said: SaidDay) -> Last:
    def last(settled: Settled, words: Words) -> str:
        report = _only(settled)
        value = report["entries"].get(said.day.isoformat())
        key = {None: "day_none", DONE: "day_done"}.get(value, "day_blank")
        return words(key, day=scene.day_words(said.day), title=report["title"])

    return last


def _range_words(scene: Scene, said: SaidRange, kind: str) -> Last:
    def last(settled: Settled, words: Words) -> str:
        report = _only(settled)
        entries = report["entries"]
        done = _done(entries)
        slots = {
            "range": said.text,
            "title": report["title"],
            "done": done,
            "total": len(entries),
            "blank": len(entries) - done,
            "percent": round(100 * (report["done_rate"] or 0)),
        }
        if not entries:
            return words("count_none", **slots)
        if kind == "missed":
            blank = [day for day, value in entries.items() if value != DONE]
            key = "missed" if blank else "missed_none"
            return words(key, **slots, days=_days(scene, blank))
        if not done:
            return words("count_zero", **slots)
        days = [day for day, value in entries.items() if value == DONE]
        return words(kind, **slots, days=_days(scene, days))

    return last


def _days(scene: Scene, days: Sequence[str]) -> str:
    return ", ".join(scene.day_words(date.fromisoformat(day)) for day in sorted(days))


def _items(counted: Sequence[tuple[str, int]], locale: str) -> str:
    unit = "일" if locale == "ko" else " days"
    return ", ".join(f"{title} {count}{unit}" for title, count in counted)
