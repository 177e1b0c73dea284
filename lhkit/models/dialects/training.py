"""Render conversations as training text in a dialect, with the spans that the model writes.

The text comes from the same `Dialect.encode` as prompts for serving. The span of an assistant
message reaches to the token that ends its generation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolOk, ToolResult, parse_result
from lhkit.models.dialects.arguments import read_arguments
from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.marked import MarkedDialect

_MAX_RESULT_BYTES = 1 << 40  # a result was cut when it was recorded
_END_OF_TURN = "<end_of_turn>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingText:
    """A rendered conversation.

    Attributes:
        text: the text, which starts with `<bos>`.
        spans: half-open character ranges that the model should write, with their end tokens; the
            loss is computed on these only.
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    def pairs(self) -> Iterator[dict[str, str]]:
        """Yield each span with the text before it, as TRL's `prompt` and `completion`."""
        for start, end in self.spans:
            yield {"prompt": self.text[:start], "completion": self.text[start:end]}


def training_text(conversation: Mapping[str, Any], dialect: Dialect) -> TrainingText:
    """Return a conversation as training text.

    An assistant message with `"weight": 0` is in the text but in no span. A tool result that is not
    encoded as lhkit's becomes the data of a `ToolOk`.

    Args:
        conversation: a line of `lhkit export --sft`: `messages` in OpenAI's format (system, user,
            assistant, tool) and `tools`.
        dialect: the dialect of the model to train, such as `DIALECTS["json"]`.

    Raises:
        UsageError: a message is invalid, or an assistant message follows another one.
    """
    instructions, steps = _steps(conversation.get("messages", ()))
    tools = [tool.get("function", tool) for tool in conversation.get("tools") or ()]
    marks: tuple[str, ...] = (_END_OF_TURN,)  # end a model's message; in messages they are escaped
    if isinstance(dialect, MarkedDialect):
        marks = dialect.markup.turn[1], dialect.markup.response[0]
    messages: list[Message] = []
    spans: list[tuple[int, int]] = []
    text = ""
    for step in steps:
        if not step.is_written:
            messages += step.messages
            continue
        prompt = dialect.encode(messages, tools, instructions)
        # an empty user message after a reply renders the end of its turn
        follows: list[Message] = [UserMessage(text="")] if step.is_reply else []
        messages += step.messages
        rendered = dialect.encode([*messages, *follows], tools, instructions)
        if not (prompt.startswith(text) and rendered.startswith(prompt)):
            raise UsageError(
                f"messages[{step.number}]: an assistant message follows another one. Join them, or "
                "put a user message between them."
            )
        ends = (at + len(mark) for mark in marks if (at := rendered.find(mark, len(prompt))) >= 0)
        end = min(ends)
        text = rendered[:end]
        if step.is_learned:
            spans.append((len(prompt), end))
    return TrainingText(text=text, spans=tuple(spans))


def prompt_completions(conversation: Mapping[str, Any], dialect: Dialect) -> list[dict[str, str]]:
    """Return a conversation as TRL's prompt-completion pairs, one for each assistant message.

    Example:
        ```
        rows = [pair for line in open("train.jsonl")
                for pair in prompt_completions(json.loads(line), DIALECTS["json"])]
        dataset = datasets.Dataset.from_list(rows)
        ```

    Raises:
        UsageError: as `training_text`.
    """
    return list(training_text(conversation, dialect).pairs())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One message with the results of its calls; `number` is its index in the conversation."""

    number: int
    messages: tuple[Message, ...]
    is_written: bool = False
    is_learned: bool = False

    @property
    def is_reply(self) -> bool:
        return any(isinstance(message, ModelMessage) for message in self.messages)


def _steps(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[_Step]]:
    results = {
        str(message.get("tool_call_id")): str(message.get("content"))
        for message in messages
        if message.get("role") == "tool"
    }
    instructions: list[str] = []
    steps: list[_Step] = []
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content") or ""
        if role == "tool":
            continue
        if not isinstance(content, str):
            raise UsageError(f"messages[{number}].content is invalid: give text.")
        match role:
            case "system" if not steps:
                instructions.append(content)
            case "user":
                steps.append(_Step(number=number, messages=(UserMessage(text=content),)))
            case "assistant":
                calls = message.get("tool_calls") or ()
                written = (
                    tuple(
                        _call(call, i, content if i == 0 else "", results, number)
                        for i, call in enumerate(calls)
                    )
                    if calls
                    else (ModelMessage(text=content),)
                )
                is_learned = message.get("weight", 1) != 0
                steps.append(
                    _Step(number=number, messages=written, is_written=True, is_learned=is_learned)
                )
            case _:
                raise UsageError(
                    f"messages[{number}].role is invalid: {role!r}. Use system (first), user, "
                    "assistant or tool."
                )
    return "\n\n".join(instructions), steps


def _call(
    call: Mapping[str, Any], index: int, text: str, results: Mapping[str, str], number: int
) -> ToolCallMessage:
    function = call.get("function") or {}
    args, _ = read_arguments(function.get("arguments") or None)
    if not function.get("name") or not isinstance(args, Mapping):
        raise UsageError(
            f"messages[{number}].tool_calls[{index}] is invalid: it needs a function with a "
            "name and a JSON object as arguments."
        )
    if str(call.get("id")) not in results:
        raise UsageError(
            f"messages[{number}].tool_calls[{index}] has no result: no tool message has the "
            f"tool_call_id {call.get('id')!r}."
        )
    return ToolCallMessage.of(
        name=function["name"],
        args=args,
        result=_result(results[str(call.get("id"))]),
        text=text,
        index=index,
        max_bytes=_MAX_RESULT_BYTES,
    )


def _result(text: str) -> ToolResult:
    """Return the tool result that `text` encodes, or one with the text as data."""
    try:
        value = json.loads(text)
    except ValueError:
        return ToolOk({"result": text})
    if (result := parse_result(value)) is not None:
        return result
    return ToolOk(value if isinstance(value, Mapping) else {"result": value})
