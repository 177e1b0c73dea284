"""Talk of several things: two wishes in one message, what follows a no, long days of work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evals.lessons.catalog_talk import (
    MOST_NAMED,
    any_protocol,
    detail,
    found_words,
    search,
    topic,
    wish_of,
)
from evals.lessons.habit_talk import (
    add,
    added_words,
    list_them,
    planned,
    told,
    with_other_anchor,
)
from evals.lessons.log_talk import Asked, counted, is_done_today, log, logged_words, logging
from evals.lessons.remark_talk import answered, restraint
from evals.lessons.scene import (
    REFUSALS,
    Habit,
    Last,
    Scene,
    Settled,
    Words,
    past_days,
    titles_of,
)
from evals.lessons.tracker_talk import (
    asked_day,
    asked_range,
    day_words,
    in_a_range,
    listed_first,
    on_a_day,
    query,
    range_words,
    streak,
)
from lhkit.models.scripted import Reply, call
from lhkit.tuning.teacher import Answers

# ------------------------------------------------------------------------ two wishes in one message

_JOINED_SHARE = 0.45
"""So often two lines of their own are joined; else the two wishes are one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """One of two wishes: its calls, its reply, its line, and the slots of a line for both.

    `needs_list`: the habits have to be looked up before it.
    """

    kind: str
    line: str
    last: Last
    calls: Sequence[Reply] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    needs_list: bool = True


def two_with_a_write(scene: Scene) -> None:
    """A habit is logged and something else is looked up, in either order."""
    _log_and(scene, "accept")


def two_with_a_no(scene: Scene) -> None:
    """The entry is not confirmed: the other wish is done all the same, and the reply says both."""
    _log_and(scene, scene.rng.choice(REFUSALS))
    if scene.chance(0.3):
        scene.add(scene.remark("after_no"), scene.says("leave_it"))


def two_looks(scene: Scene) -> None:
    """Two things are looked up: a record, and the list or the catalog."""
    wishes = [_tracking(scene, scene.habit()), scene.rng.choice((_listing, _searching))(scene)]
    scene.rng.shuffle(wishes)
    _ask_both(scene, *wishes)


def _log_and(scene: Scene, confirm: Answers) -> None:
    first, second = scene.two_habits()
    counting = _tracking if confirm == "accept" else _counting
    draw = scene.rng.choice(("track", "track", "search", "search", "list"))
    other = {
        "track": lambda: counting(scene, second),
        "search": lambda: _searching(scene),
        "list": lambda: _listing(scene),
    }[draw]()
    wishes = [_logging(scene, first), other]
    scene.rng.shuffle(wishes)
    _ask_both(scene, *wishes, confirm=confirm)


def _logging(scene: Scene, habit: Habit) -> _Wish:
    slots = {"name": scene.name(habit.id), "did": scene.did(habit.id)}
    return _Wish(
        kind="log",
        line=scene.phrases.line("log_done", scene.rng, **slots),
        calls=[logging(habit.id, "done")],
        last=logged_words(scene, scene.title(habit.id)),
        slots=slots,
    )


def _tracking(scene: Scene, habit: Habit) -> _Wish:
    said = asked_range(scene, habit)
    name = scene.name(habit.id)
    return _Wish(
        kind="track",
        line=scene.phrases.line("asked_count", scene.rng, name=name, range=said.text),
        calls=[query(habit.id, said.first, said.last)],
        last=range_words(scene, said, "count"),
        slots={"name2": name, "range": said.text},
    )


def _counting(scene: Scene, habit: Habit) -> _Wish:
    """The record beside an entry that is not made: told in a number, so that it claims nothing."""
    wish = _tracking(scene, habit)
    return replace(wish, last=counted(scene.title(habit.id), wish.slots["range"]))


def _searching(scene: Scene) -> _Wish:
    target = any_protocol(scene)
    asked = wish_of(scene, target).query
    return _Wish(
        kind="search",
        line=scene.phrases.line("topic", scene.rng, q=asked),
        calls=[call("search_catalog", query=asked)],
        last=found_words(scene, target, asked, most=MOST_NAMED),
        slots={"q": asked},
        needs_list=False,
    )


def _listing(scene: Scene) -> _Wish:
    """The list is what was called first, whatever it was for."""

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "habits", 0)
        return words("habits", count=len(titles), titles=scene.listing(titles))

    return _Wish(kind="list", line=scene.phrases.line("list_active", scene.rng), last=last)


def _ask_both(scene: Scene, first: _Wish, second: _Wish, *, confirm: Answers = "accept") -> None:
    # A list is always called: where it is a wish of its own, that is what it was called for.
    is_later = not first.needs_list and second.kind != "list"
    listed = listed_first(scene) if first.needs_list or second.needs_list else []
    before, between = ([], listed) if is_later else (listed, [])
    calls = [*before, *first.calls, *between, *second.calls]
    end = len(before) + len(first.calls)

    def last(settled: Settled, words: Words) -> str:
        return f"{first.last(settled[:end], words)} {second.last(settled, words)}"

    if scene.chance(_JOINED_SHARE):
        user = scene.user("both_joined", first=_stopped(first.line), second=second.line)
    else:
        user = scene.user(f"both_{first.kind}_{second.kind}", **first.slots, **second.slots)
    scene.add(user, scene.acts(calls, last), confirm=confirm)


def _stopped(line: str) -> str:
    return line if line[-1] in ".!?~…" else f"{line}."


# ------------------------------------------------------------------------ after a no, several lines


def no_then_else(scene: Scene) -> None:
    """A no to an entry, a word on it, then another wish: that is done, the entry is not."""
    log(scene, confirm=scene.rng.choice(REFUSALS))
    if scene.chance(0.5):
        answered(scene, "after_no_story")
    scene.rng.choice((search, topic, _count))(scene)
    if scene.chance(0.4):
        restraint(scene)


def _count(scene: Scene) -> None:
    wish = _counting(scene, scene.habit())
    scene.add(
        scene.user("asked_count", name=wish.slots["name2"], range=wish.slots["range"]),
        scene.acts(wish.calls, wish.last),
    )


def no_then_remarks(scene: Scene) -> None:
    """A no, and nothing but words after it: nothing is called."""
    if scene.chance(0.3):
        add(scene, confirm=scene.rng.choice(REFUSALS))
        answered(scene, "after_no_add")
    else:
        log(scene, confirm=scene.rng.choice(REFUSALS))
        answered(scene, "after_no_story")
    for _ in range(scene.rng.choice((0, 1, 1, 2))):
        restraint(scene)


def no_then_corrected(scene: Scene) -> None:
    """A no because something was wrong: the entry is made as corrected, and stays so."""
    asked = log(scene, confirm=scene.rng.choice(REFUSALS))
    scene.rng.choice(_CORRECTIONS)(scene, asked)
    if scene.chance(0.4):
        restraint(scene)


def no_then_other_addition(scene: Scene) -> None:
    """A no to a new habit, then another one or another anchor in its place."""
    plan = add(scene, confirm=scene.rng.choice(REFUSALS))
    if scene.chance(0.4):
        answered(scene, "after_no_add")
    if scene.chance(0.5):
        mended = with_other_anchor(scene, plan)
        act = scene.acts([mended.adding()], added_words(scene, mended))
        scene.add(scene.user("anchor_after_all", **mended.slots()), act)
        return
    other = planned(scene)
    while other.protocol_id == plan.protocol_id:
        other = planned(scene)
    act = scene.acts([*other.finding(), other.adding()], added_words(scene, other))
    scene.add(told(scene, "add_other", other), act)


def _another_value(scene: Scene, asked: Asked) -> None:
    value = "blank" if asked.value == "done" else "done"
    _correct(scene, Asked(habit_id=asked.habit_id, value=value, day=asked.day), f"meant_{value}")


def _another_day(scene: Scene, asked: Asked) -> None:
    days = [each for each in past_days(scene.world.today, scene.locale) if each.day != asked.day]
    said = scene.rng.choice(days)
    mended = Asked(habit_id=asked.habit_id, value=asked.value, day=said.day)
    key = "correct_day" if is_done_today(asked) else "wrong_day"
    _correct(scene, mended, key, day=said.text, the_day=said.noun)


def _another_habit(scene: Scene, asked: Asked) -> None:
    """The habit that is meant is named, unless there is only one other; perhaps also its day."""
    others = [each.id for each in scene.world.of_status("active") if each.id != asked.habit_id]
    other = scene.rng.choice(others)
    mended = Asked(habit_id=other, value=asked.value, day=asked.day)
    if len(others) == 1 and scene.chance(0.5):
        return _correct(scene, mended, "the_other_habit")
    if scene.chance(0.4):
        said = scene.rng.choice(past_days(scene.world.today, scene.locale))
        mended = Asked(habit_id=other, value="done", day=said.day)
        slots = {"name": scene.name(other), "day": said.text, "the_day": said.noun}
        return _correct(scene, mended, "meant_other_day", **slots)
    key = "meant_other" if is_done_today(asked) else "wrong_habit"
    return _correct(scene, mended, key, name=scene.name(other))


def _correct(scene: Scene, asked: Asked, key: str, **slots: str) -> None:
    saving = [logging(asked.habit_id, asked.value, asked.day)]
    words = logged_words(scene, scene.title(asked.habit_id))
    confirm: Answers = "accept" if scene.chance(0.85) else "reject"
    scene.add(scene.user(key, **slots), scene.acts(saving, words), confirm=confirm)


_CORRECTIONS: Sequence[Callable[[Scene, Asked], None]] = (
    _another_value,
    _another_day,
    _another_habit,
    _another_habit,
)
_LOOKS: Sequence[Callable[[Scene], object]] = (search, topic, list_them, on_a_day, in_a_range)
"""For where nothing is saved or refused before."""


# ------------------------------------------------------------------------------------ a day of work

_FEWEST, _MOST = 7, 10
_WORK: Sequence[Callable[[Scene], object]] = (
    on_a_day,
    in_a_range,
    streak,
    list_them,
    topic,
    detail,
)


def long_work(scene: Scene) -> None:
    """Seven to ten turns of looks and words; late ones come back to a habit named early.

    What is logged comes last: beside a number in a reply, a write would have to be told apart.
    """
    habit = scene.habit()
    _named_early(scene, habit)
    length = scene.rng.randint(_FEWEST, _MOST)
    looks = scene.rng.sample((_back_tracked, _back_on_a_day), scene.rng.choice((0, 1)))
    while len(scene.lines) < length - len(looks) - 2:
        if scene.chance(0.35):
            restraint(scene)
        else:
            scene.rng.choice(_WORK)(scene)
    for look in looks:
        look(scene, habit)
    if scene.chance(0.4):
        log(scene)
    _back_logged(scene, habit)
    if scene.chance(0.5):
        restraint(scene)


def recalled(scene: Scene) -> None:
    """A habit named early comes back after a turn or two about other things."""
    habit = scene.habit()
    _named_early(scene, habit)
    for _ in range(scene.rng.choice((1, 1, 2))):
        scene.rng.choice((restraint, *_LOOKS))(scene)
    scene.rng.choice(_BACKS)(scene, habit)


def _named_early(scene: Scene, habit: Habit) -> None:
    name = scene.name(habit.id)
    if scene.chance(0.3):
        answered(scene, "mention", name=name)
        return
    said = asked_range(scene, habit)
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    user = scene.user("asked_count", name=name, range=said.text)
    scene.add(user, scene.acts(calls, range_words(scene, said, "count")))


def _back_logged(scene: Scene, habit: Habit) -> None:
    words = logged_words(scene, scene.title(habit.id))
    name = scene.name(habit.id)
    if scene.chance(0.5):
        user, day = scene.user("back_log", name=name), None
    else:
        said = scene.rng.choice(past_days(scene.world.today, scene.locale))
        user = scene.user("back_log_day", name=name, day=said.text, the_day=said.noun)
        day = said.day
    calls = [*listed_first(scene), logging(habit.id, "done", day)]
    scene.add(user, scene.acts(calls, words))


def _back_tracked(scene: Scene, habit: Habit) -> None:
    said = asked_range(scene, habit)
    user = scene.user("back_range", name=scene.name(habit.id), range=said.text)
    calls = [*listed_first(scene), query(habit.id, said.first, said.last)]
    scene.add(user, scene.acts(calls, counted(scene.title(habit.id), said.text)))


def _back_on_a_day(scene: Scene, habit: Habit) -> None:
    on = asked_day(scene, habit)
    name = scene.name(habit.id)
    user = scene.user("back_day", name=name, day=on.text, the_day=on.noun)
    calls = [*listed_first(scene), query(habit.id, on.day, on.day)]
    scene.add(user, scene.acts(calls, day_words(scene, on.day)))


_BACKS: Sequence[Callable[[Scene, Habit], None]] = (_back_logged, _back_tracked, _back_on_a_day)
