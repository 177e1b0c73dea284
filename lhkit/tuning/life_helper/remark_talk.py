"""Restraint in the middle of a conversation: work is done, and what follows asks for none."""

from collections.abc import Callable

from lhkit.tuning.life_helper.catalog_talk import detail, search
from lhkit.tuning.life_helper.habit_talk import add
from lhkit.tuning.life_helper.list_talk import list_them
from lhkit.tuning.life_helper.log_talk import log
from lhkit.tuning.life_helper.other_talk import remark_after, small_talk
from lhkit.tuning.life_helper.scene import REFUSALS, Scene
from lhkit.tuning.life_helper.tracker_talk import in_a_range, on_a_day

_OFFERS: tuple[Callable[[Scene], object], ...] = (search, search, detail)
_TASKS: tuple[Callable[[Scene], object], ...] = (log, log, list_them, on_a_day, in_a_range)


def task_then_remark(scene: Scene) -> None:
    """A task is done, then there are words only; sometimes work is asked for again."""
    is_offer = scene.chance(0.35)
    scene.rng.choice(_OFFERS if is_offer else _TASKS)(scene)
    remark_after(scene, is_offer=is_offer)
    if scene.chance(0.2):
        log(scene)


def chat_then_task(scene: Scene) -> None:
    """Small talk first, a task after it, and a word of thanks."""
    small_talk(scene)
    scene.rng.choice(_TASKS)(scene)
    if scene.chance(0.4):
        remark_after(scene, is_offer=False)


def addition_refused_then(scene: Scene) -> None:
    """After a no to a new habit: was it added? Or something else is looked for, and only that."""
    add(scene, confirm=scene.rng.choice(REFUSALS))
    if scene.chance(0.6):
        scene.add(scene.user("asks_added"), scene.says("not_added_no"))
    else:
        search(scene)
    if scene.chance(0.3):
        remark_after(scene, is_offer=True)
