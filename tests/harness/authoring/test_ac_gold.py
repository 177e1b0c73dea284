"""The shipped scenarios: complete, valid, and not passed by talk."""

from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from lhkit.harness.documents import read_yaml
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario_schema import scenario_json_schema
from lhkit.lifehelper.prompts import instructions
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.scripted import ScriptedModel, say

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER = Path(__file__).parents[3] / "datasets" / "ac"
SCENARIOS = load_scenarios([FOLDER])
GARBAGE = '{"name": "log_tracker_entry", "parameters": {"habit_id": "daily-walk", "value": "done"'


async def passed_by(words: str) -> list[SampleRecord]:
    """Return the samples that a model passes whose every reply is this text."""
    talker = ScriptedModel(lambda _: say(words))
    toolset = LifeHelperToolset()
    run = await replay(SCENARIOS, talker, toolset=toolset, progress=False, concurrency=4)
    return [record for record in run.records if record.judgement.verdict is Verdict.PASS]


def test_shipped_scenarios_cover_every_criterion() -> None:
    counts = Counter(scenario.ac for scenario in SCENARIOS)
    assert set(counts) == {f"AC-{number}" for number in range(1, 13)}
    assert len(SCENARIOS) >= 14
    for scenario in SCENARIOS:
        number = int(scenario.ac.removeprefix("AC-"))
        assert scenario.id.startswith(f"ac{number:02}-")


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_scenarios_match_schema(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    pointer = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / pointer).is_file()
    Draft202012Validator(scenario_json_schema()).validate(read_yaml(text).value)


@pytest.mark.parametrize(
    "words",
    [GARBAGE, "x", instructions("ko"), instructions("en")],
    ids=["half a call", "one letter", "recited", "recited (en)"],
)
async def test_talking_model_fails_shipped_scenarios(words: str) -> None:
    assert await passed_by(words) == []


@pytest.mark.parametrize("words", ["네, 그렇군요!", "I see, thank you!"])
async def test_nodding_model_passes_only_small_talk(words: str) -> None:
    passed = await passed_by(words)
    assert {(r.ac, "restraint" in r.tags) for r in passed} <= {("AC-12", True)}
