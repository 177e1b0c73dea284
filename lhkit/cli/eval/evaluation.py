"""One planned run of `lhkit eval` or of an arm of `lhkit matrix`, and the model that it opens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from lhkit import app, scale
from lhkit.base.errors import RunError
from lhkit.base.locales import Catalog
from lhkit.base.options import REPLY_TOKENS
from lhkit.base.process import hardware, usable_cores
from lhkit.cli.frame.options import apply_server_options
from lhkit.cli.frame.progress import open_model, setup_progress
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.records.manifest import Provenance
from lhkit.harness.records.resume import reusable_samples
from lhkit.harness.records.store import read_manifest, require_kept_whole, stored_statuses
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import ModelSource
from lhkit.harness.running.prepared import ChosenScenarios, PreparedRun, prepare_run
from lhkit.harness.running.run import run_prepared
from lhkit.harness.running.run_options import MAX_CONCURRENCY, RunOptions
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.address import require_address
from lhkit.models.base import ModelRequest
from lhkit.models.client.capacity import (
    MAX_NUM_SEQS,
    UNKNOWN_CONCURRENCY,
    Capacity,
    default_capacity,
    read_capacity,
)
from lhkit.models.client.identity import LLAMA_CPP
from lhkit.models.client.served import require_constraint
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.models.serving.server import StartProgress
from lhkit.scale import Cluster, Placement, RaySampleRunner, ReplicaConfig, Resources
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import Toolset, registry_of

FEW_CORES = 8
"""With fewer, the embedded llama.cpp runs one conversation at a time by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model that is ready to run samples.

    Attributes:
        source: the model; with `replicas` it only carries their identity.
        server_s: seconds that a server took to start for it.
        replicas: run the samples instead of this process.
        asked: what the server reports of its capacity; None if it was not asked.
    """

    source: ModelSource
    server_s: float = 0.0
    replicas: RaySampleRunner | None = None
    asked: Capacity | None = None

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the model; an empty one for a script."""
        return ModelIdentity(model="") if callable(self.source) else self.source.identity

    @property
    def capacity(self) -> Capacity:
        """What the server reports of its capacity, or the default for such a server."""
        if callable(self.source):
            return Capacity(conversations=UNKNOWN_CONCURRENCY, source="unknown")
        return self.asked or default_capacity(self.source.identity)

    @property
    def concurrency(self) -> int:
        """Default number of conversations at once on a machine with enough cores."""
        if self.replicas is not None:
            return min(MAX_CONCURRENCY, self.replicas.concurrency)
        return min(MAX_CONCURRENCY, self.capacity.conversations)

    def warnings(self, catalog: Catalog) -> Iterator[str]:
        """Yield how many replicas died."""
        if self.replicas is not None and (losses := self.replicas.losses):
            yield catalog.text("eval.lost_replicas", count=len(losses), why=losses[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A prepared run, its folder, and the model that it is for."""

    prepared: PreparedRun
    folder: Path
    settings: Settings
    choice: app.ModelChoice

    @property
    def is_scripted(self) -> bool:
        """True if the model is scripted, such as gold or silent."""
        return self.choice.is_embedded and self.choice.name in REFERENCE_MODELS

    def default_concurrency(self, opened: OpenedModel, cores: int) -> int:
        """Return the number of conversations at once unless the options say it.

        llama.cpp on few cores answers eight conversations later than one after the other.

        Args:
            opened: the model.
            cores: the cores that an embedded model may use.
        """
        source = opened.source
        if callable(source) or opened.replicas is not None or not self.choice.is_embedded:
            return opened.concurrency
        is_slow = source.identity.server.startswith(LLAMA_CPP) and cores < FEW_CORES
        return 1 if is_slow else opened.concurrency

    def concurrency_reason(self, opened: OpenedModel, cores: int) -> str:
        """Return why so many conversations run at once.

        Returns:
            `asked` (by an option), `few_cores`, `replicas`, or the source of the capacity; empty
            for a script, and if every sample is recorded already.
        """
        if self.prepared.options.concurrency is not None:
            return "asked"
        if opened.replicas is not None:
            return "replicas"
        if opened.asked is None:
            return ""
        is_slow = self.default_concurrency(opened, cores) < opened.concurrency
        return "few_cores" if is_slow else opened.capacity.source

    def concurrency_lines(self, opened: OpenedModel, catalog: Catalog) -> Iterator[str]:
        """Yield how many conversations run at once and why, unless an option says it."""
        cores = usable_cores()
        reason = self.concurrency_reason(opened, cores)
        if reason not in {"", "asked", "replicas"}:
            yield catalog.text(
                f"eval.at_once.{reason}",
                cores=cores,
                count=self.default_concurrency(opened, cores),
                tokens=f"{opened.capacity.cache_tokens:,}",
            )

    def policy_lines(self, opened: OpenedModel, catalog: Catalog, file: str = "") -> list[str]:
        """Return what the policy of approvals lets run unasked, or why it does not apply."""
        if self.prepared.options.approvals is None:
            return []
        return self.prepared.plan(opened.source).policy_lines(catalog, file=file)

    async def run(self, opened: OpenedModel, provenance: Provenance, **arguments: Any) -> Run:
        """Run the missing samples; `arguments` are passed on to `run_prepared`."""
        cores = usable_cores()
        reason = self.concurrency_reason(opened, cores)
        return await run_prepared(
            self.prepared,
            opened.source,
            runner=opened.replicas,
            run_dir=self.folder,
            concurrency=self.default_concurrency(opened, cores),
            provenance=replace(provenance, concurrency_reason=reason),
            **arguments,
        )

    @asynccontextmanager
    async def open(
        self, replicas: AbstractAsyncContextManager[OpenedModel] | None
    ) -> AsyncIterator[OpenedModel]:
        """Yield the model of the run; start no server if every sample is already recorded.

        Args:
            replicas: opens Ray replicas, if they run the samples.

        Raises:
            LhkitError: the model cannot be opened.
        """
        choice, settings = self.choice, self.settings
        if self.is_scripted and replicas is None:
            yield OpenedModel(source=REFERENCE_MODELS[choice.name]())
            return
        if not self.is_scripted and "/" not in (choice.name or ""):
            with setup_progress(settings.locale) as progress:
                identity = await app.expected_identity(choice, settings, progress.weights)
            if identity and not self.missing(source := _identity_model(identity)):
                yield OpenedModel(source=source)
                return
        if replicas is not None:
            async with replicas as opened:
                yield opened
            return
        server_s = 0.0

        def record_start(progress: StartProgress) -> None:
            nonlocal server_s
            server_s = progress.elapsed_s

        async with open_model(choice, settings, record_start) as model:
            yield OpenedModel(source=model, server_s=server_s, asked=await read_capacity(model))

    def missing(self, source: ModelSource) -> int:
        """Return how many samples of a model the run folder does not have."""
        hashes = self.prepared.plan(source).resuming(read_manifest(self.folder)).hashes
        return len(hashes) - len(reusable_samples(stored_statuses(self.folder), hashes))

    @asynccontextmanager
    async def open_replicas(
        self,
        cluster: Cluster,
        on_wait: Callable[[Resources], object] | None = None,
        concurrency: int | None = None,
    ) -> AsyncIterator[OpenedModel]:
        """Yield replicas on a cluster.

        Args:
            cluster: where they are placed.
            on_wait: is called while there is no room for them.
            concurrency: default number of conversations at once in each; None for that of a server
                which the replica starts.
        """
        placement, choice, options = cluster.placement, self.choice, self.prepared.options
        node_options = options.model_copy(
            update={
                "toolset": cluster.toolset,
                "scores": (),  # computed here
                "model": choice.name,
                "base_url": choice.base_url,
                "dtype": self.settings.dtype,
            }
        )
        if options.concurrency is not None:
            concurrency = -(-options.concurrency // placement.replicas)
        elif self.is_scripted:
            concurrency = UNKNOWN_CONCURRENCY
        elif concurrency is None:
            concurrency = scale.GPU_CONCURRENCY if placement.gpus else MAX_NUM_SEQS
        config = ReplicaConfig(options=node_options, gpus=placement.gpus, concurrency=concurrency)
        chosen = self.prepared.chosen.scenarios
        scenarios = [scenario.with_user(options.user) for scenario in chosen]
        async with RaySampleRunner(cluster, config, scenarios, on_wait=on_wait) as replicas:
            source = (
                REFERENCE_MODELS[choice.name]()
                if self.is_scripted
                else _identity_model(replicas.identity or ModelIdentity(model=""))
            )
            yield OpenedModel(source=source, server_s=replicas.server_s, replicas=replicas)


def _identity_model(identity: ModelIdentity) -> ModelSource:
    """Return a model with an identity that answers no request."""

    def refuse(_: ModelRequest) -> NoReturn:
        raise RunError("records were removed while the run started: give the same command again")

    return ScriptedModel(refuse, identity=identity)


def prepare_evaluation(
    options: RunOptions,
    chosen: ChosenScenarios,
    toolset: Toolset,
    *,
    folder: Path,
    settings: Settings,
    placement: Placement | None,
) -> Evaluation:
    """Return a run after checking everything that needs no server.

    Raises:
        UsageError: an option is invalid or contradicts another.
        MissingPackageError: Ray is requested and not installed.
    """
    if options.max_tokens is None:
        options = options.derive(max_tokens=REPLY_TOKENS)
    prepared = prepare_run(chosen, toolset, options)
    if options.base_url is not None:
        require_address(options.base_url)
    address = options.base_url or settings.base_url
    settings = apply_server_options(settings, options.runtime, options.dtype, address)
    require_kept_whole(folder, (scenario.id for scenario in chosen.scenarios), chosen.selection)
    if placement is not None:
        scale.require_ray(placement.address)
    is_scripted = options.base_url is None and options.model in REFERENCE_MODELS
    base_url = None if is_scripted else address
    choice = app.ModelChoice(
        name=options.model,
        base_url=base_url,
        api_key=settings.api_key,
        dialect=options.dialect,
        chat_template=options.chat_template,
        constraint=options.constraint,
    )
    tools = _constrained_tools(options, choice.known_dialect, toolset, chosen.scenarios)
    choice = replace(choice, tools=tools)
    if not is_scripted:
        require = app.require_choice if placement is None else scale.require_model
        require(choice, settings.runtime)
    return Evaluation(prepared=prepared, folder=folder, settings=settings, choice=choice)


def _constrained_tools(
    options: RunOptions, dialect: str | None, toolset: Toolset, scenarios: Iterable[Scenario]
) -> tuple[ToolDefinition, ...]:
    """Return the tools of the first scenario, which decoding is constrained to.

    Raises:
        UsageError: the tools in a language of the scenarios do not support this constraint.
    """
    first_by_locale: dict[str, Scenario] = {}
    for scenario in scenarios if options.constraint != "off" else ():
        first_by_locale.setdefault(scenario.locale, scenario)
    tools = [
        registry_of(toolset, scenario.world, scenario.locale).definitions
        for scenario in first_by_locale.values()
    ]
    for definitions in tools or [()]:
        require_constraint(dialect, options.constraint, definitions)
    return tools[0] if tools else ()


async def read_provenance(settings: Settings) -> Provenance:
    """Return start time, git commit and hardware of a run that starts now."""
    commit = None
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "rev-parse", "HEAD"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        pass
    else:
        output, _ = await process.communicate()
        commit = output.decode().strip() or None
    machine = await asyncio.to_thread(hardware)
    return Provenance(started_at=settings.now(), git_commit=commit, hardware=machine)
