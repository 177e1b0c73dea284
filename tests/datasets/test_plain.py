"""The scenarios of `evals/plain`."""

from pathlib import Path

import pytest

from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.scenarios.loader import read_sources
from lhkit.lifehelper.toolset import LifeHelperToolset

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[2] / "evals" / "plain"
SOURCES = read_sources([FOLDER])


@pytest.mark.slow
async def test_plain_scenarios_lint_clean() -> None:
    """Lint also tries the reference, which must pass, and a silent model, which must fail."""
    assert await lint(SOURCES, LifeHelperToolset()) == ()


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.nightly), pytest.param(6, marks=pytest.mark.slow)]
)
async def test_plain_scenarios_notice_every_mutation(every: int) -> None:
    report = await mutate(SOURCES.scenarios[::every], LifeHelperToolset())
    assert [f"{outcome.scenario} {outcome.key}" for outcome in report.survivors] == []
    assert report.total.tried > 500 / every
