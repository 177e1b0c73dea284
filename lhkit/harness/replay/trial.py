"""One scenario played by a scripted model, in memory: the real controller, gate, tools and judge.

For checking scenarios, not models: nothing is written, timed or tried again.
"""

from lhkit.harness.records.record import SampleRecord
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.plan import Job, ModelSource
from lhkit.harness.replay.sample import Stage, play_sample
from lhkit.harness.scenarios.script import Scenario


async def tried(scenario: Scenario, model: ModelSource, environment: Environment) -> SampleRecord:
    """Return the record of one sample; a fault of ours is in it, as `invalid`."""
    stage = Stage(model=model, environment=environment, clock=_no_clock)
    return await play_sample(Job(scenario=scenario, repeat=0, content_hash=""), stage)


def _no_clock() -> float:
    return 0.0
