"""A sample's record: everything needed to read, count and score it again. Values only.

`schema` is the version of this shape. Times are seconds of a monotonic clock, as durations or as
offsets from the start of the turn. `record_json` writes and reads the lines.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lhkit.events import EndReason
from lhkit.harness.tool_specs import TOOL_SPECS
from lhkit.json_values import compact
from lhkit.messages import GateOutcome
from lhkit.responses import Finished

SCHEMA: Final = 2

Rows: TypeAlias = tuple[Mapping[str, Any], ...]
State: TypeAlias = Mapping[str, Rows]
"""The rows of each table, as plain JSON objects."""
RowKeys: TypeAlias = Mapping[str, Sequence[str]]
"""The fields that together tell the rows of a table apart; none for a table of one row."""


class Verdict(StrEnum):
    """What became of a sample; `invalid` means that the world failed, not the model."""

    PASS = "pass"  # noqa: S105 - a verdict, no secret
    FAIL = "fail"
    INVALID = "invalid"


class Severity(StrEnum):
    """Whether a violation was only tried, or really happened."""

    ATTEMPTED = "attempted"
    ESCAPED = "escaped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleId:
    """Which sample; `repeat` counts from 0.

    As people read and write it, repeats count from 1 and the first one is not named: `add-01`,
    `add-01#2`.
    """

    scenario: str
    repeat: int = 0

    @classmethod
    def parse(cls, text: str) -> "SampleId":
        """Return the sample that `str` gives as `text`.

        Raises:
            ValueError: what stands behind `#` is no number from 1 on.
        """
        scenario, hash_, number = text.partition("#")
        if hash_ and not re.fullmatch(r"[1-9][0-9]{0,8}", number):
            raise ValueError(f"{text!r} names no sample: write SCENARIO, or SCENARIO#2")
        return cls(scenario=scenario.rstrip(), repeat=int(number or 1) - 1)

    def __str__(self) -> str:
        return f"{self.scenario}#{self.repeat + 1}" if self.repeat else self.scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that was broken. `turn` counts from 0; None where no turn can be named."""

    code: str
    severity: Severity
    turn: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One settled call. `result` is its envelope, `model_call` the message that made it.

    `args` are the validated arguments, None where validation failed or nothing was dispatched.
    `summary` is what a person who was asked read of it; empty where nobody was. `answer` is how
    they answered a card: run, cancel, escape and others (`confirm.decision.QuestionOutcome`); empty
    where there was no card. A row of the file: a `ToolCallMessage` and its outcome, flat.
    """

    tool: str
    raw_args: Any
    result: Mapping[str, Any]
    args: Mapping[str, Any] | None = None
    extra_args: tuple[str, ...] = ()
    gate: GateOutcome = GateOutcome.NOT_NEEDED
    ran: bool = False
    destructive: bool = False
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0
    raw_text: str = ""
    model_call: int | None = None
    summary: str = ""
    answer: str = ""

    @property
    def outcome(self) -> str:
        """What the call came to: `ok`, `cancelled`, or the code of an error."""
        status = str(self.result.get("status"))
        return str(self.result.get("code")) if status == "error" else status


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRecord:
    """One request to the model, and what came of it.

    `offset_s` is when it was sent, from the start of the turn; `duration_s` as the controller saw
    it. `response` is the runtime's own value, less what would only make the file large: of the ids
    of the prompt all but the first two (does `<bos>` stand there once?), and its text unless it was
    asked for (`prompt_sha256` tells prompts apart). Of a response that never ended there is the
    text that was streamed, and its `reason` is empty.
    """

    response: Finished
    offset_s: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """Rows that are new and rows that are gone; a changed row is one of each.

    `added_at` are the places of the new rows in the table at the end, `removed_at` those of the
    gone ones at the start: with the table at the start they make the one at the end again.
    """

    added: Rows = ()
    removed: Rows = ()
    added_at: tuple[int, ...] = ()
    removed_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One user turn. `reply` is all that the user read, `hint` what the application added.

    `state_diff` is what the turn changed; None where the scenario does not ask for it. `new_tools`
    are the tools that came with it, as the manifest has those that were there from the start.
    """

    user: str
    ended: EndReason
    error: str | None = None
    cause: str | None = None
    detail: str | None = None
    calls: tuple[CallRecord, ...] = ()
    model_calls: tuple[ModelCallRecord, ...] = ()
    reply: str = ""
    hint: str | None = None
    duration_s: float = 0.0
    state_diff: Mapping[str, TableDiff] | None = None
    new_tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def waiting_s(self) -> float:
        """The seconds that it waited for a person."""
        return sum(call.waiting_s for call in self.calls)

    @property
    def active_s(self) -> float:
        """The seconds that it took beside waiting for a person: what latencies count."""
        return self.duration_s - self.waiting_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentScore:
    """One argument of one call: the matcher and the value as plain JSON, None where there is none.

    `reason` says what is wrong, also whether the argument is missing or unexpected.
    """

    name: str
    ok: bool
    expected: Any = None
    actual: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScore:
    """One row of a turn's comparison: every expected and every actual call stands in one row.

    `expected` and `actual` count from 0 within the turn; None and an empty name mean that the call
    was not expected (`tool`) or not made (`called`). A call that the scenario allows, and an
    optional one left out, is `ok`. `reason` says what is wrong beside the arguments.
    """

    expected: int | None = None
    actual: int | None = None
    tool: str = ""
    called: str = ""
    optional: bool = False
    ok: bool = True
    arguments: tuple[ArgumentScore, ...] = ()
    reason: str = ""

    @property
    def is_exact(self) -> bool:
        """True for a call that was expected and made, with every argument right."""
        is_pair = self.expected is not None and self.actual is not None
        return is_pair and all(argument.ok for argument in self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScore:
    """How one turn did: calls that were due, that were right, and that nobody expected.

    Right are calls as the client read them. `strict_…` counts only what the first parse gave
    without a repair.
    """

    passed: bool
    due_calls: int = 0
    right_calls: int = 0
    surplus_calls: int = 0
    calls: tuple[CallScore, ...] = ()
    strict_right_calls: int = 0
    strict_passed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that the final state breaks and the initial one did not, in the domain's words."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What happened, before anybody judged it. `fault` says why the play could not go on.

    A record holds the states only if that was asked for, else `initial_sha256` in their place: the
    scenario's world gives the first one again, and with `SampleRecord.state_diff` the last one.
    """

    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
    initial_sha256: str = ""
    broken_rules: tuple[BrokenRule, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseClaim:
    """A reply flagged as claiming a write that did not run: its turn, and the words.

    `probability` is the learned model's; None where the words are a tool's own words of success.
    """

    turn: int
    words: str
    probability: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on some evidence, with reasons in words, and the counts behind it.

    `state_equal`: the final state is the expected one; None where nobody can tell. `false_claims`
    are flags, no violations: the verdict does not rest on them.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    false_claims: tuple[FalseClaim, ...] = ()
    scores: tuple[TurnScore, ...] = ()
    state_equal: bool | None = None

    @property
    def has_occurred(self) -> bool:
        """True if a rule was really broken, not only tried."""
        return any(violation.severity is Severity.ESCAPED for violation in self.violations)

    @property
    def strict_verdict(self) -> Verdict:
        """The verdict if nothing may be mended: a pass that needed a repair is a fail."""
        if self.verdict is Verdict.PASS and not all(score.strict_passed for score in self.scores):
            return Verdict.FAIL
        return self.verdict


class Preference(StrEnum):
    """What a person held of a conversation beside the same one with another model."""

    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"  # both good
    BOTH_BAD = "both_bad"

    @property
    def verdict(self) -> Verdict:
        """What it says of this conversation alone."""
        return Verdict.PASS if self in {Preference.BETTER, Preference.TIE} else Verdict.FAIL

    @property
    def of_the_other(self) -> "Preference":
        """What it says of the other conversation."""
        return _OPPOSITES.get(self, self)


_OPPOSITES: Final = {
    Preference.BETTER: Preference.WORSE,
    Preference.WORSE: Preference.BETTER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A person's vote on two conversations that began with one message.

    `preference` is what it says of the record that it stands in, `side` where that one was shown.
    """

    person: str
    preference: Preference
    side: Literal["left", "right"]
    reason: str = ""

    @property
    def of_the_other(self) -> "Vote":
        """The same vote as it stands in the record of the other conversation."""
        side: Literal["left", "right"] = "right" if self.side == "left" else "left"
        return replace(self, preference=self.preference.of_the_other, side=side)

    @property
    def judgement(self) -> Judgement:
        """The verdict on this conversation, with the person's reason."""
        reasons = tuple(filter(None, (str(self.preference), self.reason)))
        return Judgement(verdict=self.preference.verdict, reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    """One line of `records.jsonl`: which sample, what happened, and what is to be held of it.

    `state_diff` is what changed between start and end. `harness_s` is what neither
    model nor tools nor user took. `vote` is there where a person compared it with another model's.
    """

    sample_id: SampleId
    content_hash: str
    ac: str
    locale: str
    tags: tuple[str, ...] = ()
    judgement: Judgement
    evidence: Evidence = field(default_factory=Evidence)
    state_diff: Mapping[str, TableDiff] = field(default_factory=dict)
    attempts: int = 1
    wall_s: float = 0.0
    harness_s: float = 0.0
    started_at: str | None = None
    vote: Vote | None = None
    schema: Literal[2] = SCHEMA


_ADAPTER = TypeAdapter(SampleRecord)
_READER = TypeAdapter(tuple[SampleRecord], config=ConfigDict(allow_inf_nan=False))
"""In a tuple, because a dataclass takes its configuration only from what is around it."""

_ALL: Final = "__all__"
_CALLS: Final[Any] = {"response": {"calls": {_ALL: {"id"}}}}
_CALL_IDS: Final[Any] = {"evidence": {"turns": {_ALL: {"model_calls": {_ALL: _CALLS}}}}}
"""No part of a record: the place of a call in its turn is enough."""


class OtherSchemaError(ValueError):
    """A record of another version's shape."""


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without its newline."""
    try:
        return _ADAPTER.dump_json(record, warnings=False, exclude=_CALL_IDS).decode()
    except PydanticSerializationError:  # a lone surrogate, which has to be escaped
        return compact(_ADAPTER.dump_python(record, warnings=False, exclude=_CALL_IDS))


def decode_line(line: str | bytes) -> SampleRecord:
    """Return the record that a line of strict JSON describes.

    Raises:
        OtherSchemaError: it was written in another version's shape.
        ValueError: it is no JSON, or no record of this version; the message names the field.
        RecursionError: it is nested too deep to be read.
    """
    return decode_record(read_json(line))


def read_json(text: str | bytes) -> Any:
    """Return the value of strict JSON, which has no NaN and no infinite number.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deep to be read.
    """
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


def decode_record(data: Any) -> SampleRecord:
    """Return the record that parsed JSON describes.

    Raises:
        OtherSchemaError: it was written in another version's shape.
        ValueError: it is no record of this version; the message names the field.
    """
    schema = data.get("schema", SCHEMA) if isinstance(data, dict) else SCHEMA
    if schema != SCHEMA:
        raise OtherSchemaError(f"its record schema is {schema}, and this one reads {SCHEMA}")
    try:
        record = _READER.validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(_first_fault(error, drop=1)) from error
    for number, turn in enumerate(record.evidence.turns):
        try:
            if turn.new_tools:
                TOOL_SPECS.validate_python(turn.new_tools)
        except ValidationError as error:
            where = f"evidence.turns.{number}.new_tools"
            raise ValueError(f"{where}.{_first_fault(error)}") from error
    for fault in chain(_numbers_beyond(record, ""), _wrong_places(record)):
        raise ValueError(fault)
    return record


def _first_fault(error: ValidationError, *, drop: int = 0) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"][drop:])) or "record"
    return f"{where}: {first['msg']}"


MAX_SECONDS = 1e8
"""Three years: a longer duration is none that was measured."""

_MAX_COUNT = 2**53
_MAX_TOTAL_S = 1e9


def moment_of(text: str | None) -> datetime | None:
    """Return the moment that ISO 8601 tells; None for other texts, and far from all calendars."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if 1000 <= moment.year <= 9000 else None


def _numbers_beyond(value: Any, where: str) -> Iterator[str]:
    """Yield which counts and durations of a record are none."""
    for each in fields(value):
        part, place = getattr(value, each.name), f"{where}{each.name}"
        if type(part) is int and not 0 <= part <= _MAX_COUNT:
            yield f"{place}: {part:.9g} is no count"
        elif type(part) is float and not -MAX_SECONDS <= part <= MAX_SECONDS:
            yield f"{place}: {part:.9g} seconds are more than can be"
        elif is_dataclass(part):
            yield from _numbers_beyond(part, f"{place}.")
        elif isinstance(part, tuple) and part and is_dataclass(part[0]):
            for number, inner in enumerate(part):
                yield from _numbers_beyond(inner, f"{place}.{number}.")


def _wrong_places(record: SampleRecord) -> Iterator[str]:
    """Yield what points to a call, a message or a row that is not in the record."""
    turns, scores = record.evidence.turns, record.judgement.scores
    total_s = record.wall_s
    for t, turn in enumerate(turns):
        total_s += turn.duration_s
        total_s += sum(each.offset_s + each.duration_s for each in turn.model_calls)
        for c, call in enumerate(turn.calls):
            total_s += call.validation_s + call.waiting_s + call.handler_s
            if call.model_call is not None and call.model_call >= len(turn.model_calls):
                yield f"evidence.turns.{t}.calls.{c}.model_call: there is no such message"
    if total_s > _MAX_TOTAL_S:
        yield f"evidence.turns: {total_s:.9g} seconds are more than can be"
    for t, score in enumerate(scores):
        made = len(turns[t].calls) if t < len(turns) else 0
        for c, row in enumerate(score.calls):
            if row.actual is not None and row.actual >= made:
                yield f"judgement.scores.{t}.calls.{c}.actual: there is no such call"
    diffs = [("", record.state_diff)]
    diffs += [(f"evidence.turns.{t}.", turn.state_diff or {}) for t, turn in enumerate(turns)]
    for where, tables in diffs:
        for name, diff in tables.items():
            for rows, at in ((diff.added, diff.added_at), (diff.removed, diff.removed_at)):
                if at and (len(at) != len(rows) or not 0 <= min(at) <= max(at) <= _MAX_COUNT):
                    yield f"{where}state_diff.{name}: rows and their places do not fit"


def _finite(text: str) -> float:
    """Return a number that can be written again: 1e999 is infinite, which JSON cannot say."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is no JSON number")
