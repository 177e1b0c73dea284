"""Times and tokens of requests and of user turns, as percentiles. Pure, over records.

A request is timed from its sending; names in brackets are those of `vllm bench serve`, which
defines them the same way. A user turn is timed from the user's message, and time spent waiting
for a person's answer is taken out of everything but `waiting`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.harness.record import ModelCallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.responses import Timing

_Moment: TypeAlias = Callable[[Timing], float | None]

WARM_SHARE = 0.5
"""A request is warm if at least this share of its prompt tokens came from the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of `n` durations in seconds, linearly interpolated; None where n is 0."""

    n: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens as the server counts them.

    `cached_of` are the prompt tokens of those requests that report how many were cached.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cached_of: int = 0

    @property
    def cached_share(self) -> float | None:
        """The share of prompt tokens that came from the cache; None where nobody says."""
        return self.cached / self.cached_of if self.cached_of else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """Requests to the model, each timed from its sending.

    Attributes:
        headers: response headers.
        first_chunk: first event of the stream.
        first_token: first generated token [TTFT].
        first_text: first text that a user can see.
        call_ready: the first call complete.
        last_token: last token [E2EL].
        per_token: mean time per token after the first one [TPOT].
        token_gap: gaps between successive token-bearing chunks, all requests pooled [ITL].
        duration: until the stream was done, as the controller saw it.
    """

    headers: Latency = field(default_factory=Latency)
    first_chunk: Latency = field(default_factory=Latency)
    first_token: Latency = field(default_factory=Latency)
    first_text: Latency = field(default_factory=Latency)
    call_ready: Latency = field(default_factory=Latency)
    last_token: Latency = field(default_factory=Latency)
    per_token: Latency = field(default_factory=Latency)
    token_gap: Latency = field(default_factory=Latency)
    duration: Latency = field(default_factory=Latency)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTimes:
    """User turns, each timed from the user's message, without waiting for a person.

    Attributes:
        first_token: first token of the first request.
        first_text: first text that the user can see, in any request.
        call_ready: the first call complete, in any request.
        last_token: last token of the last request.
        whole: the turn.
        tools: handlers, in turns that ran one.
        harness: what neither model nor tools nor a person took.
        waiting: a person's time, per question.
    """

    first_token: Latency = field(default_factory=Latency)
    first_text: Latency = field(default_factory=Latency)
    call_ready: Latency = field(default_factory=Latency)
    last_token: Latency = field(default_factory=Latency)
    whole: Latency = field(default_factory=Latency)
    tools: Latency = field(default_factory=Latency)
    harness: Latency = field(default_factory=Latency)
    waiting: Latency = field(default_factory=Latency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of a run: requests (all, cold, warm) and turns (all, of passed, of failed samples).

    A request that does not report cached tokens is neither cold nor warm (`is_warm`).
    """

    requests: RequestTimes = field(default_factory=RequestTimes)
    cold: RequestTimes = field(default_factory=RequestTimes)
    warm: RequestTimes = field(default_factory=RequestTimes)
    turns: TurnTimes = field(default_factory=TurnTimes)
    passed: TurnTimes = field(default_factory=TurnTimes)
    failed: TurnTimes = field(default_factory=TurnTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Where the wall time of one invocation went, in seconds; the parts add up to `wall_s`.

    Attributes:
        setup_s: starting, reading, weights: all before the first sample but the server's start.
        server_s: waiting for the server that was started for it.
        model_s: a request was with the model, of at least one conversation.
        writing_s: no request was, and a record was on its way to the disk.
        harness_s: the rest: worlds, rules, scores.
    """

    setup_s: float = 0.0
    server_s: float = 0.0
    model_s: float = 0.0
    writing_s: float = 0.0
    harness_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """All of it."""
        return self.setup_s + self.server_s + self.model_s + self.writing_s + self.harness_s

    @property
    def own_share(self) -> float | None:
        """The share that was not the model's; None where there is nothing to share."""
        return 1 - self.model_s / self.wall_s if self.wall_s else None


def spent(manifest: Mapping[str, Any]) -> Spent | None:
    """Return where the time of a run's newest invocation went; None if it played nothing."""
    invocation = next(reversed(manifest.get("invocations") or [{}]))
    parts = ("setup_s", "server_s", "model_s", "writing_s")
    told = {name: invocation.get(name) for name in (*parts, "wall_s")}
    seconds = {name: value for name, value in told.items() if isinstance(value, float)}
    if not invocation.get("played") or len(seconds) < len(told):
        return None
    harness_s = seconds.pop("wall_s") - seconds["model_s"] - seconds["writing_s"]
    return Spent(**seconds, harness_s=max(0.0, harness_s))


def times(records: Sequence[SampleRecord]) -> Times:
    """Return the times of the valid samples among some records."""
    valid = [record for record in records if record.judgement.verdict is not Verdict.INVALID]
    turns = [turn for record in valid for turn in record.evidence.turns]
    requests = [call for turn in turns for call in turn.model_calls]
    return Times(
        requests=request_times(requests),
        cold=request_times([each for each in requests if is_warm(each) is False]),
        warm=request_times([each for each in requests if is_warm(each) is True]),
        turns=turn_times(turns),
        passed=turn_times(_turns_of(valid, Verdict.PASS)),
        failed=turn_times(_turns_of(valid, Verdict.FAIL)),
    )


def is_warm(request: ModelCallRecord) -> bool | None:
    """Return True if enough of the prompt came from the cache; None if the server does not say."""
    usage = request.response.usage
    if usage.cached_tokens is None or usage.prompt_tokens == 0:
        return None
    return usage.cached_tokens >= WARM_SHARE * usage.prompt_tokens


def request_times(requests: Sequence[ModelCallRecord]) -> RequestTimes:
    """Return the times of some requests."""
    timings = [request.response.timing for request in requests]
    return RequestTimes(
        headers=latency(timing.headers_s for timing in timings),
        first_chunk=latency(timing.first_chunk_s for timing in timings),
        first_token=latency(timing.first_token_s for timing in timings),
        first_text=latency(timing.first_text_s for timing in timings),
        call_ready=latency(timing.call_ready_s for timing in timings),
        last_token=latency(timing.last_token_s for timing in timings),
        per_token=latency(map(_per_token_s, requests)),
        token_gap=latency(gap for timing in timings for gap in timing.chunk_gaps_s),
        duration=latency(request.duration_s for request in requests),
    )


def turn_times(turns: Sequence[TurnRecord]) -> TurnTimes:
    """Return the times of some user turns."""
    return TurnTimes(
        first_token=latency(_first_s(turn, lambda t: t.first_token_s) for turn in turns),
        first_text=latency(_first_s(turn, lambda t: t.first_text_s) for turn in turns),
        call_ready=latency(_first_s(turn, lambda t: t.call_ready_s) for turn in turns),
        last_token=latency(_last_s(turn, lambda t: t.last_token_s) for turn in turns),
        whole=latency(turn.active_s for turn in turns),
        tools=latency(map(_tools_s, turns)),
        harness=latency(map(_harness_s, turns)),
        waiting=latency(
            call.waiting_s for turn in turns for call in turn.calls if call.gate.is_answer
        ),
    )


def tokens(requests: Sequence[ModelCallRecord]) -> Tokens:
    """Return the tokens of some requests."""
    usages = [request.response.usage for request in requests]
    reporting = [usage for usage in usages if usage.cached_tokens is not None]
    return Tokens(
        prompt=sum(usage.prompt_tokens for usage in usages),
        completion=sum(usage.completion_tokens for usage in usages),
        cached=sum(usage.cached_tokens or 0 for usage in reporting),
        cached_of=sum(usage.prompt_tokens for usage in reporting),
    )


def latency(durations_s: Iterable[float | None]) -> Latency:
    """Return the percentiles of the durations that were measured."""
    measured = sorted(value for value in durations_s if value is not None)
    if not measured:
        return Latency()
    p50_s, p90_s, p95_s, p99_s = (percentile(measured, each) for each in (50, 90, 95, 99))
    return Latency(n=len(measured), p50_s=p50_s, p90_s=p90_s, p95_s=p95_s, p99_s=p99_s)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, linearly interpolated (NumPy's default method)."""
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _turns_of(records: Iterable[SampleRecord], verdict: Verdict) -> list[TurnRecord]:
    return [
        turn
        for record in records
        if record.judgement.verdict is verdict
        for turn in record.evidence.turns
    ]


def _per_token_s(request: ModelCallRecord) -> float | None:
    timing, later_tokens = request.response.timing, request.response.usage.completion_tokens - 1
    if timing.first_token_s is None or timing.last_token_s is None or later_tokens < 1:
        return None
    return (timing.last_token_s - timing.first_token_s) / later_tokens


def _first_s(turn: TurnRecord, moment: _Moment) -> float | None:
    """Return when something first happened in a turn, in seconds from its start."""
    return next(_moments_s(turn, moment), None)


def _last_s(turn: TurnRecord, moment: _Moment) -> float | None:
    return next(reversed([*_moments_s(turn, moment)]), None)


def _moments_s(turn: TurnRecord, moment: _Moment) -> Iterator[float]:
    for m, call in enumerate(turn.model_calls):
        at_s = moment(call.response.timing)
        if at_s is not None:
            yield call.offset_s + call.response.timing.retried_s + at_s - _waited_s(turn, before=m)


def _waited_s(turn: TurnRecord, *, before: int) -> float:
    """Return the time spent waiting for a person before a request of the turn."""
    waits = (c.waiting_s for c in turn.calls if c.model_call is not None and c.model_call < before)
    return sum(waits)


def _tools_s(turn: TurnRecord) -> float | None:
    ran_s = [call.handler_s for call in turn.calls if call.ran]
    return sum(ran_s) if ran_s else None


def _harness_s(turn: TurnRecord) -> float:
    models_s = sum(call.duration_s for call in turn.model_calls)
    return turn.active_s - models_s - sum(call.handler_s for call in turn.calls)
