"""Render conversations as training text in a dialect, with the spans that the model writes.

The text comes from the same `Dialect.encode` as prompts for serving. The span of an assistant
message reaches to the token that ends its generation. A conversation may end with calls without
results, as single-call data do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from lhkit.base.errors import UsageError
from lhkit.base.json_values import parse_json
from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.tool_results import ResultFormat, ToolOk, ToolResult, parse_result
from lhkit.models.dialects.arguments import read_arguments
from lhkit.models.dialects.base import Dialect
from lhkit.models.dialects.marked import MarkedDialect

_MAX_RESULT_BYTES = 1 << 40  # a result was cut when it was recorded
_END_OF_TURN = "<end_of_turn>"
_MISSING: Final = object()


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
    encoded as lhkit's becomes the data of a `ToolOk`: an object as it is, anything else as `value`
    in the native dialects (as their templates do) and as `result` in the others.

    Args:
        conversation: a line of `lhkit export --sft`: `messages` in OpenAI's format (system or
            developer, user, assistant, tool), `tools`, and `result_format` if the toolset has one.
            Messages may be written as Google's data are: calls without ids, results as objects or
            as a list of `{"name", "response"}`.
        dialect: the dialect of the model to train, such as `DIALECTS["json"]`.

    Raises:
        UsageError: a message is invalid, a call before the last message has no result, or an
            assistant message follows another one.
    """
    is_native = isinstance(dialect, MarkedDialect)
    reader = _ResultReader(
        format=_result_format(conversation),
        key="value" if is_native else "result",
        keeps_text=is_native,
    )
    instructions, steps = _steps(conversation.get("messages", ()), reader)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultReader:
    """Reads tool results from a conversation.

    Attributes:
        format: how the served model reads results; None for the default of the dialect.
        key: the name of a result that is no object.
        keeps_text: text is parsed as JSON only if that is an object.
    """

    format: ResultFormat | None
    key: str
    keeps_text: bool

    def read(self, content: Any) -> ToolResult:
        """Return the tool result that `content` encodes, or one with the content as data."""
        value = content
        if isinstance(content, str):
            try:
                value = parse_json(content)
            except (ValueError, RecursionError):
                return ToolOk({self.key: content})
        result = None if self.format == "plain" else parse_result(value)
        if result is not None:
            return result
        if isinstance(value, Mapping):
            return ToolOk(value)
        return ToolOk({self.key: content if self.keeps_text else value})


def _result_format(conversation: Mapping[str, Any]) -> ResultFormat | None:
    match conversation.get("result_format"):
        case None | "envelope" | "plain" as form:
            return form
        case other:
            raise UsageError(f"result_format is invalid: {other!r}. Use envelope or plain.")


def _steps(messages: Sequence[Mapping[str, Any]], reader: _ResultReader) -> tuple[str, list[_Step]]:
    instructions: list[str] = []
    steps: list[_Step] = []
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content") or ""
        if role == "tool":
            if not steps or steps[-1].is_reply or not steps[-1].is_written:
                raise UsageError(f"messages[{number}] is invalid: no call precedes this result.")
            continue
        if not isinstance(content, str):
            raise UsageError(f"messages[{number}].content is invalid: give text.")
        match role:
            case "system" | "developer" if not steps:
                instructions.append(content)
            case "user":
                steps.append(_Step(number=number, messages=(UserMessage(text=content),)))
            case "assistant":
                calls = message.get("tool_calls") or ()
                written: tuple[Message, ...] = (ModelMessage(text=content),)
                if calls:
                    written = _calls(messages, number, calls, content, reader)
                is_learned = message.get("weight", 1) != 0
                steps.append(
                    _Step(number=number, messages=written, is_written=True, is_learned=is_learned)
                )
            case _:
                raise UsageError(
                    f"messages[{number}].role is invalid: {role!r}. Use system or developer "
                    "(first), user, assistant or tool."
                )
    return "\n\n".join(instructions), steps


def _calls(
    messages: Sequence[Mapping[str, Any]],
    number: int,
    calls: Sequence[Mapping[str, Any]],
    text: str,
    reader: _ResultReader,
) -> tuple[ToolCallMessage, ...]:
    """Return the calls of an assistant message with their results.

    Raises:
        UsageError: a call is invalid, or has no result and is not at the end.
    """
    results = _results(messages[number + 1 :])
    made = []
    for index, call in enumerate(calls):
        function = call.get("function") or {}
        args, _ = read_arguments(function.get("arguments") or None)
        if not function.get("name") or not isinstance(args, Mapping):
            raise UsageError(
                f"messages[{number}].tool_calls[{index}] is invalid: it needs a function with a "
                "name and a JSON object as arguments."
            )
        made.append(
            (function["name"], args, _pop_result(results, call.get("id"), function["name"]))
        )
    if results:
        raise UsageError(
            f"messages[{number}]: {len(results)} of the results after it belong to none of its "
            "calls."
        )
    is_last = number == len(messages) - 1
    for index, (_, _, content) in enumerate(made):
        if content is _MISSING and not is_last:
            raise UsageError(
                f"messages[{number}].tool_calls[{index}] has no result: no tool message after it "
                f"has the tool_call_id {calls[index].get('id')!r}."
            )
    return tuple(
        ToolCallMessage(
            call=ToolCall(name=name, args=args),
            outcome=None if is_last else ToolCallOutcome(result=reader.read(content)),
            text=text if index == 0 else "",
            index=index,
            max_bytes=_MAX_RESULT_BYTES,
            result_format=reader.format,
        )
        for index, (name, args, content) in enumerate(made)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedResult:
    """The content of a tool message; `id` and `name` are empty if it does not have them."""

    id: str
    name: str
    content: Any


def _results(messages: Sequence[Mapping[str, Any]]) -> list[_RecordedResult]:
    """Return the results in the tool messages that begin `messages`."""
    results: list[_RecordedResult] = []
    for message in takewhile(lambda each: each.get("role") == "tool", messages):
        content, id_ = message.get("content"), str(message.get("tool_call_id") or "")
        parts = _named_parts(content)
        if parts:
            results += parts
        else:
            name = str(message.get("name") or "")
            results.append(_RecordedResult(id=id_, name=name, content=content))
    return results


def _named_parts(content: Any) -> list[_RecordedResult]:
    """Return the results in Google's `[{"name", "response"}]`; none for any other content."""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, Mapping) and {*part} == {"name", "response"} for part in parts):
        return []
    return [
        _RecordedResult(id="", name=str(part["name"]), content=part["response"]) for part in parts
    ]


def _pop_result(results: list[_RecordedResult], id_: Any, name: str) -> Any:
    """Remove and return the result of a call: that with its id, or the next if one lacks an id."""
    for index, result in enumerate(results):
        has_ids = bool(result.id) and bool(id_)
        if result.id == str(id_) if has_ids else result.name in {"", name}:
            return results.pop(index).content
    return _MISSING
