"""A local server as a child of ours: started, watched, and ended whatever happens to us.

It listens on 127.0.0.1 only and reports to nobody. Speaking to it is the business of `transport`,
finding one that somebody else started that of `running_servers`.
"""

import asyncio
import errno
import os
import re
import signal
import socket
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from lhkit.errors import MissingPackageError, ServerStartError, SetupError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan(ABC):
    """How a server of one model is started; a class of its own for each engine.

    `engine` is its name for people, `package` what Python imports of it. `model` is the folder or
    file of weights, `weights_sha256` the hash that the server reports by an alias, `port` None a
    free one. `grace_s` is how long it is given to end by itself.
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
    def found_as(self) -> str:
        """What a server is found by that `lhkit serve` keeps."""
        return self.served_name

    @abstractmethod
    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the variables that are set for the server."""

    @abstractmethod
    def missing(self) -> MissingPackageError:
        """Return what to raise where the engine is not installed."""


class LocalServer:
    """`async with LocalServer(plan) as server:` serves at `server.base_url` until the end.

    The process tree ends with the block, and also if this process is killed outright.
    """

    def __init__(self, settings: ServerPlan, *, report: StartReport = silent) -> None:
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
        """The process that lives exactly as long as the server; 0 before the start."""
        return self._reaper.pid if self._reaper else 0

    @property
    def running(self) -> bool:
        """False before the start and as soon as the server has ended, for whatever reason."""
        return self._reaper is not None and self._reaper.returncode is None

    async def __aenter__(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            MissingPackageError: if the engine is not installed.
            ServerStartError: if the port is taken, the server dies or does not answer in time.
        """
        self.port = _port_for(self.settings.port)
        self.settings.log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._reaper = await self._spawn()
            if self._reaper.stdin is not None:  # from here on we can end it, so it may begin
                self._reaper.stdin.write(b"\n")
            await self._until_ready(self._reaper)
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

    async def _until_ready(self, reaper: Process) -> None:
        """Wait until it answers."""
        import aiohttp

        loop = asyncio.get_running_loop()
        began_s = loop.time()
        log = self.settings.log_path
        async with aiohttp.ClientSession() as session:
            while not await answers_health(session, self.base_url):
                elapsed_s = loop.time() - began_s
                if elapsed_s > self.settings.start_timeout_s:
                    raise ServerStartError(
                        f"{self.settings.engine} was not ready after {elapsed_s:.0f} s "
                        f"(last: {last_stage(log)}); "
                        f"give it more time, or read {log}."
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
                    raise self._start_fault(reaper.returncode)

    def _start_fault(self, exit_code: int) -> SetupError:
        line = telling_line(self.settings.log_path)
        if f"No module named '{self.settings.package}'" in line:
            return self.settings.missing()
        if "ddress already in use" in line:
            return _port_fault(self.port)
        return ServerStartError(
            f"{self.settings.engine} ended while it was starting (exit {exit_code}): {line} - the "
            f"whole log is in {self.settings.log_path}."
        )

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


def _port_fault(port: int) -> ServerStartError:
    return ServerStartError(
        f"Port {port} on {HOST} is in use; give another with --port, or none to take a free one."
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
