"""Records to numbers: rates per acceptance criterion, violations, latency, tokens. Pure.

Rates leave `invalid` samples out and count them apart. Intervals and comparisons of runs are not
here yet.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lhkit.harness.record import ModelCallRecord, SampleRecord, Severity, TurnRecord, Verdict
from lhkit.vocab.generation import ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of `n` durations in seconds, linearly interpolated; None where n is 0."""

    n: int = 0
    p50_s: float | None = None
    p95_s: float | None = None


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
class Tally:
    """The counts of one group of samples.

    `right_calls` of `counted_calls` (due or surplus) were right. Violations are by code. `turn` is
    the time of a user turn without waiting for a person; `first_token` and `call_ready` are of a
    request, from its sending.
    """

    name: str
    passed: int = 0
    failed: int = 0
    invalid: int = 0
    right_calls: int = 0
    counted_calls: int = 0
    attempted: Mapping[str, int] = field(default_factory=dict)
    escaped: Mapping[str, int] = field(default_factory=dict)
    turn: Latency = field(default_factory=Latency)
    first_token: Latency = field(default_factory=Latency)
    call_ready: Latency = field(default_factory=Latency)

    @property
    def valid(self) -> int:
        """The number of samples that say something about the model."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """The share of valid samples that passed."""
        return self.passed / self.valid if self.valid else None

    @property
    def tool_accuracy(self) -> float | None:
        """The share of due and surplus calls that were the right call with right arguments."""
        return self.right_calls / self.counted_calls if self.counted_calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in numbers. `models` are all that answered, normally one."""

    by_ac: tuple[Tally, ...]
    total: Tally
    tokens: Tokens
    models: tuple[ModelIdentity, ...] = ()


def summarise(records: Iterable[SampleRecord]) -> Summary:
    """Return the numbers of some records, acceptance criteria in natural order."""
    everything = tuple(records)
    names = sorted({record.ac for record in everything}, key=_natural)
    requests = [call for record in everything for call in _requests(record.turns)]
    identities = {call.identity: None for call in requests if call.identity is not None}
    return Summary(
        by_ac=tuple(tally(name, [r for r in everything if r.ac == name]) for name in names),
        total=tally("total", everything),
        tokens=_tokens(requests),
        models=tuple(identities),
    )


def tally(name: str, records: Sequence[SampleRecord]) -> Tally:
    """Return the counts of one group."""
    verdicts = Counter(record.verdict for record in records)
    valid = [record for record in records if record.verdict is not Verdict.INVALID]
    scores = [score for record in valid for score in record.scores]
    turns = [turn for record in valid for turn in record.turns]
    requests = _requests(turns)
    right = sum(score.right_calls for score in scores)
    return Tally(
        name=name,
        passed=verdicts[Verdict.PASS],
        failed=verdicts[Verdict.FAIL],
        invalid=verdicts[Verdict.INVALID],
        right_calls=right,
        counted_calls=sum(score.due_calls + score.surplus_calls for score in scores),
        attempted=_counted(records, Severity.ATTEMPTED),
        escaped=_counted(records, Severity.ESCAPED),
        turn=latency(map(_turn_s, turns)),
        first_token=latency(r.timing.first_token_s for r in requests),
        call_ready=latency(r.timing.call_ready_s for r in requests),
    )


def latency(durations_s: Iterable[float | None]) -> Latency:
    """Return the percentiles of the durations that were measured."""
    measured = sorted(value for value in durations_s if value is not None)
    if not measured:
        return Latency()
    return Latency(n=len(measured), p50_s=percentile(measured, 50), p95_s=percentile(measured, 95))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, linearly interpolated (NumPy's default method)."""
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _turn_s(turn: TurnRecord) -> float:
    return turn.duration_s - sum(call.waiting_s for call in turn.calls)


def _requests(turns: Iterable[TurnRecord]) -> list[ModelCallRecord]:
    return [call for turn in turns for call in turn.model_calls]


def _counted(records: Sequence[SampleRecord], severity: Severity) -> Mapping[str, int]:
    codes = [v.code for record in records for v in record.violations if v.severity is severity]
    return dict(sorted(Counter(codes).items()))


def _tokens(requests: Sequence[ModelCallRecord]) -> Tokens:
    usages = [request.usage for request in requests]
    reporting = [usage for usage in usages if usage.cached_tokens is not None]
    return Tokens(
        prompt=sum(usage.prompt_tokens for usage in usages),
        completion=sum(usage.completion_tokens for usage in usages),
        cached=sum(usage.cached_tokens or 0 for usage in reporting),
        cached_of=sum(usage.prompt_tokens for usage in reporting),
    )


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sorting key that puts AC-2 before AC-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)
