"""What two runs say about each other, as a value: pairs, flips, differences. Pure.

A pair is the same scenario and repeat in both runs, valid in both. `compare.compare` makes a
comparison, `tables` and `report` show it.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeAlias

from lhkit.harness.manifest import Change
from lhkit.harness.record import SampleId, SampleRecord, Severity, Verdict
from lhkit.harness.shares import Interval
from lhkit.responses import Finished
from lhkit.text import visible

ALPHA = 0.05
"""A p-value below this is called a difference."""

_BEFORE_CHARS = 16
_QUOTE_CHARS = 48

Outcome: TypeAlias = Literal["better", "worse", "no_difference", "no_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The records of one sample in both runs."""

    a: SampleRecord
    b: SampleRecord

    @property
    def sample_id(self) -> SampleId:
        """Which sample."""
        return self.a.sample_id

    @property
    def gain(self) -> int:
        """1 if only b passed, -1 if only a passed, else 0."""
        return (self.b.judgement.verdict is Verdict.PASS) - (
            self.a.judgement.verdict is Verdict.PASS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The (lower) median over `n` pairs of b's seconds by a's; below 1, b is faster."""

    n: int
    median: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationChange:
    """How often a rule was broken in the pairs of a and of b."""

    code: str
    severity: Severity
    a: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonVotes:
    """How one person voted: `preferred_a` and `preferred_b` times, the others ties of either kind.

    `interval` is the 95 % interval of `difference`, `p_value` the exact sign test's.
    """

    person: str
    votes: int
    preferred_a: int
    preferred_b: int
    interval: Interval | None
    p_value: float

    @property
    def difference(self) -> float:
        """The share that preferred b less the share that preferred a, from -1 to 1."""
        return (self.preferred_b - self.preferred_a) / self.votes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """What two runs say about each other.

    `invalid` samples are in both runs but say nothing in at least one; `only_a` and `only_b` are in
    one run. `changes` is what the runs were told differently. `interval` is the 95 % interval of
    `difference`. `p_value` is exact: McNemar's, and with repeats its form for whole scenarios;
    `mid_p` is the less cautious variant. Ratios are None where nothing was measured. `people` is
    there where people voted: how each of them did, by name.
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

    @property
    def passed_a(self) -> int:
        """The pairs that passed in a."""
        return sum(pair.a.judgement.verdict is Verdict.PASS for pair in self.pairs)

    @property
    def passed_b(self) -> int:
        """The pairs that passed in b."""
        return sum(pair.b.judgement.verdict is Verdict.PASS for pair in self.pairs)

    @property
    def difference(self) -> float | None:
        """The pass rate of b less that of a, from -1 to 1; None without pairs."""
        return sum(pair.gain for pair in self.pairs) / len(self.pairs) if self.pairs else None

    @property
    def gained(self) -> tuple[Pair, ...]:
        """The pairs where only b passed."""
        return tuple(pair for pair in self.pairs if pair.gain > 0)

    @property
    def lost(self) -> tuple[Pair, ...]:
        """The pairs where only a passed."""
        return tuple(pair for pair in self.pairs if pair.gain < 0)

    @property
    def newly_occurred(self) -> tuple[Pair, ...]:
        """The pairs where b really broke a rule and a did not."""
        return tuple(
            pair
            for pair in self.pairs
            if pair.b.judgement.has_occurred and not pair.a.judgement.has_occurred
        )

    @property
    def other_questions(self) -> tuple[str, ...]:
        """The scenarios that were not the same in both runs: their pairs compare two questions."""
        paired = {pair.sample_id.scenario for pair in self.pairs}
        return tuple(
            each.where for each in self.changes if each.what == "scenario" and each.where in paired
        )

    @property
    def outcome(self) -> Outcome:
        """What can be said: a difference counts where `p_value` is below 5 %."""
        if not self.pairs:
            return "no_pairs"
        if self.p_value >= ALPHA:
            return "no_difference"
        return "better" if self.passed_b > self.passed_a else "worse"

    def __repr__(self) -> str:
        counts = f"{self.passed_a} and {self.passed_b} of {len(self.pairs)} pairs passed"
        said = f"{counts}, p = {self.p_value:.3g}, {self.outcome.replace('_', ' ')}"
        return f"<Comparison of {self.name_a} and {self.name_b}: {said}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two conversations diverge: turn, message of the model, token; all count from 0.

    `token` is None where a record holds no token ids. `a` and `b` quote both raw messages from just
    before the place, or name the token ids where the texts are equal; empty for no message.
    """

    turn: int
    message: int
    token: int | None
    a: str
    b: str


def first_divergence(a: SampleRecord, b: SampleRecord) -> Divergence | None:
    """Return where two conversations diverge; None if the model wrote the same in both."""
    turns = zip_longest(a.evidence.turns, b.evidence.turns)
    for number, (one, other) in enumerate(turns):
        pairs = zip_longest(*([] if turn is None else turn.model_calls for turn in (one, other)))
        for message, requests in enumerate(pairs):
            responses = [None if each is None else each.response for each in requests]
            found = _divergence(responses[0], responses[1], turn=number, message=message)
            if found is not None:
                return found
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
        quotes = (_id(ids_a, token), _id(ids_b, token))
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
    shown = visible(text[start:end].replace("\n", "\\n"))
    return f"{'…' if start else ''}{shown}{'…' if text[end:] else ''}"


def _id(ids: tuple[int, ...], place: int) -> str:
    return f"#{ids[place]}" if place < len(ids) else ""
