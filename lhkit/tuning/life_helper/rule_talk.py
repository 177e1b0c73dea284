"""Talk about new habits that a rule refuses, until they are mended or given up."""

from lhkit.models.scripted import Reply
from lhkit.tuning.life_helper.habit_talk import add, added_words, asking, give, next_monday
from lhkit.tuning.life_helper.plans import (
    Plan,
    planned,
    told,
    varied,
    with_suggested_anchor,
)
from lhkit.tuning.life_helper.scene import Last, Scene, Settled, Words


def negated(scene: Scene, *, plan: Plan | None = None) -> None:
    """R7: the sentence is refused as it stands; a positive one is added, or none."""
    plan = plan or planned(scene, says_frame=True)
    refused = scene.spoken(plan.protocol_id).refused
    refused = varied(scene, refused) if scene.chance(0.4) else refused
    adding = [plan.adding(sentence=refused)]
    words = added_words(scene, plan)
    if scene.chance(0.15):
        asked = scene.acts(plan.finding(), _anchor_asked(plan))
        scene.add(told(scene, "add_no_anchor", plan, say=refused), asked)
        scene.add(scene.user("give_anchor", **plan.slots()), scene.acts(adding, words))
    else:
        user = told(scene, "add_full", plan, say=refused)
        scene.add(user, scene.acts([*plan.finding(), *adding], words))
    if scene.chance(0.3):
        scene.add(scene.user("pressure_sentence"), scene.says("r7_still"))
    if scene.chance(0.15):
        scene.add(scene.remark("not_now"), scene.says("not_now"))
    else:
        give(scene, plan, "new_sentence")


def anchorless(scene: Scene, *, plan: Plan | None = None) -> None:
    """R8: without an anchor it is not added, whatever the user says; with one it is.

    Sometimes it was tried all the same, which is not learnt: what to say then is.
    """
    plan = plan or planned(scene)
    calls: list[Reply] = plan.finding()
    is_refused = scene.chance(0.5)
    user = told(scene, "add_anchorless" if is_refused else "add_no_anchor", plan)
    if scene.chance(0.2):
        tried = [*calls, plan.adding(has_anchor=False)]
        scene.add(user, scene.acts(tried, added_words(scene, plan)), slips=[len(calls)])
    else:
        asked = asking(plan, "r8_still") if is_refused else _anchor_asked(plan)
        scene.add(user, scene.acts(calls, asked))
    if scene.chance(0.4):
        scene.add(scene.user("pressure_anchor"), scene.says("r8_still"))
    _anchor_given(scene, plan)


def _anchor_given(scene: Scene, plan: Plan) -> None:
    then = scene.rng.choices(("told", "suggested", "not now"), (70, 18, 12))[0]
    if then == "not now":
        scene.add(scene.remark("not_now"), scene.says("not_now"))
    elif then == "suggested":
        plan = with_suggested_anchor(scene, plan)
        act = scene.acts([plan.opening(), plan.adding()], added_words(scene, plan))
        scene.add(scene.user("give_suggested"), act)
    else:
        give(scene, plan, "give_anchor")


def by_id(scene: Scene) -> None:
    """The user names the protocol's id: it is added without a search, and the rules hold."""
    plan = planned(scene, names_id=True, says_frame=True)
    talk = scene.rng.choice(("add", "add", "negated", "anchorless"))
    if talk == "add":
        add(scene, plan=plan)
    elif talk == "negated":
        negated(scene, plan=plan)
    else:
        anchorless(scene, plan=plan)


def two_by_id(scene: Scene) -> None:
    """Two at once, by id: the first is added, and the second is one too many this week."""
    plan = planned(scene, names_id=True, says_frame=True)
    other = planned(scene, names_id=True, says_frame=True)
    while other.protocol_id == plan.protocol_id or other.frame != plan.frame:
        other = planned(scene, names_id=True, says_frame=True)
    monday = next_monday(scene)

    def last(_settled: Settled, words: Words) -> str:
        return words("added_first", title=plan.title, title2=other.title, next=monday)

    second = {f"{slot}2": text for slot, text in other.slots().items()}
    user = told(scene, "add_two", plan, **second)
    scene.add(user, scene.acts([plan.adding(), other.adding()], last))


def _anchor_asked(plan: Plan) -> Last:
    """Return the question for the anchor; a title that was not looked up is not said."""
    return asking(plan, "r8" if plan.names_id else "ask_anchor")
