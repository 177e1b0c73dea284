"""How the benchmarks turn what they measured into figures."""

from pathlib import Path

import client_streaming
import dispatch_latency
import growth
import harness_cost
import peers
import pytest
import scripted_sample
import start_up
import whole_command
from figures import Machine
from growth import OURS, READING, Point
from harness_cost import Round

MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)


def test_a_ratio_is_the_median_of_the_rounds_so_that_one_busy_round_does_not_count() -> None:
    rounds = [
        Round(ours=ours, theirs={"inspect-ai, default": theirs})
        for ours, theirs in ((1.0, 20.0), (1.0, 22.0), (10.0, 30.0))
    ]
    turn, ratio = harness_cost.found(rounds, {}, MACHINE).figures
    assert (turn.value, turn.holds) == (0.5, True)
    assert (ratio.value, ratio.at_least, ratio.holds) == (20.0, 20.0, True)


def test_a_peers_modes_are_told_apart() -> None:
    told = [
        {"mode": "kept", "cpu_ms_per_sample": 3.0},
        {"mode": "written", "cpu_ms_per_sample": 4.0},
    ]
    rows = harness_cost.peer_rows("pydantic_evals", told)
    assert rows == {"pydantic_evals, kept": 3.0, "pydantic_evals, written": 4.0}


def test_a_peers_chatter_is_no_figure() -> None:
    assert peers.objects('loading…\n{"a": 1}\n[2]\n{"b": 2}\n') == [{"a": 1}, {"b": 2}]


@pytest.mark.promise("bench.peers")
@pytest.mark.parametrize(
    "name",
    [peers.INSPECT, peers.PYDANTIC_EVALS, peers.BFCL, peers.ROTEL],
)
def test_every_peer_is_pinned_to_the_last_package(name: str) -> None:
    text = (peers.HERE / f"requirements-{name}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if line.count("==") != 1] == []


def points(side: str, cpu_ms: float, kib_a_sample: float) -> list[Point]:
    return [
        Point(
            side=side,
            samples=samples,
            cpu_ms=cpu_ms * (2 if samples < 1_000 else 1),
            peak_mib=100 + samples * kib_a_sample / 1024,
        )
        for samples in growth.SIZES
    ]


def test_growth_of_memory_is_told_per_sample_and_start_up_is_no_growth_of_time() -> None:
    told = growth.found([*points(OURS, 0.5, 1.0), *points(READING, 0.2, 9.0)], {}, MACHINE)
    level, slope, peak, reading, kept = told.figures
    assert (level.value, level.holds) == (1.0, True)
    assert slope.value == pytest.approx(1.0)
    assert slope.holds
    assert peak.value == pytest.approx(100 + 10_000 / 1024)
    assert reading.value == 1.0
    assert (kept.value, kept.holds) == (pytest.approx(9.0), None)


def test_time_that_grows_faster_than_the_samples_misses_its_goal() -> None:
    ours = [
        Point(side=OURS, samples=samples, cpu_ms=samples / 1_000, peak_mib=100.0)
        for samples in growth.SIZES
    ]
    level, *_ = growth.found([*ours, *points(READING, 0.2, 0.0)], {}, MACHINE).figures
    assert (level.value, level.holds) == (10.0, False)


def test_the_plot_is_drawn_as_svg_and_png(tmp_path: Path) -> None:
    growth.draw([*points(OURS, 0.5, 1.0), *points(READING, 0.2, 9.0)], tmp_path)
    assert (tmp_path / growth.PLOT.file).read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_scripted_sample_passes_and_is_read_back_whole(tmp_path: Path) -> None:
    # Linux sums up the pages of threads late: a later peak may read some KiB lower.
    assert scripted_sample.play(2, tmp_path / "run", repeats=2).peak_mib > 10
    assert scripted_sample.summed_up(tmp_path / "run", 4).peak_mib > 10
    with pytest.raises(AssertionError, match="4 of 5"):
        scripted_sample.summed_up(tmp_path / "run", 5)


def test_peak_memory_is_the_programs_own() -> None:
    assert scripted_sample.peak_of("VmPeak:\t 9999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n") == 2.0


def test_the_dearest_imports_are_those_with_the_most_time_of_their_own() -> None:
    text = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       120 |        120 |   site\n"
        "a warning in between\n"
        "import time:      9000 |       9120 | lhkit.tools\n"
        "import time:       500 |      90000 | lhkit\n"
    )
    rows, count = start_up.dearest(text, 2)
    assert [(row.module, row.own_us, row.all_us) for row in rows] == [
        ("lhkit.tools", 9000, 9120),
        ("lhkit", 500, 90000),
    ]
    assert count == 3


def test_a_command_that_fails_is_not_timed() -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        start_up.start([start_up.sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.anyio
async def test_a_dispatch_is_timed_with_its_gate_asked_and_its_handler_run() -> None:
    measured = await dispatch_latency.measure(1, 2)
    told = dispatch_latency.found(measured, MACHINE)
    assert {tool: set(rounds[0]) for tool, rounds in measured.items()} == {
        tool: set(dispatch_latency.WAYS) for tool in dispatch_latency.ARGS
    }
    assert all(figure.value > 0 for figure in told.figures)


def test_the_quantile_is_that_of_the_median_round() -> None:
    rounds = [
        {"dispatch": dispatch_latency.Timed(cpu_us=1.0, wall_us=[1.0, 2.0, 3.0, top])}
        for top in (4.0, 5.0, 900.0)
    ]
    assert dispatch_latency.quantile_us(rounds, "dispatch", 0.99) == 5.0
    assert dispatch_latency.quantile_us(rounds, "dispatch", 0.5) == 3.0


def test_what_the_client_keeps_of_a_bare_readers_speed_is_the_rounds_median() -> None:
    one = client_streaming.Measured(tokens_per_s=100.0, cpu_us_per_chunk=10.0)
    rounds = [
        (one, client_streaming.Measured(tokens_per_s=kept, cpu_us_per_chunk=20.0))
        for kept in (99.0, 96.0, 40.0)
    ]
    (figure,) = client_streaming.found({64: rounds}, MACHINE).figures
    assert (figure.value, figure.holds) == (96.0, True)


def test_what_a_person_waits_for_is_told_as_medians_with_the_goals_of_each() -> None:
    rounds = [
        whole_command.Round(
            gold_s=gold_s, demo_s=1.0, help_s=0.4, sample_ms=sample_ms, inspect_ms=24.0
        )
        for gold_s, sample_ms in ((1.0, 1.0), (9.0, 2.0), (1.1, 1.2))
    ]
    measured = whole_command.found(rounds, "0.3", MACHINE)
    gold, demo, shown_help, sample, ratio = measured.figures
    assert [each.value for each in (gold, demo, shown_help, sample, ratio)] == [
        *(1.1, 1.0, 0.4, 1.2, 20.0)
    ]
    assert [each.holds for each in (gold, demo, sample, ratio)] == [True, True, False, True]
    assert "| `demo_panel()` in a warm kernel, CPU | 1 s |" in whole_command.page(measured, 3)
