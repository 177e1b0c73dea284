"""House rules that no linter knows: names, module docstrings, the public names."""

import ast
import re
from pathlib import Path

import lhkit

PACKAGE = Path(lhkit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_module_is_an_attic() -> None:
    attics = re.compile(r"utils?|helpers?|common|misc|manager")
    assert [name_of(p) for p in FILES if attics.fullmatch(p.stem)] == []


def test_every_module_says_what_it_is_for() -> None:
    undocumented = [
        name_of(p) for p in FILES if not ast.get_docstring(ast.parse(p.read_text("utf-8")))
    ]
    assert undocumented == []


def test_the_public_door_is_sorted_and_opens() -> None:
    assert lhkit.__all__ == sorted(lhkit.__all__)
    assert [name for name in lhkit.__all__ if not hasattr(lhkit, name)] == []
