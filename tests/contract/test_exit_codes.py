"""Exit codes: 0 fine, 1 finding, 2 misuse, 3 infrastructure, 4 cannot tell, 130 interrupted."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Lhkit = Callable[..., tuple[int, str]]

SCENARIO = """
- id: list-en
  ac: AC-5
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: which habits do I have?, expect: {calls: [{tool: list_habits}]}}]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "list.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


@pytest.mark.longer
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--model", "gold"], 0),
        (["--model", "gold", "--fail-under", "100"], 0),
        (["--model", "silent"], 0),
        (["--model", "silent", "--fail-under", "50"], 1),
        (["--model", "gold", "--fail-under", "101"], 2),
        (["--model", "gold", "--no-such-option"], 2),
        (["--model", "gold", "--max-p95-turn", "3 min"], 2),
        (["--model", "gold", "--max-p95-turn", "0s"], 2),
        (["--model", "gold", "--max-p95-turn", "60s"], 0),
        (["--model", "gold", "--max-p95-ttft", "500ms"], 4),  # gold has no first token
        (["--model", "gold", "--margin", "3"], 2),
        (["--model", "gold", "--toolset", "nowhere.py:tools"], 2),
        (["no-such-file.yaml", "--model", "gold"], 2),
    ],
)
def test_eval_exit_code(
    lhkit_command: Lhkit, scenario: Path, options: list[str], code: int
) -> None:
    assert lhkit_command("eval", scenario, "--runs-dir", "runs", *options)[0] == code


def test_eval_ends_with_3_where_no_server_answers(lhkit_command: Lhkit, scenario: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert lhkit_command("eval", scenario, "--base-url", address)[0] == 3


def test_compare_ends_with_2_for_a_folder_without_a_run(
    lhkit_command: Lhkit, tmp_path: Path
) -> None:
    assert lhkit_command("compare", tmp_path, tmp_path)[0] == 2


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["eval", "--help"]])
def test_help_and_version_end_with_0(lhkit_command: Lhkit, args: list[str]) -> None:
    assert lhkit_command(*args)[0] == 0


def test_lint_ends_with_1_for_a_fault_and_0_for_none(
    lhkit_command: Lhkit, scenario: Path, tmp_path: Path
) -> None:
    assert lhkit_command("lint", scenario)[0] == 0
    invalid = tmp_path / "faulty.yaml"
    invalid.write_text(SCENARIO.replace("list_habits", "list_nothing"), encoding="utf-8")
    assert lhkit_command("lint", invalid)[0] == 1


@pytest.mark.slow
def test_eval_ends_with_130_when_interrupted(scenario: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "lhkit", "eval", str(scenario), "--base-url", address],
            cwd=tmp_path,
            env={**os.environ, "LHKIT_CACHE_DIR": str(tmp_path / "cache")},
        )
        try:
            connection, _ = silent.accept()  # the command waits for an answer from now on
            with connection:
                process.send_signal(signal.SIGINT)
                assert process.wait() == 130
        finally:
            process.kill()
            process.wait()
