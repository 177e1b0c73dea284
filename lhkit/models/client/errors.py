"""Translate HTTP and transport errors into lhkit's exceptions."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from lhkit.base.errors import (
    ContextTooLongError,
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
)
from lhkit.base.redaction import masked
from lhkit.models.address import invalid_address

_SHOWN_CHARS = 300
_NO_SUCH_MODEL = re.compile(r"model\b.*(?:does not exist|not found)", re.IGNORECASE)
_NO_PARSER = re.compile(r"tool choice requires .*--tool-call-parser", re.IGNORECASE)
_TOO_LONG = re.compile(r"context (?:length|size)|maximum model length", re.IGNORECASE)
_FIELD = re.compile(  # of the request itself
    r"(?<![\w.\]/])(stream_options|max_tokens|max_completion_tokens|temperature)(?![\w\[]|\.\w)"
)
_LIMITS = ("max_tokens", "max_completion_tokens")
"""The names of the output limit, which chat requests have both: many servers read only one."""
LOGPROBS = ("logprobs", "n_probs")
"""The names of the field that requests log-probabilities: OpenAI's, llama.cpp's."""
_ABOUT_LOGPROBS = re.compile(r"log[_ -]?prob|n_probs", re.IGNORECASE)
_USE_LIMIT = re.compile(r"\buse [\"'`]*(max_tokens|max_completion_tokens)\b", re.IGNORECASE)
_NOT_TOGETHER = re.compile(
    r"\b(?:both|together|mutual\w*|one of|only one|at most one|more than one|multiple|either"
    r"|conflict\w*|duplicate\w*|ambiguous|redundant|at the same time|simultaneous\w*|alongside"
    r"|(?:not|cannot be|can't be) (?:allowed|valid|set|used|specified|given|combined) with"
    r"|combin\w*)\b",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"\b(?:un(?:supported|recogni[sz]ed|known|expected)|deprecated|extra|does not support"
    r"|not (?:yet |currently )?(?:supported|permitted|allowed|recogni[sz]ed|implemented)\b"
    r"(?! (?:to|above|below|over|when|if)\b))",
    re.IGNORECASE,
)
_NOT_ZERO = re.compile(
    r"greater_than|strictly positive|(?:greater than|>) ?0(?!\.?[1-9])|in \(0|at least 0\.\d*[1-9]"
    r"|only 1 is allowed",
    re.IGNORECASE,
)
_ABOUT_TOOLS = re.compile(r"\b(?:schema|function|tools?)\b", re.IGNORECASE)
_READ_CHARS = 4_000
_STANDARD_REASONS = {status.value: status.phrase.lower() for status in HTTPStatus}
_MESSAGE_KEYS = (
    *("error", "errors", "message", "detail", "details", "msg", "error_message", "errorMessage"),
    *("error_msg", "error_description", "status_msg", "base_resp", "fault", "faultstring"),
    *("Message", "description", "reason", "title"),
)
"""Keys of the message in an error, most certain first."""
_ANSWER_KEYS = frozenset({"choices", "content", "usage", "stop", "tokens", "object", "data"})
_MAX_MESSAGE_DEPTH = 6
_MAX_MESSAGES = 5
_BUSY = re.compile(r"overloaded|rate_?limit|unavailable|resource_exhausted", re.IGNORECASE)
_CREDITS = re.compile(r"\bcredits?\b|quota|billing|\bbalance\b|payment", re.IGNORECASE)
_NO_CREDITS = "check your plan and credits there"
_PAGE = re.compile(r"(?:[\w-]+: [^\n]*\n)*\s*<(?:!doctype|html)\b", re.IGNORECASE)
"""Start of an HTML page, as web servers and proxies send for browsers. Headers come before it where
a server broke its status line."""


@contextmanager
def translate_errors(address: str) -> Iterator[None]:
    """Translate aiohttp's exceptions into lhkit's.

    Raises:
        UsageError: `address` is invalid.
        ServerUnreachableError: nothing listens there, or the name is unknown.
        StreamStalledError: the server was silent for longer than the idle limit.
        StreamBrokenError: the connection ended early, or the data was not UTF-8.
    """
    import aiohttp

    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise invalid_address(address) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ServerUnreachableError(
            f"nothing answers at {address}: start a server (`lhkit serve`) or correct --base-url"
        ) from error
    except TimeoutError as error:
        raise stalled(address) from error
    except (aiohttp.ClientError, OSError) as error:
        raise StreamBrokenError(
            f"the connection to {address} broke off ({type(error).__name__}): "
            "check that the server is alive"
        ) from error
    except UnicodeDecodeError as error:
        raise unexpected_answer(address, str(error)) from error


def stalled(address: str, *, is_kept_alive: bool = False) -> StreamStalledError:
    """Return the exception for a server that has been silent for too long."""
    only = " (it only kept the connection alive)" if is_kept_alive else ""
    return StreamStalledError(
        f"{address} sent nothing for too long: see in its log whether it is overloaded or stuck"
        f"{only}"
    )


def unexpected_answer(address: str, answer: str) -> StreamBrokenError:
    """Return the exception for an answer of another kind of server."""
    return StreamBrokenError(
        f"{address} sent an unexpected answer ({shortened(answer)}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )


def redirected(address: str, location: str) -> RequestRefusedError:
    """Return the exception for a redirect; following it could leak prompts."""
    return RequestRefusedError(
        f"{shortened(address)} redirects to {shortened(location) or 'nowhere'}, and prompts go "
        "only to the address that was given: give that one with --base-url if you trust it"
    )


def too_large(address: str, what: str) -> StreamBrokenError:
    """Return the exception for a server that sends more data than an answer needs."""
    return StreamBrokenError(
        f"{address} sent too much ({what}): check that --base-url leads to an OpenAI-compatible "
        "server"
    )


def http_error(status: int, text: str, reason: str = "") -> ModelError:
    """Return the exception for an HTTP status other than 200.

    Args:
        status: the status.
        text: the body.
        reason: the text of the status line, where Python's `http.server` reports an error.
    """
    message = error_message(text)
    if not message and reason.strip().lower() != _STANDARD_REASONS.get(status):
        message = shortened(reason)
    _, exception, what, advice = next(row for row in _HTTP_ERRORS if row[0](status, message))
    detail = f": {message}" if message else ""
    error = exception(f"{what} (HTTP {status}){detail}; {advice}")
    if isinstance(error, RequestRefusedError) and status in {400, 422}:
        error.field = refused_field(text) or refused_field(reason)
    return error


def refused_field(text: str) -> str:
    """Return the request field that an error body reports as unsupported.

    Empty for other errors. One of `stream_options`, `temperature` (of which 0 may be refused) and
    the two names of the output limit, of which one may be unknown, or both together be refused.
    This is a guess from the wording; a retry without the field shows whether it was right.
    """
    excerpt = text[:_READ_CHARS].replace('\\"', '"')
    match = _FIELD.search(excerpt)
    if match is None or _ABOUT_TOOLS.search(excerpt):
        return ""
    if advised := _USE_LIMIT.search(excerpt):
        return next(name for name in _LIMITS if name != advised[1].lower())
    is_refused = _UNSUPPORTED.search(excerpt) or (
        match[1] == "temperature" and _NOT_ZERO.search(excerpt)
    )
    if match[1] in _LIMITS:
        is_refused = is_refused or _NOT_TOGETHER.search(excerpt)
    return match[1] if is_refused else ""


def refuses_logprobs(error: ModelError, body: Mapping[str, Any]) -> bool:
    """Return True if a request for log-probabilities failed with an error that is about them.

    Servers refuse them with any status, some only for models that reason or in a stream with tools.
    """
    return not body.keys().isdisjoint(LOGPROBS) and bool(_ABOUT_LOGPROBS.search(str(error)))


def drop_refused_fields(body: Mapping[str, Any], refused: Sequence[str]) -> dict[str, Any]:
    """Return a request body without fields that the server refuses, in the order of its refusals.

    A temperature is dropped only if it is 0, lhkit's default. One name of the output limit remains:
    the one that was not refused last.
    """
    reduced = dict(body)
    if "stream_options" in refused:
        reduced.pop("stream_options", None)
    if "temperature" in refused and reduced.get("temperature") == 0:
        del reduced["temperature"]
    if "logprobs" in refused:
        reduced = {name: value for name, value in reduced.items() if name not in LOGPROBS}
    limits = [name for name in refused if name in _LIMITS]
    if limits and reduced.keys() >= {*_LIMITS}:
        del reduced[limits[-1]]
    return reduced


def is_context_too_long(message: str) -> bool:
    """Return True if a server reports that the prompt exceeds the model's context."""
    return _TOO_LONG.search(message) is not None


def error_message(text: str) -> str:
    """Return the message in an error body, shortened; empty for an HTML page."""
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = None
    if isinstance(payload, dict | list):
        inner = payload.get("error") or payload if isinstance(payload, dict) else payload
        text = _message_in(payload) or str(inner)
    return "" if _PAGE.match(text) else shortened(text)


def _message_in(value: Any, depth: int = 0) -> str:
    """Return the server's own words in the JSON of an error, however it nests them."""
    if depth > _MAX_MESSAGE_DEPTH:
        return ""
    if isinstance(value, str):
        return _message_in_text(value, depth)
    if isinstance(value, list):
        items = (_message_in(item, depth + 1) for item in value[:_MAX_MESSAGES])
        return "; ".join(dict.fromkeys(filter(None, items)))
    if not isinstance(value, dict):
        return ""
    found = [_message_in(value[key], depth + 1) for key in _MESSAGE_KEYS if value.get(key)]
    messages = list(dict.fromkeys(filter(None, found)))[:1]
    if isinstance(value.get("error"), str) and len(found) > 1:  # a title, and what it means
        messages = [message for message in found[:2] if message]
    place = value.get("loc")
    if messages and isinstance(place, list):
        messages = [f"{'.'.join(map(str, place))}: {messages[0]}"]
    more = value.get("metadata")
    if isinstance(more, dict) and (raw := _message_in(more.get("raw"), depth + 1)):
        messages.append(raw)
    return ": ".join(dict.fromkeys(messages))


def _message_in_text(text: str, depth: int) -> str:
    """Return the message in text, which may be the JSON of another server's error."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return _message_in(json.loads(text), depth + 1) or text.strip()
        except (ValueError, RecursionError):
            pass
    return text.strip()


def reports_error(payload: Any) -> bool:
    """Return True if the JSON of an answer with status 200 reports an error."""
    if isinstance(payload, list):
        return bool(payload) and all(map(reports_error, payload))
    if not isinstance(payload, dict):
        return False
    if payload.get("error") or "error" in (payload.get("object"), payload.get("type")):
        return True
    status = payload.get("base_resp")
    if isinstance(status, dict) and status.get("status_code"):
        return True
    if not payload.keys().isdisjoint(_ANSWER_KEYS):
        return False
    return any(isinstance(payload.get(key), str | list) for key in _MESSAGE_KEYS)


def require_no_error(text: str, where: str) -> None:
    """Check that a text with status 200 is not the JSON of an error.

    Raises:
        ModelError: it reports an error.
    """
    if not text.startswith(("{", "[")):
        return
    try:
        payload = json.loads(masked(text))
    except (ValueError, RecursionError):
        return
    if reports_error(payload):
        raise reported_error(payload, text, where)


def reported_error(payload: Any, text: str, where: str) -> ModelError:
    """Return the exception for an error that an answer with status 200 reports.

    Args:
        payload: the JSON of the answer, or of an event in it.
        text: its text.
        where: the place of the error in the answer, for the message.
    """
    message = error_message(text)
    code = _code_in(payload)
    if is_context_too_long(message):
        return ContextTooLongError(f"the conversation is too long: {message}; clear it")
    if code in {"429", "503"} or _BUSY.search(code):
        return ServerOverloadedError(
            f"the server is busy: {message}; try later or send less at once"
        )
    if code in {"401", "403"}:
        return RequestRefusedError(
            f"the server refused the API key: {message}; correct LHKIT_API_KEY"
        )
    advice = _NO_CREDITS if _CREDITS.search(message) or code == "402" else "look into its log"
    return ServerFailedError(f"the server reported in its {where}: {message}; {advice}")


def _code_in(payload: Any, depth: int = 0) -> str:
    """Return the status that an error reports about itself: a number, or its name."""
    if isinstance(payload, list):
        payload = payload[0] if payload else None
    if not isinstance(payload, dict) or depth > _MAX_MESSAGE_DEPTH:
        return ""
    inner = _code_in(payload.get("error"), depth + 1)
    codes = (payload.get(key) for key in ("code", "status_code", "status", "type"))
    return inner or next((str(code) for code in codes if code), "")


def shortened(text: str) -> str:
    """Return a text masked, in one line, and cut."""
    return " ".join(masked(text).split())[:_SHOWN_CHARS].rstrip()


_HTTP_ERRORS: tuple[tuple[Callable[[int, str], bool], type[ModelError], str, str], ...] = (
    (
        lambda status, text: status == 402 or (status == 429 and _CREDITS.search(text) is not None),
        ServerOverloadedError,
        "the server does not answer now",
        f"try later, or {_NO_CREDITS}",
    ),
    (
        lambda status, _: status in {429, 503},
        ServerOverloadedError,
        "the server is busy",
        "try later or send less at once",
    ),
    (
        lambda status, _: status >= 500,
        ServerFailedError,
        "the server failed",
        "look into its log",
    ),
    (
        lambda status, _: status in {401, 403},
        RequestRefusedError,
        "the server refused the API key",
        "correct LHKIT_API_KEY",
    ),
    (
        lambda status, text: status == 404 and _NO_SUCH_MODEL.search(text) is not None,
        UnknownModelError,
        "the server does not know the model",
        "give one that it serves with --model",
    ),
    (
        lambda status, _: status in {404, 405},
        RequestRefusedError,
        "the server has no such endpoint",
        "correct --base-url, or give --dialect openai if the server has only /v1/chat/completions",
    ),
    (
        lambda _, text: is_context_too_long(text),
        ContextTooLongError,
        "the conversation is too long",
        "clear it, or serve with a larger --max-model-len",
    ),
    (
        lambda _, text: _NO_PARSER.search(text) is not None,
        RequestRefusedError,
        "the server does not parse calls",
        "start it as `lhkit serve MODEL --server-parser`, or leave --dialect openai out",
    ),
    (
        lambda *_: True,
        RequestRefusedError,
        "the server refused the request",
        "change what it names",
    ),
)
"""(predicate of status and message, exception, what happened, what to do); first match wins."""
