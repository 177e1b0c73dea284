"""Talk about logging: done or blank, which day, a second look, a no, ids that the user gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from evals.lessons.catalog_talk import not_there
from evals.lessons.scene import (
    REFUSALS,
    Last,
    SaidDay,
    Scene,
    Settled,
    Words,
    catalog,
    data_of,
    dates_in_reason,
    failure,
    past_days,
    ranges,
    rows_of,
    titles_of,
    with_active,
)
from evals.lessons.tracker_talk import (
    asked_day,
    asked_range,
    day_words,
    listed_first,
    only_report,
    query,
    range_words,
)
from lhkit.messages import ToolCancelled
from lhkit.models.scripted import Reply, call, say
from lhkit.tuning.teacher import Answers

# ---------------------------------------------------------------------------------------- one entry

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


# ----------------------------------------------------------------- a look first, a choice, a change

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


# --------------------------------------------------------------------------------------- after a no


def log_refused(scene: Scene) -> None:
    """The user does not confirm: nothing is claimed, nothing tried again, whatever comes next."""
    asked = log(scene, confirm=scene.rng.choice(REFUSALS))
    names = tuple(_AFTER)
    then = scene.rng.choices(names, [_AFTER[name][0] for name in names])[0]
    _AFTER[then][1](scene, asked)
    if then in _STILL_OPEN and scene.chance(0.3):
        _tells(scene, asked)


def log_asked_again(scene: Scene) -> None:
    """A no by mistake, or for the time being: asked for anew, the same call is made again."""
    is_later = scene.chance(0.4)
    asked = log(scene, confirm=scene.rng.choice(REFUSALS), value="done" if is_later else "")
    if is_later:
        _tells(scene, asked)
    key = "now_really" if is_later else "ask_again"
    title = scene.title(asked.habit_id)
    again = [logging(asked.habit_id, asked.value, asked.day)]
    confirm: Answers = "accept" if scene.chance(0.75) else scene.rng.choice(REFUSALS)
    scene.add(scene.user(key), scene.acts(again, logged_words(scene, title)), confirm=confirm)


def _leaves_it(scene: Scene, _asked: Asked) -> None:
    scene.add(scene.remark("after_no"), scene.says("leave_it"))


def _presses(scene: Scene, _asked: Asked) -> None:
    scene.add(scene.user("pressure"), scene.says("no_without_yes"))


def _wants_a_lie(scene: Scene, _asked: Asked) -> None:
    scene.add(scene.user("false_claim"), scene.says("no_false_claim"))


def _asks_if_saved(scene: Scene, asked: Asked) -> None:
    scene.add(scene.user("asks_saved"), scene.says("not_saved", title=scene.title(asked.habit_id)))


def _tells(scene: Scene, _asked: Asked) -> None:
    user, answer = scene.paired("after_no_story")
    scene.add(user, lambda _settled: say(answer))


def _looks(scene: Scene, asked: Asked) -> None:
    """What the tracker holds for the day is looked up, not guessed."""
    day = asked.day or scene.world.today
    title = scene.title(asked.habit_id)

    def last(settled: Settled, words: Words) -> str:
        value = only_report(settled)["entries"].get(day.isoformat())
        slots = {"title": title, "day": scene.day_words(day)}
        if value is None:
            return words("look_none", **slots)
        return words("look_some", **slots, value=scene.value_words(value))

    calls = [query(asked.habit_id, day, day)]
    day_said = scene.day_words(day)
    user = scene.user("look_now", name=scene.name(asked.habit_id), day=day_said)
    scene.add(user, scene.acts(calls, last))


def _counts(scene: Scene, asked: Asked) -> None:
    said = scene.rng.choice(ranges(scene.world.today, scene.locale))
    calls = [query(asked.habit_id, said.first, said.last)]
    last = counted(scene.title(asked.habit_id), said.text)
    scene.add(scene.user("instead_count", range=said.text), scene.acts(calls, last))


def _corrects_day(scene: Scene, asked: Asked) -> None:
    """Another day after a no is another call: it is made."""
    days = [each for each in past_days(scene.world.today, scene.locale) if each.day != asked.day]
    said = scene.rng.choice(days)
    act = scene.acts(
        [logging(asked.habit_id, asked.value, said.day)],
        logged_words(scene, scene.title(asked.habit_id)),
    )
    scene.add(scene.user("correct_day", day=said.text, the_day=said.noun), act)


def _means_another(scene: Scene, asked: Asked) -> None:
    others = [each for each in scene.world.of_status("active") if each.id != asked.habit_id]
    if not others:
        _leaves_it(scene, asked)
        return
    other = scene.rng.choice(others).id
    act = scene.acts(
        [logging(other, asked.value, asked.day)], logged_words(scene, scene.title(other))
    )
    scene.add(scene.user("meant_other", name=scene.name(other)), act)


_AFTER: Mapping[str, tuple[float, Callable[[Scene, Asked], None]]] = {
    "leaves it": (22, _leaves_it),
    "tells": (16, _tells),
    "presses": (14, _presses),
    "asks if saved": (8, _asks_if_saved),
    "wants a lie": (8, _wants_a_lie),
    "looks": (9, _looks),
    "counts": (7, _counts),
    "corrects the day": (9, _corrects_day),
    "means another": (7, _means_another),
}
"""What the user does after a no, and how often."""

_STILL_OPEN = frozenset({"leaves it", "presses", "asks if saved", "wants a lie"})


# -------------------------------------------------------------------------------------------- by id

_UNKNOWN_SHARE = 0.2


def tracker_by_id(scene: Scene) -> None:
    """A habit's record by its id, in a span or on a day; an id that is not there is said so."""
    habit = scene.habit()
    named = _named(scene, habit.id)
    said = asked_range(scene, habit)
    user = scene.user("asked_count", name=named, range=said.text)
    calls, last = [query(named, said.first, said.last)], range_words(scene, said, "count")
    if scene.chance(0.5):
        on = asked_day(scene, habit)
        user = scene.user("asked_day", name=named, day=on.text, the_day=on.noun)
        calls, last = [query(named, on.day, on.day)], day_words(scene, on.day)
    _add(scene, user, calls, named, last)


def log_by_id(scene: Scene) -> None:
    """A habit logged by its id, today or on another day; an id that is not there is said so."""
    named = _named(scene, scene.habit().id)
    value = scene.rng.choice(("done", "done", "blank"))
    spoken = scene.value_words(value)
    on = scene.rng.choice(past_days(scene.world.today, scene.locale))
    user = scene.user("log_id_day", id=named, value=spoken, day=on.text, the_day=on.noun)
    calls = [logging(named, value, on.day)]
    if scene.chance(0.3):
        user = scene.user("log_id", id=named, value=spoken)
        calls = [logging(named, value)]
    _add(scene, user, calls, named, logged_words(scene, _title(scene, named)))


def _named(scene: Scene, habit_id: str) -> str:
    """Return the id, or sometimes one that there is not."""
    if scene.chance(_UNKNOWN_SHARE):
        return str(scene.rng.choice(scene.phrases.lines["fake_id"]))
    return habit_id


def _title(scene: Scene, named: str) -> str:
    return scene.title(named) if named in catalog() else named


def _add(scene: Scene, user: str, calls: Sequence[Reply], named: str, last: Last) -> None:
    def said(settled: Settled, words: Words) -> str:
        if failure(settled) == "not_found":
            return not_there(settled, words, named, key="unknown_habit")
        return last(settled, words)

    scene.add(user, scene.acts(calls, said))
