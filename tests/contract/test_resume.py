"""A run that is killed goes on where it was: no answer is lost and none is asked for twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lhkit

SCENARIO = """
- id: look-{n:02}
  ac: AC-1
  locale: en
  turns: [{{user: look, expect: {{calls: [{{tool: look, args: {{n: {n}}}}}]}}}}]
"""
TOOLS = """
import os
import signal
from pathlib import Path

import lhkit

tools = lhkit.ToolRegistry()
looked = Path(__file__).with_name("looked.txt")


@tools.tool()
def look(n: int) -> dict:
    "Look at a number."
    with looked.open("a") as file:
        file.write(f"{n}\\n")
    if len(looked.read_text().split()) == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": n}
"""


@pytest.mark.slow
def test_eval_resumes_after_kill_9(tmp_path: Path) -> None:
    scenarios = tmp_path / "look.yaml"
    scenarios.write_text("".join(SCENARIO.format(n=n) for n in range(12)), encoding="utf-8")
    tools = tmp_path / "looking.py"
    tools.write_text(TOOLS, encoding="utf-8")
    command = [sys.executable, "-m", "lhkit", "eval", str(scenarios), "--model", "gold"]
    options = ["--toolset", f"{tools}:tools", "--name", "killed", "--concurrency", "1"]

    def run() -> int:
        return subprocess.run(
            [*command, *options],
            cwd=tmp_path,
            env={**os.environ, "LHKIT_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            check=False,
        ).returncode

    assert run() == -signal.SIGKILL
    assert run() == 0
    again = (tmp_path / "looked.txt").read_text(encoding="utf-8").split()
    completed = [n for n in map(int, again) if n != 7]  # the one it was killed in is repeated
    assert sorted(completed) == [n for n in range(12) if n != 7]
    assert again.count("7") == 2
    folder = tmp_path / "runs" / "killed"
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").split("\n")
    ids = [json.loads(line)["sample_id"]["scenario"] for line in lines if line]
    assert sorted(ids) == [f"look-{n:02}" for n in range(12)]
    frame = lhkit.Run.load(folder).scenarios
    assert frame.verdict.tolist() == ["pass"] * 12
