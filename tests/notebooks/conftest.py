"""nbval as CI runs it: outputs compared, in an environment of its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.models.weights import ensure_weights
from lhkit.settings import load_settings
from tests.children import search_paths

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
CELL_TIMEOUT_S = 3600  # against a hang only

Nbval = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
async def base_weights(anyio_backend: str) -> Path:  # noqa: ARG001 - asks for the loop it runs on
    """The embedded base model, made before a cell's time begins."""
    return await ensure_weights(load_settings().cache_dir)


@pytest.fixture
def nbval(tmp_path: Path) -> Nbval:
    """Return a function that runs a notebook and compares what it shows with what it showed."""

    def run(
        notebook: Path, *, timeout_s: int = CELL_TIMEOUT_S
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
        command += ["--rootdir", str(notebook.parent), "-n0", "-p", "no:cacheprovider", "-vv"]
        command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={timeout_s}"]
        command += ["--timeout", "0"]  # the limit of a cell is nbval's, that of the whole ours
        command += ["--nbval-sanitize-with", str(FOLDER / "sanitize.cfg"), str(notebook)]
        return subprocess.run(
            command, env=_environment(tmp_path), capture_output=True, text=True, check=False
        )

    return run


def _environment(home: Path) -> dict[str, str]:
    """Return no setting of the user: language, folders and agreements are those of a new one.

    Only the cache is the user's: the weights in it take minutes to make.
    """
    return {
        "HOME": str(home / ".home"),
        "IPYTHONDIR": str(home / ".ipython"),
        "LANG": "C.UTF-8",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        "LHKIT_CONFIG_DIR": str(home / ".lhkit"),
        **search_paths(),
    }


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """The notebooks and their cassettes, to be changed."""
    return shutil.copytree(FOLDER, tmp_path / "notebooks")
