"""Talk about logging: done or blank, today or another day, corrected, unclear."""

from dataclasses import dataclass
from datetime import date, timedelta

from lhkit.models.scripted import Reply, call
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.scene import (
    Last,
    Scene,
    Settled,
    Words,
    data_of,
    dates_in_reason,
    failure,
    rows_of,
    titles_of,
)
from lhkit.tuning.life_helper.spoken_dates import SaidDay, past_days, ranges
from lhkit.tuning.life_helper.tracker_talk import listed_first, only_report, query
from lhkit.tuning.life_helper.worlds import with_active
from lhkit.vocab.results import ToolCancelled

_OF_TWO: tuple[Answers, ...] = ("accept",) * 6 + (
    ("accept", "reject"),
    ("reject", "accept"),
    "reject",
    "absent",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An entry that the user asked for; no day is today."""

    habit_id: str
    value: str
    day: date | None = None


def logging(habit_id: str, value: str, day: date | None = None) -> Reply:
    """Return the call that logs; no day is today."""
    when = {"date": day.isoformat()} if day else {}
    return call("log_tracker_entry", habit_id=habit_id, value=value, **when)


def logged_words(scene: Scene, title: str) -> Last:
    """Return what is said about one logged entry, whatever became of it."""

    def last(settled: Settled, words: Words) -> str:
        if isinstance(settled[-1].result, ToolCancelled):
            return words("not_logged", title=title)
        if failure(settled) == "invalid_date":
            return words("future", day=scene.day_words(max(dates_in_reason(settled))))
        data = data_of(settled)
        if not data:
            return words("broken")
        entry = data["entry"]
        slots = {
            "title": title,
            "day": scene.day_words(date.fromisoformat(entry["date"])),
            "value": scene.value_words(entry["value"]),
        }
        if data.get("already"):
            return words("logged_already", **slots)
        if "previous" in data:
            previous = scene.value_words(data["previous"])
            return words("logged_changed", **slots, previous=previous)
        return words(f"logged_{entry['value']}", **slots)

    return last


def counted(title: str, range_said: str) -> Last:
    """Return what is said about the days done in a span."""

    def last(settled: Settled, words: Words) -> str:
        report = only_report(settled)
        key = "counted" if report["entries"] else "counted_none"
        return words(key, title=title, range=range_said, done=report["done_days"])

    return last


def log(scene: Scene, *, confirm: Answers = "accept", value: str = "") -> Asked:
    """Log a habit, today or on another day; return what was asked for."""
    habit = scene.habit()
    value = value or scene.rng.choice(("done", "done", "done", "blank"))
    said = _some_day(scene)
    day = said.day if said else None
    user = log_line(scene, habit.id, value, said)
    calls = [*listed_first(scene), logging(habit.id, value, day)]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(user, act, confirm=confirm)
    return Asked(habit_id=habit.id, value=value, day=day)


def log_two(scene: Scene) -> None:
    """Two habits in one message: one call after the other, one answer."""
    if not scene.has_choice:
        return
    first, second = scene.two_habits()
    is_mixed = scene.chance(0.5)
    values = ("done", "blank" if is_mixed else "done")
    user = scene.user(
        "log_mixed" if is_mixed else "log_two",
        name=scene.name(first.id),
        name2=scene.name(second.id),
        did=scene.did(first.id),
        did2=scene.did(second.id),
    )
    calls = [
        *listed_first(scene),
        *(logging(each.id, value) for each, value in zip((first, second), values, strict=True)),
    ]
    titles = (scene.title(first.id), scene.title(second.id))
    scene.add(
        user,
        scene.acts(calls, _two_words(scene, titles, values)),
        confirm=scene.rng.choice(_OF_TWO),
    )


def _two_words(scene: Scene, titles: tuple[str, str], values: tuple[str, str]) -> Last:
    def last(settled: Settled, words: Words) -> str:
        saved = [not isinstance(each.result, ToolCancelled) for each in settled[-2:]]
        spoken = [scene.value_words(value) for value in values]
        if not any(saved):
            return words("logged_neither", title=titles[0], title2=titles[1])
        if not all(saved):
            one = saved.index(True)
            return words("logged_one", title=titles[one], value=spoken[one], title2=titles[1 - one])
        return words(
            "logged_two",
            title=titles[0],
            title2=titles[1],
            value=spoken[0],
            value2=spoken[1],
            day=scene.day_words(scene.world.today),
        )

    return last


def log_vague(scene: Scene) -> None:
    """No habit named: asked back, then logged."""
    if not scene.has_choice:
        return
    scene.add(scene.user("log_vague"), scene.says("ask_which"))
    if scene.chance(0.3):
        scene.add(scene.user("vague_pressed"), scene.says("ask_which"))
    habit = scene.habit()
    calls = [*listed_first(scene), logging(habit.id, "done")]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(scene.user("which_one", name=scene.name(habit.id)), act)


def log_corrected(scene: Scene) -> None:
    """Logged as done, then taken back: the same day becomes blank."""
    habit = scene.habit()
    title = scene.title(habit.id)
    calls = [*listed_first(scene), logging(habit.id, "done")]
    scene.add(
        log_line(scene, habit.id, "done", None), scene.acts(calls, logged_words(scene, title))
    )
    again = scene.acts([logging(habit.id, "blank")], logged_words(scene, title))
    scene.add(scene.user("correct_value"), again)


def log_future(scene: Scene) -> None:
    """A day to come: the tool refuses it, and the answer says why."""
    habit = scene.habit()
    name = scene.name(habit.id)
    user = scene.user("log_future", name=name)
    days = 2 if "모레" in user else 1
    day = scene.world.today + timedelta(days=days)
    words = logged_words(scene, scene.title(habit.id))
    calls = [*listed_first(scene), logging(habit.id, "done", day)]
    scene.add(user, scene.acts(calls, words))
    if scene.chance(0.5):
        scene.add(scene.user("then_today"), scene.acts([logging(habit.id, "done")], words))


def log_unknown(scene: Scene) -> None:
    """A habit that the user has not: the list shows it, and the answer says so."""
    name = scene.rng.choice(scene.phrases.lines["fake_habit"])
    calls = [call("list_habits")]
    scene.is_listed = True

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "habits")
        if not titles:
            return words("no_such_habit_empty", name=name)
        return words("no_such_habit", name=name, titles=scene.listing(titles))

    scene.add(scene.user("no_such", name=name), scene.acts(calls, last))
    if scene.world.of_status("active") and scene.chance(0.4):
        habit = scene.habit()
        act = scene.acts([logging(habit.id, "done")], logged_words(scene, scene.title(habit.id)))
        scene.add(scene.user("meant_other", name=scene.name(habit.id)), act)


def log_archived(scene: Scene) -> None:
    """An archived habit takes no entries: the list of active ones shows it."""
    habit = scene.habit("archived")
    title = scene.title(habit.id)

    def last(settled: Settled, words: Words) -> str:
        rows = rows_of(settled, "habits")
        if not any(row["id"] == habit.id and row["status"] == "archived" for row in rows):
            return words("broken")
        active = [row["title"] for row in rows if row["status"] == "active"]
        return words("not_active", title=title, titles=scene.listing(active))

    calls = [call("list_habits", status="all")]
    slots = {"name": scene.name(habit.id), "did": scene.did(habit.id)}
    scene.is_listed = True
    scene.add(scene.user("log_archived", **slots), scene.acts(calls, last))
    if scene.chance(0.4):
        said = scene.rng.choice(ranges(scene.world.today, scene.locale))
        asked = [query(habit.id, said.first, said.last)]
        act = scene.acts(asked, counted(title, said.text))
        scene.add(scene.user("instead_count", range=said.text), act)


def log_ambiguous(scene: Scene) -> None:
    """Words that fit two habits: the list, a question back, then the one that was meant."""
    lines = scene.phrases.lines["ambiguous"]
    *texts, first, second = scene.rng.choice(lines)
    scene.world = with_active(scene.world, (first, second), scene.phrases, scene.rng)
    meant, other = scene.rng.sample((first, second), 2)
    scene.is_listed = True

    def asks(_settled: Settled, words: Words) -> str:
        return words("ask_which_of", title=scene.title(first), title2=scene.title(second))

    scene.add(scene.rng.choice(texts), scene.acts([call("list_habits")], asks))
    name = scene.rng.choice(
        [each for each in scene.spoken(meant).names if each not in scene.spoken(other).names]
    )
    act = scene.acts([logging(meant, "done")], logged_words(scene, scene.title(meant)))
    scene.add(scene.user("which_one", name=name), act)


def log_mended(scene: Scene) -> None:
    """A guessed id is not found; the list gives the right one."""
    habit = scene.habit()
    guessed = f"{habit.id}-{scene.rng.choice(('today', 'habit', 'daily', '20'))}"
    calls = [
        logging(guessed, "done"),
        call("list_habits"),
        logging(habit.id, "done"),
    ]
    scene.is_listed = True
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(log_line(scene, habit.id, "done", None), act, slips=[0])


def log_breaks(scene: Scene) -> None:
    """Saving fails: said so; when asked again, it is done again, and may fail again."""
    habit = scene.habit()
    saving = logging(habit.id, "done")
    words = logged_words(scene, scene.title(habit.id))
    scene.breaks("log_tracker_entry", times=scene.rng.choice((1, 1, 2)))
    calls = [*listed_first(scene), saving]
    scene.add(log_line(scene, habit.id, "done", None), scene.acts(calls, words))
    scene.add(scene.user("try_again"), scene.acts([saving], words))


def _some_day(scene: Scene) -> SaidDay | None:
    if scene.chance(0.45):
        return None
    return scene.rng.choice(past_days(scene.world.today, scene.locale))


def log_line(scene: Scene, habit_id: str, value: str, said: SaidDay | None) -> str:
    """Return what a user says who has a habit logged; None: for today."""
    slots = {"name": scene.name(habit_id), "did": scene.did(habit_id)}
    if said is None:
        return scene.user(f"log_{value}", **slots)
    return scene.user(f"log_{value}_day", **slots, day=said.text, the_day=said.noun)
