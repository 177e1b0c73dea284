"""What tells whether a scenario is still the one that was played."""

from dataclasses import replace

from lhkit.harness.replay.plan import scenario_hash
from lhkit.harness.scenarios.script import Scenario, Turn

SCENARIO = Scenario(id="a", ac="x", turns=(Turn(user="hi"),))


def test_a_field_that_a_scenario_does_not_use_leaves_its_old_runs_good() -> None:
    before_gone = "1da9e2c2e102cac4a8f4a13c7d5bfc40898013fa862ec5bb2c459868b1ddd1fb"
    assert scenario_hash(SCENARIO) == before_gone
    assert scenario_hash(replace(SCENARIO, gone={"notes": ({"id": "n1"},)})) != before_gone
