"""Records as tables for pandas: samples, turns, calls, violations, requests. No arithmetic.

Each column stands in one line: name (with unit), type, where it comes from, what it means. Types
do not depend on the data: an empty run gives empty frames. `scenario` and `repeat` join the
frames.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lhkit.harness.record import (
    CallRecord,
    CallScore,
    FalseClaim,
    ModelCallRecord,
    SampleRecord,
    Severity,
    TurnRecord,
    TurnScore,
    Verdict,
)
from lhkit.json_values import json_or_repr
from lhkit.responses import Finished

if TYPE_CHECKING:
    import pandas as pd

_TEXT, _COUNT, _BOOL, _SECONDS = "str", "int64", "bool", "float64"
_MAYBE_COUNT, _MAYBE_BOOL = "Int64", "boolean"

Getter: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `of` reads its value from what a row stands for, or names an attribute of it."""

    name: str
    dtype: str
    of: Getter | str
    doc: str

    def series(self, rows: Sequence[Any]) -> "pd.Series[Any]":
        """Return the values of this column."""
        import pandas as pd

        of = attrgetter(self.of) if isinstance(self.of, str) else self.of
        return pd.Series([of(row) for row in rows], dtype=self.dtype)


class _TurnRow(NamedTuple):
    record: SampleRecord
    number: int
    turn: TurnRecord
    score: TurnScore | None

    @property
    def claim(self) -> FalseClaim | None:
        flags = self.record.judgement.false_claims
        return next((each for each in flags if each.turn == self.number), None)


class _CallRow(NamedTuple):
    record: SampleRecord
    turn: int
    number: int
    call: CallRecord
    score: CallScore | None


class _RequestRow(NamedTuple):
    record: SampleRecord
    turn: int
    number: int
    request: ModelCallRecord

    @property
    def response(self) -> Finished:
        return self.request.response


Columns: TypeAlias = Sequence[Column]


def scenarios_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per sample (a scenario's repeat); the columns are `SCENARIOS`."""
    rows = list(records)
    return _frame(SCENARIOS, rows, rows)


def turns_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per user turn; the columns are `TURNS`."""
    rows = [turn for record in records for turn in _turns(record)]
    return _frame(TURNS, rows, [row.record for row in rows])


def calls_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per settled call of a tool; the columns are `CALLS`."""
    rows = [call for record in records for call in _calls(record)]
    return _frame(CALLS, rows, [row.record for row in rows])


def violations_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per violation; the columns are `VIOLATIONS`."""
    rows = [(record, each) for record in records for each in record.judgement.violations]
    return _frame(VIOLATIONS, [each for _, each in rows], [record for record, _ in rows])


def latency_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per request to the model; the columns are `LATENCY`."""
    rows = [
        _RequestRow(record, t, m, request)
        for record in records
        for t, turn in enumerate(record.evidence.turns)
        for m, request in enumerate(turn.model_calls)
    ]
    return _frame(LATENCY, rows, [row.record for row in rows])


def _frame(
    columns: Columns, rows: Sequence[Any], samples: Sequence[SampleRecord]
) -> "pd.DataFrame":
    import pandas as pd

    # With pyarrow installed pandas would take Arrow's strings, which refuse lone surrogates.
    with pd.option_context("mode.string_storage", "python"):
        series = {column.name: column.series(samples) for column in SAMPLE}
        return pd.DataFrame(series | {column.name: column.series(rows) for column in columns})


def _turns(record: SampleRecord) -> Iterator[_TurnRow]:
    for t, turn in enumerate(record.evidence.turns):
        yield _TurnRow(
            record,
            t,
            turn,
            record.judgement.scores[t] if t < len(record.judgement.scores) else None,
        )


def _calls(record: SampleRecord) -> Iterator[_CallRow]:
    for at in _turns(record):
        scores = {row.actual: row for row in (at.score.calls if at.score else ())}
        for c, call in enumerate(at.turn.calls):
            yield _CallRow(record, at.number, c, call, scores.get(c))


def _severe(record: SampleRecord, severity: Severity) -> int:
    return sum(violation.severity is severity for violation in record.judgement.violations)


def _requests(record: SampleRecord) -> list[ModelCallRecord]:
    return [request for turn in record.evidence.turns for request in turn.model_calls]


def _model_s(row: _TurnRow) -> float:
    return sum(request.duration_s for request in row.turn.model_calls)


def _tools_s(row: _TurnRow) -> float:
    return sum(call.handler_s for call in row.turn.calls)


def _longest_gap_s(row: _RequestRow) -> float | None:
    return max(row.response.timing.chunk_gaps_s, default=None)


def _is_tolerated(row: _CallRow) -> bool | None:
    return None if row.score is None else row.score.expected is None and row.score.ok


def _json(path: str) -> Getter:
    """Return a reader of a value as JSON; in Python's own words where JSON has none."""
    read = attrgetter(path)

    def text(row: Any) -> str | None:
        value = read(row)
        return None if value is None else json_or_repr(value)

    return text


def _score(name: str) -> Getter:
    return lambda row: None if row.score is None else getattr(row.score, name)


def _false_claim(name: str) -> Getter:
    return lambda row: None if row.claim is None else getattr(row.claim, name)


def _total(name: str) -> Getter:
    return lambda record: sum(getattr(score, name) for score in record.judgement.scores)


def _tokens(name: str) -> Getter:
    return lambda record: sum(
        getattr(request.response.usage, name) for request in _requests(record)
    )


def _identity(name: str) -> Getter:
    return lambda row: getattr(row.response.identity, name, None)


def _is_passed(record: SampleRecord) -> bool | None:
    return (
        None
        if record.judgement.verdict is Verdict.INVALID
        else record.judgement.verdict is Verdict.PASS
    )


def _is_right(row: _CallRow) -> bool | None:
    return None if row.score is None else row.score.is_exact and row.score.ok


SAMPLE: Columns = (
    Column("scenario", _TEXT, "sample_id.scenario", "id of the scenario"),
    Column("repeat", _COUNT, "sample_id.repeat", "which repeat, from 0"),
    Column("ac", _TEXT, "ac", "acceptance criterion"),
    Column("locale", _TEXT, "locale", "language of the conversation"),
    Column(
        "verdict", _TEXT, lambda r: str(r.judgement.verdict), "pass, fail or invalid, of the sample"
    ),
)
"""What every frame begins with."""

SCENARIOS: Columns = (
    Column("passed", _MAYBE_BOOL, _is_passed, "whether it passed; missing if invalid"),
    Column(
        "strict_verdict", _TEXT, lambda r: str(r.judgement.strict_verdict), "if nothing is mended"
    ),
    Column(
        "reason", _TEXT, lambda r: "\n".join(r.judgement.reasons), "what was wrong, one line each"
    ),
    Column("tags", _TEXT, lambda r: " ".join(r.tags), "labels, separated by spaces"),
    Column("turns", _COUNT, lambda r: len(r.evidence.turns), "user turns that were played"),
    Column("calls", _COUNT, lambda r: sum(len(t.calls) for t in r.evidence.turns), "settled calls"),
    Column("requests", _COUNT, lambda r: len(_requests(r)), "requests to the model"),
    Column("due_calls", _COUNT, _total("due_calls"), "expected calls"),
    Column("right_calls", _COUNT, _total("right_calls"), "of them right"),
    Column("surplus_calls", _COUNT, _total("surplus_calls"), "not expected"),
    Column("state_equal", _MAYBE_BOOL, "judgement.state_equal", "the final state is as expected"),
    Column("attempted", _COUNT, lambda r: _severe(r, Severity.ATTEMPTED), "violations tried"),
    Column("escaped", _COUNT, lambda r: _severe(r, Severity.ESCAPED), "violations that happened"),
    Column(
        "false_claims", _COUNT, lambda r: len(r.judgement.false_claims), "replies that are flagged"
    ),
    Column("prompt_tokens", _COUNT, _tokens("prompt_tokens"), "tokens of all prompts"),
    Column("completion_tokens", _COUNT, _tokens("completion_tokens"), "tokens of all responses"),
    Column("attempts", _COUNT, "attempts", "tries until the world did not fail"),
    Column("wall_s", _SECONDS, "wall_s", "seconds from start to end"),
    Column("harness_s", _SECONDS, "harness_s", "of them not model, tools or user"),
    Column("started_at", _TEXT, "started_at", "ISO 8601; missing if not told"),
    Column("content_hash", _TEXT, "content_hash", "hash of the question"),
)

TURNS: Columns = (
    Column("turn", _COUNT, "number", "which turn, from 0"),
    Column("passed", _MAYBE_BOOL, _score("passed"), "missing if not scored"),
    Column("strict_passed", _MAYBE_BOOL, _score("strict_passed"), "passed with nothing mended"),
    Column("due_calls", _MAYBE_COUNT, _score("due_calls"), "expected calls"),
    Column("right_calls", _MAYBE_COUNT, _score("right_calls"), "of them right"),
    Column("surplus_calls", _MAYBE_COUNT, _score("surplus_calls"), "not expected"),
    Column("calls", _COUNT, lambda t: len(t.turn.calls), "settled calls"),
    Column("requests", _COUNT, lambda t: len(t.turn.model_calls), "requests to the model"),
    Column("ended", _TEXT, lambda t: str(t.turn.ended), "how the turn ended"),
    Column("cause", _TEXT, "turn.cause", "type of the fault; missing without one"),
    Column("user", _TEXT, "turn.user", "what the user said"),
    Column("reply", _TEXT, "turn.reply", "all that the user read"),
    Column("false_claim", _TEXT, _false_claim("words"), "flagged words; missing without a flag"),
    Column("claim_probability", _SECONDS, _false_claim("probability"), "missing for own words"),
    Column("duration_s", _SECONDS, "turn.duration_s", "seconds of the whole turn"),
    Column("waiting_s", _SECONDS, "turn.waiting_s", "of them waiting for the user"),
    Column("turn_s", _SECONDS, "turn.active_s", "the rest: what `summary` counts"),
    Column("model_s", _SECONDS, _model_s, "of them in requests"),
    Column("tools_s", _SECONDS, _tools_s, "of them in handlers"),
)

CALLS: Columns = (
    Column("turn", _COUNT, "turn", "which turn, from 0"),
    Column("call", _COUNT, "number", "which call of the turn, from 0"),
    Column("request", _MAYBE_COUNT, "call.model_call", "which request made it, from 0"),
    Column("tool", _TEXT, "call.tool", "name as the model wrote it"),
    Column("outcome", _TEXT, "call.outcome", "ok, cancelled or an error code"),
    Column("right", _MAYBE_BOOL, _is_right, "expected, with right arguments; missing if unscored"),
    Column("tolerated", _MAYBE_BOOL, _is_tolerated, "not expected, and allowed"),
    Column("gate", _TEXT, lambda c: str(c.call.gate), "what became of the question to the user"),
    Column("ran", _BOOL, "call.ran", "whether the handler was started"),
    Column("destructive", _BOOL, "call.destructive", "whether the tool changes data"),
    Column("raw_args", _TEXT, _json("call.raw_args"), "arguments as parsed, JSON"),
    Column("args", _TEXT, _json("call.args"), "validated, JSON; may be missing"),
    Column("result", _TEXT, _json("call.result"), "the envelope, JSON"),
    Column("raw_text", _TEXT, "call.raw_text", "what the model wrote"),
    Column("validation_s", _SECONDS, "call.validation_s", "seconds of validation"),
    Column("waiting_s", _SECONDS, "call.waiting_s", "seconds waiting for the user"),
    Column("handler_s", _SECONDS, "call.handler_s", "seconds of the handler"),
)

VIOLATIONS: Columns = (
    Column("turn", _MAYBE_COUNT, "turn", "which turn; missing if none"),
    Column("code", _TEXT, "code", "the rule"),
    Column("severity", _TEXT, lambda v: str(v.severity), "attempted or escaped"),
    Column("detail", _TEXT, "detail", "in words"),
)

LATENCY: Columns = (
    Column("turn", _COUNT, "turn", "which turn, from 0"),
    Column("request", _COUNT, "number", "which request of the turn, from 0"),
    Column("calls", _COUNT, lambda q: len(q.response.calls), "calls in the response"),
    Column("strict", _BOOL, "response.strict", "whether nothing had to be mended"),
    Column("reason", _TEXT, "response.reason", "why it ended, in the server's word"),
    Column("truncated", _BOOL, "response.truncated", "whether it was cut off"),
    Column("offset_s", _SECONDS, "request.offset_s", "when it was sent, in the turn"),
    Column("duration_s", _SECONDS, "request.duration_s", "as the controller saw it"),
    Column("first_byte_s", _SECONDS, "response.timing.headers_s", "to the headers"),
    Column("first_token_s", _SECONDS, "response.timing.first_token_s", "to the 1st token"),
    Column("first_text_s", _SECONDS, "response.timing.first_text_s", "to the 1st text"),
    Column("call_ready_s", _SECONDS, "response.timing.call_ready_s", "to the 1st whole call"),
    Column("last_token_s", _SECONDS, "response.timing.last_token_s", "to the last token"),
    Column("longest_gap_s", _SECONDS, _longest_gap_s, "longest gap between chunks"),
    Column("prompt_tokens", _COUNT, "response.usage.prompt_tokens", "of the prompt"),
    Column("cached_tokens", _MAYBE_COUNT, "response.usage.cached_tokens", "missing if not told"),
    Column("completion_tokens", _COUNT, "response.usage.completion_tokens", "written"),
    Column("model", _TEXT, _identity("model"), "who answered"),
    Column("dialect", _TEXT, _identity("dialect"), "spoken"),
    Column("dtype", _TEXT, _identity("dtype"), "computed in; empty if untold"),
)
