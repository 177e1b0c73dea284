"""Every `ChatModel` yields the same events for the same reply."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest

from lhkit.base.errors import ModelError, StreamBrokenError
from lhkit.base.json_values import compact
from lhkit.conversation.messages import ToolCall, UserMessage
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.cassette import CassetteModel, RecordingModel
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from tests.models.fake_llama_cpp import FakeLlamaCpp, native
from tests.models.fake_vllm import (
    FakeVllm,
    answers,
    chat_call,
    chat_completion,
    completion,
    streams,
)
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Maker: TypeAlias = Callable[..., AbstractAsyncContextManager[ChatModel]]

REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),))
WORDS = say("안녕하세요, 반가워요.")
CUT = Reply(text="네.", fragment='{"name": "log_water", "para')


@asynccontextmanager
async def scripted(*replies: Reply) -> AsyncIterator[ChatModel]:
    async with aclosing(ScriptedModel(replies, chunk_chars=3)) as model:
        yield model


@asynccontextmanager
async def served(*replies: Reply) -> AsyncIterator[ChatModel]:
    behaviours = [
        streams(_events_of(reply)[: -1 if reply.error else None], "drop" if reply.error else "end")
        for reply in replies
    ]
    async with (
        FakeVllm(*behaviours) as server,
        aclosing(await connect(Endpoint(base_url=server.base_url))) as model,
    ):
        yield model


@asynccontextmanager
async def served_by_llama_cpp(*replies: Reply) -> AsyncIterator[ChatModel]:
    behaviours = [
        streams(_native(reply)[: -1 if reply.error else None], "drop" if reply.error else "end")
        for reply in replies
    ]
    async with (
        FakeLlamaCpp(*behaviours) as server,
        aclosing(await connect(server.base_url)) as model,
    ):
        yield model


@asynccontextmanager
async def parsed_by_the_server(*replies: Reply) -> AsyncIterator[ChatModel]:
    behaviours = [
        streams(_deltas_of(reply)[: -1 if reply.error else None], "drop" if reply.error else "end")
        for reply in replies
    ]
    elsewhere = {"/version": answers(404, "")}
    async with (
        FakeVllm(*behaviours, routes=elsewhere) as server,
        aclosing(await connect(Endpoint(base_url=server.base_url, dialect="openai"))) as model,
    ):
        yield model


@asynccontextmanager
async def recorded(*replies: Reply) -> AsyncIterator[ChatModel]:
    with TemporaryDirectory() as folder:
        inner = ScriptedModel(replies, chunk_chars=3)
        async with aclosing(RecordingModel(inner, Path(folder) / "cassette.json")) as model:
            yield model


@asynccontextmanager
async def replayed(*replies: Reply) -> AsyncIterator[ChatModel]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cassette.json"
        async with aclosing(RecordingModel(ScriptedModel(replies, chunk_chars=3), path)) as model:
            for _ in replies:
                await heard(model)
        async with aclosing(CassetteModel.open(path)) as model:
            yield model


def _events_of(reply: Reply) -> list[bytes]:
    return completion(_tokens_of(reply), reason="length" if reply.fragment else "stop")


def _native(reply: Reply) -> list[bytes]:
    return native(_tokens_of(reply), stop_type="limit" if reply.fragment else "eos")


def _tokens_of(reply: Reply) -> list[str]:
    calls = [DIALECTS["json"].render_call(each.name, each.args) for each in reply.calls]
    raw = "\n".join(part for part in [reply.text, *calls, reply.fragment] if part)
    return [raw[start : start + 3] for start in range(0, len(raw), 3)]


def _deltas_of(reply: Reply) -> list[bytes]:
    words = [{"content": reply.text[i : i + 3]} for i in range(0, len(reply.text), 3)]
    calls = [(call.name, compact(call.args)) for call in reply.calls]
    calls += [("", reply.fragment)] if reply.fragment else []
    pieces = [
        chat_call(number, name if not start else None, arguments[start : start + 3])
        for number, (name, arguments) in enumerate(calls)
        for start in range(0, len(arguments), 3)
    ]
    deltas = [*words, *({"tool_calls": [piece]} for piece in pieces)]
    reason = "length" if reply.fragment else "tool_calls" if reply.calls else "stop"
    return chat_completion(deltas, reason=reason, token_ids=False)


MAKERS = {
    "ScriptedModel": scripted,
    "VllmHttp": served,
    "LlamaCppHttp": served_by_llama_cpp,
    "OpenAiHttp": parsed_by_the_server,
    "RecordingModel": recorded,
    "CassetteModel": replayed,
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def model_of(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker


async def heard(model: ChatModel) -> list[ModelEvent]:
    return [event async for event in model.stream(REQUEST)]


async def heard_before_it_failed(model: ChatModel, into: list[ModelEvent]) -> None:
    async for event in model.stream(REQUEST):
        into.append(event)


def outline(events: list[ModelEvent]) -> list[Any]:
    """What happened, without how the words were cut and what only a server can tell."""
    out: list[Any] = []
    for event in events:
        match event:
            case TextDelta(text=text) if out and isinstance(out[-1], str):
                out[-1] += text
            case TextDelta(text=text):
                out.append(text)
            case ThinkingDelta():
                continue
            case ToolCallParsed(call=made):
                out.append((made.name, made.args, made.repairs))
            case Finished(text=text, calls=calls, fragment=fragment, truncated=truncated):
                names = [made.name for made in calls]
                out.append({"text": text, "calls": names, "cut": fragment, "truncated": truncated})
    return out


@check_rows(
    ("reply", "events"),
    [
        (
            WORDS,
            [WORDS.text, {"text": WORDS.text, "calls": [], "cut": "", "truncated": False}],
        ),
        (
            call("log_water", ml=200),
            [
                ("log_water", {"ml": 200}, ()),
                {"text": "", "calls": ["log_water"], "cut": "", "truncated": False},
            ],
        ),
        (
            Reply(
                text="네.",
                calls=(
                    ToolCall(name="f", args={"a": "010", "b": [True, None, 1.5]}),
                    ToolCall(name="g", args={}),
                ),
            ),
            [
                "네.",
                ("f", {"a": "010", "b": [True, None, 1.5]}, ()),
                ("g", {}, ()),
                {"text": "네.", "calls": ["f", "g"], "cut": "", "truncated": False},
            ],
        ),
        (
            CUT,
            ["네.", {"text": "네.", "calls": [], "cut": CUT.fragment, "truncated": True}],
        ),
        (Reply(), [{"text": "", "calls": [], "cut": "", "truncated": False}]),
    ],
    ids=["words", "one call", "words and parallel calls", "cut call", "nothing"],
)
async def test_stream_yields_events_in_order(
    model_of: Maker, reply: Reply, events: list[Any]
) -> None:
    async with model_of(reply) as model:
        heard_events = await heard(model)
    assert outline(heard_events) == events
    assert isinstance(heard_events[-1], Finished)


async def test_stream_finished_event_names_the_model(model_of: Maker) -> None:
    async with model_of(WORDS) as model:
        last = (await heard(model))[-1]
        assert isinstance(last, Finished)
        assert last.identity == model.identity
        assert last.raw_text == WORDS.text
        assert last.strict


@pytest.mark.parametrize(
    "model_of",
    [scripted, served, parsed_by_the_server, recorded],
    indirect=True,
)  # a failure is not recorded, so no cassette replays one
async def test_stream_raises_on_an_infrastructure_error(
    model_of: Maker,
) -> None:
    failing = replace(WORDS, error=StreamBrokenError("gone: look"))
    async with model_of(failing, WORDS) as model:
        events: list[ModelEvent] = []
        with pytest.raises(ModelError):
            await heard_before_it_failed(model, events)
        assert outline(events) == [WORDS.text]
        assert isinstance((await heard(model))[-1], Finished)


async def test_stream_can_be_closed_early(model_of: Maker) -> None:
    async with model_of(WORDS, call("f")) as model:
        async with aclosing(model.stream(REQUEST)) as events:  # type: ignore[type-var]
            async for event in events:
                assert isinstance(event, TextDelta)
                break
        assert outline(await heard(model))[0] == ("f", {}, ())


async def test_stream_sends_no_request_before_the_first_event(model_of: Maker) -> None:
    async with model_of(WORDS) as model:
        unused = model.stream(REQUEST)
        async with aclosing(unused):  # type: ignore[type-var]
            pass
        assert outline(await heard(model))[0] == WORDS.text
