"""Write training conversations in the formats of other people's data sets and trainers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import parse_json
from lhkit.conversation.tool_results import parse_result, result_to_dict
from lhkit.harness.exports.sft import SftConversation
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions

Row: TypeAlias = Mapping[str, Any]

MOBILE_ACTIONS = "mobile-actions"
_PROMPTS = "prompt-completion"
_SPLIT = "train"
_TABLES = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_LITERALS = frozenset({"enum", "const", "default", "examples", "required"})


def formatted(
    conversations: Iterable[SftConversation], form: str, dialect: str | None
) -> Iterator[SftConversation]:
    """Return conversations as rows of a format.

    Args:
        conversations: the conversations.
        form: one of `FORMATS`: `messages` (lhkit's and TRL's), `prompt-completion` (TRL's, a text
            for each message of the model), `mobile-actions` (Google's data set for FunctionGemma).
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


def _mobile_actions(conversation: SftConversation, _dialect: str | None) -> Sequence[Row]:
    """Return a conversation as Google writes them: role developer, arguments as objects, no ids."""
    tags = conversation.tags
    after = tags[tags.index(MOBILE_ACTIONS) + 1 :] if MOBILE_ACTIONS in tags else ()
    split = next((tag for tag in after if ":" not in tag), _SPLIT)
    tools = [
        {"function": {**function, "parameters": capital_types(function.get("parameters", {}))}}
        for function in (tool["function"] for tool in conversation.data.get("tools", ()))
    ]
    messages = [_mobile_message(message) for message in conversation.data["messages"]]
    return [{"metadata": split, "tools": tools, "messages": messages}]


def _mobile_message(message: Row) -> Row:
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
    """Return a result as plain data: what the tool returned, without lhkit's envelope."""
    try:
        value = parse_json(content)
    except ValueError:
        return content
    result = parse_result(value)
    if result is None:
        return value
    envelope = result_to_dict(result)
    return envelope.get("data", envelope)


def capital_types(schema: Any) -> Any:
    """Return a JSON Schema with its types in capitals, as Google's API has them (`STRING`)."""
    if isinstance(schema, list):
        return [capital_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    written: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type":
            names = value if isinstance(value, list) else [value]
            capitals = [name.upper() if isinstance(name, str) else name for name in names]
            written[key] = capitals if isinstance(value, list) else capitals[0]
        elif key in _TABLES and isinstance(value, Mapping):
            written[key] = {name: capital_types(inner) for name, inner in value.items()}
        else:
            written[key] = value if key in _LITERALS else capital_types(value)
    return written


FORMATS: Mapping[str, Callable[[SftConversation, str | None], Sequence[Row]]] = {
    "messages": _messages,
    _PROMPTS: _prompts,
    MOBILE_ACTIONS: _mobile_actions,
}
"""The values of `lhkit export --format`."""
