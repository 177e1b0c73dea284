"""The `functiongemma` dialect: types kept, cut calls not made, nothing guessed."""

from typing import Any

import pytest

from lhkit.conversation.messages import ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.models.client.served import require_constraint
from lhkit.models.dialects import DIALECTS
from tests.rows import check_rows

DIALECT = DIALECTS["functiongemma"]
E = "<escape>"


def marked(body: str) -> str:
    return f"<start_function_call>{body}<end_function_call>"


def only_call(raw: str) -> tuple[str, Any, tuple[str, ...]]:
    [call] = DIALECT.parse(raw).calls
    assert call.raw == raw
    return call.name, call.args, call.repairs


def test_parse_allows_spaces_around_keys_and_values() -> None:
    raw = marked(f"call:f{{ a : {E}x{E} , b : -1.5 }}")
    assert only_call(raw) == ("f", {"a": "x", "b": -1.5}, ())


@pytest.mark.parametrize("name", ["log-water", "habits.list", "물기록"])
def test_parse_takes_any_tool_name(name: str) -> None:
    assert only_call(marked(f"call:{name}{{a:1}}"))[0] == name


def test_generation_stops_at_a_response_token() -> None:
    assert DIALECT.stop_texts == ("<start_function_response>",)


@check_rows(
    ("body", "args", "repairs"),
    [
        ("call:f{a:sunny day}", {"a": "sunny day"}, ("bare_string",)),
        ("call:f{a:010,b:2026-11-22}", {"a": "010", "b": "2026-11-22"}, ("bare_string",)),
        ("call:f{a:True,b:None}", {"a": True, "b": None}, ("python_literal",)),
        ("call:f{a:1,}", {"a": 1}, ("trailing_comma",)),
        ("call:f{a:[1,]}", {"a": [1]}, ("trailing_comma",)),
        ("call:f{a:0,a:1}", {"a": 1}, ("duplicate_key",)),
        ("f{a:1}", {"a": 1}, ("no_call_prefix",)),
        (":f{a:1}", {"a": 1}, ("no_call_prefix",)),
        ("call:f", {}, ("no_arguments",)),
        (r'call:f{a:"\빠"}', {"a": r"\빠"}, ("bad_escape",)),
        ('call:f{a:"x\ny"}', {"a": "x\ny"}, ("control_character",)),
        ("call:f{a:'x'}", {"a": "x"}, ("single_quoted",)),
        ("call:f{a:['ds_1','ds_2']}", {"a": ["ds_1", "ds_2"]}, ("single_quoted",)),
        ("call:f{a:[ 'red, dark' , 'blue' ]}", {"a": ["red, dark", "blue"]}, ("single_quoted",)),
        ("call:f{o:{'a':'{x}','b':''}}", {"o": {"a": "{x}", "b": ""}}, ("single_quoted",)),
        ("call:f{a:'it's the dogs' bowl'}", {"a": "it's the dogs' bowl"}, ("single_quoted",)),
        (r"call:f{a:'it\'s'}", {"a": "it's"}, ("single_quoted",)),
        ("call:f{a:don't}", {"a": "don't"}, ("bare_string",)),
        ("call:f{a:rock 'n' roll,b:dogs'}", {"a": "rock 'n' roll", "b": "dogs'"}, ("bare_string",)),
        ("call:f{a:'tis the season}", {"a": "'tis the season"}, ("bare_string",)),
    ],
)
def test_parse_lists_repairs(body: str, args: Any, repairs: tuple[str, ...]) -> None:
    assert only_call(marked(body)) == ("f", args, repairs)


@check_rows(
    "body",
    [
        "call:f{a}",
        "call:f{a:}",
        "call:f{a:1",
        "call:f{a:1}}",
        "call:f{a:[1}",
        "call:f{a:1e999}",
        "call:f{,}",
        "call:f(a=1)",
        'call:f(a="x")',
        "call:f={a:1}",
        "call:f{a:['x, 'y']}",
        "call:f{a:'x, b:'y'}",
        "call:f{a:" + "9" * 5000 + "}",
        "call:f{a:" + "[" * 200 + "]" * 200 + "}",
    ],
)
def test_parse_keeps_the_raw_text_of_a_malformed_call(body: str) -> None:
    raw = marked(body)
    assert only_call(raw) == ("f", raw, ("malformed",))


def test_parse_takes_an_empty_call_as_malformed() -> None:
    assert only_call(marked("{}")) == ("{}", marked("{}"), ("malformed",))


def test_render_call_quotes_a_delimiter_as_json() -> None:
    raw = DIALECT.render_call("f", {"a": 'x<escape>"y', "<escape>": 1})
    assert raw == marked(r'call:f{"\u003cescape>":1,a:"x\u003cescape>\"y"}')
    assert only_call(raw) == ("f", {"a": 'x<escape>"y', "<escape>": 1}, ())


def test_encode_escapes_a_result_in_the_model_turn() -> None:
    result = ToolOk({"note": "<end_function_response><end_of_turn>"})
    message = ToolCallMessage.of(name="f", args={}, result=result)
    prompt = DIALECT.encode([UserMessage(text="?"), message], ())
    assert prompt.endswith(
        marked("call:f{}") + "<start_function_response>response:f{note:"
        r'"\u003cend_function_response>\u003cend_of_turn>"}<end_function_response>'
    )


def test_encode_escapes_a_truncated_call() -> None:
    raw = "<start_function_call>call:f{a:<escape>x"
    message = ToolCallMessage.of(
        name="", args={}, raw=raw, result=ToolErr("truncated_call", "short")
    )
    prompt = DIALECT.encode([UserMessage(text="?"), message, UserMessage(text="!")], ())
    assert prompt.endswith(
        "model\n< start_function_call>call:f{a:< escape>x<start_function_response>"
        f"response:unknown{{error:{E}truncated_call: short{E}}}"
        "<end_function_response><end_of_turn>\n<start_of_turn>user\n!<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_encode_without_tools_has_no_preamble() -> None:
    prompt = DIALECT.encode([UserMessage(text="?")], (), "너는 비서다.")
    assert prompt.startswith("<bos><start_of_turn>developer\n너는 비서다.<end_of_turn>\n")


def test_encode_keeps_nested_types_and_default_values() -> None:
    items = {"type": ["string", "null"], "enum": ["type", "string"], "default": {"type": "x"}}
    parameters = {"type": "object", "properties": {"a": {"type": "array", "items": items}}}
    prompt = DIALECT.encode([], [{"name": "f", "description": "", "parameters": parameters}])
    assert (
        f"parameters:{{properties:{{a:{{description:{E}{E},items:{{default:{{{E}type{E}:{E}x{E}}},"
        f"enum:[{E}type{E},{E}string{E}],type:[{E}STRING{E},{E}NULL{E}]}},type:{E}ARRAY{E}}}}},"
        f"type:{E}OBJECT{E}}}"
    ) in prompt


SENTENCE = "You are a model that can do function calling with the following functions"
TOOL = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}


@check_rows(
    ("instructions", "text"),
    [
        ("", SENTENCE),
        ("Be brief.", f"Be brief.\n{SENTENCE}"),
        (SENTENCE, SENTENCE),
        (f"Today is Friday.\n{SENTENCE}\n", f"Today is Friday.\n{SENTENCE}"),
        (f"{SENTENCE}: use them.", f"{SENTENCE}: use them."),
        (SENTENCE.upper(), SENTENCE.upper()),
        (SENTENCE.replace(" can ", "\ncan "), SENTENCE.replace(" can ", "\ncan ")),
        ("너는 비서다.", f"너는 비서다.\n{SENTENCE}"),
    ],
)
def test_encode_ends_the_developer_text_with_the_sentence(instructions: str, text: str) -> None:
    prompt = DIALECT.encode([UserMessage(text="?")], [TOOL], instructions)
    assert prompt.startswith(f"<bos><start_of_turn>developer\n{text}<start_function_declaration>")
    assert prompt.lower().count("function calling") == 1


def test_encode_leaves_out_parameters_that_are_called_like_a_keyword() -> None:
    properties = {name: {"type": "string"} for name in ("type", "description", "kind")}
    tool = {**TOOL, "parameters": {"type": "object", "properties": properties}}
    assert "parameters:{properties:{kind:{" in DIALECT.encode([], [tool])


def test_run_names_the_parameters_that_the_template_leaves_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {name: {"type": "string"} for name in ("type", "required", "kind")}
    tool = {**TOOL, "parameters": {"type": "object", "properties": properties}}
    for dialect in DIALECTS:
        require_constraint(dialect, "off", [tool, {**TOOL, "name": "g"}, {"name": "h"}])
    [line] = caplog.messages
    assert line == "f: the template of functiongemma does not declare required, type: rename them"
