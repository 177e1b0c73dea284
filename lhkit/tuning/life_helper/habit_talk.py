"""Talk about a new habit: asked for in one message or several, with its sentence and anchor."""

from collections.abc import Sequence
from datetime import timedelta

from lhkit.models.scripted import Reply, call
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.catalog_talk import found_words, is_first, steps_words, wish_of
from lhkit.tuning.life_helper.plans import (
    Plan,
    planned,
    told,
    with_other_anchor,
    with_suggested_anchor,
)
from lhkit.tuning.life_helper.scene import (
    REFUSALS,
    Last,
    Scene,
    Settled,
    Words,
    anchor_in,
    data_of,
    dates_in_reason,
    failure,
    rows_of,
    titles_of,
)
from lhkit.tuning.life_helper.spoken_dates import plain_day
from lhkit.tuning.life_helper.worlds import frame_of
from lhkit.vocab.results import ToolCancelled


def added_words(scene: Scene, plan: Plan) -> Last:
    """Return what is said about an addition, whatever became of it."""

    def last(settled: Settled, words: Words) -> str:
        if isinstance(settled[-1].result, ToolCancelled):
            return words("not_added", title=plan.title)
        code = failure(settled)
        if code:
            return _refused_words(scene, code, settled, words)
        data = data_of(settled)
        habit = data["habit"]
        key = "added_already" if data.get("already_active") else "added"
        spoken = plan.anchor.text if scene.locale == "en" else scene.anchor_words(anchor_in(habit))
        return words(key, title=habit["title"], anchor_said=spoken)

    return last


def add(scene: Scene, *, confirm: Answers = "accept", plan: Plan | None = None) -> Plan:
    """Everything told at once: search, look closer if asked to, add."""
    plan = plan or planned(scene)
    finding, user = _wanted(scene, plan)
    scene.add(
        user, scene.acts([*finding, plan.adding()], added_words(scene, plan)), confirm=confirm
    )
    return plan


def add_refused(scene: Scene) -> None:
    """The user does not confirm: nothing is claimed and nothing tried again."""
    plan = add(scene, confirm=scene.rng.choice(REFUSALS))
    then = scene.rng.choice(("leaves it", "not now", "presses", "sentence", "anchor"))
    if then == "leaves it":
        scene.add(scene.remark("after_no"), scene.says("leave_it"))
    elif then == "not now":
        scene.add(scene.remark("not_now"), scene.says("not_now"))
    elif then == "presses":
        scene.add(scene.user("pressure"), scene.says("no_without_yes"))
    elif then == "sentence":
        other = _another_sentence(scene, plan)
        act = scene.acts([plan.adding(sentence=other)], added_words(scene, plan))
        scene.add(told(scene, "new_sentence", plan, say=other), act)
    else:
        mended = with_other_anchor(scene, plan)
        user = scene.user("new_anchor", **{**mended.slots(), "wrong": plan.anchor.text})
        scene.add(user, scene.acts([mended.adding()], added_words(scene, mended)))


def add_asked(scene: Scene) -> None:
    """Something is missing: the protocol is looked up, the rest asked for, then added."""
    plan = planned(scene)
    lacking = scene.rng.choice(("anchor", "anchor", "sentence", "both"))
    if scene.chance(0.15):
        scene.add(scene.user("add_vague"), scene.says("ask_habit"))
    asked = scene.acts(plan.finding(), asking(plan, f"ask_{lacking}"))
    if lacking == "anchor":
        scene.add(told(scene, "add_no_anchor", plan), asked)
    else:
        line = {"sentence": "add_no_sentence", "both": "add_bare"}[lacking]
        scene.add(scene.user(line, **plan.slots()), asked)
    give(scene, plan, f"give_{lacking}")


def give(scene: Scene, plan: Plan, key: str) -> None:
    """What was missing is said, and the habit added without another look."""
    says = scene.user(key, **plan.slots()) if key == "give_anchor" else told(scene, key, plan)
    scene.add(says, scene.acts([plan.adding()], added_words(scene, plan)))


def add_found(scene: Scene) -> None:
    """A wish is searched; what was found is added at once, after questions, or not yet."""
    plan = planned(scene)
    wish = wish_of(scene, plan.protocol_id)
    found = found_words(scene, plan.protocol_id, wish.query, most=1)
    calls = [call("search_catalog", query=wish.query)]
    scene.add(scene.user("search", wish=wish.text), scene.acts(calls, _only_target(plan, found)))
    if scene.chance(0.2):
        opened = scene.acts([plan.opening()], steps_words(plan.title))
        scene.add(scene.user("that_one"), opened)
    then = scene.rng.choice(("told", "told", "plainly", "not ready", "not now"))
    if then == "told":
        return give(scene, plan, "add_it")
    if then == "not now":
        return scene.add(scene.remark("not_now"), scene.says("not_now"))
    if then == "plainly":
        scene.add(scene.user("add_plainly"), scene.says("ask_both", title=plan.title))
    else:
        scene.add(scene.remark("not_ready"), scene.says("wait_for_both"))
    return give(scene, plan, "give_both")


def add_suggested(scene: Scene) -> None:
    """The anchor is the one that the protocol recommends: opened to read it, then added."""
    plan = with_suggested_anchor(scene, planned(scene))
    words = added_words(scene, plan)
    calls = [plan.opening(), plan.adding()]
    if scene.chance(0.5):
        user = told(scene, "add_suggested", plan)
        scene.add(user, scene.acts([*plan.finding(), *calls], words))
        return
    asked = scene.acts(plan.finding(), asking(plan, "ask_anchor"))
    scene.add(told(scene, "add_no_anchor", plan), asked)
    scene.add(scene.user("give_suggested"), scene.acts(calls, words))


def add_already(scene: Scene) -> None:
    """A habit that is active already: nothing new, and the answer says so."""
    add(scene, plan=planned(scene, protocol_id=scene.habit().id))


def add_and_list(scene: Scene) -> None:
    """Added and then listed, both asked for at once."""
    plan = planned(scene)

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "habits")
        named = scene.listing(titles)
        return words("added_listed", title=plan.title, titles=named, count=len(titles))

    scene.is_listed = True
    calls = [*plan.finding(), plan.adding(), call("list_habits")]
    scene.add(told(scene, "add_and_list", plan), scene.acts(calls, last))


def over_quota(scene: Scene) -> None:
    """R3: refused until next Monday, whatever the user says next."""
    add(scene)
    monday = next_monday(scene)
    then = scene.rng.choice(("presses", "accepts", "asks", ""))
    if then == "presses":
        scene.add(scene.user("pressure_quota"), scene.says("r3_still", next=monday))
    elif then == "accepts":
        scene.add(scene.remark("accept_quota"), scene.says("r3_ok"))
    elif then == "asks":
        scene.add(scene.user("asked_next"), scene.says("r3_date", next=monday))


def add_breaks(scene: Scene) -> None:
    """Adding fails once: said so; when asked again, it is done again."""
    scene.breaks("add_habit")
    plan = add(scene)
    again = scene.acts([plan.adding()], added_words(scene, plan))
    scene.add(scene.user("try_again"), again)


def asking(plan: Plan, key: str) -> Last:
    """Return the question for what is missing, about a protocol by its title."""

    def last(_settled: Settled, words: Words) -> str:
        return words(key, title=plan.title)

    return last


def next_monday(scene: Scene) -> str:
    """Return the first day of next week, as the expert says it."""
    today = scene.world.today
    return plain_day(today + timedelta(days=7 - today.weekday()), scene.locale)


def _wanted(scene: Scene, plan: Plan) -> tuple[Sequence[Reply], str]:
    """Return the calls before the addition and the line: by a name, an id or a wish."""
    wish = wish_of(scene, plan.protocol_id)
    is_clear = is_first(scene, wish, plan.protocol_id)
    if is_clear and not plan.names_id and scene.chance(0.15):
        user = told(scene, "add_for_wish", plan, wish=wish.text.rstrip(" .!?~"))
        return [call("search_catalog", query=wish.query)], user
    if scene.chance(0.45) and not plan.names_id:
        return [*plan.finding(), plan.opening()], told(scene, "add_checked", plan)
    return plan.finding(), told(scene, "add_full", plan)


def _refused_words(scene: Scene, code: str, settled: Settled, words: Words) -> str:
    match code:
        case "r3_quota":
            (monday,) = dates_in_reason(settled)
            return words("r3", next=plain_day(monday, scene.locale))
        case "r7_framing":
            return words("r7")
        case "r8_anchor":
            return words("r8")
        case _:
            return words("broken")


def _only_target(plan: Plan, found: Last) -> Last:
    """Name only the protocol that is added next, so that "that one" has one meaning."""

    def last(settled: Settled, words: Words) -> str:
        rows = {row["id"]: row for row in rows_of(settled, "protocols")}
        row = rows.get(plan.protocol_id)
        if row is None:
            return found(settled, words)
        return words("found_one", title=row["title"], summary=row["summary"])

    return last


def _another_sentence(scene: Scene, plan: Plan) -> str:
    others = [
        each
        for each in scene.spoken(plan.protocol_id).sentences
        if each != plan.sentence and frame_of(each) == frame_of(plan.sentence)
    ]
    return scene.rng.choice(others) if others else f"{plan.sentence}!"
