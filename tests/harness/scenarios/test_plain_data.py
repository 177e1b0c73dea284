"""Scenarios from plain data, JSON and JSONL files."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit import Scenario
from lhkit.errors import ScenarioError
from lhkit.harness.loader import load_scenarios, read_sources

HELLO: dict[str, Any] = {
    "id": "hello",
    "ac": "talk",
    "locale": "en",
    "turns": [{"user": "hi 👋", "confirm": ["accept", "reject"], "reply": {"matches": "hi"}}],
}


def test_from_data_equals_the_scenario_of_a_file(tmp_path: Path) -> None:
    scenario = Scenario.from_data(HELLO)
    texts = {
        "one.json": json.dumps([HELLO]),  # the hand as a pair of surrogates
        "many.jsonl": f"{json.dumps(HELLO, ensure_ascii=False)}\n\n",
        "one.yaml": json.dumps([HELLO], ensure_ascii=False, indent=2),
    }
    for name, text in texts.items():
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        assert load_scenarios([file]) == (scenario,), name


def test_from_data_copies_its_data() -> None:
    data = json.loads(json.dumps(HELLO)) | {"world": {"notes": [{"id": 1}]}}
    scenario = Scenario.from_data(data)
    data["world"]["notes"][0]["id"] = 2
    assert scenario.world == {"notes": [{"id": 1}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turns": []}, "hello.turns: must be a list of 1 or more"),
        ({"confirm": "accept"}, "hello.confirm: unknown field"),
        ({"world": {"now": "today"}}, "hello.world.now: must be a time with offset"),
        ({"tags": {1, 2}}, "a scenario must be plain JSON data: "),
    ],
)
def test_from_data_reports_invalid_fields(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario.from_data(HELLO | change)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[\n {"id": "a",\n  "ac": 1}]', "a.json:3: a.ac: must be a text"),
        ("a.json", '[{"id": "a"},\n', "a.json:2: (top): not JSON: Expecting value"),
        ("a.json", '[{"id": "a", "id": "b"}]', "duplicate key 'id' in an object"),
        ("a.json", '{"id": "a"}', "a.json:1: (top): must be a list of scenarios"),
        ("a.jsonl", '\n{"id": "a", "ac": 1}\n', "a.jsonl:2: a.ac: must be a text"),
        ("a.jsonl", '{"id": "a"\n', "a.jsonl:1: "),
        ("a.jsonl", '{"id": NaN}\n', "not JSON"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.yaml", "[" * 100_000 + "]" * 100_000, "nested deeper than 60 levels"),
    ],
)
def test_json_faults_have_file_line_and_field(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert message in "\n".join(map(str, read_sources([file]).faults))
