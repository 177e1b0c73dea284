"""From the name of an embedded model to its weights, its running server, or how to serve it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from lhkit.errors import UsageError
from lhkit.models import gemma, light, weights
from lhkit.models.light import LlamaCppSettings
from lhkit.models.progress import WeightsReport, silent
from lhkit.models.running_servers import RunningServer, find_running
from lhkit.models.server import LocalServer, StartReport
from lhkit.models.server import silent as silent_server
from lhkit.models.vllm_server import ServerSettings, for_installed_vllm, require_vllm
from lhkit.models.weights_hash import require_unchanged, weights_sha256
from lhkit.runtimes import LLAMA_CPP, VLLM
from lhkit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Who is told how weights and server are coming along."""

    weights: WeightsReport = silent
    server: StartReport = silent_server


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
    if name == gemma.TUNED:
        return weights.tuned_folder(settings.cache_dir)
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


async def is_local_server(
    settings: Settings,
    reports: Reports,
    *,
    name: str = gemma.EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> LocalServer:
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
        return LocalServer(light_plan, report=reports.server)
    plan = await embedded_server(
        settings,
        reports.weights,
        name=name,
        port=port,
        server_parser=server_parser,
        compiled=compiled,
    )
    return LocalServer(plan, report=reports.server)


async def require_same_weights(server: LocalServer, settings: Settings) -> None:
    """Refuse a server whose weights were overwritten while it loaded them.

    Raises:
        ServerStartError: nobody knows what it loaded.
        WeightsError: the weights cannot be read.
    """
    if isinstance(server.settings, ServerSettings):
        await require_unchanged(server.settings, settings.cache_dir)


async def light_server(
    settings: Settings,
    report: WeightsReport = silent,
    *,
    name: str = gemma.EMBEDDED,
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
    name: str = gemma.EMBEDDED,
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
    ensure = weights.ensure_tuned if name == gemma.TUNED else weights.ensure_weights
    folder = await ensure(settings.cache_dir, report=report)
    now = settings.now()
    plan = gemma.serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        dtype=gemma.served_dtype(settings.dtype),
        port=port,
        server_parser=server_parser,
        compiled=compiled,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
    )
    return await for_installed_vllm(plan, settings.cache_dir)
