"""The plain requests to life-helper are clean, and only who does right passes them."""

from pathlib import Path

import pytest

from lhkit.harness.author.lint import lint
from lhkit.harness.author.mutate import mutate
from lhkit.harness.author.reference import gold_model, silent_model
from lhkit.harness.loader import read_sources
from lhkit.harness.record import Verdict
from lhkit.harness.sample import run_sample
from lhkit.lifehelper.toolset import LifeHelperToolset

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "evals" / "plain"
SOURCES = read_sources([FOLDER])


async def test_they_lint_clean_and_only_gold_passes_them() -> None:
    toolset = LifeHelperToolset()
    assert await lint(SOURCES, toolset) == ()
    for model, verdict in ((gold_model, Verdict.PASS), (silent_model(), Verdict.FAIL)):
        played = [await run_sample(each, model, toolset) for each in SOURCES.scenarios]
        assert [each.sample_id for each in played if each.judgement.verdict is not verdict] == []


async def test_every_mistake_in_them_is_noticed() -> None:
    report = await mutate(SOURCES.scenarios, LifeHelperToolset())
    assert [f"{each.scenario} {each.key}" for each in report.survivors] == []
    assert report.total.tried > 500
