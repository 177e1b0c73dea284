"""`lhkit serve`: the embedded Gemma, kept running and findable."""

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from lhkit import app
from lhkit.commands.options import ServeOptions, in_dtype, served_by
from lhkit.commands.progress import setup_progress
from lhkit.errors import MissingPackageError, ServerStartError, UsageError
from lhkit.files import file_sha256
from lhkit.locales import load_catalog
from lhkit.models import gguf_serving
from lhkit.models.aliases import alias_of, aliases_of
from lhkit.models.embedded import (
    BASE,
    EMBEDDED,
    EMBEDDED_NAMES,
    served_dtype,
    served_precision,
    serving_plan,
)
from lhkit.models.families import CPU_SERVER, Device, serve_command
from lhkit.models.light import LlamaCppSettings, light_adapter, require_llama_cpp
from lhkit.models.lora import read_lora, with_lora
from lhkit.models.running_servers import RunningServer, advertised, find_running
from lhkit.models.server import LocalServer, ServerPlan
from lhkit.models.vllm_options import fitted, known_options
from lhkit.models.vllm_server import VllmServer, for_installed_vllm
from lhkit.models.weights_hash import weights_sha256
from lhkit.precision import ServedDtype, chosen
from lhkit.runtimes import LLAMA_CPP
from lhkit.settings import Settings
from lhkit.text import printable

GGUF = ".gguf"
"""How the name of a file ends that llama.cpp serves."""
_GGUF_AT_ONCE = 2  # conversations; each has a cache of its own
_WATCH_S = 0.5
_DRY_PORT = 8000  # shown where a free one would be taken


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
        return await _serve_line(model, options, in_dtype(settings, options.dtype))
    if options.device is not None:
        raise UsageError(f"--device is for org/model, not for {options.weights or model}")
    serve = _embedded_line if options.dry_run else _serve_embedded
    return await serve(model, options, served_by(settings, options.runtime, options.dtype))


def _is_served_by_a_line(model: str, options: ServeOptions) -> bool:
    is_dry_other = options.dry_run and model not in EMBEDDED_NAMES
    return "/" in model or model.endswith(GGUF) or is_dry_other


async def _serve_line(model: str, options: ServeOptions, settings: Settings) -> int:
    """Print the command line that serves `model` well, and run it unless it is a dry run.

    Where `model` is a folder and it is run, the server tells its hash. On a CPU it computes in what
    this processor is quick in, on a graphics card in what vLLM chooses, if the settings ask for
    nothing else.
    """
    device, port, dry_run = options.device or "gpu", options.port, options.dry_run
    if options.lora is not None and model.endswith(GGUF):
        raise UsageError("--lora is served by vLLM: give a folder or a name such as org/model")
    if model.endswith(GGUF):
        return await _gguf_line(Path(model), port, dry_run=dry_run)
    if device not in ("gpu", "cpu"):
        raise UsageError(f"no device {device!r}: choose gpu or cpu")
    if options.compiled:
        raise UsageError("--compile is for gemma and gemma-base: any other vLLM line is yours")
    known: Device = "gpu" if device == "gpu" else "cpu"
    dtype: ServedDtype = settings.dtype or "auto"
    if known == "cpu":
        precision = chosen(settings.dtype)
        dtype = precision.dtype
        _say(precision.words(load_catalog(settings.locale)))
    command = serve_command(
        model, known, dtype=dtype, port=port, server_parser=options.server_parser
    )
    starts = ("vllm", "serve") if known == "gpu" else (sys.executable, *CPU_SERVER[1:])
    vllm_knows = await known_options(starts, settings.cache_dir)
    sha256 = None
    if not dry_run:
        is_folder = await asyncio.to_thread(Path(model).is_dir)
        sha256 = await weights_sha256(Path(model), settings.cache_dir) if is_folder else ""
        aliases = aliases_of(weights_sha256=sha256, dtype=dtype)
        command = (*command, *(("--served-model-name", model, *aliases) if aliases else ()))
    if options.lora is not None:
        lora = await read_lora(options.lora, settings.cache_dir, base=model, base_sha256=sha256)
        command = (*command, *lora.options)
    command, left_out = fitted(command, vllm_knows)
    _say_left_out(left_out, settings)
    console = Console(highlight=False, markup=False)
    console.print(shlex.join(command), soft_wrap=True)
    return 0 if dry_run else await _run(command)


async def _gguf_line(file: Path, port: int | None, *, dry_run: bool) -> int:
    if not await asyncio.to_thread(file.is_file):
        raise UsageError(f"there is no file {file}")
    sha256 = await asyncio.to_thread(file_sha256, file)
    told = (str(port or _DRY_PORT), str(_GGUF_AT_ONCE), alias_of(sha256))
    command = ("python", gguf_serving.__file__, str(file), *told)
    Console(highlight=False, markup=False).print(shlex.join(command), soft_wrap=True)
    if dry_run:
        return 0
    require_llama_cpp()
    return await _ended(command)


async def _embedded_line(model: str, options: ServeOptions, settings: Settings) -> int:
    """Print the command line that serves an embedded model, or the weights."""
    port, weights = options.port, options.weights
    if settings.runtime == LLAMA_CPP:
        _refuse_lora(options)
        return await _light_line(app.embedded_name(model), port, settings, weights)
    if weights is None:
        name = app.embedded_name(model)
        folder = app.embedded_folder(name, settings)
    else:
        name, folder = _own_name(weights), await asyncio.to_thread(weights.resolve)
    now = settings.now()
    plan = serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        dtype=served_dtype(settings.dtype),
        port=port,
        server_parser=options.server_parser,
        compiled=options.compiled,
    )
    plan = await for_installed_vllm(plan, settings.cache_dir)
    if options.lora is not None:
        plan = with_lora(plan, await read_lora(options.lora, settings.cache_dir, base=name))
    _say_left_out(plan.left_out, settings)
    variables = [f"{name}={value}" for name, value in plan.environment().items()]
    _say_dtype(settings)
    line = shlex.join(["env", *variables, plan.python, *plan.arguments(port or _DRY_PORT)])
    Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return 0


async def _light_line(name: str, port: int | None, settings: Settings, weights: Path | None) -> int:
    if weights is not None:
        raise _not_by_llama_cpp(weights)
    file = app.embedded_weights(name, settings)
    plan = LlamaCppSettings(
        model=file, served_name=name, log_path=Path(), adapter=light_adapter(file)
    )
    line = shlex.join(["python", *plan.arguments(port or _DRY_PORT)])
    Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return 0


def _not_by_llama_cpp(weights: Path) -> UsageError:
    return UsageError(
        f"llama.cpp serves files: turn {weights} into one by its `convert_hf_to_gguf.py`, then "
        "`lhkit serve FILE.gguf`"
    )


def _refuse_lora(options: ServeOptions) -> None:
    if options.lora is not None:
        raise UsageError("--lora is served by vLLM: leave --runtime llama.cpp out, or merge it")


def _say(words: str) -> None:
    """Print what is no part of a line that somebody may copy or pipe."""
    Console(stderr=True, highlight=False, markup=False).print(words, soft_wrap=True)


def _say_dtype(settings: Settings) -> None:
    if settings.runtime == LLAMA_CPP:
        return  # the file tells
    precision, catalog = served_precision(settings.dtype), load_catalog(settings.locale)
    _say(precision.words(catalog) if precision else catalog.text("dtype.device"))


def _say_left_out(options: Sequence[str], settings: Settings) -> None:
    """Say in a line what is missing because the installed vLLM does not know some options."""
    if not options:
        return
    catalog = load_catalog(settings.locale)
    keys = (f"serve.without.{option.removeprefix('--')}" for option in options)
    missing = [catalog.texts[key] for key in keys if key in catalog.texts]
    effect = "; ".join(dict.fromkeys(missing)) or catalog.text("serve.vllm_default")
    _say(catalog.text("serve.left_out", options=", ".join(options), effect=effect))


async def _run(command: Sequence[str]) -> int:
    program = next(word for word in command if word in ("vllm", "python"))
    if shutil.which("vllm") is None if program == "vllm" else find_spec("vllm") is None:
        raise MissingPackageError(
            "vLLM is not installed here: install it for this machine, or run the line above where "
            "it is (--dry-run only prints it)"
        )
    return await _ended(command)


async def _ended(command: Sequence[str]) -> int:
    """Run a command until it ends, or we do; return its exit code."""
    words = (sys.executable if word == "python" else word for word in command)
    process = await asyncio.create_subprocess_exec(*words)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _serve_embedded(model: str, options: ServeOptions, settings: Settings) -> int:
    weights = options.weights
    if weights is not None and settings.runtime == LLAMA_CPP:
        raise _not_by_llama_cpp(weights)
    if options.lora is not None:
        return await _serve_lora(model, options.lora, options, settings)
    name = app.embedded_name(model) if weights is None else _own_name(weights)
    running = await _running(name, weights, settings)
    if running is not None:
        return _say_served(name, running)
    _say_dtype(settings)
    with setup_progress() as reports:
        server = await _server(name, reports, options, settings)
        if isinstance(server, VllmServer):
            _say_left_out(server.settings.left_out, settings)
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
        _refuse_lora(options)
    base = app.embedded_name(model)
    await read_lora(folder, settings.cache_dir, base=base)  # before the base is made
    _say_dtype(settings)
    with setup_progress() as reports:
        own = await _server(base, reports, options, settings)
        if not isinstance(own, VllmServer):
            raise UsageError("--lora is served by vLLM")
        lora = await read_lora(
            folder, settings.cache_dir, base=base, base_sha256=own.settings.weights_sha256
        )
        plan = with_lora(own.settings, lora)
        running = await find_running(settings.cache_dir, lora.name, model=plan.model)
        if running is not None and {*lora.modules} <= {*running.options}:
            return _say_served(lora.name, running)
        server = VllmServer(plan, report=reports.server)
        _say_left_out(server.settings.left_out, settings)
        await server.__aenter__()
    return await _keep_serving(lora.name, server, settings)


async def _keep_serving(name: str, server: LocalServer[ServerPlan], settings: Settings) -> int:
    """Let others find a server that has started, until it is told to end."""
    console = Console(markup=False)  # a folder may be called [red]
    try:
        await app.require_same_weights(server, settings)
        async with advertised(settings.cache_dir, server):
            words = f"{name} is served at {server.base_url}. Ctrl-C ends it."
            console.print(printable(words), soft_wrap=True)
            console.print(printable(f"log: {server.settings.log_path}"))
            await _until_told(server)
    finally:
        await server.__aexit__(None, None, None)
    return 0


def _own_name(weights: Path) -> str:
    name = weights.resolve().name
    if name in EMBEDDED_NAMES:
        raise UsageError(f"{weights} has the name of an embedded model: rename the folder")
    if not (weights / "config.json").is_file():
        raise UsageError(f"{weights} holds no model: it needs a config.json and safetensors")
    return name


async def _running(name: str, weights: Path | None, settings: Settings) -> RunningServer | None:
    if weights is None:
        return await app.running_server(name, settings)
    folder = await asyncio.to_thread(weights.resolve)
    running = await find_running(settings.cache_dir, name, model=folder, dtype=settings.dtype)
    if running is None:
        return None
    sha256 = await weights_sha256(folder, settings.cache_dir)
    return running if alias_of(sha256) in running.options else None  # else trained anew meanwhile


async def _server(
    name: str, reports: app.Reports, options: ServeOptions, settings: Settings
) -> LocalServer[ServerPlan]:
    if options.weights is None:
        return await app.own_server(
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
    plan = await for_installed_vllm(plan, settings.cache_dir)
    return VllmServer(plan, report=reports.server)


async def _until_told(server: LocalServer[ServerPlan]) -> None:
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
