"""Times and tokens of requests and of user turns, as percentiles. Pure, over records.

A request is timed from its sending, a user turn from the user's message; time spent waiting for a
person's answer is taken out of everything but `waiting_time`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, TypeAlias

from lhkit.events import ChatEvent, ModelCalled, TurnEnded
from lhkit.harness.record import ModelCallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.responses import Finished, Timing

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
class TimeBreakdown:
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


def spent(manifest: Mapping[str, Any]) -> TimeBreakdown | None:
    """Return where the time of a run's newest invocation went; None if it played nothing."""
    invocation = next(reversed(manifest.get("invocations") or [{}]))
    parts = ("setup_s", "server_s", "model_s", "writing_s")
    told = {name: invocation.get(name) for name in (*parts, "wall_s")}
    seconds = {name: value for name, value in told.items() if isinstance(value, float)}
    if not invocation.get("played") or len(seconds) < len(told):
        return None
    harness_s = seconds.pop("wall_s") - seconds["model_s"] - seconds["writing_s"]
    return TimeBreakdown(**seconds, harness_s=max(0.0, harness_s))


def times(records: Iterable[SampleRecord]) -> Mapping[str, Latency]:
    """Return the durations of valid samples by stage; [names] are those of `vllm bench serve`.

    Requests, each timed from its sending: `first_byte` (headers), `first_token` [TTFT] with
    `first_token_cold` and `first_token_warm` (`is_warm`), `first_text` (that a user can see),
    `call_ready` (the first call complete), `last_token` [E2EL], `per_token` (mean after the first)
    [TPOT], `token_gap` (between chunks with tokens, all requests pooled) [ITL].

    User turns, each timed from the user's message, without waiting for a person: `turn_time`, and
    `turn_first_token`, `turn_first_text`, `turn_call_ready`, `turn_last_token` in any request;
    `tool_time` (handlers, of turns that ran one), `harness_time` (the rest). `waiting_time` is a
    person's, per question.
    """
    turns = [
        turn
        for record in records
        if record.judgement.verdict is not Verdict.INVALID
        for turn in record.evidence.turns
    ]
    requests = [request for turn in turns for request in turn.model_calls]
    timings = [request.response.timing for request in requests]
    first_tokens = [(is_warm(each), each.response.timing.first_token_s) for each in requests]
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
    """Return True if enough of the prompt came from the cache; None if the server does not say."""
    usage = request.response.usage
    if usage.cached_tokens is None or usage.prompt_tokens == 0:
        return None
    return usage.cached_tokens >= WARM_SHARE * usage.prompt_tokens


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
    measured = [value for value in durations_s if value is not None]
    if not measured:
        return Latency()
    # NumPy's default method; one value has no quantiles, two of it have
    cuts = quantiles(measured if len(measured) > 1 else measured * 2, n=100, method="inclusive")
    return Latency(n=len(measured), p50_s=cuts[49], p90_s=cuts[89], p95_s=cuts[94], p99_s=cuts[98])


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


class WallClock:
    """What an invocation's time goes into: the model while any request is open, else the writing.

    All conversations share one. `clock` gives monotonic seconds of the machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = self._since_s = clock()
        self._requests = self._writes = 0
        self._model_s = self._writing_s = 0.0

    def seconds(self) -> dict[str, Any]:
        """Return what has gone by and into what, by the names that an invocation has for it."""
        whole_s = self._clock() - self._begun_s
        return {"wall_s": whole_s, "model_s": self._model_s, "writing_s": self._writing_s}

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the block as a request that is open."""
        self._shift(requests=1)
        try:
            yield
        finally:
            self._shift(requests=-1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count the block as records that are being written."""
        self._shift(writes=1)
        try:
            yield
        finally:
            self._shift(writes=-1)

    def listener(self) -> Callable[[ChatEvent], None]:
        """Return a subscriber for one conversation: its requests count while they are open."""
        is_open = False

        def hear(event: ChatEvent) -> None:
            nonlocal is_open
            if isinstance(event, ModelCalled):
                is_open = True
                self._shift(requests=1)
            elif is_open and isinstance(event, Finished | TurnEnded):
                is_open = False
                self._shift(requests=-1)

        return hear

    def _shift(self, *, requests: int = 0, writes: int = 0) -> None:
        now_s = self._clock()
        if self._requests:
            self._model_s += now_s - self._since_s
        elif self._writes:
            self._writing_s += now_s - self._since_s
        self._since_s = now_s
        self._requests += requests
        self._writes += writes
