"""A real `lhkit eval` that is killed: the same command again loses nothing and repeats nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SAMPLES = 120
SCENARIO = """
- id: crash-{n:03}
  ac: AC-{ac}
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: 내 습관 보여 줘, expect: {{calls: [{{tool: list_habits, args: {{}}}}]}}}}]
"""
DYING = """
import os, signal, sys
from lhkit.harness.store import Journal
from lhkit.harness.record import encode_record
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
KILLED = -signal.SIGKILL


class Command:
    """`lhkit eval --model gold` on many scenarios, always the same but for the run's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenarios = folder / "scenarios.yaml"
        text = "".join(SCENARIO.format(n=n, ac=1 + n % 3) for n in range(SAMPLES))
        self.scenarios.write_text(text, encoding="utf-8")

    def line(self, name: str, *python: str) -> list[str]:
        start = python or ("-m", "lhkit")
        options = f"eval {self.scenarios} --model gold --name {name} --concurrency 4"
        return [sys.executable, *start, *options.split()]

    def run(self, name: str, *python: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.line(name, *python),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            self.line(name),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def records(self, name: str) -> Path:
        return self.folder / "runs" / name / "records.jsonl"

    def whole(self, name: str) -> bytes:
        """Return the complete lines of a run."""
        path = self.records(name)
        data = path.read_bytes() if path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def answered(self, name: str) -> Counter[tuple[str, str, str]]:
        """Return how often each sample, by content hash, stands in a run, with its verdict."""
        lines = map(json.loads, self.whole(name).splitlines())
        return Counter(
            (line["sample_id"]["scenario"], line["content_hash"], line["judgement"]["verdict"])
            for line in lines
        )


def table(output: str) -> list[str]:
    """Return the table and what stands below, without times and how much this invocation played."""
    shown = output[output.index("┏") :]
    lines = [TIMES.sub("?", line) for line in shown.splitlines() if "runs/" not in line]
    return [re.sub(r"\s+", " ", re.sub(r"[━─]+", "─", line)) for line in lines]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_LOCALE", "ko")
    monkeypatch.delenv("LHKIT_BASE_URL", raising=False)
    return Command(tmp_path)


def bar_updates(process: subprocess.Popen[bytes], n: int) -> None:
    """Wait until the progress bar was drawn `n` times, or the process is gone."""
    assert process.stderr is not None
    for _ in range(n):
        if not os.read(process.stderr.fileno(), 65536):
            return


@pytest.mark.promise("eval.killed")
def test_killed_inside_the_write_of_a_record_nothing_is_lost_and_nothing_runs_twice(
    command: Command,
) -> None:
    whole = b""
    deaths = [("half a line", 1), ("before", 2), ("half a line", 17), ("after", 30), ("before", 1)]
    for moment, at in deaths:
        died = command.run("r", "-c", DYING, moment, str(at))
        assert died.returncode == KILLED, died.stderr
        assert command.whole("r").startswith(whole)
        assert command.whole("r").count(b"\n") == whole.count(b"\n") + at - (moment != "after")
        whole = command.whole("r")
    resumed, plain = command.run("r"), command.run("plain")
    assert (resumed.returncode, plain.returncode) == (0, 0)
    assert command.records("r").read_bytes().startswith(whole)
    assert command.answered("r") == command.answered("plain")
    assert set(command.answered("r").values()) == {1}
    assert len(command.answered("r")) == SAMPLES
    assert table(resumed.stdout) == table(plain.stdout)
    assert any("AC-1" in line and "40/40" in line for line in table(plain.stdout))


@pytest.mark.promise("eval.killed")
def test_killed_from_outside_at_any_moment_the_same_command_finishes_the_run(
    command: Command,
) -> None:
    whole = b""
    for updates in (1, 2, 3):
        with command.started("r") as process:
            bar_updates(process, updates)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert command.whole("r").startswith(whole)
        whole = command.whole("r")
    done = command.run("r")
    assert done.returncode == 0, done.stderr
    assert command.records("r").read_bytes().startswith(whole)
    assert set(command.answered("r").values()) == {1}
    assert len(command.answered("r")) == SAMPLES


def test_a_changed_scenario_is_played_again_and_nothing_else_is(command: Command) -> None:
    assert command.run("r").returncode == 0
    before = command.whole("r")
    text = command.scenarios.read_text(encoding="utf-8")
    command.scenarios.write_text(text.replace("내 습관", "나의 습관", 1), encoding="utf-8")
    again = command.run("r")
    assert again.returncode == 0
    added = command.whole("r").removeprefix(before).splitlines()
    assert [json.loads(line)["sample_id"]["scenario"] for line in added] == ["crash-000"]
    assert re.search(rf"runs/r .*\b1\D+{SAMPLES - 1}\D", again.stdout.replace("\n", " "))


def test_a_second_process_on_one_run_is_told_so_and_touches_nothing(command: Command) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from lhkit.harness.store import open_journal\n"
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
        second = command.run("r")
        assert (second.returncode, command.whole("r")) == (3, b"")
        assert "in use by another run" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    assert command.run("r").returncode == 0, "a lock must not outlive its process"
