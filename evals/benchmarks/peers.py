"""The peers that lhkit is measured beside or has to get on with, each in an environment of its own.

An environment is pinned by `requirements-NAME.txt`, and made once, in the user's cache, and again
whenever the pins change. The peers' scripts import nothing of lhkit: they print one JSON object a
line.
"""

import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

HERE = Path(__file__).parent
INSPECT, PYDANTIC_EVALS = "inspect", "pydantic-evals"
ROTEL = "rotel"


def peer_python(name: str) -> Path:
    """Return the Python of a peer's environment; making it takes up to a minute.

    Raises:
        subprocess.CalledProcessError: pip could not install the pins.
    """
    requirements = HERE / f"requirements-{name}.txt"
    pins = requirements.read_bytes()
    folder = user_cache_path("lhkit") / "benchmarks" / hashlib.sha256(pins).hexdigest()[:12]
    python, finished = folder / "bin" / "python", folder / "installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # another process may be making it
        if not finished.exists():
            print(f"making {folder} for {name}", file=sys.stderr)
            venv.create(folder, with_pip=True, clear=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*pip, "--no-deps", "-r", str(requirements)], check=True)
            finished.touch()
    return python


def told_by(python: Path | str, script: str, *args: str) -> list[dict[str, Any]]:
    """Return the JSON objects that a script of this folder prints, run by `python`.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    return objects(_output([str(python), str(HERE / script), *args]))


def _output(line: Sequence[str]) -> str:
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def objects(output: str) -> list[dict[str, Any]]:
    """Return the JSON objects in `output`, one a line; other lines are the peer's chatter."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
