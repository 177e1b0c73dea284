"""Run nbval as CI does: outputs compared, with a new user's environment."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from lhkit.models.weights.weights import ensure_weights
from lhkit.settings import load_settings
from tests.children import LOAD_NBVAL, search_paths

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
CELL_TIMEOUT_S = 3600  # only for hangs

PYTEST = """
import sys
import pytest
from tests.kernels import fork_kernels
fork_kernels("altair", "lhkit.reports", "lhkit.scripted", "mcp.server.mcpserver")
sys.exit(pytest.main())
"""
"""Pytest, whose kernels are forks of one process, which saves seconds for each notebook."""

Nbval = Callable[..., "Outcomes"]


class Outcomes:
    """What nbval found in notebooks: the reports of their cells."""

    def __init__(self, report: Path, output: str) -> None:
        self._report = report
        self._output = output

    def failures(self, notebook: Path) -> list[str]:
        """Return why cells failed, in order; a notebook that was not run to its end fails."""
        assert self._report.exists(), self._output
        name = str(notebook).strip("/").replace("/", ".")
        every = ElementTree.parse(self._report).iter("testcase")  # noqa: S314 - pytest's own
        cells = [cell for cell in every if cell.attrib["classname"].startswith(name)]
        source = nbformat.read(notebook, as_version=4).cells
        assert len(cells) == sum(cell.cell_type == "code" for cell in source), self._output
        return [f"{cell.attrib['name']}: {''.join(cell.itertext())}" for cell in cells if len(cell)]


@pytest.fixture(scope="session")
async def base_weights(anyio_backend: str) -> Path:  # noqa: ARG001 - requests the event loop
    """Return the embedded base model, created before the time of a cell starts."""
    return await ensure_weights(load_settings().cache_dir)


@pytest.fixture(scope="module")
def nbval(tmp_path_factory: pytest.TempPathFactory) -> Nbval:
    """Return a function that runs notebooks and compares their outputs with the committed ones."""

    def run(
        *notebooks: Path, python_path: Path | None = None, timeout_s: int = CELL_TIMEOUT_S
    ) -> Outcomes:
        home = tmp_path_factory.mktemp("home")
        report = home / "report.xml"
        command = [sys.executable, "-c", PYTEST, "-c", str(ROOT / "pyproject.toml")]
        command += ["--rootdir", "/", "-n0", "-p", "no:cacheprovider", "-vv"]
        command += [*LOAD_NBVAL, "--nbval", "--nbval-current-env", f"--junitxml={report}"]
        command += [f"--nbval-cell-timeout={timeout_s}"]
        command += ["--timeout", "0"]  # nbval limits the cells, the outer test limits the whole
        command += ["--nbval-sanitize-with", str(FOLDER / "sanitize.cfg"), *map(str, notebooks)]
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment(home, python_path),
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcomes(report, ran.stdout + ran.stderr)

    return run


def _environment(home: Path, python_path: Path | None) -> dict[str, str]:
    """Return the environment of a new user, without the settings of the current one.

    Only the cache is shared: its weights take minutes to create.
    """
    paths = search_paths()
    if python_path is not None:
        folders = [str(python_path), *filter(None, [paths.get("PYTHONPATH")])]
        paths["PYTHONPATH"] = os.pathsep.join(folders)
    return {
        "HOME": str(home / ".home"),
        "IPYTHONDIR": str(home / ".ipython"),
        "LANG": "ko_KR.UTF-8",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        "LHKIT_CONFIG_DIR": str(home / ".lhkit"),
        **paths,
    }
