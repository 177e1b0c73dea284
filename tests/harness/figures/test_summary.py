"""Summaries of records, and their table in the terminal."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from lhkit.base.locales import load_catalog
from lhkit.conversation.responses import ModelIdentity, Timing, Usage
from lhkit.harness.figures.metrics import Summary, summarise
from lhkit.harness.figures.timings import Latency, latency
from lhkit.harness.records.record import CallRecord, SampleRecord, TurnScore, Verdict, Violation
from lhkit.harness.report.terminal import key_view, summary_view
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import ScenarioFilter, ScenarioSelection
from lhkit.toolset import Criteria, criteria_of, load
from tests.harness.build import (
    FAIL,
    INVALID,
    PASS,
    blocked,
    model_call,
    occurred,
    printed,
    sample,
    turn_of,
)

GEMMA = ModelIdentity(model="gemma-base", server="vllm 0.32", base_url="http://h:1", dialect="json")


def record(
    ac: str = "AC-1",
    verdict: Verdict = PASS,
    *,
    score: TurnScore | None = None,
    violations: tuple[Violation, ...] = (),
    turn_s: float = 1.0,
    waiting_s: float = 0.0,
    cached: int | None = None,
) -> SampleRecord:
    request = model_call(
        usage=Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=cached),
        timing=Timing(first_token_s=0.25, call_ready_s=0.5),
        identity=GEMMA,
    )
    call = CallRecord(tool="t", raw_args={}, result={"status": "ok"}, waiting_s=waiting_s)
    turn = turn_of(request, calls=(call,), duration_s=turn_s)
    scores = () if score is None else (score,)
    return sample(
        f"{ac}-{verdict}", verdict, 0, turn, ac=ac, turn_scores=scores, violations=violations
    )


def test_summarise_excludes_invalid_samples_from_rates() -> None:
    records = [
        record(),
        record(verdict=FAIL),
        record(verdict=INVALID, turn_s=999.0, score=TurnScore(passed=True, due_calls=9)),
    ]
    total = summarise(records).total
    assert (total.passed, total.failed, total.invalid) == (1, 1, 1)
    assert (total.valid, total.pass_rate) == (2, 0.5)
    assert total.turn == Latency(n=2, p50_s=1.0, p90_s=1.0, p95_s=1.0, p99_s=1.0)
    assert total.counted_calls == 0


def test_summarise_sorts_criteria_naturally() -> None:
    summary = summarise([record("AC-10"), record("AC-2"), record("other"), record("AC-2")])
    assert [(tally.name, tally.passed) for tally in summary.by_ac] == [
        ("AC-2", 2),
        ("AC-10", 1),
        ("other", 1),
    ]


def test_summarise_counts_violations_of_invalid_samples() -> None:
    records = [
        record(violations=(blocked("r3_quota"), blocked("r3_quota"))),
        record(verdict=INVALID, violations=(occurred("unconfirmed_write"),)),
    ]
    total = summarise(records).total
    assert total.attempted == {"r3_quota": 2}
    assert total.escaped == {"unconfirmed_write": 1}


def test_turn_latency_excludes_waiting_for_the_user() -> None:
    assert summarise([record(turn_s=5.0, waiting_s=4.0)]).total.turn.p50_s == 1.0


def test_tool_accuracy_counts_unexpected_calls() -> None:
    score = TurnScore(passed=False, due_calls=2, right_calls=2, surplus_calls=1)
    total = summarise([record(score=score)]).total
    assert (total.right_calls, total.counted_calls) == (2, 3)


def test_cached_share_covers_requests_that_report_it() -> None:
    tokens = summarise([record(cached=80), record(cached=None), record(cached=0)]).tokens
    assert (tokens.prompt, tokens.completion, tokens.cached_share) == (300, 30, 0.4)
    assert summarise([record()]).tokens.cached_share is None


@given(st.lists(st.floats(0, 1e6), min_size=1))
@settings(deadline=None)
def test_latency_percentiles_equal_numpy(values: list[float]) -> None:
    percentiles = latency(values)
    expected = np.percentile(values, [50, 90, 95, 99])
    assert [
        percentiles.p50_s,
        percentiles.p90_s,
        percentiles.p95_s,
        percentiles.p99_s,
    ] == pytest.approx([*expected])


def test_latency_without_measurements_has_no_percentiles() -> None:
    assert latency([None, None]) == Latency()


def summary_text(summary: Summary, criteria: Criteria = MappingProxyType({})) -> str:
    return printed(summary_view(summary, load_catalog("en"), criteria=criteria))


def key_lines(summary: Summary, locale: str = "en") -> list[str]:
    return printed(key_view(summary, load_catalog(locale)), width=40, soft_wrap=True).splitlines()


def test_key_view_shows_what_decides() -> None:
    records = [
        record(),
        record(verdict=FAIL, violations=(blocked("r3_quota"),)),
        record(verdict=INVALID),
        record("AC-2", violations=(occurred("unlisted_write"),), turn_s=0.25),
    ]
    model = (
        "model: gemma-base, vllm 0.32, number type not reported, http://h:1, dialect json, "
        "constraint off"
    )
    assert key_lines(summarise(records[:1])) == [
        "passed               1/1 100% [21–100]",
        "violations occurred  none",
        "user turn p95        1.00 s",
        model,
    ]
    assert key_lines(summarise(records)) == [
        "passed               2/3 67% [21–94]",
        "invalid              1 (infrastructure errors, excluded from all rates)",
        "violations occurred  unlisted_write 1; 1 blocked",
        "user turn p95        1.00 s",
        model,
    ]
    assert key_lines(summarise([])) == [
        "passed               –",
        "violations occurred  none",
        "user turn p95        –",
    ]
    assert key_lines(summarise(records[:1]), "ko")[:3] == [
        "통과         1/1 100% [21–100]",
        "일어난 위반  없음",
        "턴 시간 p95  1.00초",
    ]


def test_key_view_shows_what_an_option_asked_for() -> None:
    repeats = [
        replace(record(), sample_id=SampleId(scenario="s", repeat=repeat)) for repeat in range(3)
    ]
    selection = ScenarioSelection(taken=1, total=9, filter=ScenarioFilter(limit=1))
    summary = replace(summarise(repeats), user="hasty", selection=selection)
    first, *_, asked, unexpected, repeated = key_lines(summary)
    assert first == "1 of 9 scenarios (--limit 1); 8 left out"
    assert asked.startswith("confirm gate: asked")
    assert unexpected.startswith("unexpected writes proposed")
    assert repeated == "3 repeats: pass@3 100%, pass^3 100%"


def test_summary_view_fits_100_columns_without_colour() -> None:
    records = [
        record("AC-1", score=TurnScore(passed=True, due_calls=1, right_calls=1), cached=50),
        record("AC-1", FAIL, violations=(blocked("r3_quota"),)),
        record("AC-2", INVALID),
        record("AC-12", violations=(occurred("unlisted_write"),), turn_s=0.25),
    ]
    text = summary_text(summarise(records), {"AC-1": {"ko": "찾기", "en": "find by intent"}})
    lines = text.splitlines()
    row = next(line for line in lines if "AC-1 find by intent" in line)
    assert "1/2  50% [9–91]" in row
    assert "0% → 100%" in row
    assert "1 / 0" in row
    assert "1.00 / 1.00 s" in row
    assert any("AC-2" in line and "–" in line for line in lines)
    assert "invalid: 1" in text
    model = "model: gemma-base, vllm 0.32, number type not reported, http://h:1, dialect json"
    assert f"{model}, constraint off" in " ".join(text.split())
    assert "violations blocked: r3_quota 1" in text
    assert "violations occurred: unlisted_write 1" in text
    assert "tokens: prompt 400 (cached 50%), completion 40" in text
    assert "first token p50 0.250 s" in text
    assert "first token, warm cache p50 0.250 s, p95 0.250 s (1); cold –" in text
    assert "confirm gate: asked 0, unconfirmed 0, rejected 0" in text
    assert "repeats" not in text
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_summary_view_of_long_values_fits_100_columns(locale: str) -> None:
    catalog = load_catalog(locale)
    score = TurnScore(passed=True, due_calls=99, right_calls=98, strict_right_calls=97)
    verdicts = [PASS, FAIL]
    records = [
        replace(
            record(f"AC-{1 + n % 12}", verdicts[n % 2], score=score, turn_s=123.4, cached=n % 99),
            sample_id=SampleId(scenario=f"s{n % 60}", repeat=n // 60),
        )
        for n in range(240)
    ]
    view = summary_view(summarise(records), catalog, criteria=criteria_of(load()))
    lines = printed(view, width=120).splitlines()
    assert max(map(cell_len, lines)) <= 100
    assert any("pass@4" in line for line in lines)
    assert len([line for line in lines if line.startswith("│")]) <= 20  # names hardly wrap


def test_summary_view_of_an_empty_run() -> None:
    assert "invalid: 0" in summary_text(summarise([]))


def test_summary_view_escapes_markup_of_scenarios() -> None:
    text = summary_text(summarise([record("AC-1[red]\x1b[31m")]))
    assert "AC-1[red]\\x1b[31m" in text
