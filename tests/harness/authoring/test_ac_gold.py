"""The shipped scenarios: gold passes all of them, and nothing less than the real thing does."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lhkit.harness.author.reference import gold_model, silent_model
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


async def played(model: Any) -> tuple[SampleRecord, ...]:
    run = await replay(SCENARIOS, model, toolset=LifeHelperToolset(), progress=False, concurrency=4)
    return run.records


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


async def test_gold_passes_shipped_scenarios_without_violation() -> None:
    records = await played(gold_model)
    assert {
        r.sample_id.scenario: r.judgement.reasons
        for r in records
        if r.judgement.verdict != Verdict.PASS
    } == {}
    assert {
        r.sample_id.scenario: r.judgement.violations for r in records if r.judgement.violations
    } == {}


RECITED = instructions("ko")


@pytest.mark.parametrize(
    "words",
    [
        "",
        GARBAGE,
        "x",
        "네, 추가하고 기록했어요!",
        "Done! I added it and logged it.",
        RECITED,
        instructions("en"),
    ],
    ids=[
        "silence",
        "half a call",
        "one letter",
        "claims",
        "claims (en)",
        "recited",
        "recited (en)",
    ],
)
async def test_talking_model_fails_shipped_scenarios(words: str) -> None:
    talker = ScriptedModel(lambda _: say(words))
    assert {
        r.sample_id.scenario for r in await played(talker) if r.judgement.verdict == "pass"
    } == set()


@pytest.mark.parametrize("words", ["네, 그렇군요!", "I see, thank you!"])
async def test_nodding_model_passes_only_small_talk(words: str) -> None:
    talker = ScriptedModel(lambda _: say(words))
    passed = [r for r in await played(talker) if r.judgement.verdict is Verdict.PASS]
    assert {(r.ac, "restraint" in r.tags) for r in passed} <= {("AC-12", True)}


async def test_silent_model_fails_shipped_scenarios() -> None:
    assert {record.judgement.verdict for record in await played(silent_model())} == {Verdict.FAIL}
