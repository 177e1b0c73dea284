"""The `gemma4` dialect: thinking split off, a system turn, results in the model's turn."""

import pytest

from lhkit.messages import ToolCallMessage, UserMessage
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from lhkit.responses import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.tool_results import ToolOk

DIALECT = DIALECTS["gemma4"]
Q = '<|"|>'


def marked(body: str) -> str:
    return f"<|tool_call>{body}<tool_call|>"


def test_parse_separates_thinking_before_a_call() -> None:
    raw = f"<|channel>thought\n물 200?\n<channel|>네. {marked('call:f{a:1}')}"
    result = DIALECT.parse(raw)
    assert (result.thinking, result.text) == ("물 200?\n", "네.")
    assert [call.args for call in result.calls] == [{"a": 1}]


@pytest.mark.parametrize(
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
    assert prompt.endswith('data:{note:"\\u003cturn|>"}}<tool_response|>')


def test_generation_stops_at_turn_and_response_tokens() -> None:
    assert set(DIALECT.stop_texts) == {"<turn|>", "<|turn>", "<|tool_response>"}
