"""The quickstart against the real Gemma: every cell runs; what the model says is not compared."""

import shutil
import sys
from pathlib import Path

import anyio
import nbformat
import pytest

from lhkit.models.base import ChatModel
from tests.children import LOAD_NBVAL

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).parents[2]
OFFLINE = "LIVE = False"


async def test_quickstart_notebook_runs_on_gemma(gemma: ChatModel, tmp_path: Path) -> None:
    path = Path(shutil.copy(ROOT / "notebooks" / "00_quickstart.ipynb", tmp_path))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert OFFLINE in code[0].source
    code[0].source = code[0].source.replace(OFFLINE, f'LIVE = "{gemma.identity.base_url}"')
    nbformat.write(notebook, path)  # without cassettes beside it
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(tmp_path), "-n0", "-p", "no:cacheprovider", "-q"]
    command += [*LOAD_NBVAL, "--nbval-lax", "--nbval-current-env"]
    command += ["--nbval-cell-timeout=300", str(path)]
    ran = await anyio.run_process(command, check=False)
    shown = ran.stdout.decode()
    assert ran.returncode == 0, shown[-5000:] + ran.stderr.decode()[-2000:]
    assert f"{len(code)} passed" in shown
