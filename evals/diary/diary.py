"""A toolset of an outsider: people, events and alarms, with times, ids and calls that chain.

It was written by docs/own-tools.md alone, in a domain that nothing here is trained or tuned on, to
see how far the scenarios of such a domain are guarded:

    lhkit lint evals/diary --toolset evals/diary/diary.py:toolset
    lhkit mutate evals/diary --toolset evals/diary/diary.py:toolset --fail-under 97
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import count
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from lhkit import Assistant, ToolErr, ToolOk, ToolRegistry, ToolResult, said_dates, said_times

Diary: TypeAlias = dict[str, list[dict[str, Any]]]

Clock = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="HH:MM, 24 hours")]
Name = Annotated[str, Field(max_length=40)]

TABLES = ("people", "events", "alarms")
registry = ToolRegistry()


def with_id(rows: list[dict[str, Any]], row_id: str) -> dict[str, Any] | None:
    """Return the row with that id, if there is one."""
    return next((row for row in rows if row["id"] == row_id), None)


def new_id(rows: list[dict[str, Any]], letter: str) -> str:
    """Return an id that no row has: e3 after two events."""
    numbered = (f"{letter}{number}" for number in count(len(rows) + 1))
    return next(row_id for row_id in numbered if with_id(rows, row_id) is None)


def who(args: Mapping[str, Any], deps: Diary) -> str:
    """Return whom an event is with, for the card."""
    found = with_id(deps["people"], args.get("person_id", ""))
    return f" · {found['name']}" if found else ""


def asked_to_add(args: Mapping[str, Any], _catalog: Any, deps: Diary) -> str:
    """Return what the card says of a new event."""
    return f"+ {args['title']}{who(args, deps)} · {args['day']} {args['start']}"


def asked_to_move(args: Mapping[str, Any], _catalog: Any, deps: Diary) -> str:
    """Return what the card says of an event that moves: its name, not its id."""
    event = with_id(deps["events"], args["event_id"]) or {"title": args["event_id"]}
    return f"{event['title']} → {args['day']} {args['start']}"


@registry.tool()
def find_person(name: Name, deps: Diary) -> ToolResult:
    """Find people by name."""
    wanted = name.casefold()
    return ToolOk({"people": [row for row in deps["people"] if wanted in row["name"].casefold()]})


@registry.tool()
def list_events(day: date, deps: Diary) -> ToolResult:
    """List the events of a day."""
    return ToolOk({"events": [row for row in deps["events"] if row["day"] == day.isoformat()]})


@registry.tool(
    destructive=True,
    summarize=asked_to_add,
    claims={"en": ["in your diary", "scheduled"], "ko": ["일정을 잡았", "일정에 넣었"]},
)
def add_event(title: Name, person_id: str, day: date, start: Clock, deps: Diary) -> ToolResult:
    """Put an event with a person into the diary."""
    if with_id(deps["people"], person_id) is None:
        return ToolErr(
            "not_found", f"There is no {person_id}. Use an id that find_person returned."
        )
    if any(row["day"] == day.isoformat() and row["start"] == start for row in deps["events"]):
        return ToolErr("r1_taken", "There is another event at that time. Offer another time.")
    row = {
        "id": new_id(deps["events"], "e"),
        "title": title,
        "person_id": person_id,
        "day": day.isoformat(),
        "start": start,
    }
    deps["events"].append(row)
    return ToolOk({"event": dict(row)})


@registry.tool(destructive=True, summarize=asked_to_move, claims={"en": ["moved"], "ko": ["옮겼"]})
def move_event(event_id: str, day: date, start: Clock, deps: Diary) -> ToolResult:
    """Move an event to another day or time."""
    event = with_id(deps["events"], event_id)
    if event is None:
        return ToolErr("not_found", f"There is no {event_id}. Use an id that list_events returned.")
    event |= {"day": day.isoformat(), "start": start}
    return ToolOk({"event": dict(event)})


@registry.tool(
    destructive=True, claims={"en": ["alarm is set", "set an alarm"], "ko": ["알람을 맞췄"]}
)
def set_alarm(time: Clock, deps: Diary, *, label: Name = "") -> ToolResult:
    """Set an alarm for the next time that the clock says so."""
    row = {"id": new_id(deps["alarms"], "a"), "time": time, "label": label}
    deps["alarms"].append(row)
    return ToolOk({"alarm": dict(row)})


@registry.tool(
    destructive=True, claims={"en": ["alarm is off", "deleted the alarm"], "ko": ["알람을 지웠"]}
)
def delete_alarm(alarm_id: str, deps: Diary) -> ToolResult:
    """Delete an alarm."""
    alarm = with_id(deps["alarms"], alarm_id)
    if alarm is None:
        return ToolErr("not_found", f"There is no {alarm_id}.")
    deps["alarms"].remove(alarm)
    return ToolOk({"alarm_id": alarm_id})


INSTRUCTIONS = {
    "en": """\
You are diary, an assistant for appointments and alarms. Answer briefly, in English.
- Call a tool for requests about people, events and alarms. Small talk needs no tool.
- Use only ids that a tool or the user gave.
- After cancelled or error, never say it was done. Give the reason and offer a way on.""",
    "ko": """\
당신은 약속과 알람을 돕는 diary입니다. 한국어로 짧게 답하세요.
- 사람, 일정, 알람에 관한 부탁에는 도구를 부르세요. 잡담에는 도구가 필요 없습니다.
- 도구나 사용자가 알려 준 id만 쓰세요.
- cancelled나 error 뒤에는 했다고 말하지 마세요. 이유를 말하고 다른 방법을 권하세요.""",
}


@dataclass(frozen=True, kw_only=True)
class Session:
    """One conversation's own diary."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    diary: Diary

    def state(self) -> Mapping[str, Any]:
        """Return people, events and alarms."""
        return {table: [dict(row) for row in rows] for table, rows in self.diary.items()}

    def known_ids(self) -> Mapping[str, list[str]]:
        """Return the ids that exist, by argument."""
        names = {"person_id": "people", "event_id": "events", "alarm_id": "alarms"}
        return {name: [row["id"] for row in self.diary[table]] for name, table in names.items()}

    def close(self) -> None:
        """Leave everything as it is."""


class DiaryToolset:
    """Opens a diary of its own for each conversation."""

    name = "diary"
    locales = ("ko", "en")

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a session over the people, events and alarms of a world."""
        diary = {table: [dict(row) for row in world.get(table, [])] for table in TABLES}
        now = datetime.fromisoformat(world.get("now", "2026-05-04T09:00:00+09:00"))

        def context(message: str) -> str:
            """Return the present, and the days and times that the message names, to copy."""
            days = said_dates(message, now.date(), locale, ahead=True)
            said = map(str, [*days, *said_times(message, locale)])
            return "\n".join([f"[Now: {now:%Y-%m-%d %A %H:%M}]", *said])

        return Session(
            registry=registry,
            # Two wishes in one message that each look something up are five replies of the model.
            assistant=Assistant(
                instructions=INSTRUCTIONS[locale], context=context, deps=diary, max_turns=6
            ),
            today=now.date(),
            diary=diary,
        )


toolset = DiaryToolset()
