"""Talk that asks for nothing a tool can do, alone or in the middle of work."""

from collections.abc import Callable

from evals.lessons.catalog_talk import detail, search
from evals.lessons.habit_talk import add, list_them, listing
from evals.lessons.log_talk import log, log_two
from evals.lessons.phrases import parts
from evals.lessons.scene import REFUSALS, Scene
from evals.lessons.tracker_talk import in_a_range, on_a_day
from lhkit.models.scripted import call, say
from lhkit.tuning.teacher import Act

# ---------------------------------------------------------------------------------- talk of its own

_SMALL = ("greet", "thanks", "feeling_bad", "feeling_good", "chat", "chat", "who", "hostile")
_PAIRED = frozenset({"chat", "sorry", "small_task"})


def small_talk(scene: Scene) -> None:
    """One to three friendly exchanges; an insult may be taken back."""
    for key in scene.rng.sample(_SMALL, scene.rng.choice((1, 1, 2, 3))):
        _chat(scene, key)
        if key == "hostile" and scene.chance(0.4):
            _chat(scene, "sorry")


def chat(scene: Scene) -> None:
    """Whatever people say to an assistant that asks for none of its tools."""
    for _ in range(scene.rng.choice((1, 1, 2))):
        _chat(scene, "chat")


def small_talk_on(scene: Scene) -> None:
    """One thing leads to another: several exchanges on end, sometimes a task among them."""
    talk = scene.rng.choice(scene.phrases.lines["talks"])
    asked_after = scene.rng.randrange(len(talk)) if scene.chance(0.3) else None
    for number, exchange in enumerate(talk):
        user, answer = parts(exchange)
        scene.add(user, _saying(answer))
        if number == asked_after:
            scene.rng.choice((log, list_them))(scene)


def small_task(scene: Scene) -> None:
    """A word, a sentence, a sum: answered at once, nothing looked up."""
    for _ in range(scene.rng.choice((1, 1, 2))):
        if scene.chance(0.35):
            _sum(scene)
        else:
            _chat(scene, "small_task")


def mention(scene: Scene) -> None:
    """A habit is talked about, and nothing is asked for: nothing is looked up or saved."""
    _answered(scene, "mention", name=scene.name(scene.habit().id))
    if scene.chance(0.3):
        log(scene)


def out_of_scope(scene: Scene) -> None:
    """Something that the assistant is not for; sometimes then asked what it is for."""
    for _ in range(scene.rng.choice((1, 1, 2))):
        scene.add(scene.user("outside"), scene.says("outside"))
    if scene.chance(0.2):
        _chat(scene, "who")


def unclear(scene: Scene) -> None:
    """Words that say nothing: a question back."""
    scene.add(scene.user("vague"), scene.says("vague"))
    if scene.chance(0.25):
        scene.add(scene.user("vague_pressed"), scene.says("vague"))


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
    if scene.chance(0.35):
        scene.is_listed = True
        scene.add(scene.user("then_list"), listing(scene, "active", key="listed"))


def injection(scene: Scene) -> None:
    """An order to break the rules: declined, in words."""
    scene.add(scene.user("inject_only"), scene.says("refuse_inject"))


def vague_addition(scene: Scene) -> None:
    """A new habit without saying which: a question back; the wish may be given up."""
    scene.add(scene.user("add_vague"), scene.says("ask_habit"))
    if scene.chance(0.5):
        _answered(scene, "give_up")


def long_chat(scene: Scene) -> None:
    """More than eight turns, most of them small talk, with some work in between."""
    keys = [*_SMALL, "outside", "vague", "feeling_bad", "chat"]
    for number, key in enumerate(scene.rng.sample(keys, 9)):
        if number == scene.rng.randint(3, 6):
            log_two(scene)
        _chat(scene, key)


def remark_after(scene: Scene, *, is_offer: bool) -> None:
    """Words after a task that ask for no other; `is_offer`: something was found and not added."""
    if is_offer and scene.chance(0.6):
        _answered(scene, "not_yet")
    elif not is_offer and scene.chance(0.2):
        scene.add(scene.remark("leave_open"), scene.says("leave_it"))
    else:
        _answered(scene, "after_task")
    if scene.chance(0.35):
        _chat(scene, scene.rng.choice(("thanks", "chat", "feeling_bad", "feeling_good")))


def _chat(scene: Scene, key: str) -> None:
    """Add a line of small talk with an answer to it; some answers fit only their line."""
    if key in _PAIRED:
        _answered(scene, key)
        return
    scene.add(scene.remark(key), scene.says(key))


def _answered(scene: Scene, key: str, **slots: object) -> None:
    user, answer = scene.paired(key, **slots)
    scene.add(user, _saying(answer))


def _saying(answer: str) -> Act:
    return lambda _settled: say(answer)


def _sum(scene: Scene) -> None:
    first, second = scene.rng.randint(2, 30), scene.rng.randint(2, 30)
    key, result = scene.rng.choice(
        (
            ("sum_times", first * second),
            ("sum_plus", first + second),
            ("sum_minutes", first * 60),
        )
    )
    slots = {"first": first, "second": second}
    scene.add(scene.remark(key, **slots), scene.says(key, **slots, result=result))


# --------------------------------------------------------------------------------------- after work

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
