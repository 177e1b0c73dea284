"""How a model behaves around its calls: restraint, recovery, final state. Pure, over records."""

from collections.abc import Iterable
from dataclasses import dataclass

from lhkit.harness.record import SampleRecord, TurnRecord, TurnScore


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
