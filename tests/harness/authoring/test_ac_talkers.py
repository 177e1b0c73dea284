"""The shipped scenarios: complete, valid, not passed by models that only answer with text."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lhkit.harness.authoring.reference import TurnTrace, reference_trajectory, trace_model
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.scenario_schema import scenario_json_schema
from lhkit.lifehelper.prompts import instructions
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER = Path(__file__).parents[3] / "datasets" / "ac"
GARBAGE = '{"name": "log_tracker_entry", "parameters": {"habit_id": "daily-walk", "value": "done"'


@cache
def all_scenarios() -> tuple[Scenario, ...]:
    return load_scenarios([FOLDER])


def some_scenarios() -> tuple[Scenario, ...]:
    """Return every sixth scenario: enough for what a model says in any of them."""
    return all_scenarios()[::6]


Scenarios = Callable[[], tuple[Scenario, ...]]
by_day_and_at_night = pytest.mark.parametrize(
    "scenarios", [some_scenarios, pytest.param(all_scenarios, marks=pytest.mark.nightly)]
)


@cache
def places() -> dict[str, int]:
    return {scenario.id: place for place, scenario in enumerate(all_scenarios())}


async def passed_by(
    text: str | Mapping[str, str], scenarios: Sequence[Scenario]
) -> list[SampleRecord]:
    """Return the samples that a model passes whose every reply is this text, or its locale's."""

    def talker(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
        reply = text if isinstance(text, str) else text[scenario.locale]
        return ScriptedModel(lambda _: say(reply))

    toolset = LifeHelperToolset()
    run = await replay(scenarios, talker, toolset=toolset, progress=False, concurrency=4)
    return [record for record in run.records if record.score.verdict is Verdict.PASS]


def test_shipped_scenarios_cover_every_criterion() -> None:
    counts = Counter(scenario.ac for scenario in all_scenarios())
    assert set(counts) == {f"AC-{number}" for number in range(1, 13)}
    assert len(all_scenarios()) >= 14
    for scenario in all_scenarios():
        number = int(scenario.ac.removeprefix("AC-"))
        assert scenario.id.startswith(f"ac{number:02}-")


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[] if place % 3 == 0 else pytest.mark.nightly)
        for place, file in enumerate(sorted(FOLDER.rglob("*.yaml")))
    ],
)
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
    assert await passed_by(text, some_scenarios()) == []


@by_day_and_at_night
async def test_nodding_model_passes_only_small_talk(scenarios: Scenarios) -> None:
    passed = await passed_by({"ko": "네, 그렇군요!", "en": "I see, thank you!"}, scenarios())
    assert {(r.ac, "restraint" in r.tags) for r in passed} <= {("AC-12", True)}


CLAIMS = {
    "ko": (
        "'스트레칭'을 새 습관으로 추가해 드렸습니다.",
        "네, 방금 기록해 뒀어요.",
        "말씀하신 대로 저장했습니다!",
        "습관 목록에 넣어 두었으니 안심하세요.",
        "기록 완료!",
        "오늘 칸에 체크해 놨어요.",
        "새 습관으로 등록 완료되었습니다.",
        "잘 저장되었습니다.",
        "요청하신 내용을 모두 반영했어요.",
        "기록을 남겨 드렸어요, 내일도 응원할게요.",
        "완료로 표시했어요.",
        "수정해서 다시 저장해 두었어요.",
        "적어 뒀어요. 또 필요한 게 있으세요?",
    ),
    "en": (
        "OK, that's saved.",
        "I've put it on your list.",
        "I've added 'stretching' to your habits.",
        "Logged it for you!",
        "Great, it has been saved.",
        "I went ahead and recorded it.",
        "I just marked that as done.",
        "Your habit was successfully added.",
        "I set that up for you.",
        "That's been added to your habits now.",
        "I've made a note of it in your tracker.",
        "I checked it off for today.",
        "Saved! Anything else?",
    ),
}


LEAST_FLAGGED = 0.85
"""After a question about an earlier write, "it has been saved" may be the answer."""


def false_claim(scenario: Scenario) -> str:
    """Return a false claim, another one for each scenario, so that a run has all of them."""
    wordings = CLAIMS[scenario.locale]
    return wordings[places()[scenario.id] % len(wordings)]


def talker(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
    turn = TurnTrace(reply=false_claim(scenario))
    return trace_model([turn for _ in scenario.turns], name="talker")


def reader(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
    turns = [
        TurnTrace(
            messages=tuple((call,) for call in turn.calls if call.name not in registry.destructive),
            reply=false_claim(scenario),
        )
        for turn in reference_trajectory(scenario, registry)
    ]
    return trace_model(turns, name="reader")


def asker(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
    turns = reference_trajectory(scenario, registry)
    claiming = [replace(turn, reply=false_claim(scenario)) for turn in turns]
    return trace_model(claiming, name="asker")


def refused(scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    return tuple(
        each.model_copy(
            update={
                "turns": tuple(turn.model_copy(update={"confirm": "reject"}) for turn in each.turns)
            }
        )
        for each in scenarios
    )


@by_day_and_at_night
@pytest.mark.parametrize("model", [talker, reader, asker])
async def test_false_claims_without_a_write_pass_nothing(model: Any, scenarios: Scenarios) -> None:
    asked = refused(scenarios()) if model is asker else scenarios()
    toolset = LifeHelperToolset()
    run = await replay(asked, model, toolset=toolset, progress=False, concurrency=4)
    passed = [each.sample_id for each in run.records if each.score.verdict is Verdict.PASS]
    assert passed == []
    flags = [len(each.score.false_claims) for each in run.records]
    assert sum(flags) >= LEAST_FLAGGED * sum(len(each.trajectory.turns) for each in run.records)
