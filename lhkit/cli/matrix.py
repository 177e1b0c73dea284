"""`lhkit matrix`: a suite's arms, each in its own run folder, and one table.

What is there already is not played again; where nothing is missing, no server is started.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from lhkit import app, scale
from lhkit.cli.arms import (
    ArmModels,
    ArmRun,
    arm_choice,
    arm_settings,
    is_scripted,
    require_own_server,
)
from lhkit.cli.console import EXIT_INVALID, EXIT_MISSED
from lhkit.cli.options import MatrixOptions
from lhkit.cli.replicas import placement_of
from lhkit.cli.source import left_lines
from lhkit.cli.thresholds import Thresholds, judged, require_percent
from lhkit.harness.loader import load_scenarios
from lhkit.harness.plan import require_playable
from lhkit.harness.report.terminal import matrix_view
from lhkit.harness.results import Run
from lhkit.harness.resume import unsure_models
from lhkit.harness.stress import parse_stress
from lhkit.harness.suite import Suite, arms_of, load_suite
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.models.served import require_constraint
from lhkit.scale import Cluster, Placement
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import limited, load, registry_of, seen_from

_WIDTH = 120


async def run_matrix(options: MatrixOptions, settings: Settings) -> int:
    """Play what is missing, show the table, return the exit code.

    Raises:
        LhkitError: suite, scenarios, run folders, set-up or server are not as they must be.
    """
    placement = placement_of(options)
    suite = load_suite(options.suite)
    arms = arms_of(suite, options.suite.parent)
    scenarios = load_scenarios(_suite_paths(suite, options.suite.parent))[: suite.limit]
    app.require_toolset(scenarios, suite.toolset)
    require_playable(
        len(scenarios),
        repeats=suite.repeats,
        concurrency=suite.concurrency or 1,
        max_tokens=suite.max_tokens,
    )
    if placement is not None:
        scale.require_ray(placement.address)
    is_free = all(arm.constraint == "off" for arm in arms)
    reference = seen_from(options.suite.parent, suite.toolset)
    toolset = limited(load(reference), suite.max_tokens)
    first = scenarios[0]
    tools = () if is_free else registry_of(toolset, first.world, first.locale).definitions
    for arm in arms:  # before anything is played
        parse_stress(arm.stress)
        require_own_server(arm, settings)
        if is_scripted(arm):
            require_constraint(arm.dialect, arm.constraint, tools)
        else:
            require = app.require_choice if placement is None else scale.require_model
            choice = replace(arm_choice(arm, settings), tools=tools)
            require(choice, arm_settings(arm, settings).runtime)
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), _console()
    stages = [
        ArmRun(
            suite=suite,
            arm=arm,
            scenarios=scenarios,
            folder=options.runs_dir / options.suite.stem / arm.name,
            settings=arm_settings(arm, settings),
            toolset=toolset,
        )
        for arm in arms
    ]
    if placement is None:
        runs = await _one_by_one(stages, tools, console, catalog)
    else:
        runs = await _placed(stages, placement, reference, console, catalog)
    console.print(matrix_view(runs, catalog, title=options.suite.stem))
    return _exit_code(runs, suite, console, catalog)


async def _one_by_one(
    stages: Sequence[ArmRun],
    tools: tuple[ToolDefinition, ...],
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing, one arm after the other."""
    runs: list[tuple[str, Run]] = []
    async with AsyncExitStack() as stack:
        models = ArmModels(stack=stack, tools=tools)
        for number, stage in enumerate(stages, start=1):
            run = await stage.finished()
            _tell_arm(run, stage, (number, len(stages)), console, catalog)
            runs.append((stage.arm.name, run or await stage.play(await models.open(stage))))
    return runs


async def _placed(
    stages: Sequence[ArmRun],
    placement: Placement,
    toolset: str,
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing on replicas: all arms at once, as many as the cluster has room for."""
    runs: dict[str, Run] = {}
    missing: list[ArmRun] = []
    for number, stage in enumerate(stages, start=1):
        run = await stage.finished()
        _tell_arm(run, stage, (number, len(stages)), console, catalog)
        if run:
            runs[stage.arm.name] = run
        else:
            missing.append(stage)

    async def play(stage: ArmRun, cluster: Cluster) -> None:
        opened, runs[stage.arm.name] = await stage.play_placed(cluster)
        words = catalog.text("matrix.played", arm=stage.arm.name)
        for line in (words, *left_lines(opened, catalog)):
            console.print(Text(printable(line)), soft_wrap=True)

    if missing:
        try:
            log = missing[0].folder.parent / scale.LOG
            async with (
                scale.connected(placement, toolset, log) as cluster,
                asyncio.TaskGroup() as group,
            ):
                for stage in missing:
                    group.create_task(play(stage, cluster))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
    return [(stage.arm.name, runs[stage.arm.name]) for stage in stages]


def _tell_arm(
    run: Run | None, stage: ArmRun, place: tuple[int, int], console: Console, catalog: Catalog
) -> None:
    """Say which arm of how many comes, and whether its run is there already."""
    number, count = place
    key = "matrix.kept" if run else "matrix.playing"
    words = catalog.text(key, number=number, count=count, arm=stage.arm.name)
    for line in (words, *(_unsure_lines(run.manifest, catalog) if run else ())):
        console.print(Text(printable(line)), soft_wrap=True)


def _unsure_lines(manifest: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield of which models of a run that is kept nobody knows whether they are still the same."""
    if models := unsure_models(manifest):
        yield catalog.text("eval.unsure", models=", ".join(models))


def _suite_paths(suite: Suite, folder: Path) -> tuple[Path, ...]:
    if isinstance(suite.scenarios, str):
        return scenarios_at((), suite.toolset, suite.scenarios)
    return tuple(folder / path for path in suite.scenarios)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _exit_code(
    runs: list[tuple[str, Run]], suite: Suite, console: Console, catalog: Catalog
) -> int:
    thresholds = Thresholds(fail_under=suite.fail_under, max_violations=suite.max_violations)
    codes = {0}
    for name, run in runs:
        found = judged(run, thresholds, catalog)
        for line in (*found.missed, *found.remarks):
            console.print(Text(printable(f"{name}: {line}")), soft_wrap=True)
        codes.add(found.exit_code)
    return next(code for code in (EXIT_MISSED, EXIT_INVALID, 0) if code in codes)
