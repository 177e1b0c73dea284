"""One small round of the benchmarks that need no server and no peer."""

from dataclasses import replace
from pathlib import Path

import dispatch_latency
import large_run
import numpy as np
import pytest
import results
import scripted_sample
import start_up
import suggest
import wording
from figures import Machine

from lhkit.harness.figures.sequential import SequentialTest
from lhkit.harness.figures.statistics import holm
from lhkit.harness.results.results import Run
from lhkit.harness.running.stopping import DropRule
from tests.harness.results.test_arms import arm, dropped, scenarios_run

MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)


def test_scripted_sample_replays_and_summarizes(tmp_path: Path) -> None:
    # Linux accounts for pages of threads late: a later peak may be some KiB lower.
    assert scripted_sample.play(2, tmp_path / "run", repeats=2).peak_mib > 10
    assert scripted_sample.summarize(tmp_path / "run", 4).peak_mib > 10
    with pytest.raises(AssertionError, match="4 of 5"):
        scripted_sample.summarize(tmp_path / "run", 5)
    scripted_sample.drive(2, tmp_path / "drive", repeats=3)
    scripted_sample.summarize(tmp_path / "drive" / "driven", 6)


@pytest.mark.longer
def test_large_run_measures_each_step_and_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = large_run.measure_steps(3, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(large_run, "PAGE_SAMPLES", 6)
        large_run.write_run(Run.load(tmp_path / "run"), tmp_path / "page")
    run = Run.load(tmp_path / "page")
    assert [str(each.score.verdict) for each in run.records].count("fail") == 2
    assert len({each.sample_id for each in run.records}) == 6
    page = {"mb": 1.0, "mib": 1.0, "cpu_s": 1.0}
    measured = large_run.build_measurement([steps, steps], page, MACHINE)
    assert {*results.FELT["large_run"]} <= {figure.what for figure in measured.figures}


def test_results_show_the_figures_of_start_up_that_people_feel() -> None:
    names = [*start_up.GOALS, start_up.WHOLE, start_up.VERSION, start_up.HELP]
    peers = [other for other, *_ in start_up.COMPARISONS]
    measured = start_up.build_measurement({name: [1.0] for name in (*names, *peers)}, MACHINE, {})
    assert {*results.FELT["start_up"]} <= {figure.what for figure in measured.figures}


@pytest.mark.anyio
async def test_dispatch_latency_measures_all_variants() -> None:
    measured = await dispatch_latency.measure(1, 2)
    measurement = dispatch_latency.build_measurement(measured, MACHINE)
    assert {tool: set(rounds[0]) for tool, rounds in measured.items()} == {
        tool: set(dispatch_latency.VARIANTS) for tool in dispatch_latency.ARGS
    }
    assert all(figure.value > 0 for figure in measurement.figures)


@pytest.mark.longer
def test_margins_simulates_the_true_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    import margins

    monkeypatch.setattr(margins, "RUNS", 200)
    setup = margins.Setup(gain=0.02, loss=0.1, repeats=3, alike=0.5)
    kinds, odds = setup.kinds()
    assert odds @ (kinds[:, 0] - kinds[:, 1]) / 3 == pytest.approx(-0.08)
    needed = setup.needed(0.03)
    assert needed is not None
    no_worse, worse = setup.verdicts(np.random.default_rng(0), needed, 0.03)
    assert no_worse == 0
    assert 70 < worse < 95


@pytest.mark.longer
def test_approvals_simulates_tools_exactly_at_the_budget() -> None:
    import approvals

    for what, (shares, odds) in approvals.distributions(0.05):
        assert shares @ odds == pytest.approx(0.05), what
    distribution = approvals.alike_writes(1, 0.0, 0.05)
    rng = np.random.default_rng(0)
    # 59 scenarios without a wrong one have a probability of 4.85 %, 58 of 5.1 %
    assert approvals.let_through(distribution, 59, 0.05, 20_000, rng) == pytest.approx(
        4.85, abs=0.5
    )
    assert approvals.let_through(distribution, 58, 0.05, 20_000, rng) == 0.0


@pytest.mark.longer
def test_approvals_simulation_knows_the_true_risk_above_a_certainty() -> None:
    import approvals

    large = approvals.certain_writes(np.random.default_rng(0), 50_000, 1, 0.3, 2.0)
    assert approvals.true_risk(large, 0.0) == pytest.approx(0.1, abs=0.01)  # 0.3 / 3
    assert approvals.true_risk(large, 0.5) == pytest.approx(0.025, abs=0.005)


@pytest.mark.longer
def test_approvals_simulation_gives_the_counts_as_evidence() -> None:
    import approvals

    evidence = approvals.evidence_of(np.array([[2, 1], [0, 3]]))
    wrong = [each.is_wrong for each in evidence.proposals]
    assert (len(wrong), sum(map(bool, wrong))) == (6, 4)
    assert len({each.cluster for each in evidence.proposals if each.tool == "t1"}) == 3


@pytest.mark.longer
def test_stopping_simulates_differences_exactly_at_the_margin() -> None:
    import stopping

    for margin in stopping.MARGINS:
        unequal = [stopping.unequal(margin, share) for share in (0.2, 0.8)]
        for truth in (*stopping.skewed(margin), *unequal):
            assert truth.odds.sum() == pytest.approx(1.0)
            assert (truth.odds > 0).all()
            assert truth.sums @ truth.odds / (truth.sizes @ truth.odds) == pytest.approx(
                -margin / 100
            )


@pytest.mark.longer
def test_stopping_drops_arms_as_a_matrix_does() -> None:
    import stopping_arms

    matrix = stopping_arms.Matrix(rates=(0.6, 0.2, 0.9, 0.3), alike=0.5)
    results = matrix.draw(np.random.default_rng(1), runs=12)[:, :, :40]
    found = stopping_arms.scenarios_run(results)
    assert len(np.unique(found)) > 5
    for passed, expected in zip(results, found, strict=True):
        runs: list[Run] = []
        for row, number in zip(passed, expected, strict=True):
            whole = arm("".join("fp"[int(value)] for value in row))
            looked = scenarios_run(DropRule.after(runs, arms=4, seed=3), whole)
            assert (looked or 40) == number
            part = replace(whole, records=whole.records[:number])
            runs.append(whole if looked is None else dropped(part, "x", looked))


@pytest.mark.longer
def test_stopping_counts_rejected_hypotheses_as_holm() -> None:
    import stopping_arms

    p_values = np.random.default_rng(1).random((200, 6)) ** 4
    for row, number in zip(p_values, stopping_arms.rejected(p_values), strict=True):
        assert sum(p < 0.05 for p in holm(row.tolist())) == number


@pytest.mark.longer
def test_stopping_decides_as_the_sequential_test(monkeypatch: pytest.MonkeyPatch) -> None:
    import stopping

    monkeypatch.setattr(stopping, "RUNS", 6)
    truth = stopping.Truth.of(0.5, 0.2, repeats=3, alike=0.5)
    kinds = truth.draw(np.random.default_rng(1), 40)
    directions, after = truth.decisions(kinds, 0.03)
    for row, direction, number in zip(kinds, directions, after, strict=True):
        test = SequentialTest(margin=0.03, largest=3)
        for kind in row:
            gain = int(truth.sums[kind])
            test.add([int(np.sign(gain))] * abs(gain) + [0] * (3 - abs(gain)))
        assert (test.direction, test.looked) == (direction, number)


def test_wording_counts_a_planted_wording_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "RUNS", 20)
    sure = wording.Setup(rates=(0.0, 0.0, 1.0), scenarios=40)
    calls = [*sure.calls(np.random.default_rng(0))]
    assert calls == [(2, 0)] * 20
    worse = wording.Setup(rates=(1.0, 0.0), scenarios=40)
    assert [*worse.calls(np.random.default_rng(0))] == [(0, 0)] * 20


@pytest.mark.parametrize(
    ("alike", "shared", "is_equal", "are_alike"),
    [(1.0, 0.0, False, True), (0.0, 1.0, True, False), (1.0, 1.0, True, True)],
)
def test_wording_draws_samples_that_are_alike_or_shared(
    monkeypatch: pytest.MonkeyPatch, alike: float, shared: float, is_equal: bool, are_alike: bool
) -> None:
    monkeypatch.setattr(wording, "RUNS", 50)
    rates = (0.5, 0.5)
    setup = wording.Setup(rates=rates, scenarios=60, samples=3, alike=alike, shared=shared)
    counts = setup.draw(np.random.default_rng(0))
    assert counts.shape == (50, 60, 2)
    assert counts.mean() == pytest.approx(1.5, abs=0.1)
    assert bool((counts[..., 0] == counts[..., 1]).all()) == is_equal
    assert bool(np.isin(counts, (0, 3)).all()) == are_alike


@pytest.mark.longer
@pytest.mark.anyio
async def test_suggest_finds_what_is_planted_and_knows_no_more(tmp_path: Path) -> None:
    shares = dict.fromkeys(suggest.KINDS, 1) | {"paraphrase": 0, "clean": 2}
    counts = await suggest.measure(1, tmp_path, shares)
    figures = {figure.what: figure for figure in suggest.build_measurement(counts).figures}
    assert sum(counts.planted.values()) == 7
    assert counts.found["edit"] == counts.found["rejection"] == counts.found["repeat"] == 1
    assert counts.right_calls == counts.known > 0
    assert not counts.passed_again.keys() - {"repeat_undone"}
    assert figures["errors of lint in the drafts"].is_met
