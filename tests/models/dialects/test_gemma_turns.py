"""Gemma 3 prompts: alternating turns, one <bos>, and escaped control tokens."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.messages import Message, ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.turns import BOS, PromptTurn, escape_control_tokens, render_turns
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk

DIALECT = DIALECTS["json"]
OPEN_TURN = "<start_of_turn>model\n"
TURN_END = "<end_of_turn>\n"

TOOL = {
    "name": "log_water",
    "description": "물을 기록한다",
    "parameters": {"type": "object"},
}
PROTOCOL = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:
{"name":"log_water","description":"물을 기록한다","parameters":{"type":"object"}}"""


def call(name: str = "log_water", *, index: int = 0, **args: Any) -> ToolCallMessage:
    return ToolCallMessage.of(name=name, args=args, result=ToolOk({"saved": True}), index=index)


def user(text: str) -> UserMessage:
    return UserMessage(text=text)


def model(text: str) -> ModelMessage:
    return ModelMessage(text=text)


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
    "nothing": ([], "<bos><start_of_turn>model\n"),
    "one user turn with its context": (
        [UserMessage(text="물 마셨어", context="지금: 2026-11-21 09:00")],
        """\
<bos><start_of_turn>user
지금: 2026-11-21 09:00
물 마셨어<end_of_turn>
<start_of_turn>model
""",
    ),
    "call, result, answer, next user turn": (
        [user("200 마셨어"), call(ml=200), model("기록했어요."), user("고마워")],
        """\
<bos><start_of_turn>user
200 마셨어<end_of_turn>
<start_of_turn>model
{"name": "log_water", "parameters": {"ml":200}}<end_of_turn>
<start_of_turn>user
Result of log_water: {"status":"ok","data":{"saved":true}}<end_of_turn>
<start_of_turn>model
기록했어요.<end_of_turn>
<start_of_turn>user
고마워<end_of_turn>
<start_of_turn>model
""",
    ),
    "two user turns in a row": (
        [user("하나"), user("둘")],
        """\
<bos><start_of_turn>user
하나

둘<end_of_turn>
<start_of_turn>model
""",
    ),
    "parallel calls of one message": (
        [user("두 번"), call(ml=1), call("undo", index=1)],
        """\
<bos><start_of_turn>user
두 번<end_of_turn>
<start_of_turn>model
{"name": "log_water", "parameters": {"ml":1}}
{"name": "undo", "parameters": {}}<end_of_turn>
<start_of_turn>user
Result of log_water: {"status":"ok","data":{"saved":true}}
Result of undo: {"status":"ok","data":{"saved":true}}<end_of_turn>
<start_of_turn>model
""",
    ),
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
    "hints of the application": (
        [
            user("안녕"),
            SystemMessage(text="길어요"),
            model("네"),
            SystemMessage(text="!"),
            user("물"),
        ],
        """\
<bos><start_of_turn>user
안녕<end_of_turn>
<start_of_turn>model
네<end_of_turn>
<start_of_turn>user
물<end_of_turn>
<start_of_turn>model
""",
    ),
}


@pytest.mark.parametrize(("messages", "prompt"), GOLDEN.values(), ids=GOLDEN)
def test_encode_renders_this_prompt(messages: Sequence[Message], prompt: str) -> None:
    assert DIALECT.encode(messages, ()) == prompt


def test_encode_puts_instructions_and_tools_into_the_first_turn() -> None:
    assert DIALECT.encode([user("물")], [TOOL], " 너는 비서다.\n") == (
        f"<bos><start_of_turn>user\n너는 비서다.\n\n{PROTOCOL}\n\n물<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_encode_shows_malformed_arguments_as_written() -> None:
    message = ToolCallMessage.of(name="f", args={"a": {1}}, raw="f({1})", result=ToolCancelled())
    assert "model\nf({1})<end_of_turn>" in DIALECT.encode([user("x"), message], ())


def test_encode_continues_after_the_models_text() -> None:
    first: list[Message] = [user("두 번")]
    written = '{"name": "log_water", "parameters": {"ml":1}}\n{"name": "undo", "parameters": {}}'
    second: list[Message] = [*first, call(ml=1), call("undo", index=1)]
    prompt = DIALECT.encode(first, [TOOL])
    assert DIALECT.encode(second, [TOOL]).startswith(prompt + written + "<end_of_turn>")


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
USERS = st.builds(UserMessage, text=HOSTILE, context=HOSTILE)
RESULTS = (
    st.builds(ToolOk, st.dictionaries(HOSTILE, HOSTILE, max_size=2))
    | st.builds(ToolErr, HOSTILE, HOSTILE)
    | st.just(ToolCancelled())
)
CALLS: st.SearchStrategy[list[Message]] = st.lists(
    st.builds(
        ToolCallMessage.of,
        name=HOSTILE,
        args=st.dictionaries(HOSTILE, HOSTILE, max_size=2) | HOSTILE,
        result=RESULTS,
        text=HOSTILE,
        raw=HOSTILE,
    ),
    min_size=1,
    max_size=3,
).map(lambda calls: [_at(message, i) for i, message in enumerate(calls)])
HINTS = st.builds(SystemMessage, text=st.just("힌트"))
MODELS = st.builds(ModelMessage, text=HOSTILE)


def _at(message: ToolCallMessage, index: int) -> ToolCallMessage:
    return ToolCallMessage.of(
        name=message.name,
        args=message.args,
        result=message.result,
        text="" if index else message.text,
        raw=message.raw,
        index=index,
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Message]]:
    """Steps of a conversation; the model is asked after each but those of the model's words."""
    steps: list[list[Message]] = []
    for _ in range(draw(st.integers(1, 3))):
        steps.append([draw(USERS)])
        steps.extend(draw(st.lists(CALLS, max_size=2)))
        steps.extend([[m] for m in draw(st.lists(MODELS, max_size=1))])
        steps.extend([[m] for m in draw(st.lists(HINTS, max_size=1))])
    return steps


def asked_after(steps: list[list[Message]]) -> list[int]:
    """Return how many steps each request of this conversation has seen."""
    return [
        i + 1 for i, step in enumerate(steps) if isinstance(step[-1], UserMessage | ToolCallMessage)
    ]


def prompt_of(steps: Sequence[Sequence[Message]], tools: Sequence[Any] = (TOOL,)) -> str:
    messages: list[Message] = [message for step in steps for message in step]
    return DIALECT.encode(messages, tools, "너는 비서다.")


@given(steps=conversations(), instructions=HOSTILE, has_tools=st.booleans())
def test_render_turns_alternates_roles_and_escapes_tokens(
    steps: list[list[Message]], instructions: str, has_tools: bool
) -> None:
    messages: list[Message] = [m for step in steps[: asked_after(steps)[-1]] for m in step]
    hostile_tool = {**TOOL, "description": instructions}
    prompt = DIALECT.encode(messages, [hostile_tool] if has_tools else [], instructions)
    assert prompt.startswith(BOS)
    tokens = ANY_CONTROL.findall(prompt)
    turns = (len(tokens) - 2) // 2
    assert tokens == [BOS, *["<start_of_turn>", "<end_of_turn>"] * turns, "<start_of_turn>"]
    roles = re.findall(r"<start_of_turn>(\w+)\n", prompt)
    assert roles == ["user", "model"] * (len(roles) // 2)
    assert prompt.endswith(TURN_END + OPEN_TURN)
    prompt.encode("utf-8")  # vLLM refuses lone surrogates with HTTP 400


@given(steps=conversations())
def test_encode_of_a_longer_conversation_keeps_the_prefix(
    steps: list[list[Message]],
) -> None:
    requests = asked_after(steps)
    for earlier, seen in enumerate(requests[:-1]):
        prompt = prompt_of(steps[:seen])
        for later in requests[earlier + 1 :]:
            longer = prompt_of(steps[:later])
            following = [m for m in steps[seen] if not isinstance(m, SystemMessage)]
            if following and not isinstance(following[0], UserMessage):
                assert longer.startswith(prompt)  # the model's own turn goes on from there
            else:
                assert longer.startswith(prompt.removesuffix(TURN_END + OPEN_TURN))


@given(text=HOSTILE)
def test_escape_control_tokens_is_idempotent(text: str) -> None:
    assert escape_control_tokens(escape_control_tokens(text)) == escape_control_tokens(text)
    assert ANY_CONTROL.search(escape_control_tokens(text)) is None


@given(text=st.text())
def test_escape_control_tokens_keeps_other_text(text: str) -> None:
    prompt = render_turns([PromptTurn(role="user", text=text)])
    assert prompt == f"<bos><start_of_turn>user\n{text}<end_of_turn>\n<start_of_turn>model\n"


@pytest.mark.parametrize("token", CONTROL)
def test_escape_control_tokens_inserts_a_space(token: str) -> None:
    assert escape_control_tokens(f"a{token}b") == f"a< {token[1:]}b"
