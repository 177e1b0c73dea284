"""Training conversations for life-helper: kinds drawn by weight, in random worlds. Seeded.

What the tools answer is not here: the conversations are played for real by `tuning.simulation`.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from lhkit.tuning.expert import Conversation, Line
from lhkit.tuning.life_helper.kinds import KINDS
from lhkit.tuning.life_helper.phrases import chance, phrases
from lhkit.tuning.life_helper.scene import Scene
from lhkit.tuning.life_helper.worlds import draw_world

KOREAN_SHARE = 0.6
"""Korean is the default language of life-helper, and the harder one for a small model."""

_JOINED_SHARE = 0.2
_INJECTED_SHARE = 0.04
_MOST_LINES = 12


def conversations(
    count: int, *, seed: int, locale_share: float = KOREAN_SHARE
) -> Iterator[Conversation]:
    """Yield `count` conversations; the same arguments give the same ones.

    Args:
        count: how many.
        seed: decides everything.
        locale_share: the share of Korean ones; the others are English.
    """
    weights = [kind.weight for kind in KINDS.values()]
    for number in range(count):
        rng = random.Random(f"life-helper/{seed}/{number}")  # noqa: S311 - training data, no secret
        locale = "ko" if rng.random() < locale_share else "en"
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
