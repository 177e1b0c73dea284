"""A local server as a child of ours: started, watched, and ended whatever happens to us.

It listens on 127.0.0.1 only and reports to nobody. Speaking to it is the business of `transport`,
finding one that somebody else started that of `running_servers`.
"""

import asyncio
import errno
import os
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
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

from lhkit.errors import MissingPackageError, ServerStartError, SetupError
from lhkit.models.server_log import last_stage, telling_line

if TYPE_CHECKING:
    import aiohttp

HOST = "127.0.0.1"

_REAPER = Path(__file__).parent / "server_reaper.py"
_POLL_S = 0.1
_HEALTH_TIMEOUT_S = 5.0
_REAPER_MARGIN_S = 15.0


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

    `engine` is its name for people, `package` what Python imports of it.
    """

    engine: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, settings: Plan_co, *, report: StartReport = silent) -> None:
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
            MissingPackageError: if vLLM is not installed.
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
