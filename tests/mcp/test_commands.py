"""Commands with an `mcp:` toolset and a real server."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.harness.results.results import Run
from tests.children import search_paths
from tests.mcp.conftest import START_S

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
FILES_SERVER = shlex.join([sys.executable, str(Path(__file__).with_name("files_server.py"))])

Lhkit = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a declaration of a file server, and what goes with it."""
    words = json.dumps(f"{FILES_SERVER} {{folder}}")
    declared = DECLARATION.format(server=words, start_s=START_S)
    files = {"toml": declared, "yaml": SCENARIOS}
    for ending, text in files.items():
        (tmp_path / f"notes.{ending}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def lhkit(folder: Path) -> Lhkit:
    """Return a function that runs `lhkit` in the folder and returns its output."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lhkit", *words],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def environment(folder: Path) -> dict[str, str]:
    """Return where a command finds what, and nothing of the person's own."""
    kinds = ("DATA", "CACHE", "CONFIG")
    return {
        **search_paths(),
        **{f"LHKIT_{kind}_DIR": str(folder / kind.lower()) for kind in kinds},
        "LHKIT_LOCALE": "en",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
    }


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
