"""Talk about habits: a new one, what a rule says to it, and which ones there are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from evals.lessons.catalog_talk import (
    any_protocol,
    found_words,
    is_first,
    open_asked,
    search_for,
    steps_words,
    wish_of,
)
from evals.lessons.scene import (
    ANCHORS,
    REFUSALS,
    Anchor,
    Habit,
    Last,
    Scene,
    Settled,
    Words,
    anchor_in,
    catalog,
    data_of,
    dates_in_reason,
    draw_anchor,
    failure,
    frame_of,
    plain_day,
    rows_of,
    titles_of,
)
from lhkit.messages import ToolCancelled
from lhkit.models.scripted import Reply, call
from lhkit.tuning.teacher import Act, Answers

# ---------------------------------------------------------------- a plan: a habit that a user wants

_MOST_LETTERS = 80
_REDRAWS = 12
_OUTCOME_SHARE = 0.1
_ODD_SHARE = 0.2
_AFTER = ("뒤", "다음", "나서", "직후")
_ID_WORDS = {
    "ko": ("{}", "{}", "{} 프로토콜", "id가 {}인 거", "아이디 {}"),
    "en": ("{}", "{}", "{}", "the protocol {}", "the one with the id {}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`anchor_text` is how the user says the anchor, `names_id` that they call it by its id."""

    protocol_id: str
    name: str
    title: str
    frame: str
    frame_words: str
    sentence: str
    anchor: Anchor
    anchor_text: str
    at: str
    names_id: bool = False

    def slots(self) -> dict[str, str]:
        """Return the words for a user's line."""
        return {
            "name": self.name,
            "say": self.sentence,
            "frame": self.frame_words,
            "anchor": self.anchor_text,
            "at": self.at,
        }

    def finding(self) -> list[Reply]:
        """Return the search for it; an id that the user gave needs none."""
        return [] if self.names_id else [call("search_catalog", query=self.name)]

    def opening(self) -> Reply:
        """Return the call that opens its protocol."""
        return call("query_protocol", protocol_id=self.protocol_id)

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


def planned(
    scene: Scene, *, protocol_id: str = "", names_id: bool = False, says_frame: bool = False
) -> Plan:
    """Return a habit to add: by default one that is not active.

    Args:
        scene: decides.
        protocol_id: which, if that is settled.
        names_id: the user calls it by its id.
        says_frame: the frame is always said, because another sentence may suggest another.
    """
    chosen = protocol_id or _new_protocol(scene)
    frame, sentence = _framed(scene, chosen)
    is_plain = frame == frame_of(sentence) and not says_frame and scene.chance(0.35)
    anchor = draw_anchor(scene.phrases, scene.rng)
    text = _as_said(scene, anchor)
    id_words = scene.rng.choice(_ID_WORDS[scene.locale])
    return Plan(
        protocol_id=chosen,
        name=id_words.format(chosen) if names_id else scene.name(chosen),
        title=scene.title(chosen),
        frame=frame,
        frame_words=scene.rng.choice(scene.phrases.lines["frame"]["any" if is_plain else frame]),
        sentence=sentence,
        anchor=anchor,
        anchor_text=text,
        at=scene.anchor_words(text),
        names_id=names_id,
    )


def with_suggested_anchor(scene: Scene, plan: Plan) -> Plan:
    """Return the plan with the anchor that its protocol recommends."""
    text = catalog()[plan.protocol_id].texts[scene.locale].anchor
    text = text[:1].lower() + text[1:]
    if text.endswith(_AFTER) or text.startswith("after "):
        argument = ("anchor_after_what", text.removeprefix("after "))
    else:
        argument = ("anchor_when", text.removeprefix("at "))
    return replace(plan, anchor=Anchor(text=text, argument=argument))


def with_other_anchor(scene: Scene, plan: Plan) -> Plan:
    """Return the plan with another anchor, said plainly."""
    anchor = _another(scene, plan.anchor)
    return replace(plan, anchor=anchor, anchor_text=anchor.text, at=scene.anchor_words(anchor.text))


def told(scene: Scene, key: str, plan: Plan, **more: object) -> str:
    """Return a user's line about a plan, with its sentence to the letter and its frame if odd."""
    sentence = str(more.get("say", plan.sentence))
    wanted = [sentence] if plan.frame == frame_of(sentence) else [sentence, plan.frame_words]
    for _ in range(_REDRAWS):
        text = scene.user(key, **{**plan.slots(), **more})
        if all(each in text for each in wanted):
            break
    text = text.replace("?.", "?")
    if scene.chance(0.12):
        text = scene.rng.choice(scene.phrases.lines["add_lead"]) + text
    if scene.chance(0.1):
        end = "." if scene.locale == "ko" else ""
        text = text.rstrip(" .!?~") + end + scene.rng.choice(scene.phrases.lines["add_tail"])
    return text


def varied(scene: Scene, sentence: str) -> str:
    """Return a sentence with a word on the manner, so that it is nobody's stock phrase."""
    manner = scene.rng.choice(scene.phrases.lines["manner"])
    if scene.locale == "ko":
        head, _, rest = sentence.partition(" ")
        longer = f"{head} {manner} {rest}"
    else:
        longer = f"{sentence} {manner}"
    return sentence if manner in sentence or len(longer) > _MOST_LETTERS else longer


def _new_protocol(scene: Scene) -> str:
    archived = scene.world.of_status("archived")
    if archived and scene.chance(0.2):
        return scene.rng.choice(archived).id  # taken up again
    taken = {habit.id for habit in scene.world.habits}
    protocol_id = any_protocol(scene)
    while protocol_id in taken:
        protocol_id = any_protocol(scene)
    return protocol_id


def _framed(scene: Scene, protocol_id: str) -> tuple[str, str]:
    """Return a frame and a sentence, which mostly fit: the user may call it what they like."""
    if scene.chance(_OUTCOME_SHARE):
        return "outcome", str(scene.rng.choice(scene.phrases.lines["outcomes"]))
    sentence = scene.rng.choice(scene.spoken(protocol_id).sentences)
    if scene.chance(0.4):
        sentence = varied(scene, sentence)
    if scene.chance(_ODD_SHARE):
        return scene.rng.choice(("identity", "action", "outcome")), sentence
    return frame_of(sentence), sentence


def _as_said(scene: Scene, anchor: Anchor) -> str:
    """Return an anchor as the user says it: sometimes bare, or corrected in the same breath."""
    text = anchor.text
    if scene.chance(0.1):
        text = text.removeprefix("at ")
    if scene.chance(0.1):
        wrong = _another(scene, anchor).text
        template = scene.rng.choice(scene.phrases.lines["anchor_corrected"])
        return str(template.format(wrong=wrong, anchor=text))
    return text


def _another(scene: Scene, anchor: Anchor) -> Anchor:
    other = draw_anchor(scene.phrases, scene.rng)
    while other.text == anchor.text:
        other = draw_anchor(scene.phrases, scene.rng)
    return other


# -------------------------------------------------------------------------------------- a new habit


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


# ------------------------------------------------------------------------------ what a rule refuses


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


# --------------------------------------------------------------- from a wish over a look to a habit


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


# --------------------------------------------------------------------------- which habits there are

_REPLIES = {"active": "habits", "archived": "habits_archived", "all": "habits_all"}


def list_them(scene: Scene) -> None:
    """The habits of a status; sometimes those of another status next."""
    status = scene.rng.choice(("active", "active", "active", "archived", "all"))
    scene.is_listed = scene.is_listed or status != "archived"
    scene.add(scene.user(f"list_{status}"), listing(scene, status))
    if scene.chance(0.25):
        other = "active" if status == "archived" else "archived"
        scene.is_listed = True
        scene.add(scene.user(f"then_{other}"), listing(scene, other))
    if scene.chance(0.12):
        scene.add(scene.user("thanks"), scene.says("thanks"))


def challenged(scene: Scene) -> None:
    """A habit is said to be in the list that is not: the list was read, so nothing is called."""
    scene.is_listed = True
    scene.add(scene.user("list_active"), listing(scene, "active"))
    missing = any_protocol(scene)
    while missing in {habit.id for habit in scene.world.habits}:
        missing = any_protocol(scene)
    name = scene.name(missing)
    count = len(scene.world.of_status("active"))
    for _ in range(scene.rng.choice((1, 1, 2))):
        scene.add(
            scene.user("list_challenged", name=name),
            scene.says("not_in_list", name=name, count=count),
        )


def sentence_of(scene: Scene) -> None:
    """What the user wrote for a habit: it stands in the list."""
    habit = scene.habit()

    def last(settled: Settled, words: Words) -> str:
        rows = {row["id"]: row for row in rows_of(settled, "habits")}
        row = rows.get(habit.id, {})
        if "framed_text" not in row:
            return words("broken")
        started = plain_day(habit.created_on, scene.locale)
        return words("sentence_is", say=row["framed_text"], anchor=anchor_in(row), created=started)

    scene.is_listed = True
    user = scene.user("list_sentence", name=scene.name(habit.id))
    scene.add(user, scene.acts([call("list_habits")], last))


def anchored(scene: Scene) -> None:
    """Which habits are done at a moment? Sometimes two of them are."""
    first, second = scene.two_habits()
    if not scene.lines and scene.chance(0.4):
        _share_anchor(scene, first, second)
    anchor = first.anchor[1]

    def last(settled: Settled, words: Words) -> str:
        rows = rows_of(settled, "habits")
        titles = [row["title"] for row in rows if anchor_in(row) == anchor]
        said = scene.anchor_words(anchor)
        return words("habits_anchored", anchor=said, titles=scene.listing(titles))

    scene.is_listed = True
    user = scene.user("list_anchored", anchor=_spoken(scene, first))
    scene.add(user, scene.acts([call("list_habits")], last))


def first_or_last(scene: Scene) -> None:
    """The habit that was begun last or first, and when."""
    which, pick = scene.rng.choice((("newest", max), ("newest", max), ("oldest", min)))

    def last(settled: Settled, words: Words) -> str:
        row = pick(rows_of(settled, "habits"), key=lambda each: str(each["created_on"]))
        begun = plain_day(date.fromisoformat(row["created_on"]), scene.locale)
        return words(f"habit_{which}", title=row["title"], created=begun)

    scene.is_listed = True
    scene.add(scene.user(f"list_{which}"), scene.acts([call("list_habits")], last))


def listing(scene: Scene, status: str, *, key: str = "") -> Act:
    """Return the act that lists the habits of a status, in the words of that status or of `key`."""
    args = {} if status == "active" else {"status": status}
    empty = "archived_none" if status == "archived" else "habits_none"

    def last(settled: Settled, words: Words) -> str:
        titles = titles_of(settled, "habits")
        if not titles:
            return words(empty)
        return words(key or _REPLIES[status], count=len(titles), titles=scene.listing(titles))

    return scene.acts([call("list_habits", **args)], last)


def _spoken(scene: Scene, habit: Habit) -> str:
    """Return the anchor as the user says it."""
    name, value = habit.anchor
    if scene.locale == "ko":
        return scene.anchor_words(value)
    lines, before = ANCHORS[name]
    return before + value if before + value in scene.phrases.lines[lines] else value


def _share_anchor(scene: Scene, first: Habit, second: Habit) -> None:
    habits = [
        replace(habit, anchor=first.anchor) if habit.id == second.id else habit
        for habit in scene.world.habits
    ]
    scene.world = replace(scene.world, habits=tuple(habits))
