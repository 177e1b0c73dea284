"""What is trained on must not be what is measured with."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from evals.lessons.conversations import conversations
from evals.lessons.tune import ROUNDS
from evals.own_tools.proof import SCENARIOS
from lhkit.harness.scenario import load_scenarios
from lhkit.tuning.apart import bare, near

UNIVERSAL = {"고마워", "감사합니다", "안녕", "안녕하세요", "thanks", "thank you", "hi", "hello"}
"""What everybody says: no scenario owns it."""

README = Path(__file__).parents[2] / "README.md"


@cache
def evaluated() -> tuple[str, ...]:
    scenarios = load_scenarios(SCENARIOS)
    lines = [turn.user for scenario in scenarios for turn in scenario.turns]
    shown = [line.strip() for line in README.read_text(encoding="utf-8").splitlines()]
    return tuple(dict.fromkeys([*lines, *(line for line in shown if line)]))


def leaks(said: str) -> Iterator[tuple[str, float]]:
    if bare(said) not in UNIVERSAL:
        yield from near(said, evaluated())


@pytest.mark.parametrize(
    ("count", "seed"), [(2_000, 1), *((each.count, each.data_seed) for each in ROUNDS)]
)
def test_no_line_of_the_training_data_is_nearly_one_of_the_evaluation(
    count: int, seed: int
) -> None:
    said = {line.user for each in conversations(count, seed=seed) for line in each.lines}
    assert len(said) > 1.25 * count
    found = [f"{line}  ({likeness:.2f}: {near})" for line in said for near, likeness in leaks(line)]
    assert not found, (
        "change these phrases, or put the lines into datasets/lessons/withheld.txt:\n"
        + "\n".join(found)
    )


@pytest.mark.parametrize("spoilt", ["{}", "{}!!", "음 {}", "{} ㅎㅎ"])
def test_a_scenario_in_the_training_data_would_be_noticed(spoilt: str) -> None:
    for line in evaluated()[:40:5]:
        assert any(leaks(spoilt.format(line)))
