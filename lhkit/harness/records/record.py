"""One sample's record: everything needed to read, count and score it again. Values only.

`schema` is the version of this shape. Times are seconds of a monotonic clock, as durations or as
offsets from the start of the turn. How a line is written is `record_line`'s business.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from lhkit.vocab.events import EndReason
from lhkit.vocab.generation import ModelIdentity, Timing, Usage
from lhkit.vocab.trace import GateOutcome

SCHEMA: Final = 1

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

    @property
    def outcome(self) -> str:
        """What the call came to: `ok`, `cancelled`, or the code of an error."""
        status = str(self.result.get("status"))
        return str(self.result.get("code")) if status == "error" else status


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """A call as it was parsed, with what the parser had to mend."""

    name: str
    args: Any
    raw: str = ""
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRecord:
    """One request to the model. `reason` is empty where the response never ended.

    `offset_s` is when it was sent, from the start of the turn; `duration_s` as the controller saw
    it. `prompt_text` is kept only on demand. `faults` are the audit's classes; `server_calls` what
    the server parsed of the same text, None where it was not asked to. Where it was, `calls` are
    the server's, and `own_calls` and `own_fragment` what lhkit reads in the raw text (None where
    the server does not give that text).
    """

    offset_s: float = 0.0
    duration_s: float = 0.0
    raw_text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_sha256: str = ""
    prompt_text: str | None = None
    text: str = ""
    calls: tuple[ParsedCall, ...] = ()
    fragment: str = ""
    strict: bool = True
    reason: str = ""
    truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    server_metrics: Any = None
    identity: ModelIdentity | None = None
    own_calls: tuple[ParsedCall, ...] | None = None
    own_fragment: str = ""
    faults: tuple[str, ...] = ()
    server_calls: tuple[ParsedCall, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One user turn. `reply` is all that the user read, `hint` what the application added."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentScore:
    """One argument of one call: the matcher and the value as plain JSON, None where there is none.

    `reason` says what is wrong, also whether the argument is missing or surplus.
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
    was not expected (`tool`) or not made (`called`). A call that the scenario tolerates, and an
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
    without a repair, `server_…` what the server parsed (None where it parsed nothing). Lines
    written before these fields were there read as 0 and False until they are scored again.
    """

    passed: bool
    due_calls: int = 0
    right_calls: int = 0
    surplus_calls: int = 0
    calls: tuple[CallScore, ...] = ()
    strict_right_calls: int = 0
    strict_passed: bool = False
    server_right_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """Rows that are new and rows that are gone; a changed row is one of each."""

    added: Rows = ()
    removed: Rows = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that the final state breaks and the initial one did not, in the domain's words."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What happened, before anybody judged it. `fault` says why the play could not go on."""

    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
    broken_rules: tuple[BrokenRule, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on some evidence, with reasons in words, and the counts behind it.

    `state_equal`: the final state is the expected one; None where nobody can tell.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    scores: tuple[TurnScore, ...] = ()
    state_equal: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    """One line of `records.jsonl`. `harness_s` is what neither model nor tools nor user took."""

    sample_id: SampleId
    content_hash: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    ac: str
    locale: str
    tags: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    scores: tuple[TurnScore, ...] = ()
    state_equal: bool | None = None
    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
    broken_rules: tuple[BrokenRule, ...] = ()
    state_diff: Mapping[str, TableDiff] = field(default_factory=dict)
    fault: str | None = None
    attempts: int = 1
    wall_s: float = 0.0
    harness_s: float = 0.0
    started_at: str | None = None
    schema: Literal[1] = SCHEMA

    @property
    def evidence(self) -> Evidence:
        """What happened: enough to judge it again."""
        return Evidence(**{each.name: getattr(self, each.name) for each in fields(Evidence)})

    @property
    def strict_verdict(self) -> Verdict:
        """The verdict if nothing may be mended: a pass that needed a repair is a fail."""
        if self.verdict is Verdict.PASS and not all(score.strict_passed for score in self.scores):
            return Verdict.FAIL
        return self.verdict
