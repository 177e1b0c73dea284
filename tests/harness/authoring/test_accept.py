"""`accept` changes only the chosen value in the YAML, and only if that is allowed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError, UsageError
from lhkit.harness.authoring.accept import (
    Edit,
    ObservedArgument,
    accept_argument,
    accept_phrase,
    observed_arguments,
    require_unchanged,
)
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import Origin, load_scenarios, read_sources
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.harness.build import Load
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

FILE = """\
# yaml-language-server: $schema=x.json
# 사람이 쓴 설명
- id: a-ko-01 # 첫 시나리오
  ac: AC-1
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: >-
        호흡법 좀
        찾아 줘.
      expect:
        calls:
          - tool: search_catalog
            args:
              query: QUERY # 왜 이런지
              category:   stress    # 분류
        extra: reads
      reply:
        contains_any: PHRASES
      gold:
        say: 네모 호흡
        calls: [{tool: search_catalog, args: {query: 호흡, category: stress}}]

- id: b-ko-01   # 손대지 않음
  ac:   AC-1
  turns: [ {user: "안녕"} ]
"""

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 50},
        "category": {"enum": ["stress", "sleep"]},
        "limit": {"type": "integer", "maximum": 10},
        "extra": {},
        "days": {"type": "array", "items": {"type": "string"}},
    },
}


def written(
    folder: Path,
    *,
    text: str = FILE,
    query: str = "호흡",
    phrases: str = '["네모 호흡"]',
    newline: str = "\n",
) -> tuple[Origin, str]:
    """Return the origin of the first scenario of a written file, and the file's text."""
    file = folder / "some.yaml"
    text = text.replace("QUERY", query).replace("PHRASES", phrases).replace("\n", newline)
    file.write_bytes(text.encode())
    return read_sources([file]).origins["a-ko-01"], text


def accepted(folder: Path, value: Any, name: str = "query", **file: str) -> Edit:
    origin, text = written(folder, **file)
    observed = ObservedArgument(
        turn=0, call=0, expected=0, tool="search_catalog", name=name, value=value
    )
    return accept_argument(observed, origin, SCHEMA, text)


def changed(edit: Edit) -> list[str]:
    return [line for line in edit.diff.splitlines() if re.match(r"[+-](?![+-])", line)]


@check_rows(
    ("query", "value", "after"),
    [
        ("호흡", "숨 쉬기", '{one_of: [호흡, "숨 쉬기"]}'),
        ('"호흡"', "no", '{one_of: ["호흡", "no"]}'),
        ("'it''s'", "2026-06-01", "{one_of: ['it''s', \"2026-06-01\"]}"),
        ("숨, 호흡", "숨", '{one_of: ["숨, 호흡", "숨"]}'),
        ("2026-06-01", "yes", '{one_of: [2026-06-01, "yes"]}'),
        ('{matches: "^호"}', "숨", '{one_of: [{matches: "^호"}, "숨"]}'),
        (
            '{matches: "^호", optional: true}',
            "숨",
            '{one_of: [{matches: "^호"}, "숨"], optional: true}',
        ),
        ("{one_of: [호흡]}", 'a "b"', '{one_of: [호흡, "a \\"b\\""]}'),
        ("{one_of: [호흡], optional: true}", "숨", '{one_of: [호흡, "숨"], optional: true}'),
    ],
)
def test_accept_argument_adds_one_of_and_nothing_else(
    tmp_path: Path, query: str, value: str, after: str
) -> None:
    edit = accepted(tmp_path, value, query=query)
    assert changed(edit) == [
        f"-              query: {query} # 왜 이런지",
        f"+              query: {after} # 왜 이런지",
    ]
    assert edit.after == edit.before.replace(f"query: {query} #", f"query: {after} #")


def test_accept_argument_appends_to_block_list(tmp_path: Path) -> None:
    block = "\n                one_of:\n                  - 호흡 # 흔함\n                  - 숨"
    edit = accepted(tmp_path, "들숨", query=block)
    assert changed(edit) == ['+                  - "들숨"']


def test_accept_argument_adds_unexpected_one_as_optional(tmp_path: Path) -> None:
    edit = accepted(tmp_path, 3, "limit")
    assert changed(edit) == ["+              limit: {one_of: [3], optional: true}"]
    (scenario, _) = reread(edit)
    assert scenario.turns[0].expect.calls[0].args["limit"] == {"one_of": [3], "optional": True}


def reread(edit: Edit) -> Any:
    edit.file.write_bytes(edit.after.encode())
    return load_scenarios([edit.file])


def test_accept_argument_wraps_ambiguous_value_in_equals(tmp_path: Path) -> None:
    edit = accepted(tmp_path, {"any": True}, "extra")
    assert changed(edit) == [
        '+              extra: {one_of: [{equals: {"any": true}}], optional: true}'
    ]
    args = reread(edit)[0].turns[0].expect.calls[0].args
    assert args["extra"]["one_of"] == [{"equals": {"any": True}}]


@check_rows(
    ("name", "recorded", "value", "before"),
    [
        ("days", "\n                - mo\n                - di", ["mo"], '["mo", "di"]'),
        ("days", "\n              - mo", [], '["mo"]'),
        ("extra", "\n                a: 1\n                b:\n                  - x", 3, None),
        ("extra", "\n                equals: {a: 1}", {"a": 2}, '{"equals": {"a": 1}}'),
        ("query", "\n                matches: ^호", "숨", '{"matches": "^호"}'),
        ("query", "호흡", "a\x7fb\x85c\u2028d\ufeff", "호흡"),
    ],
)
@check_rows("newline", ["\n", "\r\n"])
def test_accept_argument_takes_values_over_several_lines(
    tmp_path: Path, name: str, recorded: str, value: Any, before: str | None, newline: str
) -> None:
    text = FILE.replace(ARGS, f"{name}: {recorded}".replace(": \n", ":\n"))
    edit = accepted(tmp_path, value, name, text=text, newline=newline)
    first = before or '{"a": 1, "b": ["x"]}'
    assert f"              {name}: {{one_of: [{first}, " in edit.after
    args = reread(edit)[0].turns[0].expect.calls[0].args
    assert args[name]["one_of"][1] == value


def test_accept_argument_fills_empty_arguments(tmp_path: Path) -> None:
    edit = accepted(
        tmp_path, 3, "limit", text=FILE.replace(f"\n              {ARGS}", " {} # none")
    )
    assert changed(edit) == [
        "-            args: {} # none",
        "+            args: {limit: {one_of: [3], optional: true}} # none",
    ]


SCENARIOS = [
    {
        "id": name,
        "locale": "en",
        "turns": [
            {
                "user": "Hi",
                "expect": {"calls": [{"tool": "search_catalog", "args": args}]},
                "reply": {"contains_any": ["yes"]},
            }
        ],
    }
    for name, args in {"other": {}, "a-ko-01": {"query": "호흡", "days": ["mo"]}}.items()
]


@check_rows(
    ("name", "text"),
    [
        ("some.json", json.dumps(SCENARIOS, indent=1)),
        ("some.jsonl", "\n\n".join(map(json.dumps, SCENARIOS)) + "\n"),
        ("some.jsonl", json.dumps(SCENARIOS[1], ensure_ascii=False)),
        ("some.jsonl", "\r\n".join(map(json.dumps, [*SCENARIOS, SCENARIOS[0] | {"id": "c"}]))),
    ],
)
@check_rows(
    ("argument", "value"),
    [("query", "숨 \u2028"), ("days", ["di"]), ("limit", 3), ("extra", {"equals": 1})],
)
def test_accept_edits_json(tmp_path: Path, name: str, text: str, argument: str, value: Any) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode())
    origin = read_sources([file]).origins["a-ko-01"]
    observed = ObservedArgument(
        turn=0, call=0, expected=0, tool="search_catalog", name=argument, value=value
    )
    edit = accept_argument(observed, origin, SCHEMA, text)
    assert edit.after.count("\n") == text.count("\n")
    (scenario,) = [s for s in reread(edit) if s.id == "a-ko-01"]
    options = scenario.turns[0].expect.calls[0].args[argument]["one_of"]
    assert options[-1] == ({"equals": value} if isinstance(value, dict) else value)
    edit = accept_phrase("sure", 0, "Sure.", origin, text)
    (scenario,) = [s for s in reread(edit) if s.id == "a-ko-01"]
    assert [*scenario.turns[0].reply.contains_any] == ["yes", "sure"]


@check_rows("name", ["a: b", "null", "1", "- x", "#", 'a"b', "[x]", "키", "a b"])
def test_accept_argument_quotes_names(tmp_path: Path, name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    origin, text = written(tmp_path)
    observed = ObservedArgument(
        turn=0, call=0, expected=0, tool="search_catalog", name=name, value=3
    )
    edit = accept_argument(observed, origin, schema, text)
    assert reread(edit)[0].turns[0].expect.calls[0].args[name]["one_of"] == [3]


def test_accept_argument_keeps_windows_line_endings(tmp_path: Path) -> None:
    edit = accepted(tmp_path, 3, "limit", newline="\r\n")
    assert "\r\n              limit: {one_of: [3], optional: true}\r\n" in edit.after
    assert edit.after.count("\n") == edit.after.count("\r\n")


@check_rows(
    ("name", "value", "sentence"),
    [
        ("category", "hobby", 'search_catalog refuses "hobby"'),
        ("limit", 30, "search_catalog refuses 30: 30 is greater than the maximum of 10"),
        ("limit", "3", "is not of type 'integer'"),
        ("sort", "up", "it has no argument 'sort'"),
    ],
)
def test_accept_argument_refuses_invalid_value(
    tmp_path: Path, name: str, value: Any, sentence: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        accepted(tmp_path, value, name)


ARGS = "query: QUERY # 왜 이런지\n              category:   stress    # 분류"


@check_rows(
    ("args", "name", "message"),
    [
        ("query: &q 호흡", "query", r"args\.query: shared by a YAML anchor"),
        (
            "query: &p stress\n              category: *p",
            "category",
            r"args\.category: shared by a YAML anchor",
        ),
        ("extra:\n                a: 1 # 왜\n                b: 2", "extra", r"on one line first"),
        ("extra: # 왜\n                a: 1", "extra", r"edit it by hand|cannot be edited"),
        (
            "any_of: [{query: 호흡}, {category: stress}]",
            "query",
            r"several sets of arguments \(any_of\): add one more",
        ),
    ],
)
def test_accept_argument_refuses_complex_yaml(
    tmp_path: Path, args: str, name: str, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        accepted(tmp_path, "sleep", name, text=FILE.replace(ARGS, args))


@pytest.mark.parametrize(
    ("phrases", "after"),
    [('["네모 호흡"]', '["네모 호흡", "box breathing"]'), ("\n          - 네모 호흡 # 제목", None)],
)
def test_accept_phrase_adds_alternative(tmp_path: Path, phrases: str, after: str | None) -> None:
    origin, text = written(tmp_path, phrases=phrases)
    edit = accept_phrase("box breathing", 0, "Box  Breathing!", origin, text)
    added = changed(edit)[-1]
    assert added == (f"+        contains_any: {after}" if after else '+          - "box breathing"')
    assert "box breathing" in reread(edit)[0].turns[0].reply.contains_any


def test_accept_phrase_refuses_missing_or_accepted_phrase(tmp_path: Path) -> None:
    origin, text = written(tmp_path, phrases="[가, 나]")
    with pytest.raises(UsageError, match="does not contain 'box'"):
        accept_phrase("box", 0, "네모 호흡", origin, text)
    with pytest.raises(UsageError, match="is accepted already"):
        accept_phrase("나", 0, "가나다", origin, text)


async def failing(load: Load) -> tuple[Any, SampleRecord]:
    scenario = load(FILE.replace("QUERY", "호흡").replace("PHRASES", '["네모 호흡"]'))[0]
    model = ScriptedModel([call("search_catalog", query="숨", limit=3), say("네모 호흡")])
    return scenario, await run_sample(scenario, model, LifeHelperToolset())


async def test_observed_arguments_lists_wrong_arguments(load: Load) -> None:
    _, record = await failing(load)
    assert record.score.verdict is Verdict.FAIL
    arguments = {(each.name, each.value) for each in observed_arguments(record)}
    assert arguments == {("query", "숨"), ("limit", 3)}  # category was left out: nothing to accept


async def test_require_unchanged_refuses_changed_scenario(load: Load) -> None:
    scenario, _ = await failing(load)
    model = ScriptedModel([])
    run = await replay([scenario], model, toolset=LifeHelperToolset(), progress=False)
    require_unchanged(scenario, run.manifest)
    text = FILE.replace("QUERY", "숨").replace("PHRASES", '["네모 호흡"]')
    with pytest.raises(UsageError, match="a-ko-01 changed since the run"):
        require_unchanged(load(text)[0], run.manifest)
