"""Calls that need a result of another one: written in `values`, played with the real tools."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.errors import TuningError
from lhkit.messages import ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import PhraseFile, read_phrases, taken
from lhkit.tuning.phrases.generate import DrawingStage, conversations
from lhkit.tuning.teacher import simulate

Boxes = dict[str, dict[str, Any]]
TODAY = date(2026, 6, 15)
TEXT = {"type": "string"}


def list_boxes(_args: Mapping[str, Any], boxes: Boxes) -> ToolResult:
    return ToolOk({"boxes": [{"id": key, "name": box["name"]} for key, box in boxes.items()]})


def find_things(args: Mapping[str, Any], boxes: Boxes) -> ToolResult:
    box = boxes.get(args["box_id"])
    if box is None:
        return ToolErr("not_found", "no such box")
    day, word = args.get("day"), args.get("query", "")
    things = [each for each in box["things"] if word in each["name"]]
    return ToolOk({"things": [each for each in things if day in {None, each.get("day")}]})


def drop_thing(args: Mapping[str, Any], boxes: Boxes) -> ToolResult:
    for box in boxes.values():
        for thing in box["things"]:
            if thing["id"] == args["thing_id"]:
                box["things"].remove(thing)
                return ToolOk({"left": len(box["things"]), "thing_id": {"name": "ashes"}})
    return ToolErr("not_found", "no such thing")


REGISTRY = ToolRegistry(
    [
        echo_tool("list_boxes", handler=list_boxes),
        echo_tool(
            "find_things",
            parameters=object_schema("box_id", box_id=TEXT, query=TEXT, day=TEXT),
            handler=find_things,
        ),
        echo_tool(
            "drop_thing",
            parameters=object_schema("thing_id", thing_id={"type": "integer"}),
            handler=drop_thing,
            is_destructive=True,
        ),
    ]
)

WORLDS = """\
worlds:
  - boxes:
      b7: {name: Attic, things: [{id: 41, name: red lamp, day: "2026-06-15"}, {id: 52, name: rug}]}
      b9: {name: cellar, things: [{id: 63, name: red bottle}]}
"""
PHRASES = (
    WORLDS
    + """\
locales:
  en:
    tools:
      list_boxes:
        say: [which boxes?]
        replies:
          ok: ['{boxes.name}.']
          not_found: [No box.]
      find_things:
        say: ['what is in the {box_id}?']
        values:
          box_id:
            - say: [attic, cellar, shed]
              tool: list_boxes
              take: boxes.id
              where: {name: '{say}'}
        replies:
          ok: ['In the {box_id}: {things.name}.']
          not_found: ['No {box_id} here.']
      drop_thing:
        say: ['throw the {thing_id} away']
        values:
          thing_id:
            - say: [lamp, rug]
              tool: find_things
              args: {query: '{say}', box_id: {tool: list_boxes, take: 'boxes[0].id'}}
              take: things.id
        failing:
          thing_id:
            - say: unicorn
              tool: find_things
              args: {query: '{say}', box_id: {tool: list_boxes, take: 'boxes[0].id'}}
              take: things.id
        replies:
          ok: ['No more {thing_id}, {left} left.']
          not_found: ['There is no {thing_id}.']
          cancelled: [It stays.]
"""
)
LAMP_ARGS = "args: {query: '{say}', box_id: {tool: list_boxes, take: 'boxes[0].id'}}"
JOINT = "    two_wishes: ['{first}, and {second}']\n"


@dataclass
class BoxSession:
    boxes: Boxes
    today: date = TODAY
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions="Boxes.", deps=self.boxes)

    def state(self) -> Mapping[str, Any]:
        return {"boxes": [{"id": key} for key in self.boxes]}

    def close(self) -> None:
        pass


class House:
    def open(self, world: Mapping[str, Any], locale: str) -> BoxSession:
        return BoxSession(json.loads(json.dumps(world["boxes"])))


def book_of(folder: Path, text: str = PHRASES) -> PhraseFile:
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    book = read_phrases(file)
    check_fit(book, {"en": REGISTRY})
    return book


async def played(book: PhraseFile, count: int = 60, most_calls: int = 3) -> list[str]:
    """Return what follows the tools' descriptions in each conversation."""
    stage = DrawingStage(registry=REGISTRY, days=[TODAY], most_calls=most_calls)
    told = conversations(book, {"en": stage}, count=count, seed=1, korean_share=0.0)
    sequences = await simulate(tuple(told), House(), progress=False)
    return [each.text.rpartition("Boxes.")[2] for each in sequences]


def course(text: str, said: str) -> list[str]:
    """Return the model's messages after the user said that, up to what the user says next."""
    after = text.partition(f"{said}<end_of_turn>\n")[2]
    messages = re.findall(r"<start_of_turn>(model|user)\n(.*?)<end_of_turn>", after, re.DOTALL)
    spoken: list[str] = []
    for role, words in messages:
        if role == "user" and not words.startswith("Result of "):
            break
        if role == "model":
            spoken.append(words)
    return spoken


def told_of(texts: list[str], said: str) -> list[list[str]]:
    found = [course(text, said) for text in texts if f"{said}<end_of_turn>" in text]
    assert found, said
    return found


LIST = '{"name": "list_boxes", "parameters": {}}'


def call(name: str, **args: Any) -> str:
    return json.dumps({"name": name, "parameters": {}})[:-3] + (
        json.dumps(args, separators=(",", ":")) + "}"
    )


@pytest.mark.anyio
async def test_an_id_comes_from_what_the_real_tool_returned(tmp_path: Path) -> None:
    texts = await played(book_of(tmp_path))
    asked = told_of(texts, "what is in the attic?")
    calls = [LIST, call("find_things", box_id="b7")]
    assert [*calls, "In the attic: red lamp, rug."] in asked
    assert all(each[:2] == calls for each in asked)


@pytest.mark.anyio
async def test_a_look_up_may_need_another_one_first(tmp_path: Path) -> None:
    texts = await played(book_of(tmp_path))
    dropped = told_of(texts, "throw the lamp away")
    calls = [LIST, call("find_things", box_id="b7", query="lamp"), call("drop_thing", thing_id=41)]
    assert [*calls, "No more lamp, 1 left."] in dropped
    assert [*calls, "It stays."] in dropped


@pytest.mark.anyio
async def test_what_is_not_found_is_said_and_nothing_is_called_with_an_invented_id(
    tmp_path: Path,
) -> None:
    texts = await played(book_of(tmp_path))
    for asked in told_of(texts, "what is in the shed?"):
        assert asked == [LIST, "No shed here."]
    for asked in told_of(texts, "throw the unicorn away"):
        find = call("find_things", box_id="b7", query="unicorn")
        assert asked == [LIST, find, "There is no unicorn."]


@pytest.mark.anyio
async def test_none_left_after_a_write_is_not_told_as_not_found(tmp_path: Path) -> None:
    texts = await played(book_of(tmp_path, PHRASES.replace(", {id: 52, name: rug}", "")))
    dropped = [each for each in told_of(texts, "throw the lamp away") if len(each) == 4]
    assert {each[3] for each in dropped} == {"No more lamp, 0 left.", "It stays."}


@pytest.mark.anyio
async def test_several_rows_are_asked_about_or_the_first_is_taken_where_that_is_written(
    tmp_path: Path,
) -> None:
    several = PHRASES.replace("[lamp, rug]", "[r]")
    with pytest.raises(
        TuningError,
        match=r"values: find_things .*2 different values.*where: .*rows\[0\].*`several`",
    ) as raised:
        await played(book_of(tmp_path, several))
    rows = '{"id":41,"name":"red lamp","day":"2026-06-15"}, {"id":52,"name":"rug"}'
    assert f" are there, in {rows}: say which" in str(raised.value)
    asks = several.replace(
        "cancelled: [It", "several: ['Which one: {things.name}?']\n          cancelled: [It"
    )
    find = call("find_things", box_id="b7", query="r")
    for asked in told_of(await played(book_of(tmp_path, asks)), "throw the r away"):
        assert asked == [LIST, find, "Which one: red lamp, rug?"]
    first = several.replace("take: things.id", "take: things[0].id")
    dropped = told_of(await played(book_of(tmp_path, first)), "throw the r away")
    assert [LIST, find, call("drop_thing", thing_id=41), "No more r, 1 left."] in dropped


@pytest.mark.anyio
async def test_a_look_up_may_name_a_day_and_need_not_be_said(tmp_path: Path) -> None:
    unsaid = "{text: throw away what came today, args: {thing_id: {tool: find_things, "
    unsaid += "args: {box_id: b7, day: {date: today}}, take: things.id}}}"
    text = PHRASES.replace("['throw the {thing_id} away']", f"['throw {{thing_id}}', {unsaid}]")
    text = text.replace("No more {thing_id}, {left} left.", "Done.").replace(
        "no {thing_id}", "none"
    )
    dropped = told_of(await played(book_of(tmp_path, text)), "throw away what came today")
    find = call("find_things", box_id="b7", day="2026-06-15")
    assert [find, call("drop_thing", thing_id=41), "Done."] in dropped


@pytest.mark.anyio
async def test_two_wishes_share_what_was_looked_up_and_fit_into_a_turn(tmp_path: Path) -> None:
    texts = await played(book_of(tmp_path, PHRASES + JOINT), count=200)
    boxes = "Attic, cellar."
    for asked in told_of(texts, "which boxes, and what is in the cellar?"):
        things = call("find_things", box_id="b9")
        assert asked == [LIST, things, f"{boxes} In the cellar: red bottle."]
    for asked in told_of(texts, "what is in the shed, and which boxes?"):
        assert asked == [LIST, f"No shed here. {boxes}"]
    assert not any(re.search(r"throw .*, and |, and throw ", each) for each in texts)


@pytest.mark.anyio
async def test_a_chain_that_is_longer_than_a_turn_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        TuningError, match=r"drop_thing\.say: it takes more than 2 calls.*max_turns"
    ):
        await played(book_of(tmp_path), most_calls=2)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "take: boxes.id",
            "take: rows.id",
            r"list_boxes \{\}, rows.id: there is no 'rows' \(fields there: boxes\)",
        ),
        ("take: boxes.id", "take: boxes.key", r"there is no 'key' \(fields there: id, name\)"),
        ("where: {name:", "where: {title:", r"there is no 'title' \(fields there: id, name\)"),
    ],
)
async def test_a_look_up_that_cannot_be_right_is_told_with_its_line_and_the_fields(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert old in PHRASES
    with pytest.raises(TuningError, match=rf"p\.yaml:\d+: .*values: .*{sentence}"):
        await played(book_of(tmp_path, PHRASES.replace(old, new)))


AT = "locales.en.tools.drop_thing.values.thing_id[0]"
FAULTS = [
    ("tool: find_things", "tool: find_thing", f"{AT}.tool: there is no tool 'find_thing': choose"),
    (LAMP_ARGS, "args: {query: '{say}'}", f"{AT}.args: find_things needs 'box_id': write what"),
    (LAMP_ARGS, "args: {box_id: 7}", f"{AT}.args.box_id: 7 breaks the schema: expected string"),
    ("{query: '{say}',", "{word: '{say}',", f"{AT}.args.word: 'word' is no argument of find_thin"),
    (
        "{query: '{say}',",
        "{query: '{thing_id}',",
        f"{AT}: args.query: '{{thing_id}}': the only slo",
    ),
    ("{tool: list_boxes,", "{tool: boxes,", f"{AT}.args.box_id.tool: there is no tool 'boxes'"),
    ("take: things.id", "take: things..id", f"{AT}: take: 'things..id' is no place in a result"),
    ("take: things.id", "take: [id]", f"{AT}: take: "),
    ("take: things.id", "takes: things.id", f"{AT}: "),
    (
        "take: things.id",
        "take: things.id\n              wher: {a: b}",
        f"{AT}: wher: unknown field of a look-up: did you mean where?: write {{say",
    ),
    (
        "take: things.id",
        "take: things.id\n              where: a",
        f'{AT}: where: "a" must be a map',
    ),
    ("say: [lamp, rug]", "say: []", f"{AT}: say: [] must be a text or a list of texts"),
    ("say: [lamp, rug]", "args: {}", "locales.en.tools.drop_thing"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_look_up_is_told_by_file_line_and_field(
    tmp_path: Path, fault: tuple[str, str, str]
) -> None:
    old, new, sentence = fault
    begin = PHRASES.index("      drop_thing:")
    with pytest.raises(TuningError) as raised:
        book_of(tmp_path, PHRASES[:begin] + PHRASES[begin:].replace(old, new, 1))
    assert re.search(rf"p\.yaml:\d+: {re.escape(sentence)}", str(raised.value)), raised.value


def test_who_looks_up_has_words_for_what_is_not_found(tmp_path: Path) -> None:
    text = PHRASES.replace("          not_found: ['There is no {thing_id}.']\n", "")
    with pytest.raises(
        TuningError, match=r"replies\.not_found: drop_thing has no reply for `not_f"
    ):
        book_of(tmp_path, text)


def test_words_that_nobody_said_cannot_be_looked_for(tmp_path: Path) -> None:
    meant = (
        "{text: throw it, args: {thing_id: {tool: find_things, args: {box_id: '{say}'}, take: a}}}"
    )
    text = PHRASES.replace("['throw the {thing_id} away']", f"['throw {{thing_id}}', {meant}]")
    with pytest.raises(
        TuningError, match=r"say\[1\]\.args\.thing_id: \{say\}: nothing is said for it"
    ):
        book_of(tmp_path, text)


DATA = {
    "id": 3,
    "none": [],
    "boxes": [
        {"id": 1, "name": "A", "tags": ["x", "y"], "owner": {"id": "k"}},
        {"id": 2, "name": "B", "tags": [], "owner": None},
    ],
}


@pytest.mark.parametrize(
    ("place", "where", "values"),
    [
        ("id", {}, [3]),
        ("id", {"id": 3}, [3]),
        ("id", {"id": "3"}, []),
        ("boxes.id", {}, [1, 2]),
        ("boxes[1].id", {}, [2]),
        ("boxes[2].id", {}, []),
        ("boxes.id", {"name": "b"}, [2]),
        ("boxes[0].id", {"name": "b"}, [2]),
        ("boxes[1].id", {"name": "b"}, []),
        ("boxes.tags", {}, ["x", "y"]),
        ("boxes.tags[1]", {}, ["y"]),
        ("boxes.owner.id", {}, ["k"]),
        ("none.id", {}, []),
    ],
)
def test_a_place_in_a_result_is_read_as_people_mean_it(
    place: str, where: dict[str, Any], values: list[Any]
) -> None:
    assert list(taken(DATA, place, where).values) == values


@pytest.mark.anyio
async def test_a_reply_tells_a_row_as_the_result_has_it_and_not_as_it_was_looked_up(
    tmp_path: Path,
) -> None:
    phrases = PHRASES.replace("No more {thing_id}, {left} left.", "Now it is {thing_id.name}.")
    texts = await played(book_of(tmp_path, phrases))
    ends = {each[-1] for each in told_of(texts, "throw the lamp away")}
    assert "Now it is ashes." in ends
    assert "Now it is red lamp." not in ends


@pytest.mark.anyio
async def test_a_slot_of_lines_that_belong_together_may_be_called_as_a_list_of_a_result(
    tmp_path: Path,
) -> None:
    follow_up = """\
    follow_ups:
      - slots: {things: [{say: the attic, value: b7}]}
        lines:
          - say: ['look into {things}']
            calls: [{tool: find_things, args: {box_id: '{things}'}}]
            outcome: several
            replies: {several: ['{things.name} are in it.']}
"""
    texts = await played(book_of(tmp_path, PHRASES + follow_up))
    told = told_of(texts, "look into the attic")
    assert [call("find_things", box_id="b7"), "red lamp, rug are in it."] in told


LOFT = """
typos: false
locales:
  en:
    tools:
      list_boxes: {say: []}
      drop_thing: {say: []}
      find_things: {say: [], replies: {ok: ['{things.name}.'], not_found: [Nothing.]}}
    follow_ups:
      - world: {boxes: {b1: {name: Loft, things: [{id: 9, name: bat}]}}}
        lines: [{say: [the loft?], calls: [{tool: find_things, args: {box_id: b1}}]}]
      - lines: [{say: [the attic?], calls: [{tool: find_things, args: {box_id: b7}}]}]
"""


def test_lines_that_are_drawn_anew_lie_in_their_own_world_or_in_the_files(tmp_path: Path) -> None:
    """Two lines in all, so that nearly each is drawn again: without a world, after one that has."""
    book = book_of(tmp_path, f"{WORLDS}{LOFT}")
    stage = DrawingStage(registry=REGISTRY, days=[TODAY], own_days={0: TODAY})
    told = conversations(book, {"en": stage}, count=30, seed=1, korean_share=0)
    boxes = {(each.lines[0].user, *each.world["boxes"]) for each in told}
    assert boxes == {("the loft?", "b1"), ("the attic?", "b7", "b9")}
