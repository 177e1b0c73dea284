"""`notebooks/lab.py`: start, reuse and end a server."""

import runpy
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
LAB: dict[str, Any] = runpy.run_path(str(FOLDER / "lab.py"))

SERVING = """
import os, signal
print("vLLM is starting, 1 s: loading weights", flush=True)
print(f"gemma is served at http://127.0.0.1:{os.getpid()}/v1. Ctrl-C ends it.", flush=True)
signal.pause()
"""
FOUND = "print('gemma is already served at http://127.0.0.1:8000/v1 (pid 7).')"
FAILING = "import sys; print('the weights are not available'); sys.exit(3)"


def test_serve_ends_its_server(capfd: pytest.CaptureFixture[str]) -> None:
    with LAB["serve"](sys.executable, "-c", SERVING) as address:
        port = int(address.removeprefix("http://127.0.0.1:"))  # its process id
        assert psutil.pid_exists(port)
    assert not psutil.pid_exists(port)
    assert "loading weights" in capfd.readouterr().out


def test_serve_uses_a_running_server() -> None:
    with LAB["serve"](sys.executable, "-c", FOUND) as address:
        assert address == "http://127.0.0.1:8000"


def test_serve_yields_none_without_a_server() -> None:
    with LAB["serve"](sys.executable, "-c", FAILING) as address:
        assert address is None


def test_lab_listens_on_loopback_with_a_token() -> None:
    assert "--ip=127.0.0.1" in LAB["LAB"]
    assert not any("token" in argument for argument in LAB["LAB"])
