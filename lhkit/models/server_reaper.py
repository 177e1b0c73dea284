"""A script: run a server as a child and end its whole process tree when the owner goes away.

The owner holds the other end of our standard input. A first line on it says that the owner knows
us, and only then the server is started. When it closes (the owner left, crashed or was killed)
every process that descends from us is ended. Standard library and psutil only: it must start at
once and outlive anything that the owner breaks.

    python server_reaper.py LOG_PATH GRACE_S COMMAND [ARGUMENT …]

Exit code: the server's own if it ended by itself, 0 if we ended it, 127 if it could not start.
"""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

_POLL_S = 0.2
_KILL_ROUNDS = 10
_TRACKER_ROUNDS = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1


class _Ended(Exception):  # noqa: N818 - a signal that asks us to stop is no error
    """We were asked to stop by a signal."""


def main(log_path: Path, grace_s: float, command: Sequence[str]) -> int:
    """Run `command` with its output in `log_path` until it or the owner ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _on_term)
    _adopt_orphans()
    owner = os.getppid()
    if not os.read(sys.stdin.fileno(), 1):
        return 0
    with log_path.open("wb") as log:
        try:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_us,  # noqa: PLW1509 - one thread, and no lock is held
            )
        except OSError as error:
            log.write(f"OSError: {error}\n".encode())
            return 127
    try:
        _wait_for_an_end(server, owner)
    except _Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = server.poll()
        left = end_descendants(grace_s)
        if left:
            with log_path.open("ab") as log:
                log.write(f"lhkit: still there after SIGKILL: {left}\n".encode())
    return 0 if code is None else code


def _on_term(*_: object) -> None:
    raise _Ended


def _adopt_orphans() -> None:
    """Make a grandchild whose parent died our child, so that it can be found (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_us() -> None:
    """Have the kernel kill the server if we are killed, as Ray does to its workers' children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_for_an_end(server: "subprocess.Popen[bytes]", owner: int) -> None:
    """Return when the server has ended, our input has closed, or the owner is no longer there."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while server.poll() is None and os.getppid() == owner:
            if selector.select(_POLL_S) and not os.read(sys.stdin.fileno(), 1024):
                return


def end_descendants(grace_s: float) -> list[psutil.Process]:
    """Ask every descendant of this process to end, and kill what is left after `grace_s`.

    Returns what even that did not end: only the kernel can hold a process so.
    """
    myself = psutil.Process()
    asked = myself.children(recursive=True)
    for process in asked:
        _signal(process, signal.SIGTERM)
    psutil.wait_procs(asked, timeout=grace_s)
    for turn in range(_KILL_ROUNDS):  # more than one: a process may fork while it is being killed
        left = myself.children(recursive=True)
        if not left:
            return []
        for process in left:
            if turn >= _TRACKER_ROUNDS or not _frees_memory(process):
                _signal(process, signal.SIGKILL)
        psutil.wait_procs(left, timeout=0.5)
    return myself.children(recursive=True)


def _frees_memory(process: psutil.Process) -> bool:
    """Tell Python's resource tracker: left alone, it unlinks the shared memory of the killed."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
