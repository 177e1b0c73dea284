"""Convert records to pandas data frames: samples, turns, calls, violations, scores, requests.

The lists of columns below define names (with units), types, sources and meanings. Types do not
depend on the data: an empty run gives empty frames. Join frames on `scenario`, `repeat` and
`wording`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lhkit.base.errors import importing
from lhkit.base.json_values import json_or_repr
from lhkit.base.text import whole_unicode
from lhkit.chat.truth import truth_kind
from lhkit.conversation.responses import Finished
from lhkit.harness.records.record import (
    CallRecord,
    CallScore,
    FalseClaim,
    ModelCallRecord,
    SampleRecord,
    Severity,
    TurnRecord,
    TurnScore,
)
from lhkit.harness.records.score_record import ScoreRecord, ScoreValue
from lhkit.harness.records.transcript import catalog_of, turn_truth

if TYPE_CHECKING:
    import pandas as pd

    from lhkit.harness.figures.approvals import ToolRisk

_TEXT, _COUNT, _BOOL, _SECONDS = "str", "int64", "bool", "float64"
_NUMBER = "float64"
_MAYBE_COUNT, _MAYBE_BOOL = "Int64", "boolean"

Getter: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame; `of` is a function of the row object, or the path of its attribute."""

    name: str
    dtype: str
    of: Getter | str
    doc: str

    def series(self, rows: Sequence[Any]) -> "pd.Series[Any]":
        """Return the values of this column."""
        with importing("eval"):
            import pandas as pd

        of = attrgetter(self.of) if isinstance(self.of, str) else self.of
        values = [of(row) for row in rows]
        if self.dtype == _TEXT:  # no file format that pandas writes has lone surrogates
            values = [whole_unicode(text) if isinstance(text, str) else text for text in values]
        return pd.Series(values, dtype=self.dtype)


class _TurnRow(NamedTuple):
    record: SampleRecord
    number: int
    turn: TurnRecord
    score: TurnScore | None

    @property
    def claim(self) -> FalseClaim | None:
        flags = self.record.score.false_claims
        return next((claim for claim in flags if claim.turn == self.number), None)

    @property
    def truth(self) -> str:
        return turn_truth(self.turn, catalog_of(self.record))


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


class _ScoreRow(NamedTuple):
    record: SampleRecord
    result: ScoreRecord
    value: ScoreValue


Columns: TypeAlias = Sequence[Column]


def scenarios_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per sample (a scenario's repeat); the columns are `SCENARIOS`."""
    rows = list(records)
    return data_frame(SCENARIOS, rows, rows)


def turns_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per user turn; the columns are `TURNS`."""
    rows = [row for record in records for row in _turns(record)]
    return data_frame(TURNS, rows, [row.record for row in rows])


def calls_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per completed tool call; the columns are `CALLS`."""
    rows = [row for record in records for row in _calls(record)]
    return data_frame(CALLS, rows, [row.record for row in rows])


def violations_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per violation; the columns are `VIOLATIONS`."""
    rows = [(record, v) for record in records for v in record.score.violations]
    return data_frame(VIOLATIONS, [v for _, v in rows], [record for record, _ in rows])


def latency_frame(records: Iterable[SampleRecord]) -> "pd.DataFrame":
    """Return one row per request to the model; the columns are `LATENCY`."""
    rows = [
        _RequestRow(record, t, m, request)
        for record in records
        for t, turn in enumerate(record.trajectory.turns)
        for m, request in enumerate(turn.model_calls)
    ]
    return data_frame(LATENCY, rows, [row.record for row in rows])


def scores_frame(records: Iterable[SampleRecord], results: Iterable[ScoreRecord]) -> "pd.DataFrame":
    """Return one row per value of a score, or per failure; the columns are `SCORES`."""
    by_sample = {record.sample_id: record for record in records}
    rows = [
        _ScoreRow(by_sample[result.sample_id], result, value)
        for result in results
        for value in result.values or (ScoreValue(name=result.score, value=None),)
        if result.sample_id in by_sample
    ]
    return data_frame(SCORES, rows, [row.record for row in rows])


def approvals_frame(tools: Iterable["ToolRisk"]) -> "pd.DataFrame":
    """Return one row per tool that writes; the columns are `APPROVALS`."""
    return data_frame(APPROVALS, list(tools))


def data_frame(
    columns: Columns, rows: Sequence[Any], samples: Sequence[SampleRecord] | None = None
) -> "pd.DataFrame":
    """Return one row per row object, the columns of the `samples` first."""
    with importing("eval"):
        import pandas as pd

    # With pyarrow installed pandas would use Arrow strings, which reject lone surrogates.
    with pd.option_context("mode.string_storage", "python"):
        first = {} if samples is None else {c.name: c.series(samples) for c in SAMPLE}
        return pd.DataFrame(first | {column.name: column.series(rows) for column in columns})


def _turns(record: SampleRecord) -> Iterator[_TurnRow]:
    for t, turn in enumerate(record.trajectory.turns):
        yield _TurnRow(
            record,
            t,
            turn,
            record.score.turn_scores[t] if t < len(record.score.turn_scores) else None,
        )


def _calls(record: SampleRecord) -> Iterator[_CallRow]:
    for row in _turns(record):
        scores = {score.actual: score for score in (row.score.calls if row.score else ())}
        for number, call in enumerate(row.turn.calls):
            yield _CallRow(record, row.number, number, call, scores.get(number))


def _json(path: str) -> Getter:
    """Return a reader of a value as JSON, or its repr if it is not valid JSON."""
    read = attrgetter(path)

    def text(row: Any) -> str | None:
        value = read(row)
        return None if value is None else json_or_repr(value)

    return text


def _run_args(row: _CallRow) -> str | None:
    return json_or_repr(row.call.effective_args) if row.call.ran else None


def _changes(row: _CallRow) -> str | None:
    changes = row.call.changes
    return None if changes is None else json_or_repr([asdict(change) for change in changes])


def _score(name: str) -> Getter:
    return lambda row: getattr(row.score, name, None)


def _false_claim(name: str) -> Getter:
    return lambda row: getattr(row.claim, name, None)


def _above(path: str) -> Getter:
    """Return a reader of a threshold of a tool; None without one."""
    read = attrgetter(path)
    return lambda row: None if row.threshold is None else read(row.threshold)


def _total(name: str) -> Getter:
    return lambda record: sum(getattr(score, name) for score in record.score.turn_scores)


def _tokens(name: str) -> Getter:
    return lambda record: sum(
        getattr(request.response.usage, name) for request in record.trajectory.requests
    )


def _identity(name: str) -> Getter:
    return lambda row: getattr(row.response.identity, name, None)


def _violations(severity: Severity) -> Getter:
    return lambda record: sum(v.severity is severity for v in record.score.violations)


def _is_right(row: _CallRow) -> bool | None:
    return None if row.score is None else row.score.is_exact and row.score.ok


def _is_allowed(row: _CallRow) -> bool | None:
    return None if row.score is None else row.score.expected is None and row.score.ok


SAMPLE: Columns = (
    Column("scenario", _TEXT, "sample_id.scenario", "id of the scenario"),
    Column("repeat", _COUNT, "sample_id.repeat", "which repeat, from 0"),
    Column("wording", _COUNT, "sample_id.wording", "which wording, from 0 (`user`)"),
    Column("ac", _TEXT, "ac", "acceptance criterion"),
    Column("locale", _TEXT, "locale", "language of the conversation"),
    Column(
        "verdict", _TEXT, lambda r: str(r.score.verdict), "pass, fail or invalid, of the sample"
    ),
)
"""The first columns of every frame."""

SCENARIOS: Columns = (
    Column(
        "passed",
        _MAYBE_BOOL,
        lambda r: r.is_passed if r.is_valid else None,
        "whether it passed; missing if invalid",
    ),
    Column(
        "strict_verdict", _TEXT, lambda r: str(r.score.strict_verdict), "with no repair allowed"
    ),
    Column("reason", _TEXT, lambda r: "\n".join(r.score.reasons), "why it failed, one line each"),
    Column("tags", _TEXT, lambda r: " ".join(r.tags), "labels, separated by spaces"),
    Column("turns", _COUNT, lambda r: len(r.trajectory.turns), "user turns that were run"),
    Column("calls", _COUNT, lambda r: len(r.trajectory.calls), "completed calls"),
    Column("requests", _COUNT, lambda r: len(r.trajectory.requests), "requests to the model"),
    Column("due_calls", _COUNT, _total("due_calls"), "expected calls"),
    Column("right_calls", _COUNT, _total("right_calls"), "of them correct"),
    Column("surplus_calls", _COUNT, _total("surplus_calls"), "unexpected calls"),
    Column(
        "state_equal",
        _MAYBE_BOOL,
        "score.state_equal",
        "whether the final state is as expected",
    ),
    Column("attempted", _COUNT, _violations(Severity.ATTEMPTED), "violations that were blocked"),
    Column("escaped", _COUNT, _violations(Severity.ESCAPED), "violations that occurred"),
    Column(
        "false_claims",
        _COUNT,
        lambda r: len(r.score.false_claims),
        "replies flagged as false success claims",
    ),
    Column("prompt_tokens", _COUNT, _tokens("prompt_tokens"), "tokens of all prompts"),
    Column("completion_tokens", _COUNT, _tokens("completion_tokens"), "tokens of all responses"),
    Column("attempts", _COUNT, "attempts", "attempts, repeated after infrastructure errors"),
    Column("wall_s", _SECONDS, "wall_s", "seconds from start to end"),
    Column("harness_s", _SECONDS, "harness_s", "of them in the harness"),
    Column("started_at", _TEXT, "started_at", "ISO 8601; missing if unknown"),
    Column("content_hash", _TEXT, "content_hash", "hash of the scenario and prompt"),
)

TURNS: Columns = (
    Column("turn", _COUNT, "number", "which turn, from 0"),
    Column("passed", _MAYBE_BOOL, _score("passed"), "missing if not scored"),
    Column("strict_passed", _MAYBE_BOOL, _score("strict_passed"), "passed without a repair"),
    Column("due_calls", _MAYBE_COUNT, _score("due_calls"), "expected calls"),
    Column("right_calls", _MAYBE_COUNT, _score("right_calls"), "of them correct"),
    Column("surplus_calls", _MAYBE_COUNT, _score("surplus_calls"), "unexpected calls"),
    Column("calls", _COUNT, lambda t: len(t.turn.calls), "completed calls"),
    Column("requests", _COUNT, lambda t: len(t.turn.model_calls), "requests to the model"),
    Column("ended", _TEXT, lambda t: str(t.turn.ended), "how the turn ended"),
    Column("cause", _TEXT, "turn.cause", "type of the error; missing without one"),
    Column("user", _TEXT, "turn.user", "message of the user"),
    Column("reply", _TEXT, "turn.reply", "text of the reply"),
    Column("truth", _TEXT, "truth", "the writes, as the user reads them under the reply"),
    Column(
        "contradicted",
        _TEXT,
        lambda t: t.turn.claim and t.turn.claim.words,
        "words of the reply that contradict it; missing without any",
    ),
    Column("false_claim", _TEXT, _false_claim("words"), "flagged text; missing without a flag"),
    Column(
        "claim_probability", _SECONDS, _false_claim("probability"), "missing for success phrases"
    ),
    Column("duration_s", _SECONDS, "turn.duration_s", "seconds of the whole turn"),
    Column("waiting_s", _SECONDS, "turn.waiting_s", "of them waiting for the user"),
    Column("turn_s", _SECONDS, "turn.active_s", "the rest, as in `Run.summary`"),
    Column(
        "model_s",
        _SECONDS,
        lambda t: sum(request.duration_s for request in t.turn.model_calls),
        "of them in requests",
    ),
    Column(
        "tools_s",
        _SECONDS,
        lambda t: sum(call.handler_s for call in t.turn.calls),
        "of them in handlers",
    ),
)

CALLS: Columns = (
    Column("turn", _COUNT, "turn", "which turn, from 0"),
    Column("call", _COUNT, "number", "which call of the turn, from 0"),
    Column("request", _MAYBE_COUNT, "call.model_call", "which request made it, from 0"),
    Column("tool", _TEXT, "call.tool", "name as the model wrote it"),
    Column("outcome", _TEXT, "call.outcome", "ok, cancelled or an error code"),
    Column("right", _MAYBE_BOOL, _is_right, "expected, with correct arguments"),
    Column("tolerated", _MAYBE_BOOL, _is_allowed, "not expected, but allowed"),
    Column("gate", _TEXT, lambda c: str(c.call.gate), "outcome of the confirmation"),
    Column("ran", _BOOL, "call.ran", "whether the handler was started"),
    Column("destructive", _BOOL, "call.destructive", "whether the tool changes data"),
    Column("raw_args", _TEXT, _json("call.raw_args"), "arguments as parsed, JSON"),
    Column("args", _TEXT, _json("call.args"), "validated arguments, JSON; may be missing"),
    Column("run_args", _TEXT, _run_args, "arguments that ran, JSON; missing if none did"),
    Column(
        "truth",
        _TEXT,
        lambda c: truth_kind(c.call.to_message()),
        "the effect of a write, such as changed or failed",
    ),
    Column("changes", _TEXT, _changes, "rows that differ after it, JSON; missing if unknown"),
    Column("edited", _TEXT, _json("call.edited"), "arguments that the user changed, JSON"),
    Column("reason", _TEXT, "call.reason", "the user's reason for the answer"),
    Column("result", _TEXT, _json("call.result"), "the tool result, JSON"),
    Column("raw_text", _TEXT, "call.raw_text", "raw text of the model"),
    Column("validation_s", _SECONDS, "call.validation_s", "seconds of validation"),
    Column("waiting_s", _SECONDS, "call.waiting_s", "seconds waiting for the user"),
    Column("handler_s", _SECONDS, "call.handler_s", "seconds of the handler"),
    Column(
        "min_logprob",
        _NUMBER,
        "call.min_logprob",
        "natural log-probability of its least likely token; missing if unknown",
    ),
    Column(
        "mean_logprob", _NUMBER, "call.mean_logprob", "mean over its tokens; missing if unknown"
    ),
)

VIOLATIONS: Columns = (
    Column("turn", _MAYBE_COUNT, "turn", "which turn; missing if none"),
    Column("code", _TEXT, "code", "code of the violated rule"),
    Column(
        "severity", _TEXT, lambda v: str(v.severity), "attempted (blocked) or escaped (occurred)"
    ),
    Column("detail", _TEXT, "detail", "description"),
)

APPROVALS: Columns = (
    Column("tool", _TEXT, "tool", "name of the tool"),
    Column("proposed", _COUNT, "proposed", "proposed writes with a known result"),
    Column("wrong", _COUNT, "wrong", "of them wrong"),
    Column("scenarios", _COUNT, "scenarios", "scenarios and chats that they are from"),
    Column("upper", _SECONDS, "upper", "upper limit of the risk; missing without writes"),
    Column("lower", _SECONDS, "lower", "lower limit of the risk; missing without writes"),
    Column("p_value", _SECONDS, "p_value", 'of "the risk is at least the budget", corrected'),
    Column("decision", _TEXT, lambda t: str(t.decision), "run, run_above, ask, cannot_tell, …"),
    Column("further", _MAYBE_COUNT, "further", "further scenarios without a wrong write needed"),
    Column("saved", _COUNT, "saved", "cards that the decision saves"),
    Column("source", _TEXT, lambda t: " ".join(t.sources), "where the evidence is from"),
    Column("unknown", _COUNT, "unknown", "proposed writes with an unknown result, not counted"),
    Column("by_policy", _COUNT, "by_policy", "proposed writes that ran by a policy"),
    Column("wrong_by_policy", _COUNT, "wrong_by_policy", "of them wrong"),
    Column("above", _SECONDS, _above("above"), "log-probability of a threshold; may be missing"),
    Column("above_proposed", _MAYBE_COUNT, _above("proposed"), "tested writes above it"),
    Column("above_wrong", _MAYBE_COUNT, _above("wrong"), "of them wrong"),
    Column("above_upper", _SECONDS, _above("upper"), "upper limit of their risk"),
    Column("above_saved", _SECONDS, _above("saved.rate"), "share of the tested writes above it"),
)

SCORES: Columns = (
    Column("score", _TEXT, "value.name", "name of the score, or `score.key` of a mapping"),
    Column(
        "value",
        _SECONDS,
        lambda s: s.value.value,
        "the value, 1 for True; missing if it does not apply or failed",
    ),
    Column(
        "is_bool", _BOOL, lambda s: isinstance(s.value.value, bool), "whether it is True or False"
    ),
    Column("reason", _TEXT, "value.reason", "reason of a False"),
    Column("error", _TEXT, "result.error", "why the score failed; empty if it did not"),
    Column("check", _BOOL, "result.fails", "whether a False fails the sample"),
    Column("duration_s", _SECONDS, "result.duration_s", "seconds of the computation"),
)

LATENCY: Columns = (
    Column("turn", _COUNT, "turn", "which turn, from 0"),
    Column("request", _COUNT, "number", "which request of the turn, from 0"),
    Column("calls", _COUNT, lambda q: len(q.response.calls), "calls in the response"),
    Column("strict", _BOOL, "response.strict", "whether nothing was repaired"),
    Column("reason", _TEXT, "response.reason", "finish reason of the server"),
    Column("truncated", _BOOL, "response.truncated", "whether it was truncated"),
    Column(
        "offset_s", _SECONDS, "request.offset_s", "when it was sent, from the start of the turn"
    ),
    Column("duration_s", _SECONDS, "request.duration_s", "seconds as measured by the controller"),
    Column("first_byte_s", _SECONDS, "response.timing.headers_s", "to the headers"),
    Column("first_token_s", _SECONDS, "response.timing.first_token_s", "to the 1st token"),
    Column("first_text_s", _SECONDS, "response.timing.first_text_s", "to the 1st text"),
    Column("call_ready_s", _SECONDS, "response.timing.call_ready_s", "to the 1st whole call"),
    Column("last_token_s", _SECONDS, "response.timing.last_token_s", "to the last token"),
    Column(
        "longest_gap_s",
        _SECONDS,
        lambda q: max(q.response.timing.chunk_gaps_s, default=None),
        "longest gap between chunks",
    ),
    Column("prompt_tokens", _COUNT, "response.usage.prompt_tokens", "of the prompt"),
    Column(
        "cached_tokens", _MAYBE_COUNT, "response.usage.cached_tokens", "missing if not reported"
    ),
    Column("completion_tokens", _COUNT, "response.usage.completion_tokens", "written"),
    Column("model", _TEXT, _identity("model"), "name of the model"),
    Column("dialect", _TEXT, _identity("dialect"), "dialect of the model"),
    Column("dtype", _TEXT, _identity("dtype"), "number type; empty if not reported"),
    Column("device", _TEXT, _identity("device"), "graphics card; empty if not reported"),
)
