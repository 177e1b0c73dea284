"""docs/own-tools.md: its files are written, its commands run and its chat held."""

import importlib
import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

import lhkit
from lhkit.models.recorded.scripted import call, say
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs" / "own-tools.md"


def texts(language: str) -> list[str]:
    return [block.text for block in blocks(GUIDE) if block.language == language]


PLAYER = """
import json, sys
from lhkit.__main__ import main

for sys.argv in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as left:
        print(f"<exit {left.code or 0}>", flush=True)
"""
"""Run several commands in one process, so that packages are loaded once."""


def test_own_tools_page_has_the_tools_that_init_writes() -> None:
    written = (ROOT / "lhkit" / "cli" / "init" / "project" / "tools.py").read_text("utf-8")
    assert "".join("".join(texts("python")).split()) == "".join(written.split())


def test_own_tools_page_console_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Write its files, run its console block; what stands under a command must be in its output."""
    (tmp_path / "shop.py").write_text("\n\n".join(texts("python")), encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(texts("yaml")[0], encoding="utf-8")
    steps = [part.splitlines() for part in texts("console")[0][2:].split("\n$ ")]
    commands = [shlex.split(step[0]) for step in steps]
    assert [words[:2] for words in commands] == [
        ["lhkit", name] for name in ("lint", "eval", "eval", "mutate", "prompt")
    ]
    done = subprocess.run(
        [sys.executable, "-c", PLAYER, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "LHKIT_LOCALE": "en"},  # noqa: TID251 - for the child
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = done.stdout.split("<exit 0>\n")
    assert len(outputs) == len(steps) + 1, done.stdout + done.stderr
    for (_, *promised), shown in zip(steps, outputs, strict=False):
        assert promised
        assert [line for line in promised if line not in shown] == []
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
