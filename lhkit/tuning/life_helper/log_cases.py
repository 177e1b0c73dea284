"""Talk about logging that needs a look first, a choice, or a change of what is there."""

from dataclasses import replace
from datetime import date

from lhkit.models.scripted import call
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.log_talk import counted, log_line, logged_words, logging
from lhkit.tuning.life_helper.scene import Scene, Settled, Words
from lhkit.tuning.life_helper.spoken_dates import past_days, ranges
from lhkit.tuning.life_helper.tracker_talk import listed_first, query

_MOSTLY_YES: tuple[Answers, ...] = ("accept", "accept", "accept", "reject", "absent")
_OTHER = {"done": "blank", "blank": "done"}


def log_switched(scene: Scene) -> None:
    """An entry that stands is changed, today's or another day's."""
    habit = scene.habit()
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    is_today = scene.chance(0.5)
    day = scene.world.today if is_today else said.day
    value = scene.rng.choice(("done", "blank"))
    _set_entry(scene, habit.id, day, _OTHER[value])
    spoken = scene.day_words(day) if is_today else said.text
    user = scene.user(f"switch_{value}", name=scene.name(habit.id), day=spoken)
    calls = [*listed_first(scene), logging(habit.id, value, None if is_today else day)]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(user, act, confirm=scene.rng.choice(_MOSTLY_YES))


def log_half(scene: Scene) -> None:
    """There is nothing between done and blank: asked which of them, then logged."""
    habit = scene.habit()
    name = scene.name(habit.id)
    scene.add(scene.user("log_half", name=name), scene.says("half", name=name))
    value = scene.rng.choice(("done", "blank"))
    calls = [*listed_first(scene), logging(habit.id, value)]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    scene.add(scene.user(f"pick_{value}"), act)


def log_only(scene: Scene) -> None:
    """A look at the list is asked for, and one of the habits is logged: that one alone."""
    habit = scene.habit()
    scene.is_listed = True
    calls = [call("list_habits"), logging(habit.id, "done")]
    act = scene.acts(calls, logged_words(scene, scene.title(habit.id)))
    user = scene.user("log_only", name=scene.name(habit.id))
    scene.add(user, act, confirm=scene.rng.choice(_MOSTLY_YES))


def log_missing(scene: Scene) -> None:
    """A day is looked up and is empty: filled in when the user says so."""
    habit = scene.habit()
    title = scene.title(habit.id)
    said = scene.rng.choice(past_days(scene.world.today, scene.locale))
    _set_entry(scene, habit.id, said.day, None)

    def none(_settled: Settled, words: Words) -> str:
        return words("look_none", title=title, day=scene.day_words(said.day))

    calls = [*listed_first(scene), query(habit.id, said.day, said.day)]
    slots = {"name": scene.name(habit.id), "day": said.text, "the_day": said.noun}
    scene.add(scene.user("asked_day", **slots), scene.acts(calls, none))
    act = scene.acts([logging(habit.id, "done", said.day)], logged_words(scene, title))
    scene.add(scene.user("fill_in"), act)
    if scene.chance(0.4):
        scene.add(scene.remark("leave_open"), scene.says("leave_it"))


def log_counted(scene: Scene) -> None:
    """Two wishes in one message: days counted, and today logged."""
    habit = scene.habit()
    title = scene.title(habit.id)
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    calls = [
        *listed_first(scene),
        query(habit.id, said.first, said.last),
        logging(habit.id, "done"),
    ]
    logged = logged_words(scene, title)

    def last(settled: Settled, words: Words) -> str:
        count = counted(title, said.text)(settled[:-1], words)
        return f"{count} {logged(settled, words)}"

    user = scene.user("count_and_log", name=scene.name(habit.id), range=said.text)
    scene.add(user, scene.acts(calls, last), confirm=scene.rng.choice(_MOSTLY_YES))


def log_repeated(scene: Scene) -> None:
    """The same call once more is refused, and not learnt; the answer is what the first one gave."""
    habit = scene.habit()
    logged = logged_words(scene, scene.title(habit.id))
    value = scene.rng.choice(("done", "done", "blank"))
    saving = logging(habit.id, value)
    before = listed_first(scene)
    act = scene.acts([*before, saving, saving], lambda settled, words: logged(settled[:-1], words))
    scene.add(log_line(scene, habit.id, value, None), act, slips=[len(before) + 1])


def _set_entry(scene: Scene, habit_id: str, day: date, value: str | None) -> None:
    others = [each for each in scene.world.entries if each[:2] != (habit_id, day)]
    mine = [(habit_id, day, value)] if value else []
    scene.world = replace(scene.world, entries=(*others, *mine))
