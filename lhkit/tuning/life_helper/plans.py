"""A habit that a user wants: the words for it, and what they come to as arguments of add_habit."""

from dataclasses import dataclass, replace

from lhkit.models.scripted import Reply, call
from lhkit.tuning.life_helper.catalog_talk import any_protocol
from lhkit.tuning.life_helper.scene import Scene, catalog
from lhkit.tuning.life_helper.worlds import Anchor, draw_anchor, frame_of

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
