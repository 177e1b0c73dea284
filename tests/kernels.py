"""Kernels without a new interpreter for each: forks of a process that has loaded most of lhkit.

A fork is a process of its own like any kernel, and saves seconds. How a real one starts is for
`tests/notebook/test_kernel.py`.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from typing import IO, Any

from jupyter_client.provisioning import local_provisioner

MODULES = (
    *("ipykernel.ipkernel", "ipykernel.kernelapp", "lhkit.app", "lhkit.toolset", "lhkit.testing"),
    *("lhkit.chat.assistant", "lhkit.harness.authoring.from_chat", "lhkit.harness.chats.reviews"),
    *("lhkit.harness.results.compare", "lhkit.lifehelper.toolset", "lhkit.mcp.connection"),
    *("lhkit.models.client.served", "lhkit.models.recorded.scripted"),
    *("lhkit.notebook.panel.export", "lhkit.notebook.panel.render"),
)
"""What notebooks load, without ipywidgets, which looks for its kernel when it is imported."""


class ForkedKernel:
    """What a kernel manager needs of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return 0 if it has ended, whatever its exit code was."""
        return 0 if select.select([self._end], [], [], 0)[0] else None

    def wait(self) -> int:
        """Wait for its end."""
        select.select([self._end], [], [])
        return 0

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def fork_kernels(*more: str) -> None:
    """Let this process, such as JupyterLab or nbval, start its kernels as forks.

    `more` are modules that its notebooks load besides.
    """
    forks = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve()", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert forks.stdin is not None
    assert forks.stdout is not None
    requests, pids = forks.stdin, forks.stdout

    def launch(cmd: list[str], *, env: dict[str, str], cwd: str, **_: Any) -> ForkedKernel:
        requests.write(json.dumps([cmd, env, cwd]).encode() + b"\n")
        requests.flush()
        return ForkedKernel(int(pids.readline()))

    local_provisioner.launch_kernel = launch  # type: ignore[assignment] - as is its result


def serve() -> None:
    """Start a kernel for each line of the standard input, until that is closed."""
    for name in (*MODULES, *sys.argv[1:]):
        importlib.import_module(name)
    warm()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    parent = {"JPY_PARENT_PID": str(os.getpid())}  # a kernel ends with its parent
    with os.fdopen(os.dup(0), "rb") as requests:
        for request in requests:
            if os.fork() == 0:
                words, environment, folder = json.loads(request)
                _become(words, environment | parent, folder, requests)
                return


def warm() -> None:
    """Read texts and tools, which each kernel would read from the same files."""
    from lhkit.base.locales import available_locales, load_catalog
    from lhkit.lifehelper.toolset import registry_of

    for locale in available_locales():
        load_catalog(locale)
        registry_of(locale)


def _become(
    words: list[str], environment: dict[str, str], folder: str, requests: IO[bytes]
) -> None:
    """Be the kernel that a command would start: `python -m MODULE OPTIONS`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # before it is known: a signal to it goes to its group
    os.write(1, b"%d\n" % os.getpid())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, requests.fileno()):
        os.dup2(nothing, stream)
    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - for the fork
    os.environ.update(environment)  # noqa: TID251
    sys.argv[:] = words[2:]
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)
