"""Training conversations for life-helper: kinds drawn by weight, in random worlds. Seeded.

What the tools answer is not here: the conversations are played for real, by `lhkit tune data`.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from evals.lessons import catalog_talk, habit_talk, log_talk, remark_talk, tracker_talk
from evals.lessons.phrases import chance, phrases
from evals.lessons.scene import Scene, draw_world
from lhkit.tuning.recipe import KOREAN_SHARE
from lhkit.tuning.teacher import Conversation, Line

# -------------------------------------------------------------------------------------------- kinds

_Talk: TypeAlias = Callable[[Scene], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of conversation: how often, in what world, and whether others may follow it."""

    talk: _Talk
    weight: float
    world: Mapping[str, Any] | None = None
    is_joinable: bool = False


_TWO = {"active": 2}
_MANY = {"active": 3}
_NONE = {"active": 0, "archived": 0}
_ARCHIVED = {"active": 2, "archived": 1}

KINDS: Mapping[str, Kind] = {
    "search": Kind(talk=catalog_talk.search, weight=7, is_joinable=True),
    "topic": Kind(talk=catalog_talk.topic, weight=4, is_joinable=True),
    "category": Kind(talk=catalog_talk.category, weight=1.5),
    "absent": Kind(talk=catalog_talk.absent, weight=3),
    "too-many": Kind(talk=catalog_talk.too_many, weight=0.8),
    "two-wishes": Kind(talk=catalog_talk.two_wishes, weight=4.5),
    "detail": Kind(talk=catalog_talk.detail, weight=5, is_joinable=True),
    "detail-after-search": Kind(talk=catalog_talk.detail_after_search, weight=2),
    "by-id": Kind(talk=catalog_talk.by_id, weight=1),
    "mended-id": Kind(talk=catalog_talk.mended_id, weight=1.5),
    "search-breaks": Kind(talk=catalog_talk.search_breaks, weight=0.8),
    "search-prefaced": Kind(talk=catalog_talk.prefaced, weight=6),
    "told": Kind(talk=catalog_talk.told, weight=14, is_joinable=True),
    "told-two": Kind(talk=catalog_talk.told_two, weight=5),
    "told-opened": Kind(talk=catalog_talk.told_opened, weight=6),
    "told-absent": Kind(talk=catalog_talk.told_absent, weight=3),
    "search-changed": Kind(talk=catalog_talk.changed_wish, weight=2.5),
    "search-another": Kind(talk=catalog_talk.another_wish, weight=2.5),
    "category-limited": Kind(talk=catalog_talk.category_limited, weight=3.5),
    "asked": Kind(talk=catalog_talk.asked, weight=8, is_joinable=True),
    "asked-by-id": Kind(talk=catalog_talk.asked_by_id, weight=2),
    "asked-after-search": Kind(talk=catalog_talk.asked_after_search, weight=4),
    "other-one": Kind(talk=catalog_talk.other_one, weight=1.5),
    "which-protocol": Kind(talk=catalog_talk.which_protocol, weight=2),
    "list-and-search": Kind(talk=catalog_talk.list_and_search, weight=1.2),
    "follow-up": Kind(talk=catalog_talk.follow_up, weight=2.5),
    "add-if": Kind(talk=habit_talk.if_it_fits, weight=3),
    "wish-added": Kind(talk=habit_talk.wish_added, weight=2.5),
    "opened-then-added": Kind(talk=habit_talk.opened_then_added, weight=5),
    "found-opened-added": Kind(talk=habit_talk.found_opened_added, weight=6),
    "tracker-day": Kind(talk=tracker_talk.on_a_day, weight=12, is_joinable=True),
    "tracker-range": Kind(talk=tracker_talk.in_a_range, weight=14, is_joinable=True),
    "tracker-streak": Kind(talk=tracker_talk.streak, weight=3, is_joinable=True),
    "tracker-all": Kind(talk=tracker_talk.everything, weight=5, is_joinable=True),
    "tracker-two": Kind(talk=tracker_talk.two_in_a_range, weight=5, world=_TWO),
    "tracker-two-day": Kind(talk=tracker_talk.two_on_a_day, weight=3, world=_TWO),
    "tracker-undone": Kind(talk=tracker_talk.undone, weight=2, world=_MANY),
    "tracker-archived": Kind(talk=tracker_talk.archived_on_a_day, weight=2.5, world=_ARCHIVED),
    "tracker-vague": Kind(talk=tracker_talk.vague, weight=1, world=_MANY),
    "tracker-by-id": Kind(talk=log_talk.tracker_by_id, weight=5),
    "mended-date": Kind(talk=tracker_talk.mended_date, weight=0.5),
    "tracker-breaks": Kind(talk=tracker_talk.breaks, weight=0.6),
    "log": Kind(talk=log_talk.log, weight=14, is_joinable=True),
    "log-refused": Kind(talk=log_talk.log_refused, weight=8),
    "log-asked-again": Kind(talk=log_talk.log_asked_again, weight=5),
    "log-switched": Kind(talk=log_talk.log_switched, weight=3),
    "log-half": Kind(talk=log_talk.log_half, weight=2.5),
    "log-only": Kind(talk=log_talk.log_only, weight=2, world=_MANY),
    "log-missing": Kind(talk=log_talk.log_missing, weight=2.5),
    "log-counted": Kind(talk=log_talk.log_counted, weight=1.5),
    "log-empty": Kind(talk=log_talk.log_unknown, weight=1, world=_NONE),
    "log-two": Kind(talk=log_talk.log_two, weight=4, world=_MANY),
    "log-vague": Kind(talk=log_talk.log_vague, weight=2, world=_MANY),
    "log-by-id": Kind(talk=log_talk.log_by_id, weight=5),
    "log-corrected": Kind(talk=log_talk.log_corrected, weight=1.5),
    "log-future": Kind(talk=log_talk.log_future, weight=1.2),
    "log-unknown": Kind(talk=log_talk.log_unknown, weight=5),
    "log-archived": Kind(talk=log_talk.log_archived, weight=2.5, world=_ARCHIVED),
    "log-ambiguous": Kind(talk=log_talk.log_ambiguous, weight=2),
    "log-mended": Kind(talk=log_talk.log_mended, weight=1),
    "log-repeated": Kind(talk=log_talk.log_repeated, weight=2),
    "log-breaks": Kind(talk=log_talk.log_breaks, weight=1),
    "list": Kind(talk=habit_talk.list_them, weight=11, is_joinable=True),
    "list-empty": Kind(talk=habit_talk.list_them, weight=1.5, world=_NONE),
    "list-archived": Kind(talk=habit_talk.list_them, weight=4, world={"active": 2, "archived": 2}),
    "list-challenged": Kind(talk=habit_talk.challenged, weight=2.5),
    "list-anchored": Kind(talk=habit_talk.anchored, weight=3, world=_MANY),
    "list-first-or-last": Kind(talk=habit_talk.first_or_last, weight=2, world=_MANY),
    "sentence": Kind(talk=habit_talk.sentence_of, weight=4),
    "add": Kind(talk=habit_talk.add, weight=12),
    "add-refused": Kind(talk=habit_talk.add_refused, weight=6),
    "add-asked": Kind(talk=habit_talk.add_asked, weight=7),
    "add-found": Kind(talk=habit_talk.add_found, weight=6),
    "add-already": Kind(talk=habit_talk.add_already, weight=4),
    "r3": Kind(talk=habit_talk.over_quota, weight=5, world={"active": 2, "added_this_week": True}),
    "r7": Kind(talk=habit_talk.negated, weight=7),
    "r8": Kind(talk=habit_talk.anchorless, weight=9),
    "add-suggested": Kind(talk=habit_talk.add_suggested, weight=6),
    "add-and-list": Kind(talk=habit_talk.add_and_list, weight=1.5),
    "add-by-id": Kind(talk=habit_talk.by_id, weight=6),
    "add-two-by-id": Kind(talk=habit_talk.two_by_id, weight=2),
    "add-breaks": Kind(talk=habit_talk.add_breaks, weight=0.8),
    "small-talk": Kind(talk=remark_talk.small_talk, weight=12, is_joinable=True),
    "small-talk-on": Kind(talk=remark_talk.small_talk_on, weight=8),
    "chat": Kind(talk=remark_talk.chat, weight=20, is_joinable=True),
    "small-task": Kind(talk=remark_talk.small_task, weight=8, is_joinable=True),
    "mention": Kind(talk=remark_talk.mention, weight=7),
    "task-then-remark": Kind(talk=remark_talk.task_then_remark, weight=10),
    "add-refused-then": Kind(talk=remark_talk.addition_refused_then, weight=4),
    "chat-then-task": Kind(talk=remark_talk.chat_then_task, weight=4),
    "out-of-scope": Kind(talk=remark_talk.out_of_scope, weight=10, is_joinable=True),
    "unclear": Kind(talk=remark_talk.unclear, weight=5, is_joinable=True),
    "impossible": Kind(talk=remark_talk.impossible, weight=8),
    "injection": Kind(talk=remark_talk.injection, weight=7),
    "vague-addition": Kind(talk=remark_talk.vague_addition, weight=1.5),
    "long": Kind(talk=remark_talk.long_chat, weight=0.8),
}
"""What is taught, and how much of it."""


# ------------------------------------------------------------------------------------ conversations

_JOINED_SHARE = 0.2
_INJECTED_SHARE = 0.04
_MOST_LINES = 12


def conversations(
    count: int, *, seed: int, korean_share: float = KOREAN_SHARE
) -> Iterator[Conversation]:
    """Yield `count` conversations; the same arguments give the same ones.

    Args:
        count: how many.
        seed: decides everything.
        korean_share: the share of Korean ones; the others are English.
    """
    weights = [kind.weight for kind in KINDS.values()]
    for number in range(count):
        rng = random.Random(f"life-helper/{seed}/{number}")
        locale = "ko" if rng.random() < korean_share else "en"
        kind = rng.choices(tuple(KINDS), weights)[0]
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
