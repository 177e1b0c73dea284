"""The scenarios of `evals/plain`."""

from pathlib import Path

import pytest

from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import read_sources
from lhkit.lifehelper.toolset import LifeHelperToolset

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "evals" / "plain"
SOURCES = read_sources([FOLDER])


async def test_plain_scenarios_lint_clean_and_only_gold_passes() -> None:
    toolset = LifeHelperToolset()
    assert await lint(SOURCES, toolset) == ()
    for model, verdict in ((gold_model, Verdict.PASS), (silent_model(), Verdict.FAIL)):
        records = [await run_sample(scenario, model, toolset) for scenario in SOURCES.scenarios]
        wrong = [record for record in records if record.score.verdict is not verdict]
        assert [record.sample_id for record in wrong] == []


async def test_plain_scenarios_notice_every_mutation() -> None:
    report = await mutate(SOURCES.scenarios, LifeHelperToolset())
    assert [f"{outcome.scenario} {outcome.key}" for outcome in report.survivors] == []
    assert report.total.tried > 500
