"""Options of `lhkit serve`, and the command lines of servers."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from rich.console import Console

from lhkit import app, embedded
from lhkit.base.accelerators import accelerators
from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.base.files import file_sha256
from lhkit.base.locales import load_catalog
from lhkit.base.process import usable_cores
from lhkit.cli.frame.command import Options
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import DtypeOption, RuntimeOption
from lhkit.models.client.capacity import MAX_NUM_SEQS
from lhkit.models.client.chat_template import folder_family
from lhkit.models.client.identity import server_aliases, weights_alias
from lhkit.models.families import family_of
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.precision import ServedDtype, choose_precision
from lhkit.models.runtimes import LLAMA_CPP
from lhkit.models.serving import gguf_serving
from lhkit.models.serving.gemma import (
    is_for_gpu,
    served_device,
    served_dtype,
    served_precision,
    serving_plan,
)
from lhkit.models.serving.llama_cpp_server import LlamaCppSettings, light_adapter, require_llama_cpp
from lhkit.models.serving.vllm_server import (
    CPU_SERVER,
    GPU_SEQS,
    Device,
    ServerSettings,
    cpu_environment,
    filter_options,
    fit_installed_vllm,
    known_options,
    sampler_environment,
    serve_command,
    with_lora,
)
from lhkit.models.weights.adapter import read_lora
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings

GGUF = ".gguf"
"""Extension of files that llama.cpp serves."""
_GGUF_SLOTS = 2  # conversations at once; each has its own cache
_DRY_PORT = 8000  # printed instead of a free port


class ServeOptions(Options):
    """Options of `lhkit serve`; the model of a project is one that a server has already."""

    project_keys: ClassVar = ("locale",)
    prints_data: ClassVar = True

    model: Annotated[
        str | None,
        typer.Argument(
            help="gemma (default) or gemma-base (embedded), a name such as org/model, or a GGUF "
            "file."
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help="Port. Default: a free one; for org/model that of vLLM."
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command line without running it.")
    ] = False
    device: Annotated[
        Device | None, typer.Option(metavar="NAME", help="For org/model: gpu (default) or cpu.")
    ] = None
    dtype: DtypeOption = None
    runtime: RuntimeOption = None
    server_parser: Annotated[
        bool,
        typer.Option(
            "--server-parser", help="Let the server parse tool calls, for --dialect openai."
        ),
    ] = False
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Embedded: compile the model, for long runs."),
    ] = False
    weights: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Hugging Face folder of a model, instead of MODEL."),
    ] = None
    lora: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of a LoRA adapter for MODEL (default: gemma-base).",
        ),
    ] = None


async def run_serve_line(model: str, options: ServeOptions, settings: Settings) -> int:
    """Print the command line that serves a model, and run it unless it is a dry run.

    A server of a local folder reports the hash of its weights. The default dtype is what is fast on
    this processor, or what vLLM chooses on a GPU.
    """
    device, port, dry_run = options.device or "gpu", options.port, options.dry_run
    if options.lora is not None and model.endswith(GGUF):
        raise UsageError("--lora needs vLLM: give a folder or a name such as org/model")
    if model.endswith(GGUF):
        return await _run_gguf_line(Path(model), port, dry_run=dry_run)
    if options.compiled:
        raise UsageError(f"--compile is for gemma and gemma-base, not for {model}")
    dtype: ServedDtype = settings.dtype or "auto"
    if device == "cpu":
        precision = choose_precision(settings.dtype)
        dtype = precision.dtype
        _print_note(precision.describe(load_catalog(settings.locale)))
    command = serve_command(
        model,
        device,
        dtype=dtype,
        port=port,
        server_parser=options.server_parser,
        cpu_variables=cpu_environment(),
    )
    folder = Path(model) if await asyncio.to_thread(Path(model).is_dir) else None
    print_dialect(model, folder, settings, server_parser=options.server_parser)
    starts = ("vllm", "serve") if device == "gpu" else (sys.executable, *CPU_SERVER[1:])
    supported = await known_options(starts, settings.cache_dir)
    sha256 = None
    if not dry_run:
        is_folder = await asyncio.to_thread(Path(model).is_dir)
        sha256 = await weights_sha256(Path(model), settings.cache_dir) if is_folder else ""
        aliases = server_aliases(
            weights_sha256=sha256,
            dtype=dtype,
            device=served_device() if device == "gpu" else "",
            max_num_seqs=GPU_SEQS if device == "gpu" else MAX_NUM_SEQS,
        )
        command = (*command, "--served-model-name", model, *aliases)
    if options.lora is not None:
        lora = await read_lora(options.lora, settings.cache_dir, base=model, base_sha256=sha256)
        command = (*command, *lora.options)
    command, left_out = filter_options(command, supported)
    print_left_out(left_out, settings)
    if device == "gpu" and accelerators() and (variables := sampler_environment()):
        _print_note(load_catalog(settings.locale).text("dtype.sampler"))
        command = ("env", *(f"{name}={value}" for name, value in variables.items()), *command)
    _print_line(command)
    return ExitCode.OK if dry_run else await _run_vllm(command)


async def _run_gguf_line(file: Path, port: int | None, *, dry_run: bool) -> int:
    if not await asyncio.to_thread(file.is_file):
        raise UsageError(f"{file} does not exist: give a GGUF file")
    sha256 = await asyncio.to_thread(file_sha256, file)
    arguments = (str(port or _DRY_PORT), str(_GGUF_SLOTS), weights_alias(sha256))
    threads = ("--threads", str(usable_cores()))
    command = ("python", gguf_serving.__file__, *threads, str(file), *arguments)
    _print_line(command)
    if dry_run:
        return ExitCode.OK
    require_llama_cpp()
    return await _run_process(command)


async def print_embedded_line(model: str, options: ServeOptions, settings: Settings) -> int:
    """Print the command line that serves an embedded model or a folder of weights."""
    port, weights = options.port, options.weights
    if settings.runtime == LLAMA_CPP:
        name = app.embedded_name(model)
        file = embedded.embedded_weights(name, settings)
        gguf_plan = LlamaCppSettings(
            model=file, served_name=name, log_path=Path(), adapter=light_adapter(file)
        )
        _print_line(["python", *gguf_plan.arguments(port or _DRY_PORT)])
        return ExitCode.OK
    if weights is None:
        name = app.embedded_name(model)
        folder = embedded.embedded_folder(name, settings)
    else:
        name, folder = folder_name(weights), await asyncio.to_thread(weights.resolve)
    lora = None
    if options.lora is not None:  # read before vLLM is asked for its options, which takes seconds
        lora = await read_lora(options.lora, settings.cache_dir, base=name)
    plan = await fitted_plan(name, folder, options, settings)
    if lora is not None:
        plan = with_lora(plan, lora)
    print_left_out(plan.left_out, settings)
    variables = [f"{name}={value}" for name, value in plan.environment().items()]
    print_dtype(settings, weights)
    _print_line(["env", *variables, plan.python, *plan.arguments(port or _DRY_PORT)])
    return ExitCode.OK


async def fitted_plan(
    name: str, folder: Path, options: ServeOptions, settings: Settings, *, weights_sha256: str = ""
) -> ServerSettings:
    """Return how the installed vLLM serves a folder of weights under a name."""
    plan = serving_plan(
        name,
        folder,
        settings.cache_dir,
        settings.now(),
        dtype=served_dtype(settings.dtype, options.weights),
        port=options.port,
        server_parser=options.server_parser,
        compiled=options.compiled,
        weights_sha256=weights_sha256,
    )
    return await fit_installed_vllm(plan, settings.cache_dir)


def folder_name(weights: Path) -> str:
    """Return the name under which a folder of weights is served.

    Raises:
        UsageError: the folder is named like an embedded model, or has no model.
    """
    name = weights.resolve().name
    if name in EMBEDDED_NAMES:
        raise UsageError(f"{weights} has the name of an embedded model: rename the folder")
    if not (weights / "config.json").is_file():
        raise UsageError(f"{weights} has no model: it needs a config.json and safetensors")
    return name


def print_dtype(settings: Settings, weights: Path | None = None) -> None:
    """Print the device and the dtype that vLLM will use, and what is set for a card."""
    if settings.runtime == LLAMA_CPP:
        return  # it is a property of the file
    catalog = load_catalog(settings.locale)
    _print_note(served_precision(settings.dtype, weights).describe(catalog))
    if is_for_gpu() and sampler_environment():
        _print_note(catalog.text("dtype.sampler"))


def print_dialect(
    model: str, folder: Path | None, settings: Settings, *, server_parser: bool
) -> None:
    """Print the dialect in which other commands will use a model, unless one is given."""
    family = (folder_family(folder) if folder else None) or family_of(model)
    catalog = load_catalog(settings.locale)
    if family is not None:
        text = catalog.text("serve.dialect", family=family.name, dialect=family.dialect)
        _print_note(text)
    elif not server_parser:
        _print_note(catalog.text("serve.unknown_family", model=model))


def print_left_out(options: Sequence[str], settings: Settings) -> None:
    """Print which options are left out because the installed vLLM does not support them."""
    if not options:
        return
    catalog = load_catalog(settings.locale)
    keys = (f"serve.without.{option.removeprefix('--')}" for option in options)
    missing = [catalog.texts[key] for key in keys if key in catalog.texts]
    effect = "; ".join(dict.fromkeys(missing)) or catalog.text("serve.vllm_default")
    _print_note(catalog.text("serve.left_out", options=", ".join(options), effect=effect))


def _print_note(text: str) -> None:
    """Print to standard error, apart from the command line."""
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)


def _print_line(command: Sequence[str]) -> None:
    Console(highlight=False, markup=False).print(shlex.join(command), soft_wrap=True)


async def _run_vllm(command: Sequence[str]) -> int:
    program = next(word for word in command if word in ("vllm", "python"))
    if shutil.which("vllm") is None if program == "vllm" else find_spec("vllm") is None:
        raise MissingPackageError(
            "vLLM is not installed: install it for this machine, or run the command line above "
            "elsewhere (--dry-run only prints it)"
        )
    return await _run_process(command)


async def _run_process(command: Sequence[str]) -> int:
    """Run a command and return its exit code; terminate it if this task is cancelled."""
    arguments = (sys.executable if word == "python" else word for word in command)
    process = await asyncio.create_subprocess_exec(*arguments)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
