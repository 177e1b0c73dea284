"""Are the scenarios of `datasets/ac` fit to measure models with? Every check, in one table.

    python evals/check_dataset.py [--warnings]

Lint looks at one scenario at a time and `mutate` at its mistakes; here the set as a whole is held
to what its card promises: counts, languages, splits that do not leak into each other. Exit code 1:
a check fails. `make data-check` runs it.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
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
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a set promises. Shares are percentages; a share of a language is (least, most)."""

    total: int = 240
    per_ac: int = 16
    acs: tuple[str, ...] = tuple(f"AC-{number}" for number in range(1, 13))
    noticed: float = 97.0
    near: float = NEAR
    locales: Mapping[str, tuple[float, float]] = field(default_factory=lambda: {"ko": (55, 75)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the result: a name from `CHECKS`, the figure, and what is wrong in words."""

    name: str
    ok: bool
    figure: str
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


TEXTS: Mapping[str, Mapping[str, str]] = {
    "ko": {
        "title": "평가 데이터 점검",
        "check": "점검",
        "figure": "값",
        "result": "결과",
        "good": "통과",
        "bad": "실패",
        "more": "… 그리고 {count}개 더",
        "took": "{seconds:.0f}초 걸렸습니다.",
        "lint": "형식과 내용 (오류 + 경고)",
        "gold": "정답이 통과",
        "silent": "아무것도 안 하는 모델이 실패",
        "always_call": "모두 부르는 모델이 실패",
        "mutation": "알아챈 실수",
        "survivors": "못 알아챈 실수 가운데 이유가 적힌 것",
        "splits": "분할 사이에 비슷한 것 없음",
        "counts": "개수 (전체, 기준마다 최소)",
        "locales": "언어 비율",
        "difficulty": "쉬움과 어려움 표시 (plain, hard)",
    },
    "en": {
        "title": "Check of the evaluation data",
        "check": "check",
        "figure": "figure",
        "result": "result",
        "good": "good",
        "bad": "bad",
        "more": "… and {count} more",
        "took": "It took {seconds:.0f} seconds.",
        "lint": "form and content (errors + warnings)",
        "gold": "gold passes",
        "silent": "the model that does nothing fails",
        "always_call": "the model that calls everything fails",
        "mutation": "mistakes that are noticed",
        "survivors": "unnoticed mistakes with a reason",
        "splits": "nothing alike in two splits",
        "counts": "number (all, least of a criterion)",
        "locales": "languages",
        "difficulty": "each is plain or hard",
    },
}
CHECKS = (
    "lint",
    "gold",
    "silent",
    "always_call",
    "mutation",
    "survivors",
    "splits",
    "counts",
    "locales",
    "difficulty",
)
EXIT_UNFIT = 1
_AT_A_TIME = 8  # scenarios that a process is given: few, so that all end together
SHOWN = 20


async def check_data(
    sources: Sources,
    *,
    known: Survivors,
    requirements: Requirements | None = None,
    processes: int = 1,
) -> tuple[Check, ...]:
    """Return every check of `CHECKS`, in that order.

    Args:
        sources: all scenarios; the folder that a file lies in is its split.
        known: mistakes that are known to go unnoticed.
        requirements: what the set promises.
        processes: how many play scenarios at a time; with one it is this process.
    """
    wanted = requirements or Requirements()
    findings, report = await _all_played(sources, processes)
    return (
        _lint_check(findings),
        *(_code_check(name, findings, codes, len(sources.scenarios)) for name, codes in _CODES),
        _mutation_check(report, wanted),
        _survivors_check(report, known, {each.id for each in sources.scenarios}),
        _splits_check(sources, wanted),
        _counts_check(sources.scenarios, wanted),
        _locales_check(sources.scenarios, wanted),
        _difficulty_check(sources.scenarios),
    )


async def _all_played(sources: Sources, processes: int) -> tuple[Sequence[Finding], MutationReport]:
    if processes == 1:
        return await _played(sources)
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        work = [loop.run_in_executor(pool, _part_played, part) for part in _parts(sources)]
        played = await asyncio.gather(*work)
    findings = [each for part, _ in played for each in part]
    outcomes = [each for _, part in played for each in part.outcomes]
    return findings, MutationReport(outcomes=tuple(outcomes))


def _parts(sources: Sources) -> Iterator[Sources]:
    """Yield some scenarios at a time, in order; the faults of files go with the first ones."""
    for begin in range(0, max(1, len(sources.scenarios)), _AT_A_TIME):
        yield replace(
            sources,
            scenarios=sources.scenarios[begin : begin + _AT_A_TIME],
            faults=() if begin else sources.faults,
        )


def _part_played(sources: Sources) -> tuple[Sequence[Finding], MutationReport]:
    return asyncio.run(_played(sources))  # noqa: TID251 - in a process of its own


async def _played(sources: Sources) -> tuple[Sequence[Finding], MutationReport]:
    toolset = load()
    findings = await lint(sources, toolset)
    unplayable = {each.scenario for each in findings if each.code in NO_GOLD}
    fit = [each for each in sources.scenarios if each.id not in unplayable]
    return findings, await mutate(fit, toolset)


_CODES = (
    ("gold", NO_GOLD - {"file", "world"}),
    ("silent", {"silent"}),
    ("always_call", {"always_call"}),
)


def _lint_check(findings: Sequence[Finding]) -> Check:
    errors = [str(each) for each in findings if each.level is Level.ERROR]
    warnings = [str(each) for each in findings if each.level is Level.WARNING]
    return Check(
        name="lint",
        ok=not errors,
        figure=f"{len(errors)} + {len(warnings)}",
        faults=tuple(errors),
        warnings=tuple(warnings),
    )


def _code_check(name: str, findings: Iterable[Finding], codes: Iterable[str], total: int) -> Check:
    hit = {each.scenario for each in findings if each.code in set(codes)}
    right = total - len(hit)
    return Check(name=name, ok=not hit, figure=f"{right} / {total}")


def _mutation_check(report: MutationReport, wanted: Requirements) -> Check:
    total = report.total
    return Check(
        name="mutation",
        ok=total.share >= wanted.noticed and not report.broken,
        figure=f"{total.noticed} / {total.tried} = {total.share:.1f}%",
        faults=tuple(f"{each.scenario} {each.key}: invalid" for each in report.broken),
    )


def _survivors_check(report: MutationReport, known: Survivors, ids: Collection[str]) -> Check:
    unlisted = report.unlisted(known)
    gone = [key for key in known.reasons if key[0] not in ids]
    outdated = [*report.outdated(known), *gone]
    return Check(
        name="survivors",
        ok=not unlisted and not outdated,
        figure=f"{len(report.survivors) - len(unlisted)} / {len(report.survivors)}",
        faults=(
            *(f"{e.scenario} {e.key}: {e.change} → {ADVICE[e.kind]}" for e in unlisted),
            *(f"{scenario} {key}: is listed, but no survivor" for scenario, key in outdated),
        ),
    )


def _splits_check(sources: Sources, wanted: Requirements) -> Check:
    texts = [" ".join(turn.user for turn in each.turns) for each in sources.scenarios]
    splits = [sources.origins[each.id].file.parent.name for each in sources.scenarios]
    faults: list[str] = []
    warnings: list[str] = []
    for i, j, likeness in near_duplicates(texts, least=wanted.near):
        first, second = sources.scenarios[i].id, sources.scenarios[j].id
        told = f"{splits[i]}/{first} ~ {splits[j]}/{second}: {likeness:.2f}"
        (faults if splits[i] != splits[j] else warnings).append(told)
    sizes = sorted(Counter(splits).items())
    return Check(
        name="splits",
        ok=not faults,
        figure=", ".join(f"{split} {count}" for split, count in sizes),
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


def _counts_check(scenarios: Sequence[Scenario], wanted: Requirements) -> Check:
    counts = Counter(scenario.ac for scenario in scenarios)
    faults = [
        f"{ac}: {counts[ac]} < {wanted.per_ac}" for ac in wanted.acs if _few(counts, ac, wanted)
    ]
    if len(scenarios) < wanted.total:
        faults.append(f"{len(scenarios)} < {wanted.total}")
    faults += [f"{ac}: unknown" for ac in sorted(counts.keys() - set(wanted.acs))]
    least = min((counts[ac] for ac in wanted.acs), default=0)
    return Check(
        name="counts", ok=not faults, figure=f"{len(scenarios)}, ≥ {least}", faults=tuple(faults)
    )


def _few(counts: Mapping[str, int], ac: str, wanted: Requirements) -> bool:
    return counts.get(ac, 0) < wanted.per_ac


def _locales_check(scenarios: Sequence[Scenario], wanted: Requirements) -> Check:
    counts = Counter(scenario.locale for scenario in scenarios)
    shares = {name: 100 * count / len(scenarios) for name, count in sorted(counts.items())}
    faults = [
        f"{name}: {shares.get(name, 0.0):.0f}% ∉ {least:.0f}–{most:.0f}%"
        for name, (least, most) in wanted.locales.items()
        if not least <= shares.get(name, 0.0) <= most
    ]
    figure = ", ".join(f"{name} {share:.0f}%" for name, share in shares.items())
    return Check(name="locales", ok=not faults, figure=figure, faults=tuple(faults))


def _difficulty_check(scenarios: Sequence[Scenario]) -> Check:
    counts = Counter(tag for each in scenarios for tag in each.tags if tag in DIFFICULTIES)
    faults = [
        f"{each.id}: one tag of {' and '.join(DIFFICULTIES)}"
        for each in scenarios
        if len({*each.tags} & {*DIFFICULTIES}) != 1
    ]
    figure = ", ".join(f"{name} {counts[name]}" for name in DIFFICULTIES)
    return Check(name="difficulty", ok=not faults, figure=figure, faults=tuple(faults))


async def shown(
    folder: Path,
    settings: Settings,
    clock: Callable[[], float],
    *,
    requirements: Requirements | None = None,
    processes: int = 1,
    warnings: bool = False,
) -> int:
    """Check a folder with a folder for each split, print table and faults, return the exit code.

    Raises:
        ScenarioError: the folder or the list of survivors cannot be read.
    """
    started_s = clock()
    checks = await check_data(
        read_sources([folder]),
        known=read_survivors(folder / SURVIVORS),
        requirements=requirements,
        processes=processes,
    )
    texts = TEXTS.get(settings.locale, TEXTS["en"])
    console = Console()
    console.print(_table(checks, texts))
    for check in checks:
        _tell(check.faults, "red", console, texts)
        if warnings:
            _tell(check.warnings, "yellow", console, texts)
    console.print(texts["took"].format(seconds=clock() - started_s))
    return 0 if all(check.ok for check in checks) else EXIT_UNFIT


def _table(checks: Sequence[Check], texts: Mapping[str, str]) -> Table:
    table = Table(title=texts["title"], title_justify="left")
    for name in ("check", "figure", "result"):
        table.add_column(texts[name])
    for check in checks:
        key, style = ("good", "green") if check.ok else ("bad", "red")
        table.add_row(texts[check.name], check.figure, Text(texts[key], style=style))
    return table


def _tell(lines: Sequence[str], style: str, console: Console, texts: Mapping[str, str]) -> None:
    for line in lines[:SHOWN]:
        console.print(Text(f"  {printable(line)}", style=style), soft_wrap=True)
    if len(lines) > SHOWN:
        console.print(f"  {texts['more'].format(count=len(lines) - SHOWN)}")


def main(
    *, warnings: Annotated[bool, typer.Option("--warnings", help="Show warnings, too.")] = False
) -> None:
    """Check all that the scenarios of datasets/ac promise: lint, gold, mistakes, splits, counts."""
    finish(
        asyncio.run,  # noqa: TID251 - a script's own loop
        lambda settings: shown(
            scenario_folder(),
            settings,
            time.perf_counter,
            processes=os.cpu_count() or 1,
            warnings=warnings,
        ),
    )


if __name__ == "__main__":
    typer.run(main)
