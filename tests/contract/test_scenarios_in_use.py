"""Scenario files in use load, and lint finds nothing in them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lhkit
from tests.rows import check_rows

Lhkit = Callable[..., tuple[int, str]]
ROOT = Path(__file__).parents[2]


@pytest.mark.longer
@check_rows(
    ("folder", "count"),
    [("datasets/ac/dev", 168), ("datasets/ac/test", 84), ("evals/pantry", 40), ("evals/plain", 48)],
)
def test_scenario_files_load(folder: str, count: int) -> None:
    scenarios = lhkit.load_scenarios([ROOT / folder])
    assert len(scenarios) == count
    assert len({each.id for each in scenarios}) == count


@pytest.mark.slow
def test_scenario_files_lint_clean(lhkit_command: Lhkit) -> None:
    code, printed = lhkit_command("lint", ROOT / "datasets" / "ac" / "dev" / "ac06.yaml")
    assert code == 0, printed
