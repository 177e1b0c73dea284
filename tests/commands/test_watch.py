"""`lhkit eval --watch`: what is shown of a run while it plays is what the table says."""

import asyncio
import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lhkit.commands.evaluate import evaluate
from lhkit.commands.options import EvalOptions
from lhkit.commands.watch import screen
from lhkit.harness.metrics import tally
from lhkit.harness.record import (
    Evidence,
    Judgement,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
)
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import load_scenarios
from lhkit.harness.watch import MOST, Watched, Watching, name, turns_s
from lhkit.locales import load_catalog
from lhkit.messages import EndReason
from lhkit.models.scripted import ScriptedModel
from lhkit.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

CHAT = """
- id: chat-{n}
  ac: AC-{ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""


def record(number: int, verdict: str, *, repeat: int = 0, turn_s: float = 1.0) -> SampleRecord:
    turn = TurnRecord(user="q", ended=EndReason.ANSWERED, duration_s=turn_s)
    return SampleRecord(
        sample_id=SampleId(scenario=f"s{number}", repeat=repeat),
        content_hash="",
        ac=f"AC-{number % 2}",
        locale="en",
        judgement=Judgement(verdict=Verdict(verdict), reasons=("because \x1b[2J",)),
        evidence=Evidence(turns=(turn,)),
    )


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text("".join(CHAT.format(n=n, ac=n % 2) for n in range(6)), encoding="utf-8")
    return file


def test_rates_and_their_intervals_are_those_of_the_table_at_the_end() -> None:
    verdicts = ["pass", "fail", "pass", "pass", "fail", "invalid", "pass"]
    records = [
        record(number, verdict, repeat=repeat)
        for number, verdict in enumerate(verdicts)
        for repeat in range(2)
    ]
    state = Watched(20)
    for each in records:
        state.take(each)
    expected = tally("all", records)
    assert (state.ended, state.invalid) == (14, 2)
    assert (state.total.passed, state.total.valid) == (expected.passed, expected.valid)
    assert state.total.interval == expected.interval
    of_ac = tally("AC-1", [each for each in records if each.ac == "AC-1"])
    assert state.by_ac["AC-1"].interval == of_ac.interval


def test_the_slowest_and_the_newest_failures_are_shown_safely_and_how_to_open_them() -> None:
    state = Watched(40)
    for number in range(40):
        verdict = "fail" if number % 2 else "pass"
        state.take(record(number, verdict, turn_s=float(number % 20)))
    assert [turns_s(each) for each in state.slowest] == [19.0, 19.0, 18.0, 18.0, 17.0]
    assert [name(each) for each in state.slowest] == ["s19", "s39", "s18", "s38", "s17"]
    assert [name(each) for each in state.failures] == ["s31", "s33", "s35", "s37", "s39"]
    assert len(state.failures) == MOST
    out = io.StringIO()
    shown = screen(state, Path("runs/mine"), load_catalog("en"))
    Console(file=out, width=100).print(shown)
    text = out.getvalue()
    for told in ("40 of 40 ended", "20/40 50%", "AC-1", "s39 · fail", "lhkit report runs/mine"):
        assert told in text
    assert "\x1b" not in text


async def test_each_sample_is_told_once_when_it_is_kept_also_those_taken_over(
    scenarios: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    folder = tmp_path / "run"

    def take(each: SampleRecord) -> None:
        told.append(str(each.sample_id))
        on_disk = Run.load(folder).records
        assert each.sample_id in {kept.sample_id for kept in on_disk}

    options: dict[str, Any] = {"run_dir": folder, "progress": False, "watch": take}
    asked = load_scenarios([scenarios])
    await replay(asked[:2], ScriptedModel([]), **options)
    await replay(asked, ScriptedModel([]), concurrency=3, **options)
    assert told[:2] == ["chat-0", "chat-1"]
    assert sorted(told[2:]) == [f"chat-{n}" for n in range(6)]


async def test_where_no_terminal_is_each_sample_is_a_line(
    scenarios: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(locale="en", cache_dir=tmp_path / "cache", data_dir=tmp_path / "data")
    options = EvalOptions(
        paths=(scenarios,), model="gold", name="a", runs_dir=tmp_path / "runs", watch=True
    )
    assert await evaluate(options, settings) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("chat-0 · pass · ")
    assert "1 of 6 ended · 1/1 100% [21–100]" in lines[0]
    assert "6 of 6 ended · 6/6 100% [61–100]" in lines[-1]
    assert "sample/s" not in "".join(lines)
    await evaluate(replace(options, name="b", watch=False), settings)
    assert "6 of 6 ended" not in capsys.readouterr().err


async def test_drawing_takes_a_hundredth_of_the_time_and_the_last_state_is_drawn() -> None:
    now_s, drawn = [0.0], list[tuple[float, int]]()
    due: list[tuple[float, Callable[[], None]]] = []

    def slow(state: Watched) -> None:
        drawn.append((now_s[0], state.ended))
        now_s[0] += 0.02

    def later(wait_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        due.append((now_s[0] + wait_s, call))
        return asyncio.TimerHandle(wait_s, call, (), asyncio.get_running_loop())

    watch = Watching(Watched(400), slow, clock=lambda: now_s[0], later=later)
    for number in range(400):
        watch(record(number, "pass"))
        now_s[0] += 0.05
        if due and due[0][0] <= now_s[0]:
            due.pop(0)[1]()
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(drawn)]
    assert len(drawn) > 5
    assert min(gaps) >= 100 * 0.02
    assert len(due) == 1  # what came since will be drawn, too
    now_s[0], draw = due.pop()
    draw()
    assert drawn[-1][1] == 400
