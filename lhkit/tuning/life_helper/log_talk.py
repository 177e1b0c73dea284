"""Talk about logging: done or blank, today or another day, refused, corrected, unclear."""

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
)
from lhkit.tuning.life_helper.spoken_dates import SaidDay, past_days
from lhkit.tuning.life_helper.tracker_talk import listed_first
from lhkit.tuning.life_helper.worlds import with_active
from lhkit.vocab.results import ToolCancelled

_REFUSALS: tuple[Answers, ...] = ("reject", "reject", "absent")


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


def log(scene: Scene, *, confirm: Answers = "accept") -> str:
    """Log a habit, today or on another day; return its id."""
    habit = scene.habit()
    value = scene.rng.choice(("done", "done", "done", "blank"))
    said = _some_day(scene)
    user = _log_line(scene, habit.id, value, said)
    calls = [*listed_first(scene), logging(habit.id, value, said.day if said else None)]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(user, act, confirm=confirm)
    return habit.id


def log_refused(scene: Scene) -> None:
    """The user does not confirm: nothing is claimed, nothing tried again, whatever comes next."""
    habit_id = log(scene, confirm=scene.rng.choice(_REFUSALS))
    then = scene.rng.choices(("leaves it", "presses", "corrects", ""), (30, 35, 20, 15))[0]
    if then == "leaves it":
        scene.add(scene.user("after_no"), scene.says("leave_it"))
    elif then == "presses":
        scene.add(scene.user("pressure"), scene.says("no_without_yes"))
    elif then == "corrects":
        _corrected_day(scene, habit_id)


def log_two(scene: Scene) -> None:
    """Two habits in one message: one call after the other, one answer."""
    if not scene.has_choice:
        return
    first, second = scene.rng.sample(scene.world.of_status("active"), 2)
    is_mixed = scene.chance(0.5)
    values = ("done", "blank" if is_mixed else "done")
    user = scene.user(
        "log_mixed" if is_mixed else "log_two",
        name=scene.name(first.id),
        name2=scene.name(second.id),
        did=_did(scene, first.id),
        did2=_did(scene, second.id),
    )
    calls = [
        *listed_first(scene),
        *(logging(each.id, value) for each, value in zip((first, second), values, strict=True)),
    ]
    titles = (scene.title(first.id), scene.title(second.id))

    def last(settled: Settled, words: Words) -> str:
        if isinstance(settled[-1].result, ToolCancelled):
            return words("not_logged", title=titles[1])
        return words(
            "logged_two",
            title=titles[0],
            title2=titles[1],
            value=scene.value_words(values[0]),
            value2=scene.value_words(values[1]),
            day=scene.day_words(scene.world.today),
        )

    scene.add(user, scene.acts(calls, last))


def log_vague(scene: Scene) -> None:
    """No habit named: asked back, then logged."""
    if not scene.has_choice:
        return
    scene.add(scene.user("log_vague"), scene.says("ask_which"))
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
        _log_line(scene, habit.id, "done", None), scene.acts(calls, logged_words(scene, title))
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
    calls = [*listed_first(scene), logging(habit.id, "done", day)]
    scene.add(user, scene.acts(calls, logged_words(scene, scene.title(habit.id))))


def log_unknown(scene: Scene) -> None:
    """A habit that the user has not: the list shows it, and the answer says so."""
    name = scene.rng.choice(scene.phrases.lines["fake_habit"])
    calls = [call("list_habits")]
    scene.is_listed = True

    def last(settled: Settled, words: Words) -> str:
        titles = [each["title"] for each in data_of(settled).get("habits", [])]
        if not titles:
            return words("no_such_habit_empty", name=name)
        return words("no_such_habit", name=name, titles=scene.listing(titles))

    scene.add(scene.user("no_such", name=name), scene.acts(calls, last))
    if scene.world.of_status("active") and scene.chance(0.4):
        habit = scene.habit()
        act = scene.acts([logging(habit.id, "done")], logged_words(scene, scene.title(habit.id)))
        scene.add(_log_line(scene, habit.id, "done", None), act)


def log_archived(scene: Scene) -> None:
    """An archived habit takes no entries: the list of active ones shows it."""
    habit = scene.habit("archived")
    title = scene.title(habit.id)

    def last(settled: Settled, words: Words) -> str:
        rows = data_of(settled).get("habits", [])
        if not any(row["id"] == habit.id and row["status"] == "archived" for row in rows):
            return words("broken")
        active = [row["title"] for row in rows if row["status"] == "active"]
        return words("not_active", title=title, titles=scene.listing(active))

    calls = [call("list_habits", status="all")]
    slots = {"name": scene.name(habit.id), "did": _did(scene, habit.id)}
    scene.is_listed = True
    scene.add(scene.user("log_archived", **slots), scene.acts(calls, last))


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
    scene.add(_log_line(scene, habit.id, "done", None), act, slips=[0])


def log_breaks(scene: Scene) -> None:
    """Saving fails: said so; when asked again, it is done again, and may fail again."""
    habit = scene.habit()
    saving = logging(habit.id, "done")
    words = logged_words(scene, scene.title(habit.id))
    scene.breaks("log_tracker_entry", times=scene.rng.choice((1, 1, 2)))
    calls = [*listed_first(scene), saving]
    scene.add(_log_line(scene, habit.id, "done", None), scene.acts(calls, words))
    scene.add(scene.user("try_again"), scene.acts([saving], words))


def _some_day(scene: Scene) -> SaidDay | None:
    if scene.chance(0.55):
        return None
    return scene.rng.choice(past_days(scene.world.today, scene.locale))


def _log_line(scene: Scene, habit_id: str, value: str, said: SaidDay | None) -> str:
    slots = {"name": scene.name(habit_id), "did": _did(scene, habit_id)}
    if said is None:
        return scene.user(f"log_{value}", **slots)
    return scene.user(f"log_{value}_day", **slots, day=said.text, the_day=said.noun)


def _did(scene: Scene, habit_id: str) -> str:
    return scene.rng.choice(scene.spoken(habit_id).done)


def _corrected_day(scene: Scene, habit_id: str) -> None:
    """Another day after a no is another call: it is made."""
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    act = scene.acts(
        [logging(habit_id, "done", said.day)], logged_words(scene, scene.title(habit_id))
    )
    scene.add(scene.user("correct_day", day=said.text, the_day=said.noun), act)
