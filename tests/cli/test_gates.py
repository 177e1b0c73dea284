"""Gates of `lhkit eval`, `compare` and `report`: a gate that could not fail never answers 0."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.frame.options import ThresholdOptions, parse_duration
from lhkit.cli.frame.thresholds import ThresholdResult, check_thresholds, powerless_line
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.harness.figures.rates import below_texts, is_below
from lhkit.harness.figures.regressions import count_regressions
from lhkit.harness.figures.statistics import difference_interval, least_passing, sign_flip
from lhkit.harness.records.record import SampleRecord, encode_record
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.settings import Settings
from tests.harness.build import FAIL, INVALID, PASS, sample, turn_of
from tests.rows import check_rows

ENGLISH, KOREAN = load_catalog("en"), load_catalog("ko")
VERDICTS = {"p": PASS, "f": FAIL, "i": INVALID}


def records(text: str) -> Iterator[SampleRecord]:
    """Yield records of `a:ppf b:p~f`: scenarios, verdicts of repeats, `~` before each wording."""
    for place, word in enumerate(text.split()):
        name, _, letters = word.rpartition(":")
        for wording, repeats in enumerate(letters.split("~")):
            for repeat, letter in enumerate(repeats):
                if letter == "-":
                    continue
                record = sample(name or f"s{place}", VERDICTS[letter])
                sample_id = SampleId(scenario=name or f"s{place}", repeat=repeat, wording=wording)
                yield replace(record, sample_id=sample_id)


def run(text: str, name: str = "now") -> Run:
    return Run(records=tuple(records(text)), name=name)


def spaced(letters: str) -> str:
    """Return one scenario a letter."""
    return " ".join(letters)


def check(before: str, now: str, catalog: Any = ENGLISH, **options: Any) -> ThresholdResult:
    limits = ThresholdOptions(**options)
    return check_thresholds(run(now), limits, catalog, baseline=run(before, "before"))


@check_rows(
    ("before", "now", "code"),
    [
        ("p p p p p", "p p p p p", 4),  # five scenarios: p = 0.062 even if all fail
        ("p p p p p", "f f f f f", 4),
        ("p p p p p p", "p p p p p p", 0),
        ("p p p p p p", "f f f f f f", 1),
        ("p p p p p f f f f f f f", "p p p p p f f f f f f f", 4),  # seven cannot regress
        ("f f f f f f f f", "f f f f f f f f", 4),  # nothing can regress
        ("f f f f f f f f", "p p p p p p p p", 0),  # significantly better
        ("f f f f f", "p p p p p", 4),  # better, and too few to tell
        ("ppppp ppppp ppppp ppppp ppppp", "fffff fffff fffff fffff fffff", 4),  # 25 pairs
        ("p~p~p~p p~p~p~p", "f~f~f~f f~f~f~f", 4),
        ("pppppppppppp", "ffffffffffff", 4),  # one scenario, many repeats
        ("pff pff pff pff pff pff", "pff pff pff pff pff pff", 0),
        ("ppp ppp ppp ppp ppp ppp ppp ppp", "fff fff fff ppp ppp ppp ppp ppp", 0),  # 8 could fail
        ("p p p p p p p p", "a:p b:p", 4),  # no pair
        ("p p p p p p p p", "p p p p p", 4),  # a selection
        ("i i i i i i i p", "p p p p p p p p", 4),  # one valid pair
        ("p p p p p p p p", "i i i p p p p p", 3),
    ],
)
def test_baseline_never_answers_0_where_it_could_not_have_failed(
    before: str, now: str, code: int
) -> None:
    result = check(before, now)
    assert result.exit_code == code
    if code == 4 and run(before).records[0].sample_id in {r.sample_id for r in run(now).records}:
        (sentence,) = result.cannot_tell
        assert "Cannot tell whether now is worse than before" in sentence
        assert "from 6 on" in sentence
        assert "--max-regressions" in sentence
        assert "6개부터" in check(before, now, KOREAN).cannot_tell[0]


@check_rows(
    ("before", "now", "margin", "code", "text"),
    [
        ("p" * 11, "p" * 11, 60, 4, "At least 12 such scenarios"),  # "worse" was out of reach
        ("p" * 12, "p" * 12, 60, 0, ""),
        ("p" * 12, "f" * 12, 60, 1, ""),
        ("p" * 8, "p" * 8, 3, 4, "would be needed to tell"),
        ("f" * 8, "f" * 8, 40, 4, "no number of such scenarios"),
        ("f" * 8, "p" * 8, 40, 0, ""),
        ("p" * 20, "p" * 20, 100, 4, "no number of such scenarios"),
        ("pf" * 20, "pf" * 20, 60, 4, "no number of such scenarios"),
        ("p", "p", 99, 4, "such scenarios"),
    ],
)
def test_margin_never_answers_0_where_it_could_not_have_failed(
    before: str, now: str, margin: float, code: int, text: str
) -> None:
    result = check(spaced(before), spaced(now), margin=margin)
    assert result.exit_code == code
    assert text in " ".join(result.cannot_tell)


def outcomes(sizes: Sequence[int]) -> Iterator[str]:
    """Yield all verdicts of scenarios with these numbers of repeats, as counts of passes."""
    for passes in product(*(range(size + 1) for size in sizes)):
        yield " ".join(
            "p" * passed + "f" * (size - passed) for passed, size in zip(passes, sizes, strict=True)
        )


@pytest.mark.longer
@check_rows(
    ("sizes", "margin"),
    [
        *(((1,) * n, None) for n in (1, 3, 5, 6, 7)),
        ((2, 2, 1, 1, 1), None),
        ((2, 1, 1, 1, 1, 1), None),
        *(((1,) * n, margin) for n in (1, 4, 5, 6) for margin in (20.0, 45.0, 60.0)),
        ((2, 1, 2), 30.0),
    ],
)
def test_can_be_worse_agrees_with_every_possible_candidate(
    sizes: Sequence[int], margin: float | None
) -> None:
    candidates = [text.split() for text in outcomes(sizes)]
    worse: dict[tuple[tuple[int, ...], ...], bool] = {}
    for before in {tuple(sorted(text.split())): text for text in outcomes(sizes)}.values():
        kinds = {gains_of(before.split(), now) for now in candidates}
        for gains in kinds - worse.keys():
            worse[gains] = is_worse(gains, margin)
        baseline = run(before, "before")
        expected = any(worse[gains] for gains in kinds)
        assert compare(baseline, baseline, margin=margin).can_be_worse == expected, before


def gains_of(before: Sequence[str], now: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the gains of each scenario, in any order: no test depends on it."""
    gains = (
        tuple(sorted((y == "p") - (x == "p") for x, y in zip(old, new, strict=True)))
        for old, new in zip(before, now, strict=True)
    )
    return tuple(sorted(gains))


def is_worse(gains: Sequence[Sequence[int]], margin: float | None) -> bool:
    """Return the decision of the test, as `Comparison.outcome` makes it."""
    if margin is None:
        sums = [sum(cluster) for cluster in gains]
        return sign_flip(sums) < 0.05 and sum(sums) < 0
    interval = difference_interval(gains)
    return interval is not None and 100 * interval.high < -margin


@pytest.mark.parametrize(("now", "names"), [("f f f p p p p p", "s0, s1, s2"), ("p " * 8, None)])
def test_baseline_names_regressions_that_the_paired_test_lets_pass(
    now: str, names: str | None
) -> None:
    result = check("p " * 8, now)
    assert result.exit_code == 0
    sentences = [remark for remark in result.remarks if "Regressions" in remark]
    assert len(sentences) == (names is not None)
    for sentence in sentences:
        assert f"in all: {names}. The paired test passes" in sentence
        assert "needs at least 6" in sentence
        assert "--max-regressions" in sentence


def test_least_passing_is_the_number_with_which_the_test_can_fail() -> None:
    n = least_passing()
    assert check(spaced("p" * n), spaced("f" * n)).exit_code == 1
    assert check(spaced("p" * (n - 1)), spaced("f" * (n - 1))).exit_code == 4


@check_rows(
    ("before", "now", "most", "code", "names"),
    [
        ("p p p p p", "p p p p p", 0, 0, ""),
        ("p", "p", 0, 0, ""),
        ("p p p p p", "p f p p p", 0, 1, "s1"),
        ("p p p p p", "p f p f p", 1, 1, "s1, s3"),
        ("p p p p p", "p f p f p", 2, 0, "s1, s3"),
        ("p f p f p", "p p f p p", 0, 1, "s2"),  # improvements do not pay for it
        ("ppp ppp", "ppf ppp", 0, 1, "s0"),  # repeats count once
        ("ppp ppp", "fff ppp", 1, 0, "s0"),
        ("ppf ppf", "pff fpp", 0, 1, "s0"),  # fewer than before, which repeat does not matter
        ("ppf ppf", "fpp pfp", 0, 0, ""),
        ("p p", "pff p", 0, 1, "s0"),  # more repeats than before
        ("ppp ppp", "p p", 0, 0, ""),
        ("p~p p~p", "p~f p~p", 0, 1, "s0"),  # one wording is enough, and counts once
        ("p~p p~p", "f~f p~p", 1, 0, "s0"),
        ("p p", "p~f p~f", 0, 0, ""),  # a wording that was not asked before is no regression
        ("f f f", "f f f", 0, 4, "no scenario could regress"),
        ("f f f f f f", "p p p p p p", 0, 0, ""),  # better for sure
        ("p p f f", "p p f f", 2, 4, "--max-regressions 2 could not have failed"),
        ("p p", "f f", 2, 4, "could not have failed"),
        ("p p p", "a:p b:p", 0, 4, "no scenario could regress"),
        ("p p p", "p i p", 0, 3, ""),
        ("p p p", "f i p", 0, 1, "s0"),
        ("ppp p", "fii p", 0, 1, "s0"),  # fails even if the invalid ones pass
        ("ppf p", "fii p", 0, 3, ""),
        ("i p p", "f p p", 0, 0, ""),  # what it was before is unknown, and is said
        ("p" * 60 + " p", "f" * 60 + " p", 0, 1, "s0"),
    ],
)
def test_max_regressions_counts_scenarios_that_passed_and_fail_now(
    before: str, now: str, most: int, code: int, names: str
) -> None:
    result = check(before, now, max_regressions=most)
    assert result.exit_code == code
    assert names in " ".join((*result.remarks, *result.findings))


def test_max_regressions_names_all_of_them() -> None:
    result = check(spaced("p" * 30), spaced("f" * 30), max_regressions=3)
    (sentence,) = result.missed
    assert sentence.endswith(", ".join(f"s{n}" for n in range(30)))
    assert "30 scenarios" in sentence
    assert "at most 3" in sentence


def test_max_regressions_replaces_the_paired_test_but_not_the_margin() -> None:
    before, now = spaced("p" * 30), spaced("f" * 8 + "p" * 22)
    assert check(before, now).exit_code == 1
    allowed = check(before, now, max_regressions=8)
    assert allowed.exit_code == 0
    assert "now is worse than before" in " ".join(allowed.remarks)
    assert check(before, now, max_regressions=8, margin=3).exit_code == 1
    assert check(before, before, max_regressions=8, margin=3).exit_code == 4


def test_max_regressions_says_what_was_not_compared() -> None:
    regressions = count_regressions(records("a:p b:p c:ff d:i e:p~p"), records("a:i c:f d:p e:p"))
    assert regressions.invalid == ("a",)
    assert regressions.unknown == ("d",)
    assert regressions.missing == ("b", "e~2")
    text = " ".join(check("a:p b:p c:p", "a:p c:p").remarks)
    assert "In before, and missing in this run (1): b" in text
    text = " ".join(check("a:p b:p c:p", "a:p b:i c:p", max_regressions=0).remarks)
    assert "Passed in before, and have no valid sample now (1): b" in text


@pytest.mark.parametrize("option", [{"max_regressions": 0}, {"margin": 3.0}])
def test_options_of_a_comparison_need_a_baseline(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"is for a comparison: give --baseline too"):
        ThresholdOptions(**option).require_valid()


@pytest.mark.longer
@check_rows(
    ("passed", "valid", "limit", "code"),
    [
        *((n, 100, n, 0) for n in range(1, 101)),
        *((n, 1000, n / 10, 0) for n in range(1, 1000, 41)),
        *((n, 100, n + 1, 1) for n in range(100)),
        (2, 3, 66.7, 1),
        (2, 3, 66.67, 1),
        (2, 3, 66.6, 0),
        (1, 3, 33.3, 0),
        (199, 200, 99.6, 1),
        (199, 200, 99.5, 0),
        (0, 3, 0, 0),
    ],
)
def test_fail_under_compares_counts(passed: int, valid: int, limit: float, code: int) -> None:
    judged = run(spaced("p" * passed + "f" * (valid - passed)))
    result = check_thresholds(judged, ThresholdOptions(fail_under=limit), ENGLISH)
    assert result.exit_code == code
    for sentence in result.missed:
        rate, least = (word.rstrip("%.") for word in sentence.split() if "%" in word)
        assert float(rate) < float(least), sentence


def test_below_texts_are_never_equal() -> None:
    assert below_texts(0, 8, 50) == ("0.0", "50.0")
    assert below_texts(2, 3, 66.7) == ("66.67", "66.70")
    limits = (0.1 + 0.2, 29.0, 66.67, 99.99, 100.0)
    for passed, valid, limit in product(range(40), range(1, 40), limits):
        if passed <= valid and is_below(passed, valid, limit):
            rate, least = below_texts(passed, valid, limit)
            assert float(rate) < float(least)


def test_fail_under_0_is_said_to_stop_nothing() -> None:
    result = check_thresholds(run("f f"), ThresholdOptions(fail_under=0), ENGLISH)
    assert result.remarks == ("--fail-under 0 has no effect: every run reaches it.",)


@check_rows(
    ("text", "seconds"),
    [("57ms", 0.057), ("1009ms", 1.009), ("2300ms", 2.3), ("1.1 ms", 0.0011), ("3s", 3.0)],
)
def test_durations_are_the_numbers_that_were_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@check_rows(
    ("measured", "limit", "sentence"),
    [
        (0.1 + 0.2, 0.3, None),  # the rounding error of a sum
        (0.3, 0.3, None),
        (2.001, 2.0, "The p95 of a user turn, 2.0010 s, is above 2.0000 s."),
        (2.5, 2.0, "The p95 of a user turn, 2.50 s, is above 2.00 s."),
        (0.30000002, 0.3, "0.30000002 s, is above 0.30000000 s."),
    ],
)
def test_time_limits_never_name_two_equal_numbers(
    measured: float, limit: float, sentence: str | None
) -> None:
    timed = sample("s", PASS, 0, turn_of(duration_s=measured))
    options = ThresholdOptions(max_p95_turn=limit)
    result = check_thresholds(Run(records=(timed,)), options, ENGLISH)
    assert result.exit_code == (0 if sentence is None else 1)
    assert (sentence or "") in " ".join(result.missed)


def write_run(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    lines = "".join(f"{encode_record(record)}\n" for record in records(text))
    (folder / RECORDS).write_text(lines, encoding="utf-8")
    return folder


@pytest.mark.longer
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("now", "options", "code", "text"),
    [
        ("p p p p p", {}, 0, "Cannot tell whether"),  # it shows, and decides nothing
        ("p p p p p", {"max_regressions": 0}, 0, "Regressions: none of the 5 scenarios"),
        ("p f p p p", {"max_regressions": 0}, 1, "at most 0 may: s1"),
        ("p f p p p", {"max_regressions": 1}, 0, "1 may: s1"),
        ("p f p p p", {"max_regressions": 5}, 4, "could not have failed"),
        ("p i p p p", {"max_regressions": 0}, 3, "no valid sample now (1): s1"),
        ("p f p p p", {"margin": 3.0}, 4, "Cannot tell"),
        ("a:p", {"margin": 3.0}, 4, "no valid sample in common"),
    ],
)
async def test_compare_decides_with_max_regressions(
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    now: str,
    options: dict[str, Any],
    code: int,
    text: str,
) -> None:
    a = write_run(tmp_path / "before", "p p p p p")
    b = write_run(tmp_path / "now", now)
    given = CompareOptions(run_a=a, run_b=b, **options)
    assert await compare_runs(given, settings) == code
    assert text in capsys.readouterr().out.replace("\n", " ")


SCENARIO = """
- id: list-{n}
  ac: AC-5
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""


@pytest.mark.longer
@pytest.mark.anyio
async def test_eval_of_few_scenarios_stops_by_max_regressions(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "five.yaml"
    file.write_text("".join(SCENARIO.format(n=n) for n in range(5)), encoding="utf-8")
    runs = tmp_path / "runs"
    files = {"markdown": tmp_path / "comment.md", "junit": tmp_path / "junit.xml"}

    async def play(model: str, name: str, **options: Any) -> int:
        given = {"paths": (file,), "runs_dir": runs, "name": name, **options}
        return await evaluate(EvalOptions(model=model, **given), settings)

    assert await play("gold", "accepted") == 0
    capsys.readouterr()
    baseline = {"baseline": Path("accepted")}
    assert await play("silent", "new", **baseline, **files) == 4
    shown = capsys.readouterr()
    assert "--baseline cannot fail, whatever the model answers" in shown.err
    assert "the paired test can only fail from 6 on" in shown.out
    comment = files["markdown"].read_text(encoding="utf-8")
    assert comment.startswith("## ❔ `new`\n\nExit code 4: cannot tell.")
    assert "the paired test can only fail from 6 on" in comment
    assert "the paired test can only fail" in files["junit"].read_text(encoding="utf-8")

    assert await play("silent", "new", **baseline, **files, max_regressions=0) == 1
    shown = capsys.readouterr()
    assert "cannot fail" not in shown.err
    assert "list-0, list-1, list-2, list-3, list-4" in shown.out
    assert files["markdown"].read_text(encoding="utf-8").startswith("## ❌ `new`\n\nExit code 1:")

    assert await play("gold", "same", **baseline, **files, max_regressions=0) == 0
    comment = files["markdown"].read_text(encoding="utf-8")
    assert comment.startswith("## ✅ `same`\n\nExit code 0:")
    assert "Cannot tell" not in comment  # the paired test, which did not decide
    capsys.readouterr()
    pair = {"run_a": runs / "accepted", "run_b": runs / "same", "max_regressions": 0}
    assert await compare_runs(CompareOptions(**pair), settings) == 0
    assert "Cannot tell" not in capsys.readouterr().out
    assert await play("silent", "new", **baseline, **files, exit_zero=True) == 0
    comment = files["markdown"].read_text(encoding="utf-8")
    assert comment.startswith("## ⚠️ `new`\n\nExit code 0: --exit-zero was given.")
    assert "no threshold was missed" not in comment
    assert "the paired test can only fail" in comment


@check_rows(
    ("before", "options", "is_said"),
    [
        ("p" * 5, {}, True),
        ("p" * 6, {}, False),
        ("p" * 5 + "f" * 9, {}, True),
        ("p" * 11, {"margin": 60}, True),
        ("p" * 12, {"margin": 60}, False),
        ("p" * 30, {"margin": 100}, True),
        ("p" * 5, {"max_regressions": 0}, False),
        ("p" * 5, {"max_regressions": 5}, True),
        ("p" * 12, {"max_regressions": 12, "margin": 60}, False),  # both decide
        ("f" * 9, {"max_regressions": 0}, True),
    ],
)
def test_powerless_line_says_before_the_run_that_a_gate_cannot_fail(
    before: str, options: dict[str, Any], is_said: bool
) -> None:
    baseline, limits = run(spaced(before), "before"), ThresholdOptions(**options)
    ids = {record.sample_id.scenario for record in baseline.records}
    line = powerless_line(limits, baseline, ids, ENGLISH)
    assert ("cannot fail" in line) == is_said
    assert powerless_line(limits, baseline, {"another"}, ENGLISH).startswith("No scenario")


@pytest.mark.longer
@pytest.mark.anyio
@pytest.mark.parametrize("is_folder", [True, False])
@pytest.mark.parametrize(("scenarios", "is_few"), [(5, True), (6, False)])
async def test_lint_of_a_folder_notes_a_gate_that_cannot_fail(
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    scenarios: int,
    is_few: bool,
    is_folder: bool,
) -> None:
    file = tmp_path / "suite" / "some.yaml"
    file.parent.mkdir()
    file.write_text("".join(SCENARIO.format(n=n) for n in range(scenarios)), encoding="utf-8")
    options = LintOptions(paths=(file.parent if is_folder else file,))
    assert await lint_paths(options, settings) == 0
    assert ("--max-regressions 0" in capsys.readouterr().out) == (is_few and is_folder)


@pytest.mark.longer
@pytest.mark.anyio
@pytest.mark.parametrize("colour", ["", "1"])  # CI systems force colours
async def test_eval_in_a_pipe_prints_reasons_in_full(
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    colour: str,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", colour)
    file = tmp_path / "long.yaml"
    long = "list_habits, " * 20
    text = SCENARIO.format(n=0).replace(
        "}]}}]", f'}}]}}, reply: {{contains_all: ["{long}END"]}}}}]'
    )
    file.write_text(text, encoding="utf-8")
    options = EvalOptions(model="silent", paths=(file,), runs_dir=tmp_path / "runs", name="x")
    await evaluate(options, settings)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "list-0 · fail" in line)
    assert "list_habits was expected and not called" in line
    assert "END" in line

    user = "do not show " * 20
    file.write_text(text.replace("which habits do I have?", f"{user}END"), encoding="utf-8")
    for model in ("silent", "gold"):
        given = {"paths": (file,), "runs_dir": tmp_path / "runs", "name": model}
        await evaluate(EvalOptions(model=model, **given), settings)
    capsys.readouterr()
    pair = {"run_a": tmp_path / "runs" / "silent", "run_b": tmp_path / "runs" / "gold"}
    await compare_runs(CompareOptions(**pair), settings)
    lines = capsys.readouterr().out.splitlines()
    (failed,) = (line for line in lines if "silent · fail" in line)
    assert "not called; turn 0: the reply" in failed
    assert "END" in failed
    assert {line.strip() for line in lines if "do not show" in line} == {f"> {user}END"}


@pytest.mark.anyio
async def test_eval_and_rescore_print_what_decides_and_all_figures_with_details(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "one.yaml", tmp_path / "runs" / "x"
    file.write_text(SCENARIO.format(n=0), encoding="utf-8")
    given = {"model": "silent", "paths": (file,), "runs_dir": run.parent, "name": run.name}
    rescored = {"run": run, "paths": (file,), "into": tmp_path / "new"}
    outputs = []
    for details in (False, True):
        await evaluate(EvalOptions(**given, details=details), settings)
        outputs.append(capsys.readouterr().out.splitlines())
        await rescore_run(RescoreOptions(**rescored, details=details), settings)
        outputs.append(capsys.readouterr().out.splitlines())
    short_eval, short_rescore, all_eval, all_rescore = outputs
    assert [line.split("  ")[0] for line in short_eval[:3]] == [
        "passed",
        "violations occurred",
        "user turn p95",
    ]
    assert len(short_eval) == 8
    assert f"lhkit report {run}" in short_eval[-1]
    assert short_rescore[:4] == short_eval[:4]
    for lines in (all_eval, all_rescore):
        assert any("AC-5" in line for line in lines)
        assert any(line.startswith("tool selection:") for line in lines)
        assert any(line.startswith("tokens:") for line in lines)
    assert not any("--details" in line for line in all_eval)
