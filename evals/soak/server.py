"""The server of a soak: a real `lhkit serve`, killed at any of its processes and started again."""

import asyncio
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
import psutil
from log import Log
from processes import Surroundings, command_of, family, gone, kill, resident_mib, shared_memory

from lhkit.models.serving import HOST, answers_health

_START_S = 900.0
_END_S = 120.0
_POLL_S = 0.5


def _vllm(tree: Sequence[psutil.Process]) -> Sequence[psutil.Process]:
    """Return vLLM's own processes: not `lhkit serve`, nor its watcher, nor Python's tracker."""
    behind = [each for each in tree[2:] if "resource_tracker" not in " ".join(command_of(each))]
    return behind or tree


class Server:
    """`lhkit serve --weights FOLDER --port PORT`, as long as the block lasts."""

    def __init__(self, around: Surroundings, log: Log, *, weights: Path, port: int) -> None:
        self.base_url = f"http://{HOST}:{port}"
        self.up = asyncio.Event()
        self._around = around
        self._log = log
        self._command = (
            *(sys.executable, "-m", "lhkit", "serve"),
            *("--weights", str(weights), "--port", str(port)),
        )
        self._shared = shared_memory()
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            RuntimeError: it does not come up.
        """
        errors = self._around.folder / "serve.err"
        self._process = await self._around.start(self._command, errors=errors)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with aiohttp.ClientSession() as session:
            while not await answers_health(session, f"{self.base_url}/v1"):
                if self._process.returncode is not None or loop.time() > began_s + _START_S:
                    raise RuntimeError(f"no server: {errors.read_text('utf-8')[-500:]}")
                await asyncio.sleep(_POLL_S)
        self._log.did("server started")
        self.up.set()

    async def killed(self, rng: random.Random) -> None:
        """Kill one process of the server's tree, or ask it to end, and see all of it go."""
        if self._process is None:
            return
        tree = family(self._process.pid)
        whose = rng.choice(("lhkit serve", "vLLM", "vLLM", "asked to end"))
        self.up.clear()
        if whose == "asked to end":
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        elif whose == "lhkit serve":
            kill(self._process)
        else:
            kill(rng.choice(_vllm(tree)))
        self._log.did(
            f"server: {whose}" if whose == "asked to end" else f"server: SIGKILL of {whose}"
        )
        left = await gone(tree, _END_S)
        self._log.held(
            "no orphan processes", [f"{each} lives on" for each in left], where=f"server, {whose}"
        )
        code = await self._process.wait()
        expected = {"asked to end": 0, "lhkit serve": -signal.SIGKILL, "vLLM": 3}[whose]
        faults = [] if code == expected else [f"{code} instead of {expected}"]
        self._log.held("exit code of the server", faults, where=f"server, {whose}")
        self._check_shared_memory(f"server, {whose}")

    def _check_shared_memory(self, where: str) -> None:
        left = sorted(shared_memory() - self._shared)
        self._log.held("nothing left in /dev/shm", left, where=where)

    def weigh(self) -> None:
        """Note the memory of the whole tree."""
        if self._process is not None and self.up.is_set():
            self._log.weighed("server, all its processes", resident_mib(family(self._process.pid)))

    async def end(self) -> None:
        """End the server and all of it, however it is."""
        if self._process is not None and self._process.returncode is None:
            tree = family(self._process.pid)
            self._process.terminate()
            left = await gone(tree, _END_S)
            self._log.held("no orphan processes", map(str, left), where="the end")
            for process in left:
                kill(process)
            await self._process.wait()
        self._check_shared_memory("the end")
