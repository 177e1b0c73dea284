"""The benchmarks still run: one small round of those that need no server and no peer."""

from pathlib import Path

import dispatch_latency
import pytest
import scripted_sample
from figures import Machine

MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)


def test_the_scripted_sample_passes_and_is_read_back_whole(tmp_path: Path) -> None:
    # Linux sums up the pages of threads late: a later peak may read some KiB lower.
    assert scripted_sample.play(2, tmp_path / "run", repeats=2).peak_mib > 10
    assert scripted_sample.summed_up(tmp_path / "run", 4).peak_mib > 10
    with pytest.raises(AssertionError, match="4 of 5"):
        scripted_sample.summed_up(tmp_path / "run", 5)


@pytest.mark.anyio
async def test_a_dispatch_is_timed_with_its_gate_asked_and_its_handler_run() -> None:
    measured = await dispatch_latency.measure(1, 2)
    told = dispatch_latency.found(measured, MACHINE)
    assert {tool: set(rounds[0]) for tool, rounds in measured.items()} == {
        tool: set(dispatch_latency.WAYS) for tool in dispatch_latency.ARGS
    }
    assert all(figure.value > 0 for figure in told.figures)
