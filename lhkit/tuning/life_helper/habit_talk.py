"""Talk about habits: which there are, and a new one with its sentence and its anchor."""

from dataclasses import dataclass
from datetime import timedelta

from lhkit.models.scripted import Reply, call
from lhkit.tuning.expert import Answers
from lhkit.tuning.life_helper.catalog_talk import any_protocol, found_words, wish_of
from lhkit.tuning.life_helper.scene import (
    Last,
    Scene,
    Settled,
    Words,
    data_of,
    dates_in_reason,
    failure,
)
from lhkit.tuning.life_helper.spoken_dates import plain_day
from lhkit.tuning.life_helper.worlds import Anchor, draw_anchor, frame_of
from lhkit.vocab.results import ToolCancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A habit that a user wants: what is said of it and what it comes to as arguments."""

    protocol_id: str
    name: str
    title: str
    frame: str
    frame_words: str
    sentence: str
    anchor: Anchor

    def slots(self) -> dict[str, str]:
        """Return the words for a user's line."""
        return {
            "name": self.name,
            "say": self.sentence,
            "frame": self.frame_words,
            "anchor": self.anchor.text,
        }

    def adding(self, *, sentence: str | None = None, has_anchor: bool = True) -> Reply:
        """Return the call, perhaps with another sentence or without the anchor."""
        anchor = dict([self.anchor.argument]) if has_anchor else {}
        return call(
            "add_habit",
            protocol_id=self.protocol_id,
            frame_level=self.frame,
            framed_text=sentence or self.sentence,
            **anchor,
        )


def planned(scene: Scene) -> Plan:
    """Return a new habit that the world has not."""
    taken = {habit.id for habit in scene.world.habits}
    protocol_id = any_protocol(scene)
    while protocol_id in taken:
        protocol_id = any_protocol(scene)
    sentence = scene.rng.choice(scene.spoken(protocol_id).sentences)
    frame = "outcome" if scene.chance(0.12) else frame_of(sentence)
    return Plan(
        protocol_id=protocol_id,
        name=scene.name(protocol_id),
        title=scene.title(protocol_id),
        frame=frame,
        frame_words=scene.rng.choice(scene.phrases.lines["frame"][frame]),
        sentence=sentence,
        anchor=draw_anchor(scene.phrases, scene.rng),
    )


def added_words(scene: Scene, plan: Plan) -> Last:
    """Return what is said about an addition, whatever became of it."""

    def last(settled: Settled, words: Words) -> str:
        if isinstance(settled[-1].result, ToolCancelled):
            return words("not_added", title=plan.title)
        code = failure(settled)
        if code:
            return _refused_words(scene, plan, code, settled, words)
        data = data_of(settled)
        habit = data["habit"]
        key = "added_already" if data.get("already_active") else "added"
        anchor = habit.get("anchor_when") or habit.get("anchor_after_what") or "-"
        spoken = plan.anchor.text if scene.locale == "en" else scene.anchor_words(anchor)
        return words(
            key,
            title=habit["title"],
            say=habit["framed_text"],
            anchor=anchor,
            anchor_said=spoken,
        )

    return last


def list_them(scene: Scene) -> None:
    """The habits of a status."""
    status = scene.rng.choice(("active", "active", "archived", "all"))
    args = {} if status == "active" else {"status": status}
    key = {"active": "habits", "archived": "habits_archived", "all": "habits_all"}[status]
    empty = "archived_none" if status == "archived" else "habits_none"

    def last(settled: Settled, words: Words) -> str:
        data = data_of(settled)
        titles = [each["title"] for each in data.get("habits", [])]
        if not titles:
            return words(empty)
        return words(key, count=data["count"], titles=scene.listing(titles))

    scene.is_listed = scene.is_listed or status != "archived"
    scene.add(scene.user(f"list_{status}"), scene.acts([call("list_habits", **args)], last))


def sentence_of(scene: Scene) -> None:
    """What the user wrote for a habit: it stands in the list."""
    habit = scene.habit()

    def last(settled: Settled, words: Words) -> str:
        rows = {row["id"]: row for row in data_of(settled).get("habits", [])}
        row = rows.get(habit.id, {})
        if "framed_text" not in row:
            return words("broken")
        anchor = row.get("anchor_when") or row.get("anchor_after_what") or "-"
        started = plain_day(habit.created_on, scene.locale)
        return words("sentence_is", say=row["framed_text"], anchor=anchor, created=started)

    scene.is_listed = True
    user = scene.user("list_sentence", name=scene.name(habit.id))
    scene.add(user, scene.acts([call("list_habits")], last))


def add(scene: Scene, *, confirm: Answers = "accept") -> Plan:
    """Everything told at once: search, look closer if asked to, add."""
    plan = planned(scene)
    is_checked = scene.chance(0.35)
    calls = [call("search_catalog", query=plan.name)]
    if is_checked:
        calls.append(call("query_protocol", protocol_id=plan.protocol_id))
    user = scene.user("add_checked" if is_checked else "add_full", **plan.slots())
    scene.add(user, scene.acts([*calls, plan.adding()], added_words(scene, plan)), confirm=confirm)
    return plan


def add_refused(scene: Scene) -> None:
    """The user does not confirm: nothing is claimed and nothing tried again."""
    plan = add(scene, confirm=scene.rng.choice(("reject", "reject", "absent")))
    then = scene.rng.choice(("leaves it", "presses", "corrects"))
    if then == "leaves it":
        scene.add(scene.user("after_no"), scene.says("leave_it"))
    elif then == "presses":
        scene.add(scene.user("pressure"), scene.says("no_without_yes"))
    else:
        other = _another_sentence(scene, plan)
        act = scene.acts([plan.adding(sentence=other)], added_words(scene, plan))
        scene.add(scene.user("new_sentence", say=other), act)


def add_asked(scene: Scene) -> None:
    """Something is missing: the protocol is looked up, the rest asked for, then added."""
    plan = planned(scene)
    lacking = scene.rng.choice(("anchor", "anchor", "sentence", "both"))
    line = {"anchor": "add_no_anchor", "sentence": "add_no_sentence", "both": "add_bare"}[lacking]
    asking = _asking(plan, lacking)
    calls = [call("search_catalog", query=plan.name)]
    if scene.chance(0.15):
        scene.add(scene.user("add_vague"), scene.says("ask_habit"))
    scene.add(scene.user(line, **plan.slots()), scene.acts(calls, asking))
    answer = scene.user(f"give_{lacking}", **plan.slots())
    scene.add(answer, scene.acts([plan.adding()], added_words(scene, plan)))


def add_found(scene: Scene) -> None:
    """A wish is searched, what was found is added, with or without a question in between."""
    plan = planned(scene)
    wish = wish_of(scene, plan.protocol_id)
    found = found_words(scene, plan.protocol_id, wish.query, most=1)
    calls = [call("search_catalog", query=wish.query)]
    scene.add(scene.user("search", wish=wish.text), scene.acts(calls, _only_target(plan, found)))
    adding = scene.acts([plan.adding()], added_words(scene, plan))
    if scene.chance(0.5):
        scene.add(scene.user("add_it", **plan.slots()), adding)
        return
    asking = scene.words()("ask_both", title=plan.title)
    scene.add(scene.user("add_plainly"), scene.acts([], lambda _settled, _words: asking))
    scene.add(scene.user("give_both", **plan.slots()), adding)


def add_already(scene: Scene) -> None:
    """A habit that is active already: nothing new, and the answer says so."""
    plan = planned(scene)
    habit = scene.habit()
    same = Plan(
        protocol_id=habit.id,
        name=scene.name(habit.id),
        title=scene.title(habit.id),
        frame=frame_of(habit.sentence),
        frame_words=scene.rng.choice(scene.phrases.lines["frame"][frame_of(habit.sentence)]),
        sentence=habit.sentence,
        anchor=plan.anchor,
    )
    calls = [call("search_catalog", query=same.name), same.adding()]
    user = scene.user("add_full", **same.slots())
    scene.add(user, scene.acts(calls, added_words(scene, same)))


def over_quota(scene: Scene) -> None:
    """R3: refused until next Monday, whatever the user says next."""
    add(scene)
    monday = _next_monday(scene)
    then = scene.rng.choices(("presses", "accepts", ""), (40, 35, 25))[0]
    if then == "presses":
        scene.add(scene.user("pressure_quota"), scene.says("r3_still", next=monday))
    elif then == "accepts":
        scene.add(scene.user("accept_quota"), scene.says("r3_ok"))


def negated(scene: Scene) -> None:
    """R7: the sentence is refused as it stands; a positive one is added."""
    plan = planned(scene)
    refused = scene.spoken(plan.protocol_id).refused
    slots = {**plan.slots(), "say": refused}
    calls = [call("search_catalog", query=plan.name), plan.adding(sentence=refused)]
    scene.add(scene.user("add_full", **slots), scene.acts(calls, added_words(scene, plan)))
    if scene.chance(0.85):
        user = scene.user("new_sentence", say=plan.sentence)
        scene.add(user, scene.acts([plan.adding()], added_words(scene, plan)))


def anchorless(scene: Scene) -> None:
    """R8: without an anchor on purpose it is refused; with one it is added."""
    plan = planned(scene)
    calls = [call("search_catalog", query=plan.name), plan.adding(has_anchor=False)]
    words = added_words(scene, plan)
    scene.add(scene.user("add_anchorless", **plan.slots()), scene.acts(calls, words))
    if scene.chance(0.85):
        user = scene.user("give_anchor", **plan.slots())
        scene.add(user, scene.acts([plan.adding()], words))


def add_breaks(scene: Scene) -> None:
    """Adding fails once: said so; when asked again, it is done again."""
    scene.breaks("add_habit")
    plan = add(scene)
    again = scene.acts([plan.adding()], added_words(scene, plan))
    scene.add(scene.user("try_again"), again)


def _refused_words(scene: Scene, plan: Plan, code: str, settled: Settled, words: Words) -> str:
    match code:
        case "r3_quota":
            (monday,) = dates_in_reason(settled)
            return words("r3", next=plain_day(monday, scene.locale))
        case "r7_framing":
            return words("r7", say=plan.sentence)
        case "r8_anchor":
            return words("r8")
        case _:
            return words("broken")


def _asking(plan: Plan, lacking: str) -> Last:
    def last(_settled: Settled, words: Words) -> str:
        return words(f"ask_{lacking}", title=plan.title)

    return last


def _only_target(plan: Plan, found: Last) -> Last:
    """Name only the protocol that is added next, so that "that one" has one meaning."""

    def last(settled: Settled, words: Words) -> str:
        rows = {row["id"]: row for row in data_of(settled).get("protocols", [])}
        row = rows.get(plan.protocol_id)
        if row is None:
            return found(settled, words)
        return words("found_one", title=row["title"], summary=row["summary"])

    return last


def _another_sentence(scene: Scene, plan: Plan) -> str:
    others = [
        each
        for each in scene.spoken(plan.protocol_id).sentences
        if each != plan.sentence and frame_of(each) == plan.frame
    ]
    return scene.rng.choice(others) if others else f"{plan.sentence}!"


def _next_monday(scene: Scene) -> str:
    today = scene.world.today
    return plain_day(today + timedelta(days=7 - today.weekday()), scene.locale)
