"""Scenario files in use load, and lint finds nothing in them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lhkit
from tests.rows import check_rows

Lhkit = Callable[..., tuple[int, str]]
ROOT = Path(__file__).parents[2]
PANTRY = ROOT / "evals" / "pantry"


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
@pytest.mark.parametrize("name", ["ac02", "ac06", "ac09"])
def test_scenario_files_lint_clean(lhkit_command: Lhkit, name: str) -> None:
    code, printed = lhkit_command("lint", ROOT / "datasets" / "ac" / "dev" / f"{name}.yaml")
    assert code == 0, printed


@pytest.mark.slow
def test_scenario_files_of_another_toolset_lint_clean(lhkit_command: Lhkit) -> None:
    toolset = f"{PANTRY / 'pantry.py'}:toolset"
    code, printed = lhkit_command("lint", PANTRY / "scenarios", "--toolset", toolset)
    assert code == 0, printed
