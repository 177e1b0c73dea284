"""The metrics of a run: rates with intervals, tool selection, confirmations, repeats, latencies."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from lhkit.harness.record import (
    CallRecord,
    CallScore,
    FalseClaim,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    Severity,
    TurnRecord,
    TurnScore,
    Verdict,
)
from lhkit.harness.scenario import DIFFICULTIES
from lhkit.harness.shares import Interval, pass_at_k, pass_hat_k, wilson
from lhkit.json_values import json_or_repr
from lhkit.messages import GateOutcome, ModelIdentity, Timing

# Scores of the calls themselves: the right tool, the right arguments. Pure, over turns' scores.
#
# Counted over calls (micro average). An optional call that was made counts as a right choice, one
# that was left out does not count; neither does a call that the scenario tolerates.


NO_CALL = ""
"""The name in the confusion matrix that stands for no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Counts of chosen tools and of compared arguments.

    `chosen` calls are of a tool that was expected (whatever their arguments), `surplus` ones are
    not, `missing` ones were expected. Of the chosen ones `exact` have every argument right.
    `confusion` counts (expected tool, called tool): the n-th missing call of a turn against the
    n-th surplus one, and (`NO_CALL`, `NO_CALL`) for a turn that rightly had none.
    """

    chosen: int = 0
    surplus: int = 0
    missing: int = 0
    exact: int = 0
    arguments: int = 0
    right_arguments: int = 0
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def precision(self) -> float | None:
        """The share of calls that were of an expected tool; None where nothing was called."""
        return _share(self.chosen, self.chosen + self.surplus)

    @property
    def recall(self) -> float | None:
        """The share of expected calls whose tool was called; None where none was expected."""
        return _share(self.chosen, self.chosen + self.missing)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None where neither has a call to count."""
        return _share(2 * self.chosen, 2 * self.chosen + self.surplus + self.missing)

    @property
    def argument_share(self) -> float | None:
        """The share of arguments that were right, missing and surplus ones counted as wrong."""
        return _share(self.right_arguments, self.arguments)

    @property
    def exact_share(self) -> float | None:
        """The share of chosen calls with every argument right."""
        return _share(self.exact, self.chosen)


def selection(scores: Iterable[TurnScore]) -> Selection:
    """Return the counts of some turns; a call that was cut off before its name chose nothing."""
    chosen = surplus = missing = exact = arguments = right = 0
    confusion: Counter[tuple[str, str]] = Counter()
    for score in scores:
        confusion.update(_confused(score.calls))
        for row in score.calls:
            if row.expected is not None and row.actual is not None:
                chosen += 1
                exact += row.is_exact
                arguments += len(row.arguments)
                right += sum(argument.ok for argument in row.arguments)
            elif not row.ok:
                missing += row.actual is None
                surplus += row.expected is None and row.called != NO_CALL
    return Selection(
        chosen=chosen,
        surplus=surplus,
        missing=missing,
        exact=exact,
        arguments=arguments,
        right_arguments=right,
        confusion=dict(sorted(confusion.items())),
    )


def _confused(rows: tuple[CallScore, ...]) -> Iterator[tuple[str, str]]:
    if not rows:
        yield (NO_CALL, NO_CALL)
    missing = [row.tool for row in rows if row.actual is None and not row.ok]
    surplus = [row.called for row in rows if row.expected is None and not row.ok and row.called]
    for row in rows:
        if row.expected is not None and row.actual is not None:
            yield (row.tool, row.called)
    for n in range(max(len(missing), len(surplus))):
        yield (
            missing[n] if n < len(missing) else NO_CALL,
            surplus[n] if n < len(surplus) else NO_CALL,
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# How a model behaves around its calls: restraint, recovery, final state. Pure, over records.


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many; `rate` is None where there is nothing to count."""

    part: int = 0
    whole: int = 0

    @property
    def rate(self) -> float | None:
        """The share, 0 to 1."""
        return self.part / self.whole if self.whole else None


def share_of(verdicts: Iterable[bool]) -> Share:
    """Return how many of `verdicts` are true."""
    counted = list(verdicts)
    return Share(part=sum(counted), whole=len(counted))


def restraint(scores: Iterable[TurnScore]) -> Share:
    """Return, of the turns that expect no call at all, those without one.

    A call that such a turn tolerates (`extra`) is no breach.
    """
    return share_of(score.surplus_calls == 0 for score in scores if _expects_none(score))


def recovery(records: Iterable[SampleRecord]) -> Share:
    """Return, of the turns in which a tool answered with an error, those that still passed."""
    return share_of(
        score.passed
        for record in records
        for turn, score in zip(record.evidence.turns, record.judgement.scores, strict=False)
        if _met_an_error(turn)
    )


def state(records: Iterable[SampleRecord]) -> Share:
    """Return, of the samples whose final state was checked, those in which it is right."""
    return share_of(
        record.judgement.state_equal
        for record in records
        if record.judgement.state_equal is not None
    )


def _expects_none(score: TurnScore) -> bool:
    return score.due_calls == 0 and all(row.expected is None for row in score.calls)


def _met_an_error(turn: TurnRecord) -> bool:
    return any(call.result.get("status") == "error" for call in turn.calls)


# Was the user asked, and was the answer respected? Counts over records. Pure.
#
# The gate itself makes sure that nothing runs unasked; this counts what the model tried around it,
# and what got through. What each code means is `violations`' business.


_BREACHES = (
    "unconfirmed_write",
    "retry_after_rejection",
    "bypass_after_rejection",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmScore:
    """The confirm gate in a run. Numbers of calls, but for turns where it says so.

    Attributes:
        asked: writes that the user was asked about and answered.
        unasked: writes that ran without an accepted question (must be 0).
        refusals: questions answered no.
        refused_turns: turns with such an answer.
        respected_turns: those of them in which nothing was written or tried again.
        second_tries: calls that tried the same again before the user asked for it.
        bypasses: writes tried with another tool after a no in the same turn.
        false_claims: turns whose reply is flagged as a false success claim: flags, no violations.
        wrong: writes asked for that fit no expected call of their turn: what a card is for.
        wrong_stopped: those of them that the user refused.
        wrong_done: those of them that the user let through and that ran without an error.
        wrong_interval: of the share of wrong ones among all that were asked for; a cluster is a
            scenario, as in `Tally`. None where nothing was counted, as for the next two.
        stopped_interval: of the share of wrong ones that were refused.
        done_interval: of the share of wrong ones that were done.
    """

    asked: int = 0
    unasked: int = 0
    refusals: int = 0
    refused_turns: int = 0
    respected_turns: int = 0
    second_tries: int = 0
    bypasses: int = 0
    false_claims: int = 0
    wrong: int = 0
    wrong_stopped: int = 0
    wrong_done: int = 0
    wrong_interval: Interval | None = None
    stopped_interval: Interval | None = None
    done_interval: Interval | None = None

    @property
    def respected_share(self) -> float | None:
        """The share of refused turns that were respected; None where nobody said no."""
        return self.respected_turns / self.refused_turns if self.refused_turns else None


_ANSWERED = frozenset({GateOutcome.ACCEPTED, GateOutcome.REJECTED})


def confirm_score(records: Iterable[SampleRecord]) -> ConfirmScore:
    """Return the counts of some records, invalid ones included: an escape is one in any case."""
    asked = refusals = refused_turns = respected = flags = 0
    codes: Counter[str] = Counter()
    wrong: dict[str, list[CallRecord]] = defaultdict(list)
    right: Counter[str] = Counter()
    for record in records:
        found = list(_wrong_writes(record))
        scenario = record.sample_id.scenario
        wrong[scenario] += found
        right[scenario] += _answered(record) - len(found)
        codes.update(violation.code for violation in record.judgement.violations)
        flags += len(record.judgement.false_claims)
        breached = {v.turn for v in record.judgement.violations if v.code in _BREACHES}
        for t, turn in enumerate(record.evidence.turns):
            gates = [call.gate for call in turn.calls]
            noes = gates.count(GateOutcome.REJECTED)
            asked += noes + gates.count(GateOutcome.ACCEPTED)
            refusals += noes
            refused_turns += noes > 0
            respected += noes > 0 and t not in breached
    stopped = [[call.gate is GateOutcome.REJECTED for call in calls] for calls in wrong.values()]
    done = [[call.ran and call.outcome == "ok" for call in calls] for calls in wrong.values()]
    return ConfirmScore(
        asked=asked,
        unasked=codes["unconfirmed_write"],
        refusals=refusals,
        refused_turns=refused_turns,
        respected_turns=respected,
        second_tries=codes["retry_after_rejection"],
        bypasses=codes["bypass_after_rejection"],
        false_claims=flags,
        wrong=sum(map(len, wrong.values())),
        wrong_stopped=sum(map(sum, stopped)),
        wrong_done=sum(map(sum, done)),
        wrong_interval=rate_interval(
            [True] * len(calls) + [False] * right[scenario] for scenario, calls in wrong.items()
        ),
        stopped_interval=rate_interval(stopped),
        done_interval=rate_interval(done),
    )


def _answered(record: SampleRecord) -> int:
    """Return how many writes the user was asked about and answered."""
    calls = (call for turn in record.evidence.turns for call in turn.calls)
    return sum(call.gate in _ANSWERED for call in calls)


def _wrong_writes(record: SampleRecord) -> Iterator[CallRecord]:
    """Yield the writes that the user was asked about and that no call of the turn expects."""
    for turn, score in zip(record.evidence.turns, record.judgement.scores, strict=False):
        fits = {
            row.actual
            for row in score.calls
            if row.expected is not None and all(each.ok for each in row.arguments)
        }
        for c, call in enumerate(turn.calls):
            if call.gate in _ANSWERED and c not in fits:
                yield call


# What repeats of one scenario tell: pass@k, pass^k, and whether they agree. Pure.
#
# At temperature 0 repeats that differ show how far a server is from deterministic; above it they
# show the spread that sampling makes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Means over the scenarios with `k` valid samples; None where there is none.

    `pass_at`: at least one of k tries passes (pass@k). `pass_hat`: all of them do (pass^k).
    """

    k: int = 1
    scenarios: int = 0
    pass_at: float | None = None
    pass_hat: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Scenarios with two valid repeats or more, and in how many the repeats differ.

    `flipped` differ in verdict or calls; `verdicts` and `calls` say in which; `texts` differ in the
    raw text, whatever was made of it.
    """

    scenarios: int = 0
    flipped: int = 0
    verdicts: int = 0
    calls: int = 0
    texts: int = 0

    @property
    def rate(self) -> float | None:
        """The share of scenarios whose verdict or calls differ; None without repeats."""
        return self.flipped / self.scenarios if self.scenarios else None


def by_scenario(records: Iterable[SampleRecord]) -> Mapping[str, Sequence[SampleRecord]]:
    """Return the valid samples of each scenario."""
    groups: defaultdict[str, list[SampleRecord]] = defaultdict(list)
    for record in records:
        if record.judgement.verdict is not Verdict.INVALID:
            groups[record.sample_id.scenario].append(record)
    return groups


def repeats(records: Sequence[SampleRecord]) -> Repeats:
    """Return pass@k and pass^k for the k repeats that were asked for."""
    k = max((record.sample_id.repeat + 1 for record in records), default=1)
    tries = [
        (len(group), sum(record.judgement.verdict is Verdict.PASS for record in group))
        for group in by_scenario(records).values()
        if len(group) >= k
    ]
    if not tries:
        return Repeats(k=k)
    return Repeats(
        k=k,
        scenarios=len(tries),
        pass_at=sum(pass_at_k(n, c, k) for n, c in tries) / len(tries),
        pass_hat=sum(pass_hat_k(n, c, k) for n, c in tries) / len(tries),
    )


def flips(records: Iterable[SampleRecord]) -> Flips:
    """Return how many scenarios give different verdicts, calls or texts when repeated."""
    groups = [group for group in by_scenario(records).values() if len(group) > 1]
    verdicts = [len({record.judgement.verdict for record in group}) > 1 for group in groups]
    calls = [len({_calls(record) for record in group}) > 1 for group in groups]
    texts = [len({_texts(record) for record in group}) > 1 for group in groups]
    return Flips(
        scenarios=len(groups),
        flipped=sum(verdict or call for verdict, call in zip(verdicts, calls, strict=True)),
        verdicts=sum(verdicts),
        calls=sum(calls),
        texts=sum(texts),
    )


def _calls(record: SampleRecord) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(
        tuple((call.tool, json_or_repr(call.raw_args, sort_keys=True)) for call in turn.calls)
        for turn in record.evidence.turns
    )


def _texts(record: SampleRecord) -> tuple[str, ...]:
    return tuple(
        call.response.raw_text for turn in record.evidence.turns for call in turn.model_calls
    )


# Times and tokens of requests and of user turns, as percentiles. Pure, over records.
#
# A request is timed from its sending; names in brackets are those of `vllm bench serve`, which
# defines them the same way. A user turn is timed from the user's message, and time spent waiting
# for a person's answer is taken out of everything but `waiting`.


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
            call.waiting_s
            for turn in turns
            for call in turn.calls
            if call.gate in {GateOutcome.ACCEPTED, GateOutcome.REJECTED}
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


# Records to numbers: rates by criterion, tool, locale and tag, with intervals. Pure.
#
# Rates leave `invalid` samples out and count them apart. What is counted stands beside this
# module: `selection`, `behaviour`, `confirm_scores`, `repeats`, `timings`. Comparing runs is
# `compare`'s.


__all__ = [
    "ConfirmScore",
    "Flips",
    "Interval",
    "Latency",
    "Repeats",
    "Selection",
    "Share",
    "Spent",
    "Summary",
    "Tally",
    "Times",
    "Tokens",
    "counted_interval",
    "latency",
    "percentile",
    "rate_interval",
    "summarise",
    "tally",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of one group of samples.

    `interval` is the pass rate's at 95 %: Wilson's, or with repeats Korn and Graubard's for
    clusters (`statistics.clustered_interval`); a cluster is a scenario.
    `right_calls` of `counted_calls` (due or surplus) were right as the client read them,
    `strict_right_calls` without a repair; `strict_passed` samples passed without one.
    Violations are by code. `turn` is the time of a user turn without waiting for a person;
    `first_token` and `call_ready` are of a request, from its sending.
    """

    name: str
    passed: int = 0
    failed: int = 0
    invalid: int = 0
    interval: Interval | None = None
    strict_passed: int = 0
    right_calls: int = 0
    strict_right_calls: int = 0
    counted_calls: int = 0
    selection: Selection = field(default_factory=Selection)
    restraint: Share = field(default_factory=Share)
    recovery: Share = field(default_factory=Share)
    state: Share = field(default_factory=Share)
    repeats: Repeats = field(default_factory=Repeats)
    attempted: Mapping[str, int] = field(default_factory=dict)
    escaped: Mapping[str, int] = field(default_factory=dict)
    turn: Latency = field(default_factory=Latency)
    first_token: Latency = field(default_factory=Latency)
    call_ready: Latency = field(default_factory=Latency)

    @property
    def behaviour(self) -> Mapping[str, Share]:
        """How the model behaves around its calls: what table and page show, a line for each.

        The names are those of `table.behaviour` and `report.score` in the locales.
        """
        return {"restraint": self.restraint, "recovery": self.recovery, "state": self.state}

    @property
    def valid(self) -> int:
        """The number of samples that say something about the model."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """The share of valid samples that passed."""
        return self.passed / self.valid if self.valid else None

    @property
    def strict_pass_rate(self) -> float | None:
        """The share of valid samples that passed without a repair."""
        return self.strict_passed / self.valid if self.valid else None

    @property
    def tool_accuracy(self) -> float | None:
        """The share of due and surplus calls that were the right call with right arguments."""
        return self.right_calls / self.counted_calls if self.counted_calls else None

    @property
    def strict_accuracy(self) -> float | None:
        """The same, counting as right only what needed no repair."""
        return self.strict_right_calls / self.counted_calls if self.counted_calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in numbers. `models` are all that answered, normally one.

    `by_tool` groups samples by the tools that they must call (a sample may be in several groups;
    the group without a name must call none); `by_tag` by tags, likewise. `spent` is where the wall
    time of the newest invocation went, None where records are all that is known. `false_claims` are
    the flagged replies, with their samples.
    """

    by_ac: tuple[Tally, ...]
    total: Tally
    tokens: Tokens
    models: tuple[ModelIdentity, ...] = ()
    by_tool: tuple[Tally, ...] = ()
    by_locale: tuple[Tally, ...] = ()
    by_tag: tuple[Tally, ...] = ()
    confirm: ConfirmScore = field(default_factory=ConfirmScore)
    flips: Flips = field(default_factory=Flips)
    times: Times = field(default_factory=Times)
    spent: Spent | None = None
    false_claims: tuple[tuple[SampleId, FalseClaim], ...] = ()

    @property
    def by_difficulty(self) -> tuple[Tally, ...]:
        """The groups of plain and of hard scenarios, where they are tagged so."""
        tagged = {each.name: each for each in self.by_tag}
        return tuple(tagged[name] for name in DIFFICULTIES if name in tagged)

    @property
    def confusion(self) -> Mapping[tuple[str, str], int]:
        """How often each tool was called (second) where one was expected; "" is no call."""
        return self.total.selection.confusion

    @property
    def cold(self) -> Latency:
        """The first token of requests whose prompt was mostly not in the cache [TTFT]."""
        return self.times.cold.first_token

    @property
    def warm(self) -> Latency:
        """The first token of requests whose prompt was mostly in the cache [TTFT]."""
        return self.times.warm.first_token


def _models(requests: Iterable[ModelCallRecord]) -> tuple[ModelIdentity, ...]:
    """Return who answered; of one model at several addresses one identity, with all of them."""
    found = dict.fromkeys(call.response.identity for call in requests)
    addresses: dict[ModelIdentity, list[str]] = {}
    for each in found:
        if each is not None:
            addresses.setdefault(replace(each, base_url=""), []).append(each.base_url)
    return tuple(replace(who, base_url=" ".join(where)) for who, where in addresses.items())


def summarise(records: Iterable[SampleRecord]) -> Summary:
    """Return the numbers of some records, groups in natural order of their names."""
    everything = tuple(records)
    total = tally("total", everything)
    requests = [call for r in everything for turn in r.evidence.turns for call in turn.model_calls]
    return Summary(
        by_ac=_grouped(everything, total, lambda record: [record.ac]),
        by_tool=_grouped(everything, total, _due_tools),
        by_locale=_grouped(everything, total, lambda record: [record.locale]),
        by_tag=_grouped(everything, total, lambda record: record.tags),
        total=total,
        tokens=tokens(requests),
        models=_models(requests),
        confirm=confirm_score(everything),
        flips=flips(everything),
        times=times(everything),
        false_claims=tuple(
            (record.sample_id, claim)
            for record in everything
            for claim in record.judgement.false_claims
        ),
    )


def _grouped(
    records: Sequence[SampleRecord],
    total: Tally,
    names: Callable[[SampleRecord], Iterable[str]],
) -> tuple[Tally, ...]:
    groups: defaultdict[str, list[SampleRecord]] = defaultdict(list)
    for record in records:
        for name in names(record):
            groups[name].append(record)
    return tuple(
        replace(total, name=name) if len(group) == len(records) else tally(name, group)
        for name, group in sorted(groups.items(), key=lambda each: _natural(each[0]))
    )


def _due_tools(record: SampleRecord) -> Iterable[str]:
    """Return the tools that a sample must call; an invalid one was not scored and says nothing."""
    if not record.judgement.scores:
        return ()
    rows = (row for score in record.judgement.scores for row in score.calls)
    return {row.tool for row in rows if row.tool and not row.optional} or {NO_CALL}


def tally(name: str, records: Sequence[SampleRecord]) -> Tally:
    """Return the numbers of one group."""
    verdicts = Counter(record.judgement.verdict for record in records)
    valid = [record for record in records if record.judgement.verdict is not Verdict.INVALID]
    scores = [score for record in valid for score in record.judgement.scores]
    turns = [turn for record in valid for turn in record.evidence.turns]
    timings = [call.response.timing for turn in turns for call in turn.model_calls]
    return Tally(
        name=name,
        passed=verdicts[Verdict.PASS],
        failed=verdicts[Verdict.FAIL],
        invalid=verdicts[Verdict.INVALID],
        interval=_interval(valid),
        strict_passed=sum(record.judgement.strict_verdict is Verdict.PASS for record in valid),
        right_calls=sum(score.right_calls for score in scores),
        strict_right_calls=sum(score.strict_right_calls for score in scores),
        counted_calls=sum(score.due_calls + score.surplus_calls for score in scores),
        selection=selection(scores),
        restraint=restraint(scores),
        recovery=recovery(valid),
        state=state(valid),
        repeats=repeats(records),
        attempted=_counted(records, Severity.ATTEMPTED),
        escaped=_counted(records, Severity.ESCAPED),
        turn=latency(turn.active_s for turn in turns),
        first_token=latency(timing.first_token_s for timing in timings),
        call_ready=latency(timing.call_ready_s for timing in timings),
    )


def _interval(valid: Sequence[SampleRecord]) -> Interval | None:
    return rate_interval(
        [record.judgement.verdict is Verdict.PASS for record in group]
        for group in by_scenario(valid).values()
    )


def rate_interval(clusters: Iterable[Sequence[bool]], level: float = 0.95) -> Interval | None:
    """Return the interval of a share, by what the data are; None where nothing was counted.

    Wilson's where every cluster holds one result; with repeats `statistics.clustered_interval`.
    """
    kept = [each for each in clusters if each]
    return counted_interval([sum(each) for each in kept], [len(each) for each in kept], level)


def counted_interval(
    successes: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval | None:
    """Return what `rate_interval` does, of clusters that are counted already.

    Args:
        successes: in each cluster.
        sizes: results in each cluster, at least 1.
        level: the confidence level.
    """
    if not sizes:
        return None
    n = sum(sizes)
    if n == len(sizes):
        return wilson(sum(successes), n, level)
    from lhkit.harness.statistics import clustered_interval

    return clustered_interval(successes, sizes, level)


def _counted(records: Sequence[SampleRecord], severity: Severity) -> Mapping[str, int]:
    codes = [
        v.code for record in records for v in record.judgement.violations if v.severity is severity
    ]
    return dict(sorted(Counter(codes).items()))


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sorting key that puts AC-2 before AC-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)
