"""The grammars as the server's own engine (llguidance) reads them: what passes, what cannot."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lhkit.base.json_values import compact
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.decoding import Constraint
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import ToolSpec

pytestmark = pytest.mark.slow

Accepts = Callable[[str, str], bool]
"""(constraint, response) to whether it may be written as a whole."""

DIALECT = DIALECTS["json"]
DEFINITIONS = {tool.name: tool for tool in life_helper.registry_of("ko").definitions}
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
WRITABLE = st.characters(codec="utf-8", exclude_characters="\x7f")
"""The engine lets no JSON string hold the one control character that JSON does not escape."""
OF_RICH = {
    "note": st.text(WRITABLE, max_size=200),
    "count": st.integers(-12, 344),
    "weight": st.integers(1, 300) | st.sampled_from([0.3, 72.5, 300.0, 1.123456789]),
    "is_done": st.booleans(),
    "tags": st.lists(st.sampled_from(TAG["enum"]), max_size=3),
    "place": st.fixed_dictionaries({"name": st.text(WRITABLE, min_size=1, max_size=5)}),
    "until": st.none() | st.sampled_from(["07:30", "23:59"]),
    "nothing": st.none() | st.booleans(),
}
KOREAN = st.text("가나다 습관\n.,!?'`[]<>:}0123abc", max_size=60)
JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | KOREAN | st.lists(st.integers(), max_size=2)
)


SPECIAL = (b"<eos>", b"<start_of_turn>", b"<end_of_turn>")
EOS = 0


class Letters:
    """A tokenizer of single bytes, and of a Gemma's control tokens before them."""

    eos_token_id, bos_token_id = EOS, None
    special_token_ids = range(len(SPECIAL))
    tokens = (*SPECIAL, *(bytes([each]) for each in range(256)))

    def __call__(self, text: bytes) -> list[int]:
        return [len(SPECIAL) + each for each in text]


class Grammar:
    """A grammar as the server's engine reads it."""

    def __init__(self, tokenizer: Any, fields: Mapping[str, Any]) -> None:
        from llguidance import LLMatcher, grammar_from

        self._grammar = grammar_from("grammar", fields["structured_outputs"]["grammar"])
        assert not LLMatcher.validate_grammar(self._grammar)  # as vLLM asks, without a tokenizer
        self._start = LLMatcher(tokenizer, self._grammar, log_level=0)

    def may_end_after(self, text: str) -> set[bytes]:
        """Return the control tokens that may end it; none if it cannot be written as a whole."""
        matcher = self._start.deep_copy()
        ids = Letters()(text.encode())
        if matcher.try_consume_tokens(ids) < len(ids) or not matcher.is_accepting():
            return set()
        bias = matcher.compute_logit_bias()
        return {name for each, name in enumerate(SPECIAL) if bias[each]}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(Letters()))


@pytest.fixture(scope="session")
def grammars(tokenizer: Any) -> dict[str, Grammar]:
    kinds: tuple[Constraint, ...] = ("auto", "required")
    return {each: Grammar(tokenizer, DIALECT.constrain(TOOLS, each)) for each in kinds}


@pytest.fixture(scope="session")
def accepts(grammars: dict[str, Grammar]) -> Accepts:
    return lambda constraint, text: bool(grammars[constraint].may_end_after(text))


def value_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if "pattern" in schema:
        return st.dates().map(str)
    return st.text(WRITABLE, min_size=schema.get("minLength", 0), max_size=schema["maxLength"])


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


@given(call=calls(), words=KOREAN)
def test_grammar_accepts_every_valid_call(
    accepts: Accepts, call: tuple[str, dict[str, Any]], words: str
) -> None:
    assert is_valid(*call)
    raw = DIALECT.render_call(*call)
    assert accepts("required", raw)
    assert accepts("auto", raw)
    assert accepts("auto", words + raw)
    assert not accepts("required", raw + raw)
    assert not accepts("auto", raw + raw)


@given(call=calls(), data=st.data())
def test_grammar_refuses_invalid_calls(
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


def test_grammar_accepts_the_end_of_turn(grammars: dict[str, Grammar]) -> None:
    assert grammars["auto"].may_end_after("네, 그럴게요") == set(SPECIAL)
    assert grammars["auto"].may_end_after(CALL) == set(SPECIAL)
    assert grammars["required"].may_end_after(CALL) == set(SPECIAL)
    assert not grammars["required"].may_end_after(CALL[:-1])


@pytest.mark.nightly  # imports xgrammar; by day `tests/e2e/test_constraint.py` asks vLLM
def test_vllm_selects_guidance_for_the_grammar() -> None:
    from xgrammar import Grammar as Other

    text = DIALECT.constrain(TOOLS, "auto")["structured_outputs"]["grammar"]
    with pytest.raises(RuntimeError, match="<start_of_turn> requires tokenizer_info"):
        Other.from_lark(text)  # so vLLM, which asks it first, goes on to llguidance


CALL = '{"name": "list_habits", "parameters": {"status":"all"}}'
SEARCH = '{{"name": "search_catalog", "parameters": {}}}'


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
def test_grammar_refuses_other_spellings_of_a_call(accepts: Accepts, raw: str) -> None:
    assert not accepts("required", raw)
    assert not accepts("auto", raw)
    assert not accepts("auto", f"네!\n{raw}")


@given(words=KOREAN)
def test_grammar_allows_text_in_auto_but_not_in_required(accepts: Accepts, words: str) -> None:
    assert accepts("auto", words)
    assert not accepts("required", words)


def taken(tokenizer: Any, schema: Mapping[str, Any], *values: str) -> list[str]:
    """Return which JSON texts may stand for an argument of this schema."""
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    fields = DIALECT.constrain([{"name": "f", "parameters": parameters}], "required")
    grammar = Grammar(tokenizer, fields)
    call = '{{"name": "f", "parameters": {{"a":{}}}}}'
    return [value for value in values if grammar.may_end_after(call.format(value))]


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"type": "string"}, ['"' + "가" * 200 + '"'], ['"' + "가" * 201 + '"']),
        ({"type": "string", "maxLength": 9000}, ['"' + "a" * 2000 + '"'], ['"' + "a" * 2001 + '"']),
        ({"type": "array", "items": {"const": 1}}, [f"[{'1,' * 15}1]"], [f"[{'1,' * 16}1]"]),
        ({"type": "integer"}, ["-999999999", "999999999"], ["1000000000", "-1000000000"]),
        ({"type": "integer", "minimum": 10}, ["10", "1000000009"], ["9", "1000000010"]),
        ({"type": "integer", "maximum": -1}, ["-1", "-1000000000"], ["0", "-1000000001"]),
        (
            {"type": "number"},
            ["-73.98", "0", "1.5", "-0.5"],
            ["1e9", "1000000000", f"1.{'3' * 10}"],
        ),
        ({"type": "number", "exclusiveMaximum": 0}, ["-1", "-0.5"], ["0", "1", "-0", "-0.0"]),
        ({"type": "number", "maximum": 0}, ["0", "-0.5"], ["1", "0.5"]),
        ({"type": "number", "maximum": -1}, ["-1", "-1.25"], ["0", "1", "-0.5"]),
        (
            {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 1},
            ["-0.999", "0", "0.0", "0.5"],
            ["-1", "1", "-1.0", "1.5"],
        ),
        (
            {"type": "number", "minimum": 0},
            ["0.333333333", "3.0"],
            ["0.3333333333", "1.0000000000"],
        ),
        ({"type": "number", "minimum": 0.5, "maximum": 2}, ["0.5", "2.0"], ["0.49", "2.1"]),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": 0, "exclusiveMaximum": 12},
            ["1", "11"],
            ["0", "12", "01", "-1", "1.0"],
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ["0.1", "0.999"],
            ["0", "0.0", "1", "1.0", ".5"],
        ),
        ({"type": ["null", "string"], "maxLength": 1}, ["null", '"a"'], ['"ab"', "0"]),
        ({"enum": ["a", 1, None], "type": ["string", "null"]}, ['"a"', "null"], ["1", '"b"']),
    ],
)
def test_grammar_limits_values(
    tokenizer: Any, schema: dict[str, Any], yes: list[str], no: list[str]
) -> None:
    assert taken(tokenizer, schema, *yes, *no) == yes


@given(st.integers(-5000, 5000), st.integers(0, 3000), st.integers(-9999, 9999))
@settings(max_examples=30)
def test_grammar_of_an_integer_range_is_exact(
    tokenizer: Any, low: int, width: int, number: int
) -> None:
    schema = {"type": "integer", "minimum": low, "maximum": low + width}
    asked = {number, low - 1, low, low + width, low + width + 1}
    inside = {each for each in asked if low <= each <= low + width}
    assert set(taken(tokenizer, schema, *map(str, asked))) == set(map(str, inside))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", ["2026-06-15"], ["2026-6-15", "2026-06-15 ", "２０２６-06-15"]),
        (r"^(?:am|pm)?\w+$", ["am7", "x", "pm_9"], ["", "am 7"]),
        (r"^[가-힣]{1,3}\.?$", ["물", "물마심."], ["water", "물마시기다"]),
        (r"^[^a-c\]]{2,}$", ["de", "한글", 'd"'], ["da", "d", "d]"]),
        (r"^(a|bc(d|e)){0,2}-?$", ["", "abcd-", "aa"], ["aaa", "bc"]),
        (r"^[-+]$", ["-", "+"], [","]),
        ("a", ["a", "bab"], ["b", ""]),
        ("^a|b$", ["ab", "a가", "가b"], ["ba", "가"]),
        (r"^a*$", ["", "a" * 200], ["a" * 201]),
    ],
)
def test_grammar_keeps_patterns(
    tokenizer: Any, pattern: str, yes: list[str], no: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert all(Draft202012Validator(schema).is_valid(text) for text in yes)
    assert taken(tokenizer, schema, *map(compact, [*yes, *no])) == [*map(compact, yes)]


def test_grammar_agrees_with_render_call(accepts: Accepts) -> None:
    args: dict[str, Any] = {"count": 1, "tags": ["아침", "a\\b"], "place": {"name": '\x01"\t'}}
    raw = DIALECT.render_call("기록", args)
    assert accepts("required", raw)
    loose = json.dumps({"name": "기록", "parameters": args}, ensure_ascii=False)
    assert not accepts("required", loose)
