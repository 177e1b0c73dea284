"""What people say and a plain list of values cannot: days, rows, follow-ups, near-misses."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.commands.tune import make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import TuningError
from lhkit.messages import ToolErr, ToolOk, ToolResult
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.data import TrainingSequence, read_sequences
from lhkit.tuning.phrases.file import MORE, read_phrases

THURSDAY = date(2026, 6, 18)
TEXT, DAY = {"type": "string"}, {"type": "string", "format": "date"}
Diary = list[dict[str, Any]]


def list_events(args: Mapping[str, Any], diary: Diary) -> ToolResult:
    begin, end = args.get("from", "0"), args.get("to", "9")
    found = [each for each in diary if begin <= each["day"] <= end]
    wanted = args.get("query", "")
    return ToolOk({"asked": begin, "events": [each for each in found if wanted in each["title"]]})


def add_event(args: Mapping[str, Any], diary: Diary) -> ToolResult:
    if any(each["day"] == args["day"] for each in diary):
        return ToolErr("taken", "that day is taken")
    diary.append({"id": f"e{len(diary) + 1}", "title": args["title"], "day": args["day"]})
    return ToolOk({"title": args["title"], "day": args["day"]})


def cancel_event(args: Mapping[str, Any], diary: Diary) -> ToolResult:
    found = next((each for each in diary if each["id"] == args["event_id"]), None)
    if found is None:
        return ToolErr("not_found", "no such event")
    diary.remove(found)
    return ToolOk({"left": len(diary)})


REGISTRY = ToolRegistry(
    [
        echo_tool(
            "list_events",
            parameters=object_schema(**{"from": DAY, "to": DAY, "query": TEXT}),
            handler=list_events,
        ),
        echo_tool(
            "add_event",
            parameters=object_schema("title", "day", title=TEXT, day=DAY, phone=TEXT),
            handler=add_event,
            is_destructive=True,
        ),
        echo_tool(
            "cancel_event",
            parameters=object_schema("event_id", event_id=TEXT),
            handler=cancel_event,
            is_destructive=True,
        ),
    ]
)


@dataclass
class DiarySession:
    diary: Diary
    today: date
    max_result_bytes: int = 8_192
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)

    @property
    def assistant(self) -> Assistant:
        return Assistant(
            instructions="Diary.", deps=self.diary, max_result_bytes=self.max_result_bytes
        )

    def state(self) -> Mapping[str, Any]:
        return {"events": self.diary}

    def close(self) -> None:
        pass


class Diaries:
    def open(self, world: Mapping[str, Any], locale: str) -> DiarySession:
        rows = world.get("events", [])
        diary = [{"id": f"e{number}", **each} for number, each in enumerate(rows, 1)]
        size = world.get("bytes", 8_192)
        return DiarySession(diary, date.fromisoformat(world["now"][:10]), size)


diaries = Diaries()
WORLD = """\
worlds:
  - now: 2026-06-18T09:00:00+09:00
    events:
      - {title: lunch with Kim, day: {date: friday}}
      - {title: lunch with Lee, day: {date: saturday}}
typos: false
"""
EMPTY = re.sub(r"events:\n( +- .*\n)+", "events: []\n", WORLD)


def phrases(locale: str = "en", **parts: Any) -> str:
    """Return the part of a file in one language; JSON is YAML."""
    return f"locales: {json.dumps({locale: parts}, ensure_ascii=False)}\n"


def tool(say: list[Any], ok: list[Any], **parts: Any) -> dict[str, Any]:
    replies = {"ok": ok, "cancelled": ["Not done."], **parts.pop("replies", {})}
    return {"say": say, "replies": replies, **parts}


NOT_ASKED: dict[str, Any] = {"say": []}
LISTING = tool(["what is on?"], ["There: {events.title}."], replies={"not_found": ["Nothing."]})


def tools(**of: Any) -> dict[str, Any]:
    """Return the phrases of all three tools: those that are given, and nobody asks for others."""
    return {name: of.get(name, NOT_ASKED) for name in REGISTRY}


async def learnt(folder: Path, text: str, count: int = 60, locale: str = "en") -> list[list[str]]:
    """Return what the user and the model say in each conversation."""
    played = await drawn(folder, text, f"{__name__}:diaries", count, locale)
    return [spoken(each.text) for each in played]


async def drawn(
    folder: Path, text: str, toolset: str, count: int, locale: str = "en"
) -> Sequence[TrainingSequence]:
    """Return what is drawn from a phrase file, `p.yaml` of the folder."""
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    options = DataOptions(
        out=folder / "out.jsonl",
        count=count,
        seed=1,
        dev_share=0,
        toolset=toolset,
        phrases=folder / "p.yaml",
    )
    await make_data(options, Settings(locale=locale), progress=False)
    return read_sequences(options.out)


def spoken(text: str) -> list[str]:
    messages = re.findall(r"<start_of_turn>(model|user)\n(.*?)<end_of_turn>", text, re.DOTALL)
    own = [(role, said.rpartition("\n")[2] if role == "user" else said) for role, said in messages]
    return [said for role, said in own if role == "model" or not _is_result(said)]


def _is_result(said: str) -> bool:
    return said.startswith(("Result of ", "{"))


def call(name: str, **args: Any) -> str:
    given = json.dumps(args, separators=(",", ":"), ensure_ascii=False)
    return f'{{"name": "{name}", "parameters": {given}}}'


@pytest.mark.anyio
async def test_days_are_told_as_people_say_them_in_args_of_a_sentence_in_rows_and_in_worlds(
    tmp_path: Path,
) -> None:
    month = {"from": {"date": "monthstart"}, "to": {"date": "today"}}
    weekend = {"from": {"date": "saturday"}, "to": {"date": "sunday"}}
    listing = tool(
        [{"text": "what was this month?", "args": month}, "what is on {span}?"],
        ["{span}: {events.title}", "So far: {events.title}"],
        slots={"span": [{"say": "this weekend", "args": weekend}]},
        replies={"not_found": ["Nothing."]},
    )
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)))
    assert [
        "what is on this weekend?",
        call("list_events", **{"from": "2026-06-20", "to": "2026-06-21"}),
        "this weekend: lunch with Lee",
    ] in told
    assert [
        "what was this month?",
        call("list_events", **{"from": "2026-06-01", "to": "2026-06-18"}),
        "Nothing.",
    ] in told


@pytest.mark.anyio
async def test_values_of_a_row_are_drawn_together_and_only_what_is_said_is_called_with(
    tmp_path: Path,
) -> None:
    people = [
        {"args": {"title": "Kim", "phone": "010"}},
        {"args": {"title": "Lee", "phone": "070"}},
    ]
    adding = tool(
        ["add {who.title}, {who.phone}, {day}", "add {who.title} {day}"],
        ["{who.title} is in."],
        slots={"who": people},
        values={"day": [{"say": "on Monday", "date": "monday"}]},
        replies={"taken": ["no"]},
    )
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(add_event=adding)), count=80)
    said = {talk[0]: talk[1] for talk in told}
    day = "2026-06-22"
    assert said == {
        "add Kim, 010, on Monday": call("add_event", title="Kim", day=day, phone="010"),
        "add Lee, 070, on Monday": call("add_event", title="Lee", day=day, phone="070"),
        "add Kim on Monday": call("add_event", title="Kim", day=day),
        "add Lee on Monday": call("add_event", title="Lee", day=day),
    }
    assert ["Kim is in."] in [talk[2:3] for talk in told]


@pytest.mark.anyio
async def test_one_sentence_says_every_hour_of_a_look_up(tmp_path: Path) -> None:
    found = {"tool": "list_events", "take": "events.id", "where": {"title": "lunch with {who}"}}
    cancelling = tool(
        [{"text": "cancel it with {who}", "args": {"event_id": found}}],
        ["No more {event_id.title}."],
        slots={"who": ["Kim", {"say": "my boss", "told": "your boss", "value": "Lee"}, "Ann"]},
        replies={"not_found": ["There is nothing with {who}."]},
    )
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(cancel_event=cancelling)))
    look = call("list_events")
    away = [look, call("cancel_event", event_id="e1"), "No more lunch with Kim."]
    assert ["cancel it with Kim", *away] in told
    assert ["cancel it with Ann", look, "There is nothing with Ann."] in told
    none = tool(
        cancelling["say"],
        ["Gone."],
        slots={"who": cancelling["slots"]["who"][1:2]},
        replies={"not_found": ["There is nothing with {who}."]},
    )
    told = await learnt(tmp_path, EMPTY + phrases(tools=tools(cancel_event=none)), count=9)
    assert ["cancel it with my boss", look, "There is nothing with your boss."] in told


@pytest.mark.anyio
async def test_a_reply_tells_each_row_with_the_fields_that_it_has(tmp_path: Path) -> None:
    world = WORLD.replace("{title: lunch with Lee,", "{title: lunch with Lee, room: 7,")
    each = {"events": ["{title} in room {room}", "{title} on {day}"]}
    reply = {"text": "There is {events}.", "each": each, "join": "; "}
    listing = tool(["what is on?"], [reply], replies={"not_found": ["Nothing."]})
    told = await learnt(tmp_path, world + phrases(tools=tools(list_events=listing)), count=3)
    expected = "There is lunch with Kim on 2026-06-19; lunch with Lee in room 7."
    assert {talk[2] for talk in told} == {expected}


@pytest.mark.anyio
async def test_a_list_of_several_rows_may_be_asked_about_and_one_is_told(tmp_path: Path) -> None:
    listing = tool(
        ["when is lunch {query}?"],
        ["On {events.day}."],
        values={"query": ["with Kim", {"say": "then", "value": "lunch"}]},
        replies={"several": ["Which one: {events.title}?"], "not_found": ["Nothing."]},
    )
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)), count=20)
    asked = {(talk[0], talk[2]) for talk in told}
    assert asked == {
        ("when is lunch with Kim?", "On 2026-06-19."),
        ("when is lunch then?", "Which one: lunch with Kim, lunch with Lee?"),
    }


@pytest.mark.anyio
async def test_each_language_may_have_worlds_of_its_own(tmp_path: Path) -> None:
    korean = [
        {"now": "2026-06-18T09:00:00+09:00", "events": [{"title": "점심", "day": "2026-06-19"}]}
    ]
    listing = tool(["뭐 있어?"], ["{events.title}"], replies={"not_found": ["없어요."]})
    own = phrases("ko", tools=tools(list_events=listing), worlds=korean)
    told = await learnt(tmp_path, WORLD + own, count=3)
    assert {talk[2] for talk in told} == {"점심"}


@pytest.mark.anyio
async def test_an_ok_that_says_nothing_of_an_empty_list_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = tool(["what is on?"], ["Here you are."], replies={"not_found": ["Nothing."]})
    await learnt(tmp_path, EMPTY + phrases(tools=tools(list_events=blind)), count=5)
    assert "Said of an empty list though they tell of a result: 'Here you are.'." in (
        capsys.readouterr().out
    )


WHICH: dict[str, Any] = {
    "slots": {"one": [{"say": "the one with Lee", "value": "lunch with Lee"}]},
    "lines": [
        {
            "say": ["cancel my lunch"],
            "calls": [
                {
                    "tool": "cancel_event",
                    "args": {
                        "event_id": {
                            "tool": "list_events",
                            "args": {"query": "lunch"},
                            "take": "events.id",
                        }
                    },
                }
            ],
            "outcome": "several",
            "replies": {"several": ["Which one: {events.title}?"]},
        },
        {
            "say": ["{one}"],
            "calls": [
                {
                    "tool": "cancel_event",
                    "args": {
                        "event_id": {
                            "tool": "list_events",
                            "args": {"query": "lunch"},
                            "take": "events.id",
                            "where": {"title": "{one}"},
                        }
                    },
                }
            ],
            "replies": {"ok": ["{event_id.title} is off."]},
        },
    ],
}


@pytest.mark.anyio
async def test_an_answer_to_which_one_uses_the_id_that_was_found_before(tmp_path: Path) -> None:
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(), follow_ups=[WHICH]), count=2)
    assert told[0] == [
        "cancel my lunch",
        call("list_events", query="lunch"),
        "Which one: lunch with Kim, lunch with Lee?",
        "the one with Lee",
        call("cancel_event", event_id="e2"),
        "lunch with Lee is off.",
    ]


def adding(say: str, day: str, **more: Any) -> dict[str, Any]:
    wished = {"tool": "add_event", "args": {"title": "{what}", "day": day}}
    return {"say": [say], "calls": [wished], **more}


@pytest.mark.anyio
async def test_corrections_a_yes_and_another_try_follow_on_what_was_said(tmp_path: Path) -> None:
    taken = {"taken": ["{day} is taken. Shall I take {other}?"]}
    slots = {
        "what": ["golf", "chess"],
        "day": [{"say": "Friday", "date": "friday"}],
        "other": [{"say": "Monday", "date": "monday"}, {"say": "Tuesday", "date": "tuesday"}],
    }
    ok = {"ok": ["{what} is on {other}."]}
    correction = {
        "slots": slots,
        "lines": [
            adding("{what} on {day}", "{day}", outcome="taken", replies=taken),
            adding("yes, do that", "{other}", replies=ok),
        ],
    }
    refused = {
        "slots": slots,
        "lines": [
            adding(
                "{what} on {other}", "{other}", confirm="reject", replies={"cancelled": ["No."]}
            ),
            adding("I did mean {what} on {other}", "{other}", replies=ok),
            {"say": ["nice"], "answer": ["Glad to hear."]},
        ],
    }
    text = WORLD + phrases(tools=tools(), follow_ups=[correction, refused])
    told = await learnt(tmp_path, text, count=40)
    assert [
        "golf on Friday",
        call("add_event", title="golf", day="2026-06-19"),
        "Friday is taken. Shall I take Monday?",
        "yes, do that",
        call("add_event", title="golf", day="2026-06-22"),
        "golf is on Monday.",
    ] in told
    assert [
        "chess on Tuesday",
        call("add_event", title="chess", day="2026-06-23"),
        "No.",
        "I did mean chess on Tuesday",
        call("add_event", title="chess", day="2026-06-23"),
        "chess is on Tuesday.",
        "nice",
        "Glad to hear.",
    ] in told


@pytest.mark.anyio
async def test_a_value_of_a_result_is_told_in_the_words_that_are_written_for_it(
    tmp_path: Path,
) -> None:
    names = {"lunch with Kim": "김 씨와 점심", "2026-06-19": "금요일"}
    plain = tool(["뭐 있어?"], ["{events.title} 있어요."])
    each = {"text": "{events} 있어요.", "each": {"events": "{day:은} {title}"}}
    rows = tool(["뭐 있어?"], [each])
    for listing, answer in (
        (plain, "김 씨와 점심, lunch with Lee 있어요."),
        (rows, "금요일은 김 씨와 점심, 2026-06-20은 lunch with Lee 있어요."),
    ):
        text = WORLD + phrases(locale="ko", tools=tools(list_events=listing), told=names)
        assert [talk[-1] for talk in await learnt(tmp_path, text, 3, "ko")] == [answer] * 3


@pytest.mark.anyio
async def test_two_wishes_share_a_day_and_a_near_miss_calls_nothing(tmp_path: Path) -> None:
    both = {
        "slots": {"day": "add_event.day", "what": "add_event.title"},
        "lines": [
            {
                "say": ["what is on {day}, and put {what} there, too"],
                "calls": [
                    {"tool": "list_events", "args": {"from": "{day}", "to": "{day}"}},
                    {"tool": "add_event", "args": {"title": "{what}", "day": "{day}"}},
                ],
            }
        ],
    }
    adds = {
        "say": [],
        "values": {"title": ["golf"], "day": [{"say": "Monday", "date": "monday"}]},
        "replies": {"ok": ["{what} is in."]},
    }
    miss = {
        "say": ["should I play {what}?"],
        "answer": ["{what} is fun."],
        "slots": {"what": "add_event.title"},
    }
    text = WORLD + phrases(
        tools=tools(add_event=adds, list_events=LISTING), follow_ups=[both], near_misses=[miss]
    )
    told = await learnt(tmp_path, text, count=30)
    assert [
        "what is on Monday, and put golf there, too",
        call("list_events", **{"from": "2026-06-22", "to": "2026-06-22"}),
        call("add_event", title="golf", day="2026-06-22"),
        "Nothing. golf is in.",
    ] in told
    assert ["should I play golf?", "golf is fun."] in [talk[:2] for talk in told]


@pytest.mark.anyio
async def test_lines_that_belong_together_may_begin_in_a_world_of_their_own(tmp_path: Path) -> None:
    one = {**WHICH, "lines": WHICH["lines"][:1]}
    text = EMPTY + phrases(tools=tools(list_events=LISTING), follow_ups=[one])
    with pytest.raises(TuningError, match=r"came to `not_found` with .*, not to `several`"):
        await learnt(tmp_path, text, count=9)
    row = {"title": "lunch", "day": {"date": "today+1d"}}
    own = {"now": "2026-06-18T09:00:00+09:00", "events": [row, row]}
    text = EMPTY + phrases(tools=tools(list_events=LISTING), follow_ups=[{**one, "world": own}])
    assert any(talk[0] == "cancel my lunch" for talk in await learnt(tmp_path, text, count=9))


@pytest.mark.anyio
async def test_everything_that_goes_wrong_in_the_play_is_told_at_once_each_cause_once(
    tmp_path: Path,
) -> None:
    listing = tool(["what is on?"], ["{total} events"])
    cancelling = tool(
        ["cancel {event_id}"],
        ["Gone."],
        values={"event_id": [{"say": "it", "tool": "list_events", "take": "rows.id"}]},
        replies={"not_found": ["None."]},
    )
    text = WORLD + phrases(tools=tools(list_events=listing, cancel_event=cancelling))
    with pytest.raises(TuningError) as raised:
        await learnt(tmp_path, text)
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert any(
        "{total} is not there: list_events came to `ok` with {} and no reply" in each
        and "(slots there: asked, events:count, events.id, events.title, events.day)" in each
        for each in lines
    )
    assert any("there is no 'rows' (fields there: asked, events)" in each for each in lines)
    assert all(re.search(r"p\.yaml:\d+: .* \(\d+ more of this\)$", each) for each in lines)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.anyio
async def test_a_result_that_is_too_long_for_the_model_is_told_as_that(tmp_path: Path) -> None:
    world = WORLD.replace("    events:", "    bytes: 256\n    events:")
    world = world.replace("lunch with Kim", "lunch with Kim" + " and Kim" * 40)
    text = world + phrases(tools=tools(list_events=LISTING))
    with pytest.raises(
        TuningError, match=r"the result of list_events \{\} takes more than 256 byt"
    ):
        await learnt(tmp_path, text)


FAULTS = [
    ({"slots": {"one": "cancel.event_id"}}, "slots.one: 'cancel.event_id': there is no tool 'canc"),
    ({"slots": {"one": "cancel_event.id"}}, "slots.one: 'cancel_event.id': 'id' is no argument of"),
    ({"slots": {"one": [{"say": "x", "date": "fryday"}]}}, "slots.one: date: "),
    ({"slots": {}}, "lines[1].say[0]: {one} is no slot here: slots are none"),
    ({"lines": [{"say": ["x"]}]}, "lines[0]: needs `calls` or an `answer`: one of the two"),
    (
        {"lines": [{"say": ["x"], "calls": [{"tool": "cancel"}]}]},
        "lines[0].calls[0].tool: there is no tool 'cancel': choose one of",
    ),
    (
        {"lines": [{"say": ["x"], "calls": [{"tool": "cancel_event"}]}]},
        "lines[0].calls[0]: cancel_event needs 'event_id': write it under `args`",
    ),
    (
        {"lines": [{"say": ["x"], "calls": [{"tool": "list_events", "args": {"to": "{who}"}}]}]},
        "lines[0].calls[0].args.to: {who} is no slot here: slots are one",
    ),
    (
        {"lines": [{"say": ["x"], "calls": [{"tool": "list_events", "args": {"to": "{one}"}}]}]},
        'lines[0].calls[0].args.to: "lunch with Lee" breaks the schema: expected',
    ),
]


@pytest.mark.parametrize(("change", "sentence"), FAULTS)
@pytest.mark.anyio
async def test_a_fault_of_lines_that_belong_together_is_told_by_file_line_and_field(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    text = WORLD + phrases(tools=tools(), follow_ups=[{**WHICH, **change}])
    with pytest.raises(TuningError) as raised:
        await learnt(tmp_path, text)
    place = f"locales.en.follow_ups[0].{sentence}"
    assert re.search(rf"p\.yaml:\d+: {re.escape(place)}", str(raised.value)), raised.value


def test_a_day_of_a_world_without_a_clock_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(WORLD.replace("now:", "then:") + phrases(tools={}), encoding="utf-8")
    with pytest.raises(TuningError, match=r"p\.yaml:2: worlds\[0\]: date 'friday' needs a clock"):
        read_phrases(file)


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("", "worlds[0].events[1].day"),
        ("ko", "locales.ko.worlds[0].events[1].day"),
        ("follow_up", "locales.en.follow_ups[0].world.events[1].day"),
    ],
)
def test_a_misspelt_day_of_a_world_is_told_with_its_line_and_what_may_stand_there(
    tmp_path: Path, part: str, place: str
) -> None:
    events = [
        {"title": "x", "day": {"date": "friday"}},
        {"title": "y", "day": {"date": "saterday"}},
    ]
    world = {"now": "2026-06-18T09:00:00+09:00", "events": events}
    line = {"say": ["hi"], "answer": ["Hello."]}
    texts = {
        "": f"worlds: [{json.dumps(world)}]\n" + phrases(tools={}),
        "ko": WORLD + phrases("ko", tools={}, worlds=[world]),
        "follow_up": WORLD + phrases(tools={}, follow_ups=[{"lines": [line], "world": world}]),
    }
    text = texts[part].replace('{"title": "y"', '\n  {"title": "y"')
    file = tmp_path / "p.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TuningError) as raised:
        read_phrases(file)
    number = next(n for n, each in enumerate(text.splitlines(), 1) if "saterday" in each)
    assert str(raised.value) == (
        f"{file}:{number}: {place}: date: 'saterday' is no day: write today, tomorrow-1w, last "
        f"friday or monthstart-1m, or YYYY-MM-DD without `date`: did you mean saturday?\n{MORE}"
    )


@pytest.mark.anyio
async def test_a_day_of_the_calendar_may_be_written_as_a_date_beside_a_sentence(
    tmp_path: Path,
) -> None:
    listing = {**LISTING, "say": [{"text": "what is on?", "args": {"to": {"date": "2026-06-19"}}}]}
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)), count=1)
    assert told[0][1] == call("list_events", to="2026-06-19")


@pytest.mark.parametrize(
    ("reply", "place", "slot"),
    [
        ("{events.titel}", "replies.ok[0]", "events.titel"),
        ("{event:count}", "replies.ok[0]", "event:count"),
        ("{events}", "replies.ok[0]", "events"),
        (
            {"text": "{events}", "each": {"events": ["{titel}"]}},
            "replies.ok[0].each.events",
            "titel",
        ),
        ({"text": "{event}", "each": {"event": ["{title}"]}}, "replies.ok[0]", "event"),
    ],
)
@pytest.mark.anyio
async def test_a_misspelt_slot_of_a_reply_is_named_with_those_that_are_there(
    tmp_path: Path, reply: Any, place: str, slot: str
) -> None:
    text = WORLD + phrases(tools=tools(list_events=tool(["what is on?"], [reply])))
    with pytest.raises(TuningError) as raised:
        await learnt(tmp_path, text, count=1)
    assert f"list_events.{place}: {{{slot}}} is not there: " in str(raised.value)
    assert "(slots there: asked, events:count, events.id, events.title, events.day)" in str(
        raised.value
    )


@pytest.mark.anyio
async def test_a_misspelt_slot_of_a_line_is_named_at_the_line_or_at_the_tool_that_has_the_reply(
    tmp_path: Path,
) -> None:
    line: dict[str, Any] = {"say": ["what is on?"], "calls": [{"tool": "list_events"}]}
    listing = {"say": [], "replies": {"ok": ["{titel}"]}}
    own: dict[str, Any] = {"replies": {"ok": ["{titel}"]}}
    none: dict[str, Any] = {}
    for more, place in ((own, "follow_ups[0].lines[0]"), (none, "tools.list_events")):
        talk = {"lines": [{**line, **more}]}
        text = WORLD + phrases(tools=tools(list_events=listing), follow_ups=[talk])
        with pytest.raises(
            TuningError, match=re.escape(f"{place}.replies.ok[0]: {{titel}} is not")
        ):
            await learnt(tmp_path, text, count=1)


@pytest.mark.anyio
async def test_who_says_no_to_calls_that_only_read_is_told(tmp_path: Path) -> None:
    line = {"say": ["what is on?"], "calls": [{"tool": "list_events"}], "confirm": "reject"}
    text = WORLD + phrases(tools=tools(list_events=LISTING), follow_ups=[{"lines": [line]}])
    told = (
        r"lines\[0\]\.confirm: nobody is asked here, so that nobody can say no: none of its calls"
    )
    with pytest.raises(TuningError, match=told):
        await learnt(tmp_path, text, count=1)


@pytest.mark.anyio
async def test_who_says_no_and_was_not_asked_is_told_in_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for query, is_told in (("golf", True), ("Kim", False)):
        called = {"tool": "list_events", "args": {"query": query}, "take": "events.id"}
        line = {
            "say": ["cancel it"],
            "calls": [{"tool": "cancel_event", "args": {"event_id": called}}],
            "confirm": "reject",
            "replies": {"not_found": ["No such."], "cancelled": ["It stays."]},
        }
        text = WORLD + phrases(tools=tools(), follow_ups=[{"lines": [line]}])
        await learnt(tmp_path, text, count=9)
        remark = "follow_ups[0].lines[0].confirm (9): cancel_event came to `not_found`"
        assert (remark in capsys.readouterr().out) is is_told


@pytest.mark.anyio
async def test_a_field_of_a_slot_that_has_no_rows_is_told(tmp_path: Path) -> None:
    called = {"tool": "add_event", "args": {"title": "{what.text}", "day": "2026-06-19"}}
    talk = {"slots": {"what": ["golf"]}, "lines": [{"say": ["add {what}"], "calls": [called]}]}
    text = WORLD + phrases(tools=tools(add_event=NOT_ASKED), follow_ups=[talk])
    told = r"args.title: \{what.text\}: 'golf' has no field of that name: use \{what\}"
    with pytest.raises(TuningError, match=told):
        await learnt(tmp_path, text, count=1)


@pytest.mark.parametrize(
    "reply", ["{{ok}} not noted", '{{"name": "add_event"}}', '{{"parameters": [1]}}']
)
@pytest.mark.anyio
async def test_a_reply_that_begins_with_a_brace_is_words(tmp_path: Path, reply: str) -> None:
    listing = {"say": ["what is on?"], "replies": {"ok": [reply]}}
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)), count=3)
    assert told[0][-1] == reply.format()


@pytest.mark.anyio
async def test_a_place_with_a_line_is_printed_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = tool(["what is on?"], ["There: {events.title}.", "On {events.shelf}."])
    text = WORLD + phrases(tools=tools(list_events=listing))
    before = next(n for n, each in enumerate(text.splitlines()) if "shelf" in each)
    await learnt(tmp_path, "#\n" * (99 - before) + text, count=3)
    assert "p.yaml:100: " in capsys.readouterr().out  # Rich reads :100: as a picture


@pytest.mark.anyio
async def test_a_wrong_day_of_a_span_is_told_once_and_one_value_is_not_called_several(
    tmp_path: Path,
) -> None:
    wrong = {"say": "then", "args": {"from": {"date": "fryday"}}}
    listing = tool(["what is on {span}?"], ["{events.title}"], slots={"span": [wrong]})
    with pytest.raises(TuningError) as raised:
        await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)), count=1)
    _told, *rest = str(raised.value).splitlines()
    assert rest == [MORE]
    day = [{"say": "tomorrow", "date": "tomorrow"}]
    adds = tool(["add {title}"], ["Done."], values={"title": ["golf"], "day": day})
    with pytest.raises(TuningError, match="'day' of add_event is not said, and its one value is a"):
        await learnt(tmp_path, WORLD + phrases(tools=tools(add_event=adds)), count=1)


@pytest.mark.anyio
async def test_a_way_to_tell_rows_that_the_reply_has_not_is_told(tmp_path: Path) -> None:
    reply = {"text": "{events.title}", "each": {"evnts": ["{title}"]}}
    text = WORLD + phrases(tools=tools(list_events=tool(["what is on?"], [reply])))
    with pytest.raises(TuningError, match=r"ok\[0\]\.each\.evnts: \{evnts\} does not stand in its"):
        await learnt(tmp_path, text, count=1)
