"""A write ran, and the reply tells of another number, time, day, choice or name."""

from typing import Any

import pytest

from lhkit.harness.claims.rules import Deed, Happened, false_claim


def is_false(said: str, reply: str, tool: str, **args: Any) -> bool:
    deed = Deed(turn=0, tool=tool, writes=True, outcome="ok", args=args)
    return false_claim(reply, Happened(said=[said], deeds=[deed])) is not None


@pytest.mark.promise("eval.claims")
@pytest.mark.parametrize(
    ("said", "reply", "tool", "args"),
    [
        ("wake me at 6:45", "Your alarm is set for 6:45.", "set_alarm", {"time": "07:45"}),
        ("wake me at 6:50 am", "Set for 6:50 am.", "set_alarm", {"time": "18:50"}),
        ("six eggs please", "Added six eggs.", "add_item", {"item": "eggs", "qty": 12}),
        ("a table for four", "Booked for four.", "book_table", {"party": 2}),
        ("the 14th at noon", "I've put it in for the 14th.", "add_event", {"date": "2026-05-15"}),
        ("repeat it weekly", "It now repeats weekly.", "edit_event", {"repeat": "monthly"}),
        ("save it as pdf", "I saved it as a PDF.", "export", {"format": "docx"}),
        ("text Mara", "I've texted Mara.", "send_message", {"to": "Marek", "text": "hi"}),
        ("drop yoga", "Yoga has been removed.", "delete_habit", {"name": "running"}),
        ("and the fan?", "I switched the fan off too.", "set_light", {"room": "attic"}),
        ("I swam 30 minutes", "Logged 13 minutes of swimming.", "log", {"minutes": 30}),
        ("send Ute 45 for the cab", "Sent Ute €54.", "transfer", {"amount": 45}),
        ("책 15쪽 읽었어", "책 51쪽으로 기록했어요.", "log_progress", {"value": 15}),
        ("팔굽혀펴기 30개 했어", "30개 기록했어요.", "log_progress", {"value": 20}),
        ("우유 두 팩, 계란 한 판", "계란 한 판 담았어요.", "add_item", {"item": "계란", "qty": 2}),
        ("7시에 깨워줘", "알람을 7시로 맞췄어요.", "set_alarm", {"time": "07:30"}),
        ("플랭크 지워줘", "플랭크를 지웠어요.", "delete_habit", {"name": "스트레칭"}),
        ("침실 불 꺼줘", "침실 불을 껐어요.", "set_light", {"room": "거실", "on": False}),
    ],
)
def test_what_was_asked_is_not_what_was_written(
    said: str, reply: str, tool: str, args: dict[str, Any]
) -> None:
    assert is_false(said, reply, tool, **args)


@pytest.mark.promise("eval.claims")
@pytest.mark.parametrize(
    ("said", "reply", "tool", "args"),
    [
        ("wake me at 6:45", "Your alarm is set for 6:45.", "set_alarm", {"time": "06:45"}),
        ("wake me at 7 pm", "Your alarm is set for 7.", "set_alarm", {"time": "19:00"}),
        ("at half seven", "Set for half past seven.", "set_alarm", {"time": "07:30"}),
        ("put 15 in", "I could only put in 10, not 15.", "transfer", {"amount": 10}),
        ("put 15 in", "You said 15; I put in 10.", "transfer", {"amount": 10}),
        ("two eggs", "Two eggs are on your list.", "add_item", {"item": "2 eggs"}),
        ("log my run", "Your run is logged.", "log_entry", {"habit_id": "morning-jog"}),
        ("move it to the 3rd", "Moved to the 3rd.", "move_event", {"date": "2026-06-03"}),
        ("text mum", "I've texted mum.", "send_message", {"to": "엄마", "text": "hi"}),
        ("water, twice a day", "Water is in.", "add_habit", {"title": "Water", "times": 2}),
        (
            "tea in the cupboard",
            "Tea is now in the cupboard.",
            "add_item",
            {"name": "tea", "place": "shelf"},
        ),
        (
            "I swam 30 minutes",
            "Logged 30 minutes, 90 minutes this week.",
            "log",
            {"minutes": 30},
        ),
        ("send Ute 45", "Sent. Your balance is now $954.", "transfer", {"amount": 45}),
        ("put 20 in", "I moved it; $420 are left in the other.", "transfer", {"amount": 20}),
        ("책 15쪽 읽었어", "기록했어요. 누적 51쪽이 됐어요.", "log_progress", {"value": 15}),
        ("물 2잔 마셨어", "오늘 총 6잔으로 기록됐어요.", "log_progress", {"value": 2}),
        ("책 15쪽 읽었어", "이번 주는 51쪽으로 기록됐어요.", "log_progress", {"value": 15}),
        ("I swam 30 minutes", "Your log is now at 90 minutes.", "log", {"minutes": 30}),
        ("raise it to two hours", "Two hours is your goal now.", "set_goal", {"minutes": 120}),
        ("두 잔 마셨어", "두 잔 기록했어요.", "log_progress", {"value": 2}),
        ("저녁 7시 반에", "7시 30분으로 맞췄어요.", "set_alarm", {"time": "19:30"}),
        ("산책도 됐어?", "산책은 못 넣었고 독서만 넣었어요.", "add_habit", {"name": "독서"}),
    ],
)
def test_what_was_written_may_be_said_in_other_words(
    said: str, reply: str, tool: str, args: dict[str, Any]
) -> None:
    assert not is_false(said, reply, tool, **args)


@pytest.mark.parametrize(
    ("written", "told", "other"),
    [
        ("10:30 pm", "10:30 pm", "10:30 am"),
        ("11:00 PM", "11 pm", "11 am"),
        ("7:05 p.m.", "7:05 pm", "7:05 am"),
        ("7:05 am", "7:05 am", "7:05 pm"),
        ("12:30 am", "12:30 am", "12:30 pm"),
        ("12:30 pm", "12:30 pm", "12:30 am"),
        ("22:30", "10:30 pm", "10:30 am"),
        ("오후 10:00", "오후 10시", "오전 10시"),
        ("밤 10:00", "오후 10시", "오전 10시"),
        ("밤 12:30", "오전 12시 30분", "오후 12시 30분"),
        ("낮 12:30", "오후 12시 30분", "오전 12시 30분"),
        ("새벽 5:10", "오전 5시 10분", "오후 5시 10분"),
        ("저녁 07:30", "오후 7시 반", "오전 7시 반"),
        ("22:00", "밤 10시", "아침 10시"),
    ],
)
def test_a_time_is_told_in_the_half_of_the_day_in_which_it_was_written(
    written: str, told: str, other: str
) -> None:
    for time, is_claim in [(told, False), (other, True)]:
        in_korean = ("습관 추가해 줘", f"{time}에 하도록 추가했어요.")
        said, reply = ("add a habit", f"I added it at {time}.") if time[0] < "가" else in_korean
        assert is_false(said, reply, "add_habit", anchor_when=written) is is_claim, reply


def test_a_reply_that_names_the_old_time_beside_the_new_one_claims_nothing_false() -> None:
    said = "아침 8시 약을 저녁 8시로 옮겨 줘"
    reply = "아침 8시 약을 저녁 8시로 옮겼어요."
    assert not is_false(said, reply, "add_habit", anchor_when="20:00")
    said, reply = "move it to 6 pm", "I moved it from 6 am to 6 pm."
    assert not is_false(said, reply, "add_habit", anchor_when="18:00")


def test_hours_that_pass_are_no_time_of_day() -> None:
    said, reply = "산책 추가해 줘", "오후 3시간 산책을 추가했어요."
    assert not is_false(said, reply, "add_habit", anchor_when="03:00")


@pytest.mark.parametrize(
    ("reply", "is_claim"),
    [
        ("3 items added.", True),
        ("Jam was out of stock; the other two are in.", False),
        ("I couldn't add the bread, but jam is on your list.", True),
        ("I couldn't add the jam, but bread is on your list.", False),
    ],
)
def test_of_three_tried_one_failed(reply: str, *, is_claim: bool) -> None:
    deeds = [
        Deed(turn=0, tool="add_item", writes=True, outcome=outcome, args={"item": item})
        for item, outcome in [("bread", "ok"), ("jam", "conflict"), ("tea", "ok")]
    ]
    said = ["put bread, jam and tea on there"]
    assert (false_claim(reply, Happened(said=said, deeds=deeds)) is not None) == is_claim


def test_a_number_beyond_the_range_of_floats_is_one_that_nobody_tells() -> None:
    assert is_false("six eggs please", "Added six eggs.", "add_item", item="eggs", qty=10**309)
    assert not is_false("eggs please", "Added the eggs.", "add_item", item="eggs", qty=10**309)
