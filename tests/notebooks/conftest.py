"""Run nbval as CI does: outputs compared, with a new user's environment."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.models.weights.weights import ensure_weights
from lhkit.settings import load_settings
from tests.children import LOAD_NBVAL, search_paths

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
CELL_TIMEOUT_S = 3600  # only for hangs

Nbval = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
async def base_weights(anyio_backend: str) -> Path:  # noqa: ARG001 - requests the event loop
    """Return the embedded base model, created before the time of a cell starts."""
    return await ensure_weights(load_settings().cache_dir)


@pytest.fixture
def nbval(tmp_path: Path) -> Nbval:
    """Return a function that runs a notebook and compares its outputs with the committed ones."""

    def run(
        notebook: Path, *, timeout_s: int = CELL_TIMEOUT_S
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
        command += ["--rootdir", str(notebook.parent), "-n0", "-p", "no:cacheprovider", "-vv"]
        command += [*LOAD_NBVAL, "--nbval", "--nbval-current-env"]
        command += [f"--nbval-cell-timeout={timeout_s}"]
        command += ["--timeout", "0"]  # nbval limits the cells, the outer test limits the whole
        command += ["--nbval-sanitize-with", str(FOLDER / "sanitize.cfg"), str(notebook)]
        return subprocess.run(
            command, env=_environment(tmp_path), capture_output=True, text=True, check=False
        )

    return run


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a new user, without the settings of the current one.

    Only the cache is shared: its weights take minutes to create.
    """
    return {
        "HOME": str(home / ".home"),
        "IPYTHONDIR": str(home / ".ipython"),
        "LANG": "ko_KR.UTF-8",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        "LHKIT_CONFIG_DIR": str(home / ".lhkit"),
        **search_paths(),
    }


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Return a copy of the notebooks and their cassettes."""
    return shutil.copytree(FOLDER, tmp_path / "notebooks")
