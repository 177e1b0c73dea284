"""Scores of one's own by every door: the same figures, their limits, and where they are shown."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import anyio
import pytest

from lhkit import History, Run, add_scores, gold_model, load_scenarios, replay
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.export import ExportOptions, export_run
from lhkit.cli.frame.score_limits import check_limits, parse_limits, require_known
from lhkit.cli.report import ReportOptions, report_run
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.harness.figures.metrics import ScoreFigure
from lhkit.harness.figures.statistics import sign_flip, sign_flip_numbers
from lhkit.harness.records.manifest import Manifest, ScoreSource
from lhkit.harness.records.score_record import ScoreRecord, ScoreValue, record_sha256
from lhkit.harness.report.page import html_page
from lhkit.harness.results.compare import compare
from lhkit.harness.running.scores import load_scores
from lhkit.harness.running.suite import expand_arms, load_suite
from lhkit.harness.views.tables import comparison_table
from lhkit.settings import Settings
from tests.harness.build import sample
from tests.rows import check_rows

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PANTRY = ROOT / "evals" / "pantry"
SCORES = """
from pathlib import Path

from lhkit import Sample, ScriptedModel, judge, score
from lhkit.scripted import say

def note(name: str) -> None:
    with Path(__file__).with_name(name).open("a") as file:
        file.write("x")

class Critic(ScriptedModel):
    async def aclose(self) -> None:
        note("closed")

def answer(request):
    note("asked")
    return say("no" if len(request.messages[-1].text) % 3 else "yes")

async def critic():
    return Critic(answer, name="critic")

polite = judge(critic, "Is it polite?", name="polite")

@score
def calls(sample: Sample) -> int:
    return len(sample.calls)

@score(fails=True)
def few(sample: Sample) -> bool | str:
    return len(sample.calls) < 3 or "many calls"

@score
async def grown(sample: Sample) -> dict[str, bool] | None:
    grown = [table for table in sample.state_after
             if len(sample.state_after[table]) > len(sample.state_before[table])]
    return {"any": bool(grown)} if sample.calls else None
"""
NAMES = ("calls", "few", "grown", "polite")
SUITES: dict[str, tuple[Path, str, int]] = {
    "life-helper": (ROOT / "datasets" / "ac" / "dev", "life-helper", 12),
    "pantry": (PANTRY / "scenarios", f"{PANTRY / 'pantry.py'}:toolset", 12),
}


def figures(run: Run) -> dict[str, Any]:
    return {figure.name: replace(figure, error="") for figure in run.summary().scores}


@pytest.mark.longer
@pytest.mark.parametrize(
    "suite", [pytest.param("life-helper", marks=pytest.mark.nightly), "pantry"]
)
async def test_scores_have_the_same_figures_by_every_door(
    suite: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, toolset, limit = SUITES[suite]
    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    names = tuple(f"{tmp_path / 'own.py'}:{name}" for name in NAMES)
    shared: dict[str, Any] = {"toolset": toolset, "limit": limit}
    scenarios = load_scenarios([paths])
    by_replay = await replay(scenarios, gold_model, scores=names, progress=False, **shared)
    expected = figures(by_replay)
    assert set(expected) == {"calls", "few", "grown.any", "polite"}
    assert expected["polite"].is_judge
    asked = (tmp_path / "asked").stat().st_size
    assert 0 < asked <= limit
    assert (tmp_path / "closed").stat().st_size == 1
    assert expected["calls"].n == limit

    options = EvalOptions(
        paths=(paths,), model="gold", runs_dir=tmp_path / "runs", name="new", scores=names, **shared
    )
    assert await evaluate(options, settings) == 0
    assert "score calls: " in capsys.readouterr().out
    assert figures(Run.load(tmp_path / "runs" / "new")) == expected

    await replay(scenarios, gold_model, run_dir=tmp_path / "runs" / "old", progress=False, **shared)
    old = RescoreOptions(
        run=tmp_path / "runs" / "old", paths=(paths,), toolset=toolset, score=names
    )
    assert await rescore_run(old, settings) == 0
    assert f"({4 * limit} computed, 0 were there already" in capsys.readouterr().out
    assert await rescore_run(old, settings) == 0
    assert f"(0 computed, {4 * limit} were there already" in capsys.readouterr().out
    assert figures(Run.load(tmp_path / "runs" / "old")) == expected

    into = old.model_copy(update={"into": tmp_path / "runs" / "again"})
    asked = (tmp_path / "asked").stat().st_size
    assert await rescore_run(into, settings) == 0
    assert (tmp_path / "asked").stat().st_size == asked  # the answers of the run that it is from
    assert (tmp_path / "closed").stat().st_size == 4
    assert figures(Run.load(tmp_path / "runs" / "again")) == expected
    without = into.model_copy(update={"score": ()})
    capsys.readouterr()
    assert await rescore_run(without, settings) == 0
    assert (
        "The scores of old are not carried over (calls, few, grown, polite)"
        in capsys.readouterr().out
    )
    assert figures(Run.load(tmp_path / "runs" / "again")) == {}


@pytest.mark.longer
async def test_rescore_counts_the_results_of_an_interrupted_one(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, toolset, _ = SUITES["pantry"]
    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    folder = tmp_path / "run"
    scenarios = load_scenarios([paths])
    await replay(scenarios, gold_model, toolset=toolset, limit=4, run_dir=folder, progress=False)
    before = (folder / "manifest.json").read_bytes()
    options = RescoreOptions(
        run=folder, paths=(paths,), toolset=toolset, score=(f"{tmp_path / 'own.py'}:calls",)
    )
    await rescore_run(options, settings)
    lines = (folder / "scores.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "scores.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    (folder / "manifest.json").write_bytes(before)
    capsys.readouterr()
    await rescore_run(options, settings)
    assert "(1 computed, 3 were there already" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_pytest_has_the_same_figures_as_replay(
    suite: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, toolset, limit = SUITES[suite]
    tmp_path = pytester.path
    for variable in ("HOME", "LHKIT_CACHE_DIR", "LHKIT_CONFIG_DIR", "LHKIT_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    file = sorted(paths.glob("*.yaml"))[0]
    (tmp_path / "some.scenario.yaml").write_bytes(file.read_bytes())
    names = [f"own.py:{name}" for name in NAMES]
    options = [f"--lhkit-toolset={toolset}", "--lhkit-run=nightly", f"--lhkit-limit={limit}"]
    options += [f"--lhkit-score={name}" for name in names]
    pytester.runpytest_inprocess("-q", "-p", "no:nbval", "--lhkit-model=gold", *options)
    asked = (tmp_path / "asked").stat().st_size
    assert asked > 0
    assert (tmp_path / "closed").stat().st_size == 1
    nightly = tmp_path / "runs" / "nightly"
    anyio.run(add_scores, nightly, [f"{tmp_path / 'own.py'}:polite"])
    assert (tmp_path / "asked").stat().st_size == asked  # its answers are in the folder

    async def replayed() -> Run:
        return await replay(
            load_scenarios([file]),
            gold_model,
            toolset=toolset,
            limit=limit,
            scores=[f"{tmp_path / name}" for name in names],
            progress=False,
        )

    run = anyio.run(replayed)
    assert figures(Run.load(tmp_path / "runs" / "nightly")) == figures(run) != {}


def scored(values: Sequence[Any], name: str = "x", *, source: str = "1", repeats: int = 1) -> Run:
    """Return a run with one sample and one value a scenario; an exception is a failure."""
    records, results = [], []
    for number, value in enumerate(values):
        record = sample(f"s{number // repeats}", "pass", number % repeats)
        records.append(record)
        is_error = isinstance(value, Exception)
        results.append(
            ScoreRecord(
                sample_id=record.sample_id,
                record_sha256=record_sha256(record),
                score=name,
                source_sha256=source,
                values=() if is_error or value is None else (ScoreValue(name=name, value=value),),
                error=str(value) if is_error else "",
            )
        )
    manifest = Manifest(scores={name: ScoreSource(source_sha256=source)})
    return Run(records=tuple(records), manifest=manifest, score_records=tuple(results))


ERROR = ValueError("no")


@check_rows(
    ("values", "least", "most", "missed", "unknown"),
    [
        ([True, True, False], ["x=0.6"], [], [], []),
        ([True, True, False], ["x=0.7"], [], ["x is 0.667, below 0.7."], []),
        ([True, True, False], [], ["x=0.6"], ["x is 0.667, above 0.6."], []),
        ([1.0, 2.0], ["x=1.5"], ["x=1.5"], [], []),
        ([1.0, 2.0], ["x=1.5000001"], [], ["x is 1.5, below 1.5000001."], []),
        (
            [None, None],
            ["x=0"],
            [],
            [],
            ["Cannot tell whether x reaches 0: no sample has a value."],
        ),
        ([ERROR, ERROR], [], ["x=9"], [], ["no sample has a value"]),
        ([True, True, ERROR], ["x=0.6"], [], [], []),  # whatever the third is
        ([True, True, ERROR], ["x=0.7"], [], [], ["it failed for 1 sample (s2: no)"]),
        ([False, False, ERROR], ["x=0.9"], [], ["x is 0, below 0.9."], []),
        ([1.0, 2.0, ERROR], ["x=1"], [], [], ["it failed for 1 sample"]),
        ([True], ["x.key=1"], [], [], ["x.key reaches 1: no sample has a value"]),
    ],
)
def test_limits_of_scores(
    values: list[Any], least: list[str], most: list[str], missed: list[str], unknown: list[str]
) -> None:
    limits = parse_limits(least, most)
    require_known(limits, ["x"])
    found = check_limits(limits, scored(values).score_figures(), load_catalog("en"))
    for sentences, expected in zip(found, (missed, unknown), strict=True):
        assert len(sentences) == len(expected)
        assert all(part in sentence for part, sentence in zip(expected, sentences, strict=True))


@check_rows("text", ["x", "x=", "=1", "x=abc", "x=nan", "x=inf", ""])
def test_limit_of_score_is_a_name_and_a_number(text: str) -> None:
    with pytest.raises(UsageError, match="give NAME=NUMBER"):
        parse_limits([text], [])


@pytest.mark.longer
async def test_eval_ends_by_the_limits_of_scores(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    paths, toolset, _ = SUITES["pantry"]
    base = EvalOptions(
        paths=(paths,),
        toolset=toolset,
        limit=3,
        model="gold",
        runs_dir=tmp_path,
        name="run",
        scores=(f"{tmp_path / 'own.py'}:calls",),
    )

    async def code(**options: Any) -> int:
        capsys.readouterr()
        return await evaluate(base.model_copy(update=options), settings)

    assert await code(min_score=("calls=0.1",)) == 0
    assert await code(max_score=("calls=0.1",)) == 1
    assert "calls is " in capsys.readouterr().out
    assert await code(min_score=("calls.key=0.1",)) == 4
    with pytest.raises(UsageError, match="--min-score polite: the run has no such score"):
        await code(min_score=("polite=0.1",))
    assert await code(scores=()) == 0
    assert "Scores that this command does not have and the run had: calls" in (
        capsys.readouterr().out
    )
    assert figures(Run.load(tmp_path / "run")) == {}
    assert await code() == 0  # the results are still there
    shown = ReportOptions(
        folder=tmp_path / "run", html=tmp_path / "r.html", max_score=("calls=0.1",)
    )
    assert await report_run(shown, settings) == 1


def test_scores_are_compared_in_pairs_with_corrected_p_values() -> None:
    a, b = scored([False] * 8), scored([True] * 7 + [None], source="2")
    (change,) = compare(a, b).scores
    assert (change.n, change.a, change.b, change.is_other) == (7, 0.0, 1.0, True)
    assert change.interval is not None
    assert 0 < change.interval.low < 1
    assert change.p_value == pytest.approx(2 * sign_flip([1] * 7))  # with that of the pass rate
    (number,) = compare(scored([1.0, 2.0, 3.0]), scored([2.0, 3.0, 4.5])).scores
    assert (number.is_rate, number.difference) == (False, pytest.approx(3.5 / 3))
    assert compare(a, scored([True], name="other")).scores == ()
    (none,) = compare(a, scored([ERROR] * 8)).scores
    assert (none.n, none.difference, none.p_value) == (0, None, 1.0)
    for catalog in map(load_catalog, ("en", "ko")):
        table = comparison_table(compare(a, b), catalog)
        assert any("x" in row[0].text and "100%" in row[2].text for row in table.rows)
        assert any("x" in note and "lhkit rescore" in note for note in table.notes)


@check_rows("sums", [[1, -1, 2], [1] * 6, [3, 1, -2, 5, 1, 1, 1], [0, 0]])
def test_sign_flip_of_numbers_agrees_with_that_of_counts(sums: list[int]) -> None:
    assert sign_flip_numbers(sums) == pytest.approx(sign_flip(sums))
    assert sign_flip_numbers([0.1 * each for each in sums]) == pytest.approx(sign_flip(sums))


def test_sign_flip_of_many_numbers_samples_the_signs() -> None:
    sums = [1, 2, 3, -1] * 6
    assert sign_flip_numbers(sums) == pytest.approx(sign_flip(sums), abs=0.01)
    assert 0 < sign_flip_numbers([1.5] * 40) < 0.001


def test_interval_of_repeats_is_by_scenario() -> None:
    (few,) = scored([True] * 10 + [False] * 10, repeats=10).score_figures()
    (many,) = scored([True] * 10 + [False] * 10).score_figures()
    assert few.interval is not None
    assert many.interval is not None
    assert few.interval.low < many.interval.low
    (numbers,) = scored([1.0] * 10 + [5.0] * 10, repeats=10).score_figures()
    (spread,) = scored([1.0] * 10 + [5.0] * 10).score_figures()
    assert numbers.interval is not None
    assert spread.interval is not None
    assert numbers.interval.low < spread.interval.low


@pytest.mark.longer
async def test_scores_are_in_every_report(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    paths, toolset, limit = SUITES["pantry"]
    scenarios = load_scenarios([paths])
    for name in ("one", "two"):
        run = await replay(
            scenarios,
            gold_model,
            toolset=toolset,
            limit=limit,
            run_dir=tmp_path / "runs" / name,
            scores=[f"{tmp_path / 'own.py'}:{each}" for each in ("calls", "few", "grown")],
            progress=False,
        )
    own = figures(run)
    for locale in ("en", "ko"):
        page = html_page(run, load_catalog(locale), name="run")
        assert 'id="own_scores"' in page
        assert "grown.any" in page
    await report_run(
        ReportOptions(
            folder=tmp_path / "runs" / "one", junit=tmp_path / "r.xml", markdown=tmp_path / "r.md"
        ),
        settings,
    )
    root = ElementTree.parse(tmp_path / "r.xml")  # noqa: S314 - our own
    names = {each.get("name") for each in root.iter("property")}
    assert {f"score {name}" for name in own} <= names
    assert len(root.findall(".//testcase/properties")) == len(run.records)
    assert "score calls: " in (tmp_path / "r.md").read_text(encoding="utf-8")
    await export_run(
        ExportOptions(folder=tmp_path / "runs" / "one", inspect=tmp_path / "r.eval"), settings
    )
    with zipfile.ZipFile(tmp_path / "r.eval") as log:
        results = json.loads(log.read("header.json"))["results"]["scores"]
        first = json.loads(log.read(next(n for n in log.namelist() if n.startswith("samples/"))))
    assert [each["name"] for each in results] == ["lhkit", *own]
    assert results[1]["metrics"]["mean"]["value"] == own["calls"].value
    assert isinstance(first["scores"]["calls"]["value"], float)
    history = History.load(tmp_path / "runs")
    assert history.frame["score calls"].tolist() == [own["calls"].value] * 2
    table = history.table(load_catalog("en"))
    assert [column.text for column in table.columns][-len(own) :] == list(own)


def test_scores_come_from_toolset_module_entry_point_and_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lhkit.toolset import load

    (tmp_path / "own.py").write_text(SCORES, encoding="utf-8")
    code = (PANTRY / "pantry.py").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(
        f"{code}\n{SCORES}\nscores = [calls, few]\n", encoding="utf-8"
    )
    toolset = load(f"{tmp_path / 'shop.py'}:toolset")
    assert [each.name for each in load_scores((), toolset)] == ["calls", "few"]
    point = SimpleNamespace(name="short", value=f"{tmp_path / 'own.py'}:few")
    monkeypatch.setattr(
        "lhkit.harness.running.scores.entry_points",
        lambda group, name=None: (
            [point] if group == "lhkit.scores" and name in {None, "short"} else []
        ),
    )
    assert [each.name for each in load_scores(["short"])] == ["few"]
    with pytest.raises(UsageError, match=r"no score 'polite'.*\(short\)"):
        load_scores(["polite"])
    (tmp_path / "suite.toml").write_text('scores = ["own.py:calls"]\n', encoding="utf-8")
    (arm,) = expand_arms(load_suite(tmp_path / "suite.toml"), tmp_path)
    assert [each.name for each in load_scores(arm.options.scores)] == ["calls"]


async def test_add_scores_refuses_a_broken_reference(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("broken = 3\n", encoding="utf-8")
    for reference, issue in (
        (f"{tmp_path / 'own.py'}:broken", "is not a score"),
        (f"{tmp_path / 'own.py'}:missing", "has no 'missing'"),
        (f"{tmp_path / 'none.py'}:x", "no Python file"),
    ):
        with pytest.raises(UsageError, match=issue):
            await add_scores(scored([True]), [reference])


def test_figure_of_a_score_that_never_worked_has_no_value() -> None:
    (figure,) = scored([ERROR, ERROR]).score_figures()
    assert figure == ScoreFigure(name="x", failed=2, error="s0: no")
