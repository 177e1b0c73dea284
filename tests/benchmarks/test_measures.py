"""One small round of the benchmarks that need no server and no peer."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import dispatch_latency
import numpy as np
import pytest
import scripted_sample
from figures import Machine

from lhkit.harness.figures.sequential import SequentialTest


@pytest.fixture
def margins() -> ModuleType:
    return import_module("margins")  # this and the two below import scipy.stats


@pytest.fixture
def approvals() -> ModuleType:
    return import_module("approvals")


@pytest.fixture
def stopping() -> ModuleType:
    return import_module("stopping")


MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)


def test_scripted_sample_replays_and_summarizes(tmp_path: Path) -> None:
    # Linux accounts for pages of threads late: a later peak may be some KiB lower.
    assert scripted_sample.play(2, tmp_path / "run", repeats=2).peak_mib > 10
    assert scripted_sample.summarize(tmp_path / "run", 4).peak_mib > 10
    with pytest.raises(AssertionError, match="4 of 5"):
        scripted_sample.summarize(tmp_path / "run", 5)


@pytest.mark.anyio
async def test_dispatch_latency_measures_all_variants() -> None:
    measured = await dispatch_latency.measure(1, 2)
    measurement = dispatch_latency.build_measurement(measured, MACHINE)
    assert {tool: set(rounds[0]) for tool, rounds in measured.items()} == {
        tool: set(dispatch_latency.VARIANTS) for tool in dispatch_latency.ARGS
    }
    assert all(figure.value > 0 for figure in measurement.figures)


def test_margins_simulates_the_true_difference(
    monkeypatch: pytest.MonkeyPatch, margins: ModuleType
) -> None:
    monkeypatch.setattr(margins, "RUNS", 200)
    setup = margins.Setup(gain=0.02, loss=0.1, repeats=3, alike=0.5)
    kinds, odds = setup.kinds()
    assert odds @ (kinds[:, 0] - kinds[:, 1]) / 3 == pytest.approx(-0.08)
    needed = setup.needed(0.03)
    assert needed is not None
    no_worse, worse = setup.verdicts(np.random.default_rng(0), needed, 0.03)
    assert no_worse == 0
    assert 70 < worse < 95


def test_approvals_simulates_tools_exactly_at_the_budget(approvals: ModuleType) -> None:
    for what, (shares, odds) in approvals.distributions(0.05):
        assert shares @ odds == pytest.approx(0.05), what
    distribution = approvals.alike_writes(1, 0.0, 0.05)
    rng = np.random.default_rng(0)
    # 59 scenarios without a wrong one have a probability of 4.85 %, 58 of 5.1 %
    assert approvals.let_through(distribution, 59, 0.05, 20_000, rng) == pytest.approx(
        4.85, abs=0.5
    )
    assert approvals.let_through(distribution, 58, 0.05, 20_000, rng) == 0.0


def test_approvals_simulation_knows_the_true_risk_above_a_certainty(approvals: ModuleType) -> None:
    large = approvals.certain_writes(np.random.default_rng(0), 50_000, 1, 0.3, 2.0)
    assert approvals.true_risk(large, 0.0) == pytest.approx(0.1, abs=0.01)  # 0.3 / 3
    assert approvals.true_risk(large, 0.5) == pytest.approx(0.025, abs=0.005)


def test_approvals_simulation_gives_the_counts_as_evidence(approvals: ModuleType) -> None:
    evidence = approvals.evidence_of(np.array([[2, 1], [0, 3]]))
    wrong = [each.is_wrong for each in evidence.proposals]
    assert (len(wrong), sum(map(bool, wrong))) == (6, 4)
    assert len({each.cluster for each in evidence.proposals if each.tool == "t1"}) == 3


def test_stopping_simulates_differences_exactly_at_the_margin(stopping: ModuleType) -> None:
    for margin in stopping.MARGINS:
        unequal = [stopping.unequal(margin, share) for share in (0.2, 0.8)]
        for truth in (*stopping.skewed(margin), *unequal):
            assert truth.odds.sum() == pytest.approx(1.0)
            assert (truth.odds > 0).all()
            assert truth.sums @ truth.odds / (truth.sizes @ truth.odds) == pytest.approx(
                -margin / 100
            )


def test_stopping_decides_as_the_sequential_test(
    monkeypatch: pytest.MonkeyPatch, stopping: ModuleType
) -> None:
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
