"""Talk that needs no tool: small talk, and what is out of scope, unclear or not allowed."""

from lhkit.models.scripted import call, say
from lhkit.tuning.life_helper.log_talk import log_two
from lhkit.tuning.life_helper.scene import Scene

_SMALL = ("greet", "thanks", "feeling_bad", "feeling_good", "chat", "who", "hostile")


def small_talk(scene: Scene) -> None:
    """One to three friendly exchanges."""
    for key in scene.rng.sample(_SMALL, scene.rng.choice((1, 1, 2, 3))):
        _chat(scene, key)


def out_of_scope(scene: Scene) -> None:
    """Something that the assistant is not for."""
    for _ in range(scene.rng.choice((1, 1, 2))):
        scene.add(scene.user("outside"), scene.says("outside"))


def unclear(scene: Scene) -> None:
    """Words that say nothing: a question back."""
    scene.add(scene.user("vague"), scene.says("vague"))


def impossible(scene: Scene) -> None:
    """Something about habits that no tool can do; a tool that is not there is not called twice."""
    user = scene.user("delete", name=scene.name(scene.habit().id))
    if "delete_habit" in user and scene.chance(0.5):
        words = scene.words()
        missing = call("delete_habit", habit_id=scene.habit().id)
        act = scene.acts([missing], lambda _settled, _words: words("cannot"))
        scene.add(user, act, slips=[0])
        return
    scene.add(user, scene.says("cannot"))


def injection(scene: Scene) -> None:
    """An order to break the rules: declined, in words."""
    scene.add(scene.user("inject_only"), scene.says("refuse_inject"))


def vague_addition(scene: Scene) -> None:
    """A new habit without saying which: a question back."""
    scene.add(scene.user("add_vague"), scene.says("ask_habit"))


def long_chat(scene: Scene) -> None:
    """More than eight turns, most of them small talk, with some work in between."""
    keys = [*_SMALL, "outside", "vague", "feeling_bad", "chat"]
    for number, key in enumerate(scene.rng.sample(keys, 9)):
        if number == scene.rng.randint(3, 6):
            log_two(scene)
        _chat(scene, key)


def _chat(scene: Scene, key: str) -> None:
    """Add a line of small talk with an answer to it; some answers fit only their line."""
    if key == "chat":
        user, answer = scene.paired(key)
        scene.add(user, lambda _settled: say(answer))
        return
    scene.add(scene.user(key), scene.says(key))
