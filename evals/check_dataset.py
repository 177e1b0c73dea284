"""Check that the scenarios of `datasets/ac` are fit to measure models with, in one table.

    python evals/check_dataset.py [--warnings]

Lint looks at one scenario at a time and `mutate` at its mistakes; here the set as a whole is held
to what its card promises: counts, languages, splits that do not leak into each other. Exit code 1:
a check fails. `make data-check` runs it.
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

from lhkit.cli.finish import finish
from lhkit.cli.mutate import SURVIVORS
from lhkit.harness.author.checks import NO_GOLD, Finding, Level
from lhkit.harness.author.lint import lint
from lhkit.harness.author.mistakes import ADVICE
from lhkit.harness.author.mutate import MutationReport, Survivors, mutate, read_survivors
from lhkit.harness.loader import Sources, read_sources
from lhkit.harness.scenario import DIFFICULTIES, Scenario
from lhkit.harness.similarity import NEAR, near_duplicates
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.text import printable
from lhkit.toolset import load

# What the set promises.
TOTAL, PER_CRITERION = 240, 16
CRITERIA = tuple(f"AC-{number}" for number in range(1, 13))
NOTICED_PERCENT = 97.0
KOREAN_PERCENT = (55, 75)

CHECKS = (
    *("lint", "gold passes", "silent model fails", "always-call model fails"),
    *("mistakes noticed", "unnoticed mistakes have a reason", "splits do not leak"),
    *("counts", "languages", "difficulty"),
)
_SCENARIOS_AT_ONCE = 8  # that a process is given: few, so that all end together
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the result: a name from `CHECKS`, the figure, and what is wrong in words."""

    name: str
    figure: str
    faults: Sequence[str] = ()
    warnings: Sequence[str] = ()


async def check_data(
    sources: Sources, *, known: Survivors, processes: int = 1
) -> tuple[Check, ...]:
    """Return every check of `CHECKS`, in that order.

    Args:
        sources: all scenarios; the folder that a file lies in is its split.
        known: mistakes that are known to go unnoticed.
        processes: how many play scenarios at a time.
    """
    loop = asyncio.get_running_loop()
    starts = range(0, max(1, len(sources.scenarios)), _SCENARIOS_AT_ONCE)
    parts = [
        replace(
            sources,
            scenarios=sources.scenarios[start : start + _SCENARIOS_AT_ONCE],
            faults=() if start else sources.faults,
        )
        for start in starts
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        played = await asyncio.gather(
            *(loop.run_in_executor(pool, _part_played, part) for part in parts)
        )
    findings = [finding for part, _ in played for finding in part]
    report = MutationReport(outcomes=tuple(each for _, part in played for each in part.outcomes))
    scenarios = sources.scenarios
    return (
        Check(
            name="lint",
            figure=f"{len(findings)} errors and warnings",
            faults=[str(each) for each in findings if each.level is Level.ERROR],
            warnings=[str(each) for each in findings if each.level is Level.WARNING],
        ),
        _without("gold passes", findings, NO_GOLD - {"file", "world"}, len(scenarios)),
        _without("silent model fails", findings, {"silent"}, len(scenarios)),
        _without("always-call model fails", findings, {"always_call"}, len(scenarios)),
        _mutation_check(report),
        _survivors_check(report, known, {each.id for each in scenarios}),
        _splits_check(sources),
        _counts_check(scenarios),
        _languages_check(scenarios),
        _difficulty_check(scenarios),
    )


def _part_played(sources: Sources) -> tuple[Sequence[Finding], MutationReport]:
    async def played() -> tuple[Sequence[Finding], MutationReport]:
        toolset = load()
        findings = await lint(sources, toolset)
        unplayable = {each.scenario for each in findings if each.code in NO_GOLD}
        fit = [each for each in sources.scenarios if each.id not in unplayable]
        return findings, await mutate(fit, toolset)

    return asyncio.run(played())  # noqa: TID251 - in a process of its own


def _without(name: str, findings: Iterable[Finding], codes: Collection[str], total: int) -> Check:
    """Return the check that no scenario has a finding of these codes."""
    found = sorted({str(each.scenario) for each in findings if each.code in codes})
    return Check(name=name, figure=f"{total - len(found)} / {total}", faults=found)


def _mutation_check(report: MutationReport) -> Check:
    total = report.total
    faults = [f"{each.scenario} {each.key}: invalid" for each in report.broken]
    if total.share < NOTICED_PERCENT:
        faults.append(f"less than {NOTICED_PERCENT}%")
    figure = f"{total.noticed} / {total.tried} = {total.share:.1f}%"
    return Check(name="mistakes noticed", figure=figure, faults=faults)


def _survivors_check(report: MutationReport, known: Survivors, ids: Collection[str]) -> Check:
    unlisted = report.unlisted(known)
    outdated = [*report.outdated(known), *(key for key in known if key[0] not in ids)]
    return Check(
        name="unnoticed mistakes have a reason",
        figure=f"{len(report.survivors) - len(unlisted)} / {len(report.survivors)}",
        faults=[
            *(f"{e.scenario} {e.key}: {e.change} → {ADVICE[e.kind]}" for e in unlisted),
            *(f"{scenario} {key}: is listed, but no survivor" for scenario, key in outdated),
        ],
    )


def _splits_check(sources: Sources) -> Check:
    scenarios = sources.scenarios
    texts = [" ".join(turn.user for turn in each.turns) for each in scenarios]
    splits = [sources.origins[each.id].file.parent.name for each in scenarios]
    faults: list[str] = []
    warnings: list[str] = []
    for i, j, likeness in near_duplicates(texts, least=NEAR):
        pair = f"{splits[i]}/{scenarios[i].id} ~ {splits[j]}/{scenarios[j].id}: {likeness:.2f}"
        (faults if splits[i] != splits[j] else warnings).append(pair)
    figure = ", ".join(f"{split} {count}" for split, count in sorted(Counter(splits).items()))
    return Check(name="splits do not leak", figure=figure, faults=faults, warnings=warnings)


def _counts_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(scenario.ac for scenario in scenarios)
    faults = [
        f"{ac}: {counts[ac]} < {PER_CRITERION}" for ac in CRITERIA if counts[ac] < PER_CRITERION
    ]
    faults += [f"{len(scenarios)} < {TOTAL}"] if len(scenarios) < TOTAL else []
    faults += [f"{ac}: unknown" for ac in sorted(counts.keys() - set(CRITERIA))]
    least = min(counts[ac] for ac in CRITERIA)
    return Check(name="counts", figure=f"{len(scenarios)}, at least {least} each", faults=faults)


def _languages_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(scenario.locale for scenario in scenarios)
    shares = {name: 100 * count / len(scenarios) for name, count in sorted(counts.items())}
    least, most = KOREAN_PERCENT
    is_fine = least <= shares.get("ko", 0) <= most
    figure = ", ".join(f"{name} {share:.0f}%" for name, share in shares.items())
    faults = [] if is_fine else [f"ko is not within {least} and {most}%"]
    return Check(name="languages", figure=figure, faults=faults)


def _difficulty_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(tag for each in scenarios for tag in each.tags if tag in DIFFICULTIES)
    faults = [
        f"{each.id}: needs one tag of {' and '.join(DIFFICULTIES)}"
        for each in scenarios
        if len({*each.tags} & {*DIFFICULTIES}) != 1
    ]
    figure = ", ".join(f"{name} {counts[name]}" for name in DIFFICULTIES)
    return Check(name="difficulty", figure=figure, faults=faults)


async def _show_checks(*, warnings: bool) -> int:
    checks = await check_data(
        read_sources([scenario_folder()]),
        known=read_survivors(scenario_folder() / SURVIVORS),
        processes=os.cpu_count() or 1,
    )
    console = Console()
    table = Table("check", "figure", "result", title="Check of the evaluation data")
    for check in checks:
        result = Text("bad", style="red") if check.faults else Text("good", style="green")
        table.add_row(check.name, check.figure, result)
    console.print(table)
    for check in checks:
        for lines, style in ((check.faults, "red"), (check.warnings if warnings else (), "yellow")):
            for line in lines[:_SHOWN]:
                console.print(Text(f"  {printable(line)}", style=style), soft_wrap=True)
            if len(lines) > _SHOWN:
                console.print(f"  … and {len(lines) - _SHOWN} more")
    return int(any(check.faults for check in checks))


def main(
    *, warnings: Annotated[bool, typer.Option("--warnings", help="Show warnings, too.")] = False
) -> None:
    """Check all that the scenarios of datasets/ac promise: lint, gold, mistakes, splits, counts."""
    finish(asyncio.run, lambda _settings: _show_checks(warnings=warnings))  # noqa: TID251 - a script


if __name__ == "__main__":
    typer.run(main)
