"""One sample's record: everything needed to read, count and score it again. Values only.

`schema` is the version of this shape. Times are seconds of a monotonic clock, as durations or as
offsets from the start of the turn. Writing to disk is `journal`'s business.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from lhkit.vocab.events import EndReason
from lhkit.vocab.generation import ModelIdentity, Timing, Usage
from lhkit.vocab.json_values import canonical, compact
from lhkit.vocab.trace import GateOutcome

SCHEMA: Final = 1

Rows: TypeAlias = tuple[Mapping[str, Any], ...]
State: TypeAlias = Mapping[str, Rows]
"""The rows of each table, as plain JSON objects."""


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
    """Which sample; `repeat` counts from 0."""

    scenario: str
    repeat: int = 0


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
    it. `prompt_text` is kept only on demand.
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
class TurnScore:
    """How one turn did: calls that were due, that were right, and that nobody expected."""

    passed: bool
    due_calls: int = 0
    right_calls: int = 0
    surplus_calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """Rows that are new and rows that are gone; a changed row is one of each."""

    added: Rows = ()
    removed: Rows = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What happened, before anybody judged it. `fault` says why the play could not go on."""

    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on some evidence, with reasons in words, and the counts behind it."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    scores: tuple[TurnScore, ...] = ()


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
    turns: tuple[TurnRecord, ...] = ()
    initial_state: State = field(default_factory=dict)
    final_state: State = field(default_factory=dict)
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


_ADAPTER = TypeAdapter(SampleRecord)


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without its newline."""
    return compact(_ADAPTER.dump_python(record, warnings=False))


def decode_record(data: Any) -> SampleRecord:
    """Return the record that parsed JSON describes.

    Raises:
        ValueError: it is no record of this version; the message names the field.
    """
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "record"
        raise ValueError(f"{where}: {first['msg']}") from error


def state_diff(before: State, after: State) -> dict[str, TableDiff]:
    """Return what changed, by table; tables without a change are left out."""
    diffs: dict[str, TableDiff] = {}
    for table in sorted(before.keys() | after.keys()):
        added = _without(after.get(table, ()), before.get(table, ()))
        removed = _without(before.get(table, ()), after.get(table, ()))
        if added or removed:
            diffs[table] = TableDiff(added=added, removed=removed)
    return diffs


def _without(rows: Rows, others: Rows) -> Rows:
    """Return `rows` less `others`, counting equal rows."""
    left = Counter(canonical(row) for row in others)
    kept = []
    for row in rows:
        key = canonical(row)
        if left[key] > 0:
            left[key] -= 1
        else:
            kept.append(row)
    return tuple(kept)
