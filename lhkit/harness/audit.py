"""A run checked against itself: its records judged again, its two readings of a reply compared."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from lhkit.harness.record import ModelCallRecord, SampleRecord, TurnRecord
from lhkit.json_values import canonical
from lhkit.messages import Finished, ToolCall

# A server's parse beside ours: in which way it read the same response otherwise. Pure.
#
# Ours is the measure only because its repairs are listed and its input is kept; who is right is
# for the reader of the raw text to say.


_ASCII_QUOTES = "\"'"


class Difference(StrEnum):
    """What the server did to a call, compared with what we read in the same text."""

    LOST_CALL = "server_lost_call"
    EXTRA_CALL = "server_extra_call"  # where we read none
    CUT_CALL = "server_cut_call"  # a call where we read one that was cut off
    OTHER_TOOL = "server_other_tool"
    DROPPED_ARGUMENT = "server_dropped_argument"
    ADDED_ARGUMENT = "server_added_argument"
    CHANGED_TYPE = "server_changed_type"  # 3 for "3", or "3" for 3
    KEPT_QUOTES = "server_kept_quotes"
    CHANGED_VALUE = "server_changed_value"


def own_calls(said: Finished) -> tuple[ToolCall, ...] | None:
    """Return the calls that lhkit reads in the raw text; None where it does not know that text."""
    return said.calls if said.server_calls is None else said.own_calls


def own_fragment(said: Finished) -> str:
    """Return the raw text of a call that we read as cut off."""
    return said.fragment if said.server_calls is None else said.own_fragment


def differences(said: Finished) -> tuple[Difference, ...]:
    """Return in which ways the server's calls differ from ours, each once; none if nobody knows."""
    if said.server_calls is None or said.own_calls is None:
        return ()
    found: set[Difference] = set()
    for own, server in zip_longest(said.own_calls, said.server_calls):
        if server is None:
            found.add(Difference.LOST_CALL)
        elif own is None:
            found.add(Difference.CUT_CALL if said.own_fragment else Difference.EXTRA_CALL)
        else:
            found |= set(_of_a_call(own, server))
    return tuple(each for each in Difference if each in found)


def _of_a_call(own: ToolCall, server: ToolCall) -> Iterator[Difference]:
    if own.name != server.name:
        yield Difference.OTHER_TOOL
    if not (isinstance(own.args, Mapping) and isinstance(server.args, Mapping)):
        if canonical(own.args) != canonical(server.args):
            yield Difference.CHANGED_VALUE
        return
    if own.args.keys() - server.args.keys():
        yield Difference.DROPPED_ARGUMENT
    if server.args.keys() - own.args.keys():
        yield Difference.ADDED_ARGUMENT
    for name in own.args.keys() & server.args.keys():
        yield from _of_a_value(own.args[name], server.args[name])


def _of_a_value(own: Any, server: Any) -> Iterator[Difference]:
    if canonical(own) == canonical(server):
        return
    if isinstance(own, str) and isinstance(server, str) and server.strip(_ASCII_QUOTES) == own:
        yield Difference.KEPT_QUOTES
    elif type(own) is not type(server):
        yield Difference.CHANGED_TYPE
    else:
        yield Difference.CHANGED_VALUE


# What models really wrote: as it stands, mended, as a server parsed it, and why they differ.
#
# A scorer that only says "wrong arguments" hides whose fault it was. Here every response is put
# into fault classes from its raw text alone; nothing is judged right or wrong. Comparing a
# server's calls with ours stands above. Pure.


Schemas = Mapping[str, Mapping[str, Any]]

_CONTROL_TOKEN = re.compile(
    r"<(?:bos|eos|pad|unk|start_of_turn|end_of_turn|unused\d+|escape"
    r"|(?:start|end)_function_(?:call|declaration|response)|\|[a-z_\"]+\|?|[a-z_]+\|)>"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTES = ('"', "'", "“", "”", "‘", "’")
_WRAPPING = frozenset({"fence", "tag", "array", "in_object"})


class ResponseFault(StrEnum):
    """Why a response was not simply words, or simply calls."""

    FENCE = "fence"  # a code fence, tag or array around a call
    MENDED = "mended"  # another repair of the parser
    MALFORMED = "malformed"  # names a tool, but no reading makes sense of the rest
    TRUNCATED_CALL = "truncated_call"  # the response ends inside a call
    TRAILING_PROSE = "trailing_prose"  # words beside the calls of one response
    LEAKED_TOKEN = "leaked_token"  # noqa: S105 - a control token of a model, no secret
    STRINGIFIED_NUMBER = "stringified_number"  # "3" where the schema wants a number
    KEPT_QUOTES = "kept_quotes"  # a string whose value begins and ends with a quote
    DROPPED_ARGUMENT = "dropped_argument"  # a required argument is not there


_CLASSES: Mapping[str, ResponseFault | Difference] = {
    str(each): each for each in (*ResponseFault, *Difference)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFault:
    """One fault in one response; `turn` and `response` count from 0 within the sample."""

    fault: ResponseFault | Difference
    scenario: str
    repeat: int
    turn: int
    response: int
    raw_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A response that the server read otherwise than we do; `why` says in which way."""

    scenario: str
    repeat: int
    turn: int
    response: int
    said: Finished
    why: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Counts of responses: all, with a call or the beginning of one, parsed strictly, mended.

    These are our own readings; a response that only the server has read (its raw text is not
    known) is in none of the last three. `asked` counts responses that a server parsed, `server`
    those in which it found a call.
    """

    responses: int = 0
    with_calls: int = 0
    strict: int = 0
    repaired: int = 0
    asked: int = 0
    server: int = 0
    findings: tuple[FoundFault, ...] = field(default=())
    disagreements: tuple[Disagreement, ...] = field(default=())

    @property
    def lost(self) -> int:
        """Responses that began a call and gave none."""
        return self.with_calls - self.strict - self.repaired

    def of(self, fault: ResponseFault | Difference) -> tuple[FoundFault, ...]:
        """Return the findings of one class, in order."""
        return tuple(finding for finding in self.findings if finding.fault is fault)


def audit(records: Iterable[SampleRecord]) -> Audit:
    """Return the audit of all responses in `records`, with the faults that stand there."""
    found = Audit()
    findings: list[FoundFault] = []
    disagreements: list[Disagreement] = []
    for record in records:
        for turn, response, asked in _responses(record):
            said = asked.response
            found = _counted(found, said)
            where: dict[str, Any] = {
                "scenario": record.sample_id.scenario,
                "repeat": record.sample_id.repeat,
                "turn": turn,
                "response": response,
            }
            faults = (_CLASSES[told] for told in asked.faults if told in _CLASSES)
            findings += (FoundFault(fault=each, raw_text=said.raw_text, **where) for each in faults)
            if why := differences(said):
                disagreements.append(Disagreement(said=said, why=why, **where))
    return replace(found, findings=tuple(findings), disagreements=tuple(disagreements))


def audited(turn: TurnRecord, schemas: Schemas) -> TurnRecord:
    """Return the record of a turn with the faults of each response in it.

    `schemas` are the tools' JSON Schemas of arguments, to tell `"3"` from `3`.
    """
    faults = [faults_of(asked.response, schemas) for asked in turn.model_calls]
    if faults == [asked.faults for asked in turn.model_calls]:
        return turn
    told = zip(turn.model_calls, faults, strict=True)
    return replace(turn, model_calls=tuple(replace(asked, faults=each) for asked, each in told))


_IN_ORDER = tuple(ResponseFault)


def faults_of(said: Finished, schemas: Schemas) -> tuple[ResponseFault | Difference, ...]:
    """Return the fault classes of one response, each once, in the order of `ResponseFault`.

    Where a server parsed it too, its differences from our reading follow.
    """
    calls = own_calls(said)
    found = set(_of_the_text(said, said.calls if calls is None else calls))
    for call in said.calls if calls is None else calls:
        found |= set(_of_the_parse(call)) | set(_of_the_arguments(call, schemas))
    return (*sorted(found, key=_IN_ORDER.index), *differences(said))


def _counted(found: Audit, said: Finished) -> Audit:
    calls = own_calls(said)
    is_asked = said.server_calls is not None
    found = replace(
        found,
        responses=found.responses + 1,
        asked=found.asked + is_asked,
        server=found.server + bool(said.server_calls),
    )
    if calls is None:
        return found
    is_strict = not own_fragment(said) and not any(call.repairs for call in calls)
    return replace(
        found,
        with_calls=found.with_calls + bool(calls or own_fragment(said)),
        strict=found.strict + (bool(calls) and is_strict),
        repaired=found.repaired + (bool(calls) and not is_strict),
    )


def _responses(record: SampleRecord) -> Iterator[tuple[int, int, ModelCallRecord]]:
    for turn, played in enumerate(record.evidence.turns):
        for response, said in enumerate(played.model_calls):
            yield turn, response, said


def _of_the_text(said: Finished, calls: Sequence[ToolCall]) -> Iterator[ResponseFault]:
    if said.fragment or own_fragment(said):
        yield ResponseFault.TRUNCATED_CALL
    if calls and said.text.strip():
        yield ResponseFault.TRAILING_PROSE
    if _CONTROL_TOKEN.search(_outside(said, calls)):
        yield ResponseFault.LEAKED_TOKEN


def _outside(said: Finished, calls: Sequence[ToolCall]) -> str:
    """Return what is not markup of a call that was read: the words and the arguments' values."""
    values = [value for call in calls for value in _strings(call.args)]
    return "\n".join([said.text, *values])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _of_the_parse(call: ToolCall) -> Iterator[ResponseFault]:
    for repair in call.repairs:
        if repair == "malformed":
            yield ResponseFault.MALFORMED
        else:
            yield ResponseFault.FENCE if repair in _WRAPPING else ResponseFault.MENDED


def _of_the_arguments(call: ToolCall, schemas: Schemas) -> Iterator[ResponseFault]:
    schema = schemas.get(call.name)
    if schema is None or not isinstance(call.args, Mapping):
        return
    if any(name not in call.args for name in schema.get("required", ())):
        yield ResponseFault.DROPPED_ARGUMENT
    for name, value in call.args.items():
        if isinstance(value, str):
            yield from _of_a_string(value, schema.get("properties", {}).get(name, {}))


def _of_a_string(value: str, schema: Mapping[str, Any]) -> Iterator[ResponseFault]:
    if schema.get("type") in {"integer", "number"} and _NUMBER.fullmatch(value.strip()):
        yield ResponseFault.STRINGIFIED_NUMBER
    if len(value) > 1 and value.startswith(_QUOTES) and value.endswith(_QUOTES):
        yield ResponseFault.KEPT_QUOTES
