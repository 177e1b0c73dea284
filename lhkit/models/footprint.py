"""What a server of ours takes: how long it started, its memory at most, the size of its weights.

Memory is that of the engine's own processes, looked at while somebody asks it: the kernel keeps no
peak of several processes together. Pages that they share count once where the system tells (Linux).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import psutil

from lhkit.responses import Footprint

FootprintSource: TypeAlias = Callable[[], Footprint]
"""Tells what a server has taken until now."""

LOOK_S = 0.5
"""Between two looks at the memory."""


@asynccontextmanager
async def watched(
    pid: int, *, weights: Path, start_s: float | None = None
) -> AsyncIterator[FootprintSource]:
    """Yield what tells how much a server has taken; it is looked at until the end of the block.

    Args:
        pid: the process that started the server and is none of its own (`LocalServer.pid`).
        weights: the folder or file that it serves.
        start_s: how long it took to start, in seconds, if somebody knows.
    """
    size = await asyncio.to_thread(weights_bytes, weights)
    cores, seen = _cores(pid), _Seen()
    await seen.look(pid)
    looking = asyncio.create_task(seen.keep_looking(pid))
    try:
        yield lambda: Footprint(
            start_s=start_s, memory_bytes=seen.peak, weights_bytes=size, cores=cores
        )
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


class _Seen:
    """The most memory that was seen, in bytes; None until some was."""

    def __init__(self) -> None:
        self.peak: int | None = None

    async def look(self, pid: int) -> None:
        now = await asyncio.to_thread(memory_bytes, pid)
        self.peak = max(filter(None, (self.peak, now)), default=None)

    async def keep_looking(self, pid: int) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look(pid)


def memory_bytes(pid: int) -> int | None:
    """Return what all that descends from a process has in memory; None where nobody may know."""
    total = 0
    try:
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                told = each.memory_full_info()
                total += getattr(told, "pss", told.rss)
    except psutil.Error:
        return None
    return total or None


def weights_bytes(weights: Path) -> int | None:
    """Return the size of a file of weights, or of all in a folder; None if there are none."""
    try:
        if weights.is_file():
            return weights.stat().st_size
        return sum(each.stat().st_size for each in weights.glob("*.safetensors")) or None
    except OSError:
        return None


def _cores(pid: int) -> int | None:
    """Return on how many processors a process and its children may compute."""
    try:
        return len(psutil.Process(pid).cpu_affinity() or ()) or None
    except (psutil.Error, AttributeError):  # macOS has no such thing
        return None
