"""Calls as the native templates make models write them, and as they deviate from that."""

from typing import Any

from lhkit.models.dialects import DIALECTS
from tests.rows import check_rows

TOKENS = {
    "functiongemma": ("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
}
WRITTEN: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "sorted arguments": ("{a:2,b:1}", {"a": 2, "b": 1}, ()),
    "unsorted arguments": ("{b:1,a:2}", {"b": 1, "a": 2}, ()),
    "an integer as a float": ("{n:200.0,m:2e2}", {"n": 200.0, "m": 200.0}, ()),
    "null": ("{n:null}", {"n": None}, ()),
    "null, as older templates write it": ("{n:None}", {"n": None}, ("python_literal",)),
    "quotes in a string": ('{a:Qsay "hi", '"'네'Q}", {"a": 'say "hi", \'네\''}, ()),
    "escaped quotes in a string": (r'{a:Qsay \"hi\"Q}', {"a": r'say \"hi\"'}, ()),
    "escaped quotes in JSON quotes": (r'{a:"say \"hi\""}', {"a": 'say "hi"'}, ()),
    "keys as strings, as in a declaration": ("{QaQ:QxQ,b:{QcQ:1}}", {"a": "x", "b": {"c": 1}}, ()),
    "other characters in keys": ("{a@b:1,$ref:2,x/y:3}", {"a@b": 1, "$ref": 2, "x/y": 3}, ()),
    "line breaks in a string": ("{a:Q한 줄\n두 줄Q}", {"a": "한 줄\n두 줄"}, ()),
    "braces in a string": ("{a:Q{x}: [y], }Q}", {"a": "{x}: [y], }"}, ()),
}  # fmt: skip


@check_rows("before", ["", "좋아요. ", "Sure:\n"])
@check_rows("after", ["", "\n그리고"])
@check_rows("written", WRITTEN)
@check_rows("name", TOKENS)
def test_parse_reads_a_native_call(name: str, written: str, before: str, after: str) -> None:
    start, end, quote = TOKENS[name]
    body, args, repairs = WRITTEN[written]
    raw = f"{before}{start}call:f{body.replace('Q', quote)}{end}{after}"
    result = DIALECTS[name].parse(raw)
    assert [(call.name, call.args, call.repairs) for call in result.calls] == [("f", args, repairs)]
    assert result.text == "\n".join(filter(None, (before.strip(), after.strip())))


@check_rows("name", TOKENS)
@check_rows(
    ("keys", "ordered"),
    [("bA", ["A", "b"]), ("ba", ["a", "b"]), ("가b", ["b", "가"]), ("aB", ["a", "B"])],
)
def test_render_call_sorts_keys_in_any_case(name: str, keys: str, ordered: list[str]) -> None:
    raw = DIALECTS[name].render_call("f", {key: dict.fromkeys(keys, 1) for key in keys})
    [call] = DIALECTS[name].parse(raw).calls
    assert [*call.args] == ordered
    assert all([*inner] == ordered for inner in call.args.values())


@check_rows("name", TOKENS)
@check_rows("key", ["a b", "a:b", "", "<escape>", '<|"|>', "[x]", '"q"', "a,b", "그 날"])
def test_render_call_writes_a_key_that_is_no_word_as_a_string(name: str, key: str) -> None:
    raw = DIALECTS[name].render_call("f", {key: 1})
    [call] = DIALECTS[name].parse(raw).calls
    assert (call.args, call.repairs) == ({key: 1}, ())
