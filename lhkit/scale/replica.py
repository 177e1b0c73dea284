"""The actor of a replica: an ordinary class, which also runs without Ray."""

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from lhkit import app, embedded
from lhkit.base.errors import LhkitError, UsageError
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.records.manifest import versions
from lhkit.harness.running.plan import ModelSource, PlannedSample, PlannedScenario, plan_run
from lhkit.harness.running.prepared import under_conditions
from lhkit.harness.running.run import EncodedRecord
from lhkit.harness.running.sample import SampleContext, run_planned_sample, warm_up
from lhkit.harness.running.stress import labelled, parse_stress
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.client import served
from lhkit.models.client.request import OPENAI
from lhkit.models.client.transport import Endpoint
from lhkit.models.families import family_of
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.serving.gemma import served_device
from lhkit.models.serving.vllm_server import GPU, ServerSettings, VllmServer, fit_installed_vllm
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.scale.placement import ReplicaConfig, ReplicaInfo, SampleRequest
from lhkit.settings import Settings, load_settings
from lhkit.toolset import Toolset, load, registry_of

_COLLECT_AFTER_S = 0.02
"""The delay before results are returned, so that one message carries several.

The driver's cost is the number of messages; so `collect` also takes the next samples.
"""

_LOG_BYTES = 2**20


class Replica:
    """Runs samples on its node: `start` it, `submit` samples, `collect` their records."""

    def __init__(self, config: ReplicaConfig, scenarios: Sequence[Scenario]) -> None:
        self._config = config
        self._scenarios = scenarios
        self._stack = AsyncExitStack()
        self._context: SampleContext | None = None
        self._planned: dict[int, PlannedScenario] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._finished: list[tuple[int, EncodedRecord]] = []
        self._server_log: Path | None = None
        self._error: BaseException | None = None
        self._has_finished = asyncio.Event()

    async def node(self) -> str:
        """Return the name of the node, as soon as the replica is placed."""
        return platform.node()

    async def start(self) -> ReplicaInfo:
        """Start the server and open the toolset.

        Raises:
            UsageError: this node has other versions, or the toolset cannot be opened here.
            SetupError: the server cannot be started.
            ModelError: the server does not respond as expected.
        """
        _require_versions(self._config.versions)
        options, settings = self._config.options, load_settings()
        started_s = time.perf_counter()
        try:
            toolset = load(options.toolset)
        except UsageError as error:
            raise UsageError(
                f"{error} (A toolset of FILE.py:NAME is uploaded with its folder. Install other "
                "modules that it imports on every node.)"
            ) from error
        source = await self._stack.enter_async_context(self._source(toolset, settings))
        server_s = time.perf_counter() - started_s
        self._context = SampleContext(
            model=labelled(source, parse_stress(options.stress)),
            toolset=under_conditions(toolset, options),
            clock=time.perf_counter,
            options=options,
            begun_s=time.perf_counter(),
            started_at=settings.now(),
        )
        return ReplicaInfo(None if callable(source) else source.identity, server_s)

    async def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Run samples in the background."""
        for request in requests:
            task = asyncio.create_task(self._run(request))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def collect(
        self, requests: Sequence[SampleRequest] = ()
    ) -> list[tuple[int, EncodedRecord]]:
        """Submit samples, wait for a finished one, and return all finished ones by ticket.

        Raises:
            UsageError: a sample has another content hash here than in the plan.
        """
        await self.submit(requests)
        await self._has_finished.wait()
        await asyncio.sleep(_COLLECT_AFTER_S)
        if self._error is not None:
            raise self._error
        self._has_finished.clear()
        finished, self._finished = self._finished, []
        return finished

    async def warm_up(self, requests: Sequence[SampleRequest]) -> int:
        """Have the server cache the prompt prefixes of samples; return how many it did."""
        context = self._require_context()
        done = await asyncio.gather(
            *(warm_up(self._planned_sample(request), context) for request in requests)
        )
        return sum(done)

    async def stop(self) -> str:
        """Stop the server and return the end of its log."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._stack.aclose()
        return await asyncio.to_thread(_log_end, self._server_log)

    async def _run(self, request: SampleRequest) -> None:
        try:
            sample, context = self._planned_sample(request), self._require_context()
            record = await run_planned_sample(sample, context, attempt=request.attempt)
            self._finished.append((request.ticket, EncodedRecord.from_record(record)))
        except LhkitError as error:
            self._error = error
        self._has_finished.set()

    def _require_context(self) -> SampleContext:
        if self._context is None:
            raise UsageError("The replica has not started. Call start() first.")
        return self._context

    def _planned_sample(self, request: SampleRequest) -> PlannedSample:
        scenario, context = self._scenarios[request.scenario], self._require_context()
        if request.scenario not in self._planned:
            # planned again here, to notice that this node has other files than the driver
            options = self._config.options
            plan = plan_run(
                [scenario],
                context.model,
                context.toolset,
                repeats=options.repeats,
                logprobs=options.logprobs,
                policy=options.approvals,
            )
            (self._planned[request.scenario],) = plan.scenarios
        planned = self._planned[request.scenario]
        sample = planned.sample(request.repeat)
        if sample.content_hash != request.content_hash:  # of a folder without the tools' code
            sample = replace(planned, code_sha256="").sample(request.repeat)
        if sample.content_hash != request.content_hash:
            raise UsageError(
                f"{scenario.id} has another content hash on this node than in the plan: the "
                f"toolset {self._config.options.toolset}, or a file that it reads, differs. Give "
                "all nodes the same files."
            )
        return sample

    @asynccontextmanager
    async def _source(self, toolset: Toolset, settings: Settings) -> AsyncIterator[ModelSource]:
        options = self._config.options
        if self._config.is_scripted:
            yield REFERENCE_MODELS[options.model]()
        elif options.base_url is not None:
            scenario = self._scenarios[0]
            choice = app.ModelChoice(
                name=options.model,
                base_url=options.base_url,
                api_key=settings.api_key,
                dialect=options.dialect,
                chat_template=options.chat_template,
                constraint=options.constraint,
                tools=registry_of(toolset, scenario.world, scenario.locale).definitions,
            )
            async with app.open_model(choice, settings) as model:
                yield model
        else:
            plan = await _server_settings(self._config, settings)
            self._server_log = plan.log_path
            async with VllmServer(plan) as server:
                if plan.served_name in EMBEDDED_NAMES:
                    await embedded.require_same_weights(server, settings)
                endpoint = Endpoint(
                    base_url=server.base_url,
                    model=plan.served_name,
                    dialect=options.dialect,
                    chat_template=options.chat_template,
                    constraint=options.constraint,
                    dtype=await asyncio.to_thread(plan.started_dtype),
                )
                model = await served.connect(endpoint)
                try:
                    yield model
                finally:
                    await model.aclose()


def _require_versions(required: Mapping[str, str]) -> None:
    installed = versions()
    different = [
        f"{name} {installed.get(name, 'not installed')} instead of {version}"
        for name, version in required.items()
        if installed.get(name) != version
    ]
    if different:
        raise UsageError(
            f"This node has {', '.join(different)}. Install the driver's versions on all nodes."
        )


def _log_end(path: Path | None) -> str:
    """Return the last MiB of a file; empty if there is none."""
    if path is None or not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace")


async def _server_settings(config: ReplicaConfig, settings: Settings) -> ServerSettings:
    """Return the settings of this node's server, on a free port."""
    options = config.options
    settings = settings.model_copy(update={"dtype": options.dtype})
    is_parsing = options.dialect == OPENAI
    name = options.model or app.EMBEDDED
    if "/" not in name:
        name = app.embedded_name(options.model)
        plan = await embedded.prepare_vllm(settings, name=name, server_parser=is_parsing)
    else:
        family = family_of(name)
        is_folder = await asyncio.to_thread(Path(name).is_dir)
        plan = ServerSettings(
            model=Path(name),
            served_name=name,
            log_path=settings.cache_dir / "logs" / f"{Path(name).name}.log",
            extra_args=(
                *(family.serve_args if family else ()),
                *(family.parser_args if family and is_parsing else ()),
                *(("--tensor-parallel-size", str(config.gpus)) if config.gpus > 1 else ()),
            ),
            env={} if is_folder else {"HF_HUB_OFFLINE": "0"},
            weights_sha256=await weights_sha256(Path(name), settings.cache_dir)
            if is_folder
            else "",
            dtype=options.dtype or "auto",
        )
        plan = replace(plan, **GPU, device=served_device()) if config.gpus else plan
        plan = await fit_installed_vllm(plan, settings.cache_dir)
    log = plan.log_path.with_stem(f"{plan.log_path.stem}-{os.getpid()}")
    return replace(plan, log_path=log, max_num_seqs=max(plan.max_num_seqs, config.concurrency))
