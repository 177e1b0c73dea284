"""`lhkit serve`: serve a model until Ctrl-C."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from lhkit import app, embedded
from lhkit.base.errors import ServerStartError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.text import printable
from lhkit.cli.frame.command import command
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import apply_server_options
from lhkit.cli.frame.progress import setup_progress
from lhkit.cli.serve.serve_line import (
    GGUF,
    ServeOptions,
    fitted_plan,
    folder_name,
    print_dialect,
    print_dtype,
    print_embedded_line,
    print_left_out,
    run_serve_line,
)
from lhkit.models.client.identity import weights_alias
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.runtimes import LLAMA_CPP
from lhkit.models.serving.gemma import BASE, EMBEDDED
from lhkit.models.serving.server import (
    LocalServer,
    RunningServer,
    find_running_server,
    register_server,
)
from lhkit.models.serving.vllm_server import ServerSettings, with_lora
from lhkit.models.weights.adapter import read_lora
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings

_POLL_S = 0.5


@command(
    "lhkit serve",
    "lhkit serve google/gemma-3-4b-it --dry-run",
    "lhkit serve --weights tuned/model",
    "lhkit serve --lora tuned",
)
async def serve_model(options: ServeOptions, settings: Settings) -> int:
    """Serve until Ctrl-C or SIGTERM, or print the command line; return the exit code.

    Embedded models and a folder of weights are advertised to other commands. A GGUF file is served
    by llama.cpp and any other name by vLLM, with the printed command line and its exit code.

    Raises:
        UsageError: the model, device or folder is invalid, or options contradict each other.
        MissingPackageError: vLLM, or llama.cpp for a file, is not installed.
        WeightsError: the folder cannot be read.
        SetupError: the server does not start, or stops by itself.
    """
    if options.weights is not None and options.model is not None:
        raise UsageError(f"--weights is served instead of {options.model}: leave one of them out")
    if options.weights is not None and options.lora is not None:
        raise UsageError("--weights is a whole model: leave --lora out, or give its base as MODEL")
    model = options.model or (EMBEDDED if options.lora is None else BASE)
    is_dry_other = options.dry_run and model not in EMBEDDED_NAMES
    is_external = "/" in model or model.endswith(GGUF) or is_dry_other
    if options.weights is None and is_external:
        if options.runtime is not None:
            raise UsageError(f"--runtime is for gemma and gemma-base, not for {model}")
        dtype = {} if options.dtype is None else {"dtype": options.dtype}
        return await run_serve_line(model, options, settings.model_copy(update=dtype))
    if options.device is not None:
        raise UsageError(f"--device is for org/model, not for {options.weights or model}")
    settings = apply_server_options(settings, options.runtime, options.dtype)
    if settings.runtime == LLAMA_CPP and options.lora is not None:
        raise UsageError("--lora needs vLLM: leave --runtime llama.cpp out, or merge the adapter")
    if settings.runtime == LLAMA_CPP and options.weights is not None:
        raise UsageError(
            f"llama.cpp serves files: convert {options.weights} with its "
            "`convert_hf_to_gguf.py`, then `lhkit serve FILE.gguf`"
        )
    serve = print_embedded_line if options.dry_run else _serve_embedded
    return await serve(model, options, settings)


async def _serve_embedded(model: str, options: ServeOptions, settings: Settings) -> int:
    weights = options.weights
    if options.lora is not None:
        return await _serve_lora(model, options.lora, options, settings)
    name = app.embedded_name(model) if weights is None else folder_name(weights)
    running = await _find_running(name, weights, settings)
    if running is not None:
        return _print_served(name, running, settings)
    print_dtype(settings, weights)
    with setup_progress(settings.locale) as reports:
        server = await _create_server(name, reports, options, settings)
        if isinstance(server.settings, ServerSettings):
            print_left_out(server.settings.left_out, settings)
        await server.__aenter__()
    return await _keep_serving(name, server, settings)


def _print_served(name: str, running: RunningServer, settings: Settings) -> int:
    title = f"{name} ({running.dtype})" if running.dtype else name
    text = load_catalog(settings.locale).text(
        "serve.already", name=title, address=running.base_url, pid=running.pid
    )
    Console(markup=False).print(printable(text), soft_wrap=True)
    return ExitCode.OK


async def _serve_lora(model: str, folder: Path, options: ServeOptions, settings: Settings) -> int:
    base = app.embedded_name(model)
    await read_lora(folder, settings.cache_dir, base=base)  # fail before weights are prepared
    print_dtype(settings)
    with setup_progress(settings.locale) as reports:
        base_server = await _create_server(base, reports, options, settings)
        if not isinstance(base_server.settings, ServerSettings):
            raise UsageError("--lora needs --runtime vllm")
        lora = await read_lora(
            folder, settings.cache_dir, base=base, base_sha256=base_server.settings.weights_sha256
        )
        plan = with_lora(base_server.settings, lora)
        running = await find_running_server(settings.cache_dir, lora.name, model=plan.model)
        if running is not None and {*lora.modules} <= {*running.options}:
            return _print_served(lora.name, running, settings)
        server = LocalServer(plan, report=reports.server)
        print_left_out(plan.left_out, settings)
        await server.__aenter__()
    return await _keep_serving(lora.name, server, settings)


async def _keep_serving(name: str, server: LocalServer, settings: Settings) -> int:
    """Advertise a started server until Ctrl-C or SIGTERM."""
    console = Console(markup=False)  # the name of a folder may look like markup
    try:
        await embedded.require_same_weights(server, settings)
        async with register_server(settings.cache_dir, server):
            catalog = load_catalog(settings.locale)
            text = catalog.text("serve.served", name=name, address=server.base_url)
            console.print(printable(text), soft_wrap=True)
            console.print(
                printable(catalog.text("serve.log", path=server.settings.log_path)), soft_wrap=True
            )
            await _wait_for_signal(server)
    finally:
        await server.__aexit__(None, None, None)
    return ExitCode.OK


async def _find_running(
    name: str, weights: Path | None, settings: Settings
) -> RunningServer | None:
    if weights is None:
        return await embedded.running_server(name, settings)
    folder = await asyncio.to_thread(weights.resolve)
    running = await find_running_server(
        settings.cache_dir, name, model=folder, dtype=settings.dtype
    )
    if running is None:
        return None
    sha256 = await weights_sha256(folder, settings.cache_dir)
    has_same_weights = weights_alias(sha256) in running.options
    return running if has_same_weights else None


async def _create_server(
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
    folder = await asyncio.to_thread(options.weights.resolve)
    print_dialect(name, folder, settings, server_parser=options.server_parser)
    sha256 = await weights_sha256(folder, settings.cache_dir, report=reports.weights)
    plan = await fitted_plan(name, folder, options, settings, weights_sha256=sha256)
    return LocalServer(plan, report=reports.server)


async def _wait_for_signal(server: LocalServer) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    while not stop.is_set():
        if not server.running:
            log = server.settings.log_path
            raise ServerStartError(f"the server has stopped by itself: read its log {log}")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _POLL_S)
