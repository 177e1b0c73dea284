"""Scripts beside the package, which mypy does not read, follow its names."""

import ast
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file
    for folder in ("evals", "notebooks", "requirements")
    for file in (ROOT / folder).rglob("*.py")
)


def _ours(file: Path) -> Iterator[tuple[str, str]]:
    """Yield what a script imports from lhkit: module and name, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lhkit":
            yield from ((node.module or "", each.name) for each in node.names)


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_script_imports_from_lhkit_is_there(file: Path) -> None:
    for module, name in _ours(file):
        there = hasattr(importlib.import_module(module), name)
        assert there or find_spec(f"{module}.{name}") is not None, f"{module} has no {name}"
