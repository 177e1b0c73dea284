"""What repeats of one scenario tell: pass@k, pass^k, and whether they agree. Pure.

At temperature 0 repeats that differ show how far a server is from deterministic; above it they
show the spread that sampling makes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.shares import pass_at_k, pass_hat_k
from lhkit.json_values import json_or_repr


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
