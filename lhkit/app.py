"""The composition root: the one place where concrete parts are wired together.

Holds no logic of its own. Everything it needs from outside comes in as `Settings`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate
from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.lifehelper.shipped import scenario_folder, scenario_paths
from lhkit.lifehelper.toolset import registry_of
from lhkit.locales import load_catalog
from lhkit.models import embedded, light, served, tuned, weights
from lhkit.models.base import ChatModel
from lhkit.models.dialects.base import Constraint, ToolSpec
from lhkit.models.footprint import FootprintSource, watched
from lhkit.models.light import LlamaCppServer, LlamaCppSettings
from lhkit.models.pool import connected_pool
from lhkit.models.progress import WeightsReport, silent
from lhkit.models.request import OPENAI
from lhkit.models.running_servers import RunningServer, advertised_at, find_running
from lhkit.models.server import LocalServer, ServerPlan, StartReport
from lhkit.models.server import silent as silent_server
from lhkit.models.transport import Endpoint, require_address
from lhkit.models.vllm_server import ServerSettings, VllmServer, for_installed_vllm, require_vllm
from lhkit.models.weights_hash import require_unchanged, weights_sha256
from lhkit.responses import ModelIdentity
from lhkit.runtimes import LLAMA_CPP, VLLM, Runtime
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import DEFAULT, Session, assistant_of

EMBEDDED = embedded.EMBEDDED
embedded_name = embedded.embedded_name
constraint_of = served.constraint_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model to talk to: an embedded one by name, or any served one by address.

    `beside` are the addresses of more servers of the same model (see `connected_pool`).
    """

    name: str | None = None
    base_url: str | None = None
    beside: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    dialect: str = "json"
    constraint: Constraint = "off"
    tools: Sequence[ToolSpec] = ()  # that `constraint` has to fit: those of the conversations

    @property
    def is_embedded(self) -> bool:
        """True if lhkit has to find or start the server itself."""
        return self.base_url is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Who is told how weights and server are coming along.

    `footprint` is given what tells the footprint of the server, if it is one of ours on this
    machine: only then is it looked at.
    """

    weights: WeightsReport = silent
    server: StartReport = silent_server
    footprint: Callable[[FootprintSource], object] | None = None


@asynccontextmanager
async def open_model(
    choice: ModelChoice, settings: Settings, reports: Reports | None = None
) -> AsyncIterator[ChatModel]:
    """Yield a connected model; a server that had to be started ends with the block.

    Raises:
        UsageError: no such embedded model, an address that is none, or tools that cannot have
            the constraint.
        SetupError: weights or server cannot be had.
        ModelError: the server at the address does not answer as it should.
    """
    require_choice(choice, settings.runtime)
    async with _served(choice, settings, reports or Reports()) as endpoint:
        if choice.beside:
            beside = [replace(endpoint, base_url=each) for each in choice.beside]
            async with connected_pool([endpoint, *beside]) as pool:
                yield pool
            return
        model = await served.connect(endpoint)
        try:
            yield model
        finally:
            await model.aclose()


@asynccontextmanager
async def _served(
    choice: ModelChoice, settings: Settings, reports: Reports
) -> AsyncIterator[Endpoint]:
    if choice.base_url is not None:
        ours = None if choice.beside else advertised_at(settings.cache_dir, choice.base_url)
        async with _looked_at(ours, reports):
            yield Endpoint(
                base_url=choice.base_url,
                model=choice.name,
                api_key=choice.api_key,
                dialect=choice.dialect,
                constraint=choice.constraint,
            )
        return
    name = embedded_name(choice.name)
    running = await running_server(name, settings)
    if running is not None:
        async with _looked_at(running, reports):
            yield _embedded_endpoint(running.base_url, choice)
        return
    is_parsing = choice.dialect == OPENAI
    server = await own_server(settings, reports, name=name, server_parser=is_parsing)
    async with server, _looked_at(server, reports):
        await require_same_weights(server, settings)
        yield _embedded_endpoint(server.base_url, choice)


@asynccontextmanager
async def _looked_at(
    server: RunningServer | LocalServer[ServerPlan] | None, reports: Reports
) -> AsyncIterator[None]:
    """Have somebody who asks for it told what a server takes, until the end of the block."""
    if server is None or reports.footprint is None:
        yield
        return
    found = server.model if isinstance(server, RunningServer) else server.settings.model
    async with watched(server.pid, weights=Path(found), start_s=server.start_s) as told:
        reports.footprint(told)
        yield


def require_choice(choice: ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse what could be known to be wrong before anything is fetched, started or asked.

    `runtime` is what would serve an embedded model.

    Raises:
        UsageError: no such embedded model, dialect or constraint, an address that is none, or
            what the runtime cannot do.
    """
    if choice.base_url is None:
        embedded_name(choice.name)
        _require_of(runtime, choice)
    else:
        for each in (choice.base_url, *choice.beside):
            require_address(each)
    served.require_constraint(choice.dialect, choice.constraint, choice.tools)


def _require_of(runtime: Runtime, choice: ModelChoice) -> None:
    if runtime != LLAMA_CPP:
        return
    if choice.constraint != "off":
        raise UsageError(
            "lhkit does not constrain what llama.cpp's server writes: give --constrain off, or "
            f"--runtime {VLLM}"
        )
    if choice.dialect == OPENAI:
        raise UsageError(
            f"--dialect {OPENAI} needs a server that parses calls: give another, or --runtime "
            f"{VLLM}"
        )


async def expected_identity(
    choice: ModelChoice, settings: Settings, report: WeightsReport = silent
) -> ModelIdentity | None:
    """Return who would answer for `choice` if a server were started for it now.

    None where only asking tells: at an address, where a server is running already, where the
    weights are not made yet, or of a llama.cpp, whose build only the server names. `report` is told
    how far the reading of the weights is.

    Raises:
        UsageError: no such embedded model.
        AdapterError: there is no adapter.
        WeightsError: the weights cannot be read.
    """
    if not choice.is_embedded or settings.runtime == LLAMA_CPP:
        return None
    name = embedded_name(choice.name)
    if await running_server(name, settings) is not None:
        return None
    folder = embedded_folder(name, settings)
    if not await asyncio.to_thread(folder.is_dir):
        return None
    return embedded.expected_identity(
        name,
        folder,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
        dialect=choice.dialect,
        constraint=choice.constraint,
        dtype=embedded.served_dtype(settings.dtype),
    )


def _embedded_endpoint(base_url: str, choice: ModelChoice) -> Endpoint:
    return Endpoint(
        base_url=base_url,
        model=embedded_name(choice.name),
        dialect=choice.dialect,
        constraint=choice.constraint,
    )


def open_chat(
    model: ChatModel, session: Session, confirm: ConfirmGate | None, locale: str
) -> ChatController:
    """Return a conversation over a toolset's session, with texts for the user in `locale`."""
    catalog = load_catalog(locale)
    return ChatController(
        model=model,
        dispatcher=ToolDispatcher(session.registry, catalog=catalog),
        assistant=assistant_of(session),
        confirm=confirm,
        catalog=catalog,
    )


def shipped_scenarios(*ids: str) -> tuple[Scenario, ...]:
    """Return the shipped scenarios with these ids, in this order.

    Raises:
        UsageError: there is no such scenario; the message says where they stand.
    """
    known = {scenario.id: scenario for scenario in load_scenarios(scenario_paths("all"))}
    if missing := [each for each in ids if each not in known]:
        raise UsageError(f"no scenario {', '.join(missing)}: all stand in {scenario_folder()}")
    return tuple(known[each] for each in ids)


# From the name of an embedded model to its weights, its running server, or how to serve it.


def embedded_weights(name: str, settings: Settings) -> Path:
    """Return where the weights of an embedded model lie, or will lie, for the runtime that is set.

    A folder for vLLM, a file for llama.cpp.

    Raises:
        AdapterError: there is no adapter.
    """
    if settings.runtime == LLAMA_CPP:
        return light.light_file(settings.cache_dir, name)
    return embedded_folder(name, settings)


async def embedded_sha256(name: str, settings: Settings) -> str | None:
    """Return the hash that a server of these weights tells; None: they are not made yet.

    Raises:
        AdapterError: there is no adapter.
        WeightsError: they cannot be read.
    """
    found = embedded_weights(name, settings)
    if not await asyncio.to_thread(found.exists):
        return None
    if settings.runtime == LLAMA_CPP:
        return await asyncio.to_thread(light.light_sha256, found)
    return await weights_sha256(found, settings.cache_dir)


def embedded_folder(name: str, settings: Settings) -> Path:
    """Return where the folder of an embedded model lies, or will lie: what vLLM serves.

    Raises:
        AdapterError: there is no adapter.
    """
    if name == embedded.TUNED:
        return tuned.tuned_folder(settings.cache_dir)
    return weights.weights_folder(settings.cache_dir)


async def running_server(name: str, settings: Settings) -> RunningServer | None:
    """Return the server that `lhkit serve` keeps of an embedded model; not one of older weights.

    Nor one by another runtime, or that computes in another type, than the settings ask for.

    Raises:
        AdapterError: there is no adapter.
    """
    found = embedded_weights(name, settings)
    if settings.runtime == LLAMA_CPP:
        return await find_running(settings.cache_dir, f"{name}.{LLAMA_CPP}", model=found)
    return await find_running(settings.cache_dir, name, model=found, dtype=settings.dtype)


async def own_server(
    settings: Settings,
    reports: Reports,
    *,
    name: str = EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> LocalServer[ServerPlan]:
    """Return a server of an embedded model by the runtime that is set, to be started by the caller.

    Its weights are in place.

    Raises:
        UsageError: the runtime cannot do what is asked.
        SetupError: the runtime is not installed (told first), or the weights cannot be had.
        AdapterError: the adapter cannot be used.
    """
    if settings.runtime == LLAMA_CPP:
        if server_parser or compiled:
            raise UsageError(
                f"--server-parser and --compile are for vLLM: leave them out, or give --runtime "
                f"{VLLM}"
            )
        light_plan = await light_server(settings, reports.weights, name=name, port=port)
        return LlamaCppServer(light_plan, report=reports.server)
    plan = await embedded_server(
        settings,
        reports.weights,
        name=name,
        port=port,
        server_parser=server_parser,
        compiled=compiled,
    )
    return VllmServer(plan, report=reports.server)


async def require_same_weights(server: LocalServer[ServerPlan], settings: Settings) -> None:
    """Refuse a server whose weights were overwritten while it loaded them.

    Raises:
        ServerStartError: nobody knows what it loaded.
        WeightsError: the weights cannot be read.
    """
    if isinstance(server, VllmServer):
        await require_unchanged(server.settings, settings.cache_dir)


async def light_server(
    settings: Settings,
    report: WeightsReport = silent,
    *,
    name: str = EMBEDDED,
    port: int | None = None,
) -> LlamaCppSettings:
    """Return how to serve an embedded model by llama.cpp, with its file in place.

    Raises:
        SetupError: llama.cpp is not installed (told first), or the weights cannot be had.
        AdapterError: the adapter cannot be used.
    """
    light.require_llama_cpp()
    file = await light.ensure_light(settings.cache_dir, name, report=report)
    return await light.light_plan(name, file, settings.cache_dir, settings.now(), port=port)


async def embedded_server(
    settings: Settings,
    report: WeightsReport = silent,
    *,
    name: str = EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> ServerSettings:
    """Return how to serve an embedded model (see `serving_plan`), with its weights in place.

    Raises:
        SetupError: vLLM is not installed (told first), or the weights cannot be had.
        AdapterError: the adapter cannot be used.
    """
    require_vllm()
    ensure = tuned.ensure_tuned if name == embedded.TUNED else weights.ensure_weights
    folder = await ensure(settings.cache_dir, report=report)
    now = settings.now()
    plan = embedded.serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        dtype=embedded.served_dtype(settings.dtype),
        port=port,
        server_parser=server_parser,
        compiled=compiled,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
    )
    return await for_installed_vllm(plan, settings.cache_dir)


def require_toolset(scenarios: Iterable[Scenario], toolset: str) -> None:
    """Refuse scenarios of other tools that would be played with life-helper's, and fail there.

    Raises:
        ScenarioError: `toolset` is the default one, and an expected call is of no tool of its.
    """
    if toolset != DEFAULT:
        return
    known = set(registry_of("ko"))
    for each in scenarios:
        for place, tool in each.calls_beyond(known):
            raise ScenarioError(
                f"{place}: life-helper has no tool {tool!r}: for other tools give their --toolset"
            )
