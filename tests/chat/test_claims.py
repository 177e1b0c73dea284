"""Success phrases in replies: a plain lie is found, an honest sentence is not."""

import pytest

from lhkit.chat.claims import success_phrases
from lhkit.chat.truth import find_false_claim
from lhkit.conversation.messages import ClaimReason, GateOutcome, ToolCall, ToolCallMessage
from lhkit.conversation.messages import ToolCallOutcome as Outcome
from lhkit.conversation.tool_results import ToolCancelled, ToolOk
from tests.rows import check_rows

CLAIMS = {
    "send_mail": ["보냈", "보내 ?드렸", "sent", "mailed"],
    "add_note": ["추가했", "적어 ?(?:뒀|놨)", "added", "noted"],
    "book_room": ["예약했", "booked"],
    "cancel_trip": ["취소했", "cancell?ed"],
}

LIES = [
    "I sent it to Kim.",
    "I've added milk to your list.",
    "Okay, I have sent the report to both of them, as you asked.",
    "Sure! The note was added to your list.",
    "Done — message sent to Priya: call me.",
    "Your room is booked for Friday.",
    "I went ahead and added it, so you can relax.",
    "Sorry, there was a small error, but I added it after all.",
    "That's been noted, and Kim will be happy.",
    "No, it goes to your office: I sent the form.",
    'I added "never forget the milk" for you.',
    '"I sent it."',
    "Both added.",
    "김 부장님께 메일 보냈습니다.",
    "네, 우유 추가했어요! 또 필요한 거 있으세요?",
    "‘나는 뛰지 않는다’로 적어 뒀어요.",
    "부정형이라 ‘못 해요’ 대신 ‘천천히 해요’로 추가했습니다.",
    "확인해 보니 없어서 새로 추가했습니다.",
    "확인이 안 되길래 다시 보냈고, 이제 괜찮아요.",
    "방 예약했으니 안심하세요.",
]
HONEST = [
    "I haven't sent it to Kim.",
    "To get milk added, please confirm.",
    "If you agree, it is added to your list.",
    "It will be sent to Kim once you confirm.",
    "It can be booked, added or sent from here.",
    "You added it yesterday.",
    "Ann booked it from her phone.",
    "Someone sent your invitation.",
    "Leo wrote: “I booked it. I sent the deposit, too.”",
    "Your words: 'I sent it, I noted it.'",
    "Did you mean the mail that I sent?",
    "It was sent by Ann.",
    "Nothing was added.",
    "I could not see it sent.",
    "Then confirm, and it gets added.",
    "메일은 보내지 않았어요.",
    "추가했다고 말씀드렸지만 사실은 아니에요.",
    "추가했다면 목록에 있을 거예요.",
    "지난주에 추가했어요.",
    "이미 예약했어요.",
    "“예약했어요. 보냈어요.”라는 메시지가 왔네요.",
    "보냈을까요?",
    "아직 추가했다는 기록이 없어요.",
    "추가했던 메모를 찾고 있어요.",
]


@pytest.mark.parametrize(("replies", "is_claim"), [(LIES, True), (HONEST, False)])
def test_success_phrase_is_found_where_its_clause_affirms_it(
    replies: list[str], is_claim: bool
) -> None:
    found = {reply: find_false_claim(reply, (), CLAIMS) is not None for reply in replies}
    assert [reply for reply, is_found in found.items() if is_found is not is_claim] == []


def call(tool: str, *, gate: GateOutcome, ran: bool) -> ToolCallMessage:
    result = ToolOk({}) if ran else ToolCancelled()
    outcome = Outcome(result=result, gate=gate, ran=ran)
    return ToolCallMessage(call=ToolCall(name=tool, args={}), outcome=outcome)


READ = call("find_rooms", gate=GateOutcome.NOT_NEEDED, ran=True)
NO = call("add_note", gate=GateOutcome.REJECTED, ran=False)
YES = call("add_note", gate=GateOutcome.ACCEPTED, ran=True)


@check_rows(
    ("reply", "calls", "reason"),
    [
        # what a read returned is not claimed, an act is
        ("The room is booked from 9 to 11.", [READ], None),
        ("I booked the room.", [READ], ClaimReason.NOTHING),
        ("방을 예약했어요.", [READ], ClaimReason.NOTHING),
        ("The room is booked.", [], ClaimReason.NOTHING),
        # a question that was answered with no is cancelled, in words of another tool
        ("Okay, I cancelled that.", [NO], None),
        ("네, 추가를 취소했어요.", [NO], None),
        ("I cancelled your trip.", [], ClaimReason.NOTHING),
        ("Added.", [NO], ClaimReason.NOT_RUN),
        ("I cancelled that, and added the other one.", [NO], ClaimReason.NOT_RUN),
        # a write of another tool may be meant
        ("I sent it.", [YES], None),
        ("I added it.", [YES], None),
    ],
)
def test_claim_depends_on_the_calls_of_the_turn(
    reply: str, calls: list[ToolCallMessage], reason: ClaimReason | None
) -> None:
    claim = find_false_claim(reply, calls, CLAIMS)
    assert (None if claim is None else claim.reason) == reason


def test_claim_shows_the_words_of_the_reply() -> None:
    reply = "Here: 'SENT. Booked' it is. Now I’ve SENT it. “Done. Sent.” Bye."
    claim = find_false_claim(reply, (), CLAIMS)
    assert claim is not None
    assert claim.words == "Now I’ve SENT it."
    assert [phrase.words for phrase in success_phrases(reply, CLAIMS)] == ["sent"]
