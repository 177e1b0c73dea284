"""After the play, days of calls that look wrong are told by file, line and field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lhkit import said_dates
from lhkit.chat.controller import Assistant
from lhkit.harness.matchers import DateIs
from lhkit.messages import ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from tests.tuning.test_own_sayings import drawn

DAY = {"type": "string", "format": "date", "examples": ["2026-06-24"]}


def list_rooms(args: Mapping[str, Any], _deps: object) -> ToolResult:
    if args["to_day"] < args["from_day"]:
        return ToolErr("bad_days", "no")
    return ToolOk({"rooms": [{"id": "r1", "free": "2026-06-30"}]})


REGISTRY = ToolRegistry(
    [
        echo_tool(
            "list_rooms",
            parameters=object_schema("from_day", "to_day", from_day=DAY, to_day=DAY),
            handler=list_rooms,
        ),
        echo_tool(
            "book_room",
            parameters=object_schema("room_id", room_id={"type": "string"}, day=DAY),
            handler=lambda _args, _deps: ToolOk({"done": True}),
            is_destructive=True,
        ),
    ]
)


@dataclass
class RoomSession:
    today: date
    is_silent: bool
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions="Rooms.", context=self.context)

    def context(self, message: str) -> str:
        days = () if self.is_silent else said_dates(message, self.today, "en", ahead=True)
        return "\n".join([f"Today is {self.today}.", *map(str, days)])

    def state(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Rooms:
    def open(self, world: Mapping[str, Any], locale: str) -> RoomSession:
        return RoomSession(date.fromisoformat(world["now"][:10]), bool(world.get("silent")))


rooms = Rooms()
REPLIES = {
    "ok": ["Here."],
    "bad_days": ["No such days."],
    "not_found": ["None."],
    "cancelled": ["As you like."],
}


def span(say: str, first: str, last: str) -> dict[str, Any]:
    return {"say": say, "args": {"from_day": {"date": first}, "to_day": {"date": last}}}


async def told(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    world: Mapping[str, Any],
    count: int = 6,
    **listing: Any,
) -> list[str]:
    """Return what is said of days when one tool is asked for, without the folder."""
    follow_ups = listing.pop("follow_ups", [])
    asked = {"say": [], "replies": REPLIES, **listing}
    tools = {"list_rooms": asked, "book_room": {"say": [], "replies": REPLIES}}
    parts = {"tools": tools, "follow_ups": follow_ups}
    text = f"worlds: [{json.dumps(world)}]\ntypos: false\nlocales: {json.dumps({'en': parts})}\n"
    text = text.replace('{"say": "', '\n  {"say": "')
    await drawn(folder, text, f"{__name__}:rooms", count)
    out = capsys.readouterr().out.replace(f"{folder}/", "")
    lines = [line for line in out.splitlines() if line.startswith("  ") or "ays in calls" in line]
    return lines if "Spans" not in out else [out[out.index("Spans") :].splitlines()[0], *lines]


OTHER = (
    "Days in calls that differ from what the model was told of the same words: 6. "
    "It copies what it is told."
)
SUNDAY = {"now": "2026-06-21T09:00:00+09:00"}
WEDNESDAY = {"now": "2026-06-17T09:00:00+09:00"}


@pytest.mark.anyio
async def test_a_span_that_ends_before_it_begins_is_told_with_its_value_and_what_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = [span("this weekend", "saturday", "sunday")]
    lines = await told(
        tmp_path, capsys, SUNDAY, say=["what is free {span}?"], slots={"span": spans}
    )
    place = "  p.yaml:4: locales.en.tools.list_rooms.slots.span[0] (6): "
    assert lines == [
        "Spans in calls that end before they begin: 6.",
        f"{place}'this weekend': from_day 2026-06-27, to_day 2026-06-21",
        OTHER,
        f"{place}this weekend = 2026-06-21, and from_day is 2026-06-27",
    ]


@pytest.mark.anyio
async def test_a_day_that_the_context_names_otherwise_is_told_with_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "from_day": [{"say": "today", "date": "today"}],
        "to_day": [{"say": "next friday", "date": "next friday"}],
    }
    say = ["free from {from_day} until {to_day}"]
    lines = await told(tmp_path, capsys, WEDNESDAY, say=say, values=values)
    told_day = "today until next friday = 2026-06-17 .. 2026-06-26"
    place = "p.yaml:5: locales.en.tools.list_rooms.values.to_day[0]"
    assert lines == [OTHER, f"  {place} (6): {told_day}, and to_day is 2026-06-19"]


@pytest.mark.parametrize(
    ("world", "is_told"), [(WEDNESDAY, False), ({**WEDNESDAY, "silent": 1}, True)]
)
@pytest.mark.anyio
async def test_a_day_that_stands_nowhere_is_counted_and_one_that_the_context_tells_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: Mapping[str, Any], *, is_told: bool
) -> None:
    say = [{"text": "what is free on Friday?", "args": span("", "today", "friday")["args"]}]
    lines = await told(tmp_path, capsys, world, say=say)
    assert bool(lines) is is_told
    if is_told:
        counted, place = lines
        assert counted.startswith("6 of 12 days in calls stand nowhere in what the model had read.")
        named, _, example = place.partition(" (6): ")
        assert named == "  p.yaml:3: locales.en.tools.list_rooms.say[0]"
        assert example == "'what is free on Friday?': to_day is 2026-06-19"


@pytest.mark.anyio
async def test_what_a_result_said_was_read_and_what_a_schema_says_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def book(day: str) -> dict[str, Any]:
        called = {"tool": "list_rooms", "args": span("", "today", "today")["args"]}
        args = {"room_id": {**called, "take": "rooms.id"}, "day": day}
        line = {"say": ["book it"], "calls": [{"tool": "book_room", "args": args}]}
        return {"lines": [line]}

    follow_ups = [book("2026-06-30"), book("2026-06-24")]
    lines = await told(tmp_path, capsys, WEDNESDAY, follow_ups=follow_ups)
    place = "locales.en.follow_ups[1].lines[0].calls[0].args.day"
    assert len(lines) == 2
    assert f"{place} " in lines[1]
    assert lines[1].endswith("'book it': day is 2026-06-24")


@pytest.mark.anyio
async def test_spans_that_a_tool_is_to_refuse_may_be_the_wrong_way_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = span("", "today", "2026-06-01")["args"]
    line = {
        "say": ["free from today to 2026-06-01?"],
        "calls": [{"tool": "list_rooms", "args": wrong}],
        "outcome": "bad_days",
    }
    assert await told(tmp_path, capsys, WEDNESDAY, follow_ups=[{"lines": [line]}]) == []
    values = {name: [{"say": "today", "date": "today"}] for name in ("from_day", "to_day")}
    failing = {"to_day": [{"say": "2026-06-01", "date": "2026-06-01"}]}
    say = ["free from {from_day} to {to_day}?"]
    assert await told(tmp_path, capsys, WEDNESDAY, say=say, values=values, failing=failing) == []


@pytest.mark.anyio
async def test_of_many_places_some_are_named_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = span("", "today", "yesterday")["args"]
    say = [{"text": f"free, {number}?", "args": wrong} for number in range(7)]
    lines = await told(tmp_path, capsys, {**WEDNESDAY, "silent": 1}, count=60, say=say)
    assert len(lines) == 2 * (1 + 5 + 1)
    assert lines[6] == lines[13] == "  2 more places"


@pytest.mark.parametrize("weekday", range(7))
def test_the_weekend_of_a_phrase_file_is_the_one_that_a_context_tells(weekday: int) -> None:
    today = date(2026, 6, 15) + timedelta(days=weekday)
    first, last = DateIs("weekendstart").resolved(today), DateIs("sunday").resolved(today)
    sunday = date(2026, 6, 21)
    assert last == f"{sunday}"
    if today == sunday:
        assert first == last  # Saturday is over
    else:
        said = said_dates("this weekend", today, "en", ahead=True)
        assert [str(each) for each in said] == [f"this weekend = {first} .. {last}"]
