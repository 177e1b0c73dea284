"""A package in BFCL's form, made up: its golds pass, and what differs from them does not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lhkit.cli.imports import BfclOptions, import_bfcl_tasks
from lhkit.errors import UsageError
from lhkit.harness.author.reference import gold_model
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.imports.bfcl import import_bfcl
from lhkit.models.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load

pytestmark = pytest.mark.anyio

CODE = {
    "__init__.py": "",
    "constants/__init__.py": "",
    "constants/executable_backend_config.py": """\
CLASS_FILE_PATH_MAPPING = {"Lamp": "bfcl_eval.lamp", "MathAPI": "bfcl_eval.math"}
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Lamp": "lamp.json", "MathAPI": "math.json"}
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
    "lamp.json": [
        function("setLevel", level="integer", slowly="boolean"),
        function("get_level"),
    ],
    "math.json": [function("double", number="float")],
}

ENTRIES: dict[str, list[tuple[str, list[list[str]]]]] = {
    "multi_turn_base": [
        ("base_0", [["setLevel(3)", "get_level()"], ["setLevel(level=5, slowly=True)"]]),
        ("base_1", [["double(number=2.5)"], ["setLevel(level=11)"]]),
        ("base_2", [["setLevel(level='high')"], ["get_level()"]]),  # against its own schema
    ],
    "multi_turn_miss_func": [
        ("func_0", [["get_level()"], [], ["setLevel(4)"], ["get_level()"]]),
    ],
    "multi_turn_long_context": [("long_0", [["setLevel(7)"], ["get_level()"]])],
}
MISSED = {"func_0": {"2": ["setLevel"]}}
"""The functions that come in a later turn, in which the user says nothing of their own."""


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder that the package lies in."""
    root = tmp_path / "site"
    texts = {
        **CODE,
        **{f"data/multi_turn_func_doc/{name}": lines(rows) for name, rows in DOCUMENTS.items()},
    }
    for category, entries in ENTRIES.items():
        texts[f"data/BFCL_v4_{category}.json"] = lines(
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
        texts[f"data/possible_answer/BFCL_v4_{category}.json"] = lines(
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
    assert await import_bfcl_tasks(BfclOptions(path=package, into=folder), load_settings()) == 1
    return folder


def scenarios_in(folder: Path) -> dict[str, Scenario]:
    names = ("multi_turn_base.yaml", "multi_turn_miss_func.yaml", "multi_turn_long_context.yaml")
    return {each.id: each for each in load_scenarios([folder / name for name in names])}


@pytest.mark.promise("imports.bfcl")
async def test_every_gold_passes_twice_but_that_which_its_own_schema_refuses(into: Path) -> None:
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
    assert [record.judgement.verdict for record in run.records] == [Verdict.PASS] * 8
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "- base_2: " in notes
    assert 'setLevel refuses level="high"' in notes


async def test_final_is_what_their_own_objects_end_in(into: Path) -> None:
    assert scenarios_in(into)["base_0"].final == {"Lamp": ({"name": "level", "value": 5},)}
    assert scenarios_in(into)["base_1"].final == {}


async def test_a_turn_that_ends_in_another_state_fails_though_the_end_is_right(
    into: Path,
) -> None:
    name = name_of(into)
    replies: list[Reply] = [
        call(name, level=3),
        call(name, level=4),  # BFCL compares the state after every turn
        call("get_level"),
        say("Done."),
        call(name, level=5, slowly=True),
        say("Done."),
    ]
    toolset = load(f"{into / 'toolset.py'}:toolset")
    record = await tried(scenarios_in(into)["base_0"], ScriptedModel(replies), toolset)
    assert record.judgement.state_equal
    assert record.judgement.verdict is Verdict.FAIL


async def test_a_function_that_was_missing_is_there_from_its_turn_on(into: Path) -> None:
    scenario = scenarios_in(into)["func_0"]
    assert scenario.turns[2].user == "There are more functions. What about now?"
    toolset = load(f"{into / 'toolset.py'}:toolset")
    record = await tried(scenario, gold_model, toolset)
    came = [[each["name"] for each in turn.new_tools] for turn in record.evidence.turns]
    assert came == [[], [], ["setLevel"], []]
    early: list[Reply] = [call("get_level"), call("setLevel", level=4), say("Done.")]
    record = await tried(scenario, ScriptedModel([*early, *["…"] * 3]), toolset)
    assert record.evidence.turns[0].calls[1].outcome == "unknown_tool"


async def test_after_a_turn_that_bfcl_does_not_judge_the_whole_state_is_told(into: Path) -> None:
    turns = scenarios_in(into)["func_0"].turns
    assert turns[1].final is None
    assert turns[2].final == {
        "Lamp": ({"name": "level", "value": 4}, {"name": "room", "value": "hall"})
    }


async def test_scenarios_are_written_one_a_line_if_asked_for(package: Path, tmp_path: Path) -> None:
    folder, settings = tmp_path / "lines", load_settings()
    await import_bfcl_tasks(BfclOptions(path=package, into=folder, as_jsonl=True), settings)
    written = (folder / "multi_turn_base.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(each)["id"] for each in written] == ["base_0", "base_1"]
    assert [each.id for each in load_scenarios([folder / "multi_turn_base.jsonl"])] == [
        "base_0",
        "base_1",
    ]
    assert not list(folder.glob("*.yaml"))


def name_of(into: Path) -> str:
    return scenarios_in(into)["base_0"].turns[0].expect.calls[0].tool


LEVEL_3, LEVEL_5 = call("setLevel", level=3), call("setLevel", level=5)
DONE = say("Done.")


@pytest.mark.promise("imports.bfcl")
@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ((LEVEL_3, call("get_level"), DONE, LEVEL_5, DONE), None),  # not slowly, as gold does it
        ((call("setLevel", level=9), LEVEL_3, call("get_level"), DONE, LEVEL_5, DONE), None),
        ((call("get_level"), LEVEL_3, call("get_level"), DONE, LEVEL_5, LEVEL_5, DONE), None),
        ((LEVEL_3, DONE, LEVEL_5, DONE), "turn 0: expect.results[1]: no call came to"),
        ((LEVEL_3, LEVEL_5, call("get_level"), DONE, DONE), "turn 0: expect.results[1]: no call"),
    ],
)
async def test_other_calls_that_end_in_the_golds_state_and_results_pass_as_in_bfcl(
    into: Path, replies: Sequence[Reply], told: str | None
) -> None:
    toolset = load(f"{into / 'toolset.py'}:toolset")
    record = await tried(scenarios_in(into)["base_0"], ScriptedModel(replies), toolset)
    reasons = record.judgement.reasons
    assert record.judgement.verdict is (Verdict.PASS if told is None else Verdict.FAIL), reasons
    assert told is None or reasons[0].startswith(told)


async def test_a_turn_with_a_gold_needs_a_call_though_all_of_it_came_before(into: Path) -> None:
    toolset = load(f"{into / 'toolset.py'}:toolset")
    early = ScriptedModel([call("setLevel", level=7), call("get_level"), DONE, DONE])
    record = await tried(scenarios_in(into)["long_0"], early, toolset)
    (reason,) = record.judgement.reasons
    assert reason.startswith("turn 1: the turn has 0 of the 1 calls")


async def test_a_careful_user_lets_the_golds_writes_through(into: Path) -> None:
    toolset = f"{into / 'toolset.py'}:toolset"
    told = list(scenarios_in(into).values())
    run = await replay(told, gold_model, toolset=toolset, user="careful", progress=False)
    assert {record.judgement.verdict for record in run.records} == {Verdict.PASS}


@pytest.mark.promise("imports.bfcl")
@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ((3, 5), Verdict.PASS),
        ((3, 6), Verdict.FAIL),
        ((4, 5), Verdict.FAIL),
    ],
)
async def test_other_arguments_than_the_golds_fail(
    into: Path, levels: tuple[int, int], told: Verdict
) -> None:
    name = name_of(into)
    replies: list[Reply] = [
        call("get_level"),  # more than the gold's calls is no fault
        call(name, level=levels[0]),
        call("get_level"),
        say("Done."),
        call(name, level=levels[1], slowly=True),
        say("Done."),
    ]
    toolset = load(f"{into / 'toolset.py'}:toolset")
    record = await tried(scenarios_in(into)["base_0"], ScriptedModel(replies), toolset)
    assert record.judgement.verdict is told


async def test_what_a_method_raises_or_returns_that_is_no_json_is_told_to_the_model(
    into: Path,
) -> None:
    toolset = load(f"{into / 'toolset.py'}:toolset")
    record = await tried(scenarios_in(into)["base_1"], gold_model, toolset)
    results = [each.result for turn in record.evidence.turns for each in turn.calls]
    assert results[0]["data"] == {"result": "Number(5.0)"}  # as BFCL writes it, not shortened
    assert (results[1]["code"], results[1]["reason"]) == ("raised", "too bright")


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no bfcl_eval: give the folder of BFCL's package"):
        import_bfcl(tmp_path)


def test_another_copy_that_python_finds_first_is_named(package: Path, tmp_path: Path) -> None:
    import_bfcl(package)
    other = package.rename(tmp_path / "other")
    with pytest.raises(UsageError, match="another bfcl_eval comes first here"):
        import_bfcl(other)
