"""RESULTS.md: gathered from figures, nothing invented, nothing left out."""

from dataclasses import replace
from pathlib import Path

import figures
import pytest
import results
from figures import Figure, Machine, Measurement, Plot

MACHINE = Machine(
    cpu="Fast 1000", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5
)


def measurement(title: str, value: float, machine: Machine = MACHINE) -> Measurement:
    return Measurement(
        title=title,
        command=f"python {title}.py",
        versions={"peer": "1.0"},
        figures=(Figure(what=f"{title} ratio", value=value, unit="×", at_least=1.0),),
        machine=machine,
        plots=(Plot(file=f"{title}.svg", alt=f"What {title} shows."),),
        notes=(f"A note on {title}.",),
    )


def page_of(folder: Path) -> str:
    found, missing = results.gathered(folder)
    return results.page(found, missing, results.pages_without_figures(folder))


@pytest.mark.promise("bench.results")
def test_every_figure_is_shown_with_its_goal_command_page_and_plot(tmp_path: Path) -> None:
    figures.write("growth", "", measurement("growth", 0.5), tmp_path)
    figures.write("start_up", "", measurement("start_up", 2.0), tmp_path)
    text = page_of(tmp_path)
    assert "**1 of 2 goals hold.**" in text
    assert "| growth ratio | 0.50 × | at least 1 × | **no** |" in text
    assert "| start_up ratio | 2 × | at least 1 × | yes |" in text
    assert "## [growth](growth.md)\n\n`python growth.py` · peer 1.0" in text
    assert "![What growth shows.](growth.svg)" in text
    assert "A note on growth." in text


@pytest.mark.promise("bench.results")
def test_a_known_benchmark_without_figures_is_said_to_be_missing(tmp_path: Path) -> None:
    figures.write("growth", "", measurement("growth", 2.0), tmp_path)
    text = page_of(tmp_path)
    on_the_model = "`throughput.py`, `main_job.py`, `main_job_starts.py` (`make bench-model`)"
    assert f"Not measured here: {on_the_model}." in text
    assert "`growth.py`" not in text


def test_an_unknown_benchmark_comes_after_the_known_ones(tmp_path: Path) -> None:
    for stem in ("another", "start_up", "growth"):
        figures.write(stem, "", measurement(stem, 2.0), tmp_path)
    found, _ = results.gathered(tmp_path)
    assert [each.stem for each in found] == ["growth", "start_up", "another"]


def test_what_was_measured_on_another_machine_is_told_apart(tmp_path: Path) -> None:
    other = replace(MACHINE, cpu="Slow 1")
    figures.write("growth", "", measurement("growth", 2.0), tmp_path)
    figures.write("start_up", "", measurement("start_up", 2.0, other), tmp_path)
    busy = replace(MACHINE, load=7.0)
    figures.write("call_matching", "", measurement("call_matching", 2.0, busy), tmp_path)
    text = page_of(tmp_path)
    row = "| Fast 1000 | 2 | 8 GiB | Linux | 3.11.7 | growth, call_matching | 0.5 to 7.0 |"
    assert row in text
    assert "| Slow 1 | 2 | 8 GiB | Linux | 3.11.7 | start_up | 0.5 to 0.5 |" in text


def test_pages_without_figures_are_linked_and_the_page_itself_is_not(tmp_path: Path) -> None:
    figures.write("growth", "", measurement("growth", 2.0), tmp_path)
    for name in ("greedy_agreement.md", "RESULTS.md"):
        (tmp_path / name).write_text("# A page\n", encoding="utf-8")
    text = page_of(tmp_path)
    assert "pages of their own: [greedy_agreement](greedy_agreement.md)." in text


def test_every_benchmark_of_the_order_has_its_script() -> None:
    assert not [stem for stem in results.ORDER if not (figures.HERE / f"{stem}.py").exists()]
