"""Talk that goes from a wish over a look at a protocol to a habit, in one message or several."""

from lhkit.models.scripted import call
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.catalog_talk import is_first, search_for, steps_words, wish_of
from lhkit.tuning.life_helper.habit_talk import added_words
from lhkit.tuning.life_helper.lookup_talk import open_asked
from lhkit.tuning.life_helper.plans import Plan, planned, told
from lhkit.tuning.life_helper.scene import Scene


def if_it_fits(scene: Scene) -> None:
    """All in one message, provided that the protocol is fine: it is."""
    plan = planned(scene)
    calls = [*plan.finding(), plan.opening(), plan.adding()]
    user = told(scene, "add_if", plan)
    scene.add(user, scene.acts(calls, added_words(scene, plan)))


def wish_added(scene: Scene) -> None:
    """All in one message, with a wish for a name: what the search finds first is added."""
    plan = planned(scene)
    wish = wish_of(scene, plan.protocol_id)
    if not is_first(scene, wish, plan.protocol_id):
        return
    calls = [call("search_catalog", query=wish.query), plan.opening(), plan.adding()]
    user = told(scene, "wish_added", plan, wish=wish.text)
    scene.add(user, scene.acts(calls, added_words(scene, plan)))


def opened_then_added(scene: Scene) -> None:
    """A protocol is opened, then added: nothing is looked up again."""
    plan = planned(scene)
    if scene.chance(0.5):
        open_asked(scene, plan.protocol_id, "open_asked", calls=plan.finding(), name=plan.name)
    else:
        user = scene.user("detail", name=plan.name)
        scene.add(user, scene.acts([*plan.finding(), plan.opening()], steps_words(plan.name)))
    _add_it(scene, plan)


def found_opened_added(scene: Scene) -> None:
    """A wish, then what was found first is opened and added: at once, or one after the other."""
    plan = planned(scene)
    wish = wish_of(scene, plan.protocol_id)
    if not is_first(scene, wish, plan.protocol_id):
        return
    search_for(scene, plan.protocol_id, wish)
    if scene.chance(0.4):
        calls = [plan.opening(), plan.adding()]
        scene.add(told(scene, "open_and_add", plan), scene.acts(calls, added_words(scene, plan)))
        return
    open_asked(scene, plan.protocol_id, "that_asked", calls=[])
    _add_it(scene, plan)


def _add_it(scene: Scene, plan: Plan) -> None:
    confirm: Answers = "reject" if scene.chance(0.15) else "accept"
    adding = scene.acts([plan.adding()], added_words(scene, plan))
    scene.add(told(scene, "add_it", plan), adding, confirm=confirm)
