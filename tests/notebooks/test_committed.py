"""What nbval cannot see: a stripped notebook, an output that nobody compares, a path of a machine.

nbval passes a notebook without outputs, so each must be whole before it is compared.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
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
    return compile(cell.source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def shows_something(cell: NotebookNode) -> bool:
    """Return True if the last line is a value or a print: then there is an output."""
    last = tree_of(cell).body[-1]
    return isinstance(last, ast.Expr) and not isinstance(last.value, ast.Await)


def texts(value: Any) -> Iterator[str]:
    """Yield every text in an output."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def faults(notebook: NotebookNode) -> list[str]:
    """Return why a notebook must not be committed as it is."""
    found = []
    cells = code_cells(notebook)
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        found.append("not run from top to bottom in one go")
    for number, cell in enumerate(cells, 1):
        if shows_something(cell) and not cell.outputs:
            found.append(f"cell {number}: its output is missing")
        if any(output.output_type == "error" for output in cell.outputs):
            found.append(f"cell {number}: its output is an error")
        if MACHINE_PATH.search("\n".join(texts(cell.outputs))):
            found.append(f"cell {number}: its output names a path of a machine")
        ignored = UNCOMPARED & set(cell.metadata.get("tags", ()))
        if ignored and not cell.metadata.get("reason"):
            found.append(f"cell {number}: its output is not compared, and metadata.reason is empty")
    if "widgets" in notebook.metadata:
        found.append("holds the state of widgets")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_whole(path: Path) -> None:
    assert faults(read(path)) == []
    assert path.stat().st_size <= MAX_NOTEBOOK_BYTES


def strip(notebook: NotebookNode) -> None:
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def drop_outputs(notebook: NotebookNode) -> None:
    code_cells(notebook)[-1].outputs = []


def run_a_cell_again(notebook: NotebookNode) -> None:
    code_cells(notebook)[1].execution_count = 99


def fail(notebook: NotebookNode) -> None:
    error = nbformat.v4.new_output("error", ename="KeyError", evalue="'우유'", traceback=[])
    code_cells(notebook)[1].outputs = [error]


def name_a_path(notebook: NotebookNode) -> None:
    warning = nbformat.v4.new_output("stream", name="stderr", text="/tmp/ipykernel_7/1.py:1: oh")  # noqa: S108 - what a warning says
    code_cells(notebook)[1].outputs.append(warning)


def ignore(notebook: NotebookNode) -> None:
    code_cells(notebook)[1].metadata["tags"] = ["nbval-ignore-output"]


def keep_widgets(notebook: NotebookNode) -> None:
    notebook.metadata["widgets"] = {}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (strip, "not run from top to bottom in one go"),
        (drop_outputs, "its output is missing"),
        (run_a_cell_again, "not run from top to bottom in one go"),
        (fail, "its output is an error"),
        (name_a_path, "names a path of a machine"),
        (ignore, "its output is not compared"),
        (keep_widgets, "holds the state of widgets"),
    ],
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_spoiled_notebook_is_refused(
    path: Path, spoil: Callable[[NotebookNode], None], fault: str
) -> None:
    notebook = read(path)
    spoil(notebook)
    assert fault in "\n".join(faults(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_nothing_but_the_tool_that_it_shows(path: Path) -> None:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    for cell in code_cells(read(path)):
        for node in ast.walk(tree_of(cell)):
            if isinstance(node, definitions):
                assert isinstance(node, ast.FunctionDef)
                assert ast.unparse(node.decorator_list[0]).startswith("registry.tool(")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_leaves_no_cell_out_and_catches_no_fault(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert not UNRUN & set(cell.metadata.get("tags", ()))
        assert not any(isinstance(node, ast.Try) for node in ast.walk(tree_of(cell)))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_speaks_korean_first_and_english(path: Path) -> None:
    words = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    for text in words:
        korean, english = (
            re.search(r"[가-힣]{2,}", text),
            re.search(r"[A-Za-z]{3,} [a-z]{2,}", text),
        )
        assert korean, text
        assert english, text
        assert korean.start() < english.start()


def test_every_cassette_is_played_and_small_and_names_no_path() -> None:
    played = set(re.findall(r"cassettes/(\w+\.jsonl)", "\n".join(map(str, map(read, NOTEBOOKS)))))
    assert played == {path.name for path in CASSETTES}
    for path in CASSETTES:
        assert path.stat().st_size <= MAX_CASSETTE_BYTES, path.name
        assert not MACHINE_PATH.search(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_one_setting_at_the_top_chooses_between_a_recording_and_a_server(path: Path) -> None:
    first, *rest = (cell.source for cell in code_cells(read(path)))
    if "CassetteModel" in first:
        assert "\nLIVE = False  # or " in first
        assert not any("CassetteModel" in source for source in rest)
