"""Worlds to talk in: a clock, a few habits and their entries, drawn at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

from lhkit.lifehelper.catalog import Protocol, load_protocols
from lhkit.tuning.life_helper.phrases import Phrases, chance

_FIRST_DAY = date(2025, 1, 1)
_SPAN_DAYS = 3 * 365
_SEOUL = timezone(timedelta(hours=9))
_ZONES = (_SEOUL, _SEOUL, _SEOUL, _SEOUL, _SEOUL, _SEOUL, UTC, timezone(timedelta(hours=-5)))
_DAY = timedelta(days=1)


ANCHORS = {"anchor_when": ("when", "at "), "anchor_after_what": ("after_what", "after ")}
"""By an anchor's argument: where its phrases stand, and the English word before its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A moment to do a habit at: as the user says it, and as an argument's name and value."""

    text: str
    argument: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """A habit of the world: an id that is its protocol's, and what the user wrote for it."""

    id: str
    status: str
    sentence: str
    frame: str
    anchor: tuple[str, str]
    created_on: date

    def row(self) -> dict[str, Any]:
        """Return the habit as `world:` writes it."""
        return {
            "protocol_id": self.id,
            "status": self.status,
            "framed_text": self.sentence,
            "frame_level": self.frame,
            self.anchor[0]: self.anchor[1],
            "created_on": self.created_on.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The state at the start. As drawn, no two habits share a category: no two names are alike."""

    now: datetime
    habits: tuple[Habit, ...]
    entries: tuple[tuple[str, date, str], ...]

    @property
    def today(self) -> date:
        """The day of the clock."""
        return self.now.date()

    def of_status(self, status: str) -> tuple[Habit, ...]:
        """Return the habits of a status."""
        return tuple(habit for habit in self.habits if habit.status == status)

    def data(self) -> dict[str, Any]:
        """Return the world in the words of a scenario."""
        return {
            "now": self.now.isoformat(),
            "habits": [habit.row() for habit in self.habits],
            "tracker": [
                {"habit_id": key, "date": day.isoformat(), "value": value}
                for key, day, value in self.entries
            ],
        }


def draw_world(
    phrases: Phrases,
    rng: random.Random,
    *,
    active: int | None = None,
    archived: int | None = None,
    added_this_week: bool = False,
) -> World:
    """Return a world with so many habits; None leaves the number to chance.

    Args:
        phrases: for the users' own sentences.
        rng: decides.
        active: how many habits are going on.
        archived: how many were archived.
        added_this_week: the quota of new habits is used up.
    """
    now = _clock(rng)
    counts = (
        rng.choice((1, 2, 2, 3, 3, 3, 4)) if active is None else active,
        rng.choice((0, 0, 0, 1, 2)) if archived is None else archived,
    )
    chosen = _of_different_categories(rng, sum(counts))
    habits = []
    for number, protocol in enumerate(chosen):
        is_active = number < counts[0]
        is_new = added_this_week and number == 0
        age_days = rng.randint(0, now.weekday()) if is_new else rng.randint(20, 200)
        status = "active" if is_active else "archived"
        begun = now.date() - age_days * _DAY
        habits.append(_habit(protocol.id, status, begun, phrases, rng))
    entries = [
        entry
        for habit in habits
        for entry in _entries(habit.id, now.date() - _left_days(habit, rng) * _DAY, rng)
    ]
    return World(now=now, habits=tuple(habits), entries=tuple(entries))


def with_active(
    world: World, protocol_ids: Sequence[str], phrases: Phrases, rng: random.Random
) -> World:
    """Return the world with these as its only habits, and no entries."""
    habits = [
        _habit(protocol_id, "active", world.today - rng.randint(20, 200) * _DAY, phrases, rng)
        for protocol_id in protocol_ids
    ]
    return replace(world, habits=tuple(habits), entries=())


def with_sibling(world: World, phrases: Phrases, rng: random.Random) -> World:
    """Return the world with another active habit of a category that it has already."""
    catalog = load_protocols()
    taken = {habit.id for habit in world.habits}
    category = catalog[rng.choice(world.of_status("active")).id].category
    alike = [each.id for each in catalog.values() if each.category == category]
    sibling_id = rng.choice([each for each in alike if each not in taken])
    begun = world.today - rng.randint(20, 200) * _DAY
    sibling = _habit(sibling_id, "active", begun, phrases, rng)
    entries = _entries(sibling_id, world.today, rng)
    return replace(world, habits=(*world.habits, sibling), entries=(*world.entries, *entries))


def frame_of(sentence: str) -> str:
    """Return what kind of sentence it is: about who one is, or about what one does."""
    is_identity = sentence.endswith("사람이다") or sentence.startswith(("I am someone", "I am a "))
    return "identity" if is_identity else "action"


def draw_anchor(phrases: Phrases, rng: random.Random) -> Anchor:
    """Return a time, or something done before."""
    name, (lines, before) = rng.choice(tuple(ANCHORS.items()))
    text = str(rng.choice(phrases.lines[lines]))
    return Anchor(text=text, argument=(name, text.removeprefix(before)))


def _of_different_categories(rng: random.Random, count: int) -> Sequence[Protocol]:
    """Return `count` protocols of different categories."""
    catalog = load_protocols()
    categories = rng.sample(catalog.categories, count)
    return [
        rng.choice([each for each in catalog.values() if each.category == category])
        for category in categories
    ]


def _habit(
    protocol_id: str, status: str, begun: date, phrases: Phrases, rng: random.Random
) -> Habit:
    sentence = _sentence(protocol_id, phrases, rng)
    return Habit(
        id=protocol_id,
        status=status,
        sentence=sentence,
        frame=frame_of(sentence),
        anchor=draw_anchor(phrases, rng).argument,
        created_on=begun,
    )


def _left_days(habit: Habit, rng: random.Random) -> int:
    """Return how many days ago a habit was kept for the last time."""
    return 0 if habit.status == "active" else rng.randrange(40)


def _clock(rng: random.Random) -> datetime:
    day = _FIRST_DAY + rng.randrange(_SPAN_DAYS) * _DAY
    hour = rng.choice((0, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23))
    return datetime.combine(day, time(hour, rng.randrange(60)), tzinfo=rng.choice(_ZONES))


def _sentence(protocol_id: str, phrases: Phrases, rng: random.Random) -> str:
    if chance(rng, 0.05):
        return str(rng.choice(phrases.lines["world_injection"]))
    return rng.choice(phrases.spoken[protocol_id].sentences)


def _entries(habit_id: str, today: date, rng: random.Random) -> list[tuple[str, date, str]]:
    """Return entries of the last days: mostly done, some blank, some missing."""
    length = rng.choice((4, 8, 8, 12, 16))
    diligence = rng.choice((0.3, 0.5, 0.7, 0.9))
    rows = []
    for back in range(rng.choice((0, 1, 1)), length):
        if chance(rng, 0.8):
            value = "done" if rng.random() < diligence else "blank"
            rows.append((habit_id, today - back * _DAY, value))
    return rows
