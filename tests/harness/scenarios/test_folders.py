"""Scenario files among the other YAML files of a folder."""

import logging
from pathlib import Path

import pytest

from lhkit.base.errors import ScenarioError
from lhkit.base.locales import load_catalog
from lhkit.base.notices import NOTICE
from lhkit.harness.scenarios.loader import load_scenarios
from tests.rows import check_rows

SCENARIO = "- id: {}\n  turns: [{{user: hi}}]\n"
OTHERS = {
    "docker-compose.yml": "services:\n  db: {image: postgres}\n",
    "mkdocs.yml": "site_name: x\nnav: []\nextension: !!python/name:x.y\n",
    "world.yaml": "items: [{id: milk}, {id: eggs}]\n",
    "list.yaml": "[1, 2, three]\n",
    "hooks.yaml": "- id: lint\n  name: lint\n  entry: lhkit lint\n",
    "playbook.yml": "- hosts: all\n  tasks: [{name: x}]\n  tags: [a]\n",
    "openapi.yaml": "openapi: 3.1.0\npaths: {/turns: {get: {}}}\n",
    "empty.yaml": "",
    "comment.yaml": "# nothing yet\n",
    "chart.yaml": "{{- if .Values.x }}\nname: y\n{{- end }}\n",
    "latin.yaml": "name: caf\udce9\n",
    "two.yaml": "a: 1\n---\nb: 2\n",
    "sub/world.yml": "items: []\n",
}
BROKEN = {
    "no list": ("a.yaml", "id: b\nturns: [{user: hi}]\n", "must be a list of scenarios"),
    "misspelt turns": ("a.yaml", "- id: b\n  locale: en\n  turn: []\n", "turn"),
    "misspelt user": ("a.yaml", "- id: b\n  turns: [{usr: hi}]\n", "usr"),
    "one of two": ("a.yaml", SCENARIO.format("b") + "- name: x\n", "b"),
    "not YAML": ("a.yaml", "- id: b\n  turns:\n   - user: [\n", "not YAML"),
    "broken at its first line": ("a.yaml", "- id: [\n", "not YAML"),
    "tabs": ("a.yaml", "- id: b\n\tturns: []\n  turns: x\n", "not YAML"),
    "a tag": ("a.yaml", "- id: b\n  turns: !x [{user: hi}]\n", "tag"),
    "not text": ("a.yaml", "- id: caf\udce9\n  turns: [{user: hi}]\n", "UTF-8"),
    "named so": ("a.scenario.yaml", "services: {}\n", "must be a list of scenarios"),
    "named so, empty": ("a.scenario.yml", "", "must be a list of scenarios"),
    "named so, JSON": ("a.scenario.json", '{"services": 1}', "must be a list of scenarios"),
}


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return file


def test_folder_gives_its_scenarios_and_counts_the_files_that_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a.yaml", SCENARIO.format("one"))
    write(tmp_path, "b.scenario.jsonl", '{"id": "two", "turns": [{"user": "hi"}]}\n')
    write(tmp_path, "ignored.jsonl", "{}\n")
    for name, text in OTHERS.items():
        write(tmp_path, name, text)
    with caplog.at_level(logging.WARNING):
        assert [scenario.id for scenario in load_scenarios(tmp_path)] == ["one", "two"]
    (record,) = caplog.records
    key, values = vars(record)[NOTICE]
    assert values["count"] == len(OTHERS)
    for locale in ("en", "ko"):
        text = load_catalog(locale).text(key, **values)
        assert str(len(OTHERS)) in text
        assert "chart.yaml, comment.yaml, docker-compose.yml, …" in text


def test_folder_of_scenarios_alone_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a.yaml", SCENARIO.format("one"))
    assert len(load_scenarios(tmp_path)) == 1
    assert caplog.records == []


@check_rows("name", OTHERS)
def test_file_named_by_hand_must_be_scenarios(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name, OTHERS[name])
    with pytest.raises(ScenarioError):
        load_scenarios([file])


def test_file_named_by_hand_is_not_counted_as_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a.yaml", SCENARIO.format("one"))
    other = write(tmp_path, "world.yaml", "items: []\n")
    with pytest.raises(ScenarioError, match="must be a list"):
        load_scenarios([tmp_path, other])
    assert caplog.records == []


@check_rows("what", BROKEN)
def test_broken_scenario_file_of_a_folder_is_never_skipped(tmp_path: Path, what: str) -> None:
    name, text, message = BROKEN[what]
    write(tmp_path, "good.yaml", SCENARIO.format("good"))
    write(tmp_path, name, text)
    with pytest.raises(ScenarioError, match=message):
        load_scenarios(tmp_path)


def test_folder_without_scenarios_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "world.yaml", "items: []\n")
    with pytest.raises(ScenarioError, match="no scenario file there"):
        load_scenarios(tmp_path)


PATTERNS = {
    "*.yaml": ["one"],
    "**/*.yaml": ["one", "two", "three"],
    "my scenarios": ["two", "three"],
    "my scenarios/*.scenario.yaml": ["three"],
    "my *": ["two", "three"],
    "[ab].yaml": ["one"],
    "a[1]": ["four"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("is_absolute", [False, True])
def test_pattern_gives_the_scenarios_of_its_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, is_absolute: bool
) -> None:
    write(tmp_path, "a.yaml", SCENARIO.format("one"))
    write(tmp_path, "my scenarios/b.yaml", SCENARIO.format("two"))
    write(tmp_path, "my scenarios/c.scenario.yaml", SCENARIO.format("three"))
    write(tmp_path, "a[1]/d.yml", SCENARIO.format("four"))
    write(tmp_path, "docker-compose.yaml", OTHERS["docker-compose.yml"])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / pattern if is_absolute else Path(pattern)
    assert [scenario.id for scenario in load_scenarios([path])] == PATTERNS[pattern]


@pytest.mark.parametrize("pattern", ["*.json", "none/*.yaml", "docker*"])
def test_pattern_without_scenarios_is_refused(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "docker-compose.yaml", OTHERS["docker-compose.yml"])
    with pytest.raises(ScenarioError, match="no scenario file there"):
        load_scenarios(tmp_path / pattern)
