"""`lhkit eval --stop-when-decided`: exit codes, and a stopped run is not taken for a whole one."""

from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.report import ReportOptions, report_run
from lhkit.harness.results.results import Run
from lhkit.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

SCENARIO = """
- id: habits-{n}
  ac: AC-1
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns:
    - user: "habits?"
      expect: {{calls: [{{tool: list_habits}}]}}
      reply: {{contains_any: [none], claims: none}}
      gold: {{say: there are none}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.yaml"
    path.write_text("".join(SCENARIO.format(n=n) for n in range(20)), encoding="utf-8")
    return path


async def by_eval(file: Path, model: str, settings: Settings, **options: Any) -> int:
    given = {"name": model, "runs_dir": file.parent / "runs", "concurrency": 1, **options}
    return await evaluate(EvalOptions(paths=(file,), model=model, **given), settings)


@pytest.mark.parametrize(
    ("before", "model", "options", "code", "played"),
    [
        ("silent", "gold", {}, 0, 7),
        ("silent", "gold", {"margin": 3.0}, 0, 7),
        ("gold", "silent", {}, 1, 7),
        ("gold", "silent", {"margin": 3.0}, 1, 7),
        ("gold", "silent", {"exit_zero": True}, 0, 7),
        ("gold", "gold", {}, 0, 20),  # as without the option: no difference was found
        ("gold", "gold", {"margin": 3.0}, 4, 20),
        ("silent", "silent", {}, 4, 20),  # it could not have failed
    ],
)
async def test_exit_code_of_a_run_that_may_stop(
    file: Path,
    settings: Settings,
    before: str,
    model: str,
    options: dict[str, Any],
    code: int,
    played: int,
) -> None:
    await by_eval(file, before, settings, name="before", exit_zero=True)
    given = {"baseline": Path("before"), "stop_when_decided": True, "name": "now", **options}
    assert await by_eval(file, model, settings, **given) == code
    run = Run.load(file.parent / "runs" / "now")
    assert len(run.records) == played
    assert (run.manifest.selection is None) == (played == 20)


async def test_stopped_run_says_everywhere_how_many_were_run(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await by_eval(file, "silent", settings)
    capsys.readouterr()
    await by_eval(file, "gold", settings, baseline=Path("silent"), stop_when_decided=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Stopped after 7 of 20 scenarios, because the comparison with silent" in printed
    runs = file.parent / "runs"
    await compare_runs(CompareOptions(run_a=runs / "silent", run_b=runs / "gold"), settings)
    compared = " ".join(capsys.readouterr().out.split())
    page = file.parent / "page.html"
    options = {"baseline": runs / "silent", "markdown": Path("-"), "html": page}
    await report_run(ReportOptions(folder=runs / "gold", **options), settings)
    reported = " ".join(capsys.readouterr().out.split())
    for shown in (printed, compared, reported, page.read_text(encoding="utf-8")):
        assert "7 of 20 scenarios (--stop-when-decided); 13 left out" in shown
        assert "gold stopped when it was decided." in shown
    for shown in (compared, reported):
        assert "Decided after 7 of 20 scenarios in random order" in shown
        assert "always-valid test" in shown
        assert "mid-p" not in shown
    assert await by_eval(file, "gold", settings, baseline=Path("silent")) == 0
    assert len(Run.load(runs / "gold").records) == 20
    shown = capsys.readouterr().out  # of an ordinary whole run
    assert "Stopped" not in shown
    assert "--stop-when-decided" not in shown


async def test_stopped_run_is_no_baseline(file: Path, settings: Settings) -> None:
    await by_eval(file, "silent", settings)
    await by_eval(file, "gold", settings, baseline=Path("silent"), stop_when_decided=True)
    with pytest.raises(UsageError, match="has 7 of 20 scenarios, because it stops"):
        await by_eval(file, "gold", settings, name="x", baseline=Path("gold"))


async def test_regressions_are_counted_over_all_scenarios(file: Path, settings: Settings) -> None:
    await by_eval(file, "silent", settings)
    options = {"baseline": Path("silent"), "stop_when_decided": True, "max_regressions": 0}
    with pytest.raises(UsageError, match="leave one of them out"):
        await by_eval(file, "gold", settings, **options)


async def test_other_thresholds_still_decide(file: Path, settings: Settings) -> None:
    await by_eval(file, "silent", settings)
    options = {"baseline": Path("silent"), "stop_when_decided": True, "max_p95_turn": 1e-9}
    assert await by_eval(file, "gold", settings, **options) == 1
