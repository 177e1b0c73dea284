"""Commands with an `mcp:` toolset and a real server."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.__main__ import main
from lhkit.harness.results.results import Run
from tests.mcp.conftest import SMALL_SERVER, START_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DECLARATION = """
server = {server}
folder = "/notes"
tools = ["read_text_file", "write_file"]
reads = ["read_text_file"]
start_s = {start_s}
[claims]
write_file = {{en = ["wrote", "saved"]}}
"""
SCENARIOS = """
- id: write-it
  ac: write
  locale: en
  world: {files: [{path: a.txt, text: hello}]}
  turns:
    - user: Save milk in b.txt
      confirm: accept
      expect: {calls: [{tool: write_file, args: {path: /notes/b.txt, content: milk}}], extra: reads}
      reply: {contains_any: [wrote, saved]}
      gold: {say: I saved it.}
  final: {files: [{path: b.txt, text: milk}]}
- id: leave-it
  ac: reject
  locale: en
  world: {files: [{path: a.txt, text: hello}]}
  turns:
    - user: Overwrite a.txt with bye
      confirm: reject
      expect:
        calls: [{tool: write_file, args: {path: /notes/a.txt, content: bye}, result: cancelled}]
      reply: {contains_any: [nothing], claims: none}
      gold: {say: "You cancelled, so nothing was done."}
"""
FILES_SERVER = shlex.join([sys.executable, str(SMALL_SERVER)])

Lhkit = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a declaration of a file server, and what goes with it."""
    words = json.dumps(f"{FILES_SERVER} {{folder}}/no-ledger.txt")
    declared = DECLARATION.format(server=words, start_s=START_S)
    files = {"toml": declared, "yaml": SCENARIOS}
    for ending, text in files.items():
        (tmp_path / f"notes.{ending}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def lhkit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lhkit:
    """Return a function that runs `lhkit` in the folder, with nothing of the person's own."""
    for kind in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"LHKIT_{kind}_DIR", str(folder / kind.lower()))
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.chdir(folder)

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["lhkit", *words])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0

    return run


OWN = ("--toolset", "mcp:notes.toml")


def test_rescore_works_without_the_server(lhkit: Lhkit, folder: Path) -> None:
    lhkit("eval", "notes.yaml", *OWN, "--model", "gold", "--name", "gold")
    changed = SCENARIOS.replace("text: milk}]}", "text: bread}]}")
    (folder / "notes.yaml").write_text(changed, encoding="utf-8")
    lhkit("rescore", "runs/gold", "notes.yaml", *OWN, "--into", "runs/again")
    verdicts = {
        name: {each.sample_id.scenario: each.score.verdict.value for each in run.records}
        for name in ("gold", "again")
        for run in [Run.load(folder / "runs" / name)]
    }
    assert verdicts["gold"] == {"write-it": "pass", "leave-it": "pass"}
    assert verdicts["again"] == {"write-it": "fail", "leave-it": "pass"}
