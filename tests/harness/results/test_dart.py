"""Tools as declarations in Dart: what an app reads is what the registry has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.commands.export import export_schema
from lhkit.errors import UsageError
from lhkit.harness.dart import dart_declarations
from lhkit.harness.plan import tool_specs
from lhkit.notebook import demo_panel
from lhkit.settings import Settings
from lhkit.toolset import load, registry_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\$\n]|\\u\{[0-9a-f]+\}|\\['\\$])*')|(?P<type><[^>]*>)|(?P<other>[^'<\n]|\n|<)"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def read(dart: str) -> list[dict[str, Any]]:
    """Read the subset of Dart that is written: every token has to be one that is known."""
    body = dart.split("lhkitTools = ", 1)[1].rstrip().removesuffix(";")
    texts: list[str] = []
    out, at = "", 0
    while at < len(body):
        token = _TOKEN.match(body, at)
        assert token is not None, body[at : at + 40]
        at = token.end()
        if token["text"]:
            out += f"@{len(texts)}@"
            texts.append(_text(token["text"]))
        out += token["other"] or ""
    names = r"\b(name|description|isDestructive|parametersSchema):"
    plain = re.sub(names, r'"\1":', out.replace("(", "{").replace(")", "}"))
    plain = re.sub(r",(\s*[\]}])", r"\1", plain)
    told = re.sub(r"@(\d+)@", lambda found: json.dumps(texts[int(found[1])]), plain)
    return json.loads(told)  # type: ignore[no-any-return]


def _text(literal: str) -> str:
    return re.sub(r"\\u\{([0-9a-f]+)\}|\\(.)", lambda m: m[2] or chr(int(m[1], 16)), literal[1:-1])


@pytest.mark.promise("export.dart")
@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_the_tools_of_life_helper_are_declared_as_the_registry_has_them(
    tmp_path: Path, locale: str
) -> None:
    file = tmp_path / "lib" / "tools.dart"
    assert await export_schema(None, None, locale, file, Settings()) == 0
    found = read(file.read_text(encoding="utf-8"))
    world = {"now": "2026-06-15T09:00:00+09:00"}
    specs = tool_specs(registry_of(load(), world, locale))
    assert found == [
        {
            "name": each["name"],
            "description": each["description"],
            "isDestructive": each["destructive"],
            "parametersSchema": each["parameters"],
        }
        for each in json.loads(json.dumps(specs))
    ]
    assert sum(each["isDestructive"] for each in found) >= 1


@pytest.mark.promise("export.dart")
async def test_the_tools_that_a_run_had_are_declared_too(
    tmp_path: Path, settings_of: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "chats"
    panel = demo_panel(locale="en", pace_s=0, record=folder, settings=settings_of)
    await panel.send("hello")
    await export_schema(folder, None, "en", Path("-"), settings_of)
    printed = read(capsys.readouterr().out)
    assert "search_catalog" in [each["name"] for each in printed]
    with pytest.raises(UsageError, match="tells no tools in ko: it has en"):
        await export_schema(folder, None, "ko", Path("-"), settings_of)


@pytest.fixture
def settings_of(tmp_path: Path) -> Settings:
    return Settings(config_dir=tmp_path / "config", locale="en")


@pytest.mark.promise("export.dart")
@given(name=st.text(), value=JSON)
def test_nothing_in_a_schema_ends_a_string_early_or_is_read_as_code(name: str, value: Any) -> None:
    tool = {"name": name, "description": "$x ${y} \\ ' \n", "parameters": {"x": value}}
    (found,) = read(dart_declarations([tool]))
    assert (found["name"], found["description"]) == (name, tool["description"])
    assert found["parametersSchema"]["x"] == value


def test_a_number_that_dart_does_not_have_is_told() -> None:
    for number in (2**64, float("nan")):
        with pytest.raises(UsageError, match="cannot be written in Dart"):
            dart_declarations([{"name": "a", "parameters": {"maximum": number}}])
