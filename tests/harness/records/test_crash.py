"""A killed `lhkit eval`: the same command resumes without loss or repetition."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]  # a fixture

pytestmark = pytest.mark.slow

SAMPLES = 60
SCENARIO = """
- id: crash-{n:03}
  ac: AC-{ac}
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: 내 습관 보여 줘, expect: {{calls: [{{tool: list_habits, args: {{}}}}]}}}}]
"""
DYING = """
import os, signal, sys
from lhkit.harness.records.store import Journal
from lhkit.harness.records.record import encode_record
from lhkit.__main__ import main

moment, at = sys.argv.pop(1), int(sys.argv.pop(1))
real, count = Journal.append, 0

def append(self, *records):
    for record in records:
        one(self, record)

def one(self, record):
    global count
    count += 1
    if count < at:
        return real(self, record)
    if moment == "half a line":
        self._file.write(encode_record(record).encode()[:-40])
        self._file.flush()
    if moment == "after":
        real(self, record)
    os.kill(os.getpid(), signal.SIGKILL)

Journal.append = append
main()
"""
TIMES = re.compile(r"\d+\.\d+( s)?|–|(?<=그중 모델 밖 )\d+%")
KILLED = 128 + signal.SIGKILL


class Command:
    """`lhkit eval --model gold` on many scenarios, always the same but for the run's name."""

    def __init__(self, folder: Path, run: Run, python: Path) -> None:
        self.folder = folder
        self._run = run
        self._python = python
        self.scenarios = folder / "scenarios.yaml"
        text = "".join(SCENARIO.format(n=n, ac=1 + n % 3) for n in range(SAMPLES))
        self.scenarios.write_text(text, encoding="utf-8")

    def run(self, name: str) -> tuple[int, str, str]:
        """Run it in this process: exit code, output, and output for people."""
        return self._run(*self._words(name))

    def die(self, name: str, moment: str, at: int) -> subprocess.CompletedProcess[str]:
        """Run it in a process that kills itself at a record."""
        script = self.folder / "dying.py"
        script.write_text(DYING, encoding="utf-8")
        return subprocess.run(
            [self._python, script, moment, str(at), *self._words(name)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def _words(self, name: str) -> list[str]:
        options = f"eval {self.scenarios} --model gold --name {name} --concurrency 4 --details"
        return options.split()

    def records(self, name: str) -> Path:
        return self.folder / "runs" / name / "records.jsonl"

    def whole(self, name: str) -> bytes:
        """Return the complete lines of a run."""
        path = self.records(name)
        data = path.read_bytes() if path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def answered(self, name: str) -> Counter[tuple[str, str, str]]:
        """Return the count of each sample, content hash and verdict in a run."""
        lines = map(json.loads, self.whole(name).splitlines())
        return Counter(
            (line["sample_id"]["scenario"], line["content_hash"], line["score"]["verdict"])
            for line in lines
        )


def table(output: str) -> list[str]:
    """Return the table and the lines below, without times and counts of this invocation."""
    shown = output[output.index("┏") :]
    lines = [TIMES.sub("?", line) for line in shown.splitlines() if "runs/" not in line]
    return [re.sub(r"\s+", " ", re.sub(r"[━─]+", "─", line)) for line in lines]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, commands: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_LOCALE", "ko")
    monkeypatch.delenv("LHKIT_BASE_URL", raising=False)
    return Command(tmp_path, run, commands / "python")


def test_resume_after_kill_during_write(command: Command) -> None:
    whole = b""
    deaths = [("half a line", 17), ("after", 30)]
    for moment, at in deaths:
        died = command.die("r", moment, at)
        assert died.returncode == KILLED, died.stderr
        assert command.whole("r").startswith(whole)
        assert command.whole("r").count(b"\n") == whole.count(b"\n") + at - (moment != "after")
        whole = command.whole("r")
    (code, resumed, _), (plain_code, plain, _) = command.run("r"), command.run("plain")
    assert (code, plain_code) == (0, 0)
    assert command.records("r").read_bytes().startswith(whole)
    assert command.answered("r") == command.answered("plain")
    assert set(command.answered("r").values()) == {1}
    assert len(command.answered("r")) == SAMPLES
    assert table(resumed) == table(plain)
    assert any("AC-1" in line and "20/20" in line for line in table(plain))


def test_second_process_is_refused_until_first_ends(command: Command) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from lhkit.harness.records.store import open_journal\n"
        "with open_journal(Path('runs/r')):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=command.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        code, _, stderr = command.run("r")
        assert (code, command.whole("r")) == (3, b"")
        assert "다른 실행이 쓰고 있습니다" in stderr
        assert "Traceback" not in stderr
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    assert command.run("r")[0] == 0, "a lock must not outlive its process"
