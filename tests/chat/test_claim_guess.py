"""The classifier's guess in a chat: after the phrases, and said as a guess."""

from collections.abc import Sequence
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.chat.controller import ChatController
from lhkit.chat.truth import claim_text
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.events import TurnEnded
from lhkit.conversation.messages import ClaimReason, FalseReplyClaim, Message
from lhkit.harness.scoring.success_claims import guess_false_claim
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook.panel.render import truth_html
from lhkit.testing import EventLog, echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio

TEXT = object_schema("text", text={"type": "string"})
GUESS = FalseReplyClaim(words="it <b>is in", reason=ClaimReason.NOTHING, is_guess=True)


def notes(*, can_write: bool = True) -> ToolRegistry:
    tools = [echo_tool("list_notes", parameters=TEXT)]
    if can_write:
        tools.append(echo_tool("add_note", parameters=TEXT, is_destructive=True))
    return ToolRegistry(tools)


async def claims(
    registry: ToolRegistry, replies: Sequence[Any], *messages: str, guess: Any = None
) -> list[FalseReplyClaim | None]:
    chat = ChatController(
        model=ScriptedModel(replies),
        dispatcher=ToolDispatcher(registry),
        confirm=ScriptedGate([True] * 9),
        guess=guess or guess_false_claim(registry),
    )
    log = EventLog()
    chat.subscribe(log)
    for message in messages:
        await chat.user_turn(message)
    return [event.claim for event in log.of(TurnEnded)]


@pytest.mark.parametrize(
    ("ask", "lie", "truth"),
    [
        ("Add milk to my list.", "I've added milk to your list!", "Milk is not on your list yet."),
        ("우유를 목록에 추가해 줘", "우유를 목록에 추가했어요!", "우유는 아직 추가하지 않았어요."),
    ],
)
async def test_guess_marks_a_lie_of_a_tool_without_phrases(ask: str, lie: str, truth: str) -> None:
    (claim,) = await claims(notes(), [say(lie)], ask)
    assert claim == FalseReplyClaim(words=lie, reason=ClaimReason.NOTHING, is_guess=True)
    assert await claims(notes(), [say(truth)], ask) == [None]
    wrote = [call("add_note", text="milk 우유"), say(lie)]
    assert await claims(notes(), wrote, ask) == [None]


async def test_guess_is_not_asked_without_writing_tools_or_a_reply() -> None:
    def guess(_reply: str, _messages: Sequence[Message]) -> FalseReplyClaim:
        return GUESS

    assert await claims(notes(can_write=False), [say("Added.")], "Add.", guess=guess) == [None]
    assert await claims(notes(), [say("Added.")], "Add.", guess=guess) == [GUESS]
    assert await claims(notes(), [say("")], "Add.", guess=guess) == [None]


async def test_guess_that_fails_ends_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    def guess(_reply: str, _messages: Sequence[Message]) -> FalseReplyClaim:
        raise ValueError

    assert await claims(notes(), [say("Added.")], "Add.", guess=guess) == [None]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(("locale", "word"), [("en", "guess"), ("ko", "추측")])
def test_guess_is_shown_as_one(locale: str, word: str) -> None:
    catalog = load_catalog(locale)
    assert word in claim_text(GUESS, catalog)
    html = truth_html((), GUESS, catalog)
    assert "data-guess" in html
    assert "&lt;b&gt;" in html
    certain = FalseReplyClaim(words="x", reason=ClaimReason.FAILED)
    assert "data-guess" not in truth_html((), certain, catalog)
