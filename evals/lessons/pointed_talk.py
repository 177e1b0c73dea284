"""Talk that points: the second of the habits that were listed, the last of what a search found."""

from collections.abc import Callable, Mapping, Sequence

from evals.lessons.catalog_talk import any_protocol, found_words, open_asked, steps_words, wish_of
from evals.lessons.habit_talk import added_words, asking, give, listing, planned, told
from evals.lessons.log_talk import counted, logged_words, logging
from evals.lessons.scene import (
    REFUSALS,
    Habit,
    SaidDay,
    Scene,
    catalog,
    hits,
    past_days,
    plain_day,
)
from evals.lessons.tracker_talk import (
    asked_day,
    asked_range,
    day_words,
    listed_first,
    query,
)
from lhkit.models.scripted import call
from lhkit.tuning.teacher import Answers

# --------------------------------------------------------------------------------- places in a list

_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_MOST_SHOWN = 3
_MIDDLE = (1, 3)  # which, of how many


def _place(scene: Scene, index: int, count: int) -> Mapping[str, str]:
    """Return the words for a place among `count`: alone ("the last one"), and before a noun."""
    names = [_ORDINALS[index]]
    if 0 < index == count - 1:
        names.append("last")
    if (index, count) == _MIDDLE:
        names.append("middle")
    name = scene.rng.choice(names)
    return {slot: scene.rng.choice(scene.phrases.lines[slot][name]) for slot in ("nth", "nth_of")}


def _confirm(scene: Scene) -> Answers:
    return scene.rng.choice(REFUSALS) if scene.chance(0.15) else "accept"


# ----------------------------------------------------------------------------- after a list of them


def nth_logged(scene: Scene) -> None:
    """A habit is logged by its place: in the list that was told, or in one that is looked up."""
    if scene.chance(0.8):
        _list_them(scene)
        _log_nth(scene, _drawn(scene), confirm=_confirm(scene))
        return
    index = _drawn(scene)
    habit = _ordered(scene)[index]
    calls = [*listed_first(scene), logging(habit.id, "done")]
    user = scene.user("nth_unseen", **_place(scene, index, len(_ordered(scene))))
    scene.add(user, scene.acts(calls, logged_words(scene, scene.title(habit.id))))


def nth_tracked(scene: Scene) -> None:
    """The habits are listed, then the record of one is asked for by its place."""
    _list_them(scene)
    _track_nth(scene, _drawn(scene))


def nth_told(scene: Scene) -> None:
    """The habits are listed, and the list has told what is asked of one: nothing is called."""
    _list_them(scene)
    for index in scene.rng.sample(range(len(_ordered(scene))), scene.rng.choice((1, 1, 2))):
        _tell_nth(scene, index)


def nth_in_turn(scene: Scene) -> None:
    """One list, and several things asked of its rows by their places, with words in between."""
    _list_them(scene)
    count = len(_ordered(scene))
    for index in scene.rng.sample(range(count), scene.rng.randint(2, count)):
        if scene.chance(0.25):
            user, answer = scene.paired("after_task")
            scene.add(user, scene.speaks(answer))
        scene.rng.choice(_STEPS)(scene, index)


def nth_missing(scene: Scene) -> None:
    """A place that the list has not: said so, nothing is logged; then one that it has."""
    _list_them(scene)
    count = len(_ordered(scene))
    beyond = scene.rng.randrange(count, len(_ORDINALS))
    key = scene.rng.choice(("nth_done", "nth_blank"))
    user = scene.user(key, **_place(scene, beyond, len(_ORDINALS) + 1))
    scene.add(user, scene.says("nth_missing", count=count))
    if scene.chance(0.6):
        _log_nth(scene, _drawn(scene))


def _list_them(scene: Scene) -> None:
    scene.is_listed = True
    scene.add(scene.user("list_active"), listing(scene, "active"))


def _ordered(scene: Scene) -> Sequence[Habit]:
    """Return the active habits in the order of the tool."""
    active = scene.world.of_status("active")
    return sorted(active, key=lambda habit: (habit.created_on, habit.id))


def _drawn(scene: Scene) -> int:
    return scene.rng.randrange(len(_ordered(scene)))


def _log_nth(scene: Scene, index: int, *, confirm: Answers = "accept") -> None:
    habits = _ordered(scene)
    value = scene.rng.choice(("done", "done", "blank"))
    said: SaidDay | None = None
    if scene.chance(0.3):
        value, said = "done", scene.rng.choice(past_days(scene.world.today, scene.locale))
    slots = {"day": said.text, "the_day": said.noun} if said else {}
    key = "nth_done_day" if said else f"nth_{value}"
    user = scene.user(key, **_place(scene, index, len(habits)), **slots)
    calls = [logging(habits[index].id, value, said.day if said else None)]
    words = logged_words(scene, scene.title(habits[index].id))
    scene.add(user, scene.acts(calls, words), confirm=confirm)


def _track_nth(scene: Scene, index: int) -> None:
    habits = _ordered(scene)
    habit, place = habits[index], _place(scene, index, len(habits))
    if scene.chance(0.3):
        on = asked_day(scene, habit)
        user = scene.user("nth_day", **place, day=on.text, the_day=on.noun)
        calls, words = [query(habit.id, on.day, on.day)], day_words(scene, on.day)
    else:
        said = asked_range(scene, habit)
        user = scene.user("nth_range", **place, range=said.text)
        calls = [query(habit.id, said.first, said.last)]
        words = counted(scene.title(habit.id), said.text)
    scene.add(user, scene.acts(calls, words))


def _tell_nth(scene: Scene, index: int) -> None:
    habits = _ordered(scene)
    habit = habits[index]
    known = {
        "sentence": habit.sentence,
        "anchor": habit.anchor[1],
        "begun": plain_day(habit.created_on, scene.locale),
        "title": "",
    }
    kind = scene.rng.choice(tuple(known))
    user = scene.user(f"nth_{kind}", **_place(scene, index, len(habits)))
    scene.add(user, scene.says(f"nth_{kind}", title=scene.title(habit.id), told=known[kind]))


_STEPS: Sequence[Callable[[Scene, int], None]] = (_log_nth, _log_nth, _track_nth, _tell_nth)


# ------------------------------------------------------------------------- after a search's results


def found_nth_opened(scene: Scene) -> None:
    """A search, then one of what it found is opened by its place; then perhaps another."""
    found = _search(scene)
    for number, index in enumerate(
        scene.rng.sample(range(len(found)), scene.rng.choice((1, 1, min(2, len(found)))))
    ):
        _open_nth(scene, found, index, "nth_then" if number else "nth_open")


def found_nth_asked(scene: Scene) -> None:
    """A search, then a question on one of what it found, by its place: opened and answered."""
    found = _search(scene)
    index = scene.rng.randrange(len(found))
    open_asked(scene, found[index], "nth_asked", calls=[], **_place(scene, index, len(found)))


def found_nth_added(scene: Scene) -> None:
    """A search, perhaps a look, then one of what it found is added by its place."""
    found = _search(scene)
    taken = {habit.id for habit in scene.world.habits}
    free = [index for index, each in enumerate(found) if each not in taken]
    if not free:
        return
    index = scene.rng.choice(free)
    if scene.chance(0.3):
        _open_nth(scene, found, scene.rng.randrange(len(found)), "nth_open")
    plan = planned(scene, protocol_id=found[index])
    place = _place(scene, index, len(found))
    if scene.chance(0.35):
        scene.add(scene.user("nth_add_bare", **place), scene.acts([], asking(plan, "ask_both")))
        give(scene, plan, "give_both")
        return
    adding = scene.acts([plan.adding()], added_words(scene, plan))
    scene.add(told(scene, "nth_add", plan, **place), adding, confirm=_confirm(scene))


def _search(scene: Scene) -> Sequence[str]:
    """Add a search that finds several; return the ids that its reply names, in order."""
    while True:
        wish = wish_of(scene, any_protocol(scene))
        found = hits(wish.query, scene.locale)
        if len(found) > 1:
            break
    if scene.chance(0.4) or (len(found) > _MOST_SHOWN and scene.chance(0.5)):
        limit = scene.rng.randint(2, min(len(found), len(_ORDINALS)))
        calls = [call("search_catalog", query=wish.query, limit=limit)]
        user = scene.user("limited", q=wish.query, n=limit)
        shown = limit
    else:
        calls = [call("search_catalog", query=wish.query)]
        user = scene.user("search", wish=wish.text)
        shown = min(_MOST_SHOWN, len(found))
    scene.add(user, scene.acts(calls, found_words(scene, None, wish.query, most=shown)))
    return found[:shown]


def _open_nth(scene: Scene, found: Sequence[str], index: int, key: str) -> None:
    opened = [call("query_protocol", protocol_id=found[index])]
    user = scene.user(key, **_place(scene, index, len(found)))
    title = catalog()[found[index]].texts[scene.locale].title
    scene.add(user, scene.acts(opened, steps_words(title)))
