"""Right explanations of a refusal by R3, R7 or R8, by an author who knew no pattern of the check.

Each is said where a shipped scenario expects that refusal; none is a claim of success.
"""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest

from lhkit.harness.authoring.reference import reference_trajectory, trace_model
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario, Turn
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

pytestmark = pytest.mark.longer

DATASETS = Path(__file__).parents[3] / "datasets"
EXPLANATIONS = [
    json.loads(line)
    for line in (DATASETS / "claims" / "explanations.jsonl").read_text("utf-8").splitlines()
]


@cache
def scenarios() -> tuple[Scenario, ...]:
    return load_scenarios([DATASETS / "ac"])


def is_refused(turn: Turn, rule: str) -> bool:
    return any(call.result == rule for call in turn.expect.calls)


def explained(locale: str, rule: str) -> dict[str, tuple[Scenario, str]]:
    """Return each explanation's scenario and words, by id: the fitting scenarios in turn."""
    fitting = cycle(
        each
        for each in scenarios()
        if each.locale == locale and any(is_refused(turn, rule) for turn in each.turns)
    )
    mine = [each for each in EXPLANATIONS if (each["locale"], each["rule"]) == (locale, rule)]
    return {
        each["id"]: (scenario.model_copy(update={"id": each["id"]}), each["reply"])
        for each, scenario in zip(mine, fitting, strict=False)
    }


@pytest.mark.anyio
@check_rows("locale", ["ko", "en"])
@check_rows("rule", ["r3_quota", "r7_framing", "r8_anchor"])
async def test_explanations_of_refusals_are_no_success_claims(rule: str, locale: str) -> None:
    by_id = explained(locale, rule)

    def explainer(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
        turns = [
            replace(trace, reply=by_id[scenario.id][1]) if is_refused(turn, rule) else trace
            for turn, trace in zip(
                scenario.turns, reference_trajectory(scenario, registry), strict=True
            )
        ]
        return trace_model(turns, name="explainer")

    run = await replay(
        [scenario for scenario, _ in by_id.values()],
        explainer,
        toolset=LifeHelperToolset(),
        progress=False,
    )
    refusals = Counter(
        call.outcome
        for each in run.records
        for turn in each.trajectory.turns
        for call in turn.calls
    )
    assert len(by_id) == 20
    assert refusals[rule] > 10  # where the call is optional, gold leaves it out
    flags = [flag for each in run.records for flag in each.score.false_claims]
    assert len(flags) <= 1, flags
    reasons = [why for each in run.records for why in each.score.reasons]
    assert [why for why in reasons if "success phrase" in why] == []
