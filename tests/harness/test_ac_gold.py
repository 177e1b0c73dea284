"""The shipped scenarios: gold passes all of them, and nothing less than the real thing does."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lhkit.app import LifeHelperEnvironment
from lhkit.harness.gold import gold_model, silent_model
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.runner import replay
from lhkit.harness.scenario import Scenario, load_scenarios, scenario_json_schema
from lhkit.harness.script import Turn
from lhkit.harness.yaml_source import read_yaml
from lhkit.lifehelper.prompts import instructions
from lhkit.models.base import ChatModel
from lhkit.models.scripted import ScriptedModel, say
from lhkit.tools.registry import ToolRegistry

FOLDER = Path(__file__).parents[2] / "datasets" / "ac"
SCENARIOS = load_scenarios([FOLDER])
GARBAGE = '{"name": "log_tracker_entry", "parameters": {"habit_id": "daily-walk", "value": "done"'


async def played(model: Any) -> tuple[SampleRecord, ...]:
    run = await replay(
        SCENARIOS, model, environment=LifeHelperEnvironment(), progress=False, concurrency=4
    )
    return run.records


@pytest.mark.promise("ac.covered")
def test_every_criterion_has_a_file_and_a_scenario() -> None:
    counts = Counter(scenario.ac for scenario in SCENARIOS)
    assert set(counts) == {f"AC-{number}" for number in range(1, 13)}
    assert len(SCENARIOS) >= 14
    for scenario in SCENARIOS:
        number = int(scenario.ac.removeprefix("AC-"))
        assert scenario.id.startswith(f"ac{number:02}-")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.name)
def test_editors_find_the_schema_and_accept_the_file(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    pointer = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (FOLDER / pointer).is_file()
    Draft202012Validator(scenario_json_schema()).validate(read_yaml(text).value)


@pytest.mark.promise("eval.gold")
@pytest.mark.anyio
async def test_gold_passes_every_scenario_without_a_violation() -> None:
    records = await played(gold_model)
    assert {r.sample_id.scenario: r.reasons for r in records if r.verdict != Verdict.PASS} == {}
    assert {r.sample_id.scenario: r.violations for r in records if r.violations} == {}


HARMLESS = {"ac12-small-talk-ko-01", "ac12-out-of-scope-ko-01"}  # any friendly words will do
RECITED = instructions("ko")


@pytest.mark.promise("ac.covered")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("words", "passes"),
    [
        ("", set()),
        (GARBAGE, set()),
        ("x", set()),
        ("네, 추가하고 기록했어요!", set()),
        (RECITED, set()),
        ("네, 그렇군요!", HARMLESS),
    ],
    ids=["silence", "half a call as text", "one letter", "claims", "its instructions", "a nod"],
)
async def test_a_model_that_only_talks_passes_next_to_nothing(words: str, passes: set[str]) -> None:
    talker = ScriptedModel(lambda _: say(words))
    assert {r.sample_id.scenario for r in await played(talker) if r.verdict == "pass"} == passes


@pytest.mark.promise("eval.silent")
@pytest.mark.anyio
async def test_the_silent_model_passes_nothing() -> None:
    assert {record.verdict for record in await played(silent_model())} == {Verdict.FAIL}


@pytest.mark.anyio
@pytest.mark.parametrize("skipped", [0, -1], ids=["first call", "last call"])
async def test_a_gold_model_that_skips_a_required_call_fails(skipped: int) -> None:
    def forgetful(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        turns = [_without(turn, skipped) for turn in scenario.turns]
        return gold_model(replace(scenario, turns=tuple(turns)), registry)

    with_calls = {
        scenario.id
        for scenario in SCENARIOS
        if any(not call.optional for turn in scenario.turns for call in turn.expect.calls)
    }
    failed = {r.sample_id.scenario for r in await played(forgetful) if r.verdict is Verdict.FAIL}
    assert (
        with_calls - failed <= {"ac11-validation-ko-01"} if skipped == 0 else with_calls <= failed
    )


def _without(turn: Turn, skipped: int) -> Turn:
    required = [call for call in turn.expect.calls if not call.optional]
    if not required:
        return turn
    dropped = required[skipped]
    calls = tuple(call for call in turn.expect.calls if call is not dropped)
    gold = turn.gold
    if gold.calls is not None:
        same = [call for call in gold.calls if call.tool == dropped.tool]
        gold = replace(gold, calls=tuple(call for call in gold.calls if call is not same[skipped]))
    expect = replace(turn.expect, calls=calls, order="any")
    return replace(turn, expect=expect, gold=gold)
