"""Talk in which the user names a habit by its id: it is used as it stands, without a look first."""

from collections.abc import Sequence

from lhkit.models.scripted import Reply
from lhkit.tuning.life_helper.catalog_talk import not_there
from lhkit.tuning.life_helper.log_talk import logged_words, logging
from lhkit.tuning.life_helper.scene import Last, Scene, Settled, Words, catalog, failure
from lhkit.tuning.life_helper.spoken_dates import past_days
from lhkit.tuning.life_helper.tracker_talk import (
    asked_day,
    asked_range,
    day_words,
    query,
    range_words,
)

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
