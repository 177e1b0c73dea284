"""The command line in processes of its own: messages and exit codes, never a traceback."""

import os
import socket
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_cli_shows_version_and_help() -> None:
    assert __version__ in lhkit("--version").stdout
    helped = lhkit("--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("chat", "eval", "serve"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["chat", "--model", "gpt"], 2, "Invalid embedded model 'gpt': choose one of gemma"),
        (
            ["eval", "--split", "train", "--model", "gold"],
            2,
            "Unknown split 'train': choose one of dev",
        ),
        (["lint", "nowhere"], 2, "nowhere: no scenario file there"),
        (["serve", "x", "--dry-run", "--device", "tpu"], 2, "'tpu' is not one of 'gpu', 'cpu'"),
        (["compare", "nowhere", "elsewhere"], 2, "nowhere is not a run folder"),
    ],
)
def test_cli_reports_invalid_usage_in_one_sentence(
    args: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    run = lhkit(*args, env={"LHKIT_DATA_DIR": str(tmp_path), "LHKIT_CACHE_DIR": str(tmp_path)})
    assert (run.returncode, "Traceback" in run.stderr) == (code, False), run.stderr
    assert sentence in run.stderr


def test_chat_reports_unreachable_server(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    run = lhkit("chat", "--base-url", address, env={"LHKIT_DATA_DIR": str(tmp_path)})
    assert run.returncode == 3
    assert f"nothing answers at {address}" in run.stderr
    assert "lhkit serve" in run.stderr


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "LHKIT_TIMEZONE",
            "Mars/Olympus",
            "Environment variable LHKIT_TIMEZONE is invalid: 'Mars",
        ),
        (
            "LHKIT_LOCAL",
            "en",
            "Unknown environment variable LHKIT_LOCAL: did you mean LHKIT_LOCALE",
        ),
    ],
)
def test_cli_reports_invalid_environment_variable(
    variable: str, value: str, sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    own = {"LHKIT_CACHE_DIR": str(tmp_path / "cache"), variable: value}
    run = lhkit("eval", "--model", "gold", "--limit", "1", "--runs-dir", str(folder), env=own)
    assert run.returncode == 2
    assert f"lhkit: {sentence}" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_chat_reports_invalid_database(tmp_path: Path) -> None:
    broken = tmp_path / "chat.sqlite3"
    broken.write_bytes(b"this is no database, but long enough to be read as one" * 50)
    run = lhkit("chat", "--db", str(broken), "--base-url", "http://127.0.0.1:9")
    assert run.returncode == 3
    assert str(broken) in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "folder"),
    [
        ((), "gold-json"),
        (("--constrain", "off"), "gold-json"),
        (("--constrain", "auto"), "gold-json-auto"),
    ],
)
def test_eval_run_name_contains_constraint(
    args: tuple[str, ...], folder: str, tmp_path: Path
) -> None:
    run = lhkit("eval", "--model", "gold", "--limit", "1", "--runs-dir", str(tmp_path), *args)
    assert run.returncode == 0, run.stderr
    assert [each.name for each in tmp_path.iterdir()] == [folder]


def test_serve_dry_run_prints_line_for_any_model() -> None:
    run = lhkit("serve", "google/gemma-3n-E2B-it", "--dry-run")
    assert run.returncode == 0
    assert run.stdout.startswith("vllm serve google/gemma-3n-E2B-it ")
    assert "--port" not in run.stdout


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_serve_line_has_requested_port(device: str) -> None:
    model = "google/gemma-3n-E2B-it"
    run = lhkit("serve", model, "--dry-run", "--port", "8123", "--device", device)
    assert run.returncode == 0
    assert " --port 8123 " in run.stdout


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
    assert run.returncode == 3
    assert run.stdout.startswith("vllm serve google/gemma-3-1b-it")
    assert "--dry-run" in run.stderr


def test_main_reports_ctrl_c_while_loading_as_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "lhkit.cli.parser":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "lhkit.cli.parser", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
