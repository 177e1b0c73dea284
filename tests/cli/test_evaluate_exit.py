"""`lhkit eval`, `compare` and `rescore` as CI runs them: exit codes, and one sentence for each."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lhkit.base.errors import RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.frame.options import ThresholdOptions
from lhkit.cli.frame.thresholds import check_thresholds
from lhkit.cli.report import ReportOptions, report_run
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.conversation.responses import Timing, Usage
from lhkit.harness.records.record import SampleRecord, Severity, Verdict, Violation, encode_record
from lhkit.harness.records.store import RECORDS, read_records
from lhkit.harness.results.results import Run
from lhkit.settings import Settings
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

CHAT = """
- id: chat-{n}
  ac: {ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""

Eval = Callable[..., Any]


def write_scenarios(folder: Path) -> Path:
    file = folder / "scenarios.yaml"
    file.write_text("".join(CHAT.format(n=n, ac="AC-5") for n in range(8)), encoding="utf-8")
    return file


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    return write_scenarios(tmp_path)


@pytest.fixture(scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs `gold` and `silent` of the eight scenarios."""
    folder = tmp_path_factory.mktemp("recorded")
    settings = Settings(locale="en", cache_dir=folder / "cache")
    paths = (write_scenarios(folder),)
    for model in ("gold", "silent"):
        options = EvalOptions(model=model, name=model, paths=paths, runs_dir=folder / "runs")
        await evaluate(options, settings)
    return folder / "runs"


@pytest.fixture
def gold(recorded: Path) -> Run:
    return Run.load(recorded / "gold")


@pytest.fixture
def runs(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of the recorded runs, where `run_eval` looks for them."""
    return Path(shutil.copytree(recorded, tmp_path / "runs"))


@pytest.fixture
def run_eval(scenarios: Path, settings: Settings, tmp_path: Path) -> Eval:
    async def run(model: str = "gold", **options: Any) -> int:
        defaults = {"paths": (scenarios,), "runs_dir": tmp_path / "runs", "name": model}
        return await evaluate(EvalOptions(model=model, **(defaults | options)), settings)

    return run


def edit(file: Path, *changes: tuple[str, str]) -> None:
    """Replace the first occurrence of each text."""
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text, encoding="utf-8")


def rewrite(folder: Path, change: Callable[[SampleRecord], SampleRecord]) -> None:
    """Change the records of a run, as another version of a model would have."""
    changed = [encode_record(change(record)) for record in read_records(folder)]
    (folder / RECORDS).write_text("".join(f"{line}\n" for line in changed), encoding="utf-8")


def broken(record: SampleRecord, severity: Severity) -> SampleRecord:
    violation = Violation(code="r7_framing", severity=severity, turn=0)
    return replace(record, score=replace(record.score, violations=(violation,)))


@pytest.mark.longer
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fail_under": 1.5}, "1: The pass rate 0.0% is below"),
        ({}, "0: no violation occurred, and no threshold was missed."),
    ],
)
async def test_eval_exit_zero_prints_the_reason(
    run_eval: Eval, capsys: pytest.CaptureFixture[str], options: dict[str, Any], sentence: str
) -> None:
    assert await run_eval("silent", exit_zero=True, **options) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(
        f"0 of 8 conversations passed. Without --exit-zero the exit code would be {sentence}"
    )


@pytest.mark.parametrize(
    ("severity", "most", "code", "sentence"),
    [
        (Severity.ATTEMPTED, None, 0, ""),
        (Severity.ATTEMPTED, 8, 0, ""),
        (Severity.ATTEMPTED, 7, 1, "8 violations were blocked, and at most 7 are allowed."),
        (Severity.ESCAPED, None, 1, "8 violations occurred."),
        (Severity.ESCAPED, 100, 1, "8 violations occurred."),
    ],
)
async def test_eval_exits_with_1_on_violations(
    run_eval: Eval,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    severity: Severity,
    most: int | None,
    code: int,
    sentence: str,
) -> None:
    rewrite(runs / "gold", lambda record: broken(record, severity))
    assert await run_eval(max_violations=most) == code
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize(
    "asked",
    [{}, {"fail_under": 1.0}, {"max_violations": 0}, {"baseline": 1}, {"exit_zero": True}],
)
async def test_eval_exits_with_3_on_infrastructure_errors(
    run_eval: Eval,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: dict[str, Any],
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the harness")

    monkeypatch.setattr("lhkit.harness.running.sample.judge", bug)
    given = {**asked, **({"baseline": runs / "gold"} if "baseline" in asked else {})}
    assert await run_eval(name="new", **given) == 3
    output = capsys.readouterr().out
    assert "8 conversations failed with an infrastructure error" in output
    assert "below" not in output, "a rate of nothing is no rate"
    assert "would end" not in output


async def test_eval_refuses_baseline_without_valid_samples(run_eval: Eval, runs: Path) -> None:
    rewrite(
        runs / "gold",
        lambda each: replace(each, score=replace(each.score, verdict=Verdict.INVALID)),
    )
    with pytest.raises(UsageError, match=r"--baseline gold: none of its 8 samples is valid"):
        await run_eval("gold", name="new", baseline=Path("gold"))
    assert not (runs / "new").exists()


@check_rows(
    ("verdicts", "escaped_in", "asked", "code"),
    [
        # p: passed, f: failed, i: invalid; the letters are the samples in order
        ("pppppppp", "", {"fail_under": 85}, 0),
        ("ppppppff", "", {"fail_under": 85}, 1),
        ("iiiiiiii", "", {}, 3),
        ("iiiiiiii", "", {"fail_under": 85, "max_violations": 0, "baseline": True}, 3),
        ("ppppppip", "", {"fail_under": 85}, 3),  # reached so far, but not all samples ran
        ("ppppppfi", "", {"fail_under": 87}, 3),  # 6 of 7, and 7 of 8 would do
        ("pppppffi", "", {"fail_under": 87}, 1),  # even 6 of 8 is too few
        ("fffffffi", "", {"baseline": True}, 1),
        ("ffffffii", "", {"baseline": True}, 1),
        ("fffffiii", "", {"baseline": True}, 3),  # three who pass, and it may be chance
        ("iiiiiiii", "", {"baseline": True}, 3),
        ("pppppppi", "p", {}, 1),  # what has happened, has happened
        ("pppppppi", "i", {}, 1),
        ("iiiiiiii", "i", {"fail_under": 85}, 1),
        ("ppppiiii", "p", {"max_violations": 5}, 1),
    ],
)
async def test_check_thresholds_exit_code_of_mixed_verdicts(
    gold: Run, verdicts: str, escaped_in: str, asked: dict[str, Any], code: int
) -> None:
    kinds = {"p": Verdict.PASS, "f": Verdict.FAIL, "i": Verdict.INVALID}
    records = [
        replace(each, score=replace(each.score, verdict=kinds[letter]))
        for each, letter in zip(gold.records, verdicts, strict=True)
    ]
    if escaped_in:
        place = verdicts.index(escaped_in)
        records[place] = broken(records[place], Severity.ESCAPED)
    baseline = gold if "baseline" in asked else None
    limits = ThresholdOptions(**{**asked, "baseline": None})
    judged = replace(gold, records=tuple(records))
    report = check_thresholds(judged, limits, load_catalog("en"), baseline=baseline)
    assert report.exit_code == code


@pytest.mark.parametrize(("invalid_ones", "code"), [(range(2), 1), (range(8), 3)])
async def test_check_thresholds_ignores_blocked_violations_of_invalid_samples(
    gold: Run, invalid_ones: range, code: int
) -> None:
    tried = [broken(each, Severity.ATTEMPTED) for each in gold.records]
    records = tuple(
        replace(each, score=replace(each.score, verdict=Verdict.INVALID))
        if n in invalid_ones
        else each
        for n, each in enumerate(tried)
    )
    report = check_thresholds(
        replace(gold, records=records), ThresholdOptions(max_violations=5), load_catalog("en")
    )
    assert report.exit_code == code


async def test_eval_exits_with_1_if_worse_than_baseline(
    run_eval: Eval, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_eval("silent", baseline=Path("gold")) == 1
    assert "silent is worse than gold: -100.0 (" in capsys.readouterr().out
    assert await run_eval("gold", baseline=runs / "silent") == 0
    assert "gold is better than silent: +100.0 (" in capsys.readouterr().out


@pytest.mark.longer
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("model", "margin", "code", "sentence"),
    [
        ("gold", 40.0, 0, "new is at most 40 points worse than gold: +0.0 ("),
        ("silent", 40.0, 1, "new is more than 40 points worse than gold: -100.0 ("),
        ("gold", 3.0, 4, "Cannot tell whether new is more than 3 points worse than gold: +0.0 ("),
    ],
)
async def test_eval_exit_code_with_margin(
    run_eval: Eval,
    capsys: pytest.CaptureFixture[str],
    model: str,
    margin: float,
    code: int,
    sentence: str,
) -> None:
    options = {"name": "new", "baseline": Path("gold"), "margin": margin}
    assert await run_eval(model, **options) == code
    assert sentence in capsys.readouterr().out
    assert await run_eval(model, **options, exit_zero=True) == 0
    assert f"would be {code}: " in capsys.readouterr().out


@check_rows(
    ("limits", "letters", "code", "sentence"),
    [
        ({"max_p95_turn": 2.0, "max_p95_ttft": 0.5, "max_prompt_tokens": 900}, "pp", 0, ""),
        ({"max_p95_turn": 1.9}, "pp", 1, "The p95 of a user turn, 2.00 s, is above 1.90 s."),
        ({"max_p95_ttft": 0.4}, "pp", 1, "time to first token, 0.500 s, is above 0.400 s."),
        ({"max_prompt_tokens": 899}, "pp", 1, "A prompt had 900 tokens, and at most 899 are"),
        ({"max_p95_turn": 1.95}, "pi", 3, "The p95 of a user turn, 2.00 s, is above 1.95 s."),
        ({"max_p95_ttft": 0.1}, "pi", 1, "first token, 0.500 s"),  # another sample cannot help
        ({"max_p95_ttft": 0.1}, "ii", 3, ""),
        ({"max_p95_ttft": 0.1}, "", 4, "no time to first token was measured."),
        ({"max_prompt_tokens": 1}, "", 4, "the server reported no prompt tokens."),
    ],
)
async def test_check_thresholds_of_time_and_tokens(
    gold: Run, limits: dict[str, Any], letters: str, code: int, sentence: str
) -> None:
    verdicts = {"p": Verdict.PASS, "i": Verdict.INVALID}
    records = tuple(
        replace(timed(each), score=replace(each.score, verdict=verdicts[letter]))
        for each, letter in zip(gold.records, letters, strict=False)
    )
    if not letters:  # gold measures neither
        records = tuple(gold.records)
    result = check_thresholds(
        replace(gold, records=records), ThresholdOptions(**limits), load_catalog("en")
    )
    assert result.exit_code == code
    assert sentence in "\n".join((*result.remarks, *result.findings))


def timed(record: SampleRecord) -> SampleRecord:
    """Return the record with one turn of 2 s: 900 prompt tokens, the first token after 0.5 s."""
    (turn,) = record.trajectory.turns
    request = replace(
        turn.model_calls[0],
        response=replace(
            turn.model_calls[0].response,
            timing=Timing(first_token_s=0.5),
            usage=Usage(prompt_tokens=900),
        ),
    )
    turn = replace(turn, duration_s=2.0, calls=(), model_calls=(request,))
    return replace(record, trajectory=replace(record.trajectory, turns=(turn,)))


async def test_eval_prints_insignificant_difference_from_baseline(
    run_eval: Eval, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "gold", runs / "flaky")

    def flaky(record: SampleRecord) -> SampleRecord:
        is_hit = record.sample_id.scenario in {"chat-1", "chat-2"}
        return (
            replace(record, score=replace(record.score, verdict=Verdict.FAIL)) if is_hit else record
        )

    rewrite(runs / "flaky", flaky)
    assert await run_eval("gold", name="flaky", baseline=Path("gold")) == 0
    output = capsys.readouterr().out.splitlines()[-1]
    assert output.startswith("No significant difference between gold and flaky (p = 0.500)")
    assert "over 8 pairs" in output


async def test_eval_names_violations_new_since_baseline(
    run_eval: Eval, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "gold", runs / "new")

    def one(record: SampleRecord) -> SampleRecord:
        is_hit = record.sample_id.scenario == "chat-3"
        return broken(record, Severity.ESCAPED) if is_hit else record

    rewrite(runs / "new", one)
    assert await run_eval("gold", name="new", baseline=Path("gold")) == 1
    out = capsys.readouterr().out
    assert "Violations that did not occur in gold occurred in: chat-3" in out


async def test_eval_exits_with_4_without_pairs_in_baseline(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CHAT.format(n=99, ac="AC-5"), encoding="utf-8")
    await run_eval("gold", name="base", paths=(other,))
    assert await run_eval("gold", baseline=Path("base"), limit=2) == 4
    assert "no valid sample in common" in capsys.readouterr().out


async def test_eval_reruns_only_the_changed_scenario(
    run_eval: Eval, scenarios: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval()
    assert "questions are new" not in capsys.readouterr().out
    edit(scenarios, ("which habits do I have?", "my habits?"))
    await run_eval()
    out = capsys.readouterr().out
    assert out.startswith(
        "Run again, because the prompt changed: 1 of 8 samples. Changed: scenario chat-0\n"
        "Kept from the previous run: 7 of 8 samples.\n"
    )
    assert "1 run now, 7 kept" in out


async def test_compare_prints_comparison_of_folders(
    recorded: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    options = CompareOptions(run_a=recorded / "silent", run_b=recorded / "gold", locale="ko")
    assert await compare_runs(options, settings) == 0
    assert "gold 쪽이 silent보다 낫습니다" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "margin", "code", "text"),
    [
        (("gold", "gold"), 40.0, 0, "at most 40 points worse"),
        (("gold", "silent"), 40.0, 1, "more than 40 points worse"),
        (("gold", "gold"), 3.0, 4, "Cannot tell"),
        (("silent", "gold", "again"), None, 0, "Not significantly different from it (corrected"),
    ],
)
async def test_compare_exit_code_with_margin_and_several_runs(
    runs: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, ...],
    margin: float | None,
    code: int,
    text: str,
) -> None:
    shutil.copytree(runs / "gold", runs / "again")
    a, b, *more = (runs / name for name in names)
    options = CompareOptions(run_a=a, run_b=b, more=tuple(more), margin=margin)
    assert await compare_runs(options, settings) == code
    assert text in capsys.readouterr().out
    if more:
        with pytest.raises(UsageError, match="--margin compares two runs"):
            await compare_runs(options.model_copy(update={"margin": 3.0}), settings)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("options", "code", "failures", "sentence"),
    [
        ({"baseline": "gold"}, 0, None, "silent is worse than gold: -100.0"),
        ({"fail_under": 50.0}, 1, 1, "The pass rate 0.0% is below 50.0%."),
        ({"baseline": "silent", "margin": 3.0}, 4, 1, "Cannot tell whether silent is more than 3"),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in (
                ({}, 0, None, ""),
                ({"max_p95_turn": 60.0}, 0, 0, "Every threshold is reached."),
                (
                    {"baseline": "gold", "margin": 40.0},
                    1,
                    1,
                    "silent is more than 40 points worse than",
                ),
                ({"max_prompt_tokens": 9}, 4, 1, "the server reported no prompt tokens."),
            )
        ),
    ],
)
async def test_report_has_thresholds_in_all_formats(
    recorded: Path,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    code: int,
    failures: int | None,
    sentence: str,
) -> None:
    if "baseline" in options:
        options = {**options, "baseline": recorded / options["baseline"]}
    files = {name: tmp_path / f"report.{name}" for name in ("html", "markdown", "junit")}
    given = ReportOptions(folder=recorded / "silent", **files, **options)
    assert await report_run(given, settings) == code
    html, text, xml = (file.read_text(encoding="utf-8") for file in files.values())
    assert sentence in unescape(html)
    assert sentence in text
    suites = ET.fromstring(xml)  # noqa: S314 - our own
    assert int(suites.attrib["failures"]) == 8 + (failures or 0)
    cases = suites.findall("testsuite[@name='Thresholds']/testcase")
    assert [len(case.findall("failure")) for case in cases] == (
        [] if failures is None else [failures]
    )
    assert code == 0 or sentence in capsys.readouterr().out


async def test_rescore_writes_folder_next_to_run(
    runs: Path, settings: Settings, scenarios: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optional = "{tool: list_habits, optional: true}"
    edit(scenarios, ("{tool: list_habits}", optional), ("id: chat-1", "id: gone"))
    assert await rescore_run(RescoreOptions(run=runs / "silent", paths=(scenarios,)), settings) == 0
    out = capsys.readouterr().out
    assert "Changed verdicts (1):\n  chat-0: fail → pass" in out
    assert "Skipped records (1):\n  chat-1: the scenario does not exist" in out
    records = read_records(runs / "silent-rescored")
    assert [each.sample_id.scenario for each in records if each.score.verdict is Verdict.PASS] == [
        "chat-0"
    ]
    assert len(records) == 7
    assert {each.score.verdict for each in read_records(runs / "silent")} == {Verdict.FAIL}


@pytest.mark.longer
async def test_rescore_refuses_run_of_other_scenarios(runs: Path, settings: Settings) -> None:
    with pytest.raises(RunError, match=r"no record of .*gold can be scored again"):
        await rescore_run(RescoreOptions(run=runs / "gold"), settings)
    assert not (runs / "gold-rescored").exists()


async def test_eval_interrupted_prints_how_to_resume(
    run_eval: Eval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    async def interrupted(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("lhkit.cli.eval.evaluation.run_prepared", interrupted)
    with pytest.raises(asyncio.CancelledError):
        await run_eval()
    assert f"Finished samples are in {tmp_path / 'runs' / 'gold'}" in capsys.readouterr().out


async def test_eval_run_name_contains_constraint(run_eval: Eval, tmp_path: Path) -> None:
    for options in ({}, {"constraint": "off"}, {"constraint": "auto"}):
        assert await run_eval(name=None, limit=1, **options) == 0
    assert {each.name for each in (tmp_path / "runs").iterdir()} == {"gold-json", "gold-json-auto"}


@pytest.mark.longer
async def test_report_writes_html_into_run_folder_and_only_markdown_to_stdout(
    runs: Path, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs / "gold"
    assert await report_run(ReportOptions(folder=run), settings) == 0
    assert capsys.readouterr().out.replace("\n", "") == f"Report: {run / 'report.html'}"
    html = (run / "report.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    page = tmp_path / "new" / "r.html"
    options = ReportOptions(folder=run, markdown=Path("-"), html=page)
    assert await report_run(options, settings) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("## ✅ `gold`")
    assert "Report:" not in shown.out
    assert f"Report: {page}" in shown.err.replace("\n", "")
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(RunError, match="cannot be written"):
        await report_run(ReportOptions(folder=run, html=tmp_path / "file" / "r.html"), settings)
