"""Check the scenarios of `datasets/ac` as a set, and print the results as a table.

    python evals/check_dataset.py [--warnings]

`lint` and `mutate` check single scenarios; this script also checks what the card states about the
whole set: counts, languages, and splits without near duplicates of each other. Exit code 1: a
check fails. `make data-check` runs it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit.base.text import printable
from lhkit.cli.frame.finish import finish
from lhkit.cli.mutate import SURVIVORS
from lhkit.harness.authoring.checks import NO_GOLD, Finding, Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mistakes import ADVICE
from lhkit.harness.authoring.mutate import MutationReport, Survivors, mutate, read_survivors
from lhkit.harness.exports.similarity import NEAR, near_duplicates
from lhkit.harness.scenarios.loader import Sources, read_sources
from lhkit.harness.scenarios.scenario import DIFFICULTIES, Scenario
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.toolset import load

# The requirements in the card.
TOTAL, PER_CRITERION = 240, 16
CRITERIA = tuple(f"AC-{number}" for number in range(1, 13))
NOTICED_PERCENT = 97.0
KOREAN_PERCENT = (55, 75)

CHECKS = (
    *("lint", "gold passes", "silent model fails", "always-call model fails"),
    *("mistakes noticed", "unnoticed mistakes have a reason", "splits do not leak"),
    *("counts", "languages", "difficulty"),
)
_BATCH_SIZE = 8  # scenarios per process call: small, so that all processes end together
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A row of the table: a name from `CHECKS`, the figure, errors and warnings."""

    name: str
    figure: str
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()


async def check_data(
    sources: Sources, *, known: Survivors, processes: int = 1, every: int = 1
) -> tuple[Check, ...]:
    """Run all checks of `CHECKS`, in that order.

    Args:
        sources: all scenarios; the folder of a file is its split.
        known: the mutations that are known to survive.
        processes: number of worker processes.
        every: lint and mutate only each n-th scenario, for a quick check.
    """
    loop = asyncio.get_running_loop()
    tried = sources.scenarios[::every]
    starts = range(0, max(1, len(tried)), _BATCH_SIZE)
    batches = [
        replace(
            sources,
            scenarios=tried[start : start + _BATCH_SIZE],
            issues=() if start else sources.issues,
        )
        for start in starts
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        results = await asyncio.gather(
            *(loop.run_in_executor(pool, _check_batch, batch) for batch in batches)
        )
    findings = [finding for batch_findings, _ in results for finding in batch_findings]
    outcomes = tuple(outcome for _, report in results for outcome in report.outcomes)
    report = MutationReport(outcomes=outcomes)
    scenarios = sources.scenarios
    return (
        Check(
            name="lint",
            figure=f"{len(findings)} errors and warnings",
            errors=[str(finding) for finding in findings if finding.level is Level.ERROR],
            warnings=[str(finding) for finding in findings if finding.level is Level.WARNING],
        ),
        _without("gold passes", findings, NO_GOLD - {"file", "world"}, len(tried)),
        _without("silent model fails", findings, {"silent"}, len(tried)),
        _without("always-call model fails", findings, {"always_call"}, len(tried)),
        _mutation_check(report),
        _survivors_check(report, known, {scenario.id for scenario in scenarios}),
        _splits_check(sources),
        _counts_check(scenarios),
        _languages_check(scenarios),
        _difficulty_check(scenarios),
    )


def _check_batch(sources: Sources) -> tuple[Sequence[Finding], MutationReport]:
    async def check() -> tuple[Sequence[Finding], MutationReport]:
        toolset = load()
        findings = await lint(sources, toolset)
        invalid = {finding.scenario for finding in findings if finding.code in NO_GOLD}
        valid = [scenario for scenario in sources.scenarios if scenario.id not in invalid]
        return findings, await mutate(valid, toolset)

    return asyncio.run(check())  # noqa: TID251 - a separate process


def _without(name: str, findings: Iterable[Finding], codes: Collection[str], total: int) -> Check:
    """Check that no scenario has a finding with these codes."""
    ids = sorted({str(finding.scenario) for finding in findings if finding.code in codes})
    return Check(name=name, figure=f"{total - len(ids)} / {total}", errors=ids)


def _mutation_check(report: MutationReport) -> Check:
    total = report.total
    errors = [f"{outcome.scenario} {outcome.key}: invalid" for outcome in report.broken]
    if total.share < NOTICED_PERCENT:
        errors.append(f"less than {NOTICED_PERCENT}%")
    figure = f"{total.noticed} / {total.tried} = {total.share:.1f}%"
    return Check(name="mistakes noticed", figure=figure, errors=errors)


def _survivors_check(report: MutationReport, known: Survivors, ids: Collection[str]) -> Check:
    unlisted = report.unlisted(known)
    outdated = [*report.outdated(known), *(key for key in known if key[0] not in ids)]
    return Check(
        name="unnoticed mistakes have a reason",
        figure=f"{len(report.survivors) - len(unlisted)} / {len(report.survivors)}",
        errors=[
            *(f"{e.scenario} {e.key}: {e.change} → {ADVICE[e.kind]}" for e in unlisted),
            *(f"{scenario} {key}: is listed but does not survive" for scenario, key in outdated),
        ],
    )


def _splits_check(sources: Sources) -> Check:
    wordings = [wording for scenario in sources.scenarios for wording in scenario.wordings()]
    texts = [" ".join(turn.user for turn in wording.turns) for wording in wordings]
    splits = {name: origin.file.parent.name for name, origin in sources.origins.items()}
    errors: list[str] = []
    warnings: list[str] = []
    for i, j, similarity in near_duplicates(texts, least=NEAR):
        a, b = wordings[i], wordings[j]
        pair = f"{splits[a.id]}/{a.name} ~ {splits[b.id]}/{b.name}: {similarity:.2f}"
        if a.id != b.id:
            (errors if splits[a.id] != splits[b.id] else warnings).append(pair)
    counts = Counter(splits[scenario.id] for scenario in sources.scenarios)
    figure = ", ".join(f"{split} {count}" for split, count in sorted(counts.items()))
    return Check(name="splits do not leak", figure=figure, errors=errors, warnings=warnings)


def _counts_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(scenario.ac or "no criterion" for scenario in scenarios)
    errors = [
        f"{ac}: {counts[ac]} < {PER_CRITERION}" for ac in CRITERIA if counts[ac] < PER_CRITERION
    ]
    errors += [f"{len(scenarios)} < {TOTAL}"] if len(scenarios) < TOTAL else []
    errors += [f"{ac}: unknown" for ac in sorted(counts.keys() - set(CRITERIA))]
    least = min(counts[ac] for ac in CRITERIA)
    return Check(name="counts", figure=f"{len(scenarios)}, at least {least} each", errors=errors)


def _languages_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(scenario.locale for scenario in scenarios)
    shares = {name: 100 * count / len(scenarios) for name, count in sorted(counts.items())}
    least, most = KOREAN_PERCENT
    is_valid = least <= shares.get("ko", 0) <= most
    figure = ", ".join(f"{name} {share:.0f}%" for name, share in shares.items())
    errors = [] if is_valid else [f"ko is not between {least} and {most}%"]
    return Check(name="languages", figure=figure, errors=errors)


def _difficulty_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(tag for item in scenarios for tag in item.tags if tag in DIFFICULTIES)
    errors = [
        f"{scenario.id}: needs one tag of {' and '.join(DIFFICULTIES)}"
        for scenario in scenarios
        if len({*scenario.tags} & {*DIFFICULTIES}) != 1
    ]
    figure = ", ".join(f"{name} {counts[name]}" for name in DIFFICULTIES)
    return Check(name="difficulty", figure=figure, errors=errors)


async def _show_checks(*, warnings: bool) -> int:
    checks = await check_data(
        read_sources([scenario_folder()]),
        known=read_survivors(scenario_folder() / SURVIVORS),
        processes=os.cpu_count() or 1,
    )
    console = Console()
    table = Table("check", "figure", "result", title="Check of the evaluation data")
    for check in checks:
        result = Text("fail", style="red") if check.errors else Text("pass", style="green")
        table.add_row(check.name, check.figure, result)
    console.print(table)
    for check in checks:
        for lines, style in ((check.errors, "red"), (check.warnings if warnings else (), "yellow")):
            for line in lines[:_SHOWN]:
                console.print(Text(f"  {printable(line)}", style=style), soft_wrap=True)
            if len(lines) > _SHOWN:
                console.print(f"  … and {len(lines) - _SHOWN} more")
    return int(any(check.errors for check in checks))


def main(
    *, warnings: Annotated[bool, typer.Option("--warnings", help="Show warnings.")] = False
) -> None:
    """Check the scenarios of datasets/ac: lint, gold, mutations, splits, counts, languages."""
    finish(asyncio.run, lambda it: (it, _show_checks(warnings=warnings)))  # noqa: TID251 - a script


if __name__ == "__main__":
    typer.run(main)
