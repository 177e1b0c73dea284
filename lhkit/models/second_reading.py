"""What lhkit itself reads in a response that a server has already parsed. Pure.

The server's parser decides what a model of one family is told to write: `pythonic` for Gemma 3,
JSON wherever a call is required (vLLM 0.32), a family's own markup otherwise.
"""

from collections.abc import Sequence

from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import ParseResult, ToolSpec
from lhkit.models.families import family_of

_EOS_ID = 1
_FALLBACK = "json"


def read_again(raw_text: str, tools: Sequence[ToolSpec], model: str) -> ParseResult:
    """Return what the first dialect that finds a call reads, else what the first one reads."""
    readings = [DIALECTS[name].parse(raw_text, tools) for name in _dialects(model)]
    return next((each for each in readings if each.calls or each.fragment), readings[0])


def stop_token_ids(model: str) -> tuple[int, ...]:
    """Return the token ids at which a model of this name ends, its end of sequence first."""
    return (_EOS_ID, *DIALECTS[_dialects(model)[0]].stop_token_ids)


def _dialects(model: str) -> tuple[str, ...]:
    family = family_of(model)
    first = family.server_dialect if family else _FALLBACK
    return tuple(dict.fromkeys((first, _FALLBACK)))
