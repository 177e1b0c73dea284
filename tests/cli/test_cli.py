"""The command line in processes of its own: messages and exit codes, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lhkit import __version__
from lhkit.__main__ import main

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


def test_cli_shows_version_and_help() -> None:
    assert __version__ in lhkit("--version").stdout
    helped = lhkit("--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("chat", "eval", "serve"))


def test_cli_reports_invalid_usage_in_one_sentence(tmp_path: Path) -> None:
    run = lhkit("lint", "nowhere", env={"LHKIT_CACHE_DIR": str(tmp_path)})
    assert (run.returncode, "Traceback" in run.stderr) == (2, False), run.stderr
    assert "nowhere: no scenario file there" in run.stderr


def test_cli_reports_invalid_environment_variable(tmp_path: Path) -> None:
    own = {"LHKIT_CACHE_DIR": str(tmp_path / "cache"), "LHKIT_TIMEZONE": "Mars/Olympus"}
    run = lhkit("eval", "--model", "gold", "--runs-dir", str(tmp_path / "runs"), env=own)
    assert run.returncode == 2
    assert "lhkit: Environment variable LHKIT_TIMEZONE is invalid: 'Mars" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_chat_reports_invalid_database(tmp_path: Path) -> None:
    broken = tmp_path / "chat.sqlite3"
    broken.write_bytes(b"this is no database, but long enough to be read as one" * 50)
    run = lhkit("chat", "--db", str(broken), "--base-url", "http://127.0.0.1:9")
    assert run.returncode == 3
    assert str(broken) in run.stderr
    assert "Traceback" not in run.stderr


def test_serve_runs_vllm_for_other_models(tmp_path: Path) -> None:
    vllm = tmp_path / "vllm"
    vllm.write_text('#!/bin/sh\necho "ran: $@"\nexit 7\n', encoding="utf-8")
    vllm.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"  # noqa: TID251 - for the child
    run = lhkit("serve", "google/gemma-3-1b-it", env={"PATH": path})
    assert run.returncode == 7
    assert "ran: serve google/gemma-3-1b-it " in run.stdout
    assert " --host 127.0.0.1 " in run.stdout


def test_serve_without_vllm_prints_line_and_advice() -> None:
    run = lhkit("serve", "google/gemma-3-1b-it", env={"PATH": "/nonexistent"})
    assert run.returncode == 2
    assert run.stdout.startswith("vllm serve google/gemma-3-1b-it")
    assert "--dry-run" in run.stderr


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
