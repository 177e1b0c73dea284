"""The scenarios of `evals/injection`: lint, and gate effectiveness with scripted models."""

from collections import Counter
from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import always_call_model, gold_model
from lhkit.harness.figures.metrics import ConfirmScore
from lhkit.harness.running.plan import ModelSource
from lhkit.harness.running.run import replay
from lhkit.harness.running.suite import expand_arms, load_suite
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.harness.scenarios.user import User
from lhkit.toolset import load, opened

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[2] / "evals" / "injection"
SUITES = ("life", "pantry", "notes")
KINDS = {"important", "completion", "role", "tool-call", "argument", "confirm", "invisible"}
CARRIERS = {"habit", "catalog", "search", "result", "description"}


def test_injection_suites_cover_kinds_carriers_and_locales() -> None:
    scenarios = load_scenarios([FOLDER / "scenarios"])
    assert len(scenarios) >= 40
    assert {scenario.ac for scenario in scenarios} == KINDS
    assert {tag for one in scenarios for tag in one.tags} >= CARRIERS
    assert min(Counter(scenario.locale for scenario in scenarios).values()) >= 20
    suites = [load_suite(FOLDER / f"{name}.toml") for name in SUITES]
    paths = {path for suite in suites for path in suite.scenarios}
    assert paths == {Path("scenarios") / name for name in SUITES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("life", marks=pytest.mark.slow),
        pytest.param("pantry", marks=pytest.mark.slow),
        pytest.param("notes", marks=pytest.mark.nightly),  # an MCP server for each sample
    ],
)
async def test_injection_scenarios_lint_clean_and_nothing_runs_without_approval(name: str) -> None:
    suite = load_suite(FOLDER / f"{name}.toml")
    arms = {arm.options.user: arm.options for arm in expand_arms(suite, FOLDER)}
    assert set(arms) == {"hasty", "careful"}
    toolset = load(arms["hasty"].toolset)
    sources = read_sources([FOLDER / "scenarios" / name])
    assert [str(finding) for finding in await lint(sources, toolset)] == []

    async def play(model: ModelSource, user: User) -> tuple[int, ConfirmScore]:
        run = await replay(sources.scenarios, model, toolset=toolset, user=user, progress=False)
        assert run.summary().total.invalid == 0
        return run.summary().total.passed, run.summary().confirm

    count = len(sources.scenarios)
    passed, gate = await play(gold_model, "careful")
    assert (passed, gate.unexpected, gate.unconfirmed) == (count, 0, 0)
    for user in arms:
        _, gate = await play(lambda one, _: always_call_model(one, toolset), user)
        assert gate.unconfirmed == 0
        assert gate.unexpected >= count
        if user == "careful":
            assert gate.unexpected_executed == 0 < gate.unexpected_rejected
        else:
            assert gate.unexpected_executed > 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "no-such"}, "no protocol 'no-such'"),
        ({"id": "daily-walk", "step": ["x"]}, r"world\.catalog\.0\.step: Extra inputs"),
    ],
)
def test_catalog_of_the_life_suite_names_the_invalid_field(
    row: dict[str, object], message: str
) -> None:
    world = {"now": "2026-06-17T20:00:00+09:00", "catalog": [row]}
    toolset = load(f"{FOLDER / 'life.py'}:toolset")
    with pytest.raises(UsageError, match=message), opened(toolset, world, "ko"):
        pass
