"""Read calls from JSON objects, in the shapes in which models write them.

An object is a call if it names a tool and has arguments; its name comes first, or it names a tool
that is known. Calls may be wrapped in other objects and lists. Any other object is an answer.

Repairs: `name_key`, `name_prefix`, `arguments_key`, `no_parameters`, `flat_parameters`,
`nested_function`, `in_object`, `string_parameters`, `extra_keys`, `duplicate_key` and those of
`arguments`; in its notation `control_character`, `bad_escape`, `trailing_comma`,
`python_literal`, `malformed`.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lhkit.base.json_values import NotJsonError, plain_json
from lhkit.models.dialects.arguments import read_arguments

FIRST_KEYS = ("name", "tool", "tool_name", "function", "parameters", "arguments", "args")
"""Keys that begin a call."""
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_MORE_NAME_KEYS = ("function_name", "action", "recipient_name")
_ARGUMENT_KEYS = ("parameters", "arguments", "args")
_MORE_ARGUMENT_KEYS = (
    *("input", "tool_input", "action_input", "function_args", "tool_args", "params", "kwargs"),
    *("function_arguments", "tool_arguments", "tool_parameters"),
)
_NAME_PREFIX = "functions."
"""The namespace of tools in OpenAI's own prompts, which models copy."""
_WRAPPERS = frozenset({"tool_calls", "tool_call", "function_calls", "function_call"})
_CALL_TYPES = frozenset({"function", "function_call", "tool_call", "tool_use", "tool"})
_THOUGHTS = frozenset(
    {"thought", "thoughts", "thinking", "reasoning", "reason", "rationale", "explanation"}
)
_SCHEMA_KEYS = frozenset({"type", "properties"})
_MAX_DEPTH = 8

_STRING = r"""(?:"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')"""
_SCALAR = rf"(?:{_STRING}|[\w.+-]+)"
_NAMED = re.compile(
    rf"""\{{\s*(?:{_STRING}\s*:\s*{_SCALAR}\s*,\s*){{0,9}}"""
    r"""(?:["']function["']\s*:\s*\{\s*)?"""
    r"""["'](?P<key>name|tool|tool_name|function|function_name)["']\s*:\s*["'](?P<name>[^"'\\]+)["']""",
    re.DOTALL,
)
_HAS_ARGUMENTS = re.compile(r"""["'](?:parameters|arguments|args)["']\s*:""")

_NOT_JSON = re.compile(
    r'''"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"'''
    r"""|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'"""
    r"""|\b(?P<word>True|False|None)\b"""
    r"""|(?P<comma>,)(?=\s*[}\]])""",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_IN_STRING = re.compile(r'\\(?P<escaped>.)|"', re.DOTALL)
_JSON_ESCAPES = frozenset('"\\/bfnrtu')

_FIRST = re.compile(rf"""\{{\s*["'](?:{"|".join(FIRST_KEYS)})["']""")

_Call: TypeAlias = tuple[str, Any, list[str]]


ParsedCall: TypeAlias = tuple[str, Any, tuple[str, ...]]
"""Name, arguments and repairs of a call."""


def read_calls(raw: str, known: Collection[str] = ()) -> Sequence[ParsedCall]:
    """Return the calls of an object; none if it is an answer, or cannot be parsed.

    An object that cannot be parsed, but names a tool, has its raw text as arguments, so that
    validation reports it to the model. Never raises.
    """
    loaded = loads(raw)
    if loaded is None:
        return [_parsed(call, raw) for call in _malformed(raw, known)]
    value, repaired = loaded
    return [
        _parsed((name, args, [*repaired, *repairs]), raw)
        for name, args, repairs in _calls_in(value, known, depth=0)
    ]


def begins_call(raw: str, known: Collection[str]) -> bool:
    """Return True if an object without end has the name of a tool among its first members."""
    named = _NAMED.match(raw)
    return named is not None and named.group("name") in known


def _parsed(call: _Call, raw: str) -> ParsedCall:
    name, args, repairs = call
    try:
        return name, plain_json(args), tuple(dict.fromkeys(repairs))
    except NotJsonError:  # nested too deeply, or a number such as NaN or 1e999
        return name, raw, ("malformed",)


def _malformed(raw: str, known: Collection[str]) -> Iterator[_Call]:
    named = _NAMED.match(raw)
    if named is None:
        return
    has_arguments = _HAS_ARGUMENTS.search(raw) is not None
    if named.group("name") in known or (_FIRST.match(raw) and has_arguments):
        yield named.group("name"), raw, ["malformed"]


def _calls_in(
    value: Any, known: Collection[str], *, depth: int, is_wrapped: bool = False
) -> list[_Call]:
    """Return the calls in a value: a call, a list of calls, or these in an object."""
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, list):
        items = [_calls_in(item, known, depth=depth + 1, is_wrapped=is_wrapped) for item in value]
        return [call for calls in items for call in calls] if all(items) else []
    if not isinstance(value, dict):
        return []
    if call := _call(value, known, is_inner=depth > 0, is_wrapped=is_wrapped):
        return [call]
    calls: list[_Call] = []
    for key, item in value.items():
        is_inner_wrapped = is_wrapped or key in _WRAPPERS
        calls += _calls_in(item, known, depth=depth + 1, is_wrapped=is_inner_wrapped)
    codes = ["in_object", *(["extra_keys"] if len(value) > 1 else [])]
    return [(name, args, [*codes, *repairs]) for name, args, repairs in calls]


def _call(
    value: Mapping[str, Any], known: Collection[str], *, is_inner: bool, is_wrapped: bool
) -> _Call | None:
    """Return the call that an object is; see the module.

    Args:
        value: the object.
        known: names of the tools.
        is_inner: it is within another object.
        is_wrapped: it is within an object that has calls only.
    """
    is_typed = isinstance(value.get("type"), str) and value["type"] in _CALL_TYPES
    inner = value.get("function")
    if isinstance(inner, dict):
        is_first = not is_inner and next(iter(value)) == "function"
        call = _direct(
            inner, known, is_certain=is_first or is_typed or is_wrapped, may_be_flat=True
        )
        return None if call is None else (call[0], call[1], ["nested_function", *call[2]])
    is_first = not is_inner and next(iter(value), "") in FIRST_KEYS
    return _direct(
        value, known, is_certain=is_first or is_typed or is_wrapped, may_be_flat=is_first
    )


def _direct(
    value: Mapping[str, Any], known: Collection[str], *, is_certain: bool, may_be_flat: bool
) -> _Call | None:
    """Return the call of an object with a name and arguments.

    Args:
        value: the object.
        known: names of the tools.
        is_certain: it is a call even if the tool is not known.
        may_be_flat: its other members may be the arguments.
    """
    name_key = _name_key(value, known)
    if name_key is None:
        return None
    name = _tool_name(value[name_key], known)
    is_known = name in known
    argument_key = _argument_key(value, is_known=is_known)
    if not is_known and (not is_certain or argument_key is None or name_key in _MORE_NAME_KEYS):
        return None
    repairs = [] if name_key == _NAME_KEYS[0] else ["name_key"]
    if name != value[name_key].strip():
        repairs.append("name_prefix")
    others = {key: item for key, item in value.items() if key not in {name_key, argument_key}}
    if argument_key is None:
        thoughts = others.keys() - ({"type"} if is_certain else set())
        if thoughts <= _THOUGHTS and (is_certain or thoughts):
            return name, {}, [*repairs, "no_parameters"]
        if not may_be_flat or name_key in _MORE_NAME_KEYS:
            return None
        return name, others, [*repairs, "flat_parameters" if others else "no_parameters"]
    if _is_schema(value[argument_key], has_description="description" in others):
        return None  # a tool's declaration, which weak models copy from the prompt
    if argument_key != _ARGUMENT_KEYS[0]:
        repairs.append("arguments_key")
    if others:
        repairs.append("extra_keys")
    return name, *_arguments(value[argument_key], repairs)


def _name_key(value: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Return the key of the tool's name, that of a known tool if there are several."""
    keys = [
        key
        for key in (*_NAME_KEYS, *_MORE_NAME_KEYS)
        if isinstance(value.get(key), str) and value[key].strip()
    ]
    names = {key: _tool_name(value[key], known) for key in keys}
    return next((key for key in keys if names[key] in known), next(iter(keys), None))


def _tool_name(written: str, known: Collection[str]) -> str:
    """Return a tool's name without blanks around it, and without a prefix if it is known so."""
    name = written.strip()
    short = name.removeprefix(_NAME_PREFIX)
    return short if short in known and name not in known else name


def _argument_key(value: Mapping[str, Any], *, is_known: bool) -> str | None:
    """Return the key of the arguments, one that is not null if there are several."""
    keys = [key for key in _ARGUMENT_KEYS if key in value]
    if is_known and not keys:
        keys = [
            key
            for key in _MORE_ARGUMENT_KEYS
            if key in value and isinstance(read_arguments(value[key], parse=_parse)[0], dict)
        ]
    return next((key for key in keys if value[key] is not None), next(iter(keys), None))


def _is_schema(args: Any, *, has_description: bool) -> bool:
    """Return True for the parameters of a tool's declaration."""
    if not isinstance(args, dict) or args.get("type") != "object":
        return False
    return has_description or (args.keys() >= _SCHEMA_KEYS and isinstance(args["properties"], dict))


def _arguments(written: Any, repairs: list[str]) -> tuple[Any, list[str]]:
    """Return (arguments, repairs); arguments that are not an object stay as they were written."""
    codes: list[str] = []

    def parse(text: str) -> Any:
        return _parse(text, codes)

    args, found = read_arguments(written, parse=parse)
    if isinstance(args, dict):
        return args, [*repairs, *codes, *found]
    return written, repairs


def _parse(text: str, codes: list[str] | None = None) -> Any:
    loaded = loads(text)
    if loaded is None:
        raise ValueError("not JSON")
    if codes is not None:
        codes.extend(["string_parameters", *loaded[1]])
    return loaded[0]


def loads(raw: str) -> tuple[Any, list[str]] | None:
    """Return the value by the strictest parsing that succeeds, and the codes of repairs."""
    for repair in (False, True):
        text, repaired = _repair_python(raw) if repair else (raw, [])
        for strict in (True, False):
            repairs = [*repaired] if strict else [*repaired, "control_character"]
            try:
                return _value(text, repairs, strict=strict), repairs
            except (ValueError, RecursionError):  # also an integer of more than 4,300 digits
                continue
    return None


def _value(text: str, repairs: list[str], *, strict: bool) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repairs.append("duplicate_key")
        return members

    return json.loads(text, strict=strict, object_pairs_hook=unique)


def _repair_python(raw: str) -> tuple[str, list[str]]:
    """Return `raw` with Python notation rewritten as JSON, and the codes of repairs."""
    repairs: list[str] = []

    def rewrite(match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        if kind == "word":
            repairs.append("python_literal")
            return _WORDS[match.group()]
        if kind == "comma":
            repairs.append("trailing_comma")
            return ""
        if kind == "single":
            repairs.append("python_literal")
        return f'"{_IN_STRING.sub(unescape, match.group(kind))}"'

    def unescape(match: re.Match[str]) -> str:
        escaped = match.group("escaped")
        if escaped is None:
            return '\\"'
        if escaped in _JSON_ESCAPES:
            return match.group()
        repairs.append("bad_escape")
        return "'" if escaped == "'" else f"\\\\{escaped}"

    text = _NOT_JSON.sub(rewrite, raw)
    return text, list(dict.fromkeys(repairs))
