"""One balanced `{…}` of a model's text to a call, with the list of what had to be mended."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

from lhkit.json_values import NotJsonError, plain_json

_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("parameters", "arguments", "args")

_NAMED = re.compile(
    r"""\{\s*(?:["']function["']\s*:\s*\{\s*)?"""
    r"""["'](?:name|tool|tool_name|function)["']\s*:\s*["']([^"'\\]+)["']"""
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

_Call: TypeAlias = tuple[str, Any, list[str]]


def read_call(raw: str, known: Collection[str] = ()) -> tuple[str, Any, tuple[str, ...]] | None:
    """Return (name, arguments, repairs), or None if `raw` is an object but not a call.

    An object without arguments is a call only if it names a tool in `known`: models also write
    `{"name": "Kim"}` about people. An object that no reading makes sense of, but that names a
    tool, is returned with its raw text as arguments, so that validation can tell the model.
    Never raises.
    """
    loaded = _loaded(raw)
    call = _malformed(raw, known) if loaded is None else _call_in(*loaded, known)
    if call is None:
        return None
    name, args, repairs = call
    try:
        return name, plain_json(args), tuple(dict.fromkeys(repairs))
    except NotJsonError:  # nested too deep, or a number such as NaN or 1e999
        return name, raw, ("malformed",)


def _malformed(raw: str, known: Collection[str]) -> _Call | None:
    named = _NAMED.match(raw)
    if named is None or not (named.group(1) in known or _HAS_ARGUMENTS.search(raw)):
        return None
    return named.group(1), raw, ["malformed"]


def _call_in(value: Mapping[str, Any], repairs: list[str], known: Collection[str]) -> _Call | None:
    inner = value.get("function")
    if isinstance(inner, dict):
        return _call_of(inner, [*repairs, "nested_function"], known)
    return _call_of(value, repairs, known)


def _call_of(value: Mapping[str, Any], repairs: list[str], known: Collection[str]) -> _Call | None:
    name_key = next((key for key in _NAME_KEYS if _is_name(value.get(key))), None)
    if name_key is None:
        return None
    name = value[name_key]
    if name_key != _NAME_KEYS[0]:
        repairs = [*repairs, "name_key"]
    argument_key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    others = {key: item for key, item in value.items() if key not in {name_key, argument_key}}
    if argument_key is None:
        if name not in known:
            return None
        return name, others, [*repairs, "flat_parameters" if others else "no_parameters"]
    if _is_declaration(others, value[argument_key]):
        return None
    if argument_key != _ARGUMENT_KEYS[0]:
        repairs = [*repairs, "arguments_key"]
    if others:
        repairs = [*repairs, "extra_keys"]
    args, unpacked = _unpacked(value[argument_key])
    return name, args, [*repairs, *unpacked]


def _is_declaration(others: Mapping[str, Any], args: Any) -> bool:
    """Return True for a tool's declaration, which weak models copy out of their prompt."""
    return "description" in others and isinstance(args, dict) and args.get("type") == "object"


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _unpacked(args: Any) -> tuple[Any, list[str]]:
    """Return arguments that were written as a string of JSON as the object they are."""
    loaded = _loaded(args) if isinstance(args, str) else None
    if loaded is None or not isinstance(loaded[0], dict):
        return args, []
    return loaded[0], ["string_parameters", *loaded[1]]


def _loaded(raw: str) -> tuple[Any, list[str]] | None:
    """Return the value of the strictest reading that makes sense, and what it had to mend."""
    for text, mended in _readings(raw):
        for strict in (True, False):
            repairs = [*mended] if strict else [*mended, "control_character"]
            try:
                return _value(text, repairs, strict=strict), repairs
            except (ValueError, RecursionError):  # also an integer of more than 4,300 digits
                continue
    return None


def _readings(raw: str) -> Iterator[tuple[str, list[str]]]:
    yield raw, []
    yield _mended(raw)


def _value(text: str, repairs: list[str], *, strict: bool) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repairs.append("duplicate_key")
        return members

    return json.loads(text, strict=strict, object_pairs_hook=unique)


def _mended(raw: str) -> tuple[str, list[str]]:
    """Return `raw` as JSON where it was written as Python, and what was rewritten."""
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
