"""Tools as declarations in Dart: what an app reads is what the registry has."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.benchmarks import peers
from lhkit.commands.export import export_schema
from lhkit.commands.options import ExportOptions
from lhkit.errors import UsageError
from lhkit.harness.dart import dart_declarations
from lhkit.harness.plan import tool_specs
from lhkit.notebook import demo_panel
from lhkit.settings import Settings
from lhkit.toolset import load, registry_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

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


def parsed(file: Path) -> dict[str, Any]:
    """Return what a real grammar of Dart makes of a file."""
    reader = Path(__file__).with_name("dart_reader.py")
    line = [str(peers.peer_python(peers.DART)), str(reader), str(file)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_a_grammar_of_dart_reads_the_tools_of_life_helper_without_a_fault(
    tmp_path: Path, locale: str
) -> None:
    file = tmp_path / "tools.dart"
    options = ExportOptions(schema="dart", locale=locale, into=file)
    assert await export_schema(options, Settings()) == 0
    found = parsed(file)
    assert found["faults"] == []
    assert found["kinds"]["type_alias"] == 1
    tools = len(registry_of(load(), {"now": "2026-06-15T09:00:00+09:00"}, locale).definitions)
    assert found["kinds"]["record_literal"] == tools
    file.write_text(file.read_text(encoding="utf-8").replace("},", "}", 1), encoding="utf-8")
    assert parsed(file)["faults"] != []


def test_a_grammar_of_dart_reads_hostile_texts_as_texts(tmp_path: Path) -> None:
    hostile = ["'];", "$x ${y}", "r'", "//", "\ud83d"]
    hostile += ["\\", "\n\r\t\0", "\u2028\u202e", "'''", '"""']
    values = [None, True, 2**62, -(2**63), 1e22, 1e-7, 0.5, [], {}, [[{}]], {"": hostile}]
    parameters = dict.fromkeys(hostile, values)
    tools = [{"name": each, "description": each, "parameters": parameters} for each in hostile]
    (tmp_path / "tools.dart").write_text(dart_declarations(tools), encoding="utf-8")
    found = parsed(tmp_path / "tools.dart")
    assert found["faults"] == []
    assert found["kinds"]["record_literal"] == len(hostile)
    assert "template_substitution" not in found["kinds"]


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_the_tools_of_life_helper_are_declared_as_the_registry_has_them(
    tmp_path: Path, locale: str
) -> None:
    file = tmp_path / "lib" / "tools.dart"
    options = ExportOptions(schema="dart", locale=locale, into=file)
    assert await export_schema(options, Settings()) == 0
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


async def test_the_tools_that_a_run_had_are_declared_too(
    tmp_path: Path, settings_of: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "chats"
    panel = demo_panel(locale="en", pace_s=0, record=folder, settings=settings_of)
    await panel.send("hello")
    options = ExportOptions(folder=folder, schema="dart", locale="en")
    await export_schema(options, settings_of)
    printed = read(capsys.readouterr().out)
    assert "search_catalog" in [each["name"] for each in printed]
    with pytest.raises(UsageError, match="tells no tools in ko: it has en"):
        await export_schema(replace(options, locale="ko"), settings_of)


@pytest.fixture
def settings_of(tmp_path: Path) -> Settings:
    return Settings(config_dir=tmp_path / "config", locale="en")


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
