"""Export conversations as OpenAI messages, which `lhkit import openai-messages` reads."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.base.files import write_atomically
from lhkit.base.json_values import compact
from lhkit.conversation.messages import Message, UserMessage
from lhkit.harness.exports.conversation import (
    AssistantMessage,
    Json,
    ToolConfig,
    assistant_messages,
    call_id,
    json_bytes,
)
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.results.results import Run
from lhkit.models.client.request import chat_messages
from lhkit.models.dialects.base import user_text


def write_openai_messages(run: Run, file: Path) -> None:
    """Write each conversation with its tools as a line of JSON, the format of fine-tuning.

    Instructions and context lines are not part of a record, and notices are not for the model:
    these are omitted.

    Args:
        run: the run to export.
        file: the JSON Lines file, which is complete or unchanged.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(file, (json_line(data) for _, data in exported_conversations(run)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """Texts of the prompt that a record does not contain.

    Attributes:
        instructions: the text of the system message.
        contexts: the context line of each turn.
        untrained_replies: the turns, from 0, whose reply is not a training target.
        history: the messages before the first turn.
        tools: the tools of the scenario, whose descriptions may be its own: a run has one
            description a name. Ignored if the run had other tools, such as renamed ones.
        ends_at_calls: turns end after their calls, so that nothing reads the results of the last.
    """

    instructions: str = ""
    contexts: Sequence[str] = ()
    untrained_replies: Collection[int] = ()
    history: Sequence[Message] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    ends_at_calls: bool = False


def exported_conversations(
    run: Run, texts: Callable[[SampleRecord], PromptTexts | None] = lambda _: PromptTexts()
) -> Iterator[tuple[SampleRecord, Json]]:
    """Yield records with their conversations, except those for which `texts` returns None."""
    for record in run.records:
        if (prompt := texts(record)) is not None:
            yield record, _conversation(record, ToolConfig.of(record, run), prompt)


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return json_bytes(value) + b"\n"


def _conversation(record: SampleRecord, config: ToolConfig, texts: PromptTexts) -> Json:
    """Return the messages of a conversation, and its tools if it has any.

    A reply that is not a training target has OpenAI's `"weight": 0`.
    """
    messages: list[Json] = []
    if texts.instructions.strip():
        messages.append({"role": "system", "content": texts.instructions.strip()})
    messages += chat_messages(texts.history)
    calls = sum(len(message.get("tool_calls", ())) for message in messages)
    for number, turn in enumerate(record.trajectory.turns):
        context = texts.contexts[number] if number < len(texts.contexts) else ""
        user = UserMessage(text=turn.user, context=context)
        messages.append({"role": "user", "content": user_text(user)})
        written = list(assistant_messages(turn))
        is_last = turn is record.trajectory.turns[-1]
        for message in written:
            exchange = _exchange(message, config, calls)
            calls += len(message.named)
            if texts.ends_at_calls and is_last and message is written[-1]:
                del exchange[1:]
            if number in texts.untrained_replies and not message.named:
                exchange[0]["weight"] = 0
            messages += exchange
    own = {tool["name"] for tool in texts.tools} == {tool["name"] for tool in config.tools}
    functions = [
        {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
        for tool in (texts.tools if own else config.tools)
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def _exchange(message: AssistantMessage, config: ToolConfig, first: int) -> list[Json]:
    """Return a message of the model and the results of its calls, numbered from `first`."""
    ids = [call_id(number) for number in range(first, first + len(message.named))]
    tool_calls = [
        {
            "id": name,
            "type": "function",
            "function": {"name": call.tool, "arguments": compact(call.raw_args)},
        }
        for name, call in zip(ids, message.named, strict=True)
    ]
    return [
        {
            "role": "assistant",
            "content": message.text or None,
            **({"tool_calls": tool_calls} if tool_calls else {}),
        },
        *(
            {
                "role": "tool",
                "tool_call_id": name,
                "name": call.tool,
                "content": config.result_text(call),
            }
            for name, call in zip(ids, message.named, strict=True)
        ),
    ]
