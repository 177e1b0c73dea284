"""The promises in `promises.toml` and the marks of the tests match."""

import ast
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


def promised() -> set[str]:
    tables = tomllib.loads((TESTS / "promises.toml").read_text(encoding="utf-8"))
    return {f"{table}.{key}" for table, entries in tables.items() for key in entries}


def named_in_tests() -> set[str]:
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                named |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return named


def test_every_promise_has_a_test() -> None:
    assert promised() - named_in_tests() == set()


def test_every_tested_promise_is_in_the_manifest() -> None:
    assert named_in_tests() - promised() == set()
