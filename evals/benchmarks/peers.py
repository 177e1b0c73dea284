"""Run scripts of peer packages, each in its own virtual environment.

An environment is pinned by `requirements-NAME.txt` and created in the user's cache; a change of the
pins creates a new one. The scripts do not import lhkit and print one JSON object per line.
"""

import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

HERE = Path(__file__).parent
INSPECT, PYDANTIC_EVALS = "inspect", "pydantic-evals"
ROTEL = "rotel"


def peer_python(name: str) -> Path:
    """Return the Python of a peer's environment; creating it takes a while.

    Raises:
        subprocess.CalledProcessError: uv could not install the pins.
    """
    requirements = HERE / f"requirements-{name}.txt"
    pins = requirements.read_bytes()
    folder = user_cache_path("lhkit") / "benchmarks" / hashlib.sha256(pins).hexdigest()[:12]
    python, finished = folder / "bin" / "python", folder / "installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # another process may be creating it
        if not finished.exists():
            print(f"creating {folder} for {name}", file=sys.stderr)
            venv.create(folder, clear=True)
            install = [
                sys.executable,
                "-m",
                "uv",
                "pip",
                "install",
                "--quiet",
                "--python",
                str(python),
            ]
            subprocess.run([*install, "--no-deps", "-r", str(requirements)], check=True)
            finished.touch()
    return python


def run_script(python: Path | str, script: str, *args: str) -> list[dict[str, Any]]:
    """Run a script of this folder with `python`, and return the JSON objects that it prints.

    Raises:
        subprocess.CalledProcessError: the script failed; see its standard error.
    """
    command = [str(python), str(HERE / script), *args]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lines = process.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]  # others are log lines
