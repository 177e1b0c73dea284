"""Which request field a server does not support, by the words of its refusal.

A refusal that only names a field (its value is too large, a tool has an argument of that name) is
none of these.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

_UNKNOWN_FIELD = (  # Unrecognized request argument supplied: stream_options
    r"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|extra|does not support|not supported)"
    r"(?: \w+){0,2}? (?:parameter|argument|field|name|property|key|input|option)s?(?:\(s\))?"
    r"(?: supplied| provided)?:? ?[\[({]*(?:[\"'`]?\w+[\"'`]?, ?)*FIELD"
)
_NOT_SUPPORTED = (  # 'stream_options' is not supported
    r"FIELD(?: (?:parameter|field|argument|option))?(?: is| was| were)? "
    r"(?:not (?:yet |currently )?(?:supported|permitted|allowed|recogni[sz]ed|implemented)"
    r"|unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated)\b"
    r"(?! (?:to|above|below|over|when|if|unless|for values|with values?|together|in combin\w+)\b)"
)
_NOT_PERMITTED = r"FIELD:? extra (?:inputs|fields) (?:are )?not permitted"
_NOT_ZERO = (  # temperature must be strictly positive
    r"FIELD:? (?:value )?(?:must|should|has to) be (?:a )?(?:strictly )?"
    r"(?:positive|(?:(?:greater|larger|higher) than|>) ?0(?:\.0+)?(?!\.?\d)|in \(0"
    r"|(?:at least|>=|between) ?0\.\d*[1-9])"
)


def _refusing(name: str, *more: str) -> re.Pattern[str]:
    patterns = "|".join([_UNKNOWN_FIELD, _NOT_SUPPORTED, _NOT_PERMITTED, *more])
    named = rf"(?<![\w.\]/])[\"'`]?{name}[\"'`]?(?![\w\[]|\.\w)"  # not within `tools[0].{name}`
    return re.compile(patterns.replace("FIELD", named), re.IGNORECASE)


_REFUSING = {
    "stream_options": _refusing("stream_options"),
    "max_tokens": _refusing("max_tokens", r"use [\"'`]?max_completion_tokens\b"),
    "temperature": _refusing(
        "temperature",
        _NOT_ZERO,
        r"FIELD (?:does not support|only supports)\b",
        r"invalid FIELD:? only 1\b",
    ),
}
_OF_TOOLS = re.compile(r"\b(?:schema|function|tool)", re.IGNORECASE)
_EXTRA = ("extra_forbidden", "value_error.extra")
_READ_CHARS = 4_000


def refused_field(text: str) -> str:
    """Return the request field that an error body refuses; empty for other refusals.

    One of `stream_options`, `max_tokens` and `temperature` (of which 0 may be refused).
    """
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = text
    error = payload[0] if isinstance(payload, list) and payload else payload
    error = error.get("error") or error if isinstance(error, dict) else error
    told = error if isinstance(error, dict) else {"message": error}
    message = told.get("message") or told.get("detail")
    nested = message if isinstance(message, dict) else {}
    details = told.get("detail"), told.get("details"), nested.get("detail"), message
    entries = [each for some in details if isinstance(some, list) for each in some]
    if entries:
        return next(filter(None, map(_refused_place, entries)), "")
    names, words = list(_REFUSING), str(message)[:_READ_CHARS]
    if isinstance(param := told.get("param"), str) and param:
        names = [param] if param in _REFUSING else []
        code = told.get("code")
        no_zero = param == "temperature" and code == "unsupported_value"
        if names and (no_zero or code in ("unsupported_parameter", "unknown_parameter")):
            return param
    elif _OF_TOOLS.search(words):
        return ""
    return next((name for name in names if _REFUSING[name].search(words)), "")


def _refused_place(entry: Any) -> str:
    """Return the field that one of pydantic's errors refuses, as FastAPI's servers send them."""
    if not isinstance(entry, dict):
        return ""
    place, kind = entry.get("loc"), str(entry.get("type"))
    for name in _REFUSING:
        is_zero = name == "temperature" and kind.startswith("greater_than")
        if place in ([name], ["body", name]) and (kind in _EXTRA or is_zero):
            return name
    return ""


def without_refused(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return a request body for a server that refuses these fields.

    Only a temperature of 0, which is lhkit's own default, gives way to the server's.
    """
    sent = dict(body)
    if "stream_options" in refused:
        sent.pop("stream_options", None)
    if "temperature" in refused and sent.get("temperature") == 0:
        del sent["temperature"]
    if "max_tokens" in refused and "max_tokens" in sent:
        sent["max_completion_tokens"] = sent.pop("max_tokens")
    return sent
