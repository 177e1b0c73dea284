"""The first place where the model's messages of two conversations differ. Pure."""

from dataclasses import dataclass
from itertools import zip_longest

from lhkit.harness.record import SampleRecord
from lhkit.responses import Finished
from lhkit.text import visible

_BEFORE_CHARS = 16
_QUOTE_CHARS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two conversations diverge: turn, message of the model, token; all count from 0.

    `token` is None where a record holds no token ids. `a` and `b` quote both raw messages from just
    before the place, or name the token ids where the texts are equal; empty for no message.
    """

    turn: int
    message: int
    token: int | None
    a: str
    b: str


def first_divergence(a: SampleRecord, b: SampleRecord) -> Divergence | None:
    """Return where two conversations diverge; None if the model wrote the same in both."""
    turns = zip_longest(a.evidence.turns, b.evidence.turns)
    for number, (one, other) in enumerate(turns):
        pairs = zip_longest(*([] if turn is None else turn.model_calls for turn in (one, other)))
        for message, requests in enumerate(pairs):
            responses = [None if each is None else each.response for each in requests]
            found = _divergence(responses[0], responses[1], turn=number, message=message)
            if found is not None:
                return found
    return None


def _divergence(
    a: Finished | None, b: Finished | None, *, turn: int, message: int
) -> Divergence | None:
    ids_a, ids_b = (() if each is None else each.token_ids for each in (a, b))
    text_a, text_b = ("" if each is None else each.raw_text for each in (a, b))
    token = _first_difference(ids_a, ids_b) if ids_a and ids_b else None
    place = _first_difference(text_a, text_b)
    if place is not None:
        quotes = (_quote(text_a, place), _quote(text_b, place))
    elif token is not None:
        quotes = (_id(ids_a, token), _id(ids_b, token))
    elif (a is None) != (b is None):
        quotes = ("", "")
    else:
        return None
    return Divergence(turn=turn, message=message, token=token, a=quotes[0], b=quotes[1])


def _first_difference(a: str | tuple[int, ...], b: str | tuple[int, ...]) -> int | None:
    pairs = enumerate(zip_longest(a, b))
    return next((place for place, (one, other) in pairs if one != other), None)


def _quote(text: str, place: int) -> str:
    start = max(0, place - _BEFORE_CHARS)
    end = start + _QUOTE_CHARS
    shown = visible(text[start:end].replace("\n", "\\n"))
    return f"{'…' if start else ''}{shown}{'…' if text[end:] else ''}"


def _id(ids: tuple[int, ...], place: int) -> str:
    return f"#{ids[place]}" if place < len(ids) else ""
