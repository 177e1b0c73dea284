"""The examples in README run and return the results shown there."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.locales import load_catalog
from lhkit.models.scripted import say
from tests.docs.pages import ROOT, blocks, steps

README = ROOT / "README.md"
CODE = [block.text for block in blocks(README) if block.language == "python"]
PANEL, TOOLS, CALLS = CODE


async def play(code: str, names: dict[str, Any]) -> list[Any]:
    """Run a cell as a notebook does, and return the values of its bare expressions."""
    values = []
    for statement in ast.parse(code).body:
        is_shown = isinstance(statement, ast.Expr)
        tree = ast.Expression(statement.value) if is_shown else ast.Module([statement], [])
        mode = "eval" if is_shown else "exec"
        value = eval(compile(tree, "README", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307 - ours
        value = await value if inspect.isawaitable(value) else value
        values += [value] if is_shown else []
    return values


@pytest.mark.anyio
async def test_readme_calls_return_the_results_shown() -> None:
    names: dict[str, Any] = {}
    await play(TOOLS, names)
    expected = re.findall(r"^# (Tool\w+\(.*)$", CALLS, re.MULTILINE)
    results = [str(value) for value in await play(CALLS, names)]
    assert len(results) == len(expected) == 3
    for result, line in zip(results, expected, strict=True):
        assert re.fullmatch(re.escape(line).replace("…", ".*"), result)


@pytest.mark.anyio
async def test_readme_panels_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scripted(_address: str) -> lhkit.ScriptedModel:
        return lhkit.ScriptedModel([say("Hello.")])

    for name in ("LHKIT_DATA_DIR", "LHKIT_CONFIG_DIR", "LHKIT_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lhkit, "connect", scripted)
    panels = await play(PANEL, {})
    assert [type(panel).__name__ for panel in panels] == ["ChatPanel", "ChatPanel"]


def test_readme_scores_equal_the_baseline() -> None:
    text = (ROOT / "evals" / "baselines" / "gemma.md").read_text(encoding="utf-8")
    baseline = text.replace("┃", "│")  # of the lines of its head
    (shown,) = (step.shown for step in steps(README) if step.command == "make eval")
    end = len(shown) - shown[::-1].index("…")
    rows = [line for line in shown[:end] if line != "…"]
    last = " ".join(shown[end:])
    assert [row for row in rows if row not in baseline] == []
    total = next(row for row in rows if "total" in row)
    counts = re.search(r"(\d+)/(\d+) .* (\d+) / (\d+) ", total)
    assert counts
    passed, played, _, escaped = counts.groups()
    texts = load_catalog("en")
    why = texts.text("eval.escaped", count=escaped)
    assert last == texts.text("eval.would_stop", passed=passed, valid=played, why=why)
