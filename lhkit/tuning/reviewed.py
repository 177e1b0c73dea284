"""Conversations that people reviewed, to learn from: mended calls, and replies that are fine."""

from collections.abc import Collection, Iterator, Sequence

from lhkit.harness.reviews import MendedTalk, MendedTurn
from lhkit.messages import ToolCall, ToolCallMessage
from lhkit.models.scripted import Reply, say
from lhkit.toolset import Toolset, registry_of
from lhkit.tuning.teacher import Act, Answers, Conversation, Line

KIND = "reviewed"

_NO_WORDS = "…"


def reviewed_conversations(talks: Sequence[MendedTalk], toolset: Toolset) -> Iterator[Conversation]:
    """Yield each talk as a conversation whose expert makes the mended calls.

    A reply that a reviewer did not find fine is played, so that the conversation goes on as it did,
    and not learnt.

    Raises:
        UsageError: the world of a talk opens no longer.
    """
    for number, talk in enumerate(talks):
        destructive = registry_of(toolset, talk.world, talk.locale).destructive
        yield Conversation(
            name=f"reviewed.{number}.{talk.name}",
            kind=KIND,
            locale=talk.locale,
            world=dict(talk.world),
            lines=tuple(_line(turn, destructive) for turn in talk.turns),
        )


def _line(turn: MendedTurn, destructive: Collection[str]) -> Line:
    slips = frozenset() if turn.is_reply_fine else frozenset({len(turn.calls)})
    return Line(user=turn.user, act=_act(turn), confirm=_answers(turn, destructive), slips=slips)


def _act(turn: MendedTurn) -> Act:
    def act(settled: Sequence[ToolCallMessage]) -> Reply:
        if len(settled) < len(turn.calls):
            due = turn.calls[len(settled)]
            return Reply(calls=(ToolCall(name=due.tool, args=dict(due.args)),))
        return say(turn.reply or _NO_WORDS)

    return act


def _answers(turn: MendedTurn, destructive: Collection[str]) -> Answers:
    answers = [call.answer for call in turn.calls if call.tool in destructive]
    if "absent" in answers:
        return "absent"
    return tuple("accept" if each == "accept" else "reject" for each in answers) or "accept"
