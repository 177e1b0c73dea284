"""`lhkit serve`: serve a model until Ctrl-C; chat and eval find the embedded one."""

import asyncio
import signal
from pathlib import Path

from rich.console import Console

from lhkit import app, embedded
from lhkit.cli.command import command
from lhkit.cli.overrides import served_by
from lhkit.cli.progress import setup_progress
from lhkit.cli.serve_line import (
    GGUF,
    ServeOptions,
    embedded_line,
    not_by_llama_cpp,
    own_name,
    refuse_lora,
    say_dtype,
    say_left_out,
    serve_line,
)
from lhkit.errors import ServerStartError, UsageError
from lhkit.models.adapter import read_lora, with_lora
from lhkit.models.gemma import BASE, EMBEDDED, EMBEDDED_NAMES, served_dtype, serving_plan
from lhkit.models.identity import weights_alias
from lhkit.models.server import LocalServer, RunningServer, find_running_server, register_server
from lhkit.models.vllm_server import ServerSettings, fit_installed_vllm
from lhkit.models.weights_hash import weights_sha256
from lhkit.settings import LLAMA_CPP, Settings
from lhkit.text import printable

_WATCH_S = 0.5


@command(
    "lhkit serve",
    "lhkit serve google/gemma-3-4b-it --dry-run",
    "lhkit serve --weights tuned/model",
    "lhkit serve --lora tuned",
)
async def serve_model(options: ServeOptions, settings: Settings) -> int:
    """Serve until Ctrl-C or SIGTERM, or only print the line that does; return the exit code.

    The embedded models and a folder of `weights`, under its name, are lhkit's own to serve: they
    can be found. Any other line is run as it is printed, and the exit code is that of the server. A
    GGUF file is served by llama.cpp, any other name by vLLM.

    Raises:
        UsageError: no such model or device, options that do not go together, no model in the
            folder, or one with a name that is taken.
        MissingPackageError: vLLM, or for a file llama.cpp, is not installed here.
        WeightsError: the folder cannot be read.
        SetupError: the server cannot be started, or died.
    """
    if options.weights is not None and options.model is not None:
        raise UsageError(f"--weights is served instead of {options.model}: leave one of them out")
    if options.weights is not None and options.lora is not None:
        raise UsageError("--weights is a whole model: leave --lora out, or give its base as MODEL")
    model = options.model or (EMBEDDED if options.lora is None else BASE)
    if options.weights is None and _is_served_by_a_line(model, options):
        if options.runtime is not None:
            raise UsageError(f"--runtime is for gemma and gemma-base, not for {model}")
        dtype = {} if options.dtype is None else {"dtype": options.dtype}
        return await serve_line(model, options, settings.model_copy(update=dtype))
    if options.device is not None:
        raise UsageError(f"--device is for org/model, not for {options.weights or model}")
    serve = embedded_line if options.dry_run else _serve_embedded
    return await serve(model, options, served_by(settings, options.runtime, options.dtype))


def _is_served_by_a_line(model: str, options: ServeOptions) -> bool:
    is_dry_other = options.dry_run and model not in EMBEDDED_NAMES
    return "/" in model or model.endswith(GGUF) or is_dry_other


async def _serve_embedded(model: str, options: ServeOptions, settings: Settings) -> int:
    weights = options.weights
    if weights is not None and settings.runtime == LLAMA_CPP:
        raise not_by_llama_cpp(weights)
    if options.lora is not None:
        return await _serve_lora(model, options.lora, options, settings)
    name = app.embedded_name(model) if weights is None else own_name(weights)
    running = await _running(name, weights, settings)
    if running is not None:
        return _say_served(name, running)
    say_dtype(settings)
    with setup_progress() as reports:
        server = await _server(name, reports, options, settings)
        if isinstance(server.settings, ServerSettings):
            say_left_out(server.settings.left_out, settings)
        await server.__aenter__()
    return await _keep_serving(name, server, settings)


def _say_served(name: str, running: RunningServer) -> int:
    dtype = f" in {running.dtype}" if running.dtype else ""
    words = f"{name} is already served{dtype} at {running.base_url} (pid {running.pid})."
    Console(markup=False).print(printable(words), soft_wrap=True)
    return 0


async def _serve_lora(model: str, folder: Path, options: ServeOptions, settings: Settings) -> int:
    """Serve an embedded model with an adapter beside it."""
    if settings.runtime == LLAMA_CPP:
        refuse_lora(options)
    base = app.embedded_name(model)
    await read_lora(folder, settings.cache_dir, base=base)  # before the base is made
    say_dtype(settings)
    with setup_progress() as reports:
        own = await _server(base, reports, options, settings)
        if not isinstance(own.settings, ServerSettings):
            raise UsageError("--lora is served by vLLM")
        lora = await read_lora(
            folder, settings.cache_dir, base=base, base_sha256=own.settings.weights_sha256
        )
        plan = with_lora(own.settings, lora)
        running = await find_running_server(settings.cache_dir, lora.name, model=plan.model)
        if running is not None and {*lora.modules} <= {*running.options}:
            return _say_served(lora.name, running)
        server = LocalServer(plan, report=reports.server)
        say_left_out(plan.left_out, settings)
        await server.__aenter__()
    return await _keep_serving(lora.name, server, settings)


async def _keep_serving(name: str, server: LocalServer, settings: Settings) -> int:
    """Let others find a server that has started, until it is told to end."""
    console = Console(markup=False)  # a folder may be called [red]
    try:
        await embedded.require_same_weights(server, settings)
        async with register_server(settings.cache_dir, server):
            words = f"{name} is served at {server.base_url}. Ctrl-C ends it."
            console.print(printable(words), soft_wrap=True)
            console.print(printable(f"log: {server.settings.log_path}"))
            await _until_told(server)
    finally:
        await server.__aexit__(None, None, None)
    return 0


async def _running(name: str, weights: Path | None, settings: Settings) -> RunningServer | None:
    if weights is None:
        return await embedded.running_server(name, settings)
    folder = await asyncio.to_thread(weights.resolve)
    running = await find_running_server(
        settings.cache_dir, name, model=folder, dtype=settings.dtype
    )
    if running is None:
        return None
    sha256 = await weights_sha256(folder, settings.cache_dir)
    return (
        running if weights_alias(sha256) in running.options else None
    )  # else trained anew meanwhile


async def _server(
    name: str, reports: embedded.Reports, options: ServeOptions, settings: Settings
) -> LocalServer:
    if options.weights is None:
        return await embedded.prepare_server(
            settings,
            reports,
            name=name,
            port=options.port,
            server_parser=options.server_parser,
            compiled=options.compiled,
        )
    folder, now = await asyncio.to_thread(options.weights.resolve), settings.now()
    plan = serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        dtype=served_dtype(settings.dtype),
        port=options.port,
        server_parser=options.server_parser,
        compiled=options.compiled,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=reports.weights),
    )
    plan = await fit_installed_vllm(plan, settings.cache_dir)
    return LocalServer(plan, report=reports.server)


async def _until_told(server: LocalServer) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    while not told.is_set():
        if not server.running:
            log = server.settings.log_path
            raise ServerStartError(f"the server has ended by itself: read its log {log}")
        try:
            await asyncio.wait_for(told.wait(), _WATCH_S)
        except TimeoutError:
            continue
