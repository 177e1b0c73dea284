"""One arm of a suite: the model that it asks for, and how it is played in its own folder."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lhkit import app, embedded, scale
from lhkit.cli.progress import opened_model
from lhkit.cli.provenance import provenance
from lhkit.cli.replicas import part_of
from lhkit.cli.source import Opened, choice_of, concurrency_for, source_of
from lhkit.errors import ModelError, UsageError
from lhkit.harness.plan import MOST_CONCURRENCY, ModelSource, plan_run
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.harness.store import read_manifest, read_records
from lhkit.harness.stress import parse_stress, stressed
from lhkit.harness.suite import Arm, Suite
from lhkit.models.scripted import ScriptedModel
from lhkit.responses import ModelIdentity
from lhkit.runtimes import VLLM
from lhkit.scale import SCRIPTED, Cluster, RayPlayers
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import Toolset


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """One arm with all that it is played with."""

    suite: Suite
    arm: Arm
    scenarios: tuple[Scenario, ...]
    folder: Path
    settings: Settings
    toolset: Toolset

    async def play(self, source: ModelSource) -> Run:
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
            provenance=await provenance(self.settings),
        )

    async def play_placed(self, cluster: Cluster) -> tuple[Opened, Run]:
        """Play what is missing in the arm's folder on replicas of its own."""
        choice = arm_choice(self.arm, self.settings)
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
        choice, stress = arm_choice(self.arm, self.settings), parse_stress(self.arm.stress)
        asked = (self.arm.dialect, self.arm.constraint, stress.label)
        if (identity.dialect, identity.constraint, identity.stress) != asked:
            return None  # also the scripted ones: they are quick, and are played
        is_named = choice.name is None or not choice.is_embedded or "/" in choice.name
        name = choice.name if is_named else app.embedded_name(choice.name)
        return identity if name in {None, identity.model} else None

    async def _is_still_served(self, recorded: ModelIdentity) -> bool:
        choice = arm_choice(self.arm, self.settings)
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


@dataclass(slots=True, kw_only=True)
class ArmModels:
    """The models that arms ask for; they stay open, and so does a server that was started.

    Before another runtime starts all are closed: two that share a machine are both slower.
    """

    stack: AsyncExitStack
    tools: tuple[ToolDefinition, ...]
    started: dict[str, str] = field(default_factory=dict)
    runtime: str = ""

    async def open(self, stage: ArmRun) -> ModelSource:
        arm, settings = stage.arm, stage.settings
        if is_scripted(arm):
            return SCRIPTED[arm.model.name]()
        choice = replace(arm_choice(arm, settings), tools=self.tools)
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


def is_scripted(arm: Arm) -> bool:
    """Return whether a script plays the arm, and no served model."""
    return arm.model.base_url is None and arm.model.name in SCRIPTED


def arm_settings(arm: Arm, settings: Settings) -> Settings:
    """Return the settings with the arm's runtime."""
    return settings if arm.runtime is None else settings.model_copy(update={"runtime": arm.runtime})


def arm_choice(arm: Arm, settings: Settings) -> app.ModelChoice:
    """Return which model the arm asks for."""
    return choice_of(
        settings,
        name=arm.model.name,
        base_url=arm.model.base_url,
        dialect=arm.dialect,
        constraint=arm.constraint,
    )


def require_own_server(arm: Arm, settings: Settings) -> None:
    """Refuse a runtime for a model that lhkit does not serve itself.

    Raises:
        UsageError: as the summary says.
    """
    if arm.runtime is None or not (
        is_scripted(arm) or arm_choice(arm, settings).base_url is not None
    ):
        return
    served = arm.model.name or arm.model.base_url or settings.base_url
    raise UsageError(
        f"arms.runtimes is for models that lhkit serves itself, and {served} is none: take it out "
        "of arms.models, or runtimes out of [arms]"
    )
