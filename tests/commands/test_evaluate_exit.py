"""`lhkit eval`, `compare` and `rescore` as CI runs them: exit codes, and one sentence for each."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.cli.compare import compare_runs
from lhkit.cli.evaluate import EvalOptions, evaluate
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.cli.thresholds import Thresholds, judged
from lhkit.errors import RunError, UsageError
from lhkit.harness.record import SampleRecord, Severity, Verdict, Violation, encode_record
from lhkit.harness.results import Run
from lhkit.harness.store import RECORDS, read_records
from lhkit.locales import load_catalog
from lhkit.settings import Settings, load_settings

CHAT = """
- id: chat-{n}
  ac: {ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""

Eval = Callable[..., Any]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_DATA_DIR", str(tmp_path / "data"))
    return load_settings()


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
async def test_a_pass_rate_below_the_least_ends_with_1(
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
async def test_a_share_where_percent_are_meant_is_refused_before_anything_is_played(
    run_eval: Eval, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"--fail-under is in percent: .* 0\.85 give 85$"):
        await run_eval("gold", fail_under=0.85)
    assert not (tmp_path / "runs").exists()


@pytest.mark.promise("eval.exit_zero")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fail_under": 1.5}, "exit code 1, by which a CI job stops: The pass rate 0.0% is below"),
        ({}, "exit code 0: no violation really happened, and no threshold was missed."),
    ],
)
async def test_for_people_a_finding_is_a_sentence_and_no_error(
    run_eval: Eval, capsys: pytest.CaptureFixture[str], options: dict[str, Any], sentence: str
) -> None:
    assert await run_eval("silent", exit_zero=True, **options) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"0 of 8 conversations passed. `lhkit eval` would end with {sentence}")


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("severity", "most", "code", "sentence"),
    [
        (Severity.ATTEMPTED, None, 0, ""),
        (Severity.ATTEMPTED, 8, 0, ""),
        (Severity.ATTEMPTED, 7, 1, "8 violations were blocked, and at most 7 are allowed."),
        (Severity.ESCAPED, None, 1, "8 violations really happened."),
        (Severity.ESCAPED, 100, 1, "8 violations really happened."),
    ],
)
async def test_too_many_violations_and_any_that_escaped_end_with_1(
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
async def test_a_world_that_failed_ends_with_3_whatever_is_asked_of_the_run(
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
    said = capsys.readouterr().out
    assert "8 conversations failed because of the world" in said
    assert "below" not in said, "a rate of nothing is no rate"
    assert "would end" not in said


@pytest.mark.anyio
async def test_a_baseline_of_which_nothing_is_valid_is_refused_before_anything_is_played(
    run_eval: Eval, tmp_path: Path
) -> None:
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
async def test_the_exit_code_of_every_mixture(
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
    thresholds = Thresholds(**{**asked, **({"baseline": run} if "baseline" in asked else {})})
    found = judged(replace(run, records=tuple(records)), thresholds, load_catalog("en"))
    assert found.exit_code == code


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize(("invalid_ones", "code"), [(range(2), 1), (range(8), 3)])
async def test_what_only_invalid_samples_tried_may_be_gone_with_their_next_try(
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
    found = judged(replace(run, records=records), Thresholds(max_violations=5), load_catalog("en"))
    assert found.exit_code == code


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
@pytest.mark.parametrize("baseline", ["name", "folder"])
async def test_a_run_that_is_worse_than_its_baseline_ends_with_1(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str], baseline: str
) -> None:
    await run_eval("gold")
    path = Path("gold") if baseline == "name" else tmp_path / "runs" / "gold"
    assert await run_eval("silent", baseline=path) == 1
    assert "silent is worse than gold: -100.0 (" in capsys.readouterr().out
    assert await run_eval("gold", baseline=tmp_path / "runs" / "silent") == 0
    assert "gold is better than silent: +100.0 (" in capsys.readouterr().out


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
async def test_a_difference_that_may_be_chance_does_not_fail_and_is_told(
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
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("No significant difference between gold and flaky (p = 0.500)")
    assert "over 8 pairs" in said


@pytest.mark.promise("eval.exit_codes")
@pytest.mark.anyio
async def test_a_violation_that_escaped_newly_is_named(
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
    assert "Violations that did not happen in gold really happened in: chat-3" in out


@pytest.mark.anyio
async def test_a_baseline_of_other_scenarios_fails_instead_of_passing_unseen(
    run_eval: Eval, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CHAT.format(n=99, ac="AC-5"), encoding="utf-8")
    await run_eval("gold", name="base", paths=(other,))
    assert await run_eval("gold", baseline=Path("base")) == 1
    assert "no valid sample in common" in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_baseline_that_is_none_is_refused_before_anything_is_played(
    run_eval: Eval, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        await run_eval("gold", baseline=Path("nowhere"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
async def test_a_changed_scenario_is_played_again_alone_and_named(
    run_eval: Eval, scenarios: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval()
    assert "questions are new" not in capsys.readouterr().out
    edit(scenarios, ("which habits do I have?", "my habits?"))
    await run_eval()
    out = capsys.readouterr().out
    assert out.startswith(
        "Played anew, because the questions are new: 1 of 8 samples. Changed: scenario chat-0\n"
        "Kept, because they are answered already: 7 of 8 samples.\n"
    )
    assert "1 played now, 7 kept" in out


@pytest.mark.anyio
async def test_an_acceptance_criterion_that_is_not_ours_has_no_words(
    run_eval: Eval, scenarios: Path
) -> None:
    edit(scenarios, ("ac: AC-5", "ac: MY-1"))
    assert await run_eval() == 0


@pytest.mark.anyio
async def test_two_runs_are_compared_from_their_folders(
    run_eval: Eval, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval("gold")
    await run_eval("silent")
    gold, silent = (tmp_path / "runs" / name for name in ("gold", "silent"))
    capsys.readouterr()
    assert await compare_runs(silent, gold, locale="ko", settings=settings) == 0
    assert "gold 쪽이 silent보다 낫습니다" in capsys.readouterr().out
    with pytest.raises(RunError, match="is not a run folder"):
        await compare_runs(gold, tmp_path, settings=settings)


@pytest.mark.anyio
async def test_a_run_is_rescored_beside_itself(
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
    assert "Verdicts that changed (1):\n  chat-0: fail → pass" in out
    assert (
        "Records that could not be scored again (1):\n  chat-1: the scenario does not exist" in out
    )
    records = read_records(tmp_path / "runs" / "silent-rescored")
    assert [
        each.sample_id.scenario for each in records if each.judgement.verdict is Verdict.PASS
    ] == ["chat-0"]
    assert len(records) == 7
    assert {each.judgement.verdict for each in read_records(run)} == {Verdict.FAIL}


@pytest.mark.anyio
async def test_a_run_of_other_scenarios_cannot_be_rescored(
    run_eval: Eval, settings: Settings, tmp_path: Path
) -> None:
    await run_eval("gold")
    with pytest.raises(RunError, match=r"no record of .*gold can be scored again"):
        await rescore_run(RescoreOptions(run=tmp_path / "runs" / "gold"), settings)
    assert not (tmp_path / "runs" / "gold-rescored").exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dialect": "klingon"}, "Invalid dialect 'klingon': choose one of"),
    ],
)
async def test_a_word_that_names_nothing_is_refused_for_scripted_models_too(
    run_eval: Eval, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        await run_eval(**options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
async def test_somebody_who_interrupts_is_told_that_nothing_is_lost(
    run_eval: Eval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    async def interrupted(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("lhkit.cli.evaluation.replay", interrupted)
    with pytest.raises(asyncio.CancelledError):
        await run_eval()
    assert f"What was finished is in {tmp_path / 'runs' / 'gold'}" in capsys.readouterr().out
