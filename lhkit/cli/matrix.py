"""`lhkit matrix`: play what is missing of a suite's arms and draw one table.

What is there already is not played again; where nothing is missing, no server is started.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from lhkit import app, embedded, scale
from lhkit.cli.command import command
from lhkit.cli.console import EXIT_INVALID, EXIT_MISSED
from lhkit.cli.evaluation import Evaluation, prepared, provenance_of
from lhkit.cli.options import RunsDir
from lhkit.cli.progress import opened_model
from lhkit.cli.replicas import RayOptions
from lhkit.cli.source import Opened, left_lines
from lhkit.cli.thresholds import Thresholds, judged, require_percent
from lhkit.errors import ModelError, UsageError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.plan import ModelSource
from lhkit.harness.report.terminal import matrix_view
from lhkit.harness.results import Run
from lhkit.harness.resume import record_status, reusable_samples, select_records, unverified_models
from lhkit.harness.run_options import RunOptions
from lhkit.harness.store import read_manifest, read_records
from lhkit.harness.suite import Suite, expand_arms, load_suite
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.models.scripted import ScriptedModel
from lhkit.responses import ModelIdentity
from lhkit.scale import SCRIPTED, Cluster, Placement
from lhkit.settings import VLLM, Settings
from lhkit.text import printable
from lhkit.toolset import load

_WIDTH = 120


class MatrixOptions(RayOptions):
    """Which suite is played, and where; with `ray` replicas play."""

    suite: Annotated[Path, typer.Argument(help="A suite such as evals/constraints.toml.")]
    runs_dir: RunsDir = Path("runs")


@command("lhkit matrix evals/smoke.toml")
async def run_matrix(options: MatrixOptions, settings: Settings) -> int:
    """Play what is missing, show the table, return the exit code.

    Raises:
        LhkitError: suite, scenarios, run folders, set-up or server are not valid.
    """
    placement = options.placement()
    suite, folder = load_suite(options.suite), options.suite.parent
    arms = expand_arms(suite, folder)
    if isinstance(suite.scenarios, str):
        paths = scenarios_at((), suite.toolset, suite.scenarios)
    else:
        paths = tuple(folder / path for path in suite.scenarios)
    scenarios = load_scenarios(paths)[: suite.limit]
    app.require_toolset(scenarios, suite.toolset)
    toolset = load(arms[0].options.toolset)
    evaluations: dict[str, Evaluation] = {}
    for arm in arms:
        _require_own_server(arm.options, settings)
        evaluations[arm.name] = prepared(
            arm.options,
            scenarios,
            toolset,
            folder=options.runs_dir / options.suite.stem / arm.name,
            settings=settings,
            placement=placement,
        )
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    matrix = _Matrix(evaluations, console, catalog)
    runs = await (matrix.play() if placement is None else matrix.play_placed(placement))
    console.print(matrix_view(runs, catalog, title=options.suite.stem))
    return _exit_code(runs, suite, console, catalog)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The arms of a suite, by name, and where their progress is shown."""

    evaluations: dict[str, Evaluation]
    console: Console
    catalog: Catalog

    async def play(self) -> list[tuple[str, Run]]:
        """Play what is missing, one arm after the other."""
        runs: list[tuple[str, Run]] = []
        async with AsyncExitStack() as stack:
            models = _Models(stack=stack)
            for name, evaluation in self.evaluations.items():
                run = await self._finished(name)
                if run is None:
                    opened = Opened(source=await models.open(evaluation))
                    provenance = await provenance_of(evaluation.settings)
                    run = await evaluation.play(opened, provenance)
                runs.append((name, run))
        return runs

    async def play_placed(self, placement: Placement) -> list[tuple[str, Run]]:
        """Play what is missing on replicas: all arms at once, as far as the cluster has room."""
        runs = {name: await self._finished(name) for name in self.evaluations}
        missing = [name for name, run in runs.items() if run is None]

        async def play(name: str, cluster: Cluster) -> None:
            evaluation = self.evaluations[name]
            async with evaluation.on_replicas(cluster) as opened:
                provenance = await provenance_of(evaluation.settings)
                runs[name] = await evaluation.play(opened, provenance, progress=False)
            words = self.catalog.text("matrix.played", arm=name)
            self._print([words, *left_lines(opened, self.catalog)])

        if missing:
            first = self.evaluations[missing[0]]
            log = first.folder.parent / scale.LOG
            try:
                async with (
                    scale.connect(placement, first.options.toolset, log) as cluster,
                    asyncio.TaskGroup() as group,
                ):
                    for name in missing:
                        group.create_task(play(name, cluster))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
        return [(name, run) for name, run in runs.items() if run is not None]

    async def _finished(self, name: str) -> Run | None:
        """Return the run of an arm that is there already, and say which arm of how many comes."""
        run = await finished_run(self.evaluations[name])
        number, count = list(self.evaluations).index(name) + 1, len(self.evaluations)
        key = "matrix.kept" if run else "matrix.playing"
        lines = [self.catalog.text(key, number=number, count=count, arm=name)]
        if run and (models := unverified_models(run.manifest)):
            lines.append(self.catalog.text("eval.unsure", models=", ".join(models)))
        self._print(lines)
        return run

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.console.print(Text(printable(line)), soft_wrap=True)


@dataclass(slots=True, kw_only=True)
class _Models:
    """The models that arms ask for; they stay open, and so does a server that was started.

    Before another runtime starts all are closed: two that share a machine are both slower.
    """

    stack: AsyncExitStack
    started: dict[str, str] = field(default_factory=dict)
    runtime: str = ""

    async def open(self, evaluation: Evaluation) -> ModelSource:
        choice, settings = evaluation.choice, evaluation.settings
        if evaluation.is_scripted:
            return SCRIPTED[choice.name]()
        if not choice.is_embedded:
            return await self.stack.enter_async_context(opened_model(choice, settings))
        if settings.runtime != self.runtime:
            await self.stack.aclose()
            self.started.clear()
            self.runtime = settings.runtime
        served = app.embedded_name(choice.name)
        if served in self.started:
            address = self.started[served]
            choice = replace(choice, name=served, base_url=address, api_key=None)
            return await self.stack.enter_async_context(opened_model(choice, settings))
        model = await self.stack.enter_async_context(opened_model(choice, settings))
        self.started[served] = model.identity.base_url
        return model


async def finished_run(evaluation: Evaluation) -> Run | None:
    """Return the run if its folder answers all that is asked now; None if it has to be played.

    Asked of the model that the folder names. A server at an address is asked whether it still
    serves those weights, if it answers; of an embedded model the folder tells.
    """
    recorded = _recorded(evaluation)
    if recorded is None or not await _is_still_served(evaluation, recorded):
        return None
    plan = evaluation.plan(ScriptedModel((), identity=recorded))
    records = select_records(read_records(evaluation.folder), plan.hashes)
    if len(reusable_samples(map(record_status, records), plan.hashes)) < len(plan.hashes):
        return None
    return Run(
        records=records,
        manifest=read_manifest(evaluation.folder),
        kept=len(records),
        name=evaluation.folder.resolve().name,
        folder=evaluation.folder,
    )


def _recorded(evaluation: Evaluation) -> ModelIdentity | None:
    """Return the model that the folder names, if it is the one that is asked for."""
    models = read_manifest(evaluation.folder).models
    try:
        (identity,) = TypeAdapter(tuple[ModelIdentity, ...]).validate_python(models)
    except (ValidationError, ValueError):
        return None
    choice = evaluation.choice
    asked = (choice.dialect, choice.constraint, evaluation.stress.label)
    if (identity.dialect, identity.constraint, identity.stress) != asked:
        return None  # also the scripted ones: they are quick, and are played
    is_named = choice.name is None or not choice.is_embedded or "/" in choice.name
    name = choice.name if is_named else app.embedded_name(choice.name)
    return identity if name in {None, identity.model} else None


async def _is_still_served(evaluation: Evaluation, recorded: ModelIdentity) -> bool:
    choice, settings = evaluation.choice, evaluation.settings
    if not choice.is_embedded:
        try:
            async with opened_model(choice, settings) as model:
                served = model.identity
        except ModelError:  # what was played can still be shown
            return True
        known = (recorded.weights, recorded.weights_sha256)
        return (served.weights, served.weights_sha256) == known
    if "/" in (choice.name or ""):  # no server of it runs now
        return True
    name = app.embedded_name(choice.name)
    sha256 = await embedded.embedded_sha256(name, settings)
    if sha256 is None:  # the name of a folder is the hash of its recipe, that of a file is not
        folder = embedded.embedded_weights(name, settings)
        return settings.runtime == VLLM and recorded.weights == folder.name
    return recorded.weights_sha256 == sha256


def _require_own_server(options: RunOptions, settings: Settings) -> None:
    """Refuse a runtime for a model that lhkit does not serve itself.

    Raises:
        UsageError: as the summary says.
    """
    base_url = next(iter(options.base_urls), settings.base_url)
    if options.runtime is not None and (base_url or options.model in SCRIPTED):
        raise UsageError(
            f"arms.runtimes is for models that lhkit serves itself, and "
            f"{options.model or base_url} is none: take it out of arms.models, or runtimes out of "
            "[arms]"
        )


def _exit_code(
    runs: Sequence[tuple[str, Run]], suite: Suite, console: Console, catalog: Catalog
) -> int:
    thresholds = Thresholds(fail_under=suite.fail_under, max_violations=suite.max_violations)
    codes = {0}
    for name, run in runs:
        found = judged(run, thresholds, catalog)
        for line in (*found.missed, *found.remarks):
            console.print(Text(printable(f"{name}: {line}")), soft_wrap=True)
        codes.add(found.exit_code)
    return next(code for code in (EXIT_MISSED, EXIT_INVALID, 0) if code in codes)
