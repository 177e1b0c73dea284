"""Reviewed conversations as they should have gone: as scenarios, and as lines of a file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lhkit.confirm.gate import ConfirmGate, ScriptedGate
from lhkit.errors import UsageError
from lhkit.harness.author.from_chat import Answer, answer_of, scenario_from_chat
from lhkit.harness.record import SampleRecord, TurnRecord
from lhkit.harness.reviews import CallPlace, LabelKind, Labels
from lhkit.harness.sessions import row_keys_of
from lhkit.json_values import compact
from lhkit.messages import (
    Message,
    ModelMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import Toolset, opened, read_state, require_isolated


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCall:
    """A call that should be made, and what the user answers if asked."""

    tool: str
    args: Mapping[str, Any]
    answer: Answer = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedTurn:
    """What the user says, what should be called, and what was said; `is_reply_fine` or not."""

    user: str
    calls: tuple[CorrectedCall, ...] = ()
    reply: str = ""
    is_reply_fine: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedConversation:
    """A reviewed conversation as it should have gone. `world` is its first state, with `now`."""

    name: str
    locale: str
    world: Mapping[str, Any]
    turns: tuple[CorrectedTurn, ...]


_NO_WORDS = "…"
"""What the gold says where nobody knows what should be said: something has to be."""


def mended(record: SampleRecord, labels: Labels, world: Mapping[str, Any]) -> CorrectedConversation:
    """Return a conversation that is judged whole as its reviewer would have it."""
    name = str(record.sample_id)
    turns = []
    for number, turn in enumerate(record.evidence.turns):
        said = labels[CallPlace(sample=name, turn=number)]
        calls = [*_mended_calls(turn, name, number, labels)]
        if said.held is LabelKind.CALL_MISSING:
            calls.append(CorrectedCall(tool=said.tool, args=dict(said.args or {})))
        final = turn.model_calls[-1].response.text.strip() if turn.model_calls else ""
        turns.append(
            CorrectedTurn(
                user=turn.user,
                calls=tuple(calls),
                reply=said.say or final or turn.reply,
                is_reply_fine=said.held is LabelKind.FINE or bool(said.say),
            )
        )
    return CorrectedConversation(name=name, locale=record.locale, world=world, turns=tuple(turns))


def _mended_calls(
    turn: TurnRecord, name: str, number: int, labels: Labels
) -> Iterator[CorrectedCall]:
    for index, call in enumerate(turn.calls):
        if call.outcome == "repeated_call":  # refused, because it had been made: no call to ask for
            continue
        label = labels[CallPlace(sample=name, turn=number, call=index)]
        answer = answer_of(call.gate)
        if label.held is LabelKind.SHOULD_BE:
            yield CorrectedCall(tool=label.tool, args=dict(label.args or {}), answer=answer)
        elif label.held is LabelKind.RIGHT and isinstance(call.raw_args, Mapping):
            yield CorrectedCall(tool=call.tool, args=dict(call.raw_args), answer=answer)


async def scenario_from_review(
    talk: CorrectedConversation, toolset: Toolset, *, ac: str | None = None
) -> str:
    """Return a scenario file of one scenario: the mended calls are made in the talk's world.

    What they come to, and the state at the end, is what the real tools say: so the gold passes.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        UsageError: the world opens no longer, or a mended call comes to a mistake of its own.
    """
    require_isolated(toolset, "make the calls of a review")
    with opened(toolset, talk.world, talk.locale) as session:
        begun, row_keys = read_state(session), row_keys_of(session, read_state(session))
        dispatcher, deps = ToolDispatcher(session.registry), session.assistant.deps
        messages: list[Message] = []
        for turn in talk.turns:
            messages += await _played(turn, dispatcher, deps, talk)
        ended = read_state(session)
        return scenario_from_chat(
            messages,
            begun={**talk.world, **{table: list(rows) for table, rows in begun.items()}},
            ended={table: list(rows) for table, rows in ended.items()},
            destructive=session.registry.destructive,
            locale=talk.locale,
            scenario_id=f"reviewed-{talk.name.replace('#', '-')}",
            ac=ac,
            row_keys=row_keys,
        )


async def _played(
    turn: CorrectedTurn, dispatcher: ToolDispatcher, deps: Any, talk: CorrectedConversation
) -> list[Message]:
    """Return the messages of a turn, whose calls are made."""
    messages: list[Message] = [UserMessage(text=turn.user)]
    outcomes: list[ToolCallOutcome] = []
    for call in turn.calls:
        gate: ConfirmGate | None = (
            None if call.answer == "absent" else ScriptedGate([call.answer == "accept"])
        )
        made = ToolCall(name=call.tool, args=dict(call.args))
        await dispatcher.dispatch(
            made.name, made.args, confirm=gate, deps=deps, observe=outcomes.append
        )
        code = getattr(outcomes[-1].result, "code", "")
        if code in {"unknown_tool", "validation", "handler_error"}:
            raise UsageError(
                f"{talk.name}: {call.tool} {compact(dict(call.args))} as reviewed comes to {code}: "
                "review that call again"
            )
        messages.append(ToolCallMessage(call=made, outcome=outcomes[-1]))
    reply = turn.reply if turn.is_reply_fine else _NO_WORDS
    return [*messages, ModelMessage(text=reply)]


_TALK = TypeAdapter(CorrectedConversation)


def talk_line(talk: CorrectedConversation) -> str:
    """Return a talk as one line of JSON."""
    return compact(asdict(talk)) + "\n"


def read_conversations(path: Path) -> tuple[CorrectedConversation, ...]:
    """Return the talks of a file.

    Raises:
        UsageError: it cannot be read, or a line is no talk; the message names it.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}): write it with Review.to_training"
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_TALK.validate_python(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}:{number} is no reviewed conversation: write it with Review.to_training"
            ) from error
    return tuple(found)
