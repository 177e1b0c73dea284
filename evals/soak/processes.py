"""The processes of a soak: started with a mark in their environment, so that none is overlooked.

Linux only: `/proc` and `/dev/shm` are read.
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "SOAK_OF_LHKIT"  # not LHKIT_…: that prefix is for settings
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at, nothing is put there
MIB = 1024 * 1024

_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where the processes of one soak live; `mark` tells them from all others."""

    folder: Path
    mark: str
    variables: Mapping[str, str]

    async def start(self, command: Sequence[str], *, errors: Path, talks: bool = False) -> Process:
        """Start a command in the folder; what it complains of goes to the file `errors`."""
        with errors.open("wb") as complaints:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                env={**self.variables, MARK: self.mark},
                stdin=PIPE if talks else DEVNULL,
                stdout=PIPE if talks else DEVNULL,
                stderr=complaints,
            )

    def marked(self) -> Iterator[psutil.Process]:
        """Yield every living process that was started here, or by one that was."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = process.environ().get(MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descends from it; nothing if it is gone."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def resident_mib(processes: Sequence[psutil.Process]) -> float:
    """Return the memory that some processes do not share with anybody, in MiB."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().uss
    return total / MIB


async def gone(processes: Sequence[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Wait until some processes have ended; return those that have not."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while left := [each for each in processes if _lives(each)]:
        if loop.time() > until:
            return left
        await asyncio.sleep(_POLL_S)
    return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def is_command(process: psutil.Process, word: str) -> bool:
    """Return whether a process is `python -m lhkit WORD …`."""
    return command_of(process)[3:4] == [word]


def command_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; nothing if it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(process: psutil.Process | Process) -> None:
    """Send SIGKILL; a process that is gone already is gone.

    Not by `process.kill`: asyncio's would reap a child that has just ended, and whoever waits for
    it would be told 255 in place of its exit code.
    """
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


def shared_memory() -> frozenset[str]:
    """Return the names in `/dev/shm` that no living process has open or mapped."""
    names = {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()
    return frozenset(names - _held()) if names else frozenset()


def _held() -> set[str]:
    held: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            held |= {_name(line) for line in maps.read_text("utf-8", "replace").splitlines()}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            held.add(_name(str(descriptor.readlink())))
    return held


def _name(text: str) -> str:
    return text.partition(f"{SHARED_MEMORY}/")[2]
