"""Committed notebooks have complete outputs, which nbval does not check: it passes missing ones."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CASSETTES = sorted((FOLDER / "cassettes").glob("*.jsonl"))

MAX_NOTEBOOK_BYTES = 500_000
MAX_CASSETTE_BYTES = 2_000_000
UNRUN = {"nbval-skip", "raises-exception", "nbval-raises-exception"}
UNCOMPARED = {"nbval-ignore-output"} | UNRUN
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|private|var|opt)/\w")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tree_of(cell: NotebookNode) -> ast.Module:
    source = TransformerManager().transform_cell(cell.source)  # magics become calls
    return compile(source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def shows_something(cell: NotebookNode) -> bool:
    """Return whether the last line is an expression or a print, so that there is an output."""
    last = tree_of(cell).body[-1]
    return isinstance(last, ast.Expr) and not isinstance(last.value, ast.Await)


def texts(value: Any) -> Iterator[str]:
    """Yield all strings in an output."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def find_issues(notebook: NotebookNode) -> list[str]:
    """Return the reasons why a notebook must not be committed."""
    issues = []
    cells = code_cells(notebook)
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        issues.append("not run from top to bottom")
    for number, cell in enumerate(cells, 1):
        if shows_something(cell) and not cell.outputs:
            issues.append(f"cell {number}: its output is missing")
        if any(output.output_type == "error" for output in cell.outputs):
            issues.append(f"cell {number}: its output is an error")
        if MACHINE_PATH.search("\n".join(texts(cell.outputs))):
            issues.append(f"cell {number}: its output contains a local path")
        ignored = UNCOMPARED & set(cell.metadata.get("tags", ()))
        if ignored and not cell.metadata.get("reason"):
            issues.append(
                f"cell {number}: its output is not compared, and metadata.reason is empty"
            )
    if "widgets" in notebook.metadata:
        issues.append("contains the state of widgets")
    return issues


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_with_all_outputs(path: Path) -> None:
    assert find_issues(read(path)) == []
    assert path.stat().st_size <= MAX_NOTEBOOK_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_skips_no_cell_and_catches_no_error(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert not UNRUN & set(cell.metadata.get("tags", ()))
        assert not any(isinstance(node, ast.Try) for node in ast.walk(tree_of(cell)))


def test_cassettes_are_used_small_and_without_local_paths() -> None:
    used = set(re.findall(r"cassettes/(\w+\.jsonl)", "\n".join(map(str, map(read, NOTEBOOKS)))))
    assert used == {path.name for path in CASSETTES}
    for path in CASSETTES:
        assert path.stat().st_size <= MAX_CASSETTE_BYTES, path.name
        assert not MACHINE_PATH.search(path.read_text(encoding="utf-8")), path.name
