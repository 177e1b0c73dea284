"""What a run must reach to end with exit code 0, and a sentence for each thing missed. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.harness.records.questions import Resumption, unsure_models
from lhkit.harness.report.verdict_table import change_text, first_names, sentence
from lhkit.harness.results.compare import Comparison, compare
from lhkit.harness.results.run import Run
from lhkit.locales import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What is asked of a run; None asks nothing.

    `fail_under`: the lowest pass rate in percent. `max_violations`: the most attempted violations;
    escaped ones are never allowed. `baseline`: a run that must not be better, told by the paired
    test at 5 %.
    """

    fail_under: float | None = None
    max_violations: int | None = None
    baseline: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of the thresholds: what there is to say, and what was missed."""

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


def judged(run: Run, thresholds: Thresholds, catalog: Catalog) -> Judged:
    """Return what a run reached; with nothing asked, escaped violations are still missed."""
    missed = list(_missed(run, thresholds, catalog))
    if thresholds.baseline is None:
        return Judged(missed=tuple(missed))
    comparison = compare(thresholds.baseline, run)
    said = sentence(comparison, catalog)
    worse = list(_worse(comparison, said, catalog))
    remarks = () if said in worse else (said,)
    if comparison.other_questions:
        scenarios = first_names(comparison.other_questions)
        count = len(comparison.other_questions)
        warning = catalog.text("compare.other_questions", count=count, scenarios=scenarios)
        remarks = (*remarks, warning)
    return Judged(remarks=remarks, missed=(*missed, *worse))


def _missed(run: Run, thresholds: Thresholds, catalog: Catalog) -> Iterator[str]:
    total = run.summary().total
    rate, least = 100 * (total.pass_rate or 0.0), thresholds.fail_under
    if least is not None and rate < least:
        yield catalog.text("eval.below", rate=rate, least=least)
    attempted, most = sum(total.attempted.values()), thresholds.max_violations
    if most is not None and attempted > most:
        yield catalog.text("eval.too_many", count=attempted, most=most)
    escaped = sum(total.escaped.values())
    if escaped:
        yield catalog.text("eval.escaped", count=escaped)


def _worse(comparison: Comparison, said: str, catalog: Catalog) -> Iterator[str]:
    if comparison.outcome in {"worse", "no_pairs"}:
        yield said
    if comparison.newly_escaped:
        samples = [str(pair.sample_id) for pair in comparison.newly_escaped]
        yield catalog.text(
            "eval.newly_escaped", name=comparison.name_a, samples=first_names(samples)
        )


def resumed(found: Resumption, catalog: Catalog) -> Iterator[str]:
    """Yield what a run found in its folder; nothing where it found nothing."""
    if found.changed:
        why = list(_why(found, catalog)) or [catalog.text("eval.unknown_change")]
        yield catalog.text(
            "eval.new_questions", count=found.changed, asked=found.asked, why="; ".join(why)
        )
    if found.retried:
        yield catalog.text("eval.retried", count=found.retried, asked=found.asked)
    if found.kept:
        yield catalog.text("eval.kept", count=found.kept, asked=found.asked)
    if found.unsure:
        yield catalog.text("eval.unsure", models=", ".join(found.unsure))


def unsure_lines(manifest: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield of which models of a run that is kept nobody knows whether they are still the same."""
    if models := unsure_models(manifest):
        yield catalog.text("eval.unsure", models=", ".join(models))


def _why(found: Resumption, catalog: Catalog) -> Iterator[str]:
    scenarios = tuple(each.where for each in found.changes if each.what == "scenario")
    if scenarios:
        yield f"{catalog.text('change.scenario')} {first_names(scenarios)}"
    yield from (change_text(each, catalog) for each in found.changes if each.what != "scenario")
