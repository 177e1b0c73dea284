"""The table that says which confirmation cards are needed. Pure."""

from collections.abc import Iterator
from math import exp
from typing import Any

from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING
from lhkit.harness.figures.approvals import (
    ApprovalDecision,
    Approvals,
    CardCost,
    Source,
    Threshold,
    ToolRisk,
)
from lhkit.harness.views.tables import Cell, CellKind, Table

_KINDS: dict[ApprovalDecision, CellKind] = {
    ApprovalDecision.RUN: "good",
    ApprovalDecision.RUN_ABOVE: "good",
    ApprovalDecision.ASK: "bad",
    ApprovalDecision.CANNOT_TELL: "warn",
}


def approvals_table(approvals: Approvals, catalog: Catalog) -> Table:
    """Return a row for each tool that writes, with the decision; the cost of cards in the notes."""

    def text(name: str, **values: Any) -> str:
        return catalog.text(f"approvals.{name}", **values)

    names = ["tool", "asked", "wrong", "upper", "at", "saved"]
    names += ["certain"] if approvals.has_thresholds else []
    columns = (*names, "source")
    return Table(
        title=text("title"),
        columns=tuple(Cell(text(name, risk=share_text(approvals.risk))) for name in columns),
        rows=tuple(tuple(_cells(row, approvals, catalog)) for row in approvals.tools),
        notes=tuple(_notes(approvals, catalog)),
    )


def _cells(row: ToolRisk, approvals: Approvals, catalog: Catalog) -> Iterator[Cell]:
    yield Cell(row.tool, "code")
    yield Cell(str(row.proposed))
    yield Cell(str(row.wrong))
    yield Cell(_percent(row.upper))
    yield Cell(decision_text(row, catalog), _KINDS.get(row.decision, ""))
    yield Cell(str(row.saved))
    if approvals.has_thresholds:
        yield Cell(_threshold(row.threshold, catalog))
    sources = (catalog.text(f"approvals.source_{source}") for source in row.sources)
    yield Cell(", ".join(sources) or NOTHING)


def decision_text(row: ToolRisk, catalog: Catalog) -> str:
    """Return the decision on a tool, with the number of scenarios that it lacks."""
    key = f"approvals.{row.decision}"
    match row.decision:
        case ApprovalDecision.CANNOT_TELL if row.further is None:
            from lhkit.harness.figures.risk_limits import MAX_FURTHER

            return catalog.text("approvals.cannot_tell_many", count=f"{MAX_FURTHER:,}")
        case ApprovalDecision.CANNOT_TELL:
            return catalog.text(key, count=f"{row.further:,}")
        case ApprovalDecision.RUN_ABOVE if row.threshold is not None:
            return catalog.text(key, p=_probability(row.threshold.above))
        case _:
            return catalog.text(key)


def _threshold(threshold: Threshold | None, catalog: Catalog) -> str:
    if threshold is None:
        return NOTHING
    return catalog.text(
        "approvals.threshold",
        p=_probability(threshold.above),
        wrong=threshold.wrong,
        proposed=threshold.proposed,
        upper=_percent(threshold.upper),
        saved=_whole_percent(threshold.saved.rate),
    )


def _notes(approvals: Approvals, catalog: Catalog) -> Iterator[str]:
    rows = approvals.tools

    def text(name: str, **values: Any) -> str:
        return catalog.text(f"approvals.{name}", **values)

    if not rows:
        yield text("none")
        return
    yield text("limits", confidence=share_text(approvals.confidence))
    if approvals.is_clustered:
        yield text("clusters", count=approvals.clusters)
    if any(row.decision is ApprovalDecision.CANNOT_TELL for row in rows):
        yield text("more")
    if approvals.has_thresholds:
        yield text("certain_note")
    unasked = sum(row.unknown_by_policy for row in rows)
    if unknown := sum(row.unknown for row in rows) - unasked:
        yield text("unknown", count=unknown)
    if unasked:
        yield text("unknown_by_policy", count=unasked)
    if any(Source.APPROVALS in row.sources for row in rows):
        yield text("trusted")
    known = [(row, row.by_policy - row.unknown_by_policy) for row in rows]
    if by_policy := [(row, count) for row, count in known if count]:
        yield text(
            "by_policy",
            wrong=sum(row.wrong_by_policy for row, _ in by_policy),
            count=sum(count for _, count in by_policy),
            tools=", ".join(f"{r.tool} {r.wrong_by_policy}/{count}" for r, count in by_policy),
        )
    yield from _cost_lines(approvals.cost, catalog)


def _cost_lines(cost: CardCost, catalog: Catalog) -> Iterator[str]:
    if cost.cards_a_turn is None:
        return
    known = cost.needless.whole
    key = "cards" if known == cost.cards else "cards_some"
    yield catalog.text(
        f"approvals.{key}" if known else "approvals.cards_unknown",
        count=cost.cards,
        rate=f"{cost.cards_a_turn:.2f}",
        known=known,
        needless=_whole_percent(cost.needless.rate),
    )
    if cost.median_s is not None:
        yield catalog.text(
            "approvals.time" if cost.fast.whole else "approvals.time_only",
            median=catalog.seconds(cost.median_s),
            count=cost.decisions,
            fast=_whole_percent(cost.fast.rate),
        )


def share_text(share: float) -> str:
    """Return a share in percent as it was given, such as `2 %` or `0.5 %`."""
    return f"{100 * share:.10g} %"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f} %"


def _probability(logprob: float) -> str:
    return f"{exp(logprob):.3f}"


def _whole_percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f} %"
