"""The log-probabilities of calls: which tokens are theirs, and what servers report."""

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

from lhkit.conversation.messages import ToolCall, UserMessage
from lhkit.conversation.responses import Finished
from lhkit.models.base import ModelRequest
from lhkit.models.client.logprobs import TokenLogprob, add_logprobs, read_tokens
from lhkit.models.dialects import DIALECTS
from tests.models.fake_llama_cpp import FakeLlamaCpp, native
from tests.models.fake_vllm import (
    DONE,
    Behaviour,
    FakeVllm,
    answers,
    chat_call,
    chat_chunk,
    chat_completion,
    completion,
    connected,
    event,
    streams,
)
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

CALL = '{"name": "add", "parameters": {"title": "각"}}'
ASKED = ModelRequest(messages=(UserMessage(text="안녕"),), logprobs=True)

TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "", "parameters": {}} for name in ("a", "b", "add")
]

Token = tuple[str | bytes, float | None]
Values = tuple[float | None, float | None]
NONE: Values = (None, None)


def values(*tokens: Token, text: str | None = None, dialect: str = "json") -> list[Values]:
    """Return weakest and mean of each call in the text of these tokens."""
    parts = [
        TokenLogprob(text=each.encode() if isinstance(each, str) else each, logprob=value)
        for each, value in tokens
    ]
    whole = b"".join(part.text for part in parts).decode() if text is None else text
    result = DIALECTS[dialect].parse(whole, TOOLS)
    calls = add_logprobs(result.calls, parts, whole, result.spans)
    return [(call.min_logprob, call.mean_logprob) for call in calls]


HEAD: list[Token] = [('{"name": "add", ', -0.5), ('"parameters": {"title": "', -1.0)]
SPLIT = "각".encode()
REPLACED = "\ufffd"

TOKENS: dict[str, tuple[dict[str, Any], Sequence[Token], list[Values]]] = {
    "the tokens of the call": ({}, [*HEAD, ("각", -3.0), ('"}}', -0.5)], [(-3.0, -1.25)]),
    "text before and after": (
        {},
        [("네", -9.0), ("\n", -8.0), *HEAD, ("각", -3.0), ('"}}', -0.5), ("\n끝", -7.0)],
        [(-3.0, -1.25)],
    ),
    "tokens over both borders": (
        {},
        [("네 {", -9.0), ('"name": "add", "parameters": {}', -1.0), ("}\n끝", -5.0)],
        [(-9.0, -5.0)],
    ),
    "two calls": (
        {},
        [('{"name": "a", "parameters": {}}', -1.0), ("\n", -9.0),
         ('{"name": "a", ', -3.0), ('"parameters": {}}', -1.0)],
        [(-1.0, -1.0), (-3.0, -2.0)],
    ),
    "one token of two calls": (
        {},
        [('{"name": "a", "parameters": {}', -1.0), ("}\n{", -5.0),
         ('"name": "b", "parameters": {}}', -2.0)],
        [(-5.0, -3.0), (-5.0, -3.5)],
    ),
    "two calls of one object": (
        {},
        [('{"calls": [{"name": "a", "parameters": {}},', -1.0),
         (' {"name": "b", "parameters": {}}]}', -2.0)],
        [(-2.0, -1.5)] * 2,
    ),
    "two calls of one list": (
        {"dialect": "pythonic"},
        [("[", -9.0), ("f(a=1)", -1.0), (", ", -9.0), ("f(a=1)", -2.0), ("]", -9.0)],
        [(-1.0, -1.0), (-2.0, -2.0)],
    ),
    "special tokens": (
        {"dialect": "gemma4"},
        [("네", -9.0), ("<|tool_call>", -1.0), ("call:f{}", -2.0), ("<tool_call|>", -3.0)],
        [(-3.0, -2.0)],
    ),
    "only mentioned before it": (
        {},
        [("<think>", -9.0), (CALL, -8.0), ("</think>", -9.0), (CALL, -1.0)],
        [(-1.0, -1.0)],
    ),
    "the end of the turn": ({"text": CALL}, [(CALL, -1.0), ("<end_of_turn>", -9.0)], [(-1, -1)]),
    "an empty token at the end": ({}, [(CALL, -1.0), ("", -9.0)], [(-1.0, -1.0)]),
    "an end text that the last token completes": (
        {"text": CALL}, [(CALL[:-2], -1.0), ("}}<end", -3.0)], [(-3.0, -2.0)]
    ),
    # a character of several tokens
    "bytes": (
        {},
        [*HEAD, (SPLIT[:1], -2.0), (SPLIT[1:2], -4.0), (SPLIT[2:], -0.5), ('"}}', -0.5)],
        [(-4.0, -8.5 / 6)],
    ),
    "bytes over the border": (
        {}, [(SPLIT[:2], -9.0), (SPLIT[2:] + b"{", -2.0), (CALL[1:], -1.0)], [(-2.0, -1.5)]
    ),
    "its first parts are empty, as in vLLM": (
        {}, [*HEAD, ("", -2.0), ("", -4.0), ("각", -0.5), ('"}}', -0.5)], [(-4.0, -8.5 / 6)]
    ),
    "such parts before the call": (
        {}, [("", -9.0), ("", -9.0), ("각", -9.0), (CALL, -1.0)], [(-1.0, -1.0)]
    ),
    "a replacement for each part": (
        {"text": CALL},
        [*HEAD, *[(REPLACED, -2.0)] * 2, (REPLACED, -4.0), ('"}}', -0.5)],
        [(-4.0, -10 / 6)],
    ),
    "replacements before the call": (
        {"text": f"각 {CALL}"}, [*[(REPLACED, -9.0)] * 3, (f" {CALL}", -1.0)], [(-1.0, -1.0)]
    ),
    "a space and a part": (
        {"text": '{"name": "a b", "parameters": {"a": "나 각"}}'},
        [('{"name": "a b", "parameters": {"a": "나', -1.0), (f" {REPLACED}", -4.0),
         (REPLACED, -2.0), ('"}}', -1.0)],
        [(-4.0, -2.0)],
    ),
    "bytes that are no character": (
        {"text": f"{REPLACED}{CALL}"}, [("", -9.0), (CALL, -1.0)], [(-1.0, -1.0)]
    ),
    "without the space that a token begins with": (
        {"text": '{"name": "add", "parameters": {}}'},
        [('{"name":', -1.0), ('"add",', -2.0), ('"parameters":', -3.0), ("{}}", -2.0)],
        [(-3.0, -2.0)],
    ),
    # nothing is made up
    "an unknown value": ({}, [*HEAD, ("각", None), ('"}}', -0.5)], [NONE]),
    "an unknown value of another call": (
        {},
        [('{"name": "a", "parameters": {}}', -1.0), ("\n", None),
         ('{"name": "b", "parameters": {}}', None)],
        [(-1.0, -1.0), NONE],
    ),
    "too few tokens": ({"text": CALL}, HEAD, [NONE]),
    "another text": ({"text": CALL}, [(CALL.replace("add", "sub"), -1.0)], [NONE]),
    "token ids": ({"text": CALL}, [("token_id:5", -1.0), ("token_id:6", -1.0)], [NONE]),
    "no tokens": ({"text": CALL}, [], [NONE]),
    "no call": ({}, [("네", -1.0)], []),
}  # fmt: skip


@check_rows(("options", "tokens", "expected"), TOKENS.values(), ids=TOKENS)
def test_call_has_the_logprobs_of_its_tokens(
    options: dict[str, Any], tokens: Sequence[Token], expected: list[Values]
) -> None:
    found = values(*tokens, **options)
    assert len(found) == len(expected)
    for pair, wanted in zip(found, expected, strict=True):
        assert pair == pytest.approx(wanted) if None not in wanted else pair == wanted


FLOAT_LEAST = -3.4028234663852886e38  # llama.cpp's logarithm of 0
INVALID: list[Any] = [
    *(0.5, 1e-3, -9999.0, FLOAT_LEAST, math.nan, math.inf, -math.inf),
    *(None, True, False, "-1.5", [-1.5], {}, 10**400, -(10**400)),
]
VALUES: list[tuple[Any, float | None]] = [
    (-1.5, -1.5),
    (0, 0.0),
    (-0.0, 0.0),
    (1.1920929e-07, 0.0),  # a probability of 1, summed up in single precision
    (-9998.0, -9998.0),
    *((value, None) for value in INVALID),
]


@check_rows(("value", "expected"), VALUES, ids=repr)
def test_logprob_is_read_if_it_is_valid(value: Any, expected: float | None) -> None:
    flat = {"logprobs": {"tokens": ["a"], "token_logprobs": [value]}}
    listed = {"logprobs": {"content": [{"token": "a", "logprob": value}]}}
    assert [each.logprob for each in read_tokens(flat)] == [expected]
    assert [each.logprob for each in read_tokens(listed)] == [expected]


@check_rows(
    "logprobs",
    [
        *(None, [], {}, "x", 1, {"content": None}, {"content": "x"}, {"content": [1, None]}),
        *({"tokens": None, "token_logprobs": None}, {"tokens": ["a"]}, {"token_logprobs": [-1]}),
        {"tokens": [], "token_logprobs": []},
    ],
)
def test_logprobs_in_another_form_are_none(logprobs: Any) -> None:
    assert list(read_tokens({"logprobs": logprobs})) == []


def test_tokens_of_any_form_are_read_without_an_error() -> None:
    short = {"tokens": ["a", 1, None], "token_logprobs": [-1.0]}
    read = list(read_tokens({"logprobs": short}))
    assert [(each.text, each.logprob) for each in read] == [(b"a", None), (b"", None), (b"", None)]
    items = [{"token": "각", "bytes": [234, 176]}, {"token": "x", "bytes": [256]},
             {"token": "\ud83d", "bytes": ["a"]}, {"bytes": None}]  # fmt: skip
    texts = [each.text for each in read_tokens({"logprobs": {"content": items}})]
    assert texts == [b"\xea\xb0", b"x", b"\xed\xa0\xbd", b""]


# Servers


def with_flat(pieces: Sequence[str], logprobs: Sequence[float | None]) -> list[bytes]:
    """Return vLLM's events of a completion with log-probabilities."""
    events: list[bytes] = []
    for raw in completion(pieces):
        payload = {} if raw == DONE else json.loads(raw.removeprefix(b"data: "))
        for choice in payload.get("choices", ()):
            number = len(events)
            value = logprobs[number] if number < len(logprobs) else -9.0
            text = choice["text"] or "<end_of_turn>"
            choice["logprobs"] = {
                "tokens": [text],
                "token_logprobs": [value],
                "top_logprobs": [{text: value}],
                "text_offset": [0],
            }
        events.append(event(payload) if payload else raw)
    return events


def with_native(
    pieces: Sequence[str], logprobs: Sequence[float], counts: Sequence[int] = ()
) -> list[bytes]:
    """Return llama.cpp's events of `/completion` with log-probabilities."""
    events = []
    for number, raw in enumerate(native(pieces)):
        payload = json.loads(raw.removeprefix(b"data: "))
        if not payload["stop"]:
            text = payload["content"]
            value = logprobs[number] if number < len(logprobs) else -9.0
            token = {"id": 1, "token": text, "bytes": [*text.encode()], "logprob": value}
            payload["completion_probabilities"] = [{**token, "top_logprobs": [token]}]
            payload["tokens_predicted"] = counts[number] if counts else number + 1
        events.append(event(payload))
    return events


PIECES = ["네 ", '{"name": "add", ', '"parameters": {"title": "각"}}', "\n끝"]
LOGPROBS = [-9.0, -0.5, -1.5, -9.0]


async def finished(server: FakeVllm, request: ModelRequest = ASKED, **endpoint: Any) -> Finished:
    async with server, connected(server, **endpoint) as model:
        return await last_of(model, request)


async def last_of(model: Any, request: ModelRequest = ASKED) -> Finished:
    events = [each async for each in model.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1]


def pairs(last: Finished) -> list[Values]:
    return [(call.min_logprob, call.mean_logprob) for call in last.calls]


async def test_vllm_reports_logprobs_of_calls_only_if_asked() -> None:
    server = FakeVllm(*[streams(with_flat(PIECES, LOGPROBS))] * 2)
    async with server, connected(server) as model:
        asked = await last_of(model)
        plain = await last_of(model, ModelRequest(messages=ASKED.messages))
    assert (pairs(asked), asked.notes) == ([(-1.5, -1.0)], ())
    assert (pairs(plain), plain.calls) == ([NONE], asked.calls)
    first, second = server.bodies
    assert first == {**second, "logprobs": 1}


async def test_llama_cpp_reports_logprobs_of_calls_only_if_asked() -> None:
    server = FakeLlamaCpp(*[streams(with_native(PIECES, LOGPROBS))] * 2)
    async with server, connected(server) as model:
        asked = await last_of(model)
        plain = await last_of(model, ModelRequest(messages=ASKED.messages))
    assert (pairs(asked), asked.notes, pairs(plain)) == ([(-1.5, -1.0)], (), [NONE])
    assert server.bodies[0] == {**server.bodies[1], "n_probs": 1}


@check_rows(
    ("counts", "expected"),
    [
        ((1, 2, 5, 6, 7), NONE),  # the first parts of a character of the call
        ((3, 4, 5, 6, 7), (-1.5, -1.0)),  # of the text before it
        ((1, 2, 3, 6, 7), (-1.5, -1.0)),  # and after it
        ((10**12,) * 5, (-1.5, -1.0)),
        ((-1,) * 5, (-1.5, -1.0)),
    ],
)
async def test_llama_cpp_counts_tokens_that_it_does_not_report(
    counts: tuple[int, ...], expected: Values
) -> None:
    last = await finished(FakeLlamaCpp(streams(with_native(PIECES, LOGPROBS, counts))))
    assert pairs(last) == [expected]
    assert last.notes == (("incomplete_logprobs",) if expected == NONE else ())


def chat_events(
    tokens: Sequence[str], deltas: Sequence[dict[str, Any]], *, end: str = "<end_of_turn>"
) -> list[bytes]:
    """Return a chat whose tokens come with the first delta, the last one with the end."""
    content = [
        {"token": token, "bytes": [*token.encode()], "logprob": -1.0 - number, "top_logprobs": []}
        for number, token in enumerate([*tokens, *([end] if end else [])])
    ]
    chunks = [chat_chunk(delta) for delta in deltas]
    chunks[0]["choices"][0]["logprobs"] = {"content": content}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(content)}}
    return [*map(event, [*chunks, chat_chunk({}, "tool_calls"), usage]), DONE]


ADD = chat_call(0, "add", '{"title": "각"}', id="a")
CHATS: dict[str, tuple[list[str], list[dict[str, Any]], list[Values]]] = {
    "its name and arguments": (
        ["<tool_call>", '{"name": "', "add", '", "arguments": ', '{"title": "', "각", '"}', "}"],
        [{"tool_calls": [ADD]}],
        [(-7.0, -5.0)],
    ),
    "two of them, and text": (
        ["네, add: ", '{"name": "add", "arguments": {"title": "각"}}',
         '{"name": "get", "arguments": {}}'],
        [{"content": "네, add: "}, {"tool_calls": [ADD, chat_call(1, "get", "{}", id="b")]}],
        [(-2.0, -2.0), (-3.0, -3.0)],
    ),
    "written differently by the server": (
        ["<tool_call>", "add(title='각')", " "],
        [{"tool_calls": [ADD]}],
        [(-2.0, -2.0)],
    ),
    "written differently, and text": (
        ["네", "add(title='각')"], [{"content": "네"}, {"tool_calls": [ADD]}], [NONE]
    ),
    "only the tokens of the text, as OpenAI": (
        ["네"], [{"content": "네"}, {"tool_calls": [ADD]}], [NONE]
    ),
}  # fmt: skip


@check_rows(("tokens", "deltas", "expected"), CHATS.values(), ids=CHATS)
async def test_chat_assigns_tokens_to_the_calls_of_the_server(
    tokens: list[str], deltas: list[dict[str, Any]], expected: list[Values]
) -> None:
    server = FakeVllm(streams(chat_events(tokens, deltas)))
    last = await finished(server, dialect="openai")
    assert pairs(last) == expected
    assert last.notes == (("incomplete_logprobs",) if NONE in expected else ())
    assert server.bodies[0]["logprobs"] is True


async def test_chat_with_missing_tokens_has_no_logprobs() -> None:
    events = chat_events(['{"name": "add", "arguments": {"title": "각"}}'], [{"tool_calls": [ADD]}])
    more = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    last = await finished(FakeVllm(streams([*events[:-1], more, DONE])), dialect="openai")
    assert (pairs(last), last.notes) == ([NONE], ("incomplete_logprobs",))


async def test_server_that_ignores_the_field_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = streams(completion(PIECES))
    without_call = streams(completion(["네"]))
    async with FakeVllm(without_call, plain, plain) as server, connected(server) as model:
        with caplog.at_level(logging.WARNING):
            results = [await last_of(model) for _ in range(3)]
    assert [each.notes for each in results] == [(), ("no_logprobs",), ("no_logprobs",)]
    assert [pairs(each) for each in results] == [[], [NONE], [NONE]]
    assert sum("no log-probabilities" in line for line in caplog.messages) == 1


REFUSALS: dict[str, tuple[int, str]] = {
    "llama.cpp": (400, "logprobs is not supported with tools + stream"),
    "an older llama.cpp": (500, "logprobs is not supported with tools + stream"),
    "a model that reasons": (403, "You are not allowed to request logprobs from this model"),
    "vLLM": (400, "Requested sample logprobs of 1, which is greater than max allowed: 0"),
    "a field": (422, "property 'logprobs' is unsupported"),
    "in words": (400, "Log probabilities are not available for this model"),
}


@pytest.mark.parametrize("dialect", ["json", "openai"])
@pytest.mark.parametrize(("status", "message"), REFUSALS.values(), ids=REFUSALS)
async def test_server_that_refuses_the_field_is_asked_without_it(
    status: int, message: str, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = answers(status, json.dumps({"error": {"message": message}}))
    chat = streams(chat_completion([{"tool_calls": [ADD]}], reason="tool_calls"))
    plain: Behaviour = chat if dialect == "openai" else streams(completion(PIECES))
    server = FakeVllm(refusal, plain, plain)
    async with server, connected(server, dialect=dialect) as model:
        with caplog.at_level(logging.WARNING):
            results = [await last_of(model) for _ in range(2)]
    assert [pairs(each) for each in results] == [[NONE], [NONE]]
    assert [(each.refused_fields, each.notes) for each in results] == [(("logprobs",), ())] * 2
    assert ["logprobs" in body for body in server.bodies] == [True, False, False]
    assert sum("refuses the fields logprobs" in line for line in caplog.messages) == 1


async def test_old_llama_cpp_that_refuses_the_field_is_asked_without_it() -> None:
    refusal = answers(400, json.dumps({"error": {"message": "n_probs is not available"}}))
    server = FakeLlamaCpp(refusal, streams(native(PIECES)))
    last = await finished(server)
    assert (pairs(last), last.refused_fields) == ([NONE], ("n_probs",))


def test_calls_with_and_without_logprobs_are_equal() -> None:
    assert ToolCall(name="a", args={}, min_logprob=-1.0) == ToolCall(name="a", args={})
