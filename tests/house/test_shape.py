"""House rules that no linter knows: sizes, names, boundaries, the public door."""

import ast
import re
from pathlib import Path

import pytest

import lhkit

PACKAGE = Path(lhkit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

BOUNDARIES = {
    "chat/controller.py": 2,  # the model's stream; a subscriber
    "chat/step.py": 1,  # a schema that its validator cannot use
    "confirm/gate.py": 1,  # a gate that waits for a person
    "confirm/summary.py": 2,  # a tool's own summary; values that break when they are read
    "harness/plan.py": 1,  # an assistant's context lines
    "harness/run.py": 1,  # one sample
    "imports/bfcl.py": 1,  # BFCL's own methods, through lhkit and without
    "imports/tau.py": 1,  # tau-bench's own functions
    "mcp/connection.py": 2,  # what a stranger's server makes the SDK raise, at the start and later
    "mcp/promise.py": 1,  # a stranger's schema of results, and results
    "scale.py": 1,  # Ray, which is started here
    "tools/dispatcher.py": 3,  # arguments that may be any object; their validation; the handler
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how long a function's body is, without its documentation and the functions inside it.

    A list of parameters is no reason to split a function.
    """
    documented = len((ast.get_docstring(function, clean=False) or "").splitlines())
    first, last = function.body[0].lineno, function.end_lineno or function.lineno
    inner = [n for n in function.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    within = sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in inner)
    return last - first + 1 - documented - within


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_function_has_at_most_60_lines(path: Path) -> None:
    assert {f.name: lines_of(f) for f in functions(path) if lines_of(f) > 60} == {}


def test_no_module_is_an_attic() -> None:
    attics = re.compile(r"utils?|helpers?|common|misc|manager")
    assert [name_of(p) for p in FILES if attics.fullmatch(p.stem)] == []


def test_broad_excepts_are_the_counted_boundaries() -> None:
    counted = {name_of(p): p.read_text(encoding="utf-8").count("noqa: BLE001") for p in FILES}
    assert {name: n for name, n in counted.items() if n} == BOUNDARIES


def test_every_module_says_what_it_is_for() -> None:
    undocumented = [
        name_of(p) for p in FILES if not ast.get_docstring(ast.parse(p.read_text("utf-8")))
    ]
    assert undocumented == []


def test_the_public_door_is_sorted_and_opens() -> None:
    assert lhkit.__all__ == sorted(lhkit.__all__)
    assert [name for name in lhkit.__all__ if not hasattr(lhkit, name)] == []


def test_a_class_name_has_one_meaning() -> None:
    where: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(name_of(path))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}
