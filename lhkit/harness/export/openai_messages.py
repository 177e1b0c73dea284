"""OpenAI's messages: one conversation a line, as `lhkit import openai-messages` reads them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.files import write_atomically
from lhkit.harness.export.conversation import (
    Json,
    Message,
    ToolConfig,
    call_id,
    config_of,
    configs_of,
    json_bytes,
    messages_of,
)
from lhkit.harness.record import SampleRecord
from lhkit.harness.results import Run
from lhkit.json_values import compact
from lhkit.messages import UserMessage
from lhkit.models.dialects.transcript import words_of


def write_openai_messages(run: Run, file: Path) -> None:
    """Write each conversation with its tools as a line of JSON; the format of fine-tuning, too.

    The instructions and the line of context beside what the user said are no part of a record,
    and hints of the application are not for the model: these are left out.

    Raises:
        OSError: the disk does not take it.
    """
    write_atomically(file, (json_line(each) for _, each in conversations_of(run)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """Texts of the prompt that a record does not contain.

    `instructions` is the text of the system message, `contexts` has the context line of each turn.
    `unlearned` are the turns, from 0, whose reply is not a training target.
    """

    instructions: str = ""
    contexts: Sequence[str] = ()
    unlearned: Collection[int] = ()


def conversations_of(
    run: Run, texts: Callable[[SampleRecord], PromptTexts | None] = lambda _: PromptTexts()
) -> Iterator[tuple[SampleRecord, Json]]:
    """Yield records with their conversations, except those for which `texts` returns None."""
    told = configs_of(run)
    for record in run.records:
        if (prompt := texts(record)) is not None:
            yield record, _conversation(record, config_of(record, run, told), prompt)


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return json_bytes(value) + b"\n"


def _conversation(record: SampleRecord, told: ToolConfig, texts: PromptTexts) -> Json:
    """Return the messages of a conversation, and its tools if it has any.

    A reply that is not a training target has OpenAI's `"weight": 0`.
    """
    messages: list[Json] = []
    if texts.instructions.strip():
        messages.append({"role": "system", "content": texts.instructions.strip()})
    for number, turn in enumerate(record.evidence.turns):
        context = texts.contexts[number] if number < len(texts.contexts) else ""
        user = UserMessage(text=turn.user, context=context)
        messages.append({"role": "user", "content": words_of(user)})
        for said in messages_of(turn):
            exchange = _exchange(said, told, _count(messages))
            if number in texts.unlearned and not said.named:
                exchange[0]["weight"] = 0
            messages += exchange
    functions = [
        {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
        for tool in told.tools
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def _count(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(message["role"] == "tool" for message in messages)


def _exchange(said: Message, told: ToolConfig, first: int) -> list[Json]:
    """Return a message of the model and the results of its calls, numbered from `first`."""
    ids = [call_id(number) for number in range(first, first + len(said.named))]
    written = [
        {
            "id": name,
            "type": "function",
            "function": {"name": call.tool, "arguments": compact(call.raw_args)},
        }
        for name, call in zip(ids, said.named, strict=True)
    ]
    return [
        {
            "role": "assistant",
            "content": said.text or None,
            **({"tool_calls": written} if written else {}),
        },
        *(
            {
                "role": "tool",
                "tool_call_id": name,
                "name": call.tool,
                "content": told.read(call),
            }
            for name, call in zip(ids, said.named, strict=True)
        ),
    ]
