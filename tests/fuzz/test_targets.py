"""Invariants for any bytes, tested with pieces of hostile text; parsers take linear time.

Longer: `pytest tests/fuzz --hypothesis-profile=fuzz`.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.models.dialects import DIALECTS
from tests.fuzz.laws import TARGETS
from tests.rows import check_rows

PARSER_PIECES = [
    *('{"name":', '"f"', ', "parameters": {"a": 1}}', "[f(", "f(", "a=", '""', "'", "\\", ")]"),
    *("```", "```json\n", "<tool_call>", "</tool_call>", "[", "]", "{", "}", ",", " ", "\n", "가"),
    *("<start_function_call>", "call:f{", "a:", "<escape>", "<end_function_call>", "<|tool_call>"),
    *('<|"|>', "<tool_call|>", "<|channel>thought\n", "<channel|>", "**{", "None", "1e999", "-"),
]
YAML_PIECES = [
    *("- ", "id: a\n", "\n  ", "ac: AC-01", "turns:", "{", "}", "[", "]", "&a ", "*a", "!!set "),
    *("<<", ": ", "? ", "| ", "> ", "'", '"', "\\", "1e999", ".nan", "0o7", "---\n", "\t", "\0"),
    *("matches: (a+)+$", "world: {now: x}", "locale: ko", "- user: hi\n", "#", "가", "\u2028"),
    "%YAML 1.1\n",
]
JSON_PIECES = [
    *("{", "}", "[", "]", '"sample_id": {"scenario": "a", "repeat": 0}', '"turns"', '"repeats"'),
    *(":", ",", "null", "1e400", "-1", '"content_hashes"', '"versions"', "true", '"x"', "\n", "\0"),
]
EDIT_PIECES = [
    *("\0", "\1", "\n", "\n\0", "\n\1", "<script>", "[]", "{}", "null", "-1", "1e400", "9" * 5_000),
    *('"\\ud800"', "true", '[["x"]]', '{"status": "error"}', "0", '"invalid"', "NaN", "가"),
]
STREAM_PIECES = [
    *("data: ", "data: [DONE]\n", "\n", '{"choices": [{"text": "a"', "}]}\n", "null", "[]", "{}"),
    *(', "finish_reason": "stop"', ', "token_ids": ', '[1, "x", -1]', "[1e999]", ', "usage": '),
    *('"delta": {"content": "a"}', '"tool_calls": [{"index": 0, "function": {"name": "f"', "가"),
    *(', "metrics": {"a": NaN}', "9" * 5_000, '"completion_tokens": ', "true", ", ", "[" * 2_000),
]
MARKDOWN_PIECES = [
    *("<script>", "<img src=x onerror=y>", "![a](http://b)", "[a](javascript:b)", "`", "```", "\n"),
    *("[", "]", "(", ")", "*", "_", "&lt;", "<!--", "|", "> ", "- ", "\\", "<http://a>", "\0"),
    "가",
]
PIECES = {
    "parsers": PARSER_PIECES,
    "loader": YAML_PIECES,
    "records": JSON_PIECES,
    "record_edits": EDIT_PIECES,
    "run_folder": JSON_PIECES,
    "cassettes": JSON_PIECES,
    "streams": STREAM_PIECES,
    "renderer": MARKDOWN_PIECES,
}


@pytest.mark.longer
@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_hostile_text_keeps_the_invariants(name: str, data: st.DataObject) -> None:
    pieces = st.one_of(st.sampled_from(PIECES[name]), st.text(max_size=3))
    text = "".join(data.draw(st.lists(pieces, max_size=30)))
    TARGETS[name](text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=200))
def test_random_bytes_keep_the_invariants(name: str, data: bytes) -> None:
    TARGETS[name](data)


REGRESSIONS = {
    "parsers: a number beyond a float": b'\x01{"name": "f", "parameters": {"a": 1e999}}',
    "parsers: half a character": b'\x01[f(a="\xed\xa0\x80")]',
    "parsers: a call inside a call": b"\x02" + b"<start_function_call>call:f{a:" * 2,
    "parsers: a mark cut in two": b'\x00<|tool_call>call:f{a:<|"|>x<|"',
    "parsers: brackets without end": b"\x10" + b"[" * 2_000,
    "parsers: a fence that stays open": b'\x03```json\n[{"name": "f", "parameters": {}}',
    "loader: UTF-16": "- id: a".encode("utf-16"),
    "loader: a day beyond the calendar": b"- {id: a, ac: A, world: {}, final: {d: today+99999w}}",
    "loader: an anchor in itself": b"- &a [*a]",
    "loader: a tag that runs code": b"- !!python/object/apply:os.getcwd []",
    "loader: a number of many digits": b"- id: " + b"9" * 5_000,
    "records: no number": b'{"sample_id": NaN}',
    "records: brackets without end": b"[" * 100_000,
    "run_folder: a manifest of another shape": b'{"repeats": 1000000000000}\x00{}',
    "cassettes: a response without fields": b'{"responses": [{}]}',
    "streams: a token id that is a word": b'\x10data: {"choices": [{"token_ids": ["x"]}]}\n\n',
    "streams: a token id beyond all": b'\x10data: {"choices": [{"token_ids": [1e999]}]}\n\n',
    "streams: a call without an index": (
        b'\x10data: {"choices": [{"delta": {"tool_calls": [{"index": null}]}}]}\n\n'
    ),
    "renderer: an address that acts": b"[a](javascript:alert(1)) <img src=x onerror=y>",
}
"""Inputs that a fuzzer or a person found, by the name of their invariant."""


@check_rows("case", REGRESSIONS)
def test_regressions_keep_the_invariants(case: str) -> None:
    TARGETS[case.partition(":")[0]](REGRESSIONS[case])


RUNS = [
    *('{"name":', "[", "{", "[f(", '"', "'", "\\", " ", "```", "[ ", "<", "<tool_call>", "\n["),
    *("<start_function_call>", "<|tool_call>", "<escape>", '<|"|>', "call:f{a:", '{"a":1,'),
]
AROUND = {
    "json": ('{"name":"f","parameters":', "}"),
    "pythonic": ("[f(a=", ")]"),
    "functiongemma": ("<start_function_call>call:f{a:", "}<end_function_call>"),
    "gemma4": ("<|tool_call>call:f{a:", "}<tool_call|>"),
}
FEW, MANY = 500, 4_000
"""Lengths. Quadratic growth takes 64 times the steps of FEW for MANY."""


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_text_of_the_same_is_read_in_linear_time(dialect: str) -> None:
    slow: list[str] = []
    for unit in RUNS:
        for before, after in (("", ""), AROUND[dialect]):
            few, many = (
                steps_of(parse, dialect, before + unit * (letters // len(unit)) + after)
                for letters in (FEW, MANY)
            )
            if many > 16 * few:
                slow.append(f"{before}{unit}…{after}: {few} steps, then {many}")
    assert slow == []


@pytest.mark.longer
@pytest.mark.parametrize("unit", ["[", "```", "<tool_call>"])
def test_parse_many_marks_before_many_calls_in_linear_time(unit: str) -> None:
    few, many = (
        steps_of(parse, "json", unit * n + '{"name": "f", "parameters": {}}, ' * (n // 4))
        for n in (250, 2_000)
    )
    assert many <= 16 * few


@pytest.mark.longer
@check_rows("unit", [" ", "```", "[ ", "<tool_call>", "<escape>", "[f(a=1)] "])
@check_rows("dialect", DIALECTS)
def test_stream_many_marks_in_linear_time(dialect: str, unit: str) -> None:
    few, many = (steps_of(stream, dialect, unit * (n // len(unit))) for n in (FEW, MANY))
    assert many <= 16 * few


@pytest.mark.slow
@pytest.mark.parametrize("unit", ['{"name":', "["])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_parse_reads_a_long_text(dialect: str, unit: str, size: int) -> None:
    parse(dialect, unit * (size // len(unit)))


def parse(dialect: str, text: str) -> None:
    DIALECTS[dialect].parse(text, [{"name": "f"}])


def stream(dialect: str, text: str) -> None:
    reader = DIALECTS[dialect].incremental([{"name": "f"}])
    for start in range(0, len(text), 8):
        reader.feed(text[start : start + 8])
    reader.close()


def steps_of(read: Callable[[str, str], None], dialect: str, text: str) -> int:
    """Return the number of Python lines that reading executes, which is machine-independent."""
    steps = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        read(dialect, text)
    finally:
        sys.settrace(before)
    return steps
