"""Thinking in tags, and the calls in it, in every dialect."""

import pytest

from lhkit.conversation.responses import ThinkingDelta
from lhkit.models.dialects import DIALECTS
from tests.rows import check_rows

TOOLS = [{"name": name, "description": "", "parameters": {}} for name in ("note", "list_all")]
NOTE = {
    "json": '{"name": "note", "parameters": {"a": "빵"}}',
    "pythonic": '[note(a="빵")]',
    "gemma4": '<|tool_call>call:note{a:<|"|>빵<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:note{a:<escape>빵<escape>}<end_function_call>",
}
LIST = {
    "json": '{"type": "function", "name": "list_all"}',
    "pythonic": "[list_all()]",
    "gemma4": "<|tool_call>call:list_all{}<tool_call|>",
    "functiongemma": "<start_function_call>call:list_all{}<end_function_call>",
}
each_dialect = pytest.mark.parametrize("name", NOTE)

RESPONSES = [
    ("<think>생각</think>네.", "생각", "네.", []),
    ("\n<think>\n</think>\n\n네.", "\n", "네.", []),
    ("<think>생각</think>\n{NOTE}", "생각", "", ["note"]),
    ("<think>I could {NOTE}, or not.</think>아니요", "I could {NOTE}, or not.", "아니요", []),
    ("<think>{LIST}</think>네. {NOTE}", "{LIST}", "네.", ["note"]),
    ("<think>생각\n{NOTE}", "생각\n{NOTE}", "", ["note"]),
    ("<thinking>{LIST}\n{NOTE}", "{LIST}\n{NOTE}", "", ["list_all", "note"]),
    ("<reasoning>생각", "생각", "", []),
    ("<think>생각 </thin", "생각 </thin", "", []),
    ("<thought>a < b</thought>c", "a < b", "c", []),
    ("<thinker>", "", "<thinker>", []),
    ("<th", "", "<th", []),
    ("네. <think>생각</think>", "", "네. <think>생각</think>", []),
]


@each_dialect
@check_rows(("raw", "thinking", "text", "names"), RESPONSES)
def test_parse_splits_off_thinking_in_tags(
    name: str, raw: str, thinking: str, text: str, names: list[str]
) -> None:
    raw, thinking = (
        part.replace("{NOTE}", NOTE[name]).replace("{LIST}", LIST[name]) for part in (raw, thinking)
    )
    result = DIALECTS[name].parse(raw, TOOLS)
    assert (result.thinking, result.text) == (thinking, text)
    assert [call.name for call in result.calls] == names
    is_open = "</" not in raw or raw.endswith("</thin")
    assert all(("in_thinking" in call.repairs) == is_open for call in result.calls)
    for cut in range(len(raw)):
        parser = DIALECTS[name].incremental(TOOLS)
        events = [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])]
        thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
        assert parser.close() == result
        assert thinking.startswith(thought)
