"""`lhkit matrix`: a suite's arms, each in its own run folder, and one table.

What is there already is not played again; where nothing is missing, no server is started.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from lhkit import app, embedded, scale
from lhkit.cli.console import EXIT_INVALID, EXIT_MISSED
from lhkit.cli.options import MatrixOptions
from lhkit.cli.progress import opened_model
from lhkit.cli.provenance import provenance
from lhkit.cli.replicas import part_of, placement_of
from lhkit.cli.source import (
    FootprintReceiver,
    Opened,
    choice_of,
    concurrency_for,
    left_lines,
    source_of,
)
from lhkit.cli.thresholds import Thresholds, judged, require_percent
from lhkit.errors import ModelError, UsageError
from lhkit.harness.compare import matrix_rows, render_matrix
from lhkit.harness.log import read_manifest, read_records, unsure_models
from lhkit.harness.plan import MOST_CONCURRENCY, plan_run, require_playable
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.harness.stress import ModelSource, parse_stress, stressed
from lhkit.harness.suite import Arm, Suite, arms_of, load_suite
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import ModelIdentity
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import require_constraint
from lhkit.runtimes import VLLM
from lhkit.scale import SCRIPTED, Cluster, Placement, RayPlayers
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import Toolset, limited, load, registry_of, seen_from

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
        _require_own_server(arm, settings)
        if _is_scripted(arm):
            require_constraint(arm.dialect, arm.constraint, tools)
        else:
            require = app.require_choice if placement is None else scale.require_model
            choice = replace(_arm_choice(arm, settings), tools=tools)
            require(choice, _arm_settings(arm, settings).runtime)
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), _console()
    stages = [
        _Stage(
            suite=suite,
            arm=arm,
            scenarios=scenarios,
            folder=options.runs_dir / options.suite.stem / arm.name,
            settings=_arm_settings(arm, settings),
            toolset=toolset,
        )
        for arm in arms
    ]
    if placement is None:
        runs = await _one_by_one(stages, tools, console, catalog)
    else:
        runs = await _placed(stages, placement, reference, console, catalog)
    console.print(render_matrix(matrix_rows(runs), catalog, title=options.suite.stem))
    return _exit_code(runs, suite, console, catalog)


async def _one_by_one(
    stages: Sequence["_Stage"],
    tools: tuple[ToolDefinition, ...],
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing, one arm after the other."""
    runs: list[tuple[str, Run]] = []
    async with AsyncExitStack() as stack:
        models = _Models(stack=stack, tools=tools)
        for number, stage in enumerate(stages, start=1):
            run = await stage.finished()
            _tell_arm(run, stage, (number, len(stages)), console, catalog)
            runs.append((stage.arm.name, run or await stage.play(*await models.open(stage))))
    return runs


async def _placed(
    stages: Sequence["_Stage"],
    placement: Placement,
    toolset: str,
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing on replicas: all arms at once, as many as the cluster has room for."""
    runs: dict[str, Run] = {}
    missing: list[_Stage] = []
    for number, stage in enumerate(stages, start=1):
        run = await stage.finished()
        _tell_arm(run, stage, (number, len(stages)), console, catalog)
        if run:
            runs[stage.arm.name] = run
        else:
            missing.append(stage)

    async def play(stage: _Stage, cluster: Cluster) -> None:
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
    run: Run | None, stage: "_Stage", place: tuple[int, int], console: Console, catalog: Catalog
) -> None:
    """Say which arm of how many comes, and whether its run is there already."""
    number, count = place
    key = "matrix.kept" if run else "matrix.playing"
    words = catalog.text(key, number=number, count=count, arm=stage.arm.name)
    for line in (words, *(unsure_lines(run.manifest, catalog) if run else ())):
        console.print(Text(printable(line)), soft_wrap=True)


def _suite_paths(suite: Suite, folder: Path) -> tuple[Path, ...]:
    if isinstance(suite.scenarios, str):
        return scenarios_at((), suite.toolset, suite.scenarios)
    return tuple(folder / path for path in suite.scenarios)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _is_scripted(arm: Arm) -> bool:
    return arm.model.base_url is None and arm.model.name in SCRIPTED


def _arm_settings(arm: Arm, settings: Settings) -> Settings:
    return settings if arm.runtime is None else settings.model_copy(update={"runtime": arm.runtime})


def _require_own_server(arm: Arm, settings: Settings) -> None:
    """Refuse a runtime for a model that lhkit does not serve itself.

    Raises:
        UsageError: as the summary says.
    """
    if arm.runtime is None or not (
        _is_scripted(arm) or _arm_choice(arm, settings).base_url is not None
    ):
        return
    served = arm.model.name or arm.model.base_url or settings.base_url
    raise UsageError(
        f"arms.runtimes is for models that lhkit serves itself, and {served} is none: take it out "
        "of arms.models, or runtimes out of [arms]"
    )


def _arm_choice(arm: Arm, settings: Settings) -> app.ModelChoice:
    return choice_of(
        settings,
        name=arm.model.name,
        base_url=arm.model.base_url,
        dialect=arm.dialect,
        constraint=arm.constraint,
    )


@dataclass(slots=True, kw_only=True)
class _Models:
    """The models that arms ask for; they stay open, and so does a server that was started.

    Before another runtime starts all are closed: two that share a machine are both slower. Arms
    that share a server have its memory from the first of them on.
    """

    stack: AsyncExitStack
    tools: tuple[ToolDefinition, ...]
    started: dict[str, tuple[str, FootprintReceiver]] = field(default_factory=dict)
    runtime: str = ""

    async def open(self, stage: "_Stage") -> tuple[ModelSource, FootprintReceiver]:
        arm, settings, told = stage.arm, stage.settings, FootprintReceiver()
        if _is_scripted(arm):
            return SCRIPTED[arm.model.name](), told
        choice = replace(_arm_choice(arm, settings), tools=self.tools)
        if not choice.is_embedded:
            opening = opened_model(choice, settings, footprint=told.take)
            return await self.stack.enter_async_context(opening), told
        if settings.runtime != self.runtime:
            await self.stack.aclose()
            self.started.clear()
            self.runtime = settings.runtime
        served = app.embedded_name(choice.name)
        if served in self.started:
            address, told = self.started[served]
            choice = replace(choice, name=served, base_url=address, api_key=None)
            return await self.stack.enter_async_context(opened_model(choice, settings)), told
        opening = opened_model(choice, settings, footprint=told.take)
        model = await self.stack.enter_async_context(opening)
        self.started[served] = model.identity.base_url, told
        return model, told


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One arm with all that it is played with."""

    suite: Suite
    arm: Arm
    scenarios: tuple[Scenario, ...]
    folder: Path
    settings: Settings
    toolset: Toolset

    async def play(self, source: ModelSource, told: FootprintReceiver) -> Run:
        """Play what is missing in the arm's folder."""
        model, toolset = self._under_stress(source)
        return await replay(
            self.scenarios,
            model,
            toolset=toolset,
            run_dir=self.folder,
            repeats=self.suite.repeats,
            user=self.suite.user,
            concurrency=self.suite.concurrency or concurrency_for(source),
            provenance=replace(await provenance(self.settings), footprint=told.footprint),
        )

    async def play_placed(self, cluster: Cluster) -> tuple[Opened, Run]:
        """Play what is missing in the arm's folder on replicas of its own."""
        choice = _arm_choice(self.arm, self.settings)
        part = part_of(
            choice,
            self.settings,
            cluster.placement,
            concurrency=self.suite.concurrency,
            toolset=cluster.toolset,
            max_tokens=self.suite.max_tokens,
            stress=self.arm.stress,
            instructions=dict(self.arm.instructions),
        )
        asked = [each.played_by(self.suite.user) for each in self.scenarios]
        async with RayPlayers(cluster, part, asked) as players:
            source = source_of(choice, players)
            model, toolset = self._under_stress(source)
            run = await replay(
                self.scenarios,
                model,
                toolset=toolset,
                players=players,
                run_dir=self.folder,
                repeats=self.suite.repeats,
                user=self.suite.user,
                concurrency=self.suite.concurrency or min(MOST_CONCURRENCY, players.at_once),
                progress=False,
                provenance=await provenance(self.settings),
            )
            return Opened(source=source, players=players), run

    async def finished(self) -> Run | None:
        """Return the arm's run if it answers all that is asked now; None if it has to be played.

        Asked of the model that the folder names. A server at an address is asked whether it still
        serves those weights, if it answers; of an embedded model the folder tells.
        """
        recorded = self._recorded()
        if recorded is None or not await self._is_still_served(recorded):
            return None
        model, toolset = self._under_stress(ScriptedModel((), identity=recorded))
        plan = plan_run(
            self.scenarios, model, toolset, repeats=self.suite.repeats, user=self.suite.user
        )
        kept = plan.kept(read_records(self.folder))
        if len(kept) < len(plan.jobs):
            return None
        records = tuple(kept[job.sample_id] for job in plan.jobs)
        manifest = read_manifest(self.folder)
        return Run(
            records=records,
            manifest=manifest,
            kept=len(records),
            name=self.folder.resolve().name,
            folder=self.folder,
        )

    def _recorded(self) -> ModelIdentity | None:
        """Return the model that the folder names, if it is the one this arm asks for."""
        told = read_manifest(self.folder).get("models", [])
        try:
            (identity,) = TypeAdapter(tuple[ModelIdentity, ...]).validate_python(told)
        except (ValidationError, ValueError):
            return None
        choice, stress = _arm_choice(self.arm, self.settings), parse_stress(self.arm.stress)
        asked = (self.arm.dialect, self.arm.constraint, stress.label)
        if (identity.dialect, identity.constraint, identity.stress) != asked:
            return None  # also the scripted ones: they are quick, and are played
        is_named = choice.name is None or not choice.is_embedded or "/" in choice.name
        name = choice.name if is_named else app.embedded_name(choice.name)
        return identity if name in {None, identity.model} else None

    async def _is_still_served(self, recorded: ModelIdentity) -> bool:
        choice = _arm_choice(self.arm, self.settings)
        if not choice.is_embedded:
            try:
                async with opened_model(choice, self.settings) as model:
                    told = model.identity
            except ModelError:  # what was played stays good to be looked at
                return True
            return (told.weights, told.weights_sha256) == (
                recorded.weights,
                recorded.weights_sha256,
            )
        if "/" in (choice.name or ""):  # nobody serves it now
            return True
        name = app.embedded_name(choice.name)
        found = await embedded.embedded_sha256(name, self.settings)
        if found is None:  # the name of a folder is the hash of its recipe, that of a file is not
            is_folder = self.settings.runtime == VLLM
            return (
                is_folder
                and recorded.weights == embedded.embedded_weights(name, self.settings).name
            )
        return recorded.weights_sha256 == found

    def _under_stress(self, source: ModelSource) -> tuple[ModelSource, Toolset]:
        toolset = scale.told_instructions(self.toolset, self.arm.instructions)
        return stressed(source, toolset, parse_stress(self.arm.stress))


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


def unsure_lines(manifest: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield of which models of a run that is kept nobody knows whether they are still the same."""
    if models := unsure_models(manifest):
        yield catalog.text("eval.unsure", models=", ".join(models))
