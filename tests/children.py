"""What a command that a test starts keeps of the environment, where it gets a new one."""

import os
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
