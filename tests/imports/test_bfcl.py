"""The BFCL import, with a made-up package: reference calls pass, deviations fail."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.imports import import_with
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.imports.bfcl import import_bfcl
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

CODE = {
    "__init__.py": "",
    "constants/__init__.py": "",
    "constants/executable_backend_config.py": """\
CLASS_FILE_PATH_MAPPING = {"Lamp": "bfcl_eval.lamp", "MathAPI": "bfcl_eval.math"}
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Lamp": "lamp.json", "MathAPI": "math.json"}
""",
    "eval_checker/multi_turn_eval/multi_turn_utils.py": """\
import importlib

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

INSTANCES = {}


def execute_multi_turn_func_call(
    func_call_list, initial_config, involved_classes, model_name, test_entry_id, long_context=False
):
    assert not func_call_list
    involved = {}
    for name in involved_classes:
        key = (model_name, test_entry_id, name)
        if key not in INSTANCES:
            INSTANCES[key] = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name != "MathAPI":
                INSTANCES[key]._load_scenario(dict(initial_config[name]), long_context=long_context)
        involved[name] = INSTANCES[key]
    return [], involved
""",
    "constants/default_prompts.py": """\
DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = "There are more functions. What about now?"
""",
    "lamp.py": """\
class Level:
    def __init__(self, level):
        self.content = level


class Lamp:
    def _load_scenario(self, scenario, long_context=False):
        self.level, self.room = Level(scenario["level"]), "x" * 50 if long_context else "hall"
        self._calls = 0

    def setLevel(self, level, slowly=False):
        if level > 10:
            raise ValueError("too bright")
        self._calls += 1
        self.level = Level(level)
        return {"level": self.level}

    def get_level(self):
        return self.level.content
""",
    "math.py": """\
class Number:
    def __init__(self, value):
        self.value = value

    def __str__(self):
        return f"{self.value:.0f}"

    def __repr__(self):
        return f"Number({self.value})"


class MathAPI:
    def double(self, number):
        return {"result": Number(2 * number)}
""",
}


def function(name: str, **fields: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"This tool belongs to Lamp. Tool description: {name} it.",
        "parameters": {
            "type": "dict",
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": [field for field in fields if field != "slowly"],
        },
    }


DOCUMENTS = {
    "lamp.json": [function("setLevel", level="integer", slowly="boolean"), function("get_level")],
    "math.json": [function("double", number="float")],
}

ENTRIES: dict[str, list[tuple[str, list[list[str]]]]] = {
    "multi_turn_base": [
        ("base_0", [["setLevel(3)", "get_level()"], ["setLevel(level=5, slowly=True)"]]),
        ("base_1", [["double(number=2.5)"], ["setLevel(level=11)"]]),
        ("base_2", [["setLevel(level='high')"], ["get_level()"]]),  # against its own schema
    ],
    "multi_turn_miss_func": [("func_0", [["get_level()"], [], ["setLevel(4)"], ["get_level()"]])],
    "multi_turn_long_context": [("long_0", [["setLevel(7)"], ["get_level()"]])],
}
MISSED = {"func_0": {"2": ["setLevel"]}}
"""The functions that come in a later turn, in which the user says nothing of their own."""


def to_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder that the package lies in."""
    root = tmp_path / "site"
    texts = {
        **CODE,
        **{f"data/multi_turn_func_doc/{name}": to_lines(rows) for name, rows in DOCUMENTS.items()},
    }
    for category, entries in ENTRIES.items():
        texts[f"data/BFCL_v4_{category}.json"] = to_lines(
            [
                {
                    "id": name,
                    "question": [
                        []
                        if str(number) in MISSED.get(name, {})
                        else [{"role": "user", "content": f"Do {turn}"}]
                        for number, turn in enumerate(turns)
                    ],
                    **({"missed_function": MISSED[name]} if name in MISSED else {}),
                    "initial_config": {"Lamp": {"level": 0}},
                    "involved_classes": ["Lamp", "MathAPI"],
                }
                for name, turns in entries
            ]
        )
        texts[f"data/possible_answer/BFCL_v4_{category}.json"] = to_lines(
            [{"id": name, "ground_truth": turns} for name, turns in entries]
        )
    for name, text in texts.items():
        file = root / "bfcl_eval" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
async def into(package: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert await import_with("bfcl", load_settings(), path=package, into=folder) == 1
    return folder


def scenarios_in(folder: Path) -> dict[str, Scenario]:
    names = ("multi_turn_base.yaml", "multi_turn_miss_func.yaml", "multi_turn_long_context.yaml")
    return {scenario.id: scenario for scenario in load_scenarios([folder / name for name in names])}


async def run_scenario(into: Path, name: str, model: Any) -> SampleRecord:
    return await run_sample(scenarios_in(into)[name], model, load(f"{into / 'toolset.py'}:toolset"))


async def test_bfcl_reference_calls_pass_unless_the_schema_refuses_them(into: Path) -> None:
    scenarios = scenarios_in(into)
    assert list(scenarios) == ["base_0", "base_1", "func_0", "long_0"]
    run = await replay(
        list(scenarios.values()),
        gold_model,
        toolset=f"{into / 'toolset.py'}:toolset",
        repeats=2,
        concurrency=4,
        progress=False,
    )
    assert [record.score.verdict for record in run.records] == [Verdict.PASS] * 8
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "- base_2: " in notes
    assert 'setLevel refuses level="high"' in notes


async def test_bfcl_final_is_the_state_of_the_original_objects(into: Path) -> None:
    assert scenarios_in(into)["base_0"].final == {"Lamp": ({"name": "level", "value": 5},)}
    assert scenarios_in(into)["base_1"].final == {}


async def test_bfcl_missing_function_arrives_in_its_turn(into: Path) -> None:
    scenario = scenarios_in(into)["func_0"]
    assert scenario.turns[2].user == "There are more functions. What about now?"
    record = await run_scenario(into, "func_0", gold_model)
    names = [[tool["name"] for tool in turn.new_tools] for turn in record.trajectory.turns]
    assert names == [[], [], ["setLevel"], []]
    early: list[Reply] = [call("get_level"), call("setLevel", level=4), say("Done.")]
    record = await run_scenario(into, "func_0", ScriptedModel([*early, *["…"] * 3]))
    assert record.trajectory.turns[0].calls[1].outcome == "unknown_tool"


async def test_bfcl_turn_after_an_unscored_one_has_the_complete_state(into: Path) -> None:
    turns = scenarios_in(into)["func_0"].turns
    assert turns[1].final is None
    assert turns[2].final == {
        "Lamp": ({"name": "level", "value": 4}, {"name": "room", "value": "hall"})
    }


async def test_bfcl_import_writes_jsonl(package: Path, tmp_path: Path) -> None:
    folder, settings = tmp_path / "to_lines", load_settings()
    await import_with("bfcl", settings, path=package, into=folder, as_jsonl=True)
    written = (folder / "multi_turn_base.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in written] == ["base_0", "base_1"]
    assert [scenario.id for scenario in load_scenarios([folder / "multi_turn_base.jsonl"])] == [
        "base_0",
        "base_1",
    ]
    assert not list(folder.glob("*.yaml"))


LEVEL_3, LEVEL_4, LEVEL_5, LEVEL_6 = (call("setLevel", level=level) for level in (3, 4, 5, 6))
READ = call("get_level")
DONE = say("Done.")


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ((LEVEL_3, READ, DONE, LEVEL_5, DONE), None),  # not slowly, as gold does it
        ((call("setLevel", level=9), LEVEL_3, READ, DONE, LEVEL_5, DONE), None),
        ((READ, LEVEL_3, READ, DONE, LEVEL_5, LEVEL_5, DONE), None),
        ((LEVEL_3, DONE, LEVEL_5, DONE), "turn 0: expect.results[1]: no call returned"),
        ((LEVEL_3, LEVEL_5, READ, DONE, DONE), "turn 0: expect.results[1]: no call"),
        ((LEVEL_3, READ, DONE, LEVEL_6, DONE), "turn 1: "),
        ((LEVEL_4, READ, DONE, LEVEL_5, DONE), "turn 0: "),
        ((LEVEL_3, LEVEL_4, READ, DONE, LEVEL_5, DONE), "turn 0: "),  # BFCL compares each turn
    ],
)
async def test_bfcl_other_calls_pass_with_equal_state_and_results_after_each_turn(
    into: Path, replies: Sequence[Reply], expected: str | None
) -> None:
    record = await run_scenario(into, "base_0", ScriptedModel(replies))
    reasons = record.score.reasons
    assert record.score.verdict is (Verdict.PASS if expected is None else Verdict.FAIL), reasons
    assert expected is None or reasons[0].startswith(expected)


async def test_bfcl_turn_with_reference_calls_requires_a_call(into: Path) -> None:
    early = ScriptedModel([call("setLevel", level=7), READ, DONE, DONE])
    record = await run_scenario(into, "long_0", early)
    (reason,) = record.score.reasons
    assert reason.startswith("turn 1: the turn has 0 calls")


async def test_bfcl_careful_user_approves_reference_writes(into: Path) -> None:
    toolset = f"{into / 'toolset.py'}:toolset"
    expected = list(scenarios_in(into).values())
    run = await replay(expected, gold_model, toolset=toolset, user="careful", progress=False)
    assert {record.score.verdict for record in run.records} == {Verdict.PASS}


async def test_bfcl_exceptions_and_non_json_results_reach_the_model(into: Path) -> None:
    record = await run_scenario(into, "base_1", gold_model)
    results = [call.result for turn in record.trajectory.turns for call in turn.calls]
    assert results[0]["data"] == {"result": "Number(5.0)"}  # as BFCL writes it, not shortened
    assert (results[1]["code"], results[1]["reason"]) == ("raised", "too bright")


def test_import_bfcl_refuses_a_folder_without_the_package(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not contain bfcl_eval: give the folder of BFCL's"):
        import_bfcl(tmp_path)


def test_import_bfcl_refuses_another_copy(package: Path, tmp_path: Path) -> None:
    import_bfcl(package)
    other = package.rename(tmp_path / "other")
    with pytest.raises(UsageError, match="Another copy of bfcl_eval is imported first"):
        import_bfcl(other)


QUESTIONS: dict[str, tuple[list[dict[str, str]], list[dict[str, Any]]]] = {
    "simple_python": (
        [{"role": "user", "content": "Lamp to 3"}],
        [{"lamp.setLevel": {"level": [0, 3], "slowly": ["", True]}}],
    ),
    "parallel": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "Tea and milk"},
        ],
        [
            {"order": {"item": [{"name": ["Tea", "Black tea"], "sizes": [[1, 2]]}]}},
            {"order": {"item": [{"name": ["Milk"], "sizes": [""]}]}},
        ],
    ),
    "irrelevance": ([{"role": "user", "content": "Sing"}], []),
    "live_simple": (
        [{"role": "user", "content": "Lamp high"}],
        [{"lamp.setLevel": {"level": ["high"]}}],  # against its own schema
    ),
}


async def test_import_bfcl_scores_one_response_of_single_turn_categories(package: Path) -> None:
    order = {"item": {"type": "dict", "properties": {"name": {"type": "string"}}}}
    tools = [
        {**function("setLevel", level="integer", slowly="boolean"), "name": "lamp.setLevel"},
        {**function("order"), "parameters": {"type": "dict", "properties": order}},
    ]
    for category, (messages, answers) in QUESTIONS.items():
        row = {"id": f"{category}_0", "question": [messages], "function": tools}
        (package / f"bfcl_eval/data/BFCL_v4_{category}.json").write_text(to_lines([row]))
        if answers:
            truth = {"id": f"{category}_0", "ground_truth": answers}
            file = package / f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
            file.write_text(to_lines([truth]))
    into = package.parent / "mine"
    assert await import_with("bfcl", load_settings(), path=package, into=into) == 1
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "live_simple_0: lamp_setLevel refuses its reference arguments: level is" in notes
    toolset = load(f"{into}/toolset.py:single_turn")
    (simple,) = load_scenarios([into / "simple_python.yaml"])
    (parallel,) = load_scenarios([into / "parallel.yaml"])
    (none,) = load_scenarios([into / "irrelevance.yaml"])

    async def passes(scenario: Scenario, *replies: Reply) -> bool:
        return (await run_sample(scenario, ScriptedModel([*replies]), toolset)).is_passed

    run = await replay([simple, parallel, none], gold_model, toolset=toolset, progress=False)
    assert [record.score.exact for record in run.records] == [True, True, True]
    assert await passes(simple, call("lamp_setLevel", level=3, slowly=True))
    assert not await passes(simple, call("lamp_setLevel", level=3, slowly=False))
    assert not await passes(simple, call("lamp_setLevel", level=4), call("lamp_setLevel", level=3))
    tea = call("order", item={"name": "black TEA", "sizes": [1, 2]}).calls
    milk = call("order", item={"name": "milk"}).calls
    assert await passes(parallel, Reply(calls=(*tea, *milk)))
    assert await passes(parallel, Reply(calls=(*milk, *tea)))  # as in BFCL
    assert not await passes(parallel, Reply(calls=(*tea, *tea)))
    assert not await passes(parallel, Reply(calls=tea), Reply(calls=milk))
    assert await passes(none, say("I cannot sing."))
    assert not await passes(none, call("order", item={"name": "Tea"}), say("Sung."))
