"""The shipped scenarios: complete, valid, and not passed by talk."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from lhkit.harness.documents import read_yaml
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.harness.scenario_schema import scenario_json_schema
from lhkit.lifehelper.prompts import instructions
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.scripted import ScriptedModel, say
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER = Path(__file__).parents[3] / "datasets" / "ac"
SCENARIOS = load_scenarios([FOLDER])
GARBAGE = '{"name": "log_tracker_entry", "parameters": {"habit_id": "daily-walk", "value": "done"'


async def passed_by(text: str | Mapping[str, str]) -> list[SampleRecord]:
    """Return the samples that a model passes whose every reply is this text, or its locale's."""

    def talker(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
        reply = text if isinstance(text, str) else text[scenario.locale]
        return ScriptedModel(lambda _: say(reply))

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
    "text",
    [GARBAGE, "x", {locale: instructions(locale) for locale in ("ko", "en")}],
    ids=["half a call", "one letter", "recited instructions"],
)
async def test_talking_model_fails_shipped_scenarios(text: str | Mapping[str, str]) -> None:
    assert await passed_by(text) == []


async def test_nodding_model_passes_only_small_talk() -> None:
    passed = await passed_by({"ko": "네, 그렇군요!", "en": "I see, thank you!"})
    assert {(r.ac, "restraint" in r.tags) for r in passed} <= {("AC-12", True)}
