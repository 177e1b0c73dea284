"""docs/own-tools.md: its files are written, its commands run and its chat held."""

import importlib
import textwrap
from pathlib import Path

import pytest
import yaml

import lhkit
from lhkit.models.recorded.scripted import call, say
from tests.docs.pages import ROOT, blocks, missing, run, steps

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs" / "own-tools.md"


def texts(language: str) -> list[str]:
    return [block.text for block in blocks(GUIDE) if block.language == language]


def test_own_tools_page_has_the_tools_that_init_writes() -> None:
    written = (ROOT / "lhkit" / "cli" / "init" / "project" / "tools.py").read_text("utf-8")
    assert "".join("".join(texts("python")).split()) == "".join(written.split())


def test_own_tools_page_console_prints_what_the_page_shows(tmp_path: Path, commands: Path) -> None:
    """Write its files, run its console block; what stands under a command must be in its output."""
    (tmp_path / "shop.py").write_text("\n\n".join(texts("python")), encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(texts("yaml")[0], encoding="utf-8")
    console = steps(GUIDE)
    assert [step.command.split()[:2] for step in console] == [
        ["lhkit", name] for name in ("lint", "eval", "eval", "mutate", "prompt")
    ]
    environment = {"LANG": "C.UTF-8", "COLUMNS": "200", "HOME": str(tmp_path)}
    done = run([step.command for step in console], tmp_path, environment, commands)
    for step, came in zip(console, done, strict=True):
        assert step.shown
        assert missing(step.shown, came.output) is None, (step.command, came.output)
        assert came.code == 0, (step.command, came.output)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "gold-json-shop",
        "silent-json-shop",
    }


@pytest.mark.anyio
async def test_own_tools_page_chat_is_a_panel_over_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("\n\n".join(texts("python")), encoding="utf-8")
    cell = texts("ipython")[0].replace("ChatPanel(model", "return ChatPanel(model")
    cell = cell.replace('locale="en")', 'locale="en", opt_in=True)')
    body = textwrap.indent(cell, "    ")
    (tmp_path / "shop_chat.py").write_text(f"async def cell():\n{body}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    script = [call("add_item", name="bread", quantity=2), say("I added bread.")]

    async def scripted(_address: str) -> lhkit.ScriptedModel:
        return lhkit.ScriptedModel(script)

    monkeypatch.setattr(lhkit, "connect", scripted)
    panel = await importlib.import_module("shop_chat").cell()
    await panel.send("Please add 2 loaves of bread.", answers=[True])
    (saved,) = yaml.safe_load(panel.to_scenario())
    assert saved["world"]["items"] == [{"id": "milk", "quantity": 1}]
    assert saved["final"] == {"items": [{"id": "bread", "quantity": 2}]}
