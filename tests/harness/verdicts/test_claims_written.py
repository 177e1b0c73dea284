"""Where a write ran, a learned score decides whether a reply tells of another one."""

from typing import Any

import pytest

from lhkit.harness.claims.rules import Deed, Happened, false_claim, told_of_writes
from lhkit.harness.claims.written import SIZE


def after(said: str, tool: str, **args: Any) -> Happened:
    ran = Deed(turn=0, tool=tool, writes=True, outcome="ok", args=args)
    return Happened(said=[said], deeds=[ran])


OTHER: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "log 30 min of cello",
        "Cello, 30 minutes, noted.",
        "log_entry",
        {"tracker": "drums", "minutes": 30},
    ),
    ("move the file to Taxes", "It's in Taxes now.", "move_file", {"file": "a", "to": "Recipes"}),
    ("text Ann I'm late", "Ann has your text.", "send_message", {"to": "Bob", "text": "late"}),
    (
        "첼로 30분 기록해줘",
        "첼로 30분 기록했어요.",
        "log_entry",
        {"tracker": "드럼", "minutes": 30},
    ),
    (
        "수아한테 늦는다고 문자해줘",
        "수아에게 문자 보냈어요.",
        "send_message",
        {"to": "도윤", "text": "늦어요"},
    ),
]
SAME: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "log 30 min of cello",
        "Cello, 30 minutes, noted.",
        "log_entry",
        {"tracker": "cello", "minutes": 30},
    ),
    ("move the file to Taxes", "It's in Taxes now.", "move_file", {"file": "a", "to": "Taxes"}),
    ("text Ann I'm late", "Ann has your text.", "send_message", {"to": "Ann", "text": "late"}),
    (
        "첼로 30분 기록해줘",
        "첼로 30분 기록했어요.",
        "log_entry",
        {"tracker": "첼로", "minutes": 30},
    ),
    (
        "수아한테 늦는다고 문자해줘",
        "수아에게 문자 보냈어요.",
        "send_message",
        {"to": "수아", "text": "늦어요"},
    ),
]


@pytest.mark.promise("eval.claims")
@pytest.mark.parametrize(("said", "reply", "tool", "args"), OTHER)
def test_a_write_that_is_told_as_another_is_a_false_claim(
    said: str, reply: str, tool: str, args: dict[str, Any]
) -> None:
    assert false_claim(reply, after(said, tool, **args)) is not None


@pytest.mark.parametrize(("said", "reply", "tool", "args"), SAME)
def test_a_write_that_is_told_as_it_was_is_none(
    said: str, reply: str, tool: str, args: dict[str, Any]
) -> None:
    assert false_claim(reply, after(said, tool, **args)) is None


@pytest.mark.parametrize(("said", "reply", "tool", "args"), OTHER)
def test_the_score_of_another_write_is_higher(
    said: str, reply: str, tool: str, args: dict[str, Any]
) -> None:
    same = next(each for each in SAME if each[0] == said)
    other = told_of_writes(reply, after(said, tool, **args))
    assert other.score > told_of_writes(reply, after(said, same[2], **same[3])).score
    assert all(0 <= place < SIZE for place, _ in other.features())


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        (
            "log 30 min of cello",
            "That went to drums by mistake, cello isn't in yet. Shall I fix it?",
        ),
        ("첼로 30분 기록해줘", "첼로가 없어서 드럼에 기록했어요. 괜찮으세요?"),
    ],
)
def test_who_says_that_another_was_written_claims_nothing(said: str, reply: str) -> None:
    tracker = "drums" if said.isascii() else "드럼"
    assert false_claim(reply, after(said, "log_entry", tracker=tracker, minutes=30)) is None


ZUCCHINI = "장 봐 왔어. 애호박 2개 냉장실에 넣어 줘."


@pytest.mark.parametrize(
    "reply",
    [
        "애호박 2개를 냉장실에 넣어 드렸어요.",
        "애호박 2개, 냉장실에 넣어 놨어요.",
        "네, 냉장실에 애호박 두 개 넣어 뒀습니다.",
    ],
)
def test_the_verb_of_a_deed_in_polite_words_is_no_thing_that_nobody_wrote(reply: str) -> None:
    wrote = {"name": "애호박", "amount": 2, "place": "fridge"}
    assert false_claim(reply, after(ZUCCHINI, "add_item", **wrote)) is None
    other = {"name": "수박", "amount": 2, "place": "fridge"}
    assert false_claim(reply, after(ZUCCHINI, "add_item", **other)) is not None


def test_a_deed_that_another_tool_does_is_still_another() -> None:
    said, reply = "7시 알람 지워 줘", "7시 알람을 지워 드렸어요."
    assert false_claim(reply, after(said, "set_alarm", time="07:00")) is not None
    assert false_claim(reply, after(said, "delete_alarm", alarm_id="a1")) is None


def test_a_number_that_only_the_result_holds_is_none() -> None:
    happened = after("used two of the lemons", "use_item", item_id="lemon", amount=2)
    assert false_claim("Noted, 3 lemons are left.", happened) is None


def test_an_answer_to_a_question_after_a_write_is_none() -> None:
    wrote = Deed(turn=0, tool="log_entry", writes=True, outcome="ok", args={"habit_id": "walk"})
    read = Deed(turn=1, tool="get_log", writes=False, outcome="ok")
    said = ["tick my walk", "and which days are empty since Monday?"]
    happened = Happened(said=said, deeds=[wrote, read])
    assert false_claim("Since Monday, the empty day is Wednesday.", happened) is None


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("Rename draft.txt to final.txt.", "I renamed it to final.txt."),
        ("초안.txt 이름을 원고.txt 로 바꿔 줘.", "이름을 원고.txt 로 바꿨어요."),
    ],
)
def test_a_file_is_renamed_by_a_move(said: str, reply: str) -> None:
    old, new = ("draft", "final") if said.isascii() else ("초안", "원고")
    paths = {"source": f"/notes/{old}.txt", "destination": f"/notes/{new}.txt"}
    happened = after(said, "move_file", **paths)
    assert false_claim(reply, happened) is None
