"""Children of a test: what they keep of its environment, and one that has to die."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def search_paths() -> dict[str, str]:
    """Return where commands and modules are found: the child runs the lhkit that the tests run.

    `PYTHONPATH` is no setting of the user's taste: without it a child of tests of another checkout
    would quietly test what is installed.
    """
    kept = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    told = os.environ.get("PYTHONPATH", "")  # noqa: TID251 - for the child
    places = [str(Path(place).absolute()) for place in told.split(os.pathsep) if place]
    return kept | ({"PYTHONPATH": os.pathsep.join(places)} if places else {})


def run_to_its_death(script: str, *args: str, folder: Path) -> None:
    """Run Python that ends itself by SIGKILL, in a folder."""
    died = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=folder,
        env=search_paths(),
        check=False,
        capture_output=True,
        timeout=300,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
