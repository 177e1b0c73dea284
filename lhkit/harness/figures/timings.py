"""Durations and tokens of requests and user turns, and the time breakdown of a run. Pure.

A request is timed from its sending, a user turn from the user's message. Time spent waiting for the
user's confirmation is subtracted from everything but `waiting_time`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeAlias

from lhkit.conversation.responses import Timing
from lhkit.harness.records.record import ModelCallRecord, SampleRecord, TurnRecord, Verdict

_Moment: TypeAlias = Callable[[Timing], float | None]

WARM_SHARE = 0.5
"""A request is warm if at least this share of its prompt tokens came from the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of `n` durations in seconds, linearly interpolated; None if n is 0."""

    n: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts reported by the server.

    `cached_of` are the prompt tokens of the requests that report cached tokens.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cached_of: int = 0

    @property
    def cached_share(self) -> float | None:
        """The share of prompt tokens that came from the cache; None if not reported."""
        return self.cached / self.cached_of if self.cached_of else None


def times(records: Iterable[SampleRecord]) -> Mapping[str, Latency]:
    """Return the durations of valid samples by stage; [names] are those of `vllm bench serve`.

    Requests, timed from their sending:
        `first_byte`: the response headers.
        `first_token` [TTFT], also as `first_token_cold` and `first_token_warm` (see `is_warm`).
        `first_text`: the first text shown to the user.
        `call_ready`: the first call is complete.
        `last_token` [E2EL].
        `per_token` [TPOT]: the mean after the first token.
        `token_gap` [ITL]: between chunks with tokens, pooled over all requests.

    User turns, timed from the user's message, without waiting for confirmation:
        `turn_time`.
        `turn_first_token`, `turn_first_text`, `turn_call_ready`, `turn_last_token`: in any request.
        `tool_time`: the handlers, for turns that ran one.
        `harness_time`: the time outside model and handlers.

    `waiting_time` is the user's, per confirmation.
    """
    turns = [
        turn
        for record in records
        if record.score.verdict is not Verdict.INVALID
        for turn in record.trajectory.turns
    ]
    requests = [request for turn in turns for request in turn.model_calls]
    timings = [request.response.timing for request in requests]
    first_tokens = [(is_warm(call), call.response.timing.first_token_s) for call in requests]
    durations: Mapping[str, Iterable[float | None]] = {
        "turn_time": (turn.active_s for turn in turns),
        "first_byte": (timing.headers_s for timing in timings),
        "first_token": (timing.first_token_s for timing in timings),
        "first_token_cold": (first_s for warm, first_s in first_tokens if warm is False),
        "first_token_warm": (first_s for warm, first_s in first_tokens if warm is True),
        "first_text": (timing.first_text_s for timing in timings),
        "call_ready": (timing.call_ready_s for timing in timings),
        "last_token": (timing.last_token_s for timing in timings),
        "per_token": map(_per_token_s, requests),
        "token_gap": (gap for timing in timings for gap in timing.chunk_gaps_s),
        "turn_first_token": (_first_s(turn, lambda t: t.first_token_s) for turn in turns),
        "turn_first_text": (_first_s(turn, lambda t: t.first_text_s) for turn in turns),
        "turn_call_ready": (_first_s(turn, lambda t: t.call_ready_s) for turn in turns),
        "turn_last_token": (_last_s(turn, lambda t: t.last_token_s) for turn in turns),
        "tool_time": map(_tools_s, turns),
        "harness_time": map(_harness_s, turns),
        "waiting_time": (
            call.waiting_s for turn in turns for call in turn.calls if call.gate.is_answer
        ),
    }
    return {stage: latency(measured) for stage, measured in durations.items()}


def is_warm(request: ModelCallRecord) -> bool | None:
    """Return whether enough of the prompt came from the cache; None if not reported."""
    usage = request.response.usage
    if usage.cached_tokens is None or usage.prompt_tokens == 0:
        return None
    return usage.cached_tokens >= WARM_SHARE * usage.prompt_tokens


def tokens(requests: Sequence[ModelCallRecord]) -> Tokens:
    """Return the token counts of requests."""
    usages = [request.response.usage for request in requests]
    reporting = [usage for usage in usages if usage.cached_tokens is not None]
    return Tokens(
        prompt=sum(usage.prompt_tokens for usage in usages),
        completion=sum(usage.completion_tokens for usage in usages),
        cached=sum(usage.cached_tokens or 0 for usage in reporting),
        cached_of=sum(usage.prompt_tokens for usage in reporting),
    )


def latency(durations_s: Iterable[float | None]) -> Latency:
    """Return the percentiles of the durations that are not None."""
    measured = [value for value in durations_s if value is not None]
    if not measured:
        return Latency()
    # NumPy's default method; `quantiles` needs at least two values
    cuts = quantiles(measured if len(measured) > 1 else measured * 2, n=100, method="inclusive")
    return Latency(n=len(measured), p50_s=cuts[49], p90_s=cuts[89], p95_s=cuts[94], p99_s=cuts[98])


def _per_token_s(request: ModelCallRecord) -> float | None:
    timing, later_tokens = request.response.timing, request.response.usage.completion_tokens - 1
    if timing.first_token_s is None or timing.last_token_s is None or later_tokens < 1:
        return None
    return (timing.last_token_s - timing.first_token_s) / later_tokens


def _first_s(turn: TurnRecord, moment: _Moment) -> float | None:
    return next(_moments_s(turn, moment), None)


def _last_s(turn: TurnRecord, moment: _Moment) -> float | None:
    return next(reversed([*_moments_s(turn, moment)]), None)


def _moments_s(turn: TurnRecord, moment: _Moment) -> Iterator[float]:
    """Yield a moment of each request in seconds from the start of the turn, without waiting."""
    for number, call in enumerate(turn.model_calls):
        timing = call.response.timing
        if (at_s := moment(timing)) is not None:
            waiting_s = sum(
                tool_call.waiting_s
                for tool_call in turn.calls
                if tool_call.model_call is not None and tool_call.model_call < number
            )
            yield call.offset_s + timing.retried_s + at_s - waiting_s


def _tools_s(turn: TurnRecord) -> float | None:
    ran_s = [call.handler_s for call in turn.calls if call.ran]
    return sum(ran_s) if ran_s else None


def _harness_s(turn: TurnRecord) -> float:
    models_s = sum(call.duration_s for call in turn.model_calls)
    return turn.active_s - models_s - sum(call.handler_s for call in turn.calls)
