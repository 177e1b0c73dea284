"""Locate the weights and servers of embedded models, and prepare new servers."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from lhkit.base.errors import ServerStartError, UsageError
from lhkit.models.runtimes import LLAMA_CPP, VLLM
from lhkit.models.serving import gemma, llama_cpp_server
from lhkit.models.serving.server import (
    LocalServer,
    RunningServer,
    StartReport,
    find_running_server,
    ignore_start_progress,
)
from lhkit.models.serving.vllm_server import (
    ServerSettings,
    fit_options,
    installed_options,
    require_vllm,
)
from lhkit.models.weights import weights
from lhkit.models.weights.weights_folder import WeightsReport, ignore_progress
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Callbacks for the progress of weights and server."""

    weights: WeightsReport = ignore_progress
    server: StartReport = ignore_start_progress


def embedded_weights(name: str, settings: Settings) -> Path:
    """Return the path of an embedded model, which need not exist yet.

    With the configured runtime this is a folder for vLLM, a file for llama.cpp.

    Raises:
        AdapterError: there is no adapter.
    """
    if settings.runtime == LLAMA_CPP:
        return llama_cpp_server.light_file(settings.cache_dir, name)
    return embedded_folder(name, settings)


async def embedded_sha256(name: str, settings: Settings) -> str | None:
    """Return the hash of an embedded model's weights; None if they do not exist yet.

    Raises:
        AdapterError: there is no adapter.
        WeightsError: they cannot be read.
    """
    path = embedded_weights(name, settings)
    if not await asyncio.to_thread(path.exists):
        return None
    if settings.runtime == LLAMA_CPP:
        return await asyncio.to_thread(llama_cpp_server.gguf_sha256, path)
    return await weights_sha256(path, settings.cache_dir)


def embedded_folder(name: str, settings: Settings) -> Path:
    """Return the path of an embedded model for vLLM, which need not exist yet.

    Raises:
        AdapterError: there is no adapter.
    """
    if name == gemma.TUNED:
        return weights.tuned_folder(settings.cache_dir)
    return weights.base_folder(settings.cache_dir)


async def running_server(name: str, settings: Settings) -> RunningServer | None:
    """Return the running server of an embedded model; None if none fits.

    A server of older weights, another runtime or another number type does not fit.

    Raises:
        AdapterError: there is no adapter.
    """
    path = embedded_weights(name, settings)
    if settings.runtime == LLAMA_CPP:
        return await find_running_server(settings.cache_dir, f"{name}.{LLAMA_CPP}", model=path)
    return await find_running_server(settings.cache_dir, name, model=path, dtype=settings.dtype)


async def prepare_server(
    settings: Settings,
    reports: Reports,
    *,
    name: str = gemma.EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> LocalServer:
    """Return an unstarted server of an embedded model, after its weights are built.

    Raises:
        UsageError: the configured runtime does not support an option.
        SetupError: the runtime is not installed (checked first), or the weights are not available.
        AdapterError: the adapter is invalid.
    """
    if settings.runtime == LLAMA_CPP:
        if server_parser or compiled:
            raise UsageError(
                f"--server-parser and --compile are for vLLM: leave them out, or give --runtime "
                f"{VLLM}"
            )
        llama_cpp_server.require_llama_cpp()
        file = await llama_cpp_server.ensure_gguf(settings.cache_dir, name, report=reports.weights)
        plan = await llama_cpp_server.gguf_plan(
            name, file, settings.cache_dir, settings.now(), port=port
        )
        return LocalServer(plan, report=reports.server)
    vllm_settings = await prepare_vllm(
        settings,
        reports.weights,
        name=name,
        port=port,
        server_parser=server_parser,
        compiled=compiled,
    )
    return LocalServer(vllm_settings, report=reports.server)


async def require_same_weights(server: LocalServer, settings: Settings) -> None:
    """Check that a server's weights were not overwritten while it loaded them.

    Raises:
        ServerStartError: they were, so the loaded weights are unknown.
        WeightsError: the weights cannot be read.
    """
    plan = server.settings
    if not isinstance(plan, ServerSettings):
        return
    if plan.weights_sha256 != await weights_sha256(plan.model, settings.cache_dir):
        raise ServerStartError(
            f"{plan.model} was changed while its server was starting: start it again"
        )


async def prepare_vllm(
    settings: Settings,
    report: WeightsReport = ignore_progress,
    *,
    name: str = gemma.EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> ServerSettings:
    """Build the weights of an embedded model and return its vLLM settings.

    Raises:
        SetupError: vLLM is not installed (checked first), or the weights are not available.
        AdapterError: the adapter is invalid.
    """
    require_vllm()
    ensure = weights.ensure_tuned if name == gemma.TUNED else weights.ensure_weights
    # Reading vLLM's help takes half a minute, once: do it while the weights are built.
    reading_options = asyncio.create_task(installed_options(settings.cache_dir))
    try:
        folder = await ensure(settings.cache_dir, report=report)
        plan = gemma.serving_plan(
            name,
            folder,
            settings.cache_dir,
            settings.now(),
            dtype=gemma.served_dtype(settings.dtype),
            port=port,
            server_parser=server_parser,
            compiled=compiled,
            weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
        )
        return fit_options(plan, await reading_options)
    finally:
        reading_options.cancel()
