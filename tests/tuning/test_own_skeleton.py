"""The phrase file to fill in: what the schemas give stands there, the rest is a TODO."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.errors import TuningError
from lhkit.harness.scenario import read_yaml
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import TODO, lines_to_quote, read_phrases, todo_count
from lhkit.tuning.phrases.generate import skeleton
from lhkit.tuning.phrases.values import expected_of, given_values, schema_fault


def written(registry: ToolRegistry, reader: str = "en") -> str:
    return skeleton(
        {"ko": registry, "en": registry}, world={}, reference="tools.py:Mine", reader=reader
    )


def tools_in(text: str, locale: str = "en") -> dict[str, Any]:
    document = read_yaml(text)
    assert document.faults == ()
    tools: dict[str, Any] = document.value["locales"][locale]["tools"]
    return tools


def one_tool(**properties: Any) -> ToolRegistry:
    parameters = object_schema(*list(properties)[:1], **properties)
    return ToolRegistry([echo_tool("act", parameters=parameters, is_destructive=True)])


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"enum": ["home", "work"]}, ["home", "work"]),
        ({"const": "only"}, ["only"]),
        ({"type": "boolean"}, [True, False]),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 2, 3]),
        ({"type": "integer", "minimum": 0, "maximum": 100}, [0, 25, 50, 75, 100]),
        ({"type": "integer", "minimum": 0, "maximum": 60, "multipleOf": 15}, [0, 15, 30, 45, 60]),
        ({"type": "integer", "exclusiveMinimum": 4}, [5, 7, 9, 12, 14]),
        ({"type": "string", "examples": ["tea", "eggs"]}, ["tea", "eggs"]),
        ({"type": "string", "default": "tea"}, ["tea"]),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, ["a", "b"]),
        ({"type": "integer", "minimum": 1, "examples": ["no number"]}, [1, 3, 5, 8, 10]),
        ({"enum": [["a"], ["b"]]}, [{"say": TODO, "value": ["a"]}, {"say": TODO, "value": ["b"]}]),
        (
            {"type": "string", "format": "date"},
            [
                {"say": "today", "date": "today"},
                {"say": "tomorrow", "date": "today+1d"},
                {"say": "yesterday", "date": "today-1d"},
            ],
        ),
        ({"type": "string"}, [TODO]),
        ({"type": "number"}, [TODO]),
        ({"type": "object"}, [TODO]),
    ],
)
def test_an_argument_has_the_values_of_its_schema_or_a_todo(
    schema: dict[str, Any], values: list[Any]
) -> None:
    tool = tools_in(written(one_tool(thing=schema)))["act"]
    assert tool["values"]["thing"] == values


def reader(name: str, *required: str, **properties: Any) -> Any:
    return echo_tool(name, parameters=object_schema(*required, **properties))


EXTRAS = {"type": "array", "items": {"enum": ["helmet", "lock"]}, "maxItems": 4, "default": []}


@pytest.mark.parametrize(
    ("schema", "entries"),
    [
        (EXTRAS, [{"say": "helmet", "value": ["helmet"]}, {"say": "lock", "value": ["lock"]}]),
        ({"type": "array", "items": {"enum": [1]}, "minItems": 2}, [TODO]),
        ({"type": "array", "items": {"type": "string"}}, [TODO]),
    ],
)
def test_a_list_offers_each_choice_of_its_items(schema: dict[str, Any], entries: list[Any]) -> None:
    assert tools_in(written(one_tool(thing=schema)))["act"]["values"]["thing"] == entries


@pytest.mark.parametrize(
    ("schema", "entries"),
    [
        ({"enum": ["bike", "도구", 3]}, [{"say": TODO, "value": "bike"}, "도구", 3]),
        (EXTRAS, [{"say": TODO, "value": ["helmet"]}, {"say": TODO, "value": ["lock"]}]),
        ({"type": "boolean"}, [True, False]),
        ({"type": "string", "examples": ["tea"]}, ["tea"]),
    ],
)
def test_a_choice_in_the_korean_part_asks_how_it_is_said(
    schema: dict[str, Any], entries: list[Any]
) -> None:
    assert tools_in(written(one_tool(thing=schema)), "ko")["act"]["values"]["thing"] == entries


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "minimum": 0}, "integer from 0"),
        ({"type": "integer", "maximum": 9}, "integer up to 9"),
        ({"type": "integer", "minimum": 1, "maximum": 6}, "integer 1..6"),
        (EXTRAS, 'array of ..4 items, each one of "helmet", "lock"'),
    ],
)
def test_a_comment_says_what_an_argument_accepts(schema: dict[str, Any], told: str) -> None:
    lines = written(one_tool(thing=schema)).splitlines()
    assert f"          # thing (required): {told}" in lines


def test_a_list_of_such_lists_is_told_in_a_few_words() -> None:
    tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    parameters = {**object_schema(tree={"$ref": "#/$defs/tree"}), "$defs": {"tree": tree}}
    assert expected_of(parameters, "tree") == "array, each array"


@pytest.mark.parametrize(("schema", "hints"), [({"format": "date"}, 1), ({"type": "string"}, 0)])
def test_a_look_up_over_days_says_which_days_a_model_can_copy(
    schema: dict[str, Any], hints: int
) -> None:
    act = echo_tool("act", parameters=object_schema("note_id", note_id=TEXT), is_destructive=True)
    text = written(ToolRegistry([act, reader("list_notes", "day", day=schema)]))
    assert text.count("A model copies days") == hints
    assert text.count("모델은 날짜를 계산하지 않고") == hints


def test_as_many_todos_are_counted_as_are_then_missed(tmp_path: Path) -> None:
    act = echo_tool("act", parameters=object_schema("note_id", note_id=TEXT), is_destructive=True)
    days = {"a": {"format": "date"}, "b": {"format": "date"}}
    text = written(ToolRegistry([act, reader("list_notes", "a", "b", **days)]))
    file = tmp_path / "p.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(
        TuningError, match=rf"a TODO is left \({todo_count(text) - 1} more after it\)"
    ):
        read_phrases(file)
    assert todo_count(text) > sum(
        TODO in line for line in text.splitlines() if not line.lstrip().startswith("#")
    )


TEXT = {"type": "string"}
FIND = reader("find_note", "query", query=TEXT, tag={"enum": ["a"]})
LISTED = {"say": [TODO], "tool": "list_tags", "take": "TODO.id", "where": {TODO: "{say}"}}
FOUND = {"say": [TODO], "tool": "find_note", "args": {"query": "{say}"}, "take": "TODO.id"}


@pytest.mark.parametrize(
    ("readers", "argument", "schema", "entry"),
    [
        ([reader("list_tags"), FIND], "note_id", TEXT, FOUND),
        ([reader("list_tags"), FIND], "noteId", TEXT, FOUND),
        ([FIND, reader("list_tags")], "tag_id", {"type": "integer"}, LISTED),
        ([FIND, reader("list_tags")], "id", {**TEXT, "description": "of list_tags"}, LISTED),
        ([reader("open_note", "note_id", note_id=TEXT), FIND], "note_id", TEXT, FOUND),
        ([], "note_id", TEXT, TODO),
        ([FIND], "note_id", {"enum": ["n1"]}, "n1"),
        ([FIND], "paid", TEXT, TODO),
    ],
)
def test_an_argument_that_looks_like_an_id_is_looked_up_with_a_tool_that_reads(
    readers: list[Any], argument: str, schema: dict[str, Any], entry: Any
) -> None:
    parameters = object_schema(argument, **{argument: schema})
    act = echo_tool("act", parameters=parameters, is_destructive=True)
    text = written(ToolRegistry([*readers, act]))
    assert tools_in(text)["act"]["values"][argument] == [entry]


def test_the_look_up_of_a_skeleton_fits_the_tools_when_its_todos_are_filled_in(
    tmp_path: Path,
) -> None:
    act = echo_tool("act", parameters=object_schema("note_id", note_id=TEXT), is_destructive=True)
    registry = ToolRegistry([FIND, act, reader("list_tags")])
    file = tmp_path / "p.yaml"
    file.write_text(written(registry).replace(TODO, "words"), encoding="utf-8")
    check_fit(read_phrases(file), {"ko": registry, "en": registry})


def test_a_todo_that_is_a_name_of_a_field_is_told(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    text = "locales: {en: {tools: {act: {values: {a: [{where: {TODO: x}}]}}}}}"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TuningError, match=r"values\.a\[0\]\.where\.TODO: a TODO is left: write"):
        read_phrases(file)


def test_sentences_have_the_slots_of_required_arguments_and_of_each_optional_one() -> None:
    registry = one_tool(thing={"type": "string"}, tag={"enum": ["a"]}, size={"type": "integer"})
    tool = tools_in(written(registry))["act"]
    assert tool["say"] == ["TODO {thing}", "TODO {thing} {tag}", "TODO {thing} {size}"]
    assert set(tool["replies"]) == {"ok", "cancelled", "refused", "not_found"}


@pytest.mark.parametrize(("reader", "words"), [("ko", "할 일:"), ("en", "To do:")])
def test_comments_are_in_the_readers_language_and_phrases_in_the_models(
    reader: str, words: str
) -> None:
    text = written(one_tool(thing={"type": "string"}), reader)
    assert words in text
    assert read_yaml(text).value["locales"]["ko"]["small_talk"][0]["say"][0] == "안녕"
    assert read_yaml(text).value["locales"]["en"]["small_talk"][0]["say"][0] == "Hi"


def test_the_comments_of_a_part_are_in_its_own_language_and_complete_in_each() -> None:
    for reader in ("ko", "en"):
        korean, english = written(one_tool(thing=TEXT), reader).split("\n  en:\n")
        assert "함께 다니는 값" in korean
        assert not re.search("[가-힣]", english)
        for field in ("slots", "follow_ups", "near_misses", "failing"):
            assert f"# {field}:" in korean
            assert f"# {field}:" in english


def test_a_skeleton_is_read_by_other_yaml_readers_too(tmp_path: Path) -> None:
    text = written(one_tool(thing={"enum": ["why?", "{a}: b"]}, day={"format": "date"}))
    assert yaml.load(text, yaml.SafeLoader) == yaml.load(text, yaml.CSafeLoader)
    file = tmp_path / "p.yaml"
    file.write_text(text, encoding="utf-8")
    assert lines_to_quote(file) == ()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: [why?, b]\nb: why?\nc: [x, {d: [e], f: g?}]\n", (1, 3)),
        ("a: ['why?', \"b?\"]\nc: [d]\n", ()),
    ],
)
def test_a_line_that_other_yaml_readers_refuse_is_found(
    tmp_path: Path, text: str, lines: tuple[int, ...]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text, encoding="utf-8")
    assert lines_to_quote(file) == lines
    for line in text.splitlines():
        refused = text.splitlines().index(line) + 1 in lines
        try:
            yaml.load(line, yaml.SafeLoader)
        except yaml.YAMLError:
            assert refused
        else:
            assert not refused


def test_a_skeleton_with_its_todos_filled_in_fits_the_tools(tmp_path: Path) -> None:
    registry = one_tool(thing={"type": "string"}, tag={"enum": ["a", "b"]}, day={"format": "date"})
    file = tmp_path / "p.yaml"
    file.write_text(written(registry), encoding="utf-8")
    with pytest.raises(TuningError, match="a TODO is left"):
        read_phrases(file)
    file.write_text(written(registry).replace(TODO, "words"), encoding="utf-8")
    check_fit(read_phrases(file), {"ko": registry, "en": registry})


NAMES = st.text(min_size=1, max_size=12).filter(lambda text: not text.startswith(TODO))


@settings(max_examples=30)
@given(name=NAMES, description=st.text(min_size=1).filter(str.strip), choice=NAMES)
def test_whatever_a_tool_says_of_itself_the_skeleton_is_yaml(
    name: str, description: str, choice: str
) -> None:
    schema = object_schema(**{name: {"enum": [choice], "description": description}})
    tool = echo_tool("act", parameters=schema)
    registry = ToolRegistry([tool])
    assert tools_in(written(registry))["act"]["values"] == {name: [choice]}


@settings(max_examples=50)
@given(low=st.integers(-50, 50), width=st.integers(0, 90), step=st.sampled_from([1, 2, 5, 7]))
def test_numbers_of_a_range_fit_the_schema(low: int, width: int, step: int) -> None:
    number = {"type": "integer", "minimum": low, "maximum": low + width, "multipleOf": step}
    parameters = object_schema(n=number)
    values = given_values(parameters, "n")
    assert all(schema_fault(parameters, "n", value) is None for value in values)
    possible = [n for n in range(low, low + width + 1) if n % step == 0]
    assert len(values) == min(5, len(possible))
