"""Start, monitor and stop local model servers, and find running ones.

A server is a child process that listens on 127.0.0.1 only. `server_reaper` ends its process tree,
even if this process is killed. `lhkit serve` registers its server by a small file per served name
in `<cache_dir>/servers/`; a server that a run starts for itself ends with the run.
"""

import asyncio
import errno
import json
import os
import random
import re
import signal
import socket
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from urllib.parse import quote

import psutil

from lhkit.base.errors import MissingPackageError, ServerStartError, SetupError
from lhkit.base.files import write_atomically
from lhkit.models.client.identity import parse_dtype_alias
from lhkit.models.precision import Dtype

if TYPE_CHECKING:
    import aiohttp

HOST = "127.0.0.1"

_REAPER = Path(__file__).parent / "server_reaper.py"
_POLL_S = 0.1
_HEALTH_TIMEOUT_S = 5.0
_REAPER_MARGIN_S = 15.0
_TAIL_BYTES = 128 * 1024
_READ_CHARACTERS = 1000
_LINE_CHARACTERS = 300
_SAME_START_S = 2.0
"""Tolerance of start times: the kernel reports the boot time in whole seconds."""

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
_SECONDARY = re.compile(  # reports only that something else failed, earlier in the log
    r"See (root cause|stack trace)|EngineDeadError|resource_tracker|validation errors? for"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """Progress of a server's start: elapsed seconds and the last logged stage."""

    elapsed_s: float
    stage: str
    log_path: Path
    engine: str = "vLLM"


StartReport: TypeAlias = Callable[[StartProgress], None]


def ignore_start_progress(progress: StartProgress) -> None:
    """Do nothing with a progress report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan(ABC):
    """How to start a server of one model; each engine has a subclass.

    Args:
        engine: name of the engine for people.
        package: Python module of the engine.
        model: folder or file of the weights.
        served_name: name of the model.
        log_path: file for the server's output.
        port: None takes a free one.
        start_timeout_s: limit for the start.
        grace_s: time for the server to stop by itself before it is killed.
        python: interpreter that runs the server.
        weights_sha256: hash of the weights, which the server reports by an alias.
    """

    engine: ClassVar[str]
    package: ClassVar[str]

    model: Path
    served_name: str
    log_path: Path
    port: int | None = None
    start_timeout_s: float = 600.0
    grace_s: float = 5.0
    python: str = sys.executable
    weights_sha256: str = ""

    @property
    def registered_name(self) -> str:
        """The name under which `lhkit serve` registers the server."""
        return self.served_name

    @abstractmethod
    def arguments(self, port: int) -> tuple[str, ...]:
        """Return the arguments of `python` on the command line."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the server's environment variables."""

    def started_dtype(self) -> str:
        """Return the number type of the started server, from its log; empty if unknown."""
        return ""

    @abstractmethod
    def missing(self) -> MissingPackageError:
        """Return the exception for a missing engine."""


class LocalServer:
    """A server as a child process: `async with LocalServer(plan) as server: …`.

    It serves at `server.base_url` until the end of the block. Its process tree ends with the
    block, even if this process is killed.
    """

    def __init__(
        self, settings: ServerPlan, *, report: StartReport = ignore_start_progress
    ) -> None:
        self.settings = settings
        self.port = 0
        self._report = report
        self._reaper: Process | None = None

    @property
    def base_url(self) -> str:
        """The address of the OpenAI-compatible API, with `/v1`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def pid(self) -> int:
        """Id of a process that lives as long as the server; 0 before the start."""
        return self._reaper.pid if self._reaper else 0

    @property
    def running(self) -> bool:
        """Whether the server has started and not ended."""
        return self._reaper is not None and self._reaper.returncode is None

    async def __aenter__(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            MissingPackageError: the engine is not installed.
            ServerStartError: the port is in use, or the server ends or does not answer in time.
        """
        self.port = _find_port(self.settings.port)
        self.settings.log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._reaper = await self._spawn()
            if self._reaper.stdin is not None:  # it can be stopped from now on, so it may start
                self._reaper.stdin.write(b"\n")
            await self._wait_until_ready(self._reaper)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server and every process it started."""
        await self._stop()

    async def _spawn(self) -> Process:
        settings = self.settings
        variables = [f"{name}={value}" for name, value in settings.environment().items()]
        server = ("env", *variables, settings.python, *settings.arguments(self.port))
        reaper = (sys.executable, "-P", str(_REAPER), str(settings.log_path), str(settings.grace_s))
        return await asyncio.create_subprocess_exec(
            *reaper, *server, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )

    async def _wait_until_ready(self, reaper: Process) -> None:
        import aiohttp

        loop = asyncio.get_running_loop()
        began_s = loop.time()
        log = self.settings.log_path
        async with aiohttp.ClientSession() as session:
            while not await is_healthy(session, self.base_url):
                elapsed_s = loop.time() - began_s
                if elapsed_s > self.settings.start_timeout_s:
                    raise ServerStartError(
                        f"{self.settings.engine} was not ready after {elapsed_s:.0f} s "
                        f"(last stage: {last_stage(log)}); give it more time, or read {log}."
                    )
                self._report(
                    StartProgress(
                        elapsed_s=elapsed_s,
                        stage=last_stage(log),
                        log_path=log,
                        engine=self.settings.engine,
                    )
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(reaper.wait(), _POLL_S)
                if reaper.returncode is not None:
                    raise self._start_error(reaper.returncode)

    def _start_error(self, exit_code: int) -> SetupError:
        line = last_error_line(self.settings.log_path)
        if f"No module named '{self.settings.package}'" in line:
            return self.settings.missing()
        if "ddress already in use" in line:
            return _port_in_use(self.port)
        return ServerStartError(
            f"{self.settings.engine} ended while it was starting (exit {exit_code}): {line} - the "
            f"whole log is in {self.settings.log_path}."
        )

    async def _stop(self) -> None:
        """Close the reaper's input, which ends the process tree; kill the rest."""
        reaper, self._reaper = self._reaper, None
        if reaper is None:
            return
        if reaper.stdin is not None:
            reaper.stdin.close()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(reaper.wait(), self.settings.grace_s + _REAPER_MARGIN_S)
        finally:  # the remains of a reaper that was itself killed are in its process group
            with suppress(ProcessLookupError):
                os.killpg(reaper.pid, signal.SIGKILL)


async def is_healthy(session: "aiohttp.ClientSession", base_url: str) -> bool:
    """Return whether a server at `base_url` reports that it is ready."""
    import aiohttp

    url = base_url.removesuffix("/v1") + "/health"
    timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
    try:
        async with session.get(url, timeout=timeout, allow_redirects=False) as response:
            return response.status == HTTPStatus.OK
    except (aiohttp.ClientError, TimeoutError):
        return False


_PORTS = range(20_000, 32_768)
"""Below the ports that systems give out, of which one could be taken while a model loads."""


def _find_port(port: int | None) -> int:
    """Return an unused port: the given one, or any."""
    if port is not None:
        return _probe_port(port)
    for candidate in random.sample(_PORTS, 100):
        with suppress(ServerStartError):
            return _probe_port(candidate)
    return _probe_port(0)


def _probe_port(port: int) -> int:
    """Return an unused port: the given one, or any for 0.

    vLLM does not check: it shares a port that is in use (SO_REUSEPORT).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _port_in_use(port) from error
            raise ServerStartError(
                f"Port {port} cannot be used ({error.strerror}); give another with --port."
            ) from error
        return int(probe.getsockname()[1])


def _port_in_use(port: int) -> ServerStartError:
    return ServerStartError(
        f"Port {port} on {HOST} is in use; give another with --port, or none to take a free one."
    )


def last_stage(log_path: Path) -> str:
    """Return the last stage of a start, from the server's log."""
    for line in reversed(_read_tail(log_path)):
        for marker, stage in _STAGES:
            if marker in line:
                return stage
    return _FIRST_STAGE


def last_error_line(log_path: Path) -> str:
    """Return the last error in a log, or its last line."""
    stripped = (_strip_prefix(line[:_READ_CHARACTERS]) for line in _read_tail(log_path))
    lines = list(filter(None, stripped))
    causes = [line for line in lines if _CAUSE.search(line) and not _SECONDARY.search(line)]
    return (causes or lines or ["the log is empty"])[-1][:_LINE_CHARACTERS]


def _strip_prefix(line: str) -> str:
    """Return a line without vLLM's prefixes of process and time."""
    shorter = _PREFIX.sub("", line.strip())
    return shorter if shorter == line else _strip_prefix(shorter)


def _read_tail(log_path: Path) -> list[str]:
    try:
        with log_path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A registered server.

    Args:
        served_name: name of the model.
        base_url: address with `/v1`.
        model: folder or file of the weights.
        pid: process that lives as long as the server.
        after_boot_s: start time of that process, in seconds since boot.
        options: command-line arguments of the server.
        logged_dtype: number type in the server's log.
    """

    served_name: str
    base_url: str
    model: str
    pid: int
    after_boot_s: float
    options: tuple[str, ...] = ()
    logged_dtype: str = ""

    @property
    def dtype(self) -> str:
        """The number type of the server; empty if unknown."""
        return next(filter(None, map(parse_dtype_alias, self.options)), self.logged_dtype)


async def find_running_server(
    cache_dir: Path, served_name: str, *, model: Path | None = None, dtype: Dtype | None = None
) -> RunningServer | None:
    """Return a registered server if it is ready; delete a stale registration.

    Args:
        cache_dir: lhkit's cache.
        served_name: its registered name.
        model: ignore a server of another folder or file.
        dtype: ignore a server of another number type.
    """
    path = _registration_path(cache_dir, served_name)
    if not path.exists():
        return None
    server = _read_registration(path)
    if server is None or not _is_alive(server):
        path.unlink(missing_ok=True)
        return None
    if model is not None and server.model != str(model):
        return None
    if dtype is not None and server.dtype != dtype:
        return None
    import aiohttp

    async with aiohttp.ClientSession() as session:
        return server if await is_healthy(session, server.base_url) else None


@asynccontextmanager
async def register_server(cache_dir: Path, server: LocalServer) -> AsyncIterator[RunningServer]:
    """Register a server, so that other processes find it, until the end of the block."""
    settings = server.settings
    running = RunningServer(
        served_name=settings.served_name,
        base_url=server.base_url,
        model=str(settings.model),
        pid=server.pid,
        after_boot_s=after_boot_s(server.pid),
        options=settings.arguments(server.port),
        logged_dtype=await asyncio.to_thread(settings.started_dtype),
    )
    path = _registration_path(cache_dir, settings.registered_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(running), indent=2) + "\n"
    write_atomically(path, text.encode())
    try:
        yield running
    finally:
        if _read_registration(path) == running:  # not if a later server took the name
            path.unlink(missing_ok=True)


def after_boot_s(pid: int) -> float:
    """Return the start time of a process in seconds since boot.

    Changes of the clock do not affect it.

    Raises:
        psutil.Error: there is no such process, or it is not accessible.
    """
    return psutil.Process(pid).create_time() - psutil.boot_time()


def _registration_path(cache_dir: Path, served_name: str) -> Path:
    return cache_dir / "servers" / f"{quote(served_name, safe='')}.json"


def _read_registration(path: Path) -> RunningServer | None:
    try:
        record: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return RunningServer(**{**record, "options": tuple(record["options"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_alive(server: RunningServer) -> bool:
    try:
        has_same_start = abs(after_boot_s(server.pid) - server.after_boot_s) < _SAME_START_S
        return has_same_start and psutil.Process(server.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
