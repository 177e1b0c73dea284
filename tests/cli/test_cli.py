"""The command line from its words on: messages and exit codes, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lhkit import __version__
from lhkit.__main__ import main
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def lhkit(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lhkit", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "300", **(env or {})},  # noqa: TID251 - for the child
    )


def test_cli_shows_version_and_help(run: Run) -> None:
    assert __version__ in run("--version")[1]
    helped = lhkit("--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("chat", "eval", "serve"))


@pytest.mark.usefixtures("settings")
def test_cli_reports_invalid_usage_in_one_sentence(run: Run) -> None:
    code, _, err = run("lint", "nowhere")
    assert (code, "Traceback" in err) == (2, False), err
    assert "nowhere: no scenario file there" in err


@pytest.mark.usefixtures("settings")
def test_cli_reports_invalid_environment_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_TIMEZONE", "Mars/Olympus")
    monkeypatch.setenv("COLUMNS", "300")
    code, _, err = run("eval", "--model", "gold", "--runs-dir", tmp_path / "runs")
    assert code == 2
    assert "lhkit: Environment variable LHKIT_TIMEZONE is invalid: 'Mars" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("settings")
def test_chat_reports_invalid_database(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    broken = tmp_path / "chat.sqlite3"
    broken.write_bytes(b"this is no database, but long enough to be read as one" * 50)
    code, _, err = run("chat", "--db", broken, "--base-url", "http://127.0.0.1:9")
    assert code == 3
    assert str(broken) in err
    assert "Traceback" not in err


def test_serve_runs_vllm_for_other_models(tmp_path: Path) -> None:
    vllm = tmp_path / "vllm"
    vllm.write_text('#!/bin/sh\necho "ran: $@"\nexit 7\n', encoding="utf-8")
    vllm.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"  # noqa: TID251 - for the child
    run = lhkit("serve", "google/gemma-3-1b-it", env={"PATH": path})
    assert run.returncode == 7
    assert "ran: serve google/gemma-3-1b-it " in run.stdout
    assert " --host 127.0.0.1 " in run.stdout


@pytest.mark.usefixtures("settings")
def test_serve_without_vllm_prints_line_and_advice(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    code, out, err = run("serve", "google/gemma-3-1b-it")
    assert code == 2
    assert out.startswith("vllm serve google/gemma-3-1b-it")
    assert "--dry-run" in err


def test_main_reports_ctrl_c_while_loading_as_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "lhkit.cli.frame.parser":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "lhkit.cli.frame.parser", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
