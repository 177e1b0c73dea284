"""`lhkit matrix`: a suite's arms, each in its own run folder, and one table.

What is there already is not played again; where nothing is missing, no server is started.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.commands.provenance import provenance
from lhkit.commands.sources import concurrency_for
from lhkit.commands.thresholds import (
    EXIT_INVALID,
    EXIT_MISSED,
    Thresholds,
    judged,
    require_percent,
    unsure_lines,
)
from lhkit.errors import ModelError
from lhkit.harness.authoring.gold import gold_model, silent_model
from lhkit.harness.records.journal import read_manifest, read_records
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.plan import ModelSource, plan_run, require_playable
from lhkit.harness.replay.runner import replay
from lhkit.harness.replay.stress import parse_stress, stressed
from lhkit.harness.results.matrix import matrix_rows, render_matrix
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.scenario import load_scenarios
from lhkit.harness.scenarios.script import Scenario
from lhkit.harness.scenarios.suite import Arm, Suite, arms_of, load_suite
from lhkit.locales import Catalog, load_catalog
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import require_constraint
from lhkit.models.weights_hash import weights_sha256
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from lhkit.vocab.generation import ModelIdentity, Sampling
from lhkit.vocab.printable import printable

_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """What the user asked for on the command line."""

    suite: Path
    runs_dir: Path = Path("runs")


async def run_matrix(options: MatrixOptions, settings: Settings) -> int:
    """Play what is missing, show the table, return the exit code.

    Raises:
        LhkitError: suite, scenarios, run folders, set-up or server are not as they must be.
    """
    suite = load_suite(options.suite)
    arms = arms_of(suite, options.suite.parent)
    scenarios = load_scenarios(_paths(suite, options.suite.parent))[: suite.limit]
    require_playable(
        len(scenarios),
        repeats=suite.repeats,
        concurrency=suite.concurrency or 1,
        max_tokens=suite.max_tokens,
    )
    is_free = all(arm.constraint == "off" for arm in arms)
    tools = () if is_free else app.registry_of(scenarios[0].locale).definitions
    for arm in arms:  # before anything is played
        parse_stress(arm.stress)
        if _is_scripted(arm):
            require_constraint(arm.dialect, arm.constraint, tools)
        else:
            app.require_choice(replace(_choice(arm, settings), tools=tools))
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), _console()
    runs: list[tuple[str, Run]] = []
    async with AsyncExitStack() as stack:
        models = _Models(stack=stack, settings=settings, tools=tools)
        for number, arm in enumerate(arms, start=1):
            stage = _Stage(
                suite=suite,
                arm=arm,
                scenarios=scenarios,
                folder=options.runs_dir / options.suite.stem / arm.name,
                settings=settings,
            )
            run = await stage.finished()
            key = "matrix.kept" if run else "matrix.playing"
            words = catalog.text(key, number=number, count=len(arms), arm=arm.name)
            console.print(Text(printable(words)), soft_wrap=True)
            for line in unsure_lines(run.manifest, catalog) if run else ():
                console.print(Text(printable(line)), soft_wrap=True)
            runs.append((arm.name, run or await stage.play(await models.open(arm))))
    console.print(render_matrix(matrix_rows(runs), catalog, title=options.suite.stem))
    return _exit_code(runs, suite, console, catalog)


def _paths(suite: Suite, folder: Path) -> tuple[Path, ...]:
    if isinstance(suite.scenarios, str):
        return app.scenario_paths(suite.scenarios)
    return tuple(folder / path for path in suite.scenarios)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _is_scripted(arm: Arm) -> bool:
    return arm.model.base_url is None and arm.model.name in {"gold", "silent"}


def _choice(arm: Arm, settings: Settings) -> app.ModelChoice:
    return app.ModelChoice(
        name=arm.model.name,
        base_url=arm.model.base_url or settings.base_url,
        api_key=settings.api_key,
        dialect=arm.dialect,
        constraint=arm.constraint,
    )


@dataclass(slots=True, kw_only=True)
class _Models:
    """The models that arms ask for; they stay open, and so does a server that was started."""

    stack: AsyncExitStack
    settings: Settings
    tools: tuple[ToolDefinition, ...]
    started: dict[str, str] = field(default_factory=dict)

    async def open(self, arm: Arm) -> ModelSource:
        if _is_scripted(arm):
            return gold_model if arm.model.name == "gold" else silent_model()
        choice = replace(_choice(arm, self.settings), tools=self.tools)
        if not choice.is_embedded:
            return await self.stack.enter_async_context(opened_model(choice, self.settings))
        served = app.embedded_name(choice.name)
        if served in self.started:
            choice = replace(choice, name=served, base_url=self.started[served], api_key=None)
        model = await self.stack.enter_async_context(opened_model(choice, self.settings))
        self.started[served] = model.identity.base_url
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One arm with all that it is played with."""

    suite: Suite
    arm: Arm
    scenarios: tuple[Scenario, ...]
    folder: Path
    settings: Settings

    async def play(self, source: ModelSource) -> Run:
        """Play what is missing in the arm's folder."""
        model, environment = self._under_stress(source)
        return await replay(
            self.scenarios,
            model,
            environment=environment,
            run_dir=self.folder,
            repeats=self.suite.repeats,
            concurrency=self.suite.concurrency or concurrency_for(source),
            provenance=await provenance(self.settings),
        )

    async def finished(self) -> Run | None:
        """Return the arm's run if it answers all that is asked now; None if it has to be played.

        Asked of the model that the folder names. A server at an address is asked whether it still
        serves those weights, if it answers; of an embedded model the folder tells.
        """
        recorded = self._recorded()
        if recorded is None or not await self._is_still_served(recorded):
            return None
        model, environment = self._under_stress(ScriptedModel((), identity=recorded))
        plan = plan_run(self.scenarios, model, environment, repeats=self.suite.repeats)
        kept = plan.kept(read_records(self.folder))
        if len(kept) < len(plan.jobs):
            return None
        records = tuple(kept[job.sample_id] for job in plan.jobs)
        manifest = read_manifest(self.folder)
        return Run(
            records=records, manifest=manifest, kept=len(records), name=self.folder.resolve().name
        )

    def _recorded(self) -> ModelIdentity | None:
        """Return the model that the folder names, if it is the one this arm asks for."""
        told = read_manifest(self.folder).get("models", [])
        try:
            (identity,) = TypeAdapter(tuple[ModelIdentity, ...]).validate_python(told)
        except (ValidationError, ValueError):
            return None
        choice, stress = _choice(self.arm, self.settings), parse_stress(self.arm.stress)
        asked = (self.arm.dialect, self.arm.constraint, stress.label)
        if (identity.dialect, identity.constraint, identity.stress) != asked:
            return None  # also the scripted ones: they are quick, and are played
        is_named = choice.name is None or not choice.is_embedded
        name = choice.name if is_named else app.embedded_name(choice.name)
        return identity if name in {None, identity.model} else None

    async def _is_still_served(self, recorded: ModelIdentity) -> bool:
        choice = _choice(self.arm, self.settings)
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
        folder = app.embedded_folder(app.embedded_name(choice.name), self.settings)
        if not await asyncio.to_thread(folder.is_dir):  # its name is the hash of its recipe
            return recorded.weights == folder.name
        return recorded.weights_sha256 == await weights_sha256(folder, self.settings.cache_dir)

    def _under_stress(self, source: ModelSource) -> tuple[ModelSource, Environment]:
        environment = app.LifeHelperEnvironment(
            sampling=Sampling(max_tokens=self.suite.max_tokens), instructions=self.arm.instructions
        )
        return stressed(source, environment, parse_stress(self.arm.stress))


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
