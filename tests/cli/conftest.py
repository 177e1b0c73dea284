"""Fixtures of tests of commands that run in this process."""

from pathlib import Path

import pytest

from lhkit.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LHKIT_CONFIG_DIR", str(tmp_path / "config"))
    return load_settings()
