"""A conversation to a scenario: its messages, replies, calls, and the changed state. Pure.

Expected are the calls that did something or were refused by the user or a rule. What the model
merely got wrong (unknown tools, bad arguments, repetitions) is left out: a scenario does not ask
for mistakes. Of a reply one of its longest words is expected, and all of it stands under `gold`;
write what matters under `reply`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lhkit.chat.step import MAX_TURNS
from lhkit.errors import UsageError
from lhkit.harness.author.written import changes, literals, spoken, yaml_text
from lhkit.harness.record import RowKeys, State
from lhkit.harness.state_diff import NO_KEYS
from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import GateOutcome, Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk

Answer: TypeAlias = Literal["accept", "reject", "absent"]
"""What the user answers to a write."""

_MISTAKES = frozenset({"unknown_tool", "validation", "handler_error"})
_WORD = re.compile(r"[^\W\d_]{2,}")
_REPLY_WORDS = 3

_MAX_CALLS = MAX_TURNS - 1  # a perfect model makes one call a model turn and then answers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call worth expecting. `answer` is what the user said to it, None if nobody was asked."""

    tool: str
    args: Any
    result: str
    answer: Answer | None


def scenario_from_chat(
    messages: Sequence[Message],
    *,
    begun: Mapping[str, JSON],
    ended: Mapping[str, JSON],
    destructive: Collection[str],
    locale: str,
    scenario_id: str,
    ac: str | None = None,
    row_keys: RowKeys = NO_KEYS,
) -> str:
    """Return a scenario file of one scenario.

    Args:
        messages: the conversation.
        begun: the world at its start: rows by table, and `now`.
        ended: the world at its end.
        destructive: names of the tools that change data.
        locale: the language of the talk; the scenario's is the one that the user spoke.
        scenario_id: its name.
        ac: the acceptance criterion; by default the one of life-helper's that fits best.
        row_keys: the fields that tell the rows of a table apart, where the domain says so.

    Raises:
        UsageError: nothing has been said.
    """
    turns = _turns(messages)
    if not turns:
        raise UsageError("nothing has been said yet: there is no scenario to save: talk first")
    calls = [
        tuple(
            made for m in turn if isinstance(m, ToolCallMessage) and (made := _call(m, destructive))
        )
        for turn in turns
    ]
    words = [message.text for message in messages if isinstance(message, UserMessage)]
    scenario: dict[str, Any] = {
        "id": scenario_id,
        "ac": ac or _criterion(calls),
        "locale": spoken(words, locale),
        "tags": ["saved"],
    }
    if begun:
        scenario["world"] = plain_json(begun)
    scenario["turns"] = [
        _turn(user, _reply(turn), made, destructive)
        for user, turn, made in zip(words, turns, calls, strict=True)
    ]
    scenario |= changes(tables_of(begun), tables_of(ended), row_keys)
    return yaml_text([scenario])


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Return what followed each message of the user."""
    turns: list[list[Message]] = []
    for message in messages:
        if isinstance(message, UserMessage):
            turns.append([])
        elif turns:
            turns[-1].append(message)
    return turns


def _reply(turn: Sequence[Message]) -> str:
    """Return the last words of the model in a turn, also those before a call."""
    texts = [m.text for m in turn if isinstance(m, ModelMessage | ToolCallMessage) and m.text]
    return next((text for text in reversed(texts) if text.strip()), "".join(texts[-1:]))


def _call(message: ToolCallMessage, destructive: Collection[str]) -> _Call | None:
    outcome = message.outcome
    if outcome is None or outcome.gate is None or outcome.gate is GateOutcome.NOT_ASKED:
        return None
    match outcome.result:
        case ToolOk():
            result = "ok"
        case ToolCancelled():
            result = "cancelled"
        case ToolErr(code=code) if code not in _MISTAKES:
            result = code
        case _:
            return None
    args = outcome.args if outcome.args is not None else message.args
    try:
        plain = plain_json(args)
        compact(plain)
    except NotJsonError:
        return None
    answer = answer_of(outcome.gate) if message.name in destructive else None
    return _Call(tool=message.name, args=plain, result=result, answer=answer)


def answer_of(gate: GateOutcome) -> Answer:
    """Return the answer under `confirm:` in a scenario; "accept" where nobody had to be asked."""
    if gate is GateOutcome.ABSENT:
        return "absent"
    # rejected, failed, or stopped while the question was open
    return "reject" if gate.was_asked and gate is not GateOutcome.ACCEPTED else "accept"


def _criterion(turns: Sequence[Sequence[_Call]]) -> str:
    calls = [call for turn in turns for call in turn]
    if not calls:
        return "AC-12"
    if any(call.answer == "absent" for call in calls):
        return "AC-8"
    if any(call.answer == "reject" for call in calls):
        return "AC-7"
    return "AC-10" if all(call.result == "ok" for call in calls) else "AC-9"


def _turn(
    user: str, reply: str, calls: Sequence[_Call], destructive: Collection[str]
) -> dict[str, Any]:
    turn: dict[str, Any] = {"user": user}
    answers = [call.answer for call in calls if call.answer is not None]
    if "absent" in answers:
        turn["confirm"] = "absent"
    elif answers:
        turn["confirm"] = answers[0] if len(answers) == 1 else answers
    if calls:
        spare = len(calls) - _MAX_CALLS
        turn["expect"] = {"calls": list(_expected(calls, destructive, spare))}
    if reply:
        turn["reply"] = _expected_reply(user, reply)
        turn["gold"] = {"say": reply}
    return turn


def _expected_reply(user: str, reply: str) -> dict[str, Any]:
    """Return the longest words of the reply that the user did not say: one of them must come."""
    theirs = user.casefold()
    words = dict.fromkeys(_WORD.findall(reply))
    own = [word for word in words if word.casefold() not in theirs]
    longest = sorted(own, key=len, reverse=True)[:_REPLY_WORDS]
    return {"contains_any": longest} if longest else {"matches": r"\S"}


def _expected(
    calls: Sequence[_Call], destructive: Collection[str], spare: int
) -> Iterator[dict[str, Any]]:
    """Yield the calls as expectations; `spare` reads become optional, so that there is an end."""
    for call in calls:
        args = call.args if isinstance(call.args, dict) else {}
        expected: dict[str, Any] = {
            "tool": call.tool,
            "args": literals(args),
            "result": call.result,
        }
        if spare > 0 and call.tool not in destructive:
            expected["optional"] = True
            spare -= 1
        yield expected


def tables_of(world: Mapping[str, Any]) -> State:
    """Return the rows of a world, copied, without its clock."""
    return {
        table: tuple(plain_json(row) for row in rows)
        for table, rows in world.items()
        if isinstance(rows, list | tuple)
    }
