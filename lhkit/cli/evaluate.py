"""`lhkit eval`: replay scenarios against a model and score them; the same command resumes."""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lhkit import app, scale
from lhkit.cli.command import command
from lhkit.cli.console import EXIT_MISSED
from lhkit.cli.evaluation import Evaluation, prepared, provenance_of
from lhkit.cli.options import Paths, RunsDir
from lhkit.cli.replicas import RayOptions, waiting
from lhkit.cli.results import exit_code_lines, print_lines, resumed, show_run
from lhkit.cli.source import Opened, left_lines, opened_source
from lhkit.cli.thresholds import Thresholds, judged, require_percent
from lhkit.errors import UsageError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.plan import ModelSource
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run_options import RunOptions
from lhkit.harness.store import RECORDS, stored_answered
from lhkit.harness.stress import parse_stress
from lhkit.harness.tables import criterion_descriptions
from lhkit.lifehelper.shipped import scenario_paths, scenarios_at
from lhkit.locales import load_catalog
from lhkit.scale import Placement
from lhkit.settings import Settings, process_age_s
from lhkit.text import printable
from lhkit.toolset import DEFAULT, label_of, load

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class EvalOptions(RayOptions, RunOptions):
    """What is played, with whom, and what is required of the run.

    Without `split` and `paths` the split `dev` is played. With `ray` replicas play.
    """

    paths: Paths = ()
    split: Annotated[
        str | None,
        typer.Option(help="Shipped scenarios, instead of PATHS: dev (default), test, all."),
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of the run's folder.")] = None
    runs_dir: RunsDir = Path("runs")
    fail_under: Annotated[
        float | None, typer.Option(min=0, max=100, help="Lowest pass rate in percent.")
    ] = None
    max_violations: Annotated[
        int | None, typer.Option(min=0, help="Most blocked violations allowed; none may happen.")
    ] = None
    baseline: Annotated[
        Path | None, typer.Option(help="Earlier run (name or folder): fails if that was better.")
    ] = None
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="For people: end with 0, and say why it would be 1."),
    ] = False


@command(
    "lhkit eval --limit 8",
    "lhkit eval mine.yaml --toolset mine.py:own --model gold",
    "lhkit eval --base-url http://127.0.0.1:8000 --fail-under 85",
    "lhkit eval --ray local --replicas 2",
)
async def evaluate(
    options: EvalOptions, settings: Settings, *, begun_s: float | None = None
) -> int:
    """Replay, show the table, return the exit code.

    Args:
        options: what the user asked for.
        settings: of this process.
        begun_s: when all began, on the clock of `time.perf_counter`; by default with the process.

    Raises:
        LhkitError: scenarios, run folder, set-up or server are not valid.
    """
    if begun_s is None:
        begun_s = time.perf_counter() - process_age_s()
    placement, paths = options.placement(), _paths(options)
    toolset = load(options.toolset)
    scenarios = load_scenarios(paths, limit=options.limit)
    app.require_toolset(scenarios, options.toolset)
    folder, thresholds = _run_dir(options), _thresholds(options)
    evaluation = prepared(
        options, scenarios, toolset, folder=folder, settings=settings, placement=placement
    )
    catalog = load_catalog(settings.locale)

    def is_answered(source: ModelSource) -> bool:
        return evaluation.plan(source).is_answered_by(stored_answered(folder))

    @asynccontextmanager
    async def replicas(placed: Placement) -> AsyncIterator[Opened]:
        words = catalog.text("eval.ray", count=placed.replicas, address=placed.address)
        Console(stderr=True).print(Text(printable(words)), soft_wrap=True)
        waits = waiting(placed, catalog)
        async with (
            scale.connected(placed, options.toolset, folder / scale.LOG) as cluster,
            evaluation.on_replicas(cluster, waits) as opened,
        ):
            yield opened

    own = None if placement is None else replicas(placement)
    async with opened_source(evaluation.choice, evaluation.settings, is_answered, own) as opened:
        run = await _played(evaluation, opened, begun_s)
    words = criterion_descriptions((each.ac for each in scenarios), options.toolset, catalog)
    found = judged(run, thresholds, catalog)
    outcome = tuple(exit_code_lines(run, found, catalog)) if options.exit_zero else found.missed
    last = [*left_lines(opened, catalog), *found.remarks, *outcome]
    show_run(run, folder, words, last, catalog)
    return 0 if options.exit_zero and found.exit_code == EXIT_MISSED else found.exit_code


async def _played(evaluation: Evaluation, opened: Opened, begun_s: float) -> Run:
    """Play what is missing; if the user interrupts, say that nothing is lost."""
    catalog = load_catalog(evaluation.settings.locale)
    provenance = replace(
        await provenance_of(evaluation.settings),
        command=("lhkit", *sys.argv[1:]),
        setup_s=time.perf_counter() - begun_s - opened.server_s,
        server_s=opened.server_s,
    )
    try:
        return await evaluation.play(
            opened, provenance, report=lambda found: print_lines(resumed(found, catalog))
        )
    except asyncio.CancelledError:
        print_lines([catalog.text("eval.interrupted", path=evaluation.folder)])
        raise


def _paths(options: EvalOptions) -> tuple[Path, ...]:
    """Return where the scenarios are.

    Raises:
        UsageError: no such split, a split beside paths, or tools of one's own without paths.
    """
    shipped = scenario_paths(options.split or "dev")
    is_own = options.toolset != DEFAULT
    if options.split is not None and (options.paths or is_own):
        what = "PATHS" if options.paths else "--toolset"
        raise UsageError(
            f"--split {options.split} takes shipped scenarios, not those of {what}: leave one out"
        )
    return scenarios_at(options.paths, options.toolset) if is_own else options.paths or shipped


def _thresholds(options: EvalOptions) -> Thresholds:
    """Return what is required of the run; a baseline is read before hours are spent on a run.

    Raises:
        UsageError: the floor is a share, not percent, or the baseline is no run or says nothing.
    """
    baseline = None
    require_percent(options.fail_under, "--fail-under")
    if options.baseline is not None:
        named = options.runs_dir / options.baseline
        baseline = Run.load(named if (named / RECORDS).exists() else options.baseline)
        if all(record.judgement.verdict is Verdict.INVALID for record in baseline.records):
            count = len(baseline.records)
            raise UsageError(
                f"--baseline {options.baseline}: none of its {count} samples is valid, so nothing "
                "can be compared with it: give its own eval command again first"
            )
    return Thresholds(
        fail_under=options.fail_under, max_violations=options.max_violations, baseline=baseline
    )


def _run_dir(options: EvalOptions) -> Path:
    folder = options.runs_dir / run_name(options)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, no folder of a run: give another --name")
    return folder


def run_name(options: EvalOptions) -> str:
    """Return the given name, or one that the same options always give, so that a run resumes.

    Raises:
        UsageError: the given name cannot name a folder.
    """
    if options.name is None:
        model = options.model or ("served" if options.base_urls else app.EMBEDDED)
        words = [model, options.dialect]
        words += [label_of(options.toolset)] if options.toolset != DEFAULT else []
        words += [options.constraint] if options.constraint != "off" else []
        words += [parse_stress(options.stress).label] if options.stress else []
        words += [options.user] if options.user != "script" else []
        words += [options.split] if options.split not in {None, "dev"} else []
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).lstrip("-.")
    if not _RUN_NAME.fullmatch(options.name):
        raise UsageError(
            f"--name {options.name!r} cannot name a folder: use letters, digits, '.', '_', '-'"
        )
    return options.name
