"""Measure how an eval scales from 100 to 10,000 samples: CPU, wall time, memory, disk.

Each size is replayed in a separate process, and loaded and summarized in another one, so that no
memory is shared; the peers run the sizes that take them seconds. Run it with `make bench`.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import figures
import peers
import scripted_sample
from figures import Figure, Machine, Measurement, Plot
from scripted_sample import Cost

SIZES = (100, 300, 1_000, 3_000, 10_000)
PEER_SIZES = {"inspect-ai": (100, 300, 1_000), "pydantic_evals": (100, 300, 1_000, 3_000)}
PEERS = {
    "inspect-ai": (peers.INSPECT, "inspect_sample.py", "quickest"),
    "pydantic_evals": (peers.PYDANTIC_EVALS, "pydantic_sample.py", "written"),
}
DRIVEN_SIZES = (1_000, 100_000)
"""Samples of runs whose records are ready: plan, journal and memory are what is left."""
SCENARIOS = 100
OURS, READING = "lhkit", "lhkit, read and summed up"
GOALS = {"time": 1.5, "memory_kib": 2.0, "peak_mib": 256.0, "reading": 1.5, "driver": 1.1}
PLOT = Plot(
    file="growth.svg",
    alt=(
        "Two charts over 100 to 10,000 samples. CPU time a sample stays level for lhkit and lies "
        "far below inspect-ai's. Peak memory stays level while lhkit plays, and grows with the "
        "samples where a run is read and summed up, and in the peers."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured size of one harness: CPU milliseconds per sample and peak memory."""

    side: str
    samples: int
    cpu_ms: float
    peak_mib: float
    wall_s: float | None = None
    disk_kib: float | None = None


def run_phase(folder: Path, samples: int, phase: str) -> Cost:
    """Measure one phase in a new process."""
    line = ["--folder", str(folder), "--samples", str(samples), "--phase", phase]
    (cost,) = peers.run_script(sys.executable, Path(__file__).name, *line)
    return Cost(**cost)


def measure_lhkit(samples: int) -> list[Point]:
    """Measure a replay of a number of samples, then loading its run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        replayed = run_phase(folder, samples, "play")
        disk_kib = sum(f.stat().st_size for f in folder.iterdir() if f.is_file()) / 1024
        read = run_phase(folder, samples, "read")
    return [
        Point(
            side=side,
            samples=samples,
            cpu_ms=1000 * cost.cpu_s / samples,
            peak_mib=cost.peak_mib,
            wall_s=cost.wall_s,
            disk_kib=disk_kib,
        )
        for side, cost in ((OURS, replayed), (READING, read))
    ]


def measure_driver() -> float:
    """Return the peak memory of driving the larger size, relative to the smaller one."""
    peaks = []
    for samples in DRIVEN_SIZES:
        with tempfile.TemporaryDirectory() as name:
            peaks.append(run_phase(Path(name), samples, "drive").peak_mib)
    return peaks[1] / peaks[0]


def measure_peer(peer: str) -> tuple[list[Point], str]:
    """Return a peer's points and its version."""
    environment, script, mode = PEERS[peer]
    python, points = peers.peer_python(environment), []
    for samples in PEER_SIZES[peer]:
        (cost,) = peers.run_script(python, script, "--samples", str(samples), "--mode", mode)
        cpu_ms, peak_mib = cost["cpu_ms_per_sample"], cost["peak_mib"]
        points.append(Point(side=peer, samples=samples, cpu_ms=cpu_ms, peak_mib=peak_mib))
    return points, cost["version"]


def select_side(points: Sequence[Point], side: str) -> list[Point]:
    """Return the points of one harness, in order of size."""
    return sorted((p for p in points if p.side == side), key=lambda p: p.samples)


def slope_kib(points: Sequence[Point]) -> float:
    """Return the peak memory in KiB per additional sample, by least squares."""
    sizes = [float(p.samples) for p in points]
    return 1024 * statistics.linear_regression(sizes, [p.peak_mib for p in points]).slope


def cpu_growth(points: Sequence[Point], *, since: int = 1_000) -> float:
    """Return CPU per sample at the largest size, relative to that at `since` samples.

    1 means linear growth. Smaller sizes are dominated by start-up.
    """
    (first,) = (p for p in points if p.samples == since)
    return points[-1].cpu_ms / first.cpu_ms


def build_measurement(
    points: Sequence[Point], driver: float, versions: dict[str, str], machine: Machine
) -> Measurement:
    """Return the figures of time and memory over the sizes."""
    few, many = (f"{size:,}" for size in DRIVEN_SIZES)
    ours, reading = select_side(points, OURS), select_side(points, READING)
    most = f"{ours[-1].samples:,}"
    rows = (
        (f"CPU a sample at {most}, times that at 1,000", cpu_growth(ours), "×", GOALS["time"]),
        ("peak memory a sample, playing", slope_kib(ours), "KiB", GOALS["memory_kib"]),
        (f"peak memory at {most} samples", ours[-1].peak_mib, "MiB", GOALS["peak_mib"]),
        (f"peak memory to drive {many} samples, times that of {few}", driver, "×", GOALS["driver"]),
        (
            f"CPU a sample to read and sum up at {most}, times that at 1,000",
            cpu_growth(reading),
            "×",
            GOALS["reading"],
        ),
        ("peak memory a sample, read and summed up", slope_kib(reading), "KiB", None),
    )
    return Measurement(
        title="Growth: an eval of 100 to 10,000 samples",
        command="python evals/benchmarks/growth.py",
        versions={"Python": platform.python_version(), **versions},
        figures=tuple(Figure(what=w, value=v, unit=u, at_most=top) for w, v, u, top in rows),
        machine=machine,
        notes=(
            "The scripted sample of `harness_cost.py`; each size runs in a new process. "
            "inspect-ai without its realtime log, pydantic_evals with its report written; "
            "they stop at the size that still takes seconds. Where the run is only driven, each "
            "record is ready: plan, retries, journal and memory are what is left.",
        ),
        plots=(PLOT,),
    )


def draw(points: Sequence[Point], folder: Path) -> None:
    """Write the plot as SVG and PNG."""
    import altair as alt

    rows = [asdict(p) for p in points]
    base = alt.Chart(alt.InlineData(values=rows)).mark_line(point=True)
    samples = alt.X("samples:Q", title="samples").scale(type="log")
    side = alt.Color("side:N", title=None, sort=[OURS, READING, *PEERS]).legend(orient="bottom")
    charts = [
        base.encode(x=samples, y=alt.Y(f"{field}:Q", title=title), color=side).properties(
            width=320, height=240
        )
        for field, title in (
            ("cpu_ms", "CPU, ms a sample"),
            ("peak_mib", "peak memory, MiB"),
        )
    ]
    chart = alt.hconcat(*charts).configure(background="white")
    chart.save(folder / "growth.svg")


def main() -> None:
    """Measure and write the figures; with `--samples`, measure one phase of one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, help="measure one phase of this size, as JSON")
    parser.add_argument("--folder", type=Path, help="the run folder of the phase")
    parser.add_argument("--phase", choices=("play", "read", "drive"), default="play")
    options = parser.parse_args()
    if options.samples is not None:
        repeats = options.samples // SCENARIOS
        if options.phase == "read":
            cost = scripted_sample.summarize(options.folder, options.samples)
        else:
            phase = {"play": scripted_sample.play, "drive": scripted_sample.drive}[options.phase]
            cost = phase(SCENARIOS, options.folder, repeats=repeats)
        print(json.dumps(asdict(cost)))
        return
    machine = figures.describe_machine()
    points = [point for samples in SIZES for point in measure_lhkit(samples)]
    driver, versions = measure_driver(), {}
    for peer in PEERS:
        theirs, versions[peer] = measure_peer(peer)
        points += theirs
    measurement = build_measurement(points, driver, versions, machine)
    draw(points, figures.HERE)
    figures.write("growth", measurement)


if __name__ == "__main__":
    main()
