"""LiteRT-LM's own server code, with a stand-in engine, runs scenarios in the dialect `openai`.

pip installs the package `litert-lm` once into an environment in lhkit's cache.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from lhkit.harness.results.results import Run
from lhkit.settings import load_settings

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

VERSION = "0.18.1"
SERVER = Path(__file__).with_name("litert_lm_server.py")
PLAN: Mapping[str, Any] = {
    "Which habits do I have?": [[["list_habits", {}]], "You have no habits yet."],
    "List them twice.": [
        [["list_habits", {}], ["list_habits", {"include_archived": True}]],
        "No habits.",
    ],
    "Tell me a story.": [None],
    "Break.": [{"error": "the cache is full"}],
    "Count from 1 to 50.": [None],
    "ok?": ["yes"] * 9,
    "Call the tool get_time for the city Seoul.": [[["get_time", {"city": "Seoul"}]]],
}
SCENARIOS = """
- id: read
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: Which habits do I have?
      expect: {calls: [{tool: list_habits}]}
      reply: {contains_any: [no habits]}
- id: two
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: List them twice.
      expect: {calls: [{tool: list_habits}], extra: reads}
- id: endless
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: Tell me a story.
      reply: {contains_any: [the end]}
- id: broken
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: Break.
      reply: {contains_any: [never]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server. `log` has what the engine was asked for; `model` is the path of a file."""

    address: str
    model: str
    log: Path

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the Python of an environment with `litert-lm`."""
    folder = load_settings().cache_dir / "tests-litert-lm" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with FileLock(folder / ".lock"):
        if not (folder / "installed").exists():
            for command in (
                [sys.executable, "-m", "venv", str(folder)],
                [str(python), "-m", "pip", "install", "-q", f"litert-lm=={VERSION}"],
            ):
                subprocess.run(command, check=True, timeout=600, capture_output=True)
            (folder / "installed").touch()
    return python


@pytest.fixture
def server(python: Path, tmp_path: Path) -> Iterator[Server]:
    plan, log, model = (
        tmp_path / "plan.json",
        tmp_path / "log",
        tmp_path / "functiongemma-270m.litertlm",
    )
    plan.write_text(json.dumps(PLAN), encoding="utf-8")
    model.touch()
    process = subprocess.Popen(
        [python, SERVER, plan, log],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"LITERT_LM_DIR": str(tmp_path / "home"), "HOME": str(tmp_path)},
    )
    with process:
        assert process.stdout is not None
        address = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        yield Server(address=address, model=str(model), log=log)
        process.terminate()


def lhkit(folder: Path, *args: str) -> tuple[int, str]:
    """Run a command; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "lhkit", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_scenarios_run_on_the_server_of_litert_lm(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    (tmp_path / "four.yaml").write_text(SCENARIOS, encoding="utf-8")
    at = ("--base-url", server.address, "--model", server.model)
    run = ("--name", "phone", "--max-tokens", "48")
    code, output = lhkit(tmp_path, "eval", "four.yaml", *at, *run)
    assert code == 3, output  # a sample is invalid
    records = {
        record.sample_id.scenario: record for record in Run.load(tmp_path / "runs/phone").records
    }
    verdicts = {name: record.score.verdict for name, record in records.items()}
    assert verdicts == {
        "read": "pass",
        "two": "pass",
        "endless": "fail",
        "broken": "invalid",
    }, output
    asked = [request for request in server.requests if request["tools"]]
    # one request finds the dialect, one warms up; the rest is the run
    assert [request["limit"] for request in asked[:2]] == [256, 1]
    assert {request["limit"] for request in asked[2:]} == {48}
    [endless] = records["endless"].trajectory.turns[0].model_calls
    assert (endless.response.truncated, endless.response.usage.completion_tokens) == (True, 48)
    assert "the cache is full" in str(records["broken"])
    results = [m for each in asked for m in each["messages"] if m["role"] == "tool"]
    assert results[0]["content"][0]["name"] == "list_habits"


def test_doctor_checks_the_server_of_litert_lm(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    code, output = lhkit(tmp_path, "doctor", "--base-url", server.address, "--model", server.model)
    assert code == 0, output
    assert "keeps to the output limit" in output
    assert "does not obey `tool_choice: required`" in output
    code, output = lhkit(tmp_path, "doctor", "--base-url", server.address, "--model", "other")
    assert code == 3
    assert "Model other not found" in output
