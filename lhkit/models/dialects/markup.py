"""The tokens of a family that has its own call markup, and the prompts and calls that use them.

Shared by FunctionGemma and Gemma 4: `call:NAME{key:value}` with strings between two equal
delimiter tokens, everything else as in JSON. A result stands in the model's turn, which stays open
until the model has answered. All that others wrote is defused here, in one place. Reading is in
`marked`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import ToolSpec, spec_of
from lhkit.models.dialects.transcript import (
    LONE_SURROGATE,
    Group,
    grouped,
    is_writable,
    result_text,
    unicode_of,
    words_of,
)
from lhkit.models.dialects.turns import BOS
from lhkit.models.dialects.values import quoted

_BARE_KEY = re.compile(r"[\w.\-]+")
_SCHEMAS_BY_NAME = frozenset({"properties", "$defs", "patternProperties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """One family's tokens; pairs are (start, end).

    `quote` stands before and after a string. `control` matches the `<` of every control token.
    `thinking` holds all spellings of the start, and the end; `preamble` opens the system turn
    where there are tools.
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

    def defused(self, text: str) -> str:
        """Return `text` without control tokens: `<escape>` becomes `< escape>`."""
        return self.control.sub("< ", unicode_of(text))

    def object(self, members: Mapping[str, Any]) -> str:
        r"""Return an object as text that reads back exactly.

        A string with a control token in it, such as the delimiter itself, is written in JSON
        quotes with `\u003c`; a key that is no plain word is written as a string. Both are our
        extension: the format has no word for them.

        Raises:
            NotJsonError: if JSON cannot carry a value.
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
    """Return the prompt for what the model writes next.

    A longer conversation's prompt begins with a shorter one's up to its open model turn, so that
    the server finds it in its prefix cache.
    """
    groups = grouped(messages)
    parts = [BOS, _system_turn(markup, tools, instructions)]
    before: Group | None = None
    for group in groups:
        parts += [_between(markup, before, group), _body(markup, group)]
        before = group
    if not isinstance(before, list):
        parts.append(_ended(markup, before) + f"{markup.turn[0]}model\n")
    return "".join(parts)


def render_call(markup: Markup, name: str, args: Mapping[str, JSON]) -> str:
    """Return one call.

    Raises:
        NotJsonError: if JSON cannot carry the arguments.
    """
    start, end = markup.call
    return f"{start}call:{markup.defused(name)}{markup.object(args)}{end}"


def _system_turn(markup: Markup, tools: Sequence[ToolSpec], instructions: str) -> str:
    words = [markup.preamble] if markup.preamble and tools else []
    words += [markup.defused(instructions.strip())] if instructions.strip() else []
    declared = "".join(_declaration(markup, spec_of(tool)) for tool in tools)
    if not words and not declared:
        return ""
    start, end = markup.turn
    return f"{start}{markup.system_role}\n" + "\n".join(words) + f"{declared}{end}\n"


def _declaration(markup: Markup, spec: Mapping[str, Any]) -> str:
    start, end = markup.declaration
    rest = {key: value for key, value in spec.items() if key != "name"}
    if "parameters" in rest:
        rest["parameters"] = _schema(rest["parameters"])
    return f"{start}declaration:{markup.defused(str(spec.get('name')))}{markup.object(rest)}{end}"


def _schema(node: Any, *, is_by_name: bool = False) -> Any:
    """Return a JSON Schema with sorted keys and its types in upper case, as the families spell it.

    `is_by_name`: the keys are names of parameters, not words of JSON Schema.
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
    return [_upper(each) for each in kind] if isinstance(kind, list | tuple) else kind


def _between(markup: Markup, before: Group | None, group: Group) -> str:
    """Return what stands between two groups: an end and a start, or nothing in an open turn."""
    is_users = isinstance(group, UserMessage)
    if before is None or is_users != isinstance(before, UserMessage):
        return _ended(markup, before) + f"{markup.turn[0]}{'user' if is_users else 'model'}\n"
    return "" if isinstance(before, list) else "\n\n"


def _ended(markup: Markup, before: Group | None) -> str:
    return "" if before is None else f"{markup.turn[1]}\n"


def _body(markup: Markup, group: Group) -> str:
    match group:
        case UserMessage():
            return markup.defused(words_of(group))
        case ModelMessage(text=text):
            return markup.defused(text)
        case list():
            said = [markup.defused(call.text) for call in group]
            written = [_written(markup, call) for call in group]
            return "".join([*said, *written, *(_response(markup, call) for call in group)])
        case _:
            assert_never(group)


def _written(markup: Markup, message: ToolCallMessage) -> str:
    """Return the call as it should have been written, or defused as it was if that cannot be."""
    if not is_writable(message):
        return markup.defused(message.raw)
    try:
        return render_call(markup, message.name, message.args)
    except NotJsonError:
        return markup.defused(message.raw)


def _response(markup: Markup, message: ToolCallMessage) -> str:
    start, end = markup.response
    name = markup.defused(message.name) or "unknown"
    result = json.loads(result_text(message))
    return f"{start}response:{name}{markup.object(result)}{end}"
