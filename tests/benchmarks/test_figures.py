"""What a figure says of its goal, and what a machine tells of itself."""

from pathlib import Path

import figures
import pytest
from figures import Figure, Machine, Measurement, Plot
from pydantic import ValidationError

MACHINE = Machine(
    cpu="Fast 1000", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5
)


def measured(*rows: Figure) -> Measurement:
    return Measurement(
        title="Speed",
        command="python speed.py",
        versions={"Python": "3.11.7", "peer": "1.0"},
        figures=rows,
        machine=MACHINE,
        plots=(Plot(file="speed.svg", alt="A line."),),
    )


@pytest.mark.parametrize(
    ("value", "at_least", "at_most", "holds"),
    [
        (95.0, 95.0, None, True),
        (94.9, 95.0, None, False),
        (1.0, None, 1.0, True),
        (1.1, None, 1.0, False),
        (5.0, 1.0, 4.0, False),
        (5.0, None, None, None),
        (float("nan"), 1.0, None, False),
        (float("nan"), None, 1.0, False),
    ],
)
def test_a_goal_holds_at_its_bound_and_not_beyond(
    value: float, at_least: float | None, at_most: float | None, holds: bool | None
) -> None:
    figure = Figure(what="w", value=value, unit="%", at_least=at_least, at_most=at_most)
    assert figure.holds is holds


def test_a_missed_goal_stands_out_and_a_figure_without_one_is_not_judged() -> None:
    rows = figures.goals(
        [
            Figure(what="slow", value=0.5, unit="×", at_least=1.0),
            Figure(what="quick", value=1234.5, unit="a second", at_least=1000.0),
            Figure(what="told", value=12.34, unit="ms"),
        ]
    )
    assert rows[2:] == [
        "| slow | 0.50 × | at least 1 × | **no** |",
        "| quick | 1,234 a second | at least 1,000 a second | yes |",
        "| told | 12.3 ms |  |  |",
    ]


def test_figures_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    told = measured(Figure(what="w", value=1.5, unit="×", at_least=1.0))
    figures.write("speed", "# Speed\n", told, tmp_path)
    assert figures.read(tmp_path / "speed.json") == told
    assert (tmp_path / "speed.md").read_text(encoding="utf-8") == "# Speed\n"


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"title": "x"}', encoding="utf-8")
    with pytest.raises(ValidationError):
        figures.read(tmp_path / "other.json")


def test_the_processor_is_named_as_linux_names_it() -> None:
    text = (
        "processor\t: 0\nmodel name\t: Fast 1000 @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: Other\n"
    )
    assert figures.cpu_model(text) == "Fast 1000 @ 2 GHz"
    assert figures.cpu_model("Processor: ARMv8\n") == ""


def test_a_page_begins_with_title_command_and_versions() -> None:
    assert figures.heading(measured(), "medians of 5 rounds") == [
        "# Speed",
        "",
        "`python speed.py` · Python 3.11.7 · peer 1.0 · medians of 5 rounds.",
        "",
    ]
