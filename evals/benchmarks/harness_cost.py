"""What the eval harness itself costs: CPU, beside inspect-ai and pydantic_evals.

The same scripted sample everywhere (`scripted_sample.py`). CPU is user and system time of the whole
process, because a shared machine's wall clock says little; all take turns within one run, and a
ratio is the median of the rounds' ratios. Run it with `make bench`.
"""

import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import figures
import peers
import scripted_sample
from figures import Figure, Machine, Measurement

ROUNDS = 5
OUR_SAMPLES = 1_000
PEER_SAMPLES = 200
GOAL_TURN_MS = 1.0
GOAL_RATIOS = {"inspect-ai, default": 20.0, "inspect-ai, quickest": 10.0}
"""How many times our cost a peer's may be at least; pydantic_evals writes no records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """CPU milliseconds a sample: ours, and each peer's by the name in the table."""

    ours: float
    theirs: dict[str, float]


def peer_rows(peer: str, told: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return what a peer's script told, by the names in the table."""
    return {f"{peer}, {mode['mode']}": mode["cpu_ms_per_sample"] for mode in told}


def measure() -> tuple[list[Round], dict[str, str]]:
    """Return the rounds, and the versions of the peers."""
    scripts = {
        "inspect-ai": (peers.peer_python(peers.INSPECT), "inspect_sample.py"),
        "pydantic_evals": (peers.peer_python(peers.PYDANTIC_EVALS), "pydantic_sample.py"),
    }
    scripted_sample.played_ms(100)  # imports, caches
    rounds, versions = [], {}
    for _ in range(ROUNDS):
        ours = scripted_sample.played_ms(OUR_SAMPLES)
        theirs: dict[str, float] = {}
        for peer, (python, script) in scripts.items():
            modes = peers.told_by(python, script, "--samples", str(PEER_SAMPLES))
            theirs |= peer_rows(peer, modes)
            versions[peer] = modes[0]["version"]
        rounds.append(Round(ours=ours, theirs=theirs))
    return rounds, versions


def found(rounds: Sequence[Round], versions: dict[str, str], machine: Machine) -> Measurement:
    """Return the figures: our cost of a turn, and each peer's cost as a multiple of ours."""
    turn_ms = statistics.median(each.ours for each in rounds) / scripted_sample.TURNS_A_SAMPLE
    ratios = [
        Figure(
            what=f"CPU a sample, {peer}: times lhkit's",
            value=statistics.median(each.theirs[peer] / each.ours for each in rounds),
            unit="×",
            at_least=GOAL_RATIOS.get(peer, 1.0),
        )
        for peer in rounds[0].theirs
    ]
    turn = Figure(what="CPU a model turn, lhkit", value=turn_ms, unit="ms", at_most=GOAL_TURN_MS)
    return Measurement(
        title="Harness cost: lhkit's eval harness beside inspect-ai and pydantic_evals",
        command="python evals/benchmarks/harness_cost.py",
        versions={"Python": platform.python_version(), **versions},
        figures=(turn, *ratios),
        machine=machine,
        notes=(
            "A sample is two model calls and one tool call, both call and reply scored; the "
            "model is a script. CPU is user and system time of the process. lhkit writes its "
            "records to disk, and inspect-ai its log: `default` as it comes, `quickest` "
            "without the realtime log. pydantic_evals keeps its report in memory (`kept`; "
            "`written`: as JSON at the end) and traces nothing; its sample is played by "
            "pydantic-ai's agent. Ratios are medians of the rounds' ratios.",
        ),
    )


def main() -> None:
    """Measure, and write the figures."""
    machine = figures.this_machine()
    rounds, versions = measure()
    measurement = found(rounds, versions, machine)
    figures.write("harness_cost", measurement)


if __name__ == "__main__":
    main()
