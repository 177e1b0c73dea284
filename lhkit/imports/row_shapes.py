"""Read a row of a data set of calls as messages and tools, in the shapes that fine-tuners use.

`SHAPES` is the table of them. A row of messages needs no change; the others are rewritten as
OpenAI's messages, which `message_shapes` reads. Instructions that list the tools or the format of
a call, because the data were rendered for one model, lose that part: each dialect writes its own.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import shown
from lhkit.imports.decoding import decode_json, to_utf8_json
from lhkit.imports.message_shapes import NO_CALL, is_message
from lhkit.imports.tool_shapes import flat_schema, is_flat

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """A shape of rows.

    Attributes:
        name: the value of `--format`.
        keys: the keys that a row must have.
        nullable: the keys among them that may be null.
        fits: returns whether a row with these keys is one of this shape.
        read: returns the row as `{"messages": […], "tools": […]}`.
    """

    name: str
    keys: frozenset[str]
    nullable: frozenset[str] = frozenset()
    fits: Callable[[Row], bool] = lambda _row: True
    read: Callable[[Row], Row] = lambda row: row


def to_messages(row: Any, shape: str | None = None) -> tuple[Any, str]:
    """Return a row as an object with messages and tools, and the name of its shape.

    Args:
        row: the row; one of no known shape is returned unchanged, with an empty name.
        shape: the name of its shape; recognised by default.

    Raises:
        UsageError: it is not a row of this shape, or a call in it cannot be taken.
    """
    row = _unwrapped(row)
    is_list = isinstance(row, list)
    if is_list and row and all(map(is_message, row)):
        row = {"messages": row}
    if not isinstance(row, Mapping):
        if shape is None:
            return row, ""
        raise UsageError(f"not a row of the format {shape}: it is not an object")
    candidates = [known for known in SHAPES if shape in {None, known.name}]
    for known in candidates:
        present = {key for key, value in row.items() if value is not None or key in known.nullable}
        if known.keys <= present:
            if shape is None and not known.fits(row):
                continue
            return known.read(row), known.name
    if shape is not None:
        missing = sorted(candidates[0].keys - row.keys())
        raise UsageError(f"not a row of the format {shape}: no {', '.join(missing)}")
    return row, ""


def _unwrapped(row: Any) -> Any:
    """Return the row that a data set of text lines has as JSON text in its only column."""
    row = decode_json(row)
    if isinstance(row, Mapping) and len(row) == 1:
        (value,) = row.values()
        decoded = decode_json(value) if isinstance(value, str) else row
        return decoded if isinstance(decoded, Mapping) else row
    return row


# xLAM and APIGen: query, tools and answers as JSON text


def _read_xlam(row: Row) -> Row:
    listed = [] if row["tools"] is None else _list_of(row["tools"], "tools")
    tools = [_function(tool) for tool in listed]
    calls = [_function(decode_json(call)) for call in _answers(row["answers"])]
    given: dict[str, list[set[str]]] = {}
    for call in calls:
        args = decode_json(call.get("arguments"))
        if isinstance(args, Mapping):
            given.setdefault(str(call.get("name")), []).append(set(args))
    described = [_with_schema(tool, given.get(str(tool.get("name")), ())) for tool in tools]
    answer: Row = {"role": "assistant", "content": "", "tool_calls": calls}
    if not calls:
        text = row["answers"] if isinstance(row["answers"], str) else ""
        is_text = text.strip() and decode_json(text) is text
        answer = {"role": "assistant", "content": text if is_text else "", NO_CALL: not is_text}
    system = row.get("system") or row.get("system_prompt")
    opening = [{"role": "system", "content": system}] if system else []
    question = {"role": "user", "content": row["query"]}
    return {**_rest(row), "messages": [*opening, question, answer], "tools": described}


def _with_schema(tool: Row, given: Sequence[set[str]]) -> Row:
    """Return a tool with a schema, which requires no argument that a call leaves out."""
    table = decode_json(tool.get("parameters"))
    if not is_flat(table):
        return tool
    return {
        **tool,
        "parameters": flat_schema(table, may_be_required=set(table).intersection(*given)),
    }


def _function(entry: Any) -> Row:
    entry = decode_json(entry)
    inner = decode_json(entry.get("function")) if isinstance(entry, Mapping) else None
    found = inner if isinstance(inner, Mapping) else entry
    if not isinstance(found, Mapping):
        raise UsageError(f"not an object with a name: {shown(entry)}")
    return found


def _list_of(value: Any, name: str) -> list[Any]:
    decoded = decode_json(value)
    if isinstance(decoded, Mapping):
        decoded = [decoded]
    if not isinstance(decoded, list):
        raise UsageError(f"{name} is not a list: {shown(value)}")
    return [item for item in decoded if item is not None]


def _answers(value: Any) -> list[Any]:
    """Return the calls; none for an empty list, or a text that is not like a call."""
    decoded = decode_json(value)
    if isinstance(decoded, str):
        text = decoded.strip()
        if text[:1] in {"[", "{"} or "<tool_call>" in text:
            raise UsageError(f"answers is not valid JSON: {shown(value)}")
        if text.lower() not in _NO_ANSWER:
            return []
    calls = [] if isinstance(decoded, str) or decoded is None else _list_of(decoded, "answers")
    if decoded != [] and not any(calls):
        raise UsageError("answers is empty: write [] if no call is expected")
    return calls


_NO_ANSWER = frozenset({"", "null", "none", "undefined", "nan"})


def _rest(row: Row) -> dict[str, Any]:
    consumed = {"query", "tools", "answers", "system", "system_prompt", "chat", "sample"}
    return {key: value for key, value in row.items() if key not in consumed}


# Glaive: the tools in `system`, the conversation in `chat`, both as text

_GLAIVE_TURN = re.compile(r"(?:\A|\n)[ \t]*(SYSTEM|USER|ASSISTANT|FUNCTION RESPONSE):[ \t]*")
_GLAIVE_ROLES = {
    "SYSTEM": "system",
    "USER": "user",
    "ASSISTANT": "assistant",
    "FUNCTION RESPONSE": "tool",
}
_GLAIVE_CALL = re.compile(
    r"<functioncall>\s*(.*?)\s*(?:</functioncall>\s*|(?=<functioncall>)|\Z)", re.DOTALL
)
_GLAIVE_ARGUMENTS = re.compile(
    r"""\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*"arguments"\s*:\s*(.*?))?\s*\}\Z""",
    re.DOTALL,
)
_END_OF_TEXT = "<|endoftext|>"


def _read_glaive(row: Row) -> Row:
    text = "\n".join(str(row[key]) for key in ("system", "chat", "sample") if row.get(key))
    messages: list[Row] = []
    tools: list[Any] = []
    parts = _GLAIVE_TURN.split(text)
    if parts[0].strip():
        raise UsageError(f"text before the first USER: or SYSTEM: {shown(parts[0].strip())}")
    for label, part in zip(parts[1::2], parts[2::2], strict=True):
        role, content = _GLAIVE_ROLES[label], part.replace(_END_OF_TEXT, "").strip()
        if role == "assistant":
            messages.append(_glaive_answer(content))
        elif role == "system":
            instructions, found = split_instructions(content)
            messages.append(_message(role, instructions))
            tools += found or []
        else:
            messages.append(_message(role, content))
    return {**_rest(row), "messages": messages, "tools": tools}


def _message(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def _glaive_answer(content: str) -> Row:
    calls = [_glaive_call(match[1]) for match in _GLAIVE_CALL.finditer(content)]
    text = _GLAIVE_CALL.sub("", content).strip()
    return {**_message("assistant", text), **({"tool_calls": calls} if calls else {})}


def _glaive_call(text: str) -> Row:
    """Return a call whose arguments are often JSON text in single quotes."""
    call = decode_json(text)
    if not isinstance(call, Mapping):
        match = _GLAIVE_ARGUMENTS.fullmatch(text)
        if match is None:
            raise UsageError(f"a call in the text cannot be read: {shown(text)}")
        arguments = match[2] or "{}"
        if arguments[:1] == "'" == arguments[-1:] and len(arguments) > 1:
            arguments = arguments[1:-1]
            if decode_json(arguments) is arguments:
                arguments = arguments.replace("\\'", "'").replace("\\\\", "\\")
        call = {"name": json.loads(match[1]), "arguments": arguments}
    return {"function": call}


# ShareGPT, Hermes and ToolACE: the tools in the instructions, the calls in the text

_MARKED_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
_LIST_OF_TOOLS = re.compile(r"\[\s*\{\s*[\"'](?:name|type|function|description|parameters)[\"']")
_TOOL_OBJECT = re.compile(r"\{\s*[\"'](?:name|type|function|description)[\"']\s*:")
_FORMAT_TEXTS = (
    # Hermes
    re.compile(
        r"\s*You are provided with function signatures within <tools>\s*</tools> XML tags\."
    ),
    re.compile(r"\s*Here are the available tools:\s*(?=\s|\Z)"),
    re.compile(r"\s*Use the following pydantic model json schema .*\Z", re.DOTALL),
    re.compile(r"\s*For each function call,? return a json object .*\Z", re.DOTALL | re.IGNORECASE),
    # ToolACE
    re.compile(
        r"\s*(?:Here|Below) (?:is|are) (?:a list of )?(?:the )?functions in JSON format"
        r"[^\n]*?(?:invoke|use|call)[:.]?[ \t]*(?=\n|\Z)"
    ),
    re.compile(
        r"\s*Should you decide to return (?:the )?function call\(?s\)?\.?.*?"
        r"NO other text MUST be included\.?",
        re.DOTALL,
    ),
    re.compile(
        r"\s*If you decide to invoke any of the function\(?s\)?, you MUST put it in the format of"
        r".*?(?:in the response\.|\Z)",
        re.DOTALL,
    ),
    re.compile(
        r"\s*You should only return the function calls? in (?:the )?"
        r"(?:tools? call sections?|your response)\.?",
        re.IGNORECASE,
    ),
    # Glaive
    re.compile(
        r"\s*(?:with|who has) access to the following functions(?: to help the user)?[.,]\s*"
        r"(?:Use them if required|you can use the functions if needed)\s*-?\s*"
    ),
)


def split_instructions(text: str) -> tuple[str, list[Any] | None]:
    """Return instructions without the tools and the call format, and the tools.

    The tools are None if the text lists none; then it is returned unchanged.

    Raises:
        UsageError: the list of tools cannot be read.
    """
    if match := _MARKED_TOOLS.search(text):
        if not match[1] and not _MARKED_TOOLS.search(text, match.end()):
            return text, None
        marked = next(m for m in _MARKED_TOOLS.finditer(text) if m[1])
        is_empty = re.fullmatch(r"\[\s*\]", marked[1])
        tools, end = [] if is_empty else _listed_tools(marked[1], 0), marked.end()
        begin = marked.start()
    elif match := _LIST_OF_TOOLS.search(text) or _TOOL_OBJECT.search(text):
        begin = match.start()
        is_format = any(pattern.search(text) for pattern in _FORMAT_TEXTS)
        if not is_format:
            return text, None  # data, or an example
        body, end = _leading_values(text, begin)
        tools = body
    else:
        return text, None
    after = text[end:].lstrip(" .\n")
    rest = f"{text[:begin].rstrip()}\n{after}"
    for pattern in _FORMAT_TEXTS:
        rest = pattern.sub("." if "access" in pattern.pattern else "", rest)
    return re.sub(r"\n{3,}", "\n\n", rest).strip(), tools


def _listed_tools(text: str, begin: int) -> list[Any]:
    values, end = _leading_values(text, begin)
    if text[end:].strip():
        raise UsageError(f"the tools in the instructions cannot be read: {shown(text[end:])}")
    return values


def _leading_values(text: str, begin: int) -> tuple[list[Any], int]:
    """Return the JSON or Python values at a place of a text, lists flattened, and their end."""
    values: list[Any] = []
    end = begin
    while match := re.compile(r"[\s,]*(?=[\[{])").match(text, end):
        value, after = _value_at(text, match.end())
        if after == match.end():
            break
        values += value if isinstance(value, list) else [value]
        end = after
    if not values:
        raise UsageError(f"the tools in the instructions cannot be read: {shown(text[begin:])}")
    return values, end


def _value_at(text: str, begin: int) -> tuple[Any, int]:
    """Return the JSON or Python literal at a place of a text, and its end."""
    try:
        return json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        pass
    end = _closing(text, begin)
    try:
        return to_utf8_json(ast.literal_eval(text[begin:end])), end
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise UsageError(
            f"the tools in the instructions cannot be read: {shown(text[begin:])}"
        ) from error


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[\]{}]", re.DOTALL)


def _closing(text: str, begin: int) -> int:
    """Return the end of the brackets that open at a place; quoted brackets do not count."""
    depth = 0
    for match in _QUOTED.finditer(text, begin):
        if match[0] in {"[", "{"}:
            depth += 1
        elif match[0] in {"]", "}"}:
            depth -= 1
            if depth == 0:
                return match.end()
    return len(text)


def _system_text(row: Row) -> str:
    """Return the instructions of a conversation in ShareGPT's form."""
    if isinstance(row.get("system"), str):
        return str(row["system"])
    turns = decode_json(row.get("conversations") or row.get("messages"))
    first = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(first, Mapping):
        return ""
    role = str(first.get("from", first.get("role"))).lower()
    text = first.get("value", first.get("content"))
    return text if role in {"system", "developer"} and isinstance(text, str) else ""


def _read_described(row: Row) -> Row:
    """Read a conversation whose instructions may list the tools."""
    text = _system_text(row)
    instructions, tools = split_instructions(text) if text else (text, None)
    if tools is None:
        return row
    described = row.get("tools") or row.get("functions") or tools
    if "system" in row and isinstance(row["system"], str):
        return {**row, "system": instructions, "tools": described}
    key = "conversations" if row.get("conversations") else "messages"
    first, *others = decode_json(row[key])
    where = "value" if "value" in first else "content"
    return {**row, key: [{**first, where: instructions}, *others], "tools": described}


def _has_marked_text(row: Row) -> bool:
    text = _system_text(row)
    return bool(_MARKED_TOOLS.search(text))


def _lists_functions(row: Row) -> bool:
    text = _system_text(row)
    return bool(_LIST_OF_TOOLS.search(text)) and not _MARKED_TOOLS.search(text)


def _is_mobile(row: Row) -> bool:
    messages = decode_json(row["messages"])
    roles: Sequence[Any] = messages if isinstance(messages, list) else ()
    return any(isinstance(m, Mapping) and m.get("role") == "developer" for m in roles)


def _is_xlam(row: Row) -> bool:
    """Return whether a row without answers is xLAM's, not padded from another format."""
    return row["answers"] is not None or not (row.get("messages") or row.get("conversations"))


def _is_glaive(row: Row) -> bool:
    text = row.get("chat") or row.get("sample")
    return isinstance(text, str) and _GLAIVE_TURN.search(text) is not None


SHAPES: tuple[RowShape, ...] = (
    RowShape(
        name="xlam",
        keys=frozenset({"query", "tools", "answers"}),
        nullable=frozenset({"tools", "answers"}),
        fits=_is_xlam,
        read=_read_xlam,
    ),
    RowShape(name="glaive", keys=frozenset({"chat"}), fits=_is_glaive, read=_read_glaive),
    RowShape(name="glaive", keys=frozenset({"sample"}), fits=_is_glaive, read=_read_glaive),
    RowShape(
        name="toolace",
        keys=frozenset({"conversations"}),
        fits=_lists_functions,
        read=_read_described,
    ),
    RowShape(name="hermes", keys=frozenset({"conversations"}), read=_read_described),
    RowShape(
        name="mobile-actions",
        keys=frozenset({"messages", "tools", "metadata"}),
        fits=_is_mobile,
        read=_read_described,
    ),
    RowShape(name="openai", keys=frozenset({"messages"}), read=_read_described),
)
"""The shapes, in the order in which they are recognised."""

FORMATS = tuple(dict.fromkeys(shape.name for shape in SHAPES))
"""The values of `--format`."""

OTHER_NAMES = {"sharegpt": "hermes", "apigen": "xlam", "messages": "openai"}
"""Other names of formats."""
