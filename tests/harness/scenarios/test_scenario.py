"""Scenario files and plain data: loading, and issues by file, line and field."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import lhkit.harness
from lhkit import Scenario
from lhkit.base.errors import ScenarioError
from lhkit.harness.running.fingerprint import scenario_hash
from lhkit.harness.scenarios.documents import read_json_lines, read_yaml
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.harness.scenarios.scenario import Before, ExpectedReply
from lhkit.harness.scenarios.scenario_schema import scenario_json_schema
from tests.harness.build import Load
from tests.rows import check_rows

SCHEMA_FILE = Path(lhkit.harness.__file__).parent / "scenarios" / "scenario.schema.json"

COMPLETE = """
- id: ac06-add-caffeine-ko-01
  ac: AC-6
  locale: ko
  tags: [write, chain]
  world: {now: 2026-06-15T09:00:00+09:00, habits: [{protocol_id: a}], tracker: []}
  turns:
    - user: "추가해 줘"
      confirm: [accept, reject]
      expect:
        calls:
          - tool: search_catalog
            args: {query: {any: true, optional: true}, category: {one_of: [sleep, light]}}
            optional: true
          - tool: add_habit
            args: {protocol_id: caffeine, framed_text: {matches: "카페인"}, n: 1, since: 2026-06-01}
            result: ok
        order: {before: [[0, 1]]}
        extra: reads
      forbid:
        - tool: log_tracker_entry
          args: {value: done}
      reply: {contains_any: [추가], contains_all: [카페인], excludes: [죄송], matches: "\\\\S"}
      gold: {say: "카페인 추가했어요", calls: [{tool: add_habit, args: {n: 1}}]}
    - user: "고마워"
      confirm: absent
  final: {habits: [{protocol_id: {one_of: [a, b]}}], tracker: []}
"""

MINIMAL = """
- id: {id}
  ac: AC-1
  turns: [{{user: hello}}]
"""


def test_everything_that_the_format_knows_is_read(load: Load) -> None:
    (scenario,) = load(COMPLETE)
    turn = scenario.turns[0]
    assert (scenario.ac, scenario.locale, scenario.tags) == ("AC-6", "ko", ("write", "chain"))
    assert scenario.world["habits"] == [{"protocol_id": "a"}]
    assert str(scenario.today) == "2026-06-15"
    assert turn.confirm == ("accept", "reject")
    assert [call.tool for call in turn.expect.calls] == ["search_catalog", "add_habit"]
    assert [call.optional for call in turn.expect.calls] == [True, False]
    assert turn.expect.calls[1].args["since"] == "2026-06-01"
    assert turn.expect.calls[1].result == "ok"
    assert turn.expect.order == Before(before=((0, 1),))
    assert turn.expect.extra == "reads"
    assert turn.forbid[0].args == {"value": "done"}
    assert turn.reply.matches == "\\S"
    assert turn.gold.say == "카페인 추가했어요"
    assert turn.gold.calls is not None
    assert turn.gold.calls[0].args == {"n": 1}
    assert scenario.turns[1].confirm == "absent"
    assert scenario.final["tracker"] == ()


def test_turn_defaults_expect_no_call_and_any_reply(load: Load) -> None:
    (scenario,) = load(MINIMAL.format(id="a"))
    turn = scenario.turns[0]
    assert (turn.expect.calls, turn.expect.extra, turn.confirm) == ((), "none", ())
    assert turn.reply == ExpectedReply()
    assert (scenario.world, scenario.final) == ({}, {})
    assert scenario.today is None


@check_rows(
    ("given", "messages", "locale"),
    [
        ({}, ["우유를 추가해 줘"], "ko"),
        ({}, ["add milk", "응"], "ko"),
        ({}, ["README.md 읽어 줘"], "ko"),
        ({}, ["add milk", "12"], "en"),
        ({}, ["füge Milch hinzu"], "en"),
        ({"locale": "en"}, ["우유를 추가해 줘"], "en"),
        ({"locale": "ko"}, ["add milk"], "ko"),
    ],
)
def test_scenario_locale_is_by_default_what_the_user_writes(
    given: dict[str, Any], messages: list[str], locale: str
) -> None:
    turns = [{"user": message} for message in messages]
    assert Scenario.from_data({"id": "a", "turns": turns, **given}).locale == locale


def test_scenario_with_an_invalid_turn_has_no_issue_about_its_locale() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_data({"id": "a", "turns": [{"usr": "hi"}]})
    assert "factory" not in str(caught.value)


HEAD = "- id: a\n  ac: x\n  "
TURN = f"{HEAD}turns:\n  - user: x\n    "


@check_rows(
    ("text", "message"),
    [
        ("- id: a\n  ac: AC-1\n", ":1: a.turns: is required"),
        ("- id: A B\n  ac: x\n  turns: [{user: x}]\n", ":1: A B.id: must be a text like ^[a-z0-9]"),
        (HEAD + "turns: []\n", ":3: a.turns: must be a list of 1 or more"),
        (HEAD + "turns:\n  - user: 5\n", ":4: a.turns[0].user: must be a text"),
        (HEAD + "turns:\n  - user: ' '\n", ":4: a.turns[0].user: must be more"),
        (HEAD + "turns:\n  - usr: x\n", ":4: a.turns[0].usr: unknown field: did you mean user?"),
        (
            TURN + "confirm: maybe\n",
            ":5: a.turns[0].confirm: must be one of accept, reject, absent, careful",
        ),
        (
            TURN + "confirm: [accept, Reject]\n",
            ":5: a.turns[0].confirm[1]: must be one of accept, reject: did you mean reject?",
        ),
        (
            TURN + "expect: {order: srict}\n",
            "order: must be one of any, strict or a mapping (`key: value`): did you mean strict?",
        ),
        (
            HEAD + "turns: [{user: x}]\n  tool_failures: [{tool: t, times: 0}]\n",
            ":4: a.tool_failures[0].times: must be 1 or more",
        ),
        (
            HEAD + "turns: [{user: x}]\n  tool_failures: [{tool: t, error: gone}]\n",
            ":4: a.tool_failures[0].error: must be handler_error",
        ),
        (HEAD + "tags: t\n  turns: [{user: x}]\n", ":3: a.tags: must be a list"),
        (
            TURN + "expect: {calls: [{args: {}}]}\n",
            ":5: a.turns[0].expect.calls[0].tool: is required",
        ),
        (
            TURN + "expect: {extra: some}\n",
            ":5: a.turns[0].expect.extra: must be one of none, reads, any",
        ),
        (
            TURN + "expect: {order: {before: [[0, 1]]}}\n",
            ":5: a.turns[0].expect.order: (0, 1) is out of range",
        ),
        (
            TURN + "reply:\n      matches: '['\n",
            ":6: a.turns[0].reply.matches: is not a valid regular expression",
        ),
        (
            HEAD + "turns:\n  - {user: x, forbid: [{tool: t,\n args: {d: {any: 1}}}]}",
            ":5: a.turns[0].forbid[0].args.d.any: must be true",
        ),
        (HEAD + "locale: xx\n  turns: [{user: x}]\n", ":3: a.locale: must be one of"),
        (
            HEAD + "world: {now: 2026-06-15}\n  turns: [{user: x}]\n",
            ":3: a.world.now: must be a time with offset",
        ),
        (
            HEAD + "world: {habits: 1}\n  turns: [{user: x}]\n",
            ":3: a.world.habits: must be a list of rows",
        ),
        (
            HEAD + "turns: [{user: x}]\n  final:\n    t:\n    - {a: {any: no}}\n",
            ":6: a.final.t[0].a.any: must be true",
        ),
        ("- 1: a\n", ":1: [0]: a key must be a text in quotes, not 1"),
        ("- id: 0x10\n", ":1: [0].id: 0x10 is not a JSON number"),
        ("- [a\n  b: }", ":2: (top): not YAML"),
        ("id: a\n", ":1: (top): must be a list of scenarios"),
        ("- 5\n", ":1: [0]: must be a mapping"),
    ],
)
def test_load_scenarios_reports_file_line_and_field(load: Load, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(text)
    assert "scenarios.yaml:" in str(caught.value)
    assert message in str(caught.value)


def with_another(value: Any, wrong: Any) -> Iterator[Any]:
    """Yield a value with each of its parts, and itself, replaced by an invalid one."""
    yield wrong
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    for key, inner in parts.items() if isinstance(parts, dict) else ():
        for invalid in with_another(inner, wrong):
            copy = value.copy()
            copy[key] = invalid
            yield copy


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [None, 1.5, True, "maybe", " ", [], ["x", 1, 2], {}, {"x": 1}])
def test_issues_do_not_use_pydantics_messages(tmp_path: Path, wrong: Any) -> None:
    raw = re.compile(r"(Input|String|Tuple|List|Field|Value) should|Extra inputs|Unexpected")
    (complete,) = read_yaml(COMPLETE).value
    file = tmp_path / "invalid.yaml"
    messages = set()
    for invalid in with_another(complete, wrong):
        file.write_text(json.dumps([invalid]), encoding="utf-8")
        messages |= {issue.message for issue in read_sources([file]).issues}
    assert messages
    assert sorted(filter(raw.search, messages)) == []


def test_issues_are_listed_in_order_of_lines(load: Load) -> None:
    text = (
        "- id: a\n  ac: x\n  wrong: 1\n  turns:\n  - usr: x\n"
        "- id: b\n  ac: x\n  locale: xx\n  turns: [{user: x, reply: {matches: '('}}]\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load(text)
    lines = str(caught.value).splitlines()
    assert [int(line.split(":")[1]) for line in lines] == [3, 5, 5, 8, 9]


def test_scenario_id_is_unique_over_all_files(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(MINIMAL.format(id="same"), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"two.yaml:2: same: the id is taken by .*one.yaml:2"):
        load_scenarios([tmp_path])


def test_load_scenarios_reads_no_more_files_than_the_limit_needs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        MINIMAL.format(id="one") + MINIMAL.format(id="two"), encoding="utf-8"
    )
    (tmp_path / "b.yaml").write_text("- id: broken", encoding="utf-8")
    for limit, ids in ((1, ["one"]), (2, ["one", "two"])):
        assert [each.id for each in load_scenarios([tmp_path], limit=limit)] == ids
    with pytest.raises(ScenarioError, match="broken"):
        load_scenarios([tmp_path], limit=3)


def test_load_scenarios_reads_folders_by_name_and_each_file_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for path in (tmp_path / "b.yaml", tmp_path / "a.yml", inner / "c.YAML"):
        path.write_text(MINIMAL.format(id=path.stem), encoding="utf-8")
    (tmp_path / "notes.md").write_text("no scenario", encoding="utf-8")
    scenarios = load_scenarios(
        [tmp_path / "b.yaml", str(tmp_path), tmp_path / "inner" / ".." / "b.yaml"]
    )
    assert [scenario.id for scenario in scenarios] == ["b", "a", "c"]
    assert load_scenarios(tmp_path) == load_scenarios(str(tmp_path)) == load_scenarios([tmp_path])


@pytest.mark.parametrize("name", ["missing.yaml", "empty"])
def test_load_scenarios_names_a_path_without_scenarios(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScenarioError, match=name):
        load_scenarios([tmp_path / name])


def test_read_yaml_keeps_dates_as_text_and_expands_anchors() -> None:
    document = read_yaml("a: &x [2026-06-15, yes, 1.5]\nb: *x\n")
    assert document.value == {"a": ["2026-06-15", "yes", 1.5], "b": ["2026-06-15", "yes", 1.5]}
    assert document.issues == ()


def test_read_yaml_parses_with_libyaml() -> None:
    readers = {yaml.reader.__file__, yaml.scanner.__file__, yaml.parser.__file__}
    seen: set[str] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, *_: seen.add(frame.f_code.co_filename))
    try:
        read_yaml(COMPLETE)
    finally:
        sys.setprofile(before)
    assert seen & {yaml.composer.__file__}
    assert not seen & readers


def test_schema_file_is_up_to_date() -> None:
    """After a change: `python -m lhkit.harness.scenarios.scenario_schema`."""
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == scenario_json_schema()


@pytest.mark.longer
@check_rows(
    ("text", "is_valid"),
    [
        (COMPLETE, True),
        (MINIMAL.format(id="a"), True),
        (COMPLETE.replace("extra: reads", "extra: some"), False),
        (COMPLETE.replace("{any: true, optional: true}", "{any: true, optionl: true}"), False),
        (COMPLETE.replace("{one_of: [sleep, light]}", "{one_of: []}"), False),
        (COMPLETE.replace("confirm: absent", "confirm: perhaps"), False),
    ],
)
def test_schema_accepts_what_the_loader_accepts(text: str, *, is_valid: bool) -> None:
    schema: Any = scenario_json_schema()
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(read_yaml(text).value) is is_valid


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


def test_read_json_lines_parses_a_line_once() -> None:
    """Every value of a line has its line, so that none is parsed again for its place."""
    modules: set[str] = set()
    sys.setprofile(lambda frame, *_: modules.add(str(frame.f_globals.get("__name__"))))
    try:
        document = read_json_lines('{"a": [1]}\n\n{"b": {"c": "x"}}\n')
    finally:
        sys.setprofile(None)
    assert [document.line((0, "a", 0)), document.line((1, "b", "c"))] == [1, 3]
    assert "json.decoder" in modules
    assert not [name for name in modules if name.startswith("yaml")]


def test_from_data_copies_its_data() -> None:
    data = json.loads(json.dumps(HELLO)) | {"world": {"notes": [{"id": 1}]}}
    scenario = Scenario.from_data(data)
    data["world"]["notes"][0]["id"] = 2
    assert scenario.world == {"notes": [{"id": 1}]}


@check_rows(
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


@check_rows(
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
def test_json_issues_have_file_line_and_field(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert message in "\n".join(map(str, read_sources([file]).issues))


@pytest.mark.parametrize("ac", ["", "  ac: null\n", "  ac:\n"])
def test_scenario_needs_no_criterion(ac: str, tmp_path: Path) -> None:
    text = f"- id: a\n{ac}  locale: en\n  turns: [{{user: hi}}]\n"
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")
    (scenario,) = load_scenarios([file])
    assert scenario.ac is None
    data = yaml.safe_load(text)
    Draft202012Validator(scenario_json_schema()).validate(data)
    assert scenario_hash(scenario) == scenario_hash(Scenario.from_data(data[0]))


@check_rows(
    ("ac", "issue"),
    [
        *((blank, "must be more than white space") for blank in ('""', '" "')),
        *((other, "must be a text") for other in ("1", "[AC-1]")),
    ],
)
def test_scenario_refuses_an_invalid_criterion(ac: str, issue: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"- id: a\n  ac: {ac}\n  turns: [{{user: hi}}]\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=rf"a.yaml:2: a.ac: {issue}"):
        load_scenarios([file])
