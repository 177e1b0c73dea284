"""Every fault of docs/faults.md names a test, and every test that it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def names_in(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_every_test_that_the_page_of_faults_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 30
    assert [f"{file}::{test}" for file, test in named if test not in names_in(file)] == []


def test_every_fault_says_what_happened_and_names_a_test() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and "---" not in row]
    faults = [row for row in rows if not row.startswith("| fault ")]
    assert faults
    assert [row for row in faults if row.count(" | ") != 2 or "::test_" not in row] == []
