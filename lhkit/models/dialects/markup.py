"""Render prompts and calls in the native markup of FunctionGemma and Gemma 4.

Calls are `call:NAME{key:value}` with strings between two equal delimiter tokens, everything else as
in JSON. Results are within the model's turn, which stays open until the model answers. Control
tokens in messages are escaped here. `marked` parses responses.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from lhkit.base.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import (
    LONE_SURROGATE,
    Group,
    ToolSpec,
    group_messages,
    is_renderable,
    replace_lone_surrogates,
    result_text,
    tool_spec,
    user_text,
)
from lhkit.models.dialects.turns import BOS
from lhkit.models.dialects.values import quoted

_BARE_KEY = re.compile(r"[\w.\-]+")
_SCHEMAS_BY_NAME = frozenset({"properties", "$defs", "patternProperties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """The tokens of one family; pairs are (start, end).

    Attributes:
        turn: of a turn.
        system_role: the role of the system turn.
        declaration: of a tool's declaration.
        call: of a call.
        response: of a result.
        quote: before and after a string.
        control: matches the `<` of every control token.
        thinking: all spellings of the start, and the end.
        preamble: opens the system turn if there are tools.
    """

    turn: tuple[str, str]
    system_role: str
    declaration: tuple[str, str]
    call: tuple[str, str]
    response: tuple[str, str]
    quote: str
    control: re.Pattern[str]
    thinking: tuple[tuple[str, ...], str] = ((), "")
    preamble: str = ""

    def escape_control_tokens(self, text: str) -> str:
        """Return `text` without control tokens: `<escape>` becomes `< escape>`."""
        return self.control.sub("< ", replace_lone_surrogates(text))

    def render_object(self, members: Mapping[str, Any]) -> str:
        r"""Return an object as text that parses back exactly.

        A string that contains a control token, such as the delimiter, is written in JSON quotes
        with `\u003c`; a key that is not a plain word is written as a string. Both are our
        extension of the format.

        Raises:
            NotJsonError: a value is not JSON.
        """
        return self._value(plain_json(members))

    def _value(self, plain: Any) -> str:
        if isinstance(plain, str):
            return self._string(plain)
        if isinstance(plain, dict):
            members = (f"{self._key(key)}:{self._value(item)}" for key, item in plain.items())
            return "{" + ",".join(members) + "}"
        if isinstance(plain, list):
            return "[" + ",".join(map(self._value, plain)) + "]"
        return compact(plain)

    def _key(self, key: str) -> str:
        return key if _BARE_KEY.fullmatch(key) else self._string(key)

    def _string(self, text: str) -> str:
        if self.control.search(text) or LONE_SURROGATE.search(text):
            return quoted(text, self.control)
        return f"{self.quote}{text}{self.quote}"


def render_prompt(
    markup: Markup, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str
) -> str:
    """Return the prompt for the model's next message.

    The prompt of a continued conversation starts with that of the shorter one up to its open model
    turn, for the server's prefix cache.
    """
    groups = group_messages(messages)
    parts = [BOS, _system_turn(markup, tools, instructions)]
    before: Group | None = None
    for group in groups:
        parts += [_between(markup, before, group), _body(markup, group)]
        before = group
    if not isinstance(before, list):
        parts.append(_ended(markup, before) + f"{markup.turn[0]}model\n")
    return "".join(parts)


def render_call(markup: Markup, name: str, args: Mapping[str, JSON]) -> str:
    """Return the text of a call.

    Raises:
        NotJsonError: the arguments are not JSON.
    """
    start, end = markup.call
    return f"{start}call:{markup.escape_control_tokens(name)}{markup.render_object(args)}{end}"


def _system_turn(markup: Markup, tools: Sequence[ToolSpec], instructions: str) -> str:
    lines = [markup.preamble] if markup.preamble and tools else []
    lines += [markup.escape_control_tokens(instructions.strip())] if instructions.strip() else []
    declarations = "".join(_declaration(markup, tool_spec(tool)) for tool in tools)
    if not lines and not declarations:
        return ""
    start, end = markup.turn
    return f"{start}{markup.system_role}\n" + "\n".join(lines) + f"{declarations}{end}\n"


def _declaration(markup: Markup, spec: Mapping[str, Any]) -> str:
    start, end = markup.declaration
    rest = {key: value for key, value in spec.items() if key != "name"}
    if "parameters" in rest:
        rest["parameters"] = _schema(rest["parameters"])
    name = markup.escape_control_tokens(str(spec.get("name")))
    return f"{start}declaration:{name}{markup.render_object(rest)}{end}"


def _schema(node: Any, *, is_by_name: bool = False) -> Any:
    """Return a JSON Schema with sorted keys and types in upper case, as the families expect.

    `is_by_name`: the keys are names of parameters, not keywords.
    """
    if isinstance(node, list | tuple):
        return [_schema(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: _upper(node[key])
        if key == "type" and not is_by_name
        else node[key]
        if key in {"enum", "const", "default", "examples"} and not is_by_name
        else _schema(node[key], is_by_name=key in _SCHEMAS_BY_NAME and not is_by_name)
        for key in sorted(node)
    }


def _upper(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind.upper()
    return [_upper(item) for item in kind] if isinstance(kind, list | tuple) else kind


def _between(markup: Markup, before: Group | None, group: Group) -> str:
    """Return the text between two groups: the end and start of turns, or nothing in an open one."""
    is_users = isinstance(group, UserMessage)
    if before is None or is_users != isinstance(before, UserMessage):
        return _ended(markup, before) + f"{markup.turn[0]}{'user' if is_users else 'model'}\n"
    return "" if isinstance(before, list) else "\n\n"


def _ended(markup: Markup, before: Group | None) -> str:
    return "" if before is None else f"{markup.turn[1]}\n"


def _body(markup: Markup, group: Group) -> str:
    match group:
        case UserMessage():
            return markup.escape_control_tokens(user_text(group))
        case ModelMessage(text=text):
            return markup.escape_control_tokens(text)
        case list():
            responses = [_response(markup, call) for call in group]
            return "".join([*_written(markup, group), *responses])
        case _:
            assert_never(group)


def _written(markup: Markup, group: Sequence[ToolCallMessage]) -> Iterator[str]:
    """Yield the texts and calls of one model message, of a malformed call its raw text.

    Adjacent texts are escaped together: two of them could join into a control token.
    """
    text = "".join(call.text for call in group)
    for call in group:
        rendered = _rendered_call(markup, call)
        if rendered is None:
            text += call.raw
        else:
            yield markup.escape_control_tokens(text) + rendered
            text = ""
    yield markup.escape_control_tokens(text)


def _rendered_call(markup: Markup, message: ToolCallMessage) -> str | None:
    """Return the text of a call, or None for a malformed one."""
    if not is_renderable(message):
        return None
    try:
        return render_call(markup, message.name, message.args)
    except NotJsonError:
        return None


def _response(markup: Markup, message: ToolCallMessage) -> str:
    start, end = markup.response
    name = markup.escape_control_tokens(message.name) or "unknown"
    result = json.loads(result_text(message))
    return f"{start}response:{name}{markup.render_object(result)}{end}"
