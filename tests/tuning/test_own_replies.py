"""Which reply is said of several, and with which words."""

import re
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import TuningError
from lhkit.messages import ToolCallMessage, ToolOk
from lhkit.tuning.phrases.file import slots_of, word_in
from lhkit.tuning.phrases.generate import MisfitError, Wish, acting
from tests.tuning.test_own_sayings import WORLD, call, learnt, phrases, tool, tools

LUNCH = {"tool": "list_events", "take": "events[0].id"}
CANCELLING = {"tool": "cancel_event", "args": {"event_id": LUNCH}}
GOLF = {"tool": "add_event", "args": {"title": "golf", "day": "{day}"}}

LISTS = "list_events (arguments: from, to, query)"
CANCELS = "cancel_event (arguments: event_id)"
BOTH = "cancel_event, add_event (arguments: event_id, title, day, phone)"


def both(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a follow-up of one line with these calls."""
    line = {"say": ["golf {day} instead of lunch"], "calls": [*calls], **more}
    return {"slots": {"day": [{"say": "on Monday", "date": "monday"}]}, "lines": [line]}


async def answers(folder: Path, follow_up: dict[str, Any], **of: Any) -> set[str]:
    """Return what is answered in the end."""
    text = WORLD + phrases(tools=tools(**of), follow_ups=[follow_up])
    return {talk[-1] for talk in await learnt(folder, text, count=12)}


@pytest.mark.anyio
async def test_each_call_of_a_line_may_have_replies_of_its_own(tmp_path: Path) -> None:
    """Those of a call go before those of the line, and these before those of the tool."""
    off = {**CANCELLING, "replies": {"ok": ["Lunch is off."]}}
    asked = both(off, GOLF, replies={"ok": ["{title} is on."]})
    told = await answers(tmp_path, asked, add_event=tool([], ["Never said."]))
    assert told == {"Lunch is off. golf is on."}


@pytest.mark.anyio
async def test_no_text_is_said_twice_in_an_answer(tmp_path: Path) -> None:
    two = both(CANCELLING, GOLF, replies={"ok": ["Done.", "{title} is on."]})
    assert await answers(tmp_path, two) == {"Done. golf is on."}
    neither = both(
        CANCELLING, GOLF, confirm="reject", replies={"cancelled": ["Fine, I did neither."]}
    )
    assert await answers(tmp_path, neither) == {"Fine, I did neither."}


@pytest.mark.anyio
async def test_a_fault_in_the_reply_of_a_call_is_told_with_its_place(tmp_path: Path) -> None:
    wrong = {**GOLF, "replies": {"ok": ["fine", "{title is on."]}}
    with pytest.raises(TuningError, match=r"lines\[0\]\.calls\[1\]\.replies\.ok\[1\]: '\{title is"):
        await answers(tmp_path, both(CANCELLING, wrong))
    silent = {**GOLF, "replies": {"taken": ["no"]}}
    with pytest.raises(TuningError, match=r"lines\[0\]\.replies: add_event came to `ok`"):
        await answers(tmp_path, both(silent))


@pytest.mark.anyio
async def test_the_user_may_say_yes_to_one_call_of_a_line_and_no_to_the_next(
    tmp_path: Path,
) -> None:
    replies = {"ok": ["Done."], "cancelled": ["The rest is as it was."]}
    asked = both(CANCELLING, GOLF, confirm=["accept", "reject"], replies=replies)
    text = WORLD + phrases(tools=tools(), follow_ups=[asked])
    assert await learnt(tmp_path, text, count=1) == [
        [
            "golf on Monday instead of lunch",
            call("list_events"),
            call("cancel_event", event_id="e1"),
            call("add_event", title="golf", day="2026-06-22"),
            "Done. The rest is as it was.",
        ]
    ]


@pytest.mark.parametrize("confirm", ["no", ["accept", "no"], [], "absent"])
@pytest.mark.anyio
async def test_a_yes_or_no_that_is_none_is_told_with_its_line(tmp_path: Path, confirm: Any) -> None:
    with pytest.raises(TuningError, match=r"p\.yaml:\d+: .*lines\[0\]\.confirm.*: must "):
        await answers(tmp_path, both(CANCELLING, GOLF, confirm=confirm))


@pytest.mark.anyio
async def test_a_reply_may_hold_only_where_an_argument_was_not_given(tmp_path: Path) -> None:
    """No event at all is not what somebody was told who had asked for those with Ann."""
    none = {"text": "Nothing is on.", "without": ["query"]}
    listing = tool(
        ["what is on {from}?", "what is on {from} with {query}?"],
        ["{events.title}"],
        values={"from": [{"say": "on Monday", "date": "monday"}], "query": ["Ann"]},
        replies={"not_found": [none, "Nothing with {query}."]},
    )
    told = await learnt(tmp_path, WORLD + phrases(tools=tools(list_events=listing)), count=30)
    assert {(talk[0], talk[2]) for talk in told} == {
        ("what is on on Monday?", "Nothing is on."),
        ("what is on on Monday with Ann?", "Nothing with Ann."),
    }


@pytest.mark.anyio
async def test_what_a_reply_is_to_be_without_is_an_argument(tmp_path: Path) -> None:
    wrong = {"text": "Nothing.", "without": ["customer"]}
    listing = tool(["what is on?"], ["yes"], replies={"not_found": [wrong]})
    off = {**CANCELLING, "replies": {"ok": [wrong]}}
    text = WORLD + phrases(
        tools=tools(list_events=listing),
        follow_ups=[
            both(off, GOLF, replies={"cancelled": [{**wrong, "without": ["phone", "when"]}]})
        ],
    )
    with pytest.raises(TuningError) as raised:
        await learnt(tmp_path, text)
    found = re.findall(r"locales\.en\.(\S+\.without: .*)", str(raised.value))
    assert sorted(found, reverse=True) == [
        f"{place}.without: {name!r} is no argument of {called}"
        for place, name, called in (
            ("tools.list_events.replies.not_found[0]", "customer", LISTS),
            ("follow_ups[0].lines[0].replies.cancelled[0]", "when", BOTH),
            ("follow_ups[0].lines[0].calls[0].replies.ok[0]", "customer", CANCELS),
        )
    ]


RESULT = {
    "booking": {"item": "drill", "extras": ["helmet", "lock"], "none": []},
    "rows": [{"name": "a", "tags": ["x", "y"]}, {"name": "b", "tags": ["z"]}, {"name": "c"}],
    "tags": ["x", "y"],
    "empty": [],
}


@pytest.mark.parametrize(
    ("slot", "word"),
    [
        ("{booking.extras}", "helmet, lock"),
        ("{booking.extras:count}", "2"),
        ("{booking.none}", None),
        ("{booking.none:count}", "0"),
        ("{booking.gone:count}", None),
        ("{booking}", None),
        ("{rows:count}", "3"),
        ("{rows.name:count}", "3"),
        ("{rows.name}", "a, b, c"),
        ("{rows.tags}", None),
        ("{tags}", "x, y"),
        ("{empty}", None),
        ("{empty:count}", "0"),
        ("{gone:count}", None),
    ],
)
def test_a_list_is_said_and_counted_wherever_it_stands(slot: str, word: str | None) -> None:
    assert word_in(RESULT, slots_of(slot)[0]) == word


@pytest.mark.parametrize("slot", ["{booking:count}", "{booking.item:count}"])
def test_what_is_no_list_has_no_count(slot: str) -> None:
    with pytest.raises(TuningError, match="that is no list, and only a list has a count"):
        word_in(RESULT, slots_of(slot)[0])


@pytest.mark.parametrize(
    "spec", ["xx", "을를", "를", "는", "라고", "으로로", "은는", "counts", "Q을", "이상", "님"]
)
def test_what_is_no_particle_is_told_with_those_that_are(spec: str) -> None:
    with pytest.raises(
        TuningError, match=rf"'{spec}' is no particle .*을, 은, 이.* brace: {{what}}{spec}"
    ):
        slots_of(f"no {{what:{spec}}}.")


@pytest.mark.parametrize(
    "spec", ["이었는데", "q을", "으로는", "과는", "인지", "에게", "에서", "아"]
)
def test_particles_with_endings_and_those_that_never_change_are_known(spec: str) -> None:
    assert slots_of(f"{{what:{spec}}}")[0].spec == spec


def answered(reply: str) -> str:
    """Return what is said of a booking with two extras."""
    args = {"item": "drill", "extras": ["helmet", "lock"]}
    wish = Wish(
        tool="book",
        locale="en",
        args=args,
        words={"item": "the drill", "extras": "lid and lock"},
        replies={"ok": [reply]},
        place=str,
    )
    act = acting([wish], seed=1, most_calls=3)
    result = ToolOk({"booking": {"item": "drill", "extras": ["helmet", "lock"]}})
    return act([ToolCallMessage(name="book", args=args, result=result)]).text


def test_a_list_that_was_called_with_is_said_and_counted() -> None:
    assert answered("{extras}") == "lid and lock"
    assert answered("{extras:count}: {extras.value}") == "2: helmet, lock"
    assert answered("{booking.extras:count}: {booking.extras}") == "2: helmet, lock"


@pytest.mark.parametrize("slot", ["item:count", "booking:count", "booking.item:count"])
def test_a_count_of_what_is_no_list_ends_the_play_with_the_reply(slot: str) -> None:
    with pytest.raises(MisfitError, match=rf"replies: 'All {{{slot}}}\.': {{{slot}}}: that is no"):
        answered(f"All {{{slot}}}.")
