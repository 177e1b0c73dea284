"""`lhkit matrix`: run the missing arms of a suite and show one table."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from lhkit import app, embedded, scale
from lhkit.base.errors import ModelError, UsageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.spelling import in_suite, spelled
from lhkit.cli.eval.evaluation import Evaluation, OpenedModel, prepare_evaluation, read_provenance
from lhkit.cli.eval.ray_options import RayOptions
from lhkit.cli.frame.command import command
from lhkit.cli.frame.console import print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import RunsDir, SelectOptions, ThresholdOptions, require_percent
from lhkit.cli.frame.progress import open_model
from lhkit.cli.frame.project import KEYS, find_project, is_own_model
from lhkit.cli.frame.thresholds import check_thresholds
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.figures.metrics import dialect_use
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.records.resume import (
    record_status,
    reusable_samples,
    select_records,
    unverified_models,
)
from lhkit.harness.records.store import read_manifest, read_records
from lhkit.harness.report.terminal import halves_view, matrix_view
from lhkit.harness.results.choosing import HALVES, choose_runs, write_halves
from lhkit.harness.results.results import Run
from lhkit.harness.running.descriptions import check_descriptions
from lhkit.harness.running.plan import ModelSource, Plan
from lhkit.harness.running.prepared import choose_scenarios
from lhkit.harness.running.run import score_prepared
from lhkit.harness.running.suite import Arm, Suite, arms_by_setting, expand_arms, load_suite
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.views.scores import figure_lines
from lhkit.harness.views.tables import confirm_line, dialect_lines, gate_line, policy_lines
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.models.client.request import OPENAI
from lhkit.models.families import identity_family
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.models.runtimes import VLLM
from lhkit.scale import Cluster, Placement
from lhkit.settings import Settings
from lhkit.toolset import load

if TYPE_CHECKING:  # it needs NumPy
    from lhkit.harness.running.stopping import DropRule

_WIDTH = 120


class MatrixOptions(SelectOptions, RayOptions):
    """Options of `lhkit matrix`; those that select scenarios precede the suite's."""

    suite: Annotated[Path, typer.Argument(help="Suite file, such as evals/constraints.toml.")]
    runs_dir: RunsDir = Path("runs")
    stop_when_decided: Annotated[
        bool,
        typer.Option(
            "--stop-when-decided",
            help="Run the scenarios in a random order (--seed), and drop an arm as soon as an "
            "always-valid test finds it worse than an arm before it. Put the arm first that is "
            "probably the best. Without it the same command runs the rest.",
        ),
    ] = False

    project_keys: ClassVar = ("locale",)  # the suite decides on the others


@command("lhkit matrix evals/smoke.toml")
async def run_matrix(options: MatrixOptions, settings: Settings) -> int:
    """Run the missing arms, print the table, return the exit code.

    Raises:
        LhkitError: suite, scenarios, run folders, setup or server are invalid.
    """
    placement = options.placement()
    suite, folder = load_suite(options.suite), options.suite.parent
    suite = _with_project(suite, options.suite, settings)
    suite = suite.model_copy(update=dict(options.values()))
    arms = expand_arms(suite, folder)
    by_setting = [names for names in arms_by_setting(arms) if len(names) > 1]
    if options.stop_when_decided:
        _require_droppable(options.suite, arms, is_choosing=bool(by_setting))
    if isinstance(suite.scenarios, str):
        paths = scenarios_at((), suite.toolset, suite.scenarios)
    else:
        paths = tuple(folder / path for path in suite.scenarios)
    scenarios = load_scenarios(paths)
    app.require_toolset(scenarios, suite.toolset)
    chosen = choose_scenarios(scenarios, suite)
    toolset = load(arms[0].options.toolset)
    for name, wording in suite.descriptions.items():
        place = f"{options.suite}: descriptions.{name}"
        check_descriptions(wording, toolset, chosen.scenarios, place=place)
    evaluations: dict[str, Evaluation] = {}
    for arm in arms:
        base_url = arm.options.base_url or settings.base_url
        if arm.options.runtime is not None and (base_url or arm.options.model in REFERENCE_MODELS):
            key = "arms.runtimes" if suite.arms.runtimes else "runtime"
            raise UsageError(
                f"{key} is for models that lhkit serves itself, which "
                f"{arm.options.model or base_url} is not: remove that model, or {key}"
            )
        evaluations[arm.name] = prepare_evaluation(
            arm.options,
            chosen,
            toolset,
            folder=options.runs_dir / options.suite.stem / arm.name,
            settings=settings,
            placement=placement,
        )
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), wide_console(_WIDTH)
    seed = suite.seed if options.stop_when_decided else None
    matrix = _Matrix(evaluations, console, catalog, order_seed=seed)
    with spelled(lambda text: in_suite(catalog.translate(text))):  # an option has another name here
        runs = await (matrix.run() if placement is None else matrix.run_on_replicas(placement))
    title, results = options.suite.stem, options.runs_dir / options.suite.stem
    if by_setting:
        by_name = dict(runs)
        compared = [[(name, by_name[name]) for name in names] for names in by_setting]
        choices = choose_runs(compared, seed=suite.halves_seed)
        write_halves(results / HALVES, choices)
        console.print(halves_view(runs, choices, catalog, title=title))
    else:
        console.print(matrix_view(runs, catalog, title=title, order_seed=seed))
    for name, run in runs:
        lines = dialect_lines(*dialect_use(run.records), catalog)
        print_lines((f"{name}: {line}" for line in lines), console)
        lines = figure_lines(run.summary().scores, catalog)
        print_lines((f"{name}: {line}" for line in lines), console)
        lines = policy_lines(run.summary(), catalog)
        print_lines((f"{name}: {line}" for line in lines), console)
        if evaluations[name].prepared.options.user != "script":
            lines = (line(run.summary(), catalog) for line in (confirm_line, gate_line))
            print_lines((f"{name}: {line}" for line in lines), console)
    return _check_arms(runs, suite, console, catalog)


def _require_droppable(suite: Path, arms: Sequence[Arm], *, is_choosing: bool) -> None:
    """Check that arms of a suite may be dropped while they run.

    Raises:
        UsageError: there is only one, or some differ in their descriptions.
    """
    if len(arms) < 2:
        raise UsageError(
            f"--stop-when-decided drops arms that are worse than others, and {suite} has "
            "one arm: give an axis several values, or leave the option out"
        )
    if is_choosing:
        raise UsageError(
            f"--stop-when-decided does not run all scenarios of an arm, and {suite} "
            "chooses descriptions on one half of them for the other: leave the option out"
        )


def _with_project(suite: Suite, file: Path, settings: Settings) -> Suite:
    """Complete a suite with the values of the project that it does not specify."""
    project = find_project(file, Path())
    if project is None:
        return suite
    models = [suite.model, *(suite.arms.models or ())]
    own = next(filter(is_own_model, (m for m in models if isinstance(m, str))), None)
    given = {name: getattr(suite, name) for name in suite.model_fields_set}
    given |= {"model": own or models[-1]} if any(models) else {}
    values = project.absolute().defaults(KEYS - {"locale"}, given, settings)
    print_lines(filter(None, [project.line(values, settings.locale)]))
    return suite.model_copy(update=values)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The arms of a suite, by name, and the console for their progress.

    With an `order_seed`, an arm that is worse than an arm before it is dropped. The arms are run
    one after the other, as without it: one server at a time, and latencies that no other arm
    disturbs. So the first arm is always run to the end.
    """

    evaluations: dict[str, Evaluation]
    console: Console
    catalog: Catalog
    order_seed: int | None = None

    async def run(self) -> list[tuple[str, Run]]:
        """Run the missing arms one after the other."""
        runs: list[tuple[str, Run]] = []
        async with AsyncExitStack() as stack:
            models = _Models(stack=stack)
            for name, evaluation in self.evaluations.items():
                rule = self._rule(runs)
                run = await self._load_finished(name, rule)
                if run is None:
                    opened = OpenedModel(source=await models.open(evaluation))
                    provenance = await read_provenance(evaluation.settings)
                    print_lines(evaluation.concurrency_lines(opened, self.catalog), self.console)
                    print_lines(evaluation.policy_lines(opened, self.catalog), self.console)
                    run = await evaluation.run(opened, provenance, stop=rule)
                runs.append((name, run))
        return runs

    def _rule(self, runs: Sequence[tuple[str, Run]]) -> "DropRule | None":
        """Return when the next arm is dropped; None if no arm is."""
        if self.order_seed is None:
            return None
        from lhkit.harness.running.stopping import DropRule

        earlier = [run for _, run in runs]
        return DropRule.after(earlier, arms=len(self.evaluations), seed=self.order_seed)

    async def run_on_replicas(self, placement: Placement) -> list[tuple[str, Run]]:
        """Run the missing arms on Ray replicas, as many at once as the cluster has room for."""
        if self.order_seed is not None:
            return await self._run_one_by_one_on_replicas(placement)
        runs = {name: await self._load_finished(name) for name in self.evaluations}
        missing = [name for name, run in runs.items() if run is None]

        async def run_arm(name: str, cluster: Cluster) -> None:
            runs[name] = await self._run_on_cluster(name, cluster)

        if missing:
            try:
                async with self._connect(placement) as cluster, asyncio.TaskGroup() as group:
                    for name in missing:
                        group.create_task(run_arm(name, cluster))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
        return [(name, run) for name, run in runs.items() if run is not None]

    async def _run_one_by_one_on_replicas(self, placement: Placement) -> list[tuple[str, Run]]:
        """Run the missing arms on Ray replicas one after the other, since some may be dropped."""
        runs: list[tuple[str, Run]] = []
        async with AsyncExitStack() as stack:
            cluster: Cluster | None = None
            for name in self.evaluations:
                rule = self._rule(runs)
                run = await self._load_finished(name, rule)
                if run is None:
                    if cluster is None:
                        cluster = await stack.enter_async_context(self._connect(placement))
                    run = await self._run_on_cluster(name, cluster, rule)
                runs.append((name, run))
        return runs

    def _connect(self, placement: Placement) -> AbstractAsyncContextManager[Cluster]:
        first = next(iter(self.evaluations.values()))
        log = first.folder.parent / scale.LOG
        return scale.connect(placement, first.prepared.options.toolset, log)

    async def _run_on_cluster(
        self, name: str, cluster: Cluster, rule: "DropRule | None" = None
    ) -> Run:
        evaluation = self.evaluations[name]
        async with evaluation.open_replicas(cluster) as opened:
            provenance = await read_provenance(evaluation.settings)
            run = await evaluation.run(opened, provenance, progress=False, stop=rule)
        text = self.catalog.text("matrix.completed", arm=name)
        print_lines([text, *opened.warnings(self.catalog)], self.console)
        return run

    async def _load_finished(self, name: str, rule: "DropRule | None" = None) -> Run | None:
        """Return the run of an arm if it is finished, and print the arm's number and state."""
        run = await finished_run(self.evaluations[name], rule)
        number, count = list(self.evaluations).index(name) + 1, len(self.evaluations)
        key = "matrix.kept" if run else "matrix.playing"
        if run and run.manifest.selection and run.manifest.selection.stopped:
            key = "matrix.kept_dropped"
        lines = [self.catalog.text(key, number=number, count=count, arm=name)]
        if run and (models := unverified_models(run.manifest)):
            lines.append(self.catalog.text("eval.unsure", models=", ".join(models)))
        if run and not run.manifest.code_sha256:
            lines.append(self.catalog.text("eval.unknown_code", count=run.kept))
        print_lines(lines, self.console)
        return run


@dataclass(slots=True, kw_only=True)
class _Models:
    """Models and servers that stay open between arms.

    All are closed before another runtime starts: two on one machine slow each other down.
    """

    stack: AsyncExitStack
    addresses: dict[str, str] = field(default_factory=dict)
    runtime: str = ""

    async def open(self, evaluation: Evaluation) -> ModelSource:
        choice, settings = evaluation.choice, evaluation.settings
        if evaluation.is_scripted:
            return REFERENCE_MODELS[choice.name]()
        if not choice.is_embedded:
            return await self.stack.enter_async_context(open_model(choice, settings))
        if settings.runtime != self.runtime:
            await self.stack.aclose()
            self.addresses.clear()
            self.runtime = settings.runtime
        name = app.embedded_name(choice.name)
        if name in self.addresses:
            choice = replace(choice, name=name, base_url=self.addresses[name], api_key=None)
            return await self.stack.enter_async_context(open_model(choice, settings))
        model = await self.stack.enter_async_context(open_model(choice, settings))
        self.addresses[name] = model.identity.base_url
        return model


async def finished_run(evaluation: Evaluation, rule: "DropRule | None" = None) -> Run | None:
    """Return the run if its folder has every sample for the current options, else None.

    With a `rule`, an arm that was dropped by it is finished, too.

    A server at an address is asked whether it still serves the recorded weights, if it answers; the
    weights of an embedded model are compared on disk.
    """
    identity = _recorded_identity(evaluation)
    if identity is None or not await _has_same_weights(evaluation, identity):
        return None
    plan = evaluation.prepared.plan(ScriptedModel((), identity=identity))
    plan = plan.resuming(read_manifest(evaluation.folder))
    records = select_records(read_records(evaluation.folder), plan.hashes)
    reusable = reusable_samples(map(record_status, records), plan.hashes)
    is_whole = len(reusable) == len(plan.hashes)
    if not is_whole and not (rule and _is_dropped_by(rule, plan, evaluation, records)):
        return None
    run = Run(
        records=records,
        manifest=read_manifest(evaluation.folder),
        kept=len(records),
        name=evaluation.folder.resolve().name,
        folder=evaluation.folder,
    )
    return await score_prepared(run, evaluation.prepared)


def _is_dropped_by(
    rule: "DropRule", plan: Plan, evaluation: Evaluation, records: Sequence[SampleRecord]
) -> bool:
    """Return whether an arm was dropped for the same reason as its records give now."""
    from lhkit.harness.running.stopping import Stopping

    stopping = Stopping(rule, plan)
    for record in records:
        if record.is_valid:
            stopping.record(record.sample_id, record.score.verdict)
    selection = stopping.selection(evaluation.prepared.chosen.selection)
    return stopping.is_decided and selection == read_manifest(evaluation.folder).selection


def _recorded_identity(evaluation: Evaluation) -> ModelIdentity | None:
    """Return the model of the run folder, if it is the requested one."""
    models = read_manifest(evaluation.folder).models
    try:
        (identity,) = TypeAdapter(tuple[ModelIdentity, ...]).validate_python(models)
    except (ValidationError, ValueError):
        return None
    choice = evaluation.choice
    family = identity_family(identity)
    dialect = choice.dialect or (family.dialect if family else OPENAI)
    requested = (dialect, choice.constraint, evaluation.prepared.stress.label)
    if (identity.dialect, identity.constraint, identity.stress) != requested:
        return None  # also for scripted models, which are quick to run again
    is_named = choice.name is None or not choice.is_embedded or "/" in choice.name
    name = choice.name if is_named else app.embedded_name(choice.name)
    return identity if name in {None, identity.model} else None


async def _has_same_weights(evaluation: Evaluation, recorded: ModelIdentity) -> bool:
    choice, settings = evaluation.choice, evaluation.settings
    if not choice.is_embedded:
        try:
            async with open_model(choice, settings) as model:
                served = model.identity
        except ModelError:  # the recorded samples can still be shown
            return True
        expected = (recorded.weights, recorded.weights_sha256)
        return (served.weights, served.weights_sha256) == expected
    if "/" in (choice.name or ""):  # no server of it is running
        return True
    name = app.embedded_name(choice.name)
    sha256 = await embedded.embedded_sha256(name, settings)
    if sha256 is None:  # the name of a folder is a hash of its recipe, that of a file is not
        folder = embedded.embedded_weights(name, settings)
        return settings.runtime == VLLM and recorded.weights == folder.name
    return recorded.weights_sha256 == sha256


def _check_arms(
    runs: Sequence[tuple[str, Run]], suite: Suite, console: Console, catalog: Catalog
) -> ExitCode:
    """Print the missed thresholds of the arms; return the exit code of the worst one."""
    limits = ThresholdOptions(fail_under=suite.fail_under, max_violations=suite.max_violations)
    codes = set()
    for name, run in runs:
        result = check_thresholds(run, limits, catalog)
        print_lines((f"{name}: {line}" for line in (*result.findings, *result.remarks)), console)
        codes.add(result.exit_code)
    worst_first = (ExitCode.FAILED, ExitCode.INFRASTRUCTURE, ExitCode.CANNOT_TELL)
    return next((code for code in worst_first if code in codes), ExitCode.OK)
