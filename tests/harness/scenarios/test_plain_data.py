"""Scenarios that are no YAML: plain data of a program, JSON and JSONL files."""

import json
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit import Scenario
from lhkit.errors import ScenarioError
from lhkit.harness.loader import load_scenarios, read_sources

HELLO: dict[str, Any] = {
    "id": "hello",
    "ac": "talk",
    "locale": "en",
    "turns": [{"user": "hi 👋", "confirm": ["accept", "reject"], "reply": {"matches": "hi"}}],
}


def test_plain_data_is_the_scenario_that_a_file_would_say(tmp_path: Path) -> None:
    made = Scenario.from_data(HELLO)
    texts = {
        "one.json": json.dumps([HELLO]),  # the hand as a pair of surrogates
        "many.jsonl": f"{json.dumps(HELLO, ensure_ascii=False)}\n\n",
        "one.yaml": json.dumps([HELLO], ensure_ascii=False, indent=2),
    }
    for name, text in texts.items():
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        assert load_scenarios([file]) == (made,), name


def test_what_is_made_of_data_changes_with_it_no_more() -> None:
    data = json.loads(json.dumps(HELLO)) | {"world": {"notes": [{"id": 1}]}}
    made = Scenario.from_data(data)
    data["world"]["notes"][0]["id"] = 2
    assert made.world == {"notes": [{"id": 1}]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"turns": []}, "hello.turns: must be a list of 1 or more"),
        ({"confirm": "accept"}, "hello.confirm: unknown field"),
        ({"world": {"now": "today"}}, "hello.world.now: must be a time with offset"),
        ({"tags": {1, 2}}, "a scenario must be plain JSON data: "),
    ],
)
def test_wrong_data_is_refused_by_field(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario.from_data(HELLO | change)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", '[\n {"id": "a",\n  "ac": 1}]', "a.json:3: a.ac: must be a text"),
        ("a.json", '[{"id": "a"},\n', "a.json:2: (top): not JSON: Expecting value"),
        ("a.json", '[{"id": "a", "id": "b"}]', "the key 'id' stands in one object twice"),
        ("a.json", '{"id": "a"}', "a.json:1: (top): must be a list of scenarios"),
        ("a.jsonl", '\n{"id": "a", "ac": 1}\n', "a.jsonl:2: a.ac: must be a text"),
        ("a.jsonl", '{"id": "a"\n', "a.jsonl:1: "),
        ("a.jsonl", '{"id": NaN}\n', "not JSON"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.yaml", "[" * 100_000 + "]" * 100_000, "nested deeper than 60 levels"),
    ],
)
def test_a_fault_of_a_json_file_is_named_by_file_line_and_field(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert told in "\n".join(map(str, read_sources([file]).faults))


def test_what_a_scenario_needs_is_public() -> None:
    assert lhkit.ToolCall(name="look", args={}) == lhkit.ToolCall(name="look", args={})
    assert {"Scenario", "ToolCall"} <= set(lhkit.__all__)
