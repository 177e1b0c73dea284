"""Child processes of tests: their environment, and one that kills itself."""

import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

LOAD_NBVAL = ("-p", "lhkit.tools.json_schema", "-p", "nbval.plugin")
"""Options of pytest: jsonschema without the grammar that it compiles for seconds, then nbval."""


def search_paths() -> dict[str, str]:
    """Return the search paths for commands and modules, so that a child runs the same lhkit.

    Without `PYTHONPATH`, a child of tests in another checkout would
    test the installed package.
    """
    paths = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    python_path = os.environ.get("PYTHONPATH", "")  # noqa: TID251 - for the child
    folders = [str(Path(part).absolute()) for part in python_path.split(os.pathsep) if part]
    return paths | ({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})


def unused_port() -> int:
    """Return a port for a server that starts later.

    Neither the system nor another of up to eight workers gives it to other tests in the meantime.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8  # noqa: TID251 - of xdist
    for port in random.sample(range(20_000 + worker, 32_768, 8), 100):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no unused port")


def run_to_its_death(script: str, *args: str, folder: Path) -> None:
    """Run a Python script that kills itself by SIGKILL."""
    process = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=folder,
        env=search_paths(),
        check=False,
        capture_output=True,
        timeout=300,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
