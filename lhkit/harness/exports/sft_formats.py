"""Write training conversations in the formats of other people's data sets and trainers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact, parse_json
from lhkit.conversation.tool_results import ToolOk, parse_result, result_to_dict
from lhkit.harness.exports.sft import SftConversation
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions

Row: TypeAlias = Mapping[str, Any]

MOBILE_ACTIONS = "mobile-actions"
_OPENAI = "openai"
_PROMPTS = "prompt-completion"
_SPLIT = "train"
RECORDED = "recorded"
ROW_SHAPES = frozenset({"xlam", "glaive", "toolace", "hermes", MOBILE_ACTIONS, _OPENAI})
"""The tags of a scenario that `lhkit import calls` makes, before the split of its row."""
_TABLES = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_LITERALS = frozenset({"enum", "const", "default", "examples", "required"})


def formatted(
    conversations: Iterable[SftConversation], form: str, dialect: str | None
) -> Iterator[SftConversation]:
    """Return conversations as rows of a format.

    Args:
        conversations: the conversations.
        form: one of `FORMATS`: `messages` (as the served model reads them), `prompt-completion`
            (TRL's, a text for each message of the model), `openai` (results as the tools returned
            them), `mobile-actions` (Google's data set for FunctionGemma).
        dialect: the format of calls in the texts of `prompt-completion`.

    Raises:
        UsageError: there is no such format, or the dialect is missing or not for this format.
    """
    if form not in FORMATS:
        raise UsageError(f"Unknown format {form!r}: give one of {', '.join(FORMATS)}.")
    if (dialect is None) == (form == _PROMPTS):
        raise UsageError(
            f"--dialect belongs to --format {_PROMPTS}, which renders texts: give both, with a "
            f"dialect of {', '.join(DIALECTS)}."
        )
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f"Invalid dialect {dialect!r}: choose one of {', '.join(DIALECTS)}.")
    return _rows(conversations, FORMATS[form], dialect)


def _rows(
    conversations: Iterable[SftConversation],
    convert: Callable[[SftConversation, str | None], Sequence[Row]],
    dialect: str | None,
) -> Iterator[SftConversation]:
    for conversation in conversations:
        for row in convert(conversation, dialect):
            yield replace(conversation, data=row)


def _messages(conversation: SftConversation, _dialect: str | None) -> Sequence[Row]:
    return [conversation.data]


def _prompts(conversation: SftConversation, dialect: str | None) -> Sequence[Row]:
    return prompt_completions(conversation.data, DIALECTS[dialect or ""])


def _openai(conversation: SftConversation, _dialect: str | None) -> Sequence[Row]:
    """Return a conversation as other people's rows have it, with the results of the tools."""
    messages = []
    for message in _as_written(conversation):
        written = dict(message)
        if written["role"] == "tool":
            value = _plain(written["content"])
            written["content"] = value if isinstance(value, str) else compact(value)
            del written["name"]
        messages.append(written)
    tools, split = conversation.data.get("tools", ()), _split_of(conversation)
    return [
        {
            "messages": messages,
            **({"tools": tools} if tools else {}),
            **({"split": split} if split else {}),
        }
    ]


def _split_of(conversation: SftConversation) -> str:
    """Return the split of an imported row: the tag after `recorded` and the name of its shape."""
    tags = conversation.tags
    if RECORDED not in tags:
        return ""
    after = [tag for tag in tags[tags.index(RECORDED) + 1 :] if tag not in ROW_SHAPES]
    return after[0] if after and ":" not in after[0] else ""


def _as_written(conversation: SftConversation) -> Iterator[Row]:
    """Yield the messages with the instructions as written, without results that nobody recorded."""
    for message in conversation.data["messages"]:
        is_result = message["role"] == "tool"
        if message["role"] == "system":
            yield {**message, "content": conversation.instructions}
        elif not (is_result and conversation.is_one_response and _plain(message["content"]) == {}):
            yield message


def _mobile_actions(conversation: SftConversation, _dialect: str | None) -> Sequence[Row]:
    """Return a conversation as Google writes them: role developer, arguments as objects, no ids."""
    tools = [
        {"function": {**function, "parameters": capital_types(function.get("parameters", {}))}}
        for function in (tool["function"] for tool in conversation.data.get("tools", ()))
    ]
    messages: list[dict[str, Any]] = []
    for message in map(_mobile_message, _as_written(conversation)):
        if messages and message["role"] == messages[-1]["role"] == "tool":
            messages[-1]["content"] += message["content"]
        else:
            messages.append(message)
    split = _split_of(conversation) or _SPLIT
    return [{"metadata": split, "tools": tools, "messages": messages}]


def _mobile_message(message: Row) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        response = [{"name": message["name"], "response": _plain(content)}]
        return {"role": "tool", "content": response}
    calls = [
        {"function": {"name": call["name"], "arguments": parse_json(call["arguments"])}}
        for call in (call["function"] for call in message.get("tool_calls", ()))
    ]
    return {
        "role": "developer" if role == "system" else role,
        **({} if content is None else {"content": content}),
        **({"tool_calls": calls} if calls else {}),
    }


def _plain(content: str) -> Any:
    """Return what a tool returned, without the envelope, and without `result` around a value."""
    try:
        value = parse_json(content)
    except ValueError:
        return content
    result = parse_result(value)
    if isinstance(result, ToolOk):
        value = dict(result.data)
    elif result is not None:
        return result_to_dict(result)
    return value["result"] if isinstance(value, Mapping) and {*value} == {"result"} else value


def capital_types(schema: Any) -> Any:
    """Return a JSON Schema as Google's API has it: types in capitals, `nullable` for null."""
    if isinstance(schema, list):
        return [capital_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    written: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str):
            written[key] = value.upper()
        elif key == "type" and isinstance(value, list):
            names = [str(name).upper() for name in value if name != "null"]
            written[key] = names[0] if len(names) == 1 else names
            written |= {"nullable": True} if "null" in value else {}
        elif key == "enum" and "null" in schema.get("type", ()):
            written[key] = [item for item in value if item is not None]
        elif key in _TABLES and isinstance(value, Mapping):
            written[key] = {name: capital_types(inner) for name, inner in value.items()}
        else:
            written[key] = value if key in _LITERALS else capital_types(value)
    return written


FORMATS: Mapping[str, Callable[[SftConversation, str | None], Sequence[Row]]] = {
    "messages": _messages,
    _PROMPTS: _prompts,
    _OPENAI: _openai,
    MOBILE_ACTIONS: _mobile_actions,
}
"""The values of `lhkit export --format`."""
