"""A script: run a server, and end its process tree when the owner exits.

The owner writes to the script's standard input. The server is started after the first line. When
the input closes (the owner exited, crashed or was killed), every descendant process is ended.
Standard library and psutil only, so that it starts quickly and does not depend on the owner.

    python server_reaper.py LOG_PATH GRACE_S COMMAND [ARGUMENT …]

Exit code: the server's own if it exited, 0 if the script ended it, 127 if it could not start.
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


class _Terminated(Exception):  # noqa: N818 - a control signal, not an error
    """The script received SIGTERM."""


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
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread, and no lock is held
            )
        except OSError as error:
            log.write(f"OSError: {error}\n".encode())
            return 127
    try:
        _wait_for_end(server, owner)
    except _Terminated:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = server.poll()
        remaining = end_descendants(grace_s)
        if remaining:
            with log_path.open("ab") as log:
                log.write(f"lhkit: still alive after SIGKILL: {remaining}\n".encode())
    return 0 if code is None else code


def _on_term(*_: object) -> None:
    raise _Terminated


def _adopt_orphans() -> None:
    """Become the parent of orphaned grandchildren, so that they can be found (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """Have the kernel kill the server if the script is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_for_end(server: "subprocess.Popen[bytes]", owner: int) -> None:
    """Wait until the server exits, the input closes, or the owner is gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while server.poll() is None and os.getppid() == owner:
            if selector.select(_POLL_S) and not os.read(sys.stdin.fileno(), 1024):
                return


def end_descendants(grace_s: float) -> list[psutil.Process]:
    """Terminate every descendant of this process, and kill the rest after `grace_s`.

    Returns:
        Processes that survived SIGKILL, which are blocked in the kernel.
    """
    parent = psutil.Process()
    descendants = parent.children(recursive=True)
    for process in descendants:
        _signal(process, signal.SIGTERM)
    psutil.wait_procs(descendants, timeout=grace_s)
    for turn in range(_KILL_ROUNDS):  # more than one: a process may fork while it is being killed
        remaining = parent.children(recursive=True)
        if not remaining:
            return []
        for process in remaining:
            if turn >= _TRACKER_ROUNDS or not _is_resource_tracker(process):
                _signal(process, signal.SIGKILL)
        psutil.wait_procs(remaining, timeout=0.5)
    return parent.children(recursive=True)


def _is_resource_tracker(process: psutil.Process) -> bool:
    """Return True for Python's resource tracker, which frees shared memory."""
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
