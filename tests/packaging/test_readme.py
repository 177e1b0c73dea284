"""README's examples run and do what README says."""

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.models.recorded.scripted import say
from lhkit.settings import load_settings
from tests.docs.pages import ROOT, blocks, files, missing, run, steps

README = ROOT / "README.md"
SHOP, PANEL, TOOLS = (block.text for block in blocks(README) if block.language == "python")
EVAL = steps(README)[0]


async def play(code: str, names: dict[str, Any]) -> list[Any]:
    """Run a cell as a notebook does, and return the values of its expression statements."""
    values = []
    for statement in ast.parse(code).body:
        is_shown = isinstance(statement, ast.Expr)
        tree = ast.Expression(statement.value) if is_shown else ast.Module([statement], [])
        mode = "eval" if is_shown else "exec"
        value = eval(compile(tree, "README", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307 - ours
        value = await value if inspect.isawaitable(value) else value
        values += [value] if is_shown else []
    return values


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of README's first screen."""
    for name, text in files(README).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "shop", None)
    del sys.modules["shop"]
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "LHKIT_CACHE_DIR": str(load_settings().cache_dir)}


@pytest.mark.model
@pytest.mark.timeout(600)
def test_readme_eval_prints_what_readme_shows(shop: Path) -> None:
    assert EVAL.command.startswith("lhkit eval shop.yaml")
    (done,) = run([EVAL.command], shop, environment(shop))
    shown = [re.sub(r"\d+\.\d+ s$", "… s", line) for line in EVAL.shown]
    assert missing(shown, done.output) is None, done.output


@pytest.mark.anyio
async def test_readme_calls_return_the_results_in_their_comments(shop: Path) -> None:
    assert (shop / "shop.py").is_file()
    written = re.findall(r"# (Tool\w+\(.*)$", TOOLS, re.MULTILINE)
    results = [str(value) for value in await play(TOOLS, {"lhkit": lhkit})]
    assert len(results) == len(written) == 3
    for result, line in zip(results, written, strict=True):
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
    assert [type(each).__name__ for each in panels] == ["ChatPanel", "ChatPanel"]


def test_readme_scores_are_those_of_the_baseline() -> None:
    text = (ROOT / "evals" / "baselines" / "gemma.md").read_text(encoding="utf-8")
    baseline = text.replace("┃", "│")  # in the table's head
    (rows,) = (step.shown for step in steps(README) if step.command.startswith("make eval"))
    assert [row for row in rows if row != "…" and row not in baseline] == []
