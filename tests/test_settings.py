"""Settings from the environment: unknown variables are refused, never ignored."""

import re
import sys
import tomllib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.project import ProjectKeys
from lhkit.settings import Settings, current_time, load_settings

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
VALUES = {
    "LHKIT_BASE_URL": "http://127.0.0.1:8000",
    "LHKIT_API_KEY": "secret",
    "LHKIT_LOCALE": "en",
    "LHKIT_TIMEZONE": "Europe/Vienna",
    "LHKIT_DTYPE": "float32",
    "LHKIT_RUNTIME": "llama.cpp",
    "LHKIT_CACHE_DIR": "cache",
    "LHKIT_DATA_DIR": "data",
    "LHKIT_CONFIG_DIR": "config",
}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LHKIT_LOCAL", "did you mean LHKIT_LOCALE?"),
        ("LHKIT_BASEURL", "did you mean LHKIT_BASE_URL?"),
        ("lhkit_timezon", "did you mean LHKIT_TIMEZONE?"),
        ("LHKIT_CACHE", "did you mean LHKIT_CACHE_DIR?"),
        ("LHKIT_MODEL", f"choose one of {', '.join(sorted(VALUES))}."),
        ("LHKIT_", f"choose one of {', '.join(sorted(VALUES))}."),
    ],
)
def test_load_settings_refuses_an_unknown_variable_without_its_value(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "secret")
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert str(caught.value) == f"Unknown environment variable {name}: {hint}"


@pytest.mark.parametrize("spelt", [str.upper, str.lower])
def test_load_settings_ignores_case(
    spelt: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VALUES.items():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(spelt(name), value)
    read = load_settings()
    fields = {name: name.removeprefix("LHKIT_").lower() for name in VALUES}
    assert {name: str(getattr(read, field)) for name, field in fields.items()} == VALUES


@pytest.mark.parametrize("name", ["LHKITTEN", "MY_LHKIT_LOCAL", "LHKIT"])
def test_load_settings_ignores_other_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert load_settings() == Settings()


def test_current_time_reads_settings_again_only_if_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def hours() -> float:
        sys.setprofile(lambda frame, *_: calls.append(frame.f_code.co_name))
        try:
            offset = current_time().utcoffset()
        finally:
            sys.setprofile(None)
        assert offset is not None
        return offset / timedelta(hours=1)

    for zone, expected in {"Pacific/Kiritimati": 14, "Pacific/Pago_Pago": -11}.items():
        monkeypatch.setenv("LHKIT_TIMEZONE", zone)
        assert hours() == expected
        calls.clear()
        assert hours() == expected
        assert "load_settings" not in calls
    monkeypatch.setenv("LHKIT_TIMEZON", "UTC")
    with pytest.raises(UsageError, match="did you mean"):
        hours()


def test_settings_page_lists_all_settings() -> None:
    named = re.findall(r"LHKIT_[A-Z_]+", PAGE.read_text(encoding="utf-8"))
    assert (
        {*named} - {"LHKIT_"}
        == {*VALUES}
        == {f"LHKIT_{field.upper()}" for field in Settings.model_fields}
    )


def test_configuration_page_lists_all_keys_of_a_project() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## lhkit.toml")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == list(ProjectKeys.model_fields)
    example = text.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(example).keys() == ProjectKeys.model_fields.keys()
    ProjectKeys.model_validate(tomllib.loads(example))


def test_configuration_page_lists_all_exit_codes() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Exit codes")[2]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.M)] == list(ExitCode)
