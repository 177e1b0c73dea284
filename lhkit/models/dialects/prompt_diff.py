"""Where two renderings of one conversation differ, each place with its message or tool. Pure."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, TypeAlias

PlaceKind: TypeAlias = Literal["start", "instructions", "tool", "message", "call", "result"]

_TURN = r"<start_of_turn>|<\|turn>"
_TOOL = r"(?:<start_function_declaration>|<\|tool>)declaration:"
_CALL = r"(?:<start_function_call>|<\|tool_call>)call:"
_RESULT = r"(?:<start_function_response>|<\|tool_response>)response:"
_ENDS = (
    *("<tool_response|>", "<end_function_response>", "<tool|>", "<end_function_declaration>"),
    *("<tool_call|>", "<end_function_call>"),
)
_BOUNDARY = re.compile(
    rf"(?:{_TURN})(?P<role>\w*)|{_TOOL}(?P<tool>[^{{]*)|{_CALL}(?P<call>[^{{]*)"
    rf'|{_RESULT}(?P<result>[^{{]*)|(?<=\n)\{{"name":"(?P<listed>[^"]*)","description"'
    rf"|<turn\|>|<end_of_turn>|{'|'.join(f'(?<={re.escape(end)})' for end in _ENDS)}"
)
"""What begins a part; a tool of lhkit's own formats is a line of JSON.

After the end of a tool, call, result or turn, the text is of the message around it.
"""
_SYSTEM_ROLES = frozenset({"system", "developer"})

_TOKEN = re.compile(r"<[^<>\s]{1,40}>|\w+|\s|[^\w\s]")
_MAX_TOKENS = 20_000
"""Larger parts are compared as a whole: the comparison of tokens takes quadratic time."""
_MERGED_GAP = 2  # differences with at most so many equal tokens between them are one place
_BEFORE_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place where two prompts differ.

    Attributes:
        kind: the part of the prompt.
        name: of the tool, for a tool, a call or a result.
        number: of the message, counted from 1; 0 outside of messages.
        role: of the message.
        before: the text before the place.
        ours: the text of the first prompt; empty for an insertion.
        theirs: the text of the second prompt; empty for a deletion.
    """

    kind: PlaceKind
    name: str = ""
    number: int = 0
    role: str = ""
    before: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a prompt: where it starts, what it is."""

    start: int
    kind: PlaceKind
    name: str = ""
    number: int = 0
    role: str = ""


def prompt_differences(ours: str, theirs: str) -> tuple[Place, ...]:
    """Return where two prompts differ, in order; empty if they are equal."""
    parts, other_parts = _parts(ours), _parts(theirs)
    starts = [part.start for part in parts]
    other_starts = [part.start for part in other_parts]
    places: list[Place] = []
    for begin, end, other_begin, other_end in _spans(ours, theirs, starts, other_starts):
        if end > begin:
            part = parts[bisect_right(starts, begin) - 1]
        else:
            part = other_parts[bisect_right(other_starts, other_begin) - 1]
        places.append(
            Place(
                kind=part.kind,
                name=part.name,
                number=part.number,
                role=part.role,
                before=ours[max(0, begin - _BEFORE_CHARS) : begin],
                ours=ours[begin:end],
                theirs=theirs[other_begin:other_end],
            )
        )
    return tuple(places)


def _parts(prompt: str) -> list[_Part]:
    parts = [_Part(0, "start")]
    number, role = 0, ""
    for match in _BOUNDARY.finditer(prompt):
        start = match.start()
        if match["role"] is not None:
            if match["role"] in _SYSTEM_ROLES and number == 0:
                parts.append(_Part(start, "instructions"))
                continue
            number, role = number + 1, match["role"]
            parts.append(_Part(start, "message", "", number, role))
        elif (tool := match["tool"] or match["listed"]) is not None:
            parts.append(_Part(start, "tool", tool, number, role))
        elif match["call"] is not None:
            parts.append(_Part(start, "call", match["call"], number, role))
        elif match["result"] is not None:
            parts.append(_Part(start, "result", match["result"], number, role))
        elif number:
            parts.append(_Part(start, "message", "", number, role))
        else:
            parts.append(_Part(start, "instructions"))
    return parts


def _spans(
    ours: str, theirs: str, starts: Sequence[int], other_starts: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the different ranges of characters in both prompts."""
    bounds, other_bounds = [*starts, len(ours)], [*other_starts, len(theirs)]
    pieces = [ours[a:b] for a, b in pairwise(bounds)]
    other_pieces = [theirs[a:b] for a, b in pairwise(other_bounds)]
    matcher = SequenceMatcher(None, pieces, other_pieces, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            yield from _token_spans(
                ours[bounds[i] : bounds[j]],
                theirs[other_bounds[k] : other_bounds[m]],
                bounds[i],
                other_bounds[k],
            )


def _token_spans(
    ours: str, theirs: str, offset: int, other_offset: int
) -> Iterator[tuple[int, int, int, int]]:
    tokens, other_tokens = _TOKEN.findall(ours), _TOKEN.findall(theirs)
    if max(len(tokens), len(other_tokens)) > _MAX_TOKENS:
        yield offset, offset + len(ours), other_offset, other_offset + len(theirs)
        return
    at, other_at = _offsets(tokens, offset), _offsets(other_tokens, other_offset)
    merged: list[list[int]] = []
    opcodes = SequenceMatcher(None, tokens, other_tokens, autojunk=False).get_opcodes()
    for tag, i, j, k, m in opcodes:
        if tag == "equal":
            continue
        if merged and i - merged[-1][1] <= _MERGED_GAP and k - merged[-1][3] <= _MERGED_GAP:
            merged[-1][1], merged[-1][3] = j, m
        else:
            merged.append([i, j, k, m])
    for i, j, k, m in merged:
        yield at[i], at[j], other_at[k], other_at[m]


def _offsets(tokens: Sequence[str], offset: int) -> list[int]:
    offsets = [offset]
    for token in tokens:
        offsets.append(offsets[-1] + len(token))
    return offsets
