"""Notebooks reproduce their committed outputs, and nbval detects changes."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.conftest import Nbval, Outcomes

FOLDER = Path(__file__).parents[2] / "notebooks"
TRAINING = FOLDER / "05_finetune.ipynb"
NOTEBOOKS = sorted({*FOLDER.glob("*.ipynb")} - {TRAINING})

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # only for hangs


def change(path: Path, old: str, new: str) -> None:
    """Replace a text in the sources of the cells; it must occur."""
    notebook = nbformat.read(path, as_version=4)
    hits = 0
    for cell in notebook.cells:
        hits += old in cell.source
        cell.source = cell.source.replace(old, new)
    assert hits, f"{path.name} does not contain {old!r}"
    nbformat.write(notebook, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """All notebooks in one run of nbval: the shipped ones, and some that are made here."""

    outcomes: Outcomes
    changed: Path
    unrecorded: Path
    imports: Path


@pytest.fixture(scope="module")
def ran(nbval: Nbval, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("notebooks")
    copies = [shutil.copytree(FOLDER, folder / name) for name in ("changed", "unrecorded")]
    changed, unrecorded = copies[0] / "01_tools_and_gate.ipynb", copies[1] / "00_quickstart.ipynb"
    change(changed, "basket[name] -= count", "basket[name] -= count + 1")
    change(unrecorded, "안녕? 뭘 도와줄 수 있어?", "안녕? 이름이 뭐야?")
    imports = folder / "imports.ipynb"
    cells = [nbformat.v4.new_code_cell("import only_here")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), imports)
    own = folder / "own"
    own.mkdir()
    (own / "only_here.py").write_text("", encoding="utf-8")
    outcomes = nbval(*NOTEBOOKS, changed, unrecorded, imports, python_path=own)
    return Ran(outcomes=outcomes, changed=changed, unrecorded=unrecorded, imports=imports)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_reproduces_its_outputs(path: Path, ran: Ran) -> None:
    assert ran.outcomes.failures(path) == []


@pytest.mark.model
@pytest.mark.nightly
@pytest.mark.usefixtures("base_weights")
def test_training_notebook_reproduces_its_outputs(nbval: Nbval) -> None:
    assert nbval(TRAINING).failures(TRAINING) == []


def test_nbval_uses_the_search_path_of_the_tests(ran: Ran) -> None:
    assert ran.outcomes.failures(ran.imports) == []


def test_nbval_fails_for_a_changed_cell(ran: Ran) -> None:
    assert "'left': 0" in ran.outcomes.failures(ran.changed)[0]


def test_nbval_fails_for_a_request_without_recording(ran: Ran) -> None:
    text = "\n".join(ran.outcomes.failures(ran.unrecorded))
    assert "cassettes/quickstart.jsonl has no answer to this request" in text
    assert "이름이 뭐야?" in text
