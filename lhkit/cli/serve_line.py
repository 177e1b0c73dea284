"""The command line that serves a model: printed, and run unless it is a dry run."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lhkit import app, embedded
from lhkit.cli.command import Options
from lhkit.errors import MissingPackageError, UsageError
from lhkit.files import file_sha256
from lhkit.harness.run_options import DtypeName, RuntimeName
from lhkit.locales import load_catalog
from lhkit.models import gguf_serving
from lhkit.models.adapter import read_lora, with_lora
from lhkit.models.gemma import EMBEDDED_NAMES, served_dtype, served_precision, serving_plan
from lhkit.models.identity import server_aliases, weights_alias
from lhkit.models.light import LlamaCppSettings, light_adapter, require_llama_cpp
from lhkit.models.vllm_server import (
    CPU_SERVER,
    Device,
    filter_options,
    fit_installed_vllm,
    known_options,
    serve_command,
)
from lhkit.models.weights_hash import weights_sha256
from lhkit.precision import ServedDtype, choose_precision
from lhkit.settings import LLAMA_CPP, Settings

GGUF = ".gguf"
"""How the name of a file ends that llama.cpp serves."""
_GGUF_AT_ONCE = 2  # conversations; each has a cache of its own
_DRY_PORT = 8000  # shown where a free one would be taken


class ServeOptions(Options):
    """What `lhkit serve` serves: a `model`, or `weights` of your own (a Hugging Face folder).

    With `server_parser` the server also parses calls itself, for `--dialect openai`. A `compiled`
    one takes longer until it serves, and is faster then. `lora` is served beside `model`, which is
    gemma-base by default then.
    """

    model: Annotated[
        str | None,
        typer.Argument(
            help="gemma (default) or gemma-base (embedded), a name such as org/model, or a GGUF "
            "file."
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Default: a free port; for org/model vLLM's own."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the line that serves MODEL.")
    ] = False
    device: Annotated[
        str | None, typer.Option(help="gpu (default) or cpu, for org/model only.")
    ] = None
    dtype: DtypeName = None
    runtime: RuntimeName = None
    server_parser: Annotated[
        bool,
        typer.Option("--server-parser", help="The server parses calls, too: for --dialect openai."),
    ] = False
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Embedded: start later, answer faster. For long runs."),
    ] = False
    weights: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of a tuned model, instead of MODEL."),
    ] = None
    lora: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of a LoRA adapter, served beside MODEL (default: gemma-base) by vLLM.",
        ),
    ] = None


async def serve_line(model: str, options: ServeOptions, settings: Settings) -> int:
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
        precision = choose_precision(settings.dtype)
        dtype = precision.dtype
        _say(precision.describe(load_catalog(settings.locale)))
    command = serve_command(
        model, known, dtype=dtype, port=port, server_parser=options.server_parser
    )
    starts = ("vllm", "serve") if known == "gpu" else (sys.executable, *CPU_SERVER[1:])
    vllm_knows = await known_options(starts, settings.cache_dir)
    sha256 = None
    if not dry_run:
        is_folder = await asyncio.to_thread(Path(model).is_dir)
        sha256 = await weights_sha256(Path(model), settings.cache_dir) if is_folder else ""
        aliases = server_aliases(weights_sha256=sha256, dtype=dtype)
        command = (*command, *(("--served-model-name", model, *aliases) if aliases else ()))
    if options.lora is not None:
        lora = await read_lora(options.lora, settings.cache_dir, base=model, base_sha256=sha256)
        command = (*command, *lora.options)
    command, left_out = filter_options(command, vllm_knows)
    say_left_out(left_out, settings)
    console = Console(highlight=False, markup=False)
    console.print(shlex.join(command), soft_wrap=True)
    return 0 if dry_run else await _run(command)


async def _gguf_line(file: Path, port: int | None, *, dry_run: bool) -> int:
    if not await asyncio.to_thread(file.is_file):
        raise UsageError(f"there is no file {file}")
    sha256 = await asyncio.to_thread(file_sha256, file)
    told = (str(port or _DRY_PORT), str(_GGUF_AT_ONCE), weights_alias(sha256))
    command = ("python", gguf_serving.__file__, str(file), *told)
    Console(highlight=False, markup=False).print(shlex.join(command), soft_wrap=True)
    if dry_run:
        return 0
    require_llama_cpp()
    return await _ended(command)


async def embedded_line(model: str, options: ServeOptions, settings: Settings) -> int:
    """Print the command line that serves an embedded model, or the weights."""
    port, weights = options.port, options.weights
    if settings.runtime == LLAMA_CPP:
        refuse_lora(options)
        return await _light_line(app.embedded_name(model), port, settings, weights)
    if weights is None:
        name = app.embedded_name(model)
        folder = embedded.embedded_folder(name, settings)
    else:
        name, folder = own_name(weights), await asyncio.to_thread(weights.resolve)
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
    plan = await fit_installed_vllm(plan, settings.cache_dir)
    if options.lora is not None:
        plan = with_lora(plan, await read_lora(options.lora, settings.cache_dir, base=name))
    say_left_out(plan.left_out, settings)
    variables = [f"{name}={value}" for name, value in plan.environment().items()]
    say_dtype(settings)
    line = shlex.join(["env", *variables, plan.python, *plan.arguments(port or _DRY_PORT)])
    Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return 0


async def _light_line(name: str, port: int | None, settings: Settings, weights: Path | None) -> int:
    if weights is not None:
        raise not_by_llama_cpp(weights)
    file = embedded.embedded_weights(name, settings)
    plan = LlamaCppSettings(
        model=file, served_name=name, log_path=Path(), adapter=light_adapter(file)
    )
    line = shlex.join(["python", *plan.arguments(port or _DRY_PORT)])
    Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return 0


def own_name(weights: Path) -> str:
    """Return the name that a folder of weights is served under.

    Raises:
        UsageError: it has the name of an embedded model, or holds no model.
    """
    name = weights.resolve().name
    if name in EMBEDDED_NAMES:
        raise UsageError(f"{weights} has the name of an embedded model: rename the folder")
    if not (weights / "config.json").is_file():
        raise UsageError(f"{weights} holds no model: it needs a config.json and safetensors")
    return name


def not_by_llama_cpp(weights: Path) -> UsageError:
    """Return the error for a folder of weights that llama.cpp should serve."""
    return UsageError(
        f"llama.cpp serves files: turn {weights} into one by its `convert_hf_to_gguf.py`, then "
        "`lhkit serve FILE.gguf`"
    )


def refuse_lora(options: ServeOptions) -> None:
    """Refuse an adapter where llama.cpp serves.

    Raises:
        UsageError: the options name one.
    """
    if options.lora is not None:
        raise UsageError("--lora is served by vLLM: leave --runtime llama.cpp out, or merge it")


def say_dtype(settings: Settings) -> None:
    """Print in which type of number vLLM computes."""
    if settings.runtime == LLAMA_CPP:
        return  # the file tells
    precision, catalog = served_precision(settings.dtype), load_catalog(settings.locale)
    _say(precision.describe(catalog) if precision else catalog.text("dtype.device"))


def say_left_out(options: Sequence[str], settings: Settings) -> None:
    """Say in a line what is missing because the installed vLLM does not know some options."""
    if not options:
        return
    catalog = load_catalog(settings.locale)
    keys = (f"serve.without.{option.removeprefix('--')}" for option in options)
    missing = [catalog.texts[key] for key in keys if key in catalog.texts]
    effect = "; ".join(dict.fromkeys(missing)) or catalog.text("serve.vllm_default")
    _say(catalog.text("serve.left_out", options=", ".join(options), effect=effect))


def _say(words: str) -> None:
    """Print what is no part of a line that somebody may copy or pipe."""
    Console(stderr=True, highlight=False, markup=False).print(words, soft_wrap=True)


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
