"""Talk after a logging that was not confirmed: what a no means, and what may follow it."""

from collections.abc import Callable, Mapping

from lhkit.models.scripted import say
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.log_talk import Asked, counted, log, logged_words, logging
from lhkit.tuning.life_helper.scene import REFUSALS, Scene, Settled, Words
from lhkit.tuning.life_helper.spoken_dates import past_days, ranges
from lhkit.tuning.life_helper.tracker_talk import only_report, query


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
