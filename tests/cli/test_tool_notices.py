"""What was left out of tools is printed by every command that opens them, once."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.base.locales import load_catalog
from lhkit.notebook import ChatPanel
from lhkit.testing import ScriptedModel
from lhkit.toolset import load_toolset

TOOLS = '''
from lhkit import ToolRegistry
from lhkit.toolset import BareToolset

registry = ToolRegistry()


@registry.tool()
def look() -> dict:
    """Look around."""
    return {}


class LeavesOut:
    def open(self, world, locale):
        session = BareToolset(registry=registry).open(world, locale)
        session.registry.left_out["book"] = "no schema"
        session.registry.cut_descriptions["look"] = 20_000
        return session
'''
SCENARIOS = """
- id: look-1
  ac: a
  locale: en
  turns: [{user: Look., expect: {calls: [{tool: look}]}, reply: {contains_any: [nice]}}]
- id: look-2
  ac: a
  locale: en
  turns: [{user: Look., expect: {calls: [{tool: look}]}, reply: {contains_any: [nice]}}]
"""

Lhkit = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def lhkit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Lhkit:
    """Return a function that runs `lhkit ARGS`: its exit code, output and errors."""
    from lhkit.__main__ import main

    for kind in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"LHKIT_{kind}_DIR", str(tmp_path / kind))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "look.yaml").write_text(SCENARIOS, encoding="utf-8")

    def run(locale: str, *args: str) -> tuple[int, str, str]:
        monkeypatch.setenv("LHKIT_LOCALE", locale)
        monkeypatch.setattr(sys, "argv", ["lhkit", *args])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capfd.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize(
    "command",
    [
        ("prompt",),
        ("lint", "look.yaml"),
        ("lint", "look.yaml", "--json"),
        ("eval", "look.yaml", "--model", "gold", "--name", "x"),
        ("mutate", "look.yaml"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_command_prints_notices_once(lhkit: Lhkit, command: tuple[str, ...], locale: str) -> None:
    code, printed, errors = lhkit(locale, *command, "--toolset", "tools.py:LeavesOut")
    assert code == 0, printed + errors
    text = load_catalog(locale).text
    for line in (
        text("tools.left_out", tool="book", reason="no schema"),
        text("tools.cut", tool="look", chars="20,000", limit="12"),
    ):
        assert errors.count(line) == 1
        assert line not in printed


def test_panel_shows_notices(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    panel = ChatPanel(
        model=ScriptedModel([]),
        toolset=load_toolset(f"{tmp_path / 'tools.py'}:LeavesOut"),
        locale="en",
        opt_in=True,
    )
    shown = str(panel.state)
    assert "the tool book is left out: no schema" in shown
    assert "20,000 characters" in shown


CONSTRAINED = (
    TOOLS
    + '''

@registry.tool()
def count(numbers: dict[str, int]) -> dict:
    """Count."""
    return {}
'''
)


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_command_names_tools_that_a_constraint_leaves_out(
    lhkit: Lhkit, tmp_path: Path, locale: str
) -> None:
    (tmp_path / "tools.py").write_text(CONSTRAINED, encoding="utf-8")
    words = ("eval", "look.yaml", "--toolset", "tools.py:registry", "--model", "gold")
    code, printed, errors = lhkit(locale, *words, "--constrain", "auto", "--name", "x")
    assert code == 0, printed + errors
    (line,) = [line for line in errors.splitlines() if "count" in line]
    assert line.startswith(
        load_catalog(locale).text("tools.unconstrained", tool="count", reason="")
    )
    assert "additionalProperties" in line or "properties" in line


def test_panel_names_tools_that_a_constraint_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(CONSTRAINED, encoding="utf-8")
    for constraint, count in (("off", 0), ("auto", 1)):
        model = ScriptedModel([])
        identity = replace(model.identity, dialect="json", constraint=constraint)
        panel = ChatPanel(
            model=ScriptedModel([], identity=identity),
            toolset=load_toolset(f"{tmp_path / 'tools.py'}:registry"),
            locale="en",
            opt_in=True,
        )
        assert str(panel.state).count("count cannot be called with --constrain") == count
