"""Fixtures of tests of commands that run in this process."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.__main__ import main
from lhkit.settings import Settings, load_settings

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LHKIT_CONFIG_DIR", str(tmp_path / "config"))
    return load_settings()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `lhkit ARGS`: exit code, output, and output for people."""

    def lhkit_command(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lhkit", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capfd.readouterr()

    return lhkit_command
