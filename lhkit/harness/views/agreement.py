"""Lines about a judge and the labels of a person. Pure."""

from collections.abc import Iterator

from lhkit.base.locales import Catalog
from lhkit.base.text import percent, percents
from lhkit.harness.figures.agreement import JudgeAgreement
from lhkit.harness.figures.rates import Interval, Share


def agreement_note(agreement: JudgeAgreement, catalog: Catalog) -> str:
    """Return the corrected rate of a judge, or why there is none, for a line of a table."""
    corrected = agreement.corrected
    if corrected is None:
        return catalog.text("judges.selected" if agreement.is_selected else "judges.unchecked")
    return catalog.text(
        "judges.corrected",
        rate=percent(corrected.rate),
        interval=percents(corrected.interval.low, corrected.interval.high),
        count=corrected.labels,
    )


def agreement_lines(agreement: JudgeAgreement, catalog: Catalog) -> Iterator[str]:
    """Yield everything about a judge and the labels of a person."""
    text, kappa = catalog.text, agreement.kappa
    yield text("judges.labels", name=agreement.score, count=agreement.labels)
    if agreement.unanswered:
        yield text("judges.unanswered", count=agreement.unanswered)
    if kappa is None:
        return
    if kappa.kappa is None or kappa.interval is None:
        yield text("review.one_kind", what=agreement.score, count=kappa.n)
    else:
        yield text(
            "review.kappa",
            what=agreement.score,
            kappa=f"{kappa.kappa:.2f}",
            low=f"{kappa.interval.low:.2f}",
            high=f"{kappa.interval.high:.2f}",
            observed=f"{100 * kappa.observed:.0f}",
            count=kappa.n,
        )
    yield _error("judges.false_yes", agreement.false_yes, agreement.false_yes_interval, catalog)
    yield _error("judges.false_no", agreement.false_no, agreement.false_no_interval, catalog)
    rate = agreement.answers.rate
    if rate is not None:
        answers = agreement.answers
        yield text("judges.answers", part=answers.part, n=answers.whole, rate=percent(rate))
    yield agreement_note(agreement, catalog)
    if (corrected := agreement.corrected) is not None:
        yield text("judges.random")
        if corrected.to_halve is None:
            yield text("judges.no_halving")
        else:
            yield text("judges.halving", count=corrected.to_halve)
    if agreement.disputed:
        yield text("judges.disputed", count=len(agreement.disputed))
    for sample, label in agreement.disputed:
        yield f"  {sample}: {text('judges.person_yes' if label else 'judges.person_no')}"


def _error(key: str, share: Share, interval: Interval | None, catalog: Catalog) -> str:
    if share.rate is None or interval is None:
        return catalog.text(f"{key}_unknown")
    return catalog.text(
        key,
        part=share.part,
        n=share.whole,
        rate=percent(share.rate),
        interval=percents(interval.low, interval.high),
    )
