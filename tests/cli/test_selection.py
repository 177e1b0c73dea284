"""Selected scenarios: the same options in every command; a part is not taken for a whole."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import MissingRunError, UsageError
from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.cli.matrix import MatrixOptions, run_matrix
from lhkit.cli.mutate import MutateOptions, mutate_paths
from lhkit.cli.report import ReportOptions, report_run
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

SCENARIO = """
- id: {id}
  ac: {ac}
  locale: {locale}
  tags: [{tags}]
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns:
    - user: "habits? 습관?"
      expect: {{calls: [{{tool: list_habits}}], extra: {extra}}}
      reply: {{contains_any: [none], claims: none}}
      gold: {{say: there are none}}
"""
ALL = {
    "eggs": ("AC-1", "en", "plain, food"),
    "milk-ko": ("AC-1", "ko", "plain, food"),
    "milk-en": ("AC-2", "en", "hard, food"),
    "tea": ("AC-2", "en", "hard"),
    "water": ("AC-10", "en", "plain"),
}
SELECTORS: dict[str, tuple[dict[str, Any], str]] = {
    "only": ({"only": ("tea", "eggs")}, "eggs tea"),
    "glob": ({"only": ("milk-*",)}, "milk-ko milk-en"),
    "tag": ({"tag": ("plain",)}, "eggs milk-ko water"),
    "ac": ({"ac": ("ac-1", "AC-10")}, "eggs milk-ko water"),
    "locale": ({"locale": ("ko",)}, "milk-ko"),
    "failed": ({"failed": "RUNS/half"}, "milk-en tea"),
    "limit": ({"limit": 2}, "eggs milk-ko"),
    "sample": ({"sample": 2, "seed": 1}, "milk-ko milk-en"),
    "combined": ({"tag": ("food",), "locale": ("en",), "failed": "RUNS/half"}, "milk-en"),
    "sample of tag": ({"tag": ("food",), "sample": 5, "limit": 2}, "eggs milk-ko"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "some.yaml")


def write(path: Path, extra: str = "none") -> Path:
    entries = (
        SCENARIO.format(id=name, ac=ac, locale=locale, tags=tags, extra=extra)
        for name, (ac, locale, tags) in ALL.items()
    )
    path.write_text("".join(entries), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs: `whole` passes, in `half` milk-en and tea fail."""

    def half(scenario: Any, registry: Any) -> Any:
        is_failing = scenario.ac == "AC-2"
        return ScriptedModel([say("no")]) if is_failing else gold_model(scenario, registry)

    folder = tmp_path_factory.mktemp("recorded")
    scenarios = load_scenarios([write(folder / "some.yaml")])
    for name, model in (("whole", gold_model), ("half", half)):
        await replay(scenarios, model, run_dir=folder / "runs" / name, progress=False)
    return folder / "runs"


@pytest.fixture
def runs(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "runs"))


def placed(selector: dict[str, Any], runs: Path) -> dict[str, Any]:
    failed = {"failed": runs / "half"} if "failed" in selector else {}
    return {**selector, **failed}


def names(run: Run) -> str:
    return " ".join(record.sample_id.scenario for record in run.records)


async def by_eval(file: Path, runs: Path, settings: Settings, **options: Any) -> str:
    await evaluate(EvalOptions(paths=(file,), model="gold", runs_dir=runs, **options), settings)
    # the first scenarios are the beginning of the whole run, which continues them
    return names(Run.load(runs / ("gold-json-part" if options.keys() - {"limit"} else "gold-json")))


async def by_matrix(file: Path, runs: Path, settings: Settings, **options: Any) -> str:
    suite = file.with_name("suite.toml")
    suite.write_text('scenarios = ["some.yaml"]\narms = {models = ["gold"]}\n', encoding="utf-8")
    await run_matrix(MatrixOptions(suite=suite, runs_dir=runs, **options), settings)
    return names(Run.load(runs / "suite" / "gold"))


async def by_rescore(file: Path, runs: Path, settings: Settings, **options: Any) -> str:
    await rescore_run(RescoreOptions(run=runs / "half", paths=(file,), **options), settings)
    return names(Run.load(runs / "half-rescored-part"))


async def by_report(file: Path, runs: Path, settings: Settings, **options: Any) -> str:
    xml = file.with_name("junit.xml")
    written = ReportOptions(folder=runs / "half", markdown=Path("-"), junit=xml, **options)
    await report_run(written, settings)
    names = set(re.findall(r'<testcase [^>]*name="([^"]*)"', xml.read_text(encoding="utf-8")))
    return " ".join(name for name in ALL if name in names)


async def by_replay(file: Path, _runs: Path, _settings: Settings, **options: Any) -> str:
    run = await replay(load_scenarios([file]), gold_model, progress=False, **options)
    assert run.manifest.selection is not None
    assert run.manifest.selection.total == len(ALL)
    return names(run)


async def by_run(_file: Path, runs: Path, _settings: Settings, **options: Any) -> str:
    return names(Run.load(runs / "whole").select(**options))


COMMANDS: dict[str, Callable[..., Any]] = {
    "eval": by_eval,
    "matrix": by_matrix,
    "rescore": by_rescore,
    "report": by_report,
    "replay": by_replay,
    "Run.select": by_run,
}
SILENT = {"replay", "Run.select"}


CASES = [
    *(("replay", selector) for selector in SELECTORS),
    *(("Run.select", selector) for selector in SELECTORS),
    *((name, each) for name in COMMANDS if name not in SILENT for each in ("combined", "sample")),
    *(("eval", each) for each in ("glob", "tag", "limit")),
    *(("report", each) for each in ("only", "ac", "locale")),
]


@pytest.mark.parametrize(("command", "selector"), CASES)
async def test_selection_takes_the_same_scenarios_in_every_command(
    command: str,
    selector: str,
    file: Path,
    runs: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options, expected = SELECTORS[selector]
    taken = await COMMANDS[command](file, runs, settings, **placed(options, runs))
    assert taken == expected
    count = len(expected.split())
    shown = " ".join(capsys.readouterr().out.split())
    assert command in SILENT or f"{count} of 5 scenarios (--" in shown
    assert command in SILENT or f"{5 - count} left out" in shown


@pytest.mark.longer
@pytest.mark.parametrize("selector", ["only", "tag", "failed", "sample"])
async def test_selection_in_lint_and_mutate(
    selector: str, file: Path, runs: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    options, expected = SELECTORS[selector]
    count = len(expected.split())
    given = placed(options, runs)
    assert await lint_paths(LintOptions(paths=(file,), **given), settings) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{count} of 5 scenarios (--")
    assert last.startswith(f"{count} scenario")
    await mutate_paths(MutateOptions(paths=(file,), **given), settings)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == first
    survivors = {line.split()[0] for line in shown if " → " in line}
    assert survivors <= {*expected.split()}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ("mlik-ko",)}, "--only mlik-ko fits no scenario. Nearest: milk-ko, milk-en."),
        ({"only": ("x*", "tea")}, "--only x* fits no scenario. Nearest: eggs, milk-ko, milk-en."),
        ({"tag": ("planes",)}, "--tag planes fits no scenario's tag. Nearest: plain."),
        ({"ac": ("AC-3",)}, "--ac AC-3 fits no scenario's ac. Nearest: AC-2, AC-1, AC-10."),
        ({"locale": ("de",)}, "--locale de fits no scenario's locale. Nearest: "),
        ({"only": ("tea",), "locale": ("ko",)}, "--only tea --locale ko selects none of 5"),
    ],
)
async def test_selection_answers_a_mistake_with_the_nearest(
    options: dict[str, Sequence[str]], message: str, file: Path, runs: Path, settings: Settings
) -> None:
    for command in (LintOptions, MutateOptions):
        call: Any = lint_paths if command is LintOptions else mutate_paths
        with pytest.raises(UsageError, match=re.escape(message)):
            await call(command(paths=(file,), **options), settings)
    for name in ("eval", "report", "replay"):
        with pytest.raises(UsageError, match=re.escape(message)):
            await COMMANDS[name](file, runs, settings, **options)
    with pytest.raises(MissingRunError, match="nowhere is not a run folder"):
        await by_replay(file, runs, settings, failed="nowhere")


@pytest.mark.longer
async def test_selected_run_never_replaces_a_whole_one(
    file: Path, runs: Path, settings: Settings
) -> None:
    message = "has a run of all 5 scenarios, which a run of 1 selected ones would replace"
    before = (runs / "whole" / "manifest.json").read_bytes()
    with pytest.raises(UsageError, match=message):
        await by_eval(file, runs, settings, name="whole", only=("tea",))
    with pytest.raises(UsageError, match=message):
        await by_replay(file, runs, settings, run_dir=runs / "whole", only="tea")
    options = RescoreOptions(run=runs / "half", paths=(file,))
    assert await rescore_run(options, settings) == 0
    into = RescoreOptions(
        run=runs / "half", paths=(file,), only=("tea",), into=runs / "half-rescored"
    )
    with pytest.raises(UsageError, match=message):
        await rescore_run(into, settings)
    assert (runs / "whole" / "manifest.json").read_bytes() == before
    page = runs / "whole" / "report.html"
    page.write_text("whole", encoding="utf-8")
    assert await report_run(ReportOptions(folder=runs / "whole", only=("tea",)), settings) == 0
    assert page.read_text(encoding="utf-8") == "whole"
    # a part may become whole, and two parts share what they have recorded
    assert await by_eval(file, runs, settings, only=("tea",)) == "tea"
    assert await by_eval(file, runs, settings, only=("tea", "eggs")) == "eggs tea"
    assert Run.load(runs / "gold-json-part").manifest.invocations[-1].kept == 1


@pytest.mark.longer
async def test_parts_are_compared_over_shared_scenarios_and_say_so(
    file: Path, runs: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await by_eval(file, runs, settings, only=("milk-*",))
    capsys.readouterr()
    lines = (
        "gold-json-part is part of a run: 2 of 5 scenarios (--only 'milk-*'); 3 left out.",
        "Only 2 scenarios that are in both runs are compared.",
    )
    folders = CompareOptions(run_a=runs / "half", run_b=runs / "gold-json-part")
    await compare_runs(folders, settings)
    compared = " ".join(capsys.readouterr().out.split())
    report = ReportOptions(
        folder=runs / "gold-json-part", markdown=Path("-"), baseline=runs / "half"
    )
    await report_run(report, settings)
    reported = " ".join(capsys.readouterr().out.split())
    options = {"only": ("milk-*",), "baseline": runs / "half"}
    await by_eval(file, runs, settings, **options)
    gated = " ".join(capsys.readouterr().out.split())
    for shown in (compared, reported, gated):
        assert [line for line in lines if line not in shown] == []


@pytest.mark.longer
async def test_runs_chosen_by_their_failures_are_no_baseline(
    file: Path, runs: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="do better when run again"):
        await by_eval(file, runs, settings, failed=runs / "half", baseline=runs / "half")
    assert await by_eval(file, runs, settings, failed=runs / "half") == "milk-en tea"
    with pytest.raises(UsageError, match="do better when run again"):
        await by_eval(file, runs, settings, name="x", baseline=runs / "gold-json-part")
    capsys.readouterr()
    folders = CompareOptions(run_a=runs / "half", run_b=runs / "gold-json-part")
    await compare_runs(folders, settings)
    assert "this difference is not evidence" in " ".join(capsys.readouterr().out.split())
