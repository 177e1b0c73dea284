"""`lhkit eval`, `compare` and `rescore` as CI runs them: exit codes, and one sentence for each."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval_options import EvalOptions
from lhkit.cli.evaluate import evaluate
from lhkit.cli.options import ThresholdOptions
from lhkit.cli.report import ReportOptions, report_run
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.cli.thresholds import check_thresholds
from lhkit.errors import RunError, UsageError
from lhkit.harness.record import SampleRecord, Severity, Verdict, Violation, encode_record
from lhkit.harness.results import Run
from lhkit.harness.store import RECORDS, read_records
from lhkit.locales import load_catalog
from lhkit.responses import Timing, Usage
from lhkit.settings import Settings

CHAT = """
- id: chat-{n}
  ac: {ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""

Eval = Callable[..., Any]


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    file = tmp_path / "scenarios.yaml"
    file.write_text("".join(CHAT.format(n=n, ac="AC-5") for n in range(8)), encoding="utf-8")
    return file


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
    return replace(record, judgement=replace(record.judgement, violations=(violation,)))


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "options", "code", "sentence"),
    [
        ("gold", {}, 0, ""),
        ("gold", {"fail_under": 100.0, "max_violations": 0}, 0, ""),
        ("silent", {}, 0, ""),
        ("silent", {"fail_under": 1.5}, 1, "The pass rate 0.0% is below 1.5%."),
        ("silent", {"max_violations": 0}, 0, ""),
    ],
)
async def test_eval_exits_with_1_below_pass_rate(
    run_eval: Eval,
    capsys: pytest.CaptureFixture[str],
    model: str,
    options: dict[str, Any],
    code: int,
    sentence: str,
) -> None:
    assert await run_eval(model, **options) == code
    assert sentence in capsys.readouterr().out


@pytest.mark.anyio
async def test_eval_refuses_fraction_as_fail_under(run_eval: Eval, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--fail-under is in percent: .* 0\.85 give 85$"):
        await run_eval("gold", fail_under=0.85)
    assert not (tmp_path / "runs").exists()


@pytest.mark.promise("eval.exit_zero")
@pytest.mark.anyio
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


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
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
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    severity: Severity,
    most: int | None,
    code: int,
    sentence: str,
) -> None:
    await run_eval()
    rewrite(tmp_path / "runs" / "gold", lambda record: broken(record, severity))
    assert await run_eval(max_violations=most) == code
    assert sentence in capsys.readouterr().out


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "asked",
    [{}, {"fail_under": 1.0}, {"max_violations": 0}, {"baseline": 1}, {"exit_zero": True}],
)
async def test_eval_exits_with_3_on_infrastructure_errors(
    run_eval: Eval,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: dict[str, Any],
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the harness")

    await run_eval("gold", name="base")
    monkeypatch.setattr("lhkit.harness.sample.judge", bug)
    given = {**asked, **({"baseline": tmp_path / "runs" / "base"} if "baseline" in asked else {})}
    assert await run_eval(**given) == 3
    output = capsys.readouterr().out
    assert "8 conversations failed with an infrastructure error" in output
    assert "below" not in output, "a rate of nothing is no rate"
    assert "would end" not in output


@pytest.mark.anyio
async def test_eval_refuses_baseline_without_valid_samples(run_eval: Eval, tmp_path: Path) -> None:
    await run_eval("gold", name="base")
    rewrite(
        tmp_path / "runs" / "base",
        lambda each: replace(each, judgement=replace(each.judgement, verdict=Verdict.INVALID)),
    )
    with pytest.raises(UsageError, match=r"--baseline base: none of its 8 samples is valid"):
        await run_eval("gold", baseline=Path("base"))
    assert not (tmp_path / "runs" / "gold").exists()


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verdicts", "escaped_in", "asked", "code"),
    [
        # p: passed, f: failed, i: invalid; the letters are the samples in order
        ("pppppppp", "", {"fail_under": 85}, 0),
        ("ppppppff", "", {"fail_under": 85}, 1),
        ("iiiiiiii", "", {}, 3),
        ("iiiiiiii", "", {"fail_under": 85, "max_violations": 0, "baseline": True}, 3),
        ("ppppppip", "", {"fail_under": 85}, 3),  # reached so far, but not all was played
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
    run_eval: Eval,
    tmp_path: Path,
    verdicts: str,
    escaped_in: str,
    asked: dict[str, Any],
    code: int,
) -> None:
    await run_eval()
    run = Run.load(tmp_path / "runs" / "gold")
    kinds = {"p": Verdict.PASS, "f": Verdict.FAIL, "i": Verdict.INVALID}
    records = [
        replace(each, judgement=replace(each.judgement, verdict=kinds[letter]))
        for each, letter in zip(run.records, verdicts, strict=True)
    ]
    if escaped_in:
        place = verdicts.index(escaped_in)
        records[place] = broken(records[place], Severity.ESCAPED)
    baseline = run if "baseline" in asked else None
    limits = ThresholdOptions(**{**asked, "baseline": None})
    judged = replace(run, records=tuple(records))
    found = check_thresholds(judged, limits, load_catalog("en"), baseline=baseline)
    assert found.exit_code == code


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(("invalid_ones", "code"), [(range(2), 1), (range(8), 3)])
async def test_check_thresholds_ignores_blocked_violations_of_invalid_samples(
    run_eval: Eval, tmp_path: Path, invalid_ones: range, code: int
) -> None:
    await run_eval()
    run = Run.load(tmp_path / "runs" / "gold")
    tried = [broken(each, Severity.ATTEMPTED) for each in run.records]
    records = tuple(
        replace(each, judgement=replace(each.judgement, verdict=Verdict.INVALID))
        if n in invalid_ones
        else each
        for n, each in enumerate(tried)
    )
    found = check_thresholds(
        replace(run, records=records), ThresholdOptions(max_violations=5), load_catalog("en")
    )
    assert found.exit_code == code


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize("baseline", ["name", "folder"])
async def test_eval_exits_with_1_if_worse_than_baseline(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str], baseline: str
) -> None:
    await run_eval("gold")
    path = Path("gold") if baseline == "name" else tmp_path / "runs" / "gold"
    assert await run_eval("silent", baseline=path) == 1
    assert "silent is worse than gold: -100.0 (" in capsys.readouterr().out
    assert await run_eval("gold", baseline=tmp_path / "runs" / "silent") == 0
    assert "gold is better than silent: +100.0 (" in capsys.readouterr().out


@pytest.mark.promise("eval.margin")
@pytest.mark.anyio
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
    await run_eval("gold")
    options = {"name": "new", "baseline": Path("gold"), "margin": margin}
    assert await run_eval(model, **options) == code
    assert sentence in capsys.readouterr().out
    assert await run_eval(model, **options, exit_zero=True) == 0
    assert f"would be {code}: " in capsys.readouterr().out


@pytest.mark.promise("eval.margin")
@pytest.mark.anyio
async def test_eval_refuses_margin_without_baseline_and_as_a_fraction(run_eval: Eval) -> None:
    with pytest.raises(UsageError, match="--margin is for a comparison: give --baseline too"):
        await run_eval(margin=3.0)
    with pytest.raises(UsageError, match=r"--margin is in percent: for a share of 0\.03 give 3$"):
        await run_eval(margin=0.03)


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
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
    run_eval: Eval,
    tmp_path: Path,
    limits: dict[str, Any],
    letters: str,
    code: int,
    sentence: str,
) -> None:
    await run_eval()
    run = Run.load(tmp_path / "runs" / "gold")
    verdicts = {"p": Verdict.PASS, "i": Verdict.INVALID}
    records = tuple(
        replace(timed(each), judgement=replace(each.judgement, verdict=verdicts[letter]))
        for each, letter in zip(run.records, letters, strict=False)
    )
    if not letters:  # gold measures neither
        records = tuple(run.records)
    result = check_thresholds(
        replace(run, records=records), ThresholdOptions(**limits), load_catalog("en")
    )
    assert result.exit_code == code
    assert sentence in "\n".join((*result.remarks, *result.findings))


def timed(record: SampleRecord) -> SampleRecord:
    """Return the record with one turn of 2 s: 900 prompt tokens, the first token after 0.5 s."""
    (turn,) = record.evidence.turns
    request = replace(
        turn.model_calls[0],
        response=replace(
            turn.model_calls[0].response,
            timing=Timing(first_token_s=0.5),
            usage=Usage(prompt_tokens=900),
        ),
    )
    turn = replace(turn, duration_s=2.0, calls=(), model_calls=(request,))
    return replace(record, evidence=replace(record.evidence, turns=(turn,)))


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
async def test_eval_prints_insignificant_difference_from_baseline(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval("gold")
    await run_eval("gold", name="flaky")

    def flaky(record: SampleRecord) -> SampleRecord:
        is_hit = record.sample_id.scenario in {"chat-1", "chat-2"}
        return (
            replace(record, judgement=replace(record.judgement, verdict=Verdict.FAIL))
            if is_hit
            else record
        )

    rewrite(tmp_path / "runs" / "flaky", flaky)
    assert await run_eval("gold", name="flaky", baseline=Path("gold")) == 0
    output = capsys.readouterr().out.splitlines()[-1]
    assert output.startswith("No significant difference between gold and flaky (p = 0.500)")
    assert "over 8 pairs" in output


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
async def test_eval_names_violations_new_since_baseline(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval("gold")
    await run_eval("gold", name="new")

    def one(record: SampleRecord) -> SampleRecord:
        is_hit = record.sample_id.scenario == "chat-3"
        return broken(record, Severity.ESCAPED) if is_hit else record

    rewrite(tmp_path / "runs" / "new", one)
    assert await run_eval("gold", name="new", baseline=Path("gold")) == 1
    out = capsys.readouterr().out
    assert "Violations that did not occur in gold occurred in: chat-3" in out


@pytest.mark.anyio
async def test_eval_exits_with_1_without_pairs_in_baseline(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CHAT.format(n=99, ac="AC-5"), encoding="utf-8")
    await run_eval("gold", name="base", paths=(other,))
    assert await run_eval("gold", baseline=Path("base")) == 1
    assert "no valid sample in common" in capsys.readouterr().out


@pytest.mark.anyio
async def test_eval_refuses_missing_baseline(run_eval: Eval, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        await run_eval("gold", baseline=Path("nowhere"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
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
    assert "1 played now, 7 kept" in out


@pytest.mark.anyio
async def test_eval_table_has_no_description_of_foreign_criterion(
    run_eval: Eval, scenarios: Path
) -> None:
    edit(scenarios, ("ac: AC-5", "ac: MY-1"))
    assert await run_eval() == 0


@pytest.mark.anyio
async def test_compare_prints_comparison_of_folders(
    run_eval: Eval, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval("gold")
    await run_eval("silent")
    gold, silent = (tmp_path / "runs" / name for name in ("gold", "silent"))
    capsys.readouterr()
    assert await compare_runs(CompareOptions(run_a=silent, run_b=gold, locale="ko"), settings) == 0
    assert "gold 쪽이 silent보다 낫습니다" in capsys.readouterr().out
    with pytest.raises(RunError, match="is not a run folder"):
        await compare_runs(CompareOptions(run_a=gold, run_b=tmp_path), settings)


@pytest.mark.promise("eval.margin", "eval.many")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("runs", "margin", "code", "text"),
    [
        (("gold", "gold"), 40.0, 0, "at most 40 points worse"),
        (("gold", "silent"), 40.0, 1, "more than 40 points worse"),
        (("gold", "gold"), 3.0, 4, "Cannot tell"),
        (("silent", "gold", "again"), None, 0, "Nothing separates from it (corrected"),
    ],
)
async def test_compare_exit_code_with_margin_and_several_runs(
    run_eval: Eval,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    runs: tuple[str, ...],
    margin: float | None,
    code: int,
    text: str,
) -> None:
    for name in {"gold", *runs}:
        await run_eval("silent" if name == "silent" else "gold", name=name)
    capsys.readouterr()
    a, b, *more = (tmp_path / "runs" / name for name in runs)
    options = CompareOptions(run_a=a, run_b=b, more=tuple(more), margin=margin)
    assert await compare_runs(options, settings) == code
    assert text in capsys.readouterr().out
    if more:
        with pytest.raises(UsageError, match="--margin compares two runs"):
            await compare_runs(options.model_copy(update={"margin": 3.0}), settings)


@pytest.mark.promise("eval.margin", "eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "code", "failures", "sentence"),
    [
        ({}, 0, None, ""),
        ({"baseline": "gold"}, 0, None, "silent is worse than gold: -100.0"),
        ({"max_p95_turn": 60.0}, 0, 0, "Every threshold is reached."),
        ({"fail_under": 50.0}, 1, 1, "The pass rate 0.0% is below 50.0%."),
        ({"baseline": "gold", "margin": 40.0}, 1, 1, "silent is more than 40 points worse than"),
        ({"baseline": "silent", "margin": 3.0}, 4, 1, "Cannot tell whether silent is more than 3"),
        ({"max_prompt_tokens": 9}, 4, 1, "the server reported no prompt tokens."),
    ],
)
async def test_report_has_thresholds_in_all_formats(
    run_eval: Eval,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    code: int,
    failures: int | None,
    sentence: str,
) -> None:
    runs = tmp_path / "runs"
    for name in ("silent", "gold"):
        await run_eval(name)
    capsys.readouterr()
    if "baseline" in options:
        options = {**options, "baseline": runs / options["baseline"]}
    files = {name: tmp_path / f"report.{name}" for name in ("html", "markdown", "junit")}
    given = ReportOptions(folder=runs / "silent", **files, **options)
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


@pytest.mark.anyio
async def test_rescore_writes_folder_next_to_run(
    run_eval: Eval,
    settings: Settings,
    scenarios: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await run_eval("silent")
    optional = "{tool: list_habits, optional: true}"
    edit(scenarios, ("{tool: list_habits}", optional), ("id: chat-1", "id: gone"))
    capsys.readouterr()
    run = tmp_path / "runs" / "silent"
    assert await rescore_run(RescoreOptions(run=run, paths=(scenarios,)), settings) == 0
    out = capsys.readouterr().out
    assert "Changed verdicts (1):\n  chat-0: fail → pass" in out
    assert "Skipped records (1):\n  chat-1: the scenario does not exist" in out
    records = read_records(tmp_path / "runs" / "silent-rescored")
    assert [
        each.sample_id.scenario for each in records if each.judgement.verdict is Verdict.PASS
    ] == ["chat-0"]
    assert len(records) == 7
    assert {each.judgement.verdict for each in read_records(run)} == {Verdict.FAIL}


@pytest.mark.anyio
async def test_rescore_refuses_run_of_other_scenarios(
    run_eval: Eval, settings: Settings, tmp_path: Path
) -> None:
    await run_eval("gold")
    with pytest.raises(RunError, match=r"no record of .*gold can be scored again"):
        await rescore_run(RescoreOptions(run=tmp_path / "runs" / "gold"), settings)
    assert not (tmp_path / "runs" / "gold-rescored").exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "klingon"}, "Invalid dialect 'klingon': choose one of"),
    ],
)
async def test_eval_refuses_invalid_names_with_scripted_models(
    run_eval: Eval, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await run_eval(**options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
async def test_eval_interrupted_prints_how_to_resume(
    run_eval: Eval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    async def interrupted(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("lhkit.cli.evaluation.replay", interrupted)
    with pytest.raises(asyncio.CancelledError):
        await run_eval()
    assert f"Finished samples are in {tmp_path / 'runs' / 'gold'}" in capsys.readouterr().out
