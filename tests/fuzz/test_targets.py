"""The fuzz targets, short: pieces of hostile text, and the corpus that longer runs left behind.

Longer: `pytest tests/fuzz --hypothesis-profile=fuzz`, or `evals/fuzz/run.py` with atheris.
"""

import importlib.util
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.models.dialects import DIALECTS

FOLDER = Path(__file__).parents[2] / "evals" / "fuzz"


def _targets() -> Mapping[str, Callable[[bytes], None]]:
    sys.path.insert(0, str(FOLDER))  # `targets` imports its neighbour
    spec = importlib.util.spec_from_file_location("fuzz_targets", FOLDER / "targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Mapping[str, Callable[[bytes], None]] = module.TARGETS
    return found


TARGETS = _targets()

PARSER_PIECES = [
    *('{"name":', '"f"', ', "parameters": {"a": 1}}', "[f(", "f(", "a=", '""', "'", "\\", ")]"),
    *("```", "```json\n", "<tool_call>", "</tool_call>", "[", "]", "{", "}", ",", " ", "\n", "가"),
    *("<start_function_call>", "call:f{", "a:", "<escape>", "<end_function_call>", "<|tool_call>"),
    *('<|"|>', "<tool_call|>", "<|channel>thought\n", "<channel|>", "**{", "None", "1e999", "-"),
]
YAML_PIECES = [
    *(
        "- ",
        "id: a\n",
        "\n  ",
        "ac: AC-01",
        "turns:",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "!!set ",
        "<<",
    ),
    *(
        ": ",
        "? ",
        "| ",
        "> ",
        "'",
        '"',
        "\\",
        "1e999",
        ".nan",
        "0o7",
        "---\n",
        "%YAML 1.1\n",
        "\t",
        "\0",
    ),
    *("matches: (a+)+$", "world: {now: x}", "locale: ko", "- user: hi\n", "#", "가", "\u2028"),
]
JSON_PIECES = [
    *("{", "}", "[", "]", '"sample_id": {"scenario": "a", "repeat": 0}', '"turns"', '"repeats"'),
    *(":", ",", "null", "1e400", "-1", '"questions"', '"versions"', "true", '"x"', "\n", "\0"),
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
    *(
        "[",
        "]",
        "(",
        ")",
        "*",
        "_",
        "&lt;",
        "<!--",
        "|",
        "> ",
        "- ",
        "\\",
        "<http://a>",
        "\0",
        "가",
    ),
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


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_no_mixture_of_hostile_pieces_breaks_a_law(name: str, data: st.DataObject) -> None:
    pieces = st.one_of(st.sampled_from(PIECES[name]), st.text(max_size=3))
    text = "".join(data.draw(st.lists(pieces, max_size=30)))
    TARGETS[name](text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=200))
def test_no_bytes_break_a_law(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_breaks_no_law(name: str) -> None:
    kept = sorted((FOLDER / "corpus" / name).iterdir())
    assert kept
    for file in kept:
        TARGETS[name](file.read_bytes())


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
CHARS = 200_000
MOST_CPU_S = 2.0
"""Linear is a tenth of that; the quadratic joining of strings that was here once took three."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_text_of_the_same_is_read_in_linear_time(dialect: str) -> None:
    slow: list[str] = []
    for unit in RUNS:
        for before, after in (("", ""), AROUND[dialect]):
            took_s = _parse_s(dialect, before + unit * (CHARS // len(unit)) + after)
            if took_s > MOST_CPU_S:
                slow.append(f"{before}{unit}…{after}: {took_s:.1f} s")
    assert slow == []


@pytest.mark.parametrize("unit", ['{"name":', "["])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_megabyte_is_read_within_seconds(dialect: str, unit: str) -> None:
    assert _parse_s(dialect, unit * (1_000_000 // len(unit))) < 5 * MOST_CPU_S


def _parse_s(dialect: str, text: str) -> float:
    return _cpu_s(lambda: DIALECTS[dialect].parse(text, [{"name": "f"}]))


def _cpu_s(task: Callable[[], object]) -> float:
    """Return the CPU time of a task alone: no other thread, and no garbage collection.

    One pass of the collector over the millions of objects that a whole suite may hold takes longer
    than what is timed here.
    """
    return timeit.timeit(task, timer=time.thread_time, number=1)


@pytest.mark.parametrize("unit", ["[", "```", "<tool_call>"])
def test_many_marks_before_many_calls_are_linear_too(unit: str) -> None:
    times = [
        _parse_s("json", unit * n + '{"name": "f", "parameters": {}}, ' * (n // 4))
        for n in (1_000, 8_000)
    ]
    assert times[1] < 30 * max(times[0], 0.01)


@pytest.mark.parametrize("unit", [" ", "```", "[ ", "<tool_call>"])
def test_marks_that_stream_in_are_linear_too(unit: str) -> None:
    times = [_cpu_s(partial(_stream, unit * (chars // len(unit)))) for chars in (40_000, 320_000)]
    assert times[1] < 30 * max(times[0], 0.01)


def _stream(text: str) -> None:
    reader = DIALECTS["json"].incremental([{"name": "f"}])
    for start in range(0, len(text), 8):
        reader.feed(text[start : start + 8])
    reader.close()
