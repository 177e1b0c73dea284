"""The result of comparing two runs: pairs, regressions, improvements, differences. Pure.

A pair is the same scenario and repeat in both runs, valid in both. `compare.compare` returns a
`Comparison`; `tables` and `report` render it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from lhkit.base.text import visible
from lhkit.conversation.responses import Finished
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.figures.rates import ALPHA, Interval
from lhkit.harness.records.manifest import Change
from lhkit.harness.records.record import SampleRecord, Severity
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection

if TYPE_CHECKING:  # it needs NumPy
    from lhkit.harness.figures.sequential import SequentialResult

_BEFORE_CHARS = 16
_QUOTE_CHARS = 48

Outcome: TypeAlias = (
    Literal["better", "worse", "no_difference", "no_pairs"]
    | Literal["no_worse", "worse_than_margin", "cannot_tell"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The records of one sample in both runs."""

    a: SampleRecord
    b: SampleRecord

    @property
    def sample_id(self) -> SampleId:
        """The id of the sample, the same in both runs."""
        return self.a.sample_id

    @property
    def gain(self) -> int:
        """1 if only b passed, -1 if only a passed, else 0."""
        return self.b.is_passed - self.a.is_passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The (lower) median of b's seconds divided by a's over `n` pairs; below 1, b is faster."""

    n: int
    median: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationChange:
    """Counts of one violation in the pairs of run a and of run b."""

    code: str
    severity: Severity
    a: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One of the user's scores in both runs, over the `n` pairs with a value in both.

    Attributes:
        name: the name of the score.
        is_rate: whether all values are booleans.
        a: the rate or mean in run a; None without pairs.
        b: the same in run b.
        interval: the 95 % interval of `difference`; None without pairs.
        p_value: of the sign-flip test, corrected (Holm) for all scores and the pass rate.
        is_other: whether the sources of the score differ between the runs.
        is_judge: whether it is a judge, whose own answers are compared.
        is_labelled: whether both runs have labels of a person for it.
    """

    name: str
    is_rate: bool = True
    n: int = 0
    a: float | None = None
    b: float | None = None
    interval: Interval | None = None
    p_value: float = 1.0
    is_other: bool = False
    is_judge: bool = False
    is_labelled: bool = False

    @property
    def difference(self) -> float | None:
        """The value of b minus that of a; None without pairs."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonVotes:
    """The votes of one person: for a, for b, and the rest ties of either kind.

    `interval` is the 95 % interval of `difference`, `p_value` that of the exact sign test.
    """

    person: str
    votes: int
    preferred_a: int
    preferred_b: int
    interval: Interval | None
    p_value: float

    @property
    def difference(self) -> float:
        """The share of votes for b minus the share of votes for a, from -1 to 1."""
        return (self.preferred_b - self.preferred_a) / self.votes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """The comparison of run b with run a.

    Attributes:
        name_a: the name of run a.
        name_b: the name of run b.
        pairs: samples that are valid in both runs.
        invalid: samples that are in both runs and invalid in at least one.
        only_a: samples that are only in run a.
        only_b: samples that are only in run b.
        changes: differences between the manifests.
        interval: the 95 % interval of `difference`.
        p_value: of the exact McNemar test; with repeats of its form for whole scenarios.
        mid_p: the less conservative mid-p variant.
        turn: the ratio of turn times; as the next two, None without measurements.
        first_token: the ratio of times to the first token.
        call_ready: the ratio of times to the first complete call.
        violations: counts by violation.
        people: the votes of each person, by name; empty without votes.
        scores: the user's scores that both runs have.
        selection_a: how the scenarios of run a were selected; None for all of them.
        selection_b: as `selection_a`, of run b.
        margin: the points by which b may be worse; None if only a difference is tested.
        sequential: what the always-valid test found, if one of the runs may have stopped when it
            was decided. `interval`, `p_value` and `mid_p` are then those of that test.
        planned: the scenarios that it could look at.
        needed_scenarios: the number of scenarios that would decide, with the observed difference
            and spread and 80 % power; None if it is decided already, or if no number up to
            `statistics.MAX_SCENARIOS` would do.
        can_be_worse: whether the test could have found b worse if b had failed every pair.
        least_scenarios: the number of scenarios that a passes (with a margin: of such scenarios)
            from which the test could find b worse; None if no number would do.
    """

    name_a: str
    name_b: str
    pairs: tuple[Pair, ...]
    invalid: tuple[SampleId, ...] = ()
    only_a: tuple[SampleId, ...] = ()
    only_b: tuple[SampleId, ...] = ()
    changes: tuple[Change, ...] = ()
    interval: Interval | None = None
    p_value: float = 1.0
    mid_p: float = 1.0
    turn: Ratio | None = None
    first_token: Ratio | None = None
    call_ready: Ratio | None = None
    violations: tuple[ViolationChange, ...] = ()
    people: tuple[PersonVotes, ...] = ()
    scores: tuple[ScoreChange, ...] = ()
    selection_a: ScenarioSelection | None = None
    selection_b: ScenarioSelection | None = None
    margin: float | None = None
    sequential: "SequentialResult | None" = None
    planned: int = 0
    needed_scenarios: int | None = None
    can_be_worse: bool = True
    least_scenarios: int | None = None

    @property
    def passed_a(self) -> int:
        """The number of pairs that passed in a."""
        return sum(pair.a.is_passed for pair in self.pairs)

    @property
    def passed_b(self) -> int:
        """The number of pairs that passed in b."""
        return sum(pair.b.is_passed for pair in self.pairs)

    @property
    def difference(self) -> float | None:
        """The pass rate of b minus that of a, from -1 to 1; None without pairs."""
        return sum(pair.gain for pair in self.pairs) / len(self.pairs) if self.pairs else None

    @property
    def scenarios(self) -> int:
        """The number of scenarios with a pair."""
        return len({pair.sample_id.scenario for pair in self.pairs})

    @property
    def passed_scenarios(self) -> int:
        """The number of scenarios of which a pair passed in a: those that can regress."""
        return len({pair.sample_id.scenario for pair in self.pairs if pair.a.is_passed})

    @property
    def repeats(self) -> int:
        """The most pairs of one scenario."""
        return max(Counter(pair.sample_id.scenario for pair in self.pairs).values(), default=0)

    @property
    def improvements(self) -> tuple[Pair, ...]:
        """The pairs that passed only in b."""
        return tuple(pair for pair in self.pairs if pair.gain > 0)

    @property
    def regressions(self) -> tuple[Pair, ...]:
        """The pairs that passed only in a."""
        return tuple(pair for pair in self.pairs if pair.gain < 0)

    @property
    def flips(self) -> Mapping[str, tuple[Pair, ...]]:
        """The regressions, then the improvements, by these names, without empty ones."""
        flips = {"regressions": self.regressions, "improvements": self.improvements}
        return {name: pairs for name, pairs in flips.items() if pairs}

    @property
    def newly_occurred(self) -> tuple[Pair, ...]:
        """The pairs with a violation that occurred in b and none that occurred in a."""
        return tuple(
            pair
            for pair in self.pairs
            if pair.b.score.has_occurred and not pair.a.score.has_occurred
        )

    @property
    def changed_scenarios(self) -> tuple[str, ...]:
        """The ids of paired scenarios whose content differs between the runs."""
        paired = {pair.sample_id.scenario for pair in self.pairs}
        return tuple(
            change.where
            for change in self.changes
            if change.what == "scenario" and change.where in paired
        )

    @property
    def outcome(self) -> Outcome:
        """The outcome: with a margin by `interval`, else by `p_value` below 5 %.

        With `sequential` it is what that test decided first.

        See `is_powerless` before a decision on `no_difference` or `no_worse`.
        """
        if not self.pairs:
            return "no_pairs"
        if self.sequential is not None:
            return self._sequential_outcome(self.sequential)
        if self.margin is not None and self.interval is not None:
            if 100 * self.interval.low > -self.margin:
                return "no_worse"
            return "worse_than_margin" if 100 * self.interval.high < -self.margin else "cannot_tell"
        if self.p_value >= ALPHA:
            return "no_difference"
        return "better" if self.passed_b > self.passed_a else "worse"

    def _sequential_outcome(self, found: "SequentialResult") -> Outcome:
        """Return the outcome by the first decision of the always-valid test."""
        if self.margin is None:
            return ("no_difference", "better", "worse")[found.direction]
        return ("cannot_tell", "no_worse", "worse_than_margin")[found.direction]

    @property
    def is_better(self) -> bool:
        """Whether b is better than a by the paired test at 5 %."""
        if self.sequential is not None:
            return self.sequential.sign > 0
        return self.p_value < ALPHA and self.passed_b > self.passed_a

    @property
    def is_powerless(self) -> bool:
        """Whether the outcome is none: b could not have been found worse, and is not better."""
        is_worse = self.outcome in {"worse", "worse_than_margin"}
        return not (self.can_be_worse or self.is_better or is_worse)

    def __repr__(self) -> str:
        counts = f"{self.passed_a} and {self.passed_b} of {len(self.pairs)} pairs passed"
        outcome = f"p = {self.p_value:.3g}, {self.outcome.replace('_', ' ')}"
        return f"<Comparison of {self.name_a} and {self.name_b}: {counts}, {outcome}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of several runs that are compared with each other.

    Attributes:
        name: of the run.
        summary: its metrics.
        comparison: with the first run; None for the first.
        p_first: the p-value of that comparison, corrected (Holm) for all pairs of runs.
        p_best: as `p_first`, of the comparison with the run of the highest pass rate; None for it.
            By the always-valid test: that it is no worse than each other run.
        is_powerless: whether no result of this run could have been significantly worse than that.
    """

    name: str
    summary: Summary
    comparison: Comparison | None
    p_first: float | None
    p_best: float | None
    is_powerless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first divergence of two conversations: turn, model message, token; all count from 0.

    `token` is None if a record has no token ids. `a` and `b` quote the raw messages from just
    before the place, or the token ids if the texts are equal; empty for a missing message.
    """

    turn: int
    message: int
    token: int | None
    a: str
    b: str


def first_divergence(a: SampleRecord, b: SampleRecord) -> Divergence | None:
    """Return the first divergence of two conversations; None if the model's texts are equal."""
    turns = zip_longest(a.trajectory.turns, b.trajectory.turns)
    for number, (one, other) in enumerate(turns):
        pairs = zip_longest(*([] if turn is None else turn.model_calls for turn in (one, other)))
        for message, requests in enumerate(pairs):
            responses = [None if each is None else each.response for each in requests]
            divergence = _divergence(responses[0], responses[1], turn=number, message=message)
            if divergence is not None:
                return divergence
    return None


def _divergence(
    a: Finished | None, b: Finished | None, *, turn: int, message: int
) -> Divergence | None:
    ids_a, ids_b = (() if each is None else each.token_ids for each in (a, b))
    text_a, text_b = ("" if each is None else each.raw_text for each in (a, b))
    token = _first_difference(ids_a, ids_b) if ids_a and ids_b else None
    place = _first_difference(text_a, text_b)
    if place is not None:
        quotes = (_quote(text_a, place), _quote(text_b, place))
    elif token is not None:
        quotes = (_token_id(ids_a, token), _token_id(ids_b, token))
    elif (a is None) != (b is None):
        quotes = ("", "")
    else:
        return None
    return Divergence(turn=turn, message=message, token=token, a=quotes[0], b=quotes[1])


def _first_difference(a: str | tuple[int, ...], b: str | tuple[int, ...]) -> int | None:
    pairs = enumerate(zip_longest(a, b))
    return next((place for place, (one, other) in pairs if one != other), None)


def _quote(text: str, place: int) -> str:
    start = max(0, place - _BEFORE_CHARS)
    end = start + _QUOTE_CHARS
    quote = visible(text[start:end].replace("\n", "\\n"))
    return f"{'…' if start else ''}{quote}{'…' if text[end:] else ''}"


def _token_id(ids: tuple[int, ...], place: int) -> str:
    return f"#{ids[place]}" if place < len(ids) else ""
