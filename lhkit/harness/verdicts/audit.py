"""What models really wrote: as it stands, mended, as a server parsed it, and why they differ.

A scorer that only says "wrong arguments" hides whose fault it was. Here every response is put into
fault classes from its raw text alone; nothing is judged right or wrong. Comparing a server's calls
with ours is `second_opinion`'s business. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lhkit.harness.records.record import ModelCallRecord, ParsedCall, SampleRecord, TurnRecord
from lhkit.harness.verdicts.second_opinion import Difference, differences, own_calls, own_fragment

Schemas = Mapping[str, Mapping[str, Any]]

_CONTROL_TOKEN = re.compile(
    r"<(?:bos|eos|pad|unk|start_of_turn|end_of_turn|unused\d+|escape"
    r"|(?:start|end)_function_(?:call|declaration|response)|\|[a-z_\"]+\|?|[a-z_]+\|)>"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTES = ('"', "'", "“", "”", "‘", "’")
_WRAPPING = frozenset({"fence", "tag", "array", "in_object"})


class Fault(StrEnum):
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


_CLASSES: Mapping[str, Fault | Difference] = {str(each): each for each in (*Fault, *Difference)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault in one response; `turn` and `response` count from 0 within the sample."""

    fault: Fault | Difference
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
    said: ModelCallRecord
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
    findings: tuple[Finding, ...] = field(default=())
    disagreements: tuple[Disagreement, ...] = field(default=())

    @property
    def lost(self) -> int:
        """Responses that began a call and gave none."""
        return self.with_calls - self.strict - self.repaired

    def of(self, fault: Fault | Difference) -> tuple[Finding, ...]:
        """Return the findings of one class, in order."""
        return tuple(finding for finding in self.findings if finding.fault is fault)


def audit(records: Iterable[SampleRecord], schemas: Schemas) -> Audit:
    """Return the audit of all responses in `records`.

    Args:
        records: as read from a run folder.
        schemas: each tool's JSON Schema of arguments, to tell `"3"` from `3`.
    """
    found = Audit()
    findings: list[Finding] = []
    disagreements: list[Disagreement] = []
    for record in records:
        for turn, response, said in _responses(record):
            found = _counted(found, said)
            where: dict[str, Any] = {
                "scenario": record.sample_id.scenario,
                "repeat": record.sample_id.repeat,
                "turn": turn,
                "response": response,
            }
            faults = _recorded(said) or faults_of(said, schemas)
            findings += (Finding(fault=each, raw_text=said.raw_text, **where) for each in faults)
            if why := differences(said):
                disagreements.append(Disagreement(said=said, why=why, **where))
    return replace(found, findings=tuple(findings), disagreements=tuple(disagreements))


def audited(turn: TurnRecord, schemas: Schemas) -> TurnRecord:
    """Return the record of a turn with the faults of each response in it."""
    return replace(
        turn,
        model_calls=tuple(
            replace(said, faults=faults_of(said, schemas)) for said in turn.model_calls
        ),
    )


def faults_of(said: ModelCallRecord, schemas: Schemas) -> tuple[Fault | Difference, ...]:
    """Return the fault classes of one response, each once, in the order of `Fault`.

    Where a server parsed it too, its differences from our reading follow.
    """
    calls = own_calls(said)
    found = set(_of_the_text(said, said.calls if calls is None else calls))
    for call in said.calls if calls is None else calls:
        found |= set(_of_the_parse(call)) | set(_of_the_arguments(call, schemas))
    return (*(fault for fault in Fault if fault in found), *differences(said))


def _counted(found: Audit, said: ModelCallRecord) -> Audit:
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


def _recorded(said: ModelCallRecord) -> tuple[Fault | Difference, ...]:
    """Return the faults that stand in the record; none in those of earlier versions."""
    return tuple(_CLASSES[told] for told in said.faults if told in _CLASSES)


def _responses(record: SampleRecord) -> Iterator[tuple[int, int, ModelCallRecord]]:
    for turn, played in enumerate(record.turns):
        for response, said in enumerate(played.model_calls):
            yield turn, response, said


def _of_the_text(said: ModelCallRecord, calls: Sequence[ParsedCall]) -> Iterator[Fault]:
    if said.fragment or own_fragment(said):
        yield Fault.TRUNCATED_CALL
    if calls and said.text.strip():
        yield Fault.TRAILING_PROSE
    if _CONTROL_TOKEN.search(_outside(said, calls)):
        yield Fault.LEAKED_TOKEN


def _outside(said: ModelCallRecord, calls: Sequence[ParsedCall]) -> str:
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


def _of_the_parse(call: ParsedCall) -> Iterator[Fault]:
    for repair in call.repairs:
        if repair == "malformed":
            yield Fault.MALFORMED
        else:
            yield Fault.FENCE if repair in _WRAPPING else Fault.MENDED


def _of_the_arguments(call: ParsedCall, schemas: Schemas) -> Iterator[Fault]:
    schema = schemas.get(call.name)
    if schema is None or not isinstance(call.args, Mapping):
        return
    if any(name not in call.args for name in schema.get("required", ())):
        yield Fault.DROPPED_ARGUMENT
    for name, value in call.args.items():
        if isinstance(value, str):
            yield from _of_a_string(value, schema.get("properties", {}).get(name, {}))


def _of_a_string(value: str, schema: Mapping[str, Any]) -> Iterator[Fault]:
    if schema.get("type") in {"integer", "number"} and _NUMBER.fullmatch(value.strip()):
        yield Fault.STRINGIFIED_NUMBER
    if len(value) > 1 and value.startswith(_QUOTES) and value.endswith(_QUOTES):
        yield Fault.KEPT_QUOTES
