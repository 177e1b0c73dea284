"""Notebooks reproduce their committed outputs, and nbval detects changes."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
TRAINING = FOLDER / "05_finetune.ipynb"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.ipynb") if path != TRAINING)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # only for hangs

Nbval = Callable[..., "CompletedProcess[str]"]


def change(path: Path, old: str, new: str, *, in_output: bool = False) -> None:
    """Replace a text in the sources or the outputs of the cells; it must occur."""
    notebook = nbformat.read(path, as_version=4)
    hits = 0
    for cell in notebook.cells:
        if not in_output:
            hits += old in cell.source
            cell.source = cell.source.replace(old, new)
            continue
        for output in cell.get("outputs", ()):
            hits += old in output.get("text", "")
            if "text" in output:
                output["text"] = output["text"].replace(old, new)
    assert hits, f"{path.name} does not contain {old!r}"
    nbformat.write(notebook, path)


def require_all_passed(ran: "CompletedProcess[str]", path: Path) -> None:
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    cells = nbformat.read(path, as_version=4).cells
    code = sum(cell.cell_type == "code" for cell in cells)
    assert f"{code} passed" in ran.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_reproduces_its_outputs(path: Path, nbval: Nbval) -> None:
    require_all_passed(nbval(path), path)


@pytest.mark.model
@pytest.mark.nightly
@pytest.mark.usefixtures("base_weights")
def test_training_notebook_reproduces_its_outputs(nbval: Nbval) -> None:
    require_all_passed(nbval(TRAINING), TRAINING)


def test_nbval_uses_the_search_path_of_the_tests(
    tmp_path: Path, nbval: Nbval, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "only_here.py").write_text("", encoding="utf-8")
    cells = [nbformat.v4.new_code_cell("import only_here")]
    path = tmp_path / "imports.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    monkeypatch.setenv("PYTHONPATH", str(own))
    require_all_passed(nbval(path), path)


def test_nbval_fails_for_a_changed_output(copies: Path, nbval: Nbval) -> None:
    path = copies / "01_tools_and_gate.ipynb"
    change(path, "'left': 1", "'left': 7", in_output=True)
    ran = nbval(path)
    assert ran.returncode == 1
    assert "1 failed" in ran.stdout


def test_nbval_fails_for_a_changed_cell(copies: Path, nbval: Nbval) -> None:
    path = copies / "01_tools_and_gate.ipynb"
    change(path, "basket[name] -= count", "basket[name] -= count + 1")
    ran = nbval(path)
    assert ran.returncode == 1
    assert "'left': 0" in ran.stdout


def test_nbval_fails_for_a_request_without_recording(copies: Path, nbval: Nbval) -> None:
    path = copies / "00_quickstart.ipynb"
    change(path, "안녕? 뭘 도와줄 수 있어?", "안녕? 이름이 뭐야?")
    ran = nbval(path)
    assert ran.returncode == 1
    assert "cassettes/quickstart.jsonl has no answer to this request" in ran.stdout
    assert "이름이 뭐야?" in ran.stdout
