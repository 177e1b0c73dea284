"""Read one message as OpenAI, Anthropic, Gemini, Bedrock, LangChain or ShareGPT write it.

Calls and results are taken from wherever they stand. A call that has no single meaning is an error,
never a message without calls.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact, shown
from lhkit.imports.decoding import decode_json, parse_unambiguous
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.arguments import read_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call: its ids, the name of its tool, its arguments and how they were repaired."""

    ids: frozenset[str] = frozenset()
    name: str
    args: Mapping[str, Any]
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenResult:
    """A result.

    Attributes:
        id: the id of its call, under a key for such ids; None if there is none.
        mentions: further texts of the message, one of which may be the id.
        name: the tool; None if it is not named.
        value: the result: text, or a JSON value.
        key: where the value stands.
        problem: why there is no value; empty if there is.
        is_error: the recording says that the call failed.
    """

    id: str | None = None
    mentions: frozenset[str] = frozenset()
    name: str | None = None
    value: Any = None
    key: str = "content"
    problem: str = ""
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class WrittenMessage:
    """A message: text, calls and results.

    Attributes:
        role: system, user, assistant, tool or reasoning; another one as it is written.
        text: the text.
        calls: the calls.
        results: the results.
        omitted: (code, detail) of the parts left out.
        is_no_call: the row says that there is no call, and has no text.
    """

    role: str
    text: str = ""
    calls: list[WrittenCall] = field(default_factory=list)
    results: list[WrittenResult] = field(default_factory=list)
    omitted: list[tuple[str, str]] = field(default_factory=list)
    is_no_call: bool = False


NO_CALL = "no_call"
"""The key of a message by which a row says that there is no call, such as `"answers": "[]"`."""

_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "gpt", "model", "bot", "chatgpt"), "assistant"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
    **dict.fromkeys(("tool", "function", "ipython", "observation", "environment"), "tool"),
    **dict.fromkeys(("tool_response", "function_response", "tool_result", "tool_output"), "tool"),
    **dict.fromkeys(("function_call_output", "custom_tool_call_output"), "tool"),
    "reasoning": "reasoning",
}
_CALL_KEYS = (
    *("tool_calls", "toolCalls", "function_calls", "functionCalls"),
    *("function_call", "functionCall", "tool_call", "toolCall"),
)
_CALL_LIKE = re.compile(
    r"(tool|function|mcp|action).?(call|use|invo)|^(actions?|invocations?)$", re.IGNORECASE
)
_NAME_KEYS = ("name", "tool_name", "tool", "function_name", "recipient_name")
_ARGUMENT_KEYS = ("arguments", "args", "input", "parameters", "params", "kwargs")
_ID_KEYS = (
    *("tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId", "callId"),
    "function_call_id",
)
_VALUE_KEYS = (
    *("content", "output", "result", "results", "response", "value", "return_value", "returned"),
    "data",
    *("text", "parts", "observation", "answer", "error"),
)
_ABOUT_RESULT = frozenset(
    {*_ID_KEYS, *_NAME_KEYS, "id", "role", "from", "type", "index", "status", "is_error", "isError"}
    | {
        "timestamp",
        "created_at",
        "created",
        "metadata",
        "usage",
        "model",
        "cache_control",
        "weight",
    }
    | {"additional_kwargs", "response_metadata", "example", "tool_calls", "function_call"}
)
_TEXT_KEYS = ("text", "refusal")
_MEDIA_KEYS = frozenset(
    {"inlineData", "inline_data", "fileData", "file_data", "image_url", "image", "audio", "file"}
)
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning", "thought"})
_THINKING_KEYS = ("reasoning_content", "reasoning", "thinking")
_PART_TYPES = frozenset(
    {"text", "input_text", "output_text", "refusal", "image_url", "image", "input_image"}
    | {"input_audio", "audio", "file", "input_file", "video_url", "document"}
)


def is_message(entry: Any) -> bool:
    """Return whether this is a message: of a role, from a sender, or an item of a known type."""
    if not isinstance(entry, Mapping):
        return False
    kind = str(entry.get("type")).strip().lower()
    is_item = kind in _ROLES or kind.endswith(("_call", "_call_output"))
    return "role" in entry or {"from", "value"} <= entry.keys() or is_item


def read_message(
    message: Mapping[str, Any],
    tools: Collection[str] = (),
    renamed: Mapping[str, str] = MappingProxyType({}),
    *,
    is_data_set: bool = False,
) -> WrittenMessage:
    """Read a message.

    Args:
        message: the message.
        tools: the names of the tools, for calls that are written as text.
        renamed: the new names of tools that the message calls by another.
        is_data_set: a text that has the form of a call is one, also of a tool that is not listed.

    Raises:
        UsageError: it has a call that cannot be taken; the message is the reason.
    """
    if isinstance(message.get("data"), Mapping) and message.keys() == {"type", "data"}:
        message = {**message["data"], "type": message["type"]}  # LangChain
    kind = message.get("role") or message.get("from") or message.get("type")
    role = _ROLES.get(str(kind).strip().lower(), "")
    written = WrittenMessage(role=role or str(kind), is_no_call=message.get(NO_CALL) is True)
    if role == "tool":
        written.results += _read_results(message, written)
        return written
    if role == "call":
        content = message.get("content", message.get("value", message))
        written.role = "assistant"
        written.calls += _read_calls(content, str(kind))
        return written
    if role == "reasoning":
        written.omitted.append(("reasoning", ""))
        return written
    _read_content(message, written)
    calls = list(_message_calls(message))
    if role == "user" and not calls:
        _read_text_results(written)
    if role != "assistant":
        if calls or written.calls:
            raise UsageError(f"the role {kind!r} has calls")
        return written
    known = {call_id for call in written.calls for call_id in call.ids}
    written.calls += [call for call in calls if not call.ids & known]  # LangChain writes both
    written.omitted += [("reasoning", "") for key in _THINKING_KEYS if message.get(key)]
    if not written.calls and _looks_like_call(message):  # or the name of a participant
        call = _read_call(message, "the message")
        if call.name in tools:
            written.calls.append(call)
        elif not written.text.strip():
            raise UsageError(f"a call of a form that is not known: {shown(message)}")
    if not written.calls:
        _read_text_calls(written, tools, renamed, is_data_set=is_data_set)
    return written


def _read_content(message: Mapping[str, Any], written: WrittenMessage) -> None:
    """Read the text and the blocks of the content."""
    keys = ("content", "refusal", "value", "parts", "text")  # a reply has one of the first two
    content = next((message[key] for key in keys if message.get(key)), None)
    if content is None or isinstance(content, str):
        written.text = content or ""
        return
    if not isinstance(content, list) or not all(isinstance(p, str | Mapping) for p in content):
        written.text = compact(content)
        return
    texts = []
    for part in content:
        text = part if isinstance(part, str) else _read_block(part, written)
        if isinstance(text, str):
            texts.append(text)
    written.text = "\n".join(texts)


def _read_block(block: Mapping[str, Any], written: WrittenMessage) -> str | None:
    """Return the text of a content block; add its call or result to the message."""
    kind = str(block.get("type") or "")
    keys = [key for key, value in block.items() if value is not None]
    for key in ("toolUse", "functionCall", "function_call", "tool_use", "tool_call"):
        if kind == key or (not kind and isinstance(block.get(key), Mapping)):
            written.calls += _read_calls(block.get(key) or block, key)
            return None
    for key in ("toolResult", "functionResponse", "function_response", "tool_result"):
        if kind == key or (not kind and isinstance(block.get(key), Mapping)):
            written.results += _read_results(block.get(key) or block, written)
            return None
    if kind in _THINKING or block.get("thought") is True:
        written.omitted.append(("reasoning", ""))
        return None
    if (text := _text_of(block)) is not None:
        return text
    if _looks_like_call(block) and not kind:
        written.calls.append(_read_call(block, "a content block"))
        return None
    inner = [block, *(value for value in block.values() if isinstance(value, Mapping))]
    is_named = any(map(_CALL_LIKE.search, (kind, *keys))) or kind.endswith("_call")
    is_known = kind in _PART_TYPES or not keys or not _MEDIA_KEYS.isdisjoint(keys)
    is_unknown_answer = written.role == "assistant" and not is_known  # which may be a call
    if is_named or is_unknown_answer or any(map(_looks_like_call, inner)):
        raise UsageError(f"a call of a form that is not known: {shown(block)}")
    written.omitted.append(("part", kind or ", ".join(map(str, keys))))
    return None


def _looks_like_call(value: Mapping[str, Any]) -> bool:
    """Return whether an object has the name of a tool and arguments."""
    return any(isinstance(value.get(key), str) for key in _NAME_KEYS) and any(
        key in value for key in _ARGUMENT_KEYS
    )


def _text_of(part: Mapping[str, Any]) -> str | None:
    texts = (part.get(key) for key in _TEXT_KEYS)
    return next((text for text in texts if isinstance(text, str)), None)


def _message_calls(message: Mapping[str, Any]) -> Iterator[WrittenCall]:
    """Yield the calls under the keys of a message, without those in its content."""
    kind = str(message.get("type") or "")
    if kind.endswith("_call"):  # an item of a response: web_search_call and the like
        raise UsageError(f"a call of the provider's own tool ({kind}) cannot be repeated")
    more = message.get("additional_kwargs")
    sources = [message, more] if isinstance(more, Mapping) else [message]
    for source in sources:
        found = [key for key in _CALL_KEYS if _is_given(decode_json(source.get(key)))]
        for key in found:
            yield from _read_calls(source[key], key)
        for key, value in source.items():
            is_other = key not in _CALL_KEYS and not key.lower().endswith(("id", "ids"))
            is_empty = isinstance(value, bool | int | float) or not value
            if is_other and not is_empty and _CALL_LIKE.search(key):
                raise UsageError(f"calls of a form that is not known: {key}")
        if found:
            return


def _is_given(value: Any) -> bool:
    """Return whether a value is more than the padding of a table: an object of nulls is not."""
    return value not in ("", [], {}) and not _is_null(value)


def _is_null(value: Any) -> bool:
    if isinstance(value, Mapping) and value:
        return all(map(_is_null, value.values()))
    return value is None


def _read_calls(value: Any, key: str) -> Iterator[WrittenCall]:
    """Yield the calls of a list, or a single call.

    Raises:
        UsageError: one cannot be taken.
    """
    calls = decode_json(value)
    if isinstance(calls, Mapping):
        yield _read_call(calls, key)
        return
    if not isinstance(calls, list):
        raise UsageError(f"{key} must be a list of calls: {shown(calls)}")
    if calls and all(call is None for call in calls):
        raise UsageError(f"{key} has only null")
    for number, call in enumerate(calls):
        if call is not None:  # the padding of a table
            yield _read_call(decode_json(call), f"{key}[{number}]")


def _read_call(call: Any, label: str) -> WrittenCall:
    if not isinstance(call, Mapping):
        raise UsageError(f"{label} is not a call: {shown(call)}")
    inner: Any = call
    for key in ("function", "functionCall", "toolUse", "tool_use"):
        value = decode_json(call.get(key))
        if isinstance(value, Mapping):
            inner = value
        elif isinstance(value, str) and key == "function" and not call.get("name"):
            inner = {**call, "name": value}
    if call.get("type") == "custom" or "custom" in call:
        raise UsageError(f"{label} is a call with free text, not with arguments")
    names = (source.get(key) for source in (inner, call) for key in _NAME_KEYS)
    name = next((value for value in names if isinstance(value, str) and value.strip()), None)
    if name is None:
        raise UsageError(f"{label} has no function name")
    name = name.strip()
    given = [(source, key) for source in (inner, call) for key in _ARGUMENT_KEYS if key in source]
    filled = [source[key] for source, key in given if source[key] is not None]
    if not given and (others := _unknown_keys(call, inner)):
        raise UsageError(f"{label} of {name} has no arguments, but {', '.join(others)}")
    value = filled[0] if filled else {}
    args, repairs = read_arguments(value, parse=parse_unambiguous)
    if not isinstance(args, Mapping):
        raise UsageError(f"{name}: the arguments are not a JSON object: {shown(value)}")
    ids = (source.get(key) for source in (call, inner) for key in ("id", *_ID_KEYS))
    return WrittenCall(
        ids=frozenset(filter(None, map(_parse_id, ids))),
        name=name,
        args=args,
        repairs=repairs if filled else (),
    )


def _unknown_keys(call: Mapping[str, Any], inner: Mapping[str, Any]) -> list[str]:
    """Return keys whose values may be the arguments."""
    return [
        str(key)
        for source in (call, inner)
        for key, value in source.items()
        if value is not inner and isinstance(decode_json(value), dict | list) and value
    ]


def _parse_id(value: Any) -> str | None:
    is_id = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return str(value) if is_id else None


def _read_results(message: Mapping[str, Any], written: WrittenMessage) -> Iterator[WrittenResult]:
    """Yield the results of a message; most have one."""
    key, value, problem = _find_value(message)
    own = _result_of(message, key, problem)
    value, parts, are_results = _response_parts(value)
    if are_results:  # Gemma writes [{name, response}, …]
        for part in parts:
            inner = next(
                (part[k] for k in _RESPONSE_KEYS if isinstance(part.get(k), Mapping)), part
            )
            yield from _read_results(inner, written)
        return
    if parts and all(map(_is_part, parts)):
        texts = []
        for part in parts:
            if (text := _text_of(part)) is not None:
                texts.append(text)
            elif "json" in part and len(parts) == 1:  # Bedrock
                texts.append(compact(part["json"]))
            else:
                written.omitted.append(("part", str(part.get("type", ""))))
        value = "\n".join(texts)
        if not texts:
            own = _result_of(message, key, "only parts that are not text")
    yield WrittenResult(
        id=own.id,
        mentions=own.mentions,
        name=own.name,
        value=value,
        key=own.key,
        problem=own.problem,
        is_error=own.is_error,
    )


_RESPONSE_KEYS = ("functionResponse", "function_response", "toolResult")


def _is_result(part: Any) -> bool:
    """Return whether an item of a list is the result of a call, not data."""
    if not isinstance(part, Mapping):
        return False
    if any(isinstance(part.get(key), Mapping) for key in _RESPONSE_KEYS):
        return True
    has_value = any(key in part for key in ("response", "results", "content", "output"))
    return has_value and (
        any(key in part for key in _ID_KEYS)
        or part.keys() <= {"name", "response", "id"}
        or part.keys() <= {"name", "arguments", "results"}  # ToolACE
    )


def _is_part(part: Any) -> bool:
    """Return whether this is a content part; in a result, objects and strings may be data."""
    if not isinstance(part, Mapping):
        return False
    is_bare = part.keys() in ({"text"}, {"json"})  # Bedrock and Gemini
    return is_bare or part.get("type") in _PART_TYPES


def _result_of(message: Mapping[str, Any], key: str, problem: str) -> WrittenResult:
    ids = (_parse_id(message.get(id_key)) for id_key in _ID_KEYS)
    names = (message.get(name_key) for name_key in _NAME_KEYS)
    about = [value for other, value in message.items() if other not in {key, "id", *_NAME_KEYS}]
    inner = decode_json(message.get(key))
    inner_ids = [inner.get(id_key) for id_key in _ID_KEYS] if isinstance(inner, Mapping) else []
    possible = [message.get("id"), *inner_ids]  # the first is often the message's own
    status = str(message.get("status", "")).lower()
    return WrittenResult(
        id=next(filter(None, ids), None),
        mentions=frozenset([*_texts_in(about), *filter(None, map(_parse_id, possible))]),
        name=next((name for name in names if isinstance(name, str) and name), None),
        key=key,
        problem=problem,
        is_error=message.get("is_error") is True
        or message.get("isError") is True
        or status in {"error", "failed"}
        or key == "error",
    )


def _find_value(message: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Return key, value and problem of a result.

    Known keys come first; of others, one that stands alone is the value. A null or an empty text
    is the value only if there is no other.
    """
    others = [key for key in message if key not in {*_VALUE_KEYS, *_ABOUT_RESULT}]
    keys = [key for key in _VALUE_KEYS if key in message]
    given = [key for key in keys if message[key] is not None and message[key] != ""]
    unknown = [key for key in others if message[key] is not None]
    if not given and not (keys and message[keys[0]] == "") and len(unknown) == 1:
        given = unknown
    if not given and keys:  # an empty text before a null
        given = sorted(keys, key=lambda key: message[key] is None)[:1]
    if not given:
        return "", None, f"no known key for the result among {', '.join(map(str, message))}"
    return given[0], message[given[0]], ""


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, str):
        yield value


_RESPONSE = re.compile(
    r"<(tool|function)_(?:response|result|output)>\s*(.*?)\s*</\1_\w+>", re.DOTALL
)


def _response_parts(value: Any) -> tuple[Any, list[Any], bool]:
    """Return a value without `<tool_response>` around it, its parts, and whether all are results.

    JSON text, and an object in `<tool_response>`, has no parts unless all are named results.
    """
    blocks = _response_blocks(value) if isinstance(value, str) else []
    if blocks:
        decoded = [decode_json(block) for block in blocks]
        if all(map(_is_named, decoded)):  # Hermes writes {name, content}
            return value, decoded, True
        if len(blocks) > 1:
            return blocks, [{"response": block} for block in blocks], True
        value = blocks[0]
    if isinstance(value, list):
        return value, value, bool(value) and all(map(_is_result, value))
    listed = decode_json(value)
    if isinstance(listed, list) and listed and all(map(_is_named, listed)):
        return value, listed, True
    return value, [], False


def _response_blocks(text: str) -> list[str]:
    """Return the texts within `<tool_response>`, if the text consists of them."""
    is_all = _RESPONSE.match(text.strip()) and not _RESPONSE.sub("", text).strip()
    return [match[2] for match in _RESPONSE.finditer(text)] if is_all else []


def _is_named(part: Any) -> bool:
    """Return whether this is an object of the name of a tool, its result, and nothing else."""
    forms = ({"name", "response"}, {"name", "content"}, {"name", "results"})
    is_object = isinstance(part, Mapping) and isinstance(part.get("name"), str)
    return is_object and part.keys() - {"arguments", "id"} in forms


def _read_text_results(written: WrittenMessage) -> None:
    """Take results that a user message consists of, as prompts of some models write them."""
    if blocks := _response_blocks(written.text):
        written.results += [WrittenResult(value=block) for block in blocks]
        written.text = ""


_MARK = re.compile(
    r"<\|?/?(?:tool|function)[_ ]?(?:call|use|code|invocation)s?\b|<function=|<invoke\b"
    r"|<start_function_call>|\[TOOL_CALLS?\]|<\|python_tag\|>|<[｜|]tool[▁_]calls?"
    r"|```tool_(?:code|call)|\bto=functions\.|✿FUNCTION✿"
    r"|^\s*Action Input\s*:|^\s*Action\s*:\s*[a-z_][\w-]*[\[(]",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<(/?)(?:tool|function)_?(?:calls?|use)>")
_PLAIN_MARK = re.compile(r"\[TOOL_CALLS?\]|<\|python_tag\|>")
_DIALECT_MARKS = {"<|tool_call>": "gemma4", "<start_function_call>": "functiongemma"}
_NAMED = re.compile(r"""["'](?:name|tool|tool_name|function)["']\s*:\s*["']([^"'\\]{1,64})["']""")
_FENCE = re.compile(r"```\w*")
_PYTHON_CALL = re.compile(r"\[?\s*([A-Za-z_][\w-]*)\s*\(.*\)\s*,?\s*\]?", re.DOTALL)


def _read_text_calls(
    written: WrittenMessage,
    tools: Collection[str],
    renamed: Mapping[str, str],
    *,
    is_data_set: bool,
) -> None:
    """Take the calls that are written in the text, if there are any.

    Raises:
        UsageError: there are calls that cannot be read.
    """
    source = written.text
    for old in sorted(renamed, key=len, reverse=True):  # `Market Trends(…)` is not Python
        source = re.sub(rf"(?<![\w.]){re.escape(old)}(?=\s*\()", renamed[old], source)
    names = {*tools, *renamed}
    dialect = _text_dialect(source, names)
    if dialect is None:
        if _is_like_call(written.text, names):
            raise UsageError(f"a call in the text cannot be read: {shown(written.text)}")
        if _is_unlisted_call(written.text, tools, is_data_set=is_data_set):
            raise UsageError(
                f"a call in the text of a tool that is not listed: {shown(written.text)}"
            )
        return
    text = _PLAIN_MARK.sub("", _TAG.sub(r"<\1tool_call>", source))
    parsed = DIALECTS[dialect].parse(text, [{"name": name} for name in tools])
    is_whole = not parsed.fragment and not _MARK.search(parsed.text)
    if not parsed.calls or not is_whole or any(_is_broken(call.repairs) for call in parsed.calls):
        raise UsageError(f"a call in the text cannot be read: {shown(written.text)}")
    for call in parsed.calls:
        args, _ = read_arguments(call.args)
        if not isinstance(args, Mapping):
            raise UsageError(f"{call.name}: the arguments are not a JSON object: {shown(args)}")
        written.calls.append(WrittenCall(name=call.name, args=args))
    written.omitted.append(("text_calls", ", ".join(call.name for call in parsed.calls)))
    written.text = parsed.text


def _is_like_call(text: str, tools: Collection[str]) -> bool:
    """Return whether a text has a call in a notation of its own: `[find-["day"-1]]`, `find(day=1)`.

    Brackets at the beginning and the name of a tool, a name with named arguments, a call in
    brackets or on a line of its own, or nothing but names of tools.
    """
    if not tools:
        return False
    names = "|".join(map(re.escape, sorted(tools, key=len, reverse=True)))
    if re.search(rf"(?<![\w.])(?:{names})\s*\(\s*\w+\s*=(?!=)", text):
        return True
    if re.search(rf"\[\s*(?:{names})\s*\([^()]*\)\s*[],]", text):
        return True
    if re.search(rf"^\s*(?:{names})\s*\([^()]*\)\s*$", text, re.MULTILINE):
        return True
    if re.fullmatch(rf"\s*\[?\s*(?:{names})(?:\s*,\s*(?:{names}))*\s*\]?\s*", text):
        return True
    is_opened = text.lstrip()[:1] in _OPENING
    return is_opened and bool(re.search(rf"(?<![\w.])(?:{names})\s*[-|:]?\s*[\[(<{{|]", text))


_OPENING = frozenset("[{<(")
_UNLISTED_CALL = re.compile(
    # [Name(…)], as ToolACE writes it, or name(x=1) and name() as the whole text
    r"\[\s*[^\W\d][\w .:/-]*\((?:\s*\w+\s*=(?!=).*|\s*)\)\s*\]"
    r"|[^\W\d][\w.-]*\((?:\s*\w+\s*=(?!=).*|\s*)\)",
    re.DOTALL,
)
_BRACKETED_CALL = re.compile(r"\[\s*[^\W\d][\w .:/-]*\((?:\s*\w+\s*=(?!=)[^()]*|\s*)\)\s*[],]")
_CALL_OBJECT = re.compile(  # not the description of a tool, whose parameters are a schema
    r"""\{\s*["'](?:name|tool|tool_name|function)["']\s*:\s*["'][^"'\n]{1,64}["']\s*,\s*"""
    r"""["'](?:arguments|parameters|args)["']\s*:\s*["']?\{(?!\s*["'](?:type|properties)["'])"""
)


def _is_unlisted_call(text: str, tools: Collection[str], *, is_data_set: bool) -> bool:
    """Return whether a text is, or in a data set with tools has, a call of another tool."""
    text = text.strip()
    if (fence := _FENCE.match(text)) and text.endswith("```"):
        text = text[fence.end() : -3].strip()
    if (tools and is_data_set) and (
        _UNLISTED_CALL.fullmatch(text)
        or any(pattern.search(text) for pattern in (_CALL_OBJECT, _BRACKETED_CALL))
    ):
        return True
    value = decode_json(text)
    items = value if isinstance(value, list) else [value]
    forms = [{"name", "arguments"}, *([] if tools else [{"name", "parameters"}])]
    return bool(items) and all(
        isinstance(item, Mapping)
        and item.keys() - {"id", "type"} in forms
        and isinstance(item["name"], str)
        and isinstance(item.get("arguments", item.get("parameters")), Mapping)
        for item in items
    )


def _is_broken(repairs: Sequence[str]) -> bool:
    """Return whether a call has no single meaning: it cannot be read, or has an argument twice."""
    return not {"malformed", "duplicate_key"}.isdisjoint(repairs)


def _text_dialect(text: str, tools: Collection[str]) -> str | None:
    """Return the dialect of the calls in a text; None if there seems to be none."""
    if match := _MARK.search(text):
        if "```" in match.group():
            return "pythonic"
        return next((name for mark, name in _DIALECT_MARKS.items() if mark in text), "json")
    if any(match[1] in tools for match in _NAMED.finditer(text)):
        return "json"
    match = _PYTHON_CALL.fullmatch(text.strip())
    return "pythonic" if match and match[1] in tools else None
