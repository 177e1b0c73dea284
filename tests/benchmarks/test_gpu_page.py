"""What the page of the graphics card says of its rows and steps."""

import argparse
from pathlib import Path
from typing import Any

import gpu
import gpu_page
import pytest
from gpu_page import Report, Row, Step


def row(side: str, *, seconds: float, cpu_s: float, at_once: int = 1) -> Row:
    """Return a row of ten conversations."""
    load = {"began_s": 0.0, "ended_s": seconds, "cpu_s": cpu_s, "conversations": 10}
    more = {"requests": 20, "prompt_tokens": 9, "output_tokens": 1000, "failed": 0}
    return Row(side=side, at_once=at_once, loads=[{**load, **more, "ttft": {}, "turn": {}}])


def test_page_judges_one_at_a_time_by_seconds_lost() -> None:
    report = Report(command="gpu.py")
    report.rows += [row("lhkit", seconds=3.25, cpu_s=0.46), row("bare", seconds=2.71, cpu_s=0.08)]
    line = gpu_page.limit(report, 1)
    assert line.startswith("**harness**: 83 % of the bare client's rate; 54 ms a conversation")
    assert "46 ms of CPU beside 8 ms" in line
    report.rows[0] = row("lhkit", seconds=2.9, cpu_s=0.2)
    assert gpu_page.limit(report, 1).startswith("**server**: 93 %")
    report.rows = [row(r.side, seconds=r.seconds, cpu_s=0.1, at_once=16) for r in report.rows]
    assert "a conversation more" not in gpu_page.limit(report, 16)


def options(folder: Path, **given: Any) -> argparse.Namespace:
    """Return the options of the script."""
    words = ["--out", str(folder), "--work", str(folder / "work"), "--base-url", "http://x"]
    return argparse.Namespace(**{**vars(gpu.parser().parse_args(words)), **given})


@pytest.mark.anyio
async def test_gpu_leaves_out_what_does_not_fit_last_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: clock)
    (tmp_path / "work").mkdir()
    report = Report(command="gpu.py")
    measurements = gpu.Measurements(options(tmp_path, limit_s=70.0), report, 70.0)

    async def take_10_s(*_: object) -> None:
        nonlocal clock
        clock += 10.0

    async def measure(at_once: int) -> None:
        await take_10_s()
        measurements.prompts(at_once).write_text("", encoding="utf-8")
        report.rows.append(row("lhkit", seconds=4.0, cpu_s=1.0, at_once=at_once))

    for name in ("start_bench", "serve", "score", "rehearse", "bare", "bench", "processes"):
        monkeypatch.setattr(gpu.Measurements, name, take_10_s)
    monkeypatch.setattr(gpu.Measurements, "rate", lambda _, at_once: measure(at_once))
    await measurements.run()
    done = [step.name for step in report.steps if step.outcome == "done"]
    left = [step for step in report.steps if step.outcome.startswith(gpu_page.LEFT_OUT)]
    assert done[:2] == ["start vllm bench", "serve"]
    assert done[-3:] == ["rehearsal", "rate, 64 at once", "vllm-bench, 64 at once"]
    assert [step.name for step in left][:4] == [
        *("bare, 64 at once", "rate, 256 at once", "bare, 256 at once", "2 processes of lhkit")
    ]
    assert [step.name for step in left][-2:] == ["vllm-bench, 16 at once", "4 processes of lhkit"]
    assert left[0].outcome == "left out: 8 s left, 12 s needed"
    assert left[2].outcome == "left out: lhkit has sent no requests to repeat"
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "Left out, for lack of time: bare, 64 at once; rate, 256" in page


def test_gpu_sizes_follow_the_concurrency(tmp_path: Path) -> None:
    report = Report(command="gpu.py", steps=[Step(name="x", outcome="done", seconds=1.0)])
    sized = gpu.Measurements(options(tmp_path), report, 0.0)
    assert [sized.count(at_once) for at_once in (1, 16, 64, 256, 2)] == [40, 128, 512, 1024, 24]
    sized = gpu.Measurements(options(tmp_path, per_stream=1.0), report, 0.0)
    assert [sized.count(at_once) for at_once in (1, 64)] == [3, 64]
