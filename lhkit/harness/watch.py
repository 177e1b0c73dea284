"""A run while it plays: rates so far, the slowest samples, the failures to open. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lhkit.harness.metrics import rate_interval
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.shares import Interval

MOST = 5
"""So many of the slowest samples and of the newest failures are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A sample that ended: which, how, after how many seconds of its turns, and why it failed."""

    sample: str
    ac: str
    verdict: Verdict
    turns_s: float
    reason: str = ""

    @classmethod
    def of(cls, record: SampleRecord) -> "Ended":
        """Return what is held of a record."""
        return cls(
            sample=str(record.sample_id),
            ac=record.ac,
            verdict=record.judgement.verdict,
            turns_s=sum(turn.active_s for turn in record.evidence.turns),
            reason=next(iter(record.judgement.reasons), ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Passes of a group so far; `results` are those of each scenario, repeats together."""

    results: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)

    @property
    def valid(self) -> int:
        """The samples that say something."""
        return sum(map(len, self.results.values()))

    @property
    def passed(self) -> int:
        """Those that passed."""
        return sum(map(sum, self.results.values()))

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the pass rate, as in the table at the end."""
        return rate_interval(tuple(self.results.values()))

    def after(self, scenario: str, *, is_pass: bool) -> "Rate":
        """Return the rate with one more result."""
        earlier = self.results.get(scenario, ())
        return Rate(results={**self.results, scenario: (*earlier, is_pass)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What can be said of a run of `asked` samples so far."""

    asked: int
    invalid: int = 0
    total: Rate = field(default_factory=Rate)
    by_ac: Mapping[str, Rate] = field(default_factory=dict)
    last: Ended | None = None
    slowest: tuple[Ended, ...] = ()
    failures: tuple[Ended, ...] = ()

    @property
    def ended(self) -> int:
        """How many samples are over."""
        return self.total.valid + self.invalid

    def after(self, record: SampleRecord) -> "Watched":
        """Return what can be said when one more sample has ended."""
        ended = Ended.of(record)
        slowest = sorted((*self.slowest, ended), key=lambda each: -each.turns_s)[:MOST]
        found = replace(self, last=ended, slowest=tuple(slowest))
        if ended.verdict is not Verdict.PASS:
            found = replace(found, failures=(*self.failures, ended)[-MOST:])
        if ended.verdict is Verdict.INVALID:
            return replace(found, invalid=self.invalid + 1)
        scenario, is_pass = record.sample_id.scenario, ended.verdict is Verdict.PASS
        group = self.by_ac.get(record.ac, Rate()).after(scenario, is_pass=is_pass)
        total = self.total.after(scenario, is_pass=is_pass)
        return replace(found, total=total, by_ac={**self.by_ac, record.ac: group})
