"""The command line as a stranger meets it: sentences and exit codes, never a traceback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lhkit import __version__


def lhkit(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lhkit", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "300", **(env or {})},  # noqa: TID251 - for the child
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_it_says_its_version_and_helps() -> None:
    assert __version__ in lhkit("--version").stdout
    helped = lhkit("--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("chat", "eval", "serve"))


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["chat", "--model", "gpt"], 2, "no embedded model 'gpt': choose one of gemma"),
        (["chat", "--locale", "fr"], 2, "no locale 'fr'"),
        (["chat", "--base-url", "localhost"], 2, "no address of a server"),
        (["chat", "--dialect", "xml", "--base-url", "http://127.0.0.1:9"], 2, "no dialect 'xml'"),
        (["serve", "gpt"], 2, "no embedded model 'gpt'"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    args: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    run = lhkit(*args, env={"LHKIT_DATA_DIR": str(tmp_path), "LHKIT_CACHE_DIR": str(tmp_path)})
    assert (run.returncode, "Traceback" in run.stderr) == (code, False), run.stderr
    assert sentence in run.stderr


def test_a_wrong_base_url_says_what_to_do(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    run = lhkit("chat", "--base-url", address, env={"LHKIT_DATA_DIR": str(tmp_path)})
    assert run.returncode == 3
    assert f"nothing answers at {address}" in run.stderr
    assert "lhkit serve" in run.stderr


def test_a_bad_environment_variable_is_named() -> None:
    run = lhkit("chat", env={"LHKIT_TIMEZONE": "Mars/Olympus"})
    assert run.returncode == 2
    assert "LHKIT_TIMEZONE" in run.stderr


def test_a_database_that_is_none_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "chat.sqlite3"
    broken.write_bytes(b"this is no database, but long enough to be read as one" * 50)
    run = lhkit("chat", "--db", str(broken), "--base-url", "http://127.0.0.1:9")
    assert run.returncode == 3
    assert str(broken) in run.stderr
    assert "Traceback" not in run.stderr
