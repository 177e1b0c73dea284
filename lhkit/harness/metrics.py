"""Records to numbers: rates by criterion, tool, locale and tag, with intervals. Pure.

Rates leave `invalid` samples out and count them apart. What is counted stands beside this
module: `selection`, `confirm_scores`, `repeats`, `timings`. Comparing runs is
`compare`'s.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lhkit.harness.confirm_scores import ConfirmScore, confirm_score
from lhkit.harness.rates import rate_interval
from lhkit.harness.record import (
    FalseClaim,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    Severity,
    Verdict,
)
from lhkit.harness.repeats import Flips, Repeats, by_scenario, flips, repeats
from lhkit.harness.scenario import DIFFICULTIES
from lhkit.harness.selection import NO_CALL, Selection, selection
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency, TimeBreakdown, Tokens, latency, times, tokens
from lhkit.responses import ModelIdentity


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of one group of samples.

    `interval` is the pass rate's at 95 %: Wilson's, or with repeats Korn and Graubard's for
    clusters (`statistics.clustered_interval`); a cluster is a scenario.
    `right_calls` of `counted_calls` (due or surplus) were right as the client read them,
    `strict_right_calls` without a repair; `strict_passed` samples passed without one.
    `behaviour` has the scores of `BEHAVIOUR` by name. Violations are by code. `turn` is the time
    of a user turn without waiting for a person.
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
    behaviour: Mapping[str, Share] = field(default_factory=dict)
    repeats: Repeats = field(default_factory=Repeats)
    attempted: Mapping[str, int] = field(default_factory=dict)
    escaped: Mapping[str, int] = field(default_factory=dict)
    turn: Latency = field(default_factory=Latency)

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
    the flagged replies, with their samples. `times` are durations by stage (`timings.times`).
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
    times: Mapping[str, Latency] = field(default_factory=lambda: times(()))
    spent: TimeBreakdown | None = None
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
        behaviour={name: score(valid) for name, score in BEHAVIOUR.items()},
        repeats=repeats(records),
        attempted=_counted(records, Severity.ATTEMPTED),
        escaped=_counted(records, Severity.ESCAPED),
        turn=latency(turn.active_s for turn in turns),
    )


def _restraint(records: Iterable[SampleRecord]) -> Share:
    """Return, of the turns that expect no call at all, those without one.

    A call that such a turn tolerates (`extra`) is no breach.
    """
    return share_of(
        score.surplus_calls == 0
        for record in records
        for score in record.judgement.scores
        if score.due_calls == 0 and all(row.expected is None for row in score.calls)
    )


def _recovery(records: Iterable[SampleRecord]) -> Share:
    """Return, of the turns in which a tool answered with an error, those that still passed."""
    return share_of(
        score.passed
        for record in records
        for turn, score in zip(record.evidence.turns, record.judgement.scores, strict=False)
        if any(call.result.get("status") == "error" for call in turn.calls)
    )


def _state(records: Iterable[SampleRecord]) -> Share:
    """Return, of the samples whose final state was checked, those in which it is right."""
    return share_of(
        record.judgement.state_equal
        for record in records
        if record.judgement.state_equal is not None
    )


BEHAVIOUR: Mapping[str, Callable[[Sequence[SampleRecord]], Share]] = {
    "restraint": _restraint,
    "recovery": _recovery,
    "state": _state,
}
"""Scores of valid samples around their calls, shown wherever scores are.

Each has its name in `report.score` of the locales.
"""


def _interval(valid: Sequence[SampleRecord]) -> Interval | None:
    return rate_interval(
        [record.judgement.verdict is Verdict.PASS for record in group]
        for group in by_scenario(valid).values()
    )


def _counted(records: Sequence[SampleRecord], severity: Severity) -> Mapping[str, int]:
    codes = [
        v.code for record in records for v in record.judgement.violations if v.severity is severity
    ]
    return dict(sorted(Counter(codes).items()))


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sorting key that puts AC-2 before AC-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)
