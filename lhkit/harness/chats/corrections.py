"""Corrected conversations from reviews: convert them to scenarios, write and read them as JSONL."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.json_values import compact
from lhkit.confirm.gate import ConfirmGate
from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.harness.authoring.from_chat import confirm_answer, scenario_from_chat
from lhkit.harness.chats.reviews import CallPlace, LabelKind, Labels
from lhkit.harness.records.record import SampleRecord, TurnRecord
from lhkit.harness.running.sessions import read_row_keys
from lhkit.harness.running.simulated_users import ScriptedUser
from lhkit.harness.scenarios.scenario import ANSWER
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import (
    Session,
    Toolset,
    WrittenAnswer,
    criterion_of,
    opened,
    read_state,
    require_isolated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCall:
    """An expected call, and the answer of the user to its confirmation."""

    tool: str
    args: Mapping[str, Any]
    answer: WrittenAnswer = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedTurn:
    """A turn: the user message, the expected calls, and the reply, which may be rejected."""

    user: str
    calls: tuple[CorrectedCall, ...] = ()
    reply: str = ""
    is_reply_fine: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedConversation:
    """A reviewed conversation with corrections. `world` is its initial state, with `now`."""

    name: str
    locale: str
    world: Mapping[str, Any]
    turns: tuple[CorrectedTurn, ...]


NO_REPLY = "…"
"""The reply of reference calls where the expected reply is not known."""

BROKEN_CALLS = frozenset({"unknown_tool", "validation", "handler_error"})
"""Outcomes of calls that a corrected conversation must not contain."""


def corrected_conversation(
    record: SampleRecord, labels: Labels, world: Mapping[str, Any]
) -> CorrectedConversation:
    """Return a completely reviewed conversation with the corrections of its reviewer.

    Args:
        record: the conversation.
        labels: a label for each call and each reply of it.
        world: the initial state, with `now`.
    """
    name = str(record.sample_id)
    turns = []
    for number, turn in enumerate(record.trajectory.turns):
        label = labels[CallPlace(sample=name, turn=number)]
        calls = [*_corrected_calls(turn, name, number, labels)]
        if label.verdict is LabelKind.CALL_MISSING:
            calls.append(CorrectedCall(tool=label.tool, args=dict(label.args or {})))
        final = turn.model_calls[-1].response.text.strip() if turn.model_calls else ""
        turns.append(
            CorrectedTurn(
                user=turn.user,
                calls=tuple(calls),
                reply=label.say or final or turn.reply,
                is_reply_fine=label.verdict is LabelKind.FINE or bool(label.say),
            )
        )
    return CorrectedConversation(name=name, locale=record.locale, world=world, turns=tuple(turns))


def _corrected_calls(
    turn: TurnRecord, name: str, number: int, labels: Labels
) -> Iterator[CorrectedCall]:
    for index, call in enumerate(turn.calls):
        if call.outcome == "repeated_call":  # refused as a duplicate, so it is not expected
            continue
        label = labels[CallPlace(sample=name, turn=number, call=index)]
        answer = confirm_answer(call.to_message())
        if label.verdict is LabelKind.SHOULD_BE:
            answer = "accept" if call.is_edited else answer  # the edit was of the wrong call
            yield CorrectedCall(tool=label.tool, args=dict(label.args or {}), answer=answer)
        elif label.verdict is LabelKind.RIGHT and isinstance(call.raw_args, Mapping):
            yield CorrectedCall(tool=call.tool, args=dict(call.raw_args), answer=answer)


async def scenario_from_review(
    conversation: CorrectedConversation, toolset: Toolset, *, ac: str | None = None
) -> str:
    """Return a scenario file for a corrected conversation, after running its calls.

    The results of the calls and the final state are those of the real tools, so that the reference
    calls pass.

    Args:
        conversation: the corrected conversation.
        toolset: the tools that run its calls.
        ac: the acceptance criterion of the scenario; by default the toolset's for its calls, if
            it names one.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        UsageError: the initial state is not valid any more, or a corrected call fails.
    """
    require_isolated(toolset, "make the calls of a review")
    with opened(toolset, conversation.world, conversation.locale) as session:
        initial = read_state(session)
        row_keys = read_row_keys(session, initial)
        dispatcher = ToolDispatcher(session.registry, today=lambda: session.today)
        messages: list[Message] = []
        for turn in conversation.turns:
            messages += await _run_turn(turn, dispatcher, session, conversation)
        final = read_state(session)
        return scenario_from_chat(
            messages,
            initial_state={
                **conversation.world,
                **{table: list(rows) for table, rows in initial.items()},
            },
            final_state={table: list(rows) for table, rows in final.items()},
            destructive=session.registry.destructive,
            locale=conversation.locale,
            scenario_id=f"reviewed-{conversation.name.replace('#', '-')}",
            ac=ac,
            criterion=partial(criterion_of, toolset),
            row_keys=row_keys,
        )


async def _run_turn(
    turn: CorrectedTurn,
    dispatcher: ToolDispatcher,
    session: Session,
    conversation: CorrectedConversation,
) -> list[Message]:
    """Run the calls of a turn and return its messages."""
    messages: list[Message] = [UserMessage(text=turn.user)]
    outcomes: list[ToolCallOutcome] = []
    for call in turn.calls:
        gate: ConfirmGate | None = None
        if call.answer != "absent":
            gate = ScriptedUser([ANSWER.validate_python(call.answer)], session.today)
        tool_call = ToolCall(name=call.tool, args=dict(call.args))
        await dispatcher.dispatch(
            tool_call.name,
            tool_call.args,
            confirm=gate,
            deps=session.assistant.deps,
            observe=outcomes.append,
        )
        code = getattr(outcomes[-1].result, "code", "")
        if code in BROKEN_CALLS:
            raise broken_call(conversation, call.tool, dict(call.args), code)
        messages.append(ToolCallMessage(call=tool_call, outcome=outcomes[-1]))
    reply = turn.reply if turn.is_reply_fine else NO_REPLY
    return [*messages, ModelMessage(text=reply)]


def broken_call(conversation: CorrectedConversation, tool: str, args: Any, code: str) -> UsageError:
    """Return the error for a corrected call that fails."""
    return UsageError(
        f"{conversation.name}: the reviewed call {tool} {compact(args)} fails with {code}. "
        "Review that call again."
    )


_CONVERSATION = TypeAdapter(CorrectedConversation)


def conversation_line(conversation: CorrectedConversation) -> str:
    """Return a corrected conversation as one line of JSON."""
    return compact(asdict(conversation)) + "\n"


def read_conversations(path: Path) -> tuple[CorrectedConversation, ...]:
    """Return the corrected conversations of a JSONL file.

    Raises:
        UsageError: the file cannot be read, or a line is invalid.
    """
    try:
        lines = read_text_file(path).removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}. Write it with Review.to_training."
        ) from error
    conversations = []
    for number, line in enumerate(lines, start=1):
        try:
            conversations.append(_CONVERSATION.validate_python(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}:{number} is not a valid reviewed conversation. "
                "Write the file with Review.to_training."
            ) from error
    return tuple(conversations)
