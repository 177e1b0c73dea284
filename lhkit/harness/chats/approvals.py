"""Which confirmation cards are needed, from runs and recorded chats; the policy that says so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from lhkit.base.errors import UsageError
from lhkit.confirm.policy import ApprovalPolicy, Measured, ToolRule
from lhkit.harness.chats.chats import PERSON, load_chats
from lhkit.harness.chats.reviews import LabelKind, ReviewFile, reviewers_of
from lhkit.harness.figures.approvals import (
    DEFAULT_CONFIDENCE,
    DEFAULT_RISK,
    ApprovalDecision,
    Approvals,
    CallKey,
    Evidence,
    ToolRisk,
    WriteTools,
    approvals_of,
    chat_evidence,
    run_evidence,
)
from lhkit.harness.figures.frames import approvals_frame
from lhkit.harness.results.results import Run
from lhkit.harness.running.measured import measured_by_locale

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _NotebookApprovals(Approvals):
    """The table with its forms for notebooks."""

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per tool; see `lhkit.harness.figures.frames.APPROVALS` for the columns."""
        return approvals_frame(self.tools)

    def _repr_html_(self) -> str:
        from lhkit.base.user_locale import user_catalog
        from lhkit.harness.views.approvals import approvals_table
        from lhkit.harness.views.html import table_html

        catalog = user_catalog()
        return table_html(approvals_table(self, catalog), catalog)

    def __repr__(self) -> str:
        tools = ", ".join(f"{row.tool}: {row.decision.replace('_', ' ')}" for row in self.tools)
        return f"<Approvals at {100 * self.risk:g} %: {tools or 'no tool that writes'}>"


def approvals(
    *runs: Run,
    chats: Path | str | None = None,
    risk: float = DEFAULT_RISK,
    confidence: float = DEFAULT_CONFIDENCE,
    trust_approvals: bool = False,
    tools: Sequence[str] = (),
) -> _NotebookApprovals:
    """Return which tools need their confirmation card, at a budget of risk.

    Args:
        runs: evaluations; several runs of one scenario are one cluster. Recorded chats may be among
            them.
        chats: a folder of recorded chats, with the labels of its reviews.
        risk: the highest risk at which a tool may run unasked, above 0 and below 1.
        confidence: the confidence level, from 0.5 and below 1.
        trust_approvals: whether the approval of a person in a chat counts as right.
        tools: the tools to decide; by default all that write.

    Raises:
        UsageError: an argument is invalid.
        RunError: the chats or a review cannot be read.
    """
    given = [*runs, *([load_chats(Path(chats))] if chats is not None else [])]
    evidence = Evidence()
    for run in given:
        if run.manifest.user == PERSON:
            evidence += chat_evidence(run.records, _labels(run), trust_approvals=trust_approvals)
        else:
            evidence += run_evidence(run.records)
    table = approvals_of(
        evidence,
        tools=WriteTools.of(run.manifest for run in given),
        only=[tools] if isinstance(tools, str) else tools,
        risk=risk,
        confidence=confidence,
    )
    return _NotebookApprovals(**{each.name: getattr(table, each.name) for each in fields(table)})


def _labels(run: Run) -> Mapping[CallKey, bool]:
    """Return whether reviewers call a call right; False if any of them does not."""
    labels: dict[CallKey, bool] = {}
    if run.folder is None:
        return labels
    for name in reviewers_of(run.folder):
        file = ReviewFile(run.folder, name)
        for record in run.records:
            for place, label in file.of(record).items():
                if place.call is not None:
                    key = place.sample, place.turn, place.call
                    labels[key] = labels.get(key, True) and label.verdict is LabelKind.RIGHT
    return labels


def policy_of(table: Approvals, runs: Sequence[Run], *, has_chats: bool = False) -> ApprovalPolicy:
    """Return the policy of a table, with what the runs were measured with.

    Args:
        table: the decisions.
        runs: the runs that they are from.
        has_chats: whether recorded chats were counted.

    Raises:
        UsageError: the runs measured different things, or do not say what they measured.
    """
    if has_chats or any(run.manifest.user == PERSON for run in runs):
        raise UsageError(
            "Recorded chats do not say which prompt they had, so no policy can name it. Write the "
            "policy from runs alone."
        )
    measured: dict[str, Measured] = {}
    for run in runs:
        for locale, part in measured_by_locale(run.manifest).items():
            for other_locale, other in measured.items():
                parts = [
                    name
                    for name in other.differences(part)
                    if locale == other_locale or name in _SAME_IN_ALL_LANGUAGES
                ]
                if parts:
                    raise UsageError(
                        f"{run.name} was measured with other things than the runs before it: "
                        f"{', '.join(parts)}. Write a policy from runs with the same ones."
                    )
            measured[locale] = part
    known = {tool for part in measured.values() for tool in part.tools}
    for row in table.tools:
        if _rule(row, table.risk).rule != "ask" and row.tool not in known:
            raise UsageError(
                f"{row.tool} may run unasked, but no manifest of the runs has it. Register it when "
                "the session opens, and run again."
            )
    return ApprovalPolicy(
        risk=table.risk,
        confidence=table.confidence,
        runs=tuple(run.name or str(run.folder) for run in runs),
        measured=measured,
        tools={row.tool: _rule(row, table.risk) for row in table.tools},
    )


_SAME_IN_ALL_LANGUAGES = frozenset({"model", "constraint", "code"})


def _rule(row: ToolRisk, risk: float) -> ToolRule:
    threshold = row.threshold
    if row.decision is ApprovalDecision.RUN_ABOVE and threshold is not None:
        return ToolRule(
            rule="run_above",
            above=threshold.above,
            proposed=threshold.proposed,
            wrong=threshold.wrong,
            scenarios=threshold.scenarios,
            upper=min(risk, threshold.upper),
        )
    is_run = row.decision is ApprovalDecision.RUN
    return ToolRule(
        rule="run" if is_run else "ask",
        proposed=row.proposed,
        wrong=row.wrong,
        scenarios=row.scenarios,
        # a limit that meets the budget exactly may be above it by rounding
        upper=min(risk, row.upper) if is_run and row.upper is not None else row.upper,
    )


def remarks_on(runs: Sequence[Run]) -> Iterator[str]:
    """Yield what makes the runs poor evidence, as sentences for translation."""
    models = {str(model.get("model")) for run in runs for model in run.manifest.models}
    if len(models) > 1:
        yield SEVERAL_MODELS
    for run in runs:
        selection = run.manifest.selection
        if selection is not None and selection.filter.failed is not None:
            yield CHOSEN_BY_RESULT


SEVERAL_MODELS = "These runs are of several models: the table belongs to none of them."
CHOSEN_BY_RESULT = (
    "A run has only scenarios that failed before: its share of wrong writes is too high."
)
