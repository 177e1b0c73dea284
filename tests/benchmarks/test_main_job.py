"""The main job's benchmarks: what they make of the rounds and starts that they measured."""

import figures
import main_job
import main_job_starts
import pytest
from figures import Machine
from main_job import WITH, WITHOUT, Job, Round
from main_job_starts import CACHED, COMPILED, EAGER

from lhkit.harness.timings import Latency, Spent

MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)


def played(total_s: float = 16.0, *, opening_s: float | None = 1.0, cached: float = 0.8) -> Round:
    opening = Latency(n=16, p50_s=opening_s, p90_s=opening_s, p95_s=opening_s, p99_s=opening_s)
    return Round(
        opening=opening, every=opening, total_s=total_s, cached=cached, tokens_per_s=160 / total_s
    )


def job(*, warm: Round, cold: Round, again_s: float = 2.0) -> Job:
    told = Spent(setup_s=3.0, server_s=37.0, model_s=60.0, writing_s=0.1, harness_s=0.1)
    rounds = {WITHOUT: (cold,), WITH: (warm,)}
    return Job(start_s=37.0, rounds=rounds, first_s=100.0, told=told, again_s=again_s)


def values(measured: Job) -> dict[str, tuple[float, bool | None]]:
    told = main_job.found(measured, {}, MACHINE).figures
    return {each.what: (round(each.value, 2), each.holds) for each in told}


def test_the_share_that_is_not_the_models_is_told_and_lhkits_own_is_judged() -> None:
    told = values(job(warm=played(), cold=played()))
    assert told["`lhkit eval --limit 16`, wall time of harness and writing"] == (0.2, True)
    assert told["the same, not the model's: setup and server start too"] == (40.12, None)


def test_a_warm_up_that_makes_conversations_slower_misses_its_goal() -> None:
    slower = values(job(warm=played(20.0, opening_s=2.0), cold=played(16.0, opening_s=1.0)))
    assert slower["first token of opening requests, p50, with warm-up: times that without"] == (
        2.0,
        False,
    )
    assert slower["16 conversations, with warm-up: times that without"] == (1.25, False)


def test_a_finished_run_that_takes_as_long_again_misses_its_goal() -> None:
    what = "the same command again, nothing left to play: times the first"
    assert values(job(warm=played(), cold=played()))[what] == (0.02, True)
    assert values(job(warm=played(), cold=played(), again_s=90.0))[what] == (0.9, False)


def test_rounds_in_which_no_request_was_answered_are_no_measurement() -> None:
    with pytest.raises(SystemExit, match="no request was answered"):
        values(job(warm=played(opening_s=None), cold=played()))


def test_a_compiled_start_pays_after_the_samples_that_make_up_for_its_delay() -> None:
    starts = {
        EAGER: (30.0, played(32.0)),
        COMPILED: (80.0, played(16.0)),
        CACHED: (25.0, played(16.0)),
    }
    assert main_job_starts.pays_after(starts, COMPILED) == 50.0
    assert main_job_starts.pays_after(starts, CACHED) == 0.0


def test_a_compiled_server_that_answers_no_quicker_never_pays_and_no_number_is_told() -> None:
    starts = {
        EAGER: (30.0, played(16.0)),
        COMPILED: (80.0, played(16.0)),
        CACHED: (40.0, played(15.0)),
    }
    assert main_job_starts.pays_after(starts, COMPILED) is None
    told = [each.what for each in main_job_starts.found(starts, {}, MACHINE).figures]
    assert f"{COMPILED}: pays after" not in told
    assert f"{CACHED}: pays after" in told


def test_the_pages_tell_what_was_measured_and_each_figure() -> None:
    measured = job(warm=played(), cold=played())
    found = main_job.found(measured, {"vLLM": "1"}, MACHINE)
    text = main_job.page(measured, found, "gemma")
    assert "| without | 1.00 / 1.00 s | 1.00 / 1.00 s | 80% | 16.0 s |" in text
    assert all(line in text for line in figures.goals(found.figures))
    starts = {name: (30.0, played()) for name in (EAGER, COMPILED, CACHED)}
    told = main_job_starts.found(starts, {"vLLM": "1"}, MACHINE)
    assert "| eager | 30.0 | 1.00 | 10 |" in main_job_starts.page(starts, told, "gemma")
