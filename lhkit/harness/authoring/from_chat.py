"""Convert a conversation to a scenario: user messages, expected calls and replies, state changes.

Expected are the calls that succeeded or were refused by the user or a rule. Mistakes of the model
(unknown tools, invalid arguments, repetitions) are left out. A reply must contain one of its
longest words; the whole reply is under `gold`.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import (
    JSON,
    NotJsonError,
    compact,
    in_words_of,
    plain_json,
    without_pointers,
)
from lhkit.chat.step import MAX_TURNS
from lhkit.confirm.decision import QuestionOutcome, changed_arguments
from lhkit.conversation.messages import (
    GateOutcome,
    Message,
    ModelMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.harness.authoring.scenario_yaml import (
    detect_locale,
    expected_changes,
    literals,
    yaml_text,
)
from lhkit.harness.records.record import RowKeys, State
from lhkit.harness.scoring.state import NO_KEYS
from lhkit.toolset import ChatCall, WrittenAnswer

_MISTAKES = frozenset({"unknown_tool", "validation", "handler_error"})
_WORD = re.compile(r"[^\W\d_]{2,}")
_REPLY_WORDS = 3

_MAX_CALLS = MAX_TURNS - 1  # the reference makes one call per message and then replies


def scenario_from_chat(
    messages: Sequence[Message],
    *,
    initial_state: Mapping[str, JSON],
    final_state: Mapping[str, JSON],
    destructive: Collection[str],
    locale: str,
    scenario_id: str,
    ac: str | None = None,
    criterion: Callable[[Sequence[ChatCall]], str | None] | None = None,
    row_keys: RowKeys = NO_KEYS,
) -> str:
    """Return a scenario file with a scenario made from a conversation.

    Args:
        messages: the conversation.
        initial_state: the initial state: rows by table, and `now`.
        final_state: the final state.
        destructive: names of the tools that change data.
        locale: locale of the chat; the scenario gets the language of the user's messages.
        scenario_id: id of the scenario.
        ac: acceptance criterion; by default that of `criterion`, if it returns one.
        criterion: returns the acceptance criterion for the expected calls of all turns.
        row_keys: key fields of the rows, by table.

    Raises:
        UsageError: the conversation is empty.
    """
    turns = _split_turns(messages)
    if not turns:
        raise UsageError("the conversation is empty: send a message before saving it")
    calls = [
        tuple(
            call
            for message in turn
            if isinstance(message, ToolCallMessage)
            and (call := _expected_call(message, destructive))
        )
        for turn in turns
    ]
    user_texts = [message.text for message in messages if isinstance(message, UserMessage)]
    if not ac and criterion is not None:
        ac = criterion([call for turn_calls in calls for call in turn_calls])
    scenario: dict[str, Any] = {
        "id": scenario_id,
        **({"ac": ac} if ac else {}),
        "locale": detect_locale(user_texts, locale),
        "tags": ["saved"],
    }
    if initial_state:
        scenario["world"] = plain_json(initial_state)
    scenario["turns"] = [
        _turn_document(user, turn, turn_calls, destructive)
        for user, turn, turn_calls in zip(user_texts, turns, calls, strict=True)
    ]
    scenario |= expected_changes(state_tables(initial_state), state_tables(final_state), row_keys)
    return yaml_text([scenario])


def _split_turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages that follow each user message."""
    turns: list[list[Message]] = []
    for message in messages:
        if isinstance(message, UserMessage):
            turns.append([])
        elif turns:
            turns[-1].append(message)
    return turns


def _expected_call(message: ToolCallMessage, destructive: Collection[str]) -> ChatCall | None:
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
    args = message.args
    if outcome.args is not None:
        args = in_words_of(message.args, without_pointers(outcome.args, outcome.filled_in))
    try:
        plain = plain_json(args)
        compact(plain)
    except NotJsonError:
        return None
    answer = confirm_answer(message) if message.name in destructive else None
    return ChatCall(tool=message.name, args=plain, result=result, answer=answer)


def confirm_answer(call: ToolCallMessage) -> WrittenAnswer:
    """Return the `confirm` answer of a scenario; "accept" if no confirmation was needed."""
    outcome = call.outcome
    if outcome is None or outcome.gate is None:
        return "accept"
    gate = outcome.gate
    if gate is GateOutcome.ABSENT:
        return "absent"
    if not gate.was_asked:
        return "accept"
    if gate is not GateOutcome.ACCEPTED:  # also one that failed, or a chat stopped meanwhile
        has_words = gate is GateOutcome.REJECTED and outcome.answer != QuestionOutcome.INVALID_EDIT
        return {"reject": outcome.reason} if has_words and outcome.reason.strip() else "reject"
    if outcome.run_args is None:
        return "accept"
    return {"edit": plain_json(changed_arguments(outcome.args or {}, outcome.run_args))}


def _turn_document(
    user: str, messages: Sequence[Message], calls: Sequence[ChatCall], destructive: Collection[str]
) -> dict[str, Any]:
    turn: dict[str, Any] = {"user": user}
    answers = [call.answer for call in calls if call.answer is not None]
    if "absent" in answers:
        turn["confirm"] = "absent"
    elif answers:
        turn["confirm"] = answers[0] if len(answers) == 1 else answers
    if calls:
        turn["expect"] = {"calls": list(_call_documents(calls, destructive))}
    texts = [m.text for m in messages if isinstance(m, ModelMessage | ToolCallMessage) and m.text]
    # the last one, also before a call; white space only if there is nothing else
    reply = next((text for text in reversed(texts) if text.strip()), "".join(texts[-1:]))
    if reply:
        turn["reply"] = _expected_reply(user, reply)
        turn["gold"] = {"say": reply}
    return turn


def _expected_reply(user: str, reply: str) -> dict[str, Any]:
    """Return an expectation of one of the longest words that are not in the user's message."""
    message = user.casefold()
    words = dict.fromkeys(_WORD.findall(reply))
    new = [word for word in words if word.casefold() not in message]
    longest = sorted(new, key=len, reverse=True)[:_REPLY_WORDS]
    return {"contains_any": longest} if longest else {"matches": r"\S"}


def _call_documents(
    calls: Sequence[ChatCall], destructive: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield expected calls; reads beyond the limit of a turn become optional."""
    spare = len(calls) - _MAX_CALLS
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


def state_tables(world: Mapping[str, Any]) -> State:
    """Return copies of the rows of a state by table, without its clock."""
    return {
        table: tuple(plain_json(row) for row in rows)
        for table, rows in world.items()
        if isinstance(rows, list | tuple)
    }
