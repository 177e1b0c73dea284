"""Assign the log-probabilities of a response's tokens to its calls. No I/O.

A call has those of every token that shares a character with its text: also of a token that begins
before it, or goes on after it. A value that is missing or invalid leaves the call without any.

Servers report them in these forms, of the choice of a stream: `logprobs.tokens` with
`logprobs.token_logprobs` (vLLM's completions), and `logprobs.content` (chats, and all of
llama.cpp). They are the model's own, before temperature and other sampling. Where decoding is
constrained, vLLM (0.32, `--logprobs-mode raw_logprobs`) reports them after the constraint, so that
a token without an alternative has 0, and llama.cpp before it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lhkit.conversation.messages import ToolCall
from lhkit.models.dialects.parser import Span

_LEAST = -9999.0
"""What vLLM reports for minus infinity. llama.cpp reports less."""
_ROUNDING = 1e-6
"""A probability of 1, as a sum in single precision, may be a little above it."""
_UNKNOWN_CHARACTER = "\ufffd".encode()
"""What a server writes for a token that is a part of a character."""
_HIDDEN = re.compile(rb" ?[\x80-\xff]+")
"""The text of such tokens; the first one may have a space before it."""
_CONTROL = re.compile(rb"\s*(?:<[^<>\s]{1,40}>)?\s*")
"""A token that is not a part of a call, such as the end of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A token of a response: its text in UTF-8, and its natural log-probability if it is known."""

    text: bytes
    logprob: float | None


def read_tokens(choice: Mapping[str, Any]) -> Iterator[TokenLogprob]:
    """Yield the tokens of a choice; none if the server reports none, or in an unknown form."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        return
    texts, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if isinstance(texts, list) and isinstance(values, list):
        values = values if len(values) == len(texts) else [None] * len(texts)
        for text, value in zip(texts, values, strict=True):
            yield TokenLogprob(text=_encoded(text), logprob=_valid(value))
        return
    content = logprobs.get("content")
    for item in content if isinstance(content, list) else ():
        if isinstance(item, Mapping):
            text = _from_bytes(item.get("bytes"))
            yield TokenLogprob(
                text=_encoded(item.get("token")) if text is None else text,
                logprob=_valid(item.get("logprob")),
            )


def add_logprobs(
    calls: Sequence[ToolCall],
    tokens: Sequence[TokenLogprob],
    text: str,
    spans: Sequence[Span | None],
) -> tuple[ToolCall, ...]:
    """Return calls with the log-probabilities of their tokens, as far as they are known.

    Args:
        calls: the calls of a response.
        tokens: its tokens.
        text: its text, which ends before the token that ended it.
        spans: the place of each call in the text; none at all if the places are unknown.
    """
    data = _encoded(text)
    ranges = _ranges(tokens, data) if spans else None
    if ranges is None:
        return tuple(calls)
    return tuple(
        call if span is None else _add(call, tokens, ranges, _byte_span(text, span))
        for call, span in zip(calls, spans, strict=True)
    )


def chat_spans(
    tokens: Sequence[TokenLogprob], calls: Sequence[tuple[str, str]], *, is_only_call: bool
) -> tuple[str, tuple[Span | None, ...]]:
    """Return the model's output in a chat, and the places of the calls that the server parsed.

    A call is from its name to the end of its arguments. A server may write these differently; a
    message that is one call and nothing else is its text then, apart from control tokens.

    Args:
        tokens: all tokens of the response.
        calls: name and arguments of each call, as the server sent them.
        is_only_call: the response is a single call, without text.
    """
    text = b"".join(token.text for token in tokens).decode("utf-8", "replace")
    spans: list[Span | None] = []
    at = 0
    for name, arguments in calls:
        first = text.find(name, at) if name else -1
        begin = text.find(arguments, first + len(name)) if first >= 0 else -1
        if begin < 0:
            spans.append(None)
            continue
        at = begin + len(arguments)
        spans.append((text.rfind(name, first, begin), at))
    if spans == [None] and is_only_call:
        own = [number for number, token in enumerate(tokens) if not _CONTROL.fullmatch(token.text)]
        ends = [len(_joined(tokens[:number])) for number in ((own[0], own[-1] + 1) if own else ())]
        spans = [(ends[0], ends[1])] if ends else [None]
    return text, tuple(spans)


def _joined(tokens: Sequence[TokenLogprob]) -> str:
    return b"".join(token.text for token in tokens).decode("utf-8", "replace")


def _add(
    call: ToolCall,
    tokens: Sequence[TokenLogprob],
    ranges: Sequence[Span],
    span: Span,
) -> ToolCall:
    values = [
        token.logprob
        for token, (start, end) in zip(tokens, ranges, strict=True)
        if start < span[1] and end > span[0]
    ]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return call
    return replace(call, min_logprob=min(known), mean_logprob=math.fsum(known) / len(known))


def _ranges(tokens: Sequence[TokenLogprob], data: bytes) -> list[Span] | None:
    """Return the bytes of a text that each token is; None if they do not add up to it.

    Tokens that are parts of one character have all of it, and where they are empty, as in vLLM,
    also the token that completes it. Tokens after the end of the text have no bytes.
    """
    ranges: list[Span] = []
    waiting = at = 0  # `waiting`: the last tokens so far whose place is open
    for token in tokens:
        text = token.text
        if at == len(data):
            ranges.append((at, at))
            continue
        is_hidden = _UNKNOWN_CHARACTER in text and not data.startswith(text, at)
        if not text or is_hidden:
            ranges.append((at, at))
            waiting += 1
            continue
        start = _find(text, data, at, waiting)
        if start is None:
            return None
        end = min(start + len(text), len(data))
        if waiting:
            ranges[-waiting:] = [(at, end if start == at else start)] * waiting
        ranges.append((start if waiting else at, end))
        waiting, at = 0, end
    if at < len(data) and waiting and _HIDDEN.fullmatch(data, at):
        ranges[-waiting:] = [(at, len(data))] * waiting
        at = len(data)
    return ranges if at == len(data) else None


def _find(text: bytes, data: bytes, at: int, waiting: int) -> int | None:
    """Return where the next token is at or after `at`; None if it is not there."""
    rest = data[at : at + len(text)]
    if text.startswith(rest):  # the last one may be cut, by a text that ends the response
        return at if rest == text or at + len(rest) == len(data) else None
    if data.startswith(b" " + text, at):  # some servers omit the space that a token begins with
        return at + 1
    if waiting:
        start = data.find(text, at + 1)
        if start >= 0 and _HIDDEN.fullmatch(data, at, start):
            return start
    return None


def _byte_span(text: str, span: Span) -> Span:
    start = len(_encoded(text[: span[0]]))
    return start, start + len(_encoded(text[span[0] : span[1]]))


def _encoded(text: Any) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""


def _from_bytes(values: Any) -> bytes | None:
    """Return the bytes of a token; None if the server does not report them."""
    if not isinstance(values, list):
        return None
    try:
        return bytes(values)
    except (TypeError, ValueError):
        return None


def _valid(value: Any) -> float | None:
    """Return a log-probability; None if it is not a valid one, or that of an impossible token."""
    if type(value) not in (int, float) or not _LEAST < value <= _ROUNDING:
        return None
    return min(float(value), 0.0)
