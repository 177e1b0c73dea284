"""`lhkit demo`: what it shows is what happened, in 80 columns and both languages."""

import io
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from lhkit.base.locales import load_catalog
from lhkit.cli.demo.assistant import demo_model, scenario_file
from lhkit.cli.demo.demo import NEXT, TOOLS, DemoOptions, play_demo
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.harness.authoring.reference import gold_models
from lhkit.harness.figures.metrics import confirm_score
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.scripted import call, say
from lhkit.settings import Settings
from lhkit.testing import ScriptedModel
from tests.cli.conftest import Run
from tests.docs.command_lines import read_line

pytestmark = [pytest.mark.anyio, pytest.mark.longer]
LOCALES = ("en", "ko")
TOOLSET = f"{TOOLS}:toolset"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def shown_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, locale: str, late_s: float = 0, **options: Any
) -> tuple[str, list[float]]:
    """Return what the demo shows in a terminal, and its pauses, which nobody waits for.

    `late_s` is the time that the machine takes for its work after each pause.
    """
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def clock() -> float:
        return sum(pauses) + late_s * len(pauses)

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    settings = Settings(locale=locale)
    assert await play_demo(DemoOptions(**options), settings, sleep=sleep, clock=clock) == 0
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()), pauses


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_shows_an_approval_an_edit_and_a_false_reply(
    locale: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the demo connects"))
    assert await play_demo(DemoOptions(), Settings(locale=locale)) == 0
    output, text = capsys.readouterr().out, load_catalog(locale).text
    scenarios = {scenario.id: scenario for scenario in load_scenarios(scenario_file(locale))}
    for name in ("bread", "milk", "eggs"):
        assert f"{text('terminal.you')}> {scenarios[name].turns[0].user}\n" in output
    approved, edited, false = output.split("\n\n")[1:4]
    assert approved.count("[y/N] y\n") == 1
    assert text("truth.changed", what="items +1 · ") in approved
    assert "[y/N] e\n" in edited
    assert text("truth.edited", edits="quantity 12 → 2") in edited
    assert text("truth.nothing") in false
    assert "▲" in false
    card = {"en": "add_item: Add to the shopping list\n", "ko": "add_item: 장보기 목록에 추가\n"}
    assert card[locale] in approved
    assert max(cell_len(line) for line in output.splitlines()) <= 80


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_table_counts_what_the_runs_recorded(
    locale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await play_demo(DemoOptions(), Settings(locale=locale))
    output, scenarios = capsys.readouterr().out, load_scenarios(scenario_file(locale))
    assert len(scenarios) == 12
    through = {}
    for user in ("careful", "hasty"):
        run = await replay(
            scenarios, demo_model(locale), toolset=TOOLSET, user=user, progress=False
        )
        score = confirm_score(run.records)
        counts = (
            score.unexpected,
            score.unexpected_edited,
            score.unexpected_rejected,
            score.unexpected_executed,
        )
        label = load_catalog(locale).text(f"demo.play_{user}")
        rows = [line.split() for line in output.splitlines() if line.startswith(f"  {label} ")]
        assert rows == [[*label.split(), *map(str, counts)]]
        through[user] = score.unexpected_executed
    assert through == {"careful": 0, "hasty": 4}


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_tools_refuse_in_the_language_of_the_chat(locale: str) -> None:
    twice = next(s for s in load_scenarios(scenario_file(locale)) if s.id == "twice")
    name = {"en": "bread", "ko": "빵"}[locale]
    script = [call("add_item", name=name), call("remove_item", name="?"), say(".")]
    run = await replay(
        [twice], lambda *_: ScriptedModel(script), toolset=TOOLSET, user="hasty", progress=False
    )
    reasons = [str(call.result["reason"]) for call in run.records[0].trajectory.calls]
    assert len(reasons) == 2
    assert ["list" in reason for reason in reasons] == [locale == "en", True]  # list_items
    assert [bool(re.search("[가-힣]{3}", reason)) for reason in reasons] == [locale == "ko"] * 2
    assert not any(re.search("[a-z] [a-z]+ [a-z]", reason) for reason in reasons if locale == "ko")


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_scenarios_find_no_wrong_write_of_a_right_model(
    locale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario_file(locale)
    assert await lint_paths(LintOptions(paths=(file,), toolset=TOOLSET), Settings(locale="en")) == 0
    assert "12 scenarios read: 0 errors, 0 warnings" in capsys.readouterr().out
    scenarios = load_scenarios(file)
    run = await replay(scenarios, gold_models(), toolset=TOOLSET, user="hasty", progress=False)
    assert all(record.is_passed for record in run.records)
    assert confirm_score(run.records).unexpected == 0
    ids = [[s.id for s in load_scenarios(scenario_file(each))] for each in LOCALES]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_pauses_for_a_reader_in_a_terminal_only(
    locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, pauses = await shown_in_a_terminal(monkeypatch, locale)
    assert 5 < sum(pauses) < 20, "half a minute with what two busy cores need"
    assert max(cell_len(line) for line in slow.splitlines()) <= 80
    fast, pauses = await shown_in_a_terminal(monkeypatch, locale, fast=True)
    assert pauses == []
    assert without_times(fast) == without_times(slow)


@pytest.mark.parametrize("locale", LOCALES)
async def test_demo_pauses_less_where_the_machine_is_late(
    locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, planned = await shown_in_a_terminal(monkeypatch, locale)
    _, shorter = await shown_in_a_terminal(monkeypatch, locale, late_s=0.05)
    assert sum(shorter) + 0.05 * len(shorter) < sum(planned) + 1, "as long as on a quick machine"
    _, shortest = await shown_in_a_terminal(monkeypatch, locale, late_s=10)
    assert sum(shortest) == pytest.approx(0.4 * sum(planned), rel=0.1), "people still read"
    assert len(planned) == len(shorter) == len(shortest)


def without_times(text: str) -> list[str]:
    return [line.rpartition(" (")[0] if line.endswith("ms)") else line for line in text.split("\n")]


async def test_demo_option_overrides_the_locale(capsys: pytest.CaptureFixture[str]) -> None:
    await play_demo(DemoOptions(locale="en"), Settings(locale="ko"))
    output = capsys.readouterr().out
    assert "Please add bread." in output
    assert not [letter for letter in output if "가" <= letter <= "힣"]


async def test_demo_writes_the_report_of_its_scenarios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "demo.html"
    await play_demo(DemoOptions(html=page), Settings(locale="en"))
    assert f"Report: {page}" in capsys.readouterr().out
    html = page.read_text(encoding="utf-8")
    assert "approved blindly" in html
    assert "read carefully" in html
    assert "Add 2 cartons of milk." in html


def test_demo_names_commands_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    assert [read_line(line) for line in NEXT.values()] == ["init", "eval", "eval"]
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert run("init", "shop")[0] == 0
    assert run("eval", "shop", "--model", "gold", "--fail-under", "100")[0] == 0
