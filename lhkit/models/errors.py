"""What goes wrong between us and a server, as typed exceptions that name the next step."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lhkit.errors import (
    ContextTooLongError,
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.redaction import masked

_SHOWN_CHARS = 300
_NO_SUCH_MODEL = re.compile(r"model\b.*(?:does not exist|not found)", re.IGNORECASE)
_NO_PARSER = re.compile(r"tool choice requires .*--tool-call-parser", re.IGNORECASE)
_TOO_LONG = re.compile(r"context (?:length|size)|maximum model length", re.IGNORECASE)
_FIELD = re.compile(
    r"(?<![\w.\]/])(stream_options|max_tokens|temperature)(?![\w\[]|\.\w)"  # of the request itself
)
_UNSUPPORTED = re.compile(
    r"\b(?:un(?:supported|recogni[sz]ed|known|expected)|deprecated|extra|does not support"
    r"|not (?:yet |currently )?(?:supported|permitted|allowed|recogni[sz]ed|implemented)\b"
    r"(?! (?:to|above|below|over|when|if)\b))|use [\"'`]*max_completion_tokens",
    re.IGNORECASE,
)
_NOT_ZERO = re.compile(
    r"greater_than|strictly positive|(?:greater than|>) ?0(?!\.?[1-9])|in \(0|at least 0\.\d*[1-9]"
    r"|only 1 is allowed",
    re.IGNORECASE,
)
_OF_TOOLS = re.compile(r"\b(?:schema|function|tools?)\b", re.IGNORECASE)
_READ_CHARS = 4_000
_PAGE = re.compile(r"\s*<(?:!doctype|html)\b", re.IGNORECASE)
"""How an answer begins that a web server or proxy gives, for a browser."""


@contextmanager
def transport_faults(address: str) -> Iterator[None]:
    """Turn aiohttp's exceptions into ours.

    Raises:
        UsageError: `address` is no address.
        ServerUnreachableError: nothing listens there, or the name is unknown.
        StreamStalledError: silence for longer than the idle limit.
        StreamBrokenError: the connection ended early, or what came was not UTF-8.
    """
    import aiohttp

    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise no_address(address) from error
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
        raise not_a_server(address, str(error)) from error


def no_address(address: str) -> UsageError:
    """Return the exception for what is no address at all."""
    return UsageError(f"{address!r} is no address of a server: give --base-url http://HOST:PORT")


def stalled(address: str) -> StreamStalledError:
    """Return the exception for a server that is silent for too long."""
    return StreamStalledError(
        f"{address} sent nothing for too long: see in its log whether it is overloaded or stuck"
    )


def not_a_server(address: str, what_came: str) -> StreamBrokenError:
    """Return the exception for an answer that no server of ours would give."""
    return StreamBrokenError(
        f"{address} answered with something else than expected ({shortened(what_came)}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )


def redirected(address: str, location: str) -> RequestRefusedError:
    """Return the exception for a server that names another address: prompts do not go there."""
    return RequestRefusedError(
        f"{shortened(address)} redirects to {shortened(location) or 'nowhere'}, and prompts go "
        "only to the address that was given: give that one with --base-url if you trust it"
    )


def too_much(address: str, what: str) -> StreamBrokenError:
    """Return the exception for a server that sends more than any answer needs."""
    return StreamBrokenError(
        f"{address} sent too much ({what}): check that --base-url leads to an OpenAI-compatible "
        "server"
    )


def refusal(status: int, text: str) -> ModelError:
    """Return the exception for an HTTP status other than 200."""
    said = message_of(text)
    _, fault, what, advice = next(row for row in _REFUSALS if row[0](status, said))
    told = f"{what} (HTTP {status}): {said}" if said else f"{what} (HTTP {status})"
    error = fault(f"{told}; {advice}")
    if isinstance(error, RequestRefusedError) and status in {400, 422}:
        error.field = refused_field(text)
    return error


def refused_field(text: str) -> str:
    """Return the request field that an error body says is not supported; empty for other refusals.

    One of `stream_options`, `max_tokens` and `temperature` (of which 0 may be refused). It is a
    guess by words: whoever follows it learns from the next answer whether it was right.
    """
    words = text[:_READ_CHARS].replace('\\"', '"')
    named = _FIELD.search(words)
    if named is None or _OF_TOOLS.search(words):
        return ""
    is_refused = _UNSUPPORTED.search(words) or (
        named[1] == "temperature" and _NOT_ZERO.search(words)
    )
    return named[1] if is_refused else ""


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


def is_context_too_long(said: str) -> bool:
    """Return True if a server's message says that the prompt exceeds the model's context."""
    return _TOO_LONG.search(said) is not None


def has_no_parser(said: str) -> bool:
    """Return True if a server's message says that it does not parse calls (vLLM 0.32's words)."""
    return _NO_PARSER.search(said) is not None


def message_of(text: str) -> str:
    """Return the human part of an error body, shortened; nothing of a page for browsers."""
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = None
    if isinstance(payload, dict):
        error = payload.get("error") or payload
        said = error.get("message") or error.get("detail") if isinstance(error, dict) else None
        text = str(said or error)
    return "" if _PAGE.match(text) else shortened(text)


def shortened(text: str) -> str:
    return " ".join(masked(text).split())[:_SHOWN_CHARS].rstrip()


_REFUSALS: tuple[tuple[Callable[[int, str], bool], type[ModelError], str, str], ...] = (
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
        lambda status, said: status == 404 and _NO_SUCH_MODEL.search(said) is not None,
        UnknownModelError,
        "the server does not know the model",
        "give one that it serves with --model",
    ),
    (
        lambda status, _: status in {404, 405},
        RequestRefusedError,
        "there is no such service",
        "check that --base-url leads to a vLLM server",
    ),
    (
        lambda _, said: is_context_too_long(said),
        ContextTooLongError,
        "the conversation is too long",
        "clear it, or serve with a larger --max-model-len",
    ),
    (
        lambda _, said: has_no_parser(said),
        RequestRefusedError,
        "the server does not parse calls",
        "start it as `lhkit serve MODEL --server-parser`, or give --dialect json",
    ),
    (
        lambda *_: True,
        RequestRefusedError,
        "the server refused the request",
        "change what it names",
    ),
)
"""(does it apply to status and message, exception, what happened, what to do); first match wins."""
