"""The tests that SECURITY.md names exist, and every guarantee names one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def names_in(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_test_named_in_security_md_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 10
    assert [f"{file}::{test}" for file, test in named if test not in names_in(file)] == []


def test_every_guarantee_names_its_test() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and "---" not in row]
    assert [row for row in rows[1:] if "::test_" not in row] == []
