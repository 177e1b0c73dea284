"""The record of one sample, and its form as a line of strict JSON.

A record has everything needed to display, count and rescore its sample. `schema` is the version of
its format. Times are seconds of a monotonic clock: durations, or offsets from the start of a turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain, pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lhkit.base.json_values import compact, parse_json, plain_or_repr, without_pointers
from lhkit.confirm.decision import changed_arguments
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import (
    FalseReplyClaim,
    GateOutcome,
    RowChange,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
)
from lhkit.conversation.responses import Finished
from lhkit.conversation.tool_results import (
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    parse_result,
    result_to_dict,
)
from lhkit.harness.records.tool_specs import TOOL_SPECS
from lhkit.harness.scenarios.sample_id import SampleId

SCHEMA: Final = 3

Logprob: TypeAlias = Annotated[float, Field(le=0)]
"""A natural log-probability."""
_OMITTED: Final = Field(exclude_if=lambda value: value is None)
"""Stored only if it is known, so that other records stay as they were."""

Rows: TypeAlias = tuple[Mapping[str, Any], ...]
State: TypeAlias = Mapping[str, Rows]
"""The rows of each table, as plain JSON objects."""
RowKeys: TypeAlias = Mapping[str, Sequence[str]]
"""The key fields of each table; empty for a table of one row."""


class Verdict(StrEnum):
    """The result of a sample; `invalid`: infrastructure error, excluded from all rates."""

    PASS = "pass"  # noqa: S105 - a verdict, no secret
    FAIL = "fail"
    INVALID = "invalid"


class Severity(StrEnum):
    """Whether a violation was blocked (`attempted`) or occurred (`escaped`)."""

    ATTEMPTED = "attempted"
    ESCAPED = "escaped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule. `turn` counts from 0; None if it belongs to no single turn."""

    code: str
    severity: Severity
    turn: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One completed tool call: a `ToolCallMessage` and its outcome, as they are stored.

    Attributes:
        result: the tool result as JSON.
        model_call: the index of the model message that made the call.
        args: the validated arguments as the model proposed them, of a destructive call with
            everything that it left out; None if validation failed or the call was not dispatched.
        filled_in: JSON Pointers (RFC 6901) of the values in `args` that the model left out.
        summary: the text of the confirmation card; empty if none was shown.
        answer: the answer to the card (`confirm.decision.QuestionOutcome`); empty without a card.
        reason: the user's reason for the answer, or why the answer was refused.
        shown_args: the arguments that the user edited and approved; None without an edit.
        run_args: the edited arguments that the tool was run with; None without an edit.
        changed: whether the tool reported a change of data; None if it did not report.
        changes: the difference of the state before and after the handler; None if unknown.
        min_logprob: the log-probability of the least likely token of the call; None if unknown.
        mean_logprob: the mean over the tokens of the call.
    """

    tool: str
    raw_args: Any
    result: Mapping[str, Any]
    args: Mapping[str, Any] | None = None
    filled_in: tuple[str, ...] = ()
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
    reason: str = ""
    shown_args: Mapping[str, Any] | None = None
    run_args: Mapping[str, Any] | None = None
    changed: bool | None = None
    changes: tuple[RowChange, ...] | None = None
    min_logprob: Annotated[Logprob | None, _OMITTED] = None
    mean_logprob: Annotated[Logprob | None, _OMITTED] = None

    @classmethod
    def of(
        cls, message: ToolCallMessage, *, model_call: int | None = None, destructive: bool = False
    ) -> "CallRecord":
        """Return the record of a call.

        Args:
            message: the call.
            model_call: the index of the model message that made it.
            destructive: whether its tool changes data.

        Raises:
            ValueError: the call is pending.
        """
        outcome = message.outcome
        if outcome is None:
            raise ValueError(f"the call of {message.name!r} is completed without an outcome")
        return cls(
            tool=message.name,
            raw_args=plain_or_repr(message.args),
            result=result_to_dict(outcome.result),
            args=outcome.args,
            filled_in=outcome.filled_in,
            extra_args=outcome.extra_args,
            gate=outcome.gate or GateOutcome.NOT_NEEDED,
            ran=outcome.ran,
            destructive=destructive,
            validation_s=outcome.validation_s,
            waiting_s=outcome.waiting_s,
            handler_s=outcome.handler_s,
            raw_text=message.raw,
            model_call=model_call,
            summary=outcome.summary,
            answer=outcome.answer,
            reason=outcome.reason,
            shown_args=outcome.shown_args,
            run_args=outcome.run_args,
            changed=outcome.changed,
            changes=outcome.changes,
            min_logprob=message.min_logprob,
            mean_logprob=message.mean_logprob,
        )

    def to_message(self) -> ToolCallMessage:
        """Return the call as it was in the chat, as far as it is stored: see `of`."""
        return ToolCallMessage(
            call=ToolCall(
                name=self.tool,
                args=self.raw_args,
                raw=self.raw_text,
                min_logprob=self.min_logprob,
                mean_logprob=self.mean_logprob,
            ),
            outcome=ToolCallOutcome(
                result=self._tool_result(),
                gate=self.gate,
                args=self.args,
                filled_in=self.filled_in,
                extra_args=self.extra_args,
                ran=self.ran,
                summary=self.summary,
                answer=self.answer,
                reason=self.reason,
                shown_args=self.shown_args,
                run_args=self.run_args,
                validation_s=self.validation_s,
                waiting_s=self.waiting_s,
                handler_s=self.handler_s,
                changes=self.changes,
            ),
        )

    def _tool_result(self) -> ToolResult:
        """Return the decoded result; one in an unknown form keeps its outcome."""
        result = parse_result(self.result)
        if result is None:
            is_ok = self.outcome == "ok"
            result = ToolOk(self.result) if is_ok else ToolErr(self.outcome, reason="")
        if isinstance(result, ToolCancelled):
            return result
        return replace(result, changed=self.changed)

    @property
    def effective_args(self) -> Any:
        """The arguments that ran, after an edit the edited ones; else those of the model."""
        if self.run_args is not None:
            return self.run_args
        return self.args if self.ran and self.args is not None else self.raw_args

    @property
    def proposed_args(self) -> Any:
        """The validated arguments of the model, or its raw arguments if they are invalid."""
        return self.raw_args if self.args is None else without_pointers(self.args, self.filled_in)

    @property
    def is_edited(self) -> bool:
        """Whether it ran with arguments that the user had edited."""
        return self.run_args is not None

    @property
    def edited(self) -> Mapping[str, Any]:
        """The arguments that the user changed; None for those removed, empty without an edit."""
        return {} if self.run_args is None else changed_arguments(self.args or {}, self.run_args)

    @property
    def outcome(self) -> str:
        """The outcome: `ok`, `cancelled`, or an error code."""
        status = str(self.result.get("status"))
        return str(self.result.get("code")) if status == "error" else status


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRecord:
    """One request to the model and its response.

    Attributes:
        response: the response without its large parts: prompt token ids after the first two, and
            the prompt text unless prompts are kept. For an interrupted response, the streamed text
            with an empty `reason`.
        offset_s: when the request was sent, from the start of the turn.
        duration_s: the duration as measured by the controller.
    """

    response: Finished
    offset_s: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """The added and removed rows of a table; a changed row is one of each.

    `added_at` are row indexes in the final table, `removed_at` in the initial one, so that the
    final table can be rebuilt from the initial one.
    """

    added: Rows = ()
    removed: Rows = ()
    added_at: tuple[int, ...] = ()
    removed_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One user turn.

    Attributes:
        reply: all text shown to the user.
        notice: the notice added by the application.
        state_diff: the changes made in the turn; None if the scenario does not check them.
        new_tools: specs of the tools registered during the turn, as in the manifest.
        claim: the words of the reply that claim a write which did not happen in the turn.
    """

    user: str
    ended: EndReason
    error: str | None = None
    cause: str | None = None
    detail: str | None = None
    calls: tuple[CallRecord, ...] = ()
    model_calls: tuple[ModelCallRecord, ...] = ()
    reply: str = ""
    notice: str | None = None
    duration_s: float = 0.0
    state_diff: Mapping[str, TableDiff] | None = None
    new_tools: tuple[Mapping[str, Any], ...] = ()
    claim: FalseReplyClaim | None = None

    @property
    def waiting_s(self) -> float:
        """Seconds spent waiting for the user's confirmation."""
        return sum(call.waiting_s for call in self.calls)

    @property
    def active_s(self) -> float:
        """The duration in seconds without `waiting_s`."""
        return self.duration_s - self.waiting_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentScore:
    """The score of one argument: matcher and value as plain JSON, None if absent.

    `reason` explains a mismatch, including a missing or unexpected argument.
    """

    name: str
    ok: bool
    expected: Any = None
    actual: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScore:
    """The score of an expected call, an actual call, or a matched pair of them.

    Attributes:
        expected: the index of the expected call in the turn; None if the call was not expected.
        actual: the index of the actual call in the turn; None if the call was not made.
        tool: the expected tool; empty if the call was not expected.
        called: the called tool; empty if the call was not made.
        ok: also true for an allowed call and for a missing optional one.
        reason: a mismatch other than in the arguments.
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
        """Whether the call was expected and made with every argument right."""
        is_pair = self.expected is not None and self.actual is not None
        return is_pair and all(argument.ok for argument in self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScore:
    """The score of one turn: expected, right and unexpected calls.

    `strict_…` counts only calls that were parsed without a repair. `exact` is whether the calls are
    the recorded ones (`gold.recorded`), with equal arguments; None if the scenario has none.
    """

    passed: bool
    due_calls: int = 0
    right_calls: int = 0
    surplus_calls: int = 0
    calls: tuple[CallScore, ...] = ()
    strict_right_calls: int = 0
    strict_passed: bool = False
    exact: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A domain rule that the final state breaks and the initial state did not."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The transcript of a sample with its states, before scoring.

    `error` is the error that ended the sample. The states are stored only on request, otherwise
    `initial_sha256`: the scenario reproduces the initial state, and `SampleRecord.state_diff` the
    final one.
    """

    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
    initial_sha256: str = ""
    broken_rules: tuple[BrokenRule, ...] = ()
    error: str | None = None

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The tool calls of all turns."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def requests(self) -> tuple[ModelCallRecord, ...]:
        """The requests to the model of all turns."""
        return tuple(request for turn in self.turns for request in turn.model_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseClaim:
    """A reply flagged as claiming a write that did not run.

    `probability` is the claim model's; None if the words are a success phrase of the tool.
    """

    turn: int
    words: str
    probability: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScore:
    """The score of a sample: its verdict, the reasons and the scores per turn.

    `state_equal` is whether the final state is the expected one; None if unknown. `false_claims`
    are flags and do not affect the verdict.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    false_claims: tuple[FalseClaim, ...] = ()
    turn_scores: tuple[TurnScore, ...] = ()
    state_equal: bool | None = None

    @property
    def has_occurred(self) -> bool:
        """Whether a violation occurred that was not blocked."""
        return any(violation.severity is Severity.ESCAPED for violation in self.violations)

    @property
    def exact(self) -> bool | None:
        """Whether it passed with exactly the recorded calls; None if there are none."""
        exact = [score.exact for score in self.turn_scores]
        if not exact or None in exact:
            return None
        return self.verdict is Verdict.PASS and all(exact)

    @property
    def strict_verdict(self) -> Verdict:
        """The verdict without repairs: a pass that needed a repair is a fail."""
        if self.verdict is Verdict.PASS and not all(
            score.strict_passed for score in self.turn_scores
        ):
            return Verdict.FAIL
        return self.verdict


class Preference(StrEnum):
    """A preference between this conversation and the same one with another model."""

    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"  # both good
    BOTH_BAD = "both_bad"

    @property
    def verdict(self) -> Verdict:
        """The verdict on this conversation."""
        return Verdict.PASS if self in {Preference.BETTER, Preference.TIE} else Verdict.FAIL

    @property
    def opposite(self) -> "Preference":
        """The same preference, seen from the other conversation."""
        return {Preference.BETTER: Preference.WORSE, Preference.WORSE: Preference.BETTER}.get(
            self, self
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A vote on two conversations that began with the same message.

    `preference` is about the record that contains the vote, `side` where that record was shown.
    """

    person: str
    preference: Preference
    side: Literal["left", "right"]
    reason: str = ""

    @property
    def opposite(self) -> "Vote":
        """The same vote for the record of the other conversation."""
        side: Literal["left", "right"] = "right" if self.side == "left" else "left"
        return replace(self, preference=self.preference.opposite, side=side)

    @property
    def score(self) -> SampleScore:
        """The vote as a score of this conversation."""
        reasons = tuple(filter(None, (str(self.preference), self.reason)))
        return SampleScore(verdict=self.preference.verdict, reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    """One line of `records.jsonl`: a sample with its transcript and score.

    Attributes:
        content_hash: the hash of everything that can change the outcome (see `fingerprint`).
        ac: the acceptance criterion; None if its scenario has none.
        state_diff: the changes between the initial and the final state.
        harness_s: the time spent outside model, tools and user.
        vote: the vote of a person who compared two models.
        scenario_score: the score without the user's checks that failed; None if none did. It is
            not stored, nor is the verdict of such a check (see `score_record`).
    """

    sample_id: SampleId
    content_hash: str
    ac: str | None = None
    locale: str
    tags: tuple[str, ...] = ()
    score: SampleScore
    trajectory: Trajectory = field(default_factory=Trajectory)
    state_diff: Mapping[str, TableDiff] = field(default_factory=dict)
    attempts: int = 1
    wall_s: float = 0.0
    harness_s: float = 0.0
    started_at: str | None = None
    vote: Vote | None = None
    schema: Literal[3] = SCHEMA
    scenario_score: SampleScore | None = field(default=None, repr=False)

    @property
    def unchecked(self) -> "SampleRecord":
        """The record as it is stored: with the verdict of the scenario alone."""
        if self.scenario_score is None:
            return self
        return replace(self, score=self.scenario_score, scenario_score=None)

    @property
    def is_valid(self) -> bool:
        """Whether it ended without an infrastructure error."""
        return self.score.verdict is not Verdict.INVALID

    @property
    def is_passed(self) -> bool:
        """Whether its verdict is a pass."""
        return self.score.verdict is Verdict.PASS


MAX_SECONDS = 1e8
"""The longest valid duration, three years."""

_MAX_COUNT = 2**53
_MAX_TOTAL_S = 1e9

_WRITER = TypeAdapter(SampleRecord)
_READER = TypeAdapter(tuple[SampleRecord], config=ConfigDict(allow_inf_nan=False))
"""Reads a tuple, because the configuration does not apply to a top-level dataclass."""

_ALL: Final = "__all__"
_CALLS: Final[Any] = {"response": {"calls": {_ALL: {"id", "min_logprob", "mean_logprob"}}}}
_NOT_STORED: Final[Any] = {
    "scenario_score": True,
    "trajectory": {"turns": {_ALL: {"model_calls": {_ALL: _CALLS}}}},
}
"""The verdict of checks is in their own file, the log-probabilities of a call are in its record;
calls are identified by their index in the turn."""


class OtherSchemaError(ValueError):
    """A record or manifest in the format of another version; the message begins with a verb."""


def check_schema(data: Any) -> None:
    """Check the schema version of parsed JSON; data without one are of this version.

    Raises:
        OtherSchemaError: another version of lhkit wrote the data.
    """
    schema = data.get("schema", SCHEMA) if isinstance(data, dict) else SCHEMA
    if schema == SCHEMA:
        return
    if isinstance(schema, int) and schema < SCHEMA:  # nothing was released, so nothing is converted
        raise OtherSchemaError("was written by an earlier lhkit before a first release")
    raise OtherSchemaError(
        f"was written by another version of lhkit (its schema is {schema}, and this version reads "
        f"{SCHEMA})"
    )


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without a newline and without checks."""
    record = record.unchecked
    try:
        return _WRITER.dump_json(record, warnings=False, exclude=_NOT_STORED).decode()
    except PydanticSerializationError:  # a lone surrogate, which has to be escaped
        return compact(_WRITER.dump_python(record, warnings=False, exclude=_NOT_STORED))


def decode_line(line: str | bytes) -> SampleRecord:
    """Parse a record from a line of strict JSON.

    Raises:
        OtherSchemaError: the record has the format of another version.
        ValueError: not valid JSON, or not a valid record; the message names the field.
        RecursionError: the JSON is nested too deep.
    """
    return decode_record(parse_json(line))


def decode_record(data: Any) -> SampleRecord:
    """Return the record for parsed JSON.

    Raises:
        OtherSchemaError: the record has the format of another version.
        ValueError: not a valid record; the message names the field.
    """
    check_schema(data)
    try:
        record = _READER.validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(first_issue(error, drop=1)) from error
    for number, turn in enumerate(record.trajectory.turns):
        try:
            if turn.new_tools:
                TOOL_SPECS.validate_python(turn.new_tools)
        except ValidationError as error:
            where = f"trajectory.turns.{number}.new_tools"
            raise ValueError(f"{where}.{first_issue(error)}") from error
    for issue in chain(_number_issues(record, ""), _index_issues(record)):
        raise ValueError(issue)
    return record


def parse_moment(text: str | None) -> datetime | None:
    """Return the time of an ISO 8601 text; None if invalid or not in the years 1000 to 9000."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if 1000 <= moment.year <= 9000 else None


def first_issue(error: ValidationError, *, drop: int = 0) -> str:
    """Return the first issue of a validation, after its path without the first `drop` parts."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"][drop:])) or "(top)"
    return f"{where}: {first['msg']}"


def _number_issues(value: Any, path: str) -> Iterator[str]:
    """Yield the counts and durations of a record that are out of range."""
    for field_ in fields(value):
        part, place = getattr(value, field_.name), f"{path}{field_.name}"
        if field_.type is Any:  # an argument, of any size
            continue
        if type(part) is int and not 0 <= part <= _MAX_COUNT:
            yield f"{place}: {part:.9g} is not a valid count"
        elif type(part) is float and not -MAX_SECONDS <= part <= MAX_SECONDS:
            yield f"{place}: {part:.9g} seconds are out of range"
        elif is_dataclass(part):
            yield from _number_issues(part, f"{place}.")
        elif isinstance(part, tuple) and part and is_dataclass(part[0]):
            for number, inner in enumerate(part):
                yield from _number_issues(inner, f"{place}.{number}.")


def _index_issues(record: SampleRecord) -> Iterator[str]:
    """Yield the references to calls, messages or rows that the record does not have."""
    turns, scores = record.trajectory.turns, record.score.turn_scores
    total_s = record.wall_s
    for t, turn in enumerate(turns):
        total_s += turn.duration_s
        total_s += sum(call.offset_s + call.duration_s for call in turn.model_calls)
        for c, call in enumerate(turn.calls):
            total_s += call.validation_s + call.waiting_s + call.handler_s
            if call.model_call is not None and call.model_call >= len(turn.model_calls):
                yield f"trajectory.turns.{t}.calls.{c}.model_call: there is no such message"
    if total_s > _MAX_TOTAL_S:
        yield f"trajectory.turns: {total_s:.9g} seconds are out of range"
    for t, score in enumerate(scores):
        made = len(turns[t].calls) if t < len(turns) else 0
        for c, row in enumerate(score.calls):
            if row.actual is not None and row.actual >= made:
                yield f"score.turn_scores.{t}.calls.{c}.actual: there is no such call"
    diffs = [("", record.state_diff)]
    diffs += [(f"trajectory.turns.{t}.", turn.state_diff or {}) for t, turn in enumerate(turns)]
    for where, tables in diffs:
        for name, diff in tables.items():
            for rows, at in ((diff.added, diff.added_at), (diff.removed, diff.removed_at)):
                is_ascending = all(one < two for one, two in pairwise(at))
                in_range = not at or 0 <= at[0] <= at[-1] <= _MAX_COUNT
                if at and not (is_ascending and in_range and len(at) == len(rows)):
                    yield f"{where}state_diff.{name}: rows and their indexes do not match"
