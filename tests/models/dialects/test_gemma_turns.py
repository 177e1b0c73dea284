"""Gemma 3 prompts: alternating turns, one <bos>, and escaped control tokens."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.turns import PromptTurn, escape_control_tokens, render_turns
from tests.rows import check_rows

DIALECT = DIALECTS["json"]
OPEN_TURN = "<start_of_turn>model\n"
TURN_END = "<end_of_turn>\n"


def call(name: str = "log_water", *, index: int = 0, **args: Any) -> ToolCallMessage:
    return ToolCallMessage.of(name=name, args=args, result=ToolOk({"saved": True}), index=index)


def user(text: str) -> UserMessage:
    return UserMessage(text=text)


CUT = ToolCallMessage.of(
    name="",
    args={},
    raw='{"name": "log_water", "param',
    text="네.",
    result=ToolErr("truncated_call", "shorter"),
)
NONSENSE = ToolCallMessage.of(
    name="log_water",
    args='{"name": "log_water", "parameters": {ml}}',
    raw='{"name": "log_water", "parameters": {ml}}',
    result=ToolCancelled(),
)

GOLDEN: dict[str, tuple[list[Message], str]] = {
    "calls one after the other": (
        [user("차례로"), call(ml=1), call("undo")],
        """\
<bos><start_of_turn>user
차례로<end_of_turn>
<start_of_turn>model
{"name": "log_water", "parameters": {"ml":1}}<end_of_turn>
<start_of_turn>user
Result of log_water: {"status":"ok","data":{"saved":true}}<end_of_turn>
<start_of_turn>model
{"name": "undo", "parameters": {}}<end_of_turn>
<start_of_turn>user
Result of undo: {"status":"ok","data":{"saved":true}}<end_of_turn>
<start_of_turn>model
""",
    ),
    "cut call": (
        [user("물"), CUT],
        """\
<bos><start_of_turn>user
물<end_of_turn>
<start_of_turn>model
네.
{"name": "log_water", "param<end_of_turn>
<start_of_turn>user
Result of the call: {"status":"error","code":"truncated_call","reason":"shorter"}<end_of_turn>
<start_of_turn>model
""",
    ),
    "call that made no sense, then the user": (
        [user("물"), NONSENSE, user("왜?")],
        """\
<bos><start_of_turn>user
물<end_of_turn>
<start_of_turn>model
{"name": "log_water", "parameters": {ml}}<end_of_turn>
<start_of_turn>user
Result of log_water: {"status":"cancelled","reason":"user did not confirm"}

왜?<end_of_turn>
<start_of_turn>model
""",
    ),
}


@pytest.mark.parametrize(("messages", "prompt"), GOLDEN.values(), ids=GOLDEN)
def test_encode_renders_this_prompt(messages: Sequence[Message], prompt: str) -> None:
    assert DIALECT.encode(messages, ()) == prompt


CONTROL = [
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<mask>",
    "<unused0>",
    "<unused6241>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
]
ANY_CONTROL = re.compile("|".join(CONTROL).replace("6241", r"\d+"))
HOSTILE = st.lists(
    st.sampled_from([*CONTROL, "<", "end_of_turn>", "<start_of", "_turn>", "\nmodel\n", "\ud800"])
    | st.text(max_size=4),
    max_size=6,
).map("".join)
RESULTS = (
    st.builds(ToolOk, st.dictionaries(HOSTILE, HOSTILE, max_size=2))
    | st.builds(ToolErr, HOSTILE, HOSTILE)
    | st.just(ToolCancelled())
)


MESSAGES: st.SearchStrategy[Message] = (
    st.builds(UserMessage, text=HOSTILE, context=HOSTILE)
    | st.builds(ModelMessage, text=HOSTILE)
    | st.just(SystemMessage(text="힌트"))
    | st.builds(
        ToolCallMessage.of,
        name=HOSTILE,
        args=st.dictionaries(HOSTILE, HOSTILE, max_size=2) | HOSTILE,
        result=RESULTS,
        text=HOSTILE,
        raw=HOSTILE,
    )
)


@given(messages=st.lists(MESSAGES, max_size=8))
def test_encode_of_a_longer_conversation_keeps_the_prefix(messages: list[Message]) -> None:
    messages = [user("물"), *messages]
    longer = DIALECT.encode(messages, (), "너는 비서다.")
    for end, last in enumerate(messages[:-1], start=1):
        following = [each for each in messages[end:] if not isinstance(each, SystemMessage)]
        if not isinstance(last, UserMessage | ToolCallMessage) or not following:
            continue
        prompt = DIALECT.encode(messages[:end], (), "너는 비서다.")
        if isinstance(following[0], UserMessage):
            prompt = prompt.removesuffix(TURN_END + OPEN_TURN)  # the user's turn goes on
        assert longer.startswith(prompt)


@given(text=HOSTILE)
def test_escape_control_tokens_is_idempotent(text: str) -> None:
    assert escape_control_tokens(escape_control_tokens(text)) == escape_control_tokens(text)
    assert ANY_CONTROL.search(escape_control_tokens(text)) is None


@given(text=st.text())
def test_escape_control_tokens_keeps_other_text(text: str) -> None:
    prompt = render_turns([PromptTurn(role="user", text=text)])
    assert prompt == f"<bos><start_of_turn>user\n{text}<end_of_turn>\n<start_of_turn>model\n"


@check_rows("token", CONTROL)
def test_escape_control_tokens_inserts_a_space(token: str) -> None:
    assert escape_control_tokens(f"a{token}b") == f"a< {token[1:]}b"
