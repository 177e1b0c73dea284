"""The language in which lhkit speaks where the caller does not choose one."""

import plistlib
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.base.errors import UsageError
from lhkit.base.user_locale import mac_language, user_locale
from lhkit.confirm.terminal import TerminalGate
from lhkit.conversation.tool_results import ToolErr
from lhkit.notebook import ABPanel, ButtonConfirmGate, demo_panel
from lhkit.reports import charts
from lhkit.scripted import Reply, say
from lhkit.settings import load_settings
from lhkit.testing import ScriptedModel, echo_tool, object_schema
from tests.rows import check_rows


@check_rows(
    ("variables", "locale"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko_KR.eucKR"}, "ko"),
        ({"LANG": "ko"}, "ko"),
        ({"LANG": "ko-KR"}, "ko"),
        ({"LANG": "ko_KR@hanja"}, "ko"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "kok_IN"}, "en"),  # Konkani
        ({"LANG": "C"}, "en"),
        ({"LANG": "POSIX"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": ""}, "en"),
        ({"LC_ALL": "C", "LC_MESSAGES": "ko_KR.UTF-8", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"LC_ALL": "ko_KR.UTF-8", "LC_MESSAGES": "en_US.UTF-8", "LANG": "en_US.UTF-8"}, "ko"),
        ({"LC_MESSAGES": "ko_KR.UTF-8", "LANG": "en_US.UTF-8"}, "ko"),
        ({"LC_MESSAGES": "en_US.UTF-8", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "", "LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LC_CTYPE": "ko_KR.UTF-8", "LANG": "en_US.UTF-8"}, "en"),  # of letters, not of texts
        ({"LHKIT_LOCALE": "ko", "LC_ALL": "de_DE.UTF-8"}, "ko"),
        ({"LHKIT_LOCALE": "en", "LC_ALL": "ko_KR.UTF-8"}, "en"),
        ({"LHKIT_LOCALE": "", "LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LHKIT_LOCALE": "ko_KR.UTF-8"}, "ko"),
        ({"lhkit_locale": "ko"}, "ko"),
    ],
)
def test_user_locale_follows_the_environment(variables: Mapping[str, str], locale: str) -> None:
    assert user_locale(variables=variables) == locale


def test_user_locale_prefers_an_explicit_choice() -> None:
    assert user_locale("ko", variables={"LHKIT_LOCALE": "en", "LC_ALL": "en_US"}) == "ko"


@pytest.mark.parametrize(("given", "own"), [("fr", ""), (None, "fr"), ("korean", "ko")])
def test_user_locale_refuses_an_explicit_language_without_texts(
    given: str | None, own: str
) -> None:
    with pytest.raises(UsageError, match="choose one of en, ko"):
        user_locale(given, variables={"LHKIT_LOCALE": own})


@check_rows(
    ("variables", "system", "locale"),
    [
        ({}, "ko-KR", "ko"),
        ({}, "ko_KR", "ko"),
        ({}, "de-AT", "en"),
        ({"LANG": "en_US.UTF-8"}, "ko-KR", "en"),
    ],
)
def test_user_locale_asks_the_system_where_no_variable_is_set(
    variables: Mapping[str, str], system: str, locale: str
) -> None:
    assert user_locale(variables=variables, system_language=lambda: system) == locale


@check_rows(
    ("settings", "language"),
    [
        ({"AppleLanguages": ["ko-KR", "en-US"]}, "ko-KR"),
        ({"AppleLanguages": []}, ""),
        ({"AppleLocale": "ko_KR"}, ""),
        (None, ""),
    ],
)
def test_mac_language_reads_the_first_language_of_the_settings(
    settings: dict[str, Any] | None, language: str, tmp_path: Path
) -> None:
    file = tmp_path / "Library/Preferences/.GlobalPreferences.plist"
    if settings is not None:
        file.parent.mkdir(parents=True)
        file.write_bytes(plistlib.dumps(settings, fmt=plistlib.FMT_BINARY))
    assert mac_language(tmp_path) == language


def test_mac_language_is_unknown_with_broken_settings(tmp_path: Path) -> None:
    file = tmp_path / "Library/Preferences/.GlobalPreferences.plist"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"bplist00 broken")
    assert mac_language(tmp_path) == ""


async def _refuse() -> bool:
    return False


@pytest.mark.longer
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("lang", "is_korean"), [("ko_KR.UTF-8", True), ("de_DE.UTF-8", False), ("", False)]
)
async def test_every_door_speaks_the_language_of_the_environment(
    lang: str, is_korean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", lang)
    monkeypatch.setenv("LHKIT_CONFIG_DIR", str(tmp_path))
    parameters = object_schema("n", n={"type": "integer"})
    registry = lhkit.ToolRegistry()
    registry.register(echo_tool("look", parameters=parameters))
    result = await lhkit.ToolDispatcher(registry).dispatch("look", {"n": "x"}, confirm=None)
    assert isinstance(result, ToolErr)

    model = ScriptedModel([say("hello")] * 9)
    chat = lhkit.ChatController(
        model=ScriptedModel([Reply(error=lhkit.ModelError("gone"))]),
        dispatcher=lhkit.ToolDispatcher(registry),
    )
    await chat.user_turn("hello")

    shown: list[str] = []

    async def read(prompt: str) -> str:
        shown.append(prompt)
        return "n"

    gate = TerminalGate(read, shown.append, forget=_refuse)
    await gate.confirm(lhkit.ConfirmRequest(tool="look", description="", args={}, summary=""))

    scenario = lhkit.Scenario.from_data({"id": "hello", "turns": [{"user": "hello"}]})
    run = await lhkit.replay([scenario], model, toolset=registry, progress=False)
    panels = [
        demo_panel(pace_s=0),
        ABPanel(models=[model, model], toolset=registry, record=tmp_path / "ab", opt_in=True),
    ]
    texts = {
        "dispatcher": result.reason,
        "controller": chat.state.error or "",
        "terminal": " ".join(shown),
        "run": run._repr_html_(),
        "chart": str(charts.pass_rates(run).to_dict()),
        **{type(panel).__name__: panel.to_markdown() for panel in panels[:1]},
        "ab": repr(panels[1]),
    }
    for panel in panels:
        panel.close()
    korean = {name: any("가" <= letter <= "힣" for letter in text) for name, text in texts.items()}
    assert korean == dict.fromkeys(texts, is_korean)
    assert ButtonConfirmGate().locale == load_settings().locale == ("ko" if is_korean else "en")


@pytest.fixture
def west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine five hours behind UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("west")
def test_settings_clock_is_in_the_zone_of_the_machine_unless_one_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LHKIT_TIMEZONE", raising=False)
    assert load_settings().now().utcoffset() == timedelta(hours=-5)
    monkeypatch.setenv("LHKIT_TIMEZONE", "Asia/Seoul")
    assert load_settings().now().utcoffset() == timedelta(hours=9)
