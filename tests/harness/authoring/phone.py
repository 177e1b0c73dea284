"""An outsider's toolset: people, messages, alarms and events of a phone, in two languages.

Ids, times, patterns, lists and chains (who is it? when are they free?), and words of its own for
what it does. Run by `test_phone.py`.
"""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from lhkit import ToolErr, ToolOk, ToolRegistry, ToolResult
from tests.harness.build import KeyedSession

registry = ToolRegistry()
Phone = dict[str, list[dict[str, Any]]]
Clock = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):[0-5]\d$")]


def _named(rows: list[dict[str, Any]], key: str) -> dict[str, Any] | None:
    return next((row for row in rows if row["id"] == key), None)


@registry.tool()
def find_contact(name: str, deps: Phone) -> ToolResult:
    """Find people by name."""
    return ToolOk({"contacts": [c for c in deps["contacts"] if name in c["name"]]})


@registry.tool()
def list_events(day: date, deps: Phone) -> ToolResult:
    """List the events of a day."""
    own = [each for each in deps["events"] if each["starts"].startswith(day.isoformat())]
    return ToolOk({"events": own})


def message_words(args: Mapping[str, Any], catalog: Any, deps: Phone) -> str:
    person = _named(deps["contacts"], args["contact_id"])
    assert person is not None
    return f"{catalog.locale}: {person['name']} ({person['phone']}): {args['text']}"


@registry.tool(
    destructive=True,
    summarize=message_words,
    claims={"ko": ["문자를 보냈", "톡을 날렸"], "en": ["texted", "message is sent"]},
)
def send_message(
    contact_id: str, text: Annotated[str, Field(min_length=1, max_length=160)], deps: Phone
) -> ToolResult:
    """Send a text message."""
    if _named(deps["contacts"], contact_id) is None:
        return ToolErr("not_found", f"There is no {contact_id}. Use an id of find_contact.")
    deps["messages"].append({"to": contact_id, "text": text})
    return ToolOk({"sent": True})


@registry.tool(
    destructive=True,
    claims={"ko": ["알람을 맞췄", "깨우도록 해 뒀"], "en": ["alarm is set", "set the alarm"]},
)
def set_alarm(
    time: Clock,
    deps: Phone,
    days: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] = [],  # noqa: B006 - JSON
    label: Annotated[str, Field(max_length=20)] = "",
) -> ToolResult:
    """Set an alarm."""
    alarm = {"id": f"al-{len(deps['alarms']) + 1}", "time": time, "days": days, "label": label}
    deps["alarms"].append(alarm)
    return ToolOk({"alarm": alarm})


@registry.tool(
    destructive=True, claims={"ko": ["일정을 잡았", "일정 확정"], "en": ["blocked out", "booked"]}
)
def add_event(
    title: str,
    starts: Moment,
    deps: Phone,
    invited: list[str] = [],  # noqa: B006 - JSON
) -> ToolResult:
    """Add an event."""
    if any(each["starts"] == starts for each in deps["events"]):
        return ToolErr("r1_clash", f"There is an event at {starts}. Choose another time.")
    row = {"id": f"ev-{len(deps['events']) + 1}", "title": title, "starts": starts}
    deps["events"].append({**row, "invited": invited})
    return ToolOk({"event": deps["events"][-1]})


@registry.tool(
    destructive=True, claims={"ko": ["(?:일정을|약속을) 옮겼"], "en": ["(?:moved|pushed) it"]}
)
def move_event(event_id: str, starts: Moment, deps: Phone) -> ToolResult:
    """Move an event to another time."""
    event = _named(deps["events"], event_id)
    if event is None:
        return ToolErr("not_found", f"There is no {event_id}. Use an id of list_events.")
    event["starts"] = starts
    return ToolOk({"event": dict(event)})


class Session(KeyedSession):
    """One conversation's phone."""

    def known_ids(self) -> Mapping[str, list[str]]:
        return {
            "contact_id": [row["id"] for row in self.deps["contacts"]],
            "event_id": [row["id"] for row in self.deps["events"]],
        }


class PhoneToolset:
    """Opens a phone with the rows of the initial state."""

    name = "phone"
    locales = ("en", "ko")

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        tables = ("contacts", "events", "alarms", "messages")
        phone = {table: [dict(row) for row in world.get(table, [])] for table in tables}
        today = datetime.fromisoformat(world["now"]).date()
        return Session(
            registry=registry,
            seen=lambda: phone,
            deps=phone,
            keys={"messages": ["to", "text"]},
            today=today,
            instructions="You are a phone.",
        )
