"""Strings in the quotation marks of other languages: read, or malformed, never cut at a comma."""

from typing import Any

import pytest

from lhkit.models.dialects import DIALECTS
from tests.rows import check_rows

MARKS = {
    "functiongemma": ("<start_function_call>", "<end_function_call>"),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
}
QUOTES = [
    *("‘’", "“”", "„“", "‚‘", "``", "´´", "«»", "»«", "‹›", "「」", "『』", "《》", "〈〉", "｢｣"),
    *("＂＂", "＇＇", "〝〟", "❝❞", "””", "’’", "‘'", "`'", "‘‘"),
]
each_dialect = pytest.mark.parametrize("name", MARKS)


def parse(name: str, body: str) -> tuple[Any, tuple[str, ...]]:
    start, end = MARKS[name]
    raw = f"{start}call:f{body}{end}"
    [call] = DIALECTS[name].parse(raw).calls
    assert call.raw == raw
    return (None if call.args == raw else call.args), call.repairs


@each_dialect
@check_rows("quotes", QUOTES)
@check_rows("space", ["", " "])
def test_parse_reads_other_quotes(name: str, quotes: str, space: str) -> None:
    a, b = quotes
    body = f"{{tags:[{a}빵, 우유{b},{space}{a}c{b}{space}],{a}키 1{b}:{a}x: [1]{b},n:1}}"
    args, repairs = parse(name, body)
    assert args == {"tags": ["빵, 우유", "c"], "키 1": "x: [1]", "n": 1}
    assert repairs == ("other_quotes",)


@each_dialect
@check_rows(
    ("body", "value"),
    [
        ("{a:‘Kim’s bag, blue’}", "Kim’s bag, blue"),
        ("{a:“say ‘hi’, Bo”}", "say ‘hi’, Bo"),
        ("{a:«l’eau, l’air»}", "l’eau, l’air"),
        ("{a:「그는 『예』라고, 했다」}", "그는 『예』라고, 했다"),
        ("{a:Kim’s}", "Kim’s"),
        ("{a:Kim's}", "Kim's"),
        ("{a:’tis the season}", "’tis the season"),
        ("{a:the ’90s}", "the ’90s"),
        ("{a:the '90s}", "the '90s"),
        ("{a:dogs’ bowl}", "dogs’ bowl"),
        ("{a:rock ’n’ roll}", "rock ’n’ roll"),
        ("{a:he said “x” twice}", "he said “x” twice"),
        ("{a:책 「데미안」 읽기}", "책 「데미안」 읽기"),
        ("{a:`ls -l`}", "ls -l"),
        ("{a:5′ 10″}", "5′ 10″"),
        ("{a:6” pipe}", "6” pipe"),
        ("{a:it`s}", "it`s"),
        ("{a:Kim‘s}", "Kim‘s"),
        ("{a:the ‘90s}", "the ‘90s"),
        ("{a:er sagte „ja“}", "er sagte „ja“"),
        ("{a:“”}", ""),
    ],
)
def test_parse_keeps_apostrophes_and_inner_quotes(name: str, body: str, value: str) -> None:
    assert parse(name, body)[0] == {"a": value}


@each_dialect
@check_rows(
    "body",
    [
        "{tags:[‘a, b,‘c’]}",
        "{tags:[“a, b,c]}",
        "{tags:[「a, b]}",
        "{tags:[`a, b]}",
        "{tags:[he said “a, b”, c]}",
        "{tags:[그는 「a, b」 라고]}",
        "{tags:[call ‘a, b’]}",
        "{tags:[call 'a, b']}",
        "{tags:[run `a, b`]}",
        "{tags:[run `a, b` now]}",
        "{tags:[run 'a, b' now]}",
        "{tags:[그는“a, b”라고]}",
        "{tags:[er sagte „a, b“, c]}",
        "{tags:[le «a, b»]}",
        "{a:‘x, b:‘y’}",
        "{a:“x}",
    ],
)
def test_parse_takes_open_quotes_as_malformed(name: str, body: str) -> None:
    assert parse(name, body) == (None, ("malformed",))


@each_dialect
@check_rows(
    ("body", "args", "repairs"),
    [
        (" null", {}, ("string_parameters", "empty_arguments")),
        (' "{\\"a\\": 1}"', {"a": 1}, ("string_parameters",)),
        (' "hello"', None, ("malformed",)),
        (" [1]", None, ("malformed",)),
    ],
)
def test_parse_reads_arguments_that_are_no_object(
    name: str, body: str, args: Any, repairs: tuple[str, ...]
) -> None:
    assert parse(name, body) == (args, repairs)


@each_dialect
@check_rows(
    ("body", "args"),
    [
        ('{"name": "f", "parameters": {"a": [1, "x, y"]}}', {"a": [1, "x, y"]}),
        ('\n{"name": "f", "arguments": "{\\"a\\": 1}"}\n', {"a": 1}),
        ('{"function": {"name": "f", "arguments": null}}', {}),
    ],
)
def test_parse_reads_an_object_of_json_between_the_tokens(name: str, body: str, args: Any) -> None:
    start, end = MARKS[name]
    [call] = DIALECTS[name].parse(start + body + end).calls
    assert (call.name, call.args, call.repairs[0]) == ("f", args, "json_object")
