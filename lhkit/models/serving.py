"""A server of our own, a vLLM first of all: its command line, start, log, end; which ones run."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
import socket
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar
from urllib.parse import quote

import psutil

from lhkit.errors import MissingPackageError, ServerStartError, SetupError
from lhkit.files import write_whole
from lhkit.models.families import GPU_SEQS, GUIDANCE
from lhkit.models.vllm_options import fitted, known_options
from lhkit.precision import DTYPES, Dtype, ServedDtype

# What a vLLM log tells a person who waits: the stage of the start, and why it failed.
#
# Reads the end of the file only, and never raises: a log that is not there yet tells nothing.


_TAIL_BYTES = 128 * 1024
_READ_CHARACTERS = 1000
_LINE_CHARACTERS = 300

_STAGES = (
    ("Starting vLLM server on", "opening the port"),
    ("init engine (", "starting the API"),
    ("Dynamo bytecode transform", "compiling"),
    ("Compiling", "compiling"),
    ("KV cache size", "warming up"),
    ("Loading weights took", "setting up the KV cache"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Resolved architecture", "starting the engine process"),
    ("non-default args", "reading the model's config"),
)
_FIRST_STAGE = "loading libraries"

_PREFIX = re.compile(r"^\([\w.-]+ pid=\d+\)\s*|^[A-Z]+ \d\d-\d\d [\d:]+ \[[^]]*\]\s*")
_CAUSE = re.compile(r"(Error|Exception|Exit): \S|^Value error, |: error: ")
_HEARSAY = re.compile(  # says only that something else failed, earlier in the log
    r"See (root cause|stack trace)|EngineDeadError|resource_tracker|validation errors? for"
)


def last_stage(log_path: Path) -> str:
    """Return the last stage of the start that the log tells of."""
    for line in reversed(_tail(log_path)):
        for sign, stage in _STAGES:
            if sign in line:
                return stage
    return _FIRST_STAGE


def telling_line(log_path: Path) -> str:
    """Return the line that best says why the server ended: its last error, else its last line."""
    lines = [bare for line in _tail(log_path) if (bare := _bare(line[:_READ_CHARACTERS]))]
    causes = [line for line in lines if _CAUSE.search(line) and not _HEARSAY.search(line)]
    return (causes or lines or ["it said nothing"])[-1][:_LINE_CHARACTERS]


def _bare(line: str) -> str:
    """Return the line without the process and time that vLLM puts before it."""
    shorter = _PREFIX.sub("", line.strip())
    return shorter if shorter == line else _bare(shorter)


def _tail(log_path: Path) -> list[str]:
    try:
        with log_path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []


# A local server as a child of ours: started, watched, and ended whatever happens to us.
#
# It listens on 127.0.0.1 only and reports to nobody. Speaking to it is `lhkit.models.vllm`'s
# business; finding one that somebody else started is `lhkit.models.serving`'.


if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
MAX_NUM_SEQS = 16

_ALIAS = "lhkit-weights-sha256-"
_DTYPE_ALIAS = "lhkit-dtype-"
_REAPER = Path(__file__).parent / "server_reaper.py"
_POLL_S = 0.1
_HEALTH_TIMEOUT_S = 5.0
_REAPER_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How to serve one model folder.

    `port` None takes a free one. `kv_cache_gib` is the memory for keys and values; `max_num_seqs`
    how many requests run at once. `block_size` is in tokens: vLLM's CPU default of 128 hides
    short shared prefixes from its cache. None leaves either to vLLM (see `GPU`).
    `enforce_eager` starts without compiling. `env` is laid over the environment that lhkit itself
    sets. `entry` is what `python` runs: the `vllm` console script is broken in the CPU build.
    `weights_sha256` is the hash of what lies in `model` (see `weights_hash`): the server serves an
    alias that tells it, whatever the folder holds later.
    `dtype` is what it computes in (see `precision`), told by an alias, too; `auto`: vLLM chooses.
    Options that are not in `known_options` are left out; None leaves out nothing.
    `base_name` is the name of `model` where `served_name` is that of an adapter (see `lora`).
    """

    model: Path
    served_name: str
    log_path: Path
    port: int | None = None
    max_model_len: int = 8192
    max_num_seqs: int = MAX_NUM_SEQS
    block_size: int | None = 32
    kv_cache_gib: int | None = 2
    enforce_eager: bool = True
    chat_template: Path | None = None
    start_timeout_s: float = 600.0
    grace_s: float = 5.0
    extra_args: tuple[str, ...] = ()
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)
    entry: tuple[str, ...] = ("-m", "vllm.entrypoints.openai.api_server")
    weights_sha256: str = ""
    dtype: ServedDtype = "auto"
    known_options: frozenset[str] | None = None
    base_name: str = ""

    @property
    def found_as(self) -> str:
        """What the server is found by that `lhkit serve` keeps: the name that it serves."""
        return self.served_name

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        return (*self.entry, *fitted(self._options(port), self.known_options)[0])

    @property
    def left_out(self) -> tuple[str, ...]:
        """The options that the installed vLLM does not know."""
        return fitted(self._options(0), self.known_options)[1]

    def _options(self, port: int) -> tuple[str, ...]:
        return (
            *("--model", str(self.model)),
            *("--served-model-name", self.base_name or self.served_name),
            *aliases_of(weights_sha256=self.weights_sha256, dtype=self.dtype),
            *("--host", HOST, "--port", str(port), "--dtype", self.dtype),
            *("--max-model-len", str(self.max_model_len)),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *(() if self.block_size is None else ("--block-size", str(self.block_size))),
            *("--generation-config", "vllm"),  # the checkpoint's own sampling must not leak in
            *GUIDANCE,
            *("--enable-prompt-tokens-details", "--enable-per-request-metrics"),
            *("--enable-force-include-usage", "--disable-uvicorn-access-log"),
            *(("--enforce-eager",) if self.enforce_eager else ()),
            *(("--chat-template", str(self.chat_template)) if self.chat_template else ()),
            *self.extra_args,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that are set for the server: no network, no telemetry."""
        gib = self.kv_cache_gib
        return {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
            **({} if gib is None else {"VLLM_CPU_KVCACHE_SPACE": str(gib)}),
            **self.env,
        }


GPU: Mapping[str, Any] = MappingProxyType(
    {"enforce_eager": False, "max_num_seqs": GPU_SEQS, "block_size": None, "kv_cache_gib": None}
)
"""What differs in `ServerSettings` on a graphics card, where vLLM's own choices are good."""


async def for_installed_vllm(plan: ServerSettings, cache_dir: Path) -> ServerSettings:
    """Return the plan without the options that its vLLM does not know; they are logged."""
    known = await known_options((plan.python, *plan.entry), cache_dir)
    plan = replace(plan, known_options=known)
    if plan.left_out:
        _log.warning("vLLM does not know %s: left out", ", ".join(plan.left_out))
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """How far the start of an engine is: seconds since it began, the last stage in its log."""

    elapsed_s: float
    stage: str
    log_path: Path
    engine: str = "vLLM"


StartReport: TypeAlias = Callable[[StartProgress], None]


def silent(progress: StartProgress) -> None:
    """Report nothing."""


def require_vllm() -> None:
    """Tell before anything is fetched or converted that nothing could serve it.

    Raises:
        MissingPackageError: vLLM is not installed here.
    """
    if find_spec("vllm") is None:
        raise _no_vllm(sys.executable)


def aliases_of(*, weights_sha256: str, dtype: ServedDtype) -> tuple[str, ...]:
    """Return the served names that tell what nobody could ask a server otherwise; none if unknown.

    They stand behind the model's own name, which is the one that vLLM puts into answers and
    metrics.
    """
    return (
        *((alias_of(weights_sha256),) if weights_sha256 else ()),
        *((f"{_DTYPE_ALIAS}{dtype}",) if dtype != "auto" else ()),
    )


def alias_of(sha256: str) -> str:
    """Return the served name that tells which weights a server loaded.

    Whoever lists its models learns it, from any machine and whatever became of the folder.
    """
    return f"{_ALIAS}{sha256}"


def sha256_of(served_name: str) -> str:
    """Return the hash that a served name tells; empty for a name that is none of ours."""
    told = served_name.removeprefix(_ALIAS)
    return told if told != served_name and re.fullmatch("[0-9a-f]{64}", told) else ""


def dtype_told(served_name: str) -> str:
    """Return the type of number that a served name tells; empty for a name that is none of ours."""
    told = served_name.removeprefix(_DTYPE_ALIAS)
    return told if told != served_name and told in DTYPES else ""


class ServerPlan(Protocol):
    """How a server is started, whatever the engine."""

    @property
    def model(self) -> Path:
        """The folder or file of weights."""
        ...

    @property
    def served_name(self) -> str:
        """What the model is called by who asks the server."""
        ...

    @property
    def found_as(self) -> str:
        """What a server is found by that `lhkit serve` keeps."""
        ...

    @property
    def log_path(self) -> Path:
        """Where all goes that the server says."""
        ...

    @property
    def port(self) -> int | None:
        """None: a free one."""
        ...

    @property
    def start_timeout_s(self) -> float:
        """How long it may take until it answers."""
        ...

    @property
    def grace_s(self) -> float:
        """How long it is given to end by itself."""
        ...

    @property
    def python(self) -> str:
        """What runs it."""
        ...

    @property
    def weights_sha256(self) -> str:
        """The hash of the weights that it tells; empty if untold."""
        ...

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the variables that are set for it."""
        ...


Plan_co = TypeVar("Plan_co", bound=ServerPlan, covariant=True)


class LocalServer(ABC, Generic[Plan_co]):
    """A server as a child of ours; a class of its own for each engine.

    `engine` is its name for people, `package` what Python imports of it. `start_s` is how long it
    took until it answered; None before.
    """

    engine: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, settings: Plan_co, *, report: StartReport = silent) -> None:
        self.settings = settings
        self.port = 0
        self.start_s: float | None = None
        self._report = report
        self._reaper: Process | None = None

    @property
    def base_url(self) -> str:
        """The address of the OpenAI-compatible API, with `/v1`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def pid(self) -> int:
        """The process that lives exactly as long as the server; 0 before the start."""
        return self._reaper.pid if self._reaper else 0

    @property
    def running(self) -> bool:
        """False before the start and as soon as the server has ended, for whatever reason."""
        return self._reaper is not None and self._reaper.returncode is None

    async def __aenter__(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            MissingPackageError: if vLLM is not installed.
            ServerStartError: if the port is taken, the server dies or does not answer in time.
        """
        self.port = _port_for(self.settings.port)
        self.settings.log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._reaper = await self._spawn()
            if self._reaper.stdin is not None:  # from here on we can end it, so it may begin
                self._reaper.stdin.write(b"\n")
            self.start_s = await self._until_ready(self._reaper)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server and every process it started."""
        await self._end()

    async def _spawn(self) -> Process:
        settings = self.settings
        variables = [f"{name}={value}" for name, value in settings.environment().items()]
        server = ("env", *variables, settings.python, *settings.arguments(self.port))
        reaper = (sys.executable, "-P", str(_REAPER), str(settings.log_path), str(settings.grace_s))
        return await asyncio.create_subprocess_exec(
            *reaper, *server, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )

    async def _until_ready(self, reaper: Process) -> float:
        """Wait until it answers, and return how many seconds that took."""
        import aiohttp

        loop = asyncio.get_running_loop()
        began_s = loop.time()
        log = self.settings.log_path
        async with aiohttp.ClientSession() as session:
            while not await answers_health(session, self.base_url):
                elapsed_s = loop.time() - began_s
                if elapsed_s > self.settings.start_timeout_s:
                    raise ServerStartError(
                        f"{self.engine} was not ready after {elapsed_s:.0f} s "
                        f"(last: {last_stage(log)}); "
                        f"give it more time, or read {log}."
                    )
                self._report(
                    StartProgress(
                        elapsed_s=elapsed_s,
                        stage=last_stage(log),
                        log_path=log,
                        engine=self.engine,
                    )
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(reaper.wait(), _POLL_S)
                if reaper.returncode is not None:
                    raise self._start_fault(reaper.returncode)
        return loop.time() - began_s

    def _start_fault(self, exit_code: int) -> SetupError:
        line = telling_line(self.settings.log_path)
        if f"No module named '{self.package}'" in line:
            return self._no_engine()
        if "ddress already in use" in line:
            return _port_fault(self.port)
        return ServerStartError(
            f"{self.engine} ended while it was starting (exit {exit_code}): {line} - the whole log "
            f"is in {self.settings.log_path}."
        )

    @abstractmethod
    def _no_engine(self) -> MissingPackageError:
        """Return what to raise where the engine is not installed."""

    async def _end(self) -> None:
        """Let go of the reaper, which then ends the tree, and make sure that it did."""
        reaper, self._reaper = self._reaper, None
        if reaper is None:
            return
        if reaper.stdin is not None:
            reaper.stdin.close()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(reaper.wait(), self.settings.grace_s + _REAPER_MARGIN_S)
        finally:  # whatever a reaper that was itself killed left behind shares its process group
            with suppress(ProcessLookupError):
                os.killpg(reaper.pid, signal.SIGKILL)


class VllmServer(LocalServer[ServerSettings]):
    """`async with VllmServer(settings) as server:` serves at `server.base_url` until the end.

    The process tree ends with the block, and also if this process is killed outright.
    """

    engine: ClassVar[str] = "vLLM"
    package: ClassVar[str] = "vllm"

    def _no_engine(self) -> MissingPackageError:
        return _no_vllm(self.settings.python)


async def answers_health(session: "aiohttp.ClientSession", base_url: str) -> bool:
    """Return whether a server at `base_url` says that it is ready."""
    import aiohttp

    url = base_url.removesuffix("/v1") + "/health"
    timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
    try:
        async with session.get(url, timeout=timeout, allow_redirects=False) as response:
            return response.status == HTTPStatus.OK
    except (aiohttp.ClientError, TimeoutError):
        return False


def _port_for(wanted: int | None) -> int:
    """Return a port that nobody listens on: the wanted one, or any.

    vLLM itself would not notice: it shares the port with whoever has it (SO_REUSEPORT).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted or 0))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _port_fault(wanted or 0) from error
            raise ServerStartError(
                f"Port {wanted} can not be used ({error.strerror}); give another with --port."
            ) from error
        port: int = probe.getsockname()[1]
        return port


def _no_vllm(python: str) -> MissingPackageError:
    return MissingPackageError(
        f"vLLM is not installed in {python}; run `make venv` (Linux on x86_64), or point "
        "--base-url at a running server."
    )


def _port_fault(port: int) -> ServerStartError:
    return ServerStartError(
        f"Port {port} on {HOST} is in use; give another with --port, or none to take a free one."
    )


# Finding a server that `lhkit serve` left running, so that a chat or an eval need not start one.
#
# One small file per served name in `<cache_dir>/servers/`. Only `lhkit serve` writes them: a
# server that a run started for itself ends with the run.


_SAME_START_S = 2.0
"""The kernel tells the moment of the boot in whole seconds, and is asked for it twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that was advertised. `pid` lives as long as it, and began `after_boot_s`.

    `options` are the command line arguments that it was started with, `start_s` how long it took.
    """

    served_name: str
    base_url: str
    model: str
    pid: int
    after_boot_s: float
    options: tuple[str, ...] = ()
    start_s: float | None = None

    @property
    def dtype(self) -> str:
        """The type of number that it computes in; empty if the command line does not tell."""
        return next(filter(None, map(dtype_told, self.options)), "")


async def find_running(
    cache_dir: Path, served_name: str, *, model: Path | None = None, dtype: Dtype | None = None
) -> RunningServer | None:
    """Return the advertised server of that name if it is alive and answers; drop a stale file.

    With `model`, a server of another folder is not it: the weights may have changed since. Nor is,
    with `dtype`, one that computes in another type.
    """
    path = _path(cache_dir, served_name)
    if not path.exists():
        return None
    found = _read(path)
    if found is None or not _alive(found):
        path.unlink(missing_ok=True)
        return None
    if model is not None and found.model != str(model):
        return None
    if dtype is not None and found.dtype != dtype:
        return None
    import aiohttp

    async with aiohttp.ClientSession() as session:
        return found if await answers_health(session, found.base_url) else None


def advertised_at(cache_dir: Path, base_url: str) -> RunningServer | None:
    """Return the advertised server that lives and answers at an address, if it is one of ours."""
    root = base_url.rstrip("/").removesuffix("/v1")
    found = (_read(path) for path in (cache_dir / "servers").glob("*.json"))
    at_address = (each for each in found if each and each.base_url.removesuffix("/v1") == root)
    return next(filter(_alive, at_address), None)


@asynccontextmanager
async def advertised(
    cache_dir: Path, server: LocalServer[ServerPlan]
) -> AsyncIterator[RunningServer]:
    """Let others find `server` for as long as the block lasts."""
    settings = server.settings
    running = RunningServer(
        served_name=settings.served_name,
        base_url=server.base_url,
        model=str(settings.model),
        pid=server.pid,
        after_boot_s=after_boot_s(server.pid),
        options=settings.arguments(server.port),
        start_s=server.start_s,
    )
    path = _path(cache_dir, settings.found_as)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(running), indent=2) + "\n"
    write_whole(path, text.encode())
    try:
        yield running
    finally:
        if _read(path) == running:  # not if a later server took the name
            path.unlink(missing_ok=True)


def after_boot_s(pid: int) -> float:
    """Return when a process began, in seconds since the boot: the clock may be set meanwhile.

    Raises:
        psutil.Error: there is no such process, or it must not be looked at.
    """
    return psutil.Process(pid).create_time() - psutil.boot_time()


def _path(cache_dir: Path, served_name: str) -> Path:
    return cache_dir / "servers" / f"{quote(served_name, safe='')}.json"


def _read(path: Path) -> RunningServer | None:
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return RunningServer(**{**told, "options": tuple(told["options"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _alive(server: RunningServer) -> bool:
    try:
        is_same = abs(after_boot_s(server.pid) - server.after_boot_s) < _SAME_START_S
        return is_same and psutil.Process(server.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
