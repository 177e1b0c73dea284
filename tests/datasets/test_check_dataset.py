"""The shipped scenarios meet the requirements in their card."""

import subprocess
import sys
from pathlib import Path

import pytest

from evals.ac_coverage import checksum
from evals.check_dataset import CHECKS, check_data
from lhkit.cli.mutate import SURVIVORS
from lhkit.harness.authoring.mutate import read_survivors
from lhkit.harness.scenarios.loader import read_sources
from lhkit.lifehelper.shipped import scenario_folder

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "datasets" / "ac"


async def errors(processes: int, every: int = 1) -> dict[str, object]:
    checks = await check_data(
        read_sources([scenario_folder()]),
        known=read_survivors(scenario_folder() / SURVIVORS),
        processes=processes,
        every=every,
    )
    assert [check.name for check in checks] == list(CHECKS)
    return {check.name: (check.figure, check.errors) for check in checks if check.errors}


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # thousands of conversations: minutes on a busy machine
async def test_check_data_passes_for_the_shipped_scenarios() -> None:
    assert await errors(processes=2) == {}


@pytest.mark.slow
async def test_check_data_passes_for_some_of_the_shipped_scenarios() -> None:
    """Whatever is known of the whole set; lint and mutations of some scenarios."""
    assert await errors(processes=1, every=90) == {}


@pytest.mark.slow
def test_ac_coverage_card_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "evals" / "ac_coverage.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert checksum(FOLDER) in (FOLDER / "card.md").read_text(encoding="utf-8")
