"""Training conversations for life-helper, from authored phrases and random worlds. Seeded.

What the tools answer is not here: the conversations are played for real by `tuning.simulation`.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lhkit.tuning.expert import Conversation, Line
from lhkit.tuning.life_helper import (
    catalog_talk,
    habit_talk,
    log_talk,
    other_talk,
    tracker_talk,
)
from lhkit.tuning.life_helper.phrases import chance, phrases
from lhkit.tuning.life_helper.scene import Scene
from lhkit.tuning.life_helper.worlds import draw_world

KOREAN_SHARE = 0.6
"""Korean is the default language of life-helper, and the harder one for a small model."""

_JOINED_SHARE = 0.2
_INJECTED_SHARE = 0.04
_MOST_LINES = 12

_Talk: TypeAlias = Callable[[Scene], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of conversation: how often, in what world, and whether others may follow it."""

    talk: _Talk
    weight: float
    world: Mapping[str, Any] | None = None
    is_joinable: bool = False


_MANY = {"active": 3}

KINDS: Mapping[str, Kind] = {
    "search": Kind(talk=catalog_talk.search, weight=10, is_joinable=True),
    "topic": Kind(talk=catalog_talk.topic, weight=4, is_joinable=True),
    "category": Kind(talk=catalog_talk.category, weight=1.5),
    "absent": Kind(talk=catalog_talk.absent, weight=2.5),
    "too-many": Kind(talk=catalog_talk.too_many, weight=1.2),
    "two-wishes": Kind(talk=catalog_talk.two_wishes, weight=3),
    "detail": Kind(talk=catalog_talk.detail, weight=9, is_joinable=True),
    "detail-after-search": Kind(talk=catalog_talk.detail_after_search, weight=4),
    "by-id": Kind(talk=catalog_talk.by_id, weight=1.5),
    "mended-id": Kind(talk=catalog_talk.mended_id, weight=1),
    "search-breaks": Kind(talk=catalog_talk.search_breaks, weight=0.8),
    "tracker-day": Kind(talk=tracker_talk.on_a_day, weight=8, is_joinable=True),
    "tracker-range": Kind(talk=tracker_talk.in_a_range, weight=10, is_joinable=True),
    "tracker-streak": Kind(talk=tracker_talk.streak, weight=3, is_joinable=True),
    "tracker-all": Kind(talk=tracker_talk.everything, weight=4, is_joinable=True),
    "tracker-archived": Kind(
        talk=tracker_talk.archived_on_a_day, weight=1.5, world={"active": 2, "archived": 1}
    ),
    "tracker-vague": Kind(talk=tracker_talk.vague, weight=1, world=_MANY),
    "mended-date": Kind(talk=tracker_talk.mended_date, weight=1.2),
    "tracker-breaks": Kind(talk=tracker_talk.breaks, weight=0.8),
    "log": Kind(talk=log_talk.log, weight=12, is_joinable=True),
    "log-refused": Kind(talk=log_talk.log_refused, weight=6),
    "log-two": Kind(talk=log_talk.log_two, weight=3, world=_MANY),
    "log-vague": Kind(talk=log_talk.log_vague, weight=2, world=_MANY),
    "log-corrected": Kind(talk=log_talk.log_corrected, weight=1.5),
    "log-future": Kind(talk=log_talk.log_future, weight=1.2),
    "log-unknown": Kind(talk=log_talk.log_unknown, weight=2.5),
    "log-archived": Kind(
        talk=log_talk.log_archived, weight=1.2, world={"active": 2, "archived": 1}
    ),
    "log-ambiguous": Kind(talk=log_talk.log_ambiguous, weight=2),
    "log-mended": Kind(talk=log_talk.log_mended, weight=1),
    "log-breaks": Kind(talk=log_talk.log_breaks, weight=1),
    "list": Kind(talk=habit_talk.list_them, weight=5, is_joinable=True),
    "list-empty": Kind(talk=habit_talk.list_them, weight=1, world={"active": 0, "archived": 0}),
    "sentence": Kind(talk=habit_talk.sentence_of, weight=1.2),
    "add": Kind(talk=habit_talk.add, weight=9),
    "add-refused": Kind(talk=habit_talk.add_refused, weight=4),
    "add-asked": Kind(talk=habit_talk.add_asked, weight=6),
    "add-found": Kind(talk=habit_talk.add_found, weight=4),
    "add-already": Kind(talk=habit_talk.add_already, weight=1.2),
    "r3": Kind(talk=habit_talk.over_quota, weight=4, world={"active": 2, "added_this_week": True}),
    "r7": Kind(talk=habit_talk.negated, weight=4),
    "r8": Kind(talk=habit_talk.anchorless, weight=1.5),
    "add-breaks": Kind(talk=habit_talk.add_breaks, weight=0.8),
    "small-talk": Kind(talk=other_talk.small_talk, weight=5, is_joinable=True),
    "out-of-scope": Kind(talk=other_talk.out_of_scope, weight=4, is_joinable=True),
    "unclear": Kind(talk=other_talk.unclear, weight=1.5, is_joinable=True),
    "impossible": Kind(talk=other_talk.impossible, weight=2),
    "injection": Kind(talk=other_talk.injection, weight=1.2),
    "vague-addition": Kind(talk=other_talk.vague_addition, weight=0.8),
    "long": Kind(talk=other_talk.long_chat, weight=0.6),
}
"""What is taught, and how much of it."""


def conversations(
    count: int, *, seed: int, locale_share: float = KOREAN_SHARE
) -> Iterator[Conversation]:
    """Yield `count` conversations; the same arguments give the same ones.

    Args:
        count: how many.
        seed: decides everything.
        locale_share: the share of Korean ones; the others are English.
    """
    names = tuple(KINDS)
    weights = [kind.weight for kind in KINDS.values()]
    for number in range(count):
        rng = random.Random(f"life-helper/{seed}/{number}")  # noqa: S311 - training data, no secret
        locale = "ko" if rng.random() < locale_share else "en"
        kind = rng.choices(names, weights)[0]
        yield _conversation(f"life-helper.{seed}.{number}", kind, locale, rng)


def _conversation(name: str, kind: str, locale: str, rng: random.Random) -> Conversation:
    chosen = KINDS[kind]
    words = phrases(locale)
    world = draw_world(words, rng, **(chosen.world or {}))
    scene = Scene(phrases=words, rng=rng, world=world)
    while not scene.lines:
        chosen.talk(scene)
    if chosen.is_joinable:
        _join_others(scene)
    if chance(rng, _INJECTED_SHARE):
        scene.lines[0] = _injected(scene, scene.lines[0])
    return Conversation(
        name=name,
        kind=kind,
        locale=locale,
        world=scene.world.data(),
        lines=tuple(scene.lines),
        faults=tuple(scene.faults),
    )


def _join_others(scene: Scene) -> None:
    joinable = [kind.talk for kind in KINDS.values() if kind.is_joinable]
    while scene.chance(_JOINED_SHARE) and len(scene.lines) < _MOST_LINES:
        scene.rng.choice(joinable)(scene)


def _injected(scene: Scene, line: Line) -> Line:
    order = scene.rng.choice(scene.phrases.lines["inject_before"])
    return replace(line, user=order + line.user)
