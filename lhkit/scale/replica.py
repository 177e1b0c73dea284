"""The actor's side: an ordinary class, so that it runs without Ray as well."""

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from lhkit import app, embedded
from lhkit.errors import LhkitError, UsageError
from lhkit.harness.manifest import versions
from lhkit.harness.plan import ModelSource, PlannedSample, PlannedScenario, plan_run
from lhkit.harness.run import Played
from lhkit.harness.sample import SampleContext, play_sample, warm_up
from lhkit.harness.scenario import Scenario
from lhkit.harness.stress import parse_stress, stressed
from lhkit.models import served
from lhkit.models.families import family_of
from lhkit.models.gemma import EMBEDDED_NAMES
from lhkit.models.request import OPENAI
from lhkit.models.transport import Endpoint
from lhkit.models.vllm_server import GPU, ServerSettings, VllmServer, for_installed_vllm
from lhkit.models.weights_hash import require_unchanged, weights_sha256
from lhkit.scale.logs import end_of
from lhkit.scale.placement import SCRIPTED, Asked, Introduction, Part, instructions_for
from lhkit.settings import Settings, load_settings
from lhkit.toolset import Toolset, limit_tokens, load, registry_of

_TAKE_AFTER_S = 0.02
"""So long more is waited for what else is there, so that a message carries more than one sample.

What is asked next goes with the call that takes what comes next: messages are what a driver costs.
"""


class Replica:
    """Plays samples where it is. `begin` it, `give` it samples, `take` what has become of them."""

    def __init__(self, part: Part, scenarios: Sequence[Scenario]) -> None:
        self._part = part
        self._scenarios = scenarios
        self._stack = AsyncExitStack()
        self._stage: SampleContext | None = None
        self._planned: dict[int, PlannedScenario] = {}
        self._playing: set[asyncio.Task[None]] = set()
        self._done: list[tuple[int, Played]] = []
        self._server_log: Path | None = None
        self._fault: BaseException | None = None
        self._news = asyncio.Event()

    async def where(self) -> str:
        """Return the name of the machine, as soon as this has a place on one."""
        return platform.node()

    async def begin(self) -> Introduction:
        """Make all ready and tell who plays.

        Raises:
            UsageError: this node has another lhkit, or the toolset cannot be opened here.
            SetupError: the server cannot be had.
            ModelError: a server does not answer as it should.
        """
        _require_same(self._part.versions, versions())
        options, settings = self._part.options, load_settings()
        began_s = time.perf_counter()
        toolset = limit_tokens(_loaded(options.toolset), options.max_tokens)
        source = await self._stack.enter_async_context(self._source(toolset, settings))
        server_s = time.perf_counter() - began_s
        stress = parse_stress(options.stress)
        model, toolset = stressed(source, instructions_for(toolset, options.instructions), stress)
        self._stage = SampleContext(
            model=model,
            toolset=toolset,
            clock=time.perf_counter,
            options=options,
            begun_s=time.perf_counter(),
            started_at=settings.now(),
        )
        return Introduction(None if callable(source) else source.identity, server_s)

    async def give(self, asked: Sequence[Asked]) -> None:
        """Take samples to play."""
        for each in asked:
            task = asyncio.create_task(self._play(each))
            self._playing.add(task)
            task.add_done_callback(self._playing.discard)

    async def take(self, asked: Sequence[Asked] = ()) -> list[tuple[int, Played]]:
        """Take samples to play, wait until one is done, return all that are, by their tickets.

        Raises:
            UsageError: a sample would be another question here than where it was planned.
        """
        await self.give(asked)
        await self._news.wait()
        await asyncio.sleep(_TAKE_AFTER_S)
        if self._fault is not None:
            raise self._fault
        self._news.clear()
        done, self._done = self._done, []
        return done

    async def warm(self, openings: Sequence[Asked]) -> int:
        """Have the server read what many samples begin with; return how many it did."""
        stage = self._ready()
        return sum(await asyncio.gather(*(warm_up(self._job(each), stage) for each in openings)))

    async def end(self) -> str:
        """Leave no server behind; return the end of what it has said."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        await self._stack.aclose()
        return await asyncio.to_thread(end_of, self._server_log)

    async def _play(self, asked: Asked) -> None:
        try:
            job = self._job(asked)
            record = await play_sample(job, self._ready(), attempt=asked.attempt)
            self._done.append((asked.ticket, Played.of(record)))
        except LhkitError as error:
            self._fault = error
        self._news.set()

    def _ready(self) -> SampleContext:
        if self._stage is None:
            raise UsageError("a replica was given samples before it began: call begin() first")
        return self._stage

    def _job(self, asked: Asked) -> PlannedSample:
        """Return the sample, which has to be the same question here as where it was planned.

        Raises:
            UsageError: it is another one.
        """
        scenario, stage = self._scenarios[asked.scenario], self._ready()
        if asked.scenario not in self._planned:
            repeats = self._part.options.repeats
            plan = plan_run([scenario], stage.model, stage.toolset, repeats=repeats)
            (self._planned[asked.scenario],) = plan.scenarios
        job = self._planned[asked.scenario].job(asked.repeat)
        if job.content_hash != asked.content_hash:
            raise UsageError(
                f"{scenario.id} would be asked otherwise than where the run was planned: the "
                f"toolset {self._part.options.toolset} is another one here, or what it reads: give "
                "all nodes the same files"
            )
        return job

    @asynccontextmanager
    async def _source(self, toolset: Toolset, settings: Settings) -> AsyncIterator[ModelSource]:
        options = self._part.options
        if self._part.is_scripted:
            yield SCRIPTED[options.model]()
        elif options.base_urls:
            first, *beside = options.base_urls
            opening = self._scenarios[0]
            choice = app.ModelChoice(
                name=options.model,
                base_url=first,
                beside=tuple(beside),
                api_key=settings.api_key,
                dialect=options.dialect,
                constraint=options.constraint,
                tools=registry_of(toolset, opening.world, opening.locale).definitions,
            )
            async with app.open_model(choice, settings) as model:
                yield model
        else:
            plan = await _server_plan(self._part, settings)
            self._server_log = plan.log_path
            async with VllmServer(plan) as server:
                if plan.served_name in EMBEDDED_NAMES:
                    await require_unchanged(plan, settings.cache_dir)
                endpoint = Endpoint(
                    base_url=server.base_url,
                    model=plan.served_name,
                    dialect=options.dialect,
                    constraint=options.constraint,
                )
                model = await served.connect(endpoint)
                try:
                    yield model
                finally:
                    await model.aclose()


def _loaded(reference: str) -> Toolset:
    try:
        return load(reference)
    except UsageError as error:
        raise UsageError(
            f"{error} - a toolset of FILE.py:NAME travels with all that lies in its folder, what "
            "it imports from elsewhere has to be installed on every node"
        ) from error


def _require_same(there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse to play with other versions than the run was planned with.

    Raises:
        UsageError: one differs; the message names all that do.
    """
    different = [
        f"{name} {here.get(name, 'not installed')} instead of {version}"
        for name, version in there.items()
        if here.get(name) != version
    ]
    if different:
        raise UsageError(
            f"this node has {', '.join(different)}: install on all nodes what the driver has"
        )


async def _server_plan(part: Part, settings: Settings) -> ServerSettings:
    """Return how this node serves the model, on a free port."""
    options = part.options
    settings = settings.model_copy(update={"dtype": options.dtype})
    is_parsing = options.dialect == OPENAI
    name = options.model or app.EMBEDDED
    if "/" not in name:
        name = app.embedded_name(options.model)
        plan = await embedded.embedded_server(settings, name=name, server_parser=is_parsing)
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
                *(("--tensor-parallel-size", str(part.gpus)) if part.gpus > 1 else ()),
            ),
            env={} if is_folder else {"HF_HUB_OFFLINE": "0"},
            weights_sha256=await weights_sha256(Path(name), settings.cache_dir)
            if is_folder
            else "",
            dtype=options.dtype or "auto",
        )
        plan = replace(plan, **GPU) if part.gpus else plan
        plan = await for_installed_vllm(plan, settings.cache_dir)
    log = plan.log_path.with_stem(f"{plan.log_path.stem}-{os.getpid()}")
    return replace(plan, log_path=log, max_num_seqs=max(plan.max_num_seqs, part.at_once))
