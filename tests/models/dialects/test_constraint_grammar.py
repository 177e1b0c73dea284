"""The grammars as the server's own engine (xgrammar) reads them: what passes, what cannot."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lhkit import app
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import ToolSpec

pytestmark = pytest.mark.gemma

Accepts = Callable[[str, str], bool]
"""(constraint, response) to whether it may be written as a whole."""

DIALECT = DIALECTS["json"]
DEFINITIONS = {tool.name: tool for tool in app.registry_of("ko").definitions}
TAG = {"type": "string", "enum": ["아침", 'say "hi"', "a\\b"]}
RICH = {
    "name": "기록",
    "description": "",
    "parameters": {
        "type": "object",
        "properties": {
            "note": {"type": "string"},
            "count": {"type": "integer", "minimum": -12, "exclusiveMaximum": 345},
            "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 300},
            "is_done": {"type": "boolean"},
            "tags": {"type": "array", "items": TAG, "maxItems": 3},
            "place": {"$ref": "#/$defs/Place"},
            "until": {
                "anyOf": [{"type": "string", "pattern": "^[0-2]\\d:[0-5]\\d$"}, {"const": None}]
            },
            "nothing": {"type": ["null", "boolean"]},
        },
        "required": ["count", "place"],
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 5}},
                "required": ["name"],
            }
        },
    },
}
TOOLS: list[ToolSpec] = [*DEFINITIONS.values(), RICH]
PARAMETERS: dict[str, Any] = {
    **{name: tool.parameters for name, tool in DEFINITIONS.items()},
    "기록": RICH["parameters"],
}
OF_RICH = {
    "note": st.text(max_size=200),
    "count": st.integers(-12, 344),
    "weight": st.integers(1, 300) | st.sampled_from([0.1 + 0.2, 72.5, 300.0]),
    "is_done": st.booleans(),
    "tags": st.lists(st.sampled_from(TAG["enum"]), max_size=3),
    "place": st.fixed_dictionaries({"name": st.text(min_size=1, max_size=5)}),
    "until": st.none() | st.sampled_from(["07:30", "23:59"]),
    "nothing": st.none() | st.booleans(),
}
KOREAN = st.text("가나다 습관\n.,!?'`[]<>:}0123abc", max_size=60)
JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | KOREAN | st.lists(st.integers(), max_size=2)
)


@pytest.fixture(scope="session")
def accepts() -> Accepts:
    from xgrammar import Grammar  # noqa: PLC0415 - torch
    from xgrammar.testing import _is_grammar_accept_string  # noqa: PLC0415 - torch; theirs

    grammars = {
        constraint: Grammar.from_ebnf(fields["structured_outputs"]["grammar"])
        for constraint in ("auto", "required")
        if (fields := DIALECT.constrain(TOOLS, constraint))
    }
    return lambda constraint, text: bool(_is_grammar_accept_string(grammars[constraint], text))


def value_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if "pattern" in schema:
        return st.dates().map(str)
    return st.text(min_size=schema.get("minLength", 0), max_size=schema["maxLength"])


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a call with valid arguments, in the schema's order."""
    name = draw(st.sampled_from(sorted(PARAMETERS)))
    schema = PARAMETERS[name]
    args = {
        key: draw(OF_RICH[key] if name == "기록" else value_of(inner))
        for key, inner in schema["properties"].items()
        if key in schema.get("required", ()) or draw(st.booleans())
    }
    return name, args


def is_valid(name: str, args: dict[str, Any]) -> bool:
    declared = PARAMETERS[name]["properties"]
    return set(args) <= set(declared) and Draft202012Validator(PARAMETERS[name]).is_valid(args)


@pytest.mark.promise("dialect.constrained_auto", "dialect.constrained_required")
@settings(max_examples=300)
@given(call=calls(), words=KOREAN)
def test_every_valid_call_can_be_written(
    accepts: Accepts, call: tuple[str, dict[str, Any]], words: str
) -> None:
    assert is_valid(*call)
    raw = DIALECT.render_call(*call)
    assert accepts("required", raw)
    assert accepts("auto", raw)
    assert accepts("auto", words + raw)
    assert not accepts("required", raw + raw)
    assert not accepts("auto", raw + raw)


@pytest.mark.promise("dialect.constrained_auto", "dialect.constrained_required")
@settings(max_examples=300)
@given(call=calls(), data=st.data())
def test_no_invalid_call_can_be_written(
    accepts: Accepts, call: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    name, args = call
    keys = [*PARAMETERS[name]["properties"], "extra"]
    key = data.draw(st.sampled_from(keys))
    if key in args and data.draw(st.booleans()):
        del args[key]
    else:
        args[key] = data.draw(JUNK)
    args = {key: args[key] for key in keys if key in args}
    raw = DIALECT.render_call(name, args)
    for constraint in ("auto", "required"):
        assert not accepts(constraint, raw) or is_valid(name, args)


CALL = '{"name": "list_habits", "parameters": {"status":"all"}}'
SEARCH = '{{"name": "search_catalog", "parameters": {}}}'


@pytest.mark.promise("dialect.constrained_auto", "dialect.constrained_required")
@pytest.mark.parametrize(
    "raw",
    [
        *(CALL.replace(": ", ":"), CALL.replace(":", " :"), "{ " + CALL[1:], CALL[:-1] + " }"),
        *(CALL.replace('":"', '": "'), CALL.replace('"all"', '"all" '), CALL + "\n", CALL + " 네"),
        *(CALL[:-1], CALL + "}", f"[{CALL}]", CALL.replace("name", "tool"), CALL.replace('"', "'")),
        CALL.replace("list_habits", "delete_all"),
        CALL.replace("all", "every"),
        CALL.replace('"status"', '"who"'),
        CALL.replace('{"status":"all"}', '{"status":"all","status":"all"}'),
        CALL.replace('{"status":"all"}', '"{}"'),
        SEARCH.format('{"limit":10000000}'),
        SEARCH.format('{"limit":11}'),
        SEARCH.format('{"limit":0}'),
        SEARCH.format('{"limit":05}'),
        SEARCH.format('{"limit":5,"query":"물"}'),
        SEARCH.format('{"query":"' + "가" * 51 + '"}'),
        SEARCH.format('{"query":"' + "\\uac00" + '"}'),
        SEARCH.format('{"query":"\n"}'),
        SEARCH.format('{,"limit":5}'),
        SEARCH.format('{"limit":5,}'),
    ],
)
def test_no_call_can_be_spelled_around_the_grammar(accepts: Accepts, raw: str) -> None:
    assert not accepts("required", raw)
    assert not accepts("auto", raw)
    assert not accepts("auto", f"네!\n{raw}")


@pytest.mark.promise("dialect.constrained_auto")
@given(words=KOREAN)
def test_words_are_free_in_auto_and_impossible_in_required(accepts: Accepts, words: str) -> None:
    assert accepts("auto", words)
    assert not accepts("required", words)


def test_lengths_that_the_schema_leaves_open_are_closed(accepts: Accepts) -> None:
    args = {"note": "가" * 200, "count": 1, "place": {"name": "집"}}
    assert accepts("required", DIALECT.render_call("기록", args))
    assert not accepts("required", DIALECT.render_call("기록", {**args, "note": "가" * 201}))


def test_arguments_are_written_as_render_call_writes_them(accepts: Accepts) -> None:
    args = {"count": 1, "tags": ["아침", "a\\b"], "place": {"name": '\x01"\t'}}
    raw = DIALECT.render_call("기록", args)
    assert accepts("required", raw)
    loose = json.dumps({"name": "기록", "parameters": args}, ensure_ascii=False)
    assert not accepts("required", loose)
