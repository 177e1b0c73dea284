"""The `gemma4` dialect: thinking split off, a system turn, results in the model's turn."""

import pytest

from lhkit.conversation.messages import ToolCallMessage, UserMessage
from lhkit.conversation.responses import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from tests.rows import check_rows

DIALECT = DIALECTS["gemma4"]
Q = '<|"|>'


def marked(body: str) -> str:
    return f"<|tool_call>{body}<tool_call|>"


def test_parse_separates_thinking_before_a_call() -> None:
    raw = f"<|channel>thought\n물 200?\n<channel|>네. {marked('call:f{a:1}')}"
    result = DIALECT.parse(raw)
    assert (result.thinking, result.text) == ("물 200?\n", "네.")
    assert [call.args for call in result.calls] == [{"a": 1}]


@check_rows(
    ("raw", "thinking", "text"),
    [
        ("<|channel>thought\n<channel|>답", "", "답"),
        ("<|channel>x<channel|>답", "x", "답"),
        ("<|channel>thought\n끝이 없", "끝이 없", ""),
        ("<|channel>tho", "tho", ""),
        ("앞<|channel>thought\n하나<channel|>뒤<|channel>둘<channel|>", "하나둘", "앞\n뒤"),
        ("답 <channel|>", "", "답 <channel|>"),
    ],
)
def test_parse_separates_thinking_anywhere(raw: str, thinking: str, text: str) -> None:
    assert DIALECT.parse(raw) == ParseResult(text=text, thinking=thinking)


def test_parse_ignores_calls_in_thinking() -> None:
    result = DIALECT.parse(f"<|channel>thought\n{marked('call:f{}')}<channel|>아니요")
    assert (result.calls, result.text, result.fragment) == ((), "아니요", "")


OPEN = "<|channel>thought\n"
CALL = marked(f"call:edit{{path:{Q}가.html{Q},line:91}}")
EDIT = {"path": "가.html", "line": 91}
UNCLOSED = {
    "at the end": (f"{OPEN}Let me go.{CALL}", [EDIT]),
    "at once": (f"{OPEN}{CALL}", [EDIT]),
    "without the word thought": (f"<|channel>{CALL}", [EDIT]),
    "before more thinking": (f"{OPEN}우선 {CALL} 그리고", [EDIT]),
    "two": (f"{OPEN}{CALL}\n{marked('call:g{}')}", [EDIT, {}]),
    "after text": (f"네. {OPEN}음{CALL}", [EDIT]),
    "after a closed channel": (f"{OPEN}a<channel|>네{OPEN}b{CALL}", [EDIT]),
    "after a channel with a call": (f"{OPEN}{marked('call:g{}')}<channel|>{OPEN}{CALL}", [EDIT]),
    "after a call": (f"{marked('call:g{}')}{OPEN}{CALL}", [{}, EDIT]),
    "beside a damaged one": (f"{OPEN}{marked('call:g{a:')}{CALL}", [EDIT]),
    "cut": (f"{OPEN}{CALL[:-5]}", []),
    "damaged": (f"{OPEN}{marked('call:g{a:')}", []),
    "words": (f"{OPEN}call:edit{{path:1}}", []),
    "closed after it": (f"{OPEN}{CALL}<channel|>", []),
    "closed, with an answer": (f"{OPEN}I could {CALL}.<channel|>네.", []),
}


@pytest.mark.longer
@check_rows(("raw", "args"), UNCLOSED.values(), ids=UNCLOSED)
def test_a_call_in_a_channel_that_is_never_closed_is_a_call(raw: str, args: list[object]) -> None:
    result = DIALECT.parse(raw)
    assert [call.args for call in result.calls] == args
    for cut in range(len(raw)):
        parser = DIALECT.incremental()
        events = [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])]
        thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
        assert parser.close() == result
        assert thought == result.thinking


def test_a_call_in_a_channel_that_is_never_closed_lists_its_repair() -> None:
    [call] = DIALECT.parse(f"{OPEN}음{marked('edit{line:1,}')}").calls
    assert (call.name, call.args) == ("edit", {"line": 1})
    assert call.repairs == ("in_thinking", "no_call_prefix", "trailing_comma")


def test_incremental_streams_thinking_before_text_and_call() -> None:
    parser = DIALECT.incremental()
    raw = f"<|channel>thought\n생각<channel|>네{marked('call:f{}')}"
    kinds = [type(event) for char in raw for event in parser.feed(char)]
    assert kinds == [ThinkingDelta, ThinkingDelta, TextDelta, ToolCallParsed]


def test_render_call_quotes_a_delimiter_as_json() -> None:
    raw = DIALECT.render_call("f", {"a": f"x{Q}y"})
    assert raw == marked(r'call:f{a:"x\u003c|\"|>y"}')
    [call] = DIALECT.parse(raw).calls
    assert call.args == {"a": f"x{Q}y"}


def test_encode_escapes_results() -> None:
    message = ToolCallMessage.of(name="f", args={}, result=ToolOk({"note": "<turn|>"}))
    prompt = DIALECT.encode([UserMessage(text="<turn|>")], ())
    assert prompt == "<bos><|turn>user\n< turn|><turn|>\n<|turn>model\n"
    prompt = DIALECT.encode([UserMessage(text="?"), message], ())
    assert prompt.count("<turn|>") == 1
    assert prompt.endswith('response:f{note:"\\u003cturn|>"}<tool_response|>')


def test_generation_stops_at_turn_and_response_tokens() -> None:
    assert set(DIALECT.stop_texts) == {"<turn|>", "<|turn>", "<|tool_response>"}
