"""Record responses to a cassette and replay them."""

import errno
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import CassetteError, StreamBrokenError, UsageError
from lhkit.conversation.messages import (
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    Sampling,
    TextDelta,
    ThinkingDelta,
    Timing,
    ToolCallParsed,
    Usage,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.recorded.cassette import (
    Cassette,
    CassetteModel,
    RecordingModel,
    encode_cassette,
    read_cassette,
)
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from tests.hostile import json_values
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

IDENTITY = ModelIdentity(model="gemma", server="vllm 0.32.0", base_url="http://a", dialect="json")
TOOL = ToolDefinition(
    name="log_water",
    description="물을 적는다.",
    parameters={"type": "object", "properties": {"ml": {"type": "integer"}}},
    handler=lambda _args, _deps: ToolCancelled(),
)
REQUEST = ModelRequest(
    messages=(
        UserMessage(text="물 200ml 마셨어", context="2026-11-22"),
        ToolCallMessage.of(name="log_water", args={"ml": 200}, result=ToolOk(data={"총": 200})),
        ToolCallMessage.of(name="f", args=None, result=ToolErr(code="validation", reason="ml?")),
        ToolCallMessage.of(name="f", args={}, result=ToolCancelled(), index=1),
        ModelMessage(text="적었어요."),
        UserMessage(text="고마워"),
    ),
    tools=(TOOL,),
    instructions="Answer in Korean.\nBe short.",
)
HELLO = ModelRequest(messages=(UserMessage(text="안녕"),))
CALL = ToolCall(
    name="f",
    args={"text": "줄\n" * 40, "a": {"text": ["b", "c"]}},  # not texts of ours: left as they are
    raw="f()",
    repairs=("quotes",),
)
EVENTS: tuple[ModelEvent, ...] = (
    ThinkingDelta(text="음"),
    TextDelta(text="네"),
    ToolCallParsed(call=CALL),
    Finished(
        reason="stop",
        text="네",
        calls=(CALL,),
        fragment="{",
        truncated=True,
        usage=Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=0),
        timing=Timing(headers_s=0.1, done_s=1 / 3, chunk_gaps_s=(0.1, 1e-9)),
        raw_text="네f(){",
        token_ids=tuple(range(200)),
        prompt_token_ids=(2, 105),
        prompt_text="<bos>\n물",
        prompt_sha256="00",
        identity=IDENTITY,
        server_metrics={"queue_ms": 0.5},
    ),
)


class EventModel:
    """A model that yields given events, then raises the given error."""

    identity = IDENTITY

    def __init__(self, events: Iterable[ModelEvent], error: Exception | None = None) -> None:
        self._events = tuple(events)
        self._error = error
        self.is_closed = False

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for event in self._events:
            yield event
        if self._error:
            raise self._error

    async def aclose(self) -> None:
        self.is_closed = True


def ticking(step_s: float = 0.5) -> Callable[[], float]:
    ticks = count()
    return lambda: 100.0 + next(ticks) * step_s


async def collect(model: ChatModel, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def record(path: Path, inner: ChatModel, *requests: ModelRequest) -> list[list[ModelEvent]]:
    async with aclosing(RecordingModel(inner, path, clock=ticking())) as model:
        return [await collect(model, request) for request in requests]


async def refusal(path: Path, request: ModelRequest) -> str:
    """Return the error message for a request that the cassette does not have."""
    with pytest.raises(CassetteError) as caught:
        await collect(CassetteModel.open(path), request)
    return str(caught.value)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def files_by(path: Path) -> list[str]:
    """Files in the folder of the cassette."""
    return [each.name for each in path.parent.glob("*")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "cassette.jsonl"


characters = st.text(st.characters(exclude_categories=()), max_size=80)
texts = characters.map(lambda text: json.loads(json.dumps(text))) | st.sampled_from(
    ["물\n" * 40, "\ud800", "\x00\x1b\r\n\u2028\x85" * 20, "각\n각\n" * 20]
)
whole = st.text(max_size=20) | st.sampled_from(["\ud800", "물\udc00\n"])
JSON_VALUES = json_values(whole)
calls = st.builds(
    ToolCall, name=whole, args=JSON_VALUES, raw=texts, repairs=st.lists(whole).map(tuple)
)
times_s = st.none() | st.floats(min_value=0, max_value=1e6)
deltas = (
    st.builds(TextDelta, text=texts)
    | st.builds(ThinkingDelta, text=texts)
    | st.builds(ToolCallParsed, call=calls)
)
endings = st.builds(
    Finished,
    reason=whole,
    text=texts,
    calls=st.lists(calls, max_size=2).map(tuple),
    fragment=texts,
    truncated=st.booleans(),
    usage=st.builds(Usage, cached_tokens=st.none() | st.integers(min_value=0)),
    timing=st.builds(Timing, headers_s=times_s, done_s=times_s),
    raw_text=texts,
    token_ids=st.lists(st.integers(min_value=0)).map(tuple),
    prompt_text=texts,
    identity=st.none() | st.builds(ModelIdentity, model=whole, constraint=whole),
    server_metrics=st.none() | st.dictionaries(whole, JSON_VALUES, max_size=3),
)


@pytest.mark.longer
@given(before=st.lists(deltas, max_size=4), end=endings, text=texts, args=JSON_VALUES)
async def test_cassette_replays_any_events_for_any_request(
    before: list[ModelEvent], end: Finished, text: str, args: Any
) -> None:
    made = ToolCallMessage.of(name="f", args=args, result=ToolOk(data={"a": args}), raw=text)
    request = ModelRequest(messages=(UserMessage(text=text), made), instructions=text)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cassette.jsonl"
        await record(path, EventModel([*before, end]), request)
        again = await collect(CassetteModel.open(path), request)
    assert repr(again) == repr([*before, end])  # 1 is not 1.0 and not True


@pytest.mark.parametrize("pace", [0.0, 0.5, 2.0])
async def test_cassette_replays_all_events_at_a_pace_with_the_recorded_clock(
    path: Path, pace: float
) -> None:
    assert await record(path, EventModel(EVENTS), REQUEST, HELLO) == [list(EVENTS)] * 2
    waited_s: list[float] = []

    async def wait(seconds: float) -> None:
        waited_s.append(seconds)

    model = CassetteModel.open(path, pace=pace, sleep=wait)
    assert (model.identity, model.clock()) == (IDENTITY, 0.0)
    for request, clock_s in ((REQUEST, 2.0), (HELLO, 4.0)):  # an event takes half a second
        assert await collect(model, request) == list(EVENTS)
        assert model.clock() == pytest.approx(clock_s)
    assert waited_s == [pytest.approx(0.5 * pace)] * 8 if pace else waited_s == []


@pytest.mark.parametrize("pace", [-1.0, float("nan"), float("inf")])
async def test_cassette_refuses_an_invalid_pace(path: Path, pace: float) -> None:
    await record(path, EventModel(EVENTS), REQUEST)
    with pytest.raises(UsageError, match="Invalid pace"):
        CassetteModel.open(path, pace=pace)


async def test_cassette_replays_repeated_requests_in_order_and_then_the_last(path: Path) -> None:
    inner = ScriptedModel([say("하나"), say("다른"), say("둘")])
    one, _, two = await record(path, inner, REQUEST, HELLO, REQUEST)
    model = CassetteModel.open(path)
    assert [await collect(model) for _ in range(4)] == [one, two, two, two]
    assert await collect(CassetteModel.open(path)) == one


async def test_cassette_ignores_what_is_not_sent_to_a_model(path: Path) -> None:
    await record(path, EventModel(EVENTS), REQUEST)
    same = replace(
        REQUEST,
        messages=(SystemMessage(text="대화를 지울까요?"), *REQUEST.messages),
        tools=(replace(TOOL, is_destructive=True, timeout_s=1.0),),
        sampling=Sampling(temperature=0),
    )
    assert await collect(CassetteModel.open(path), same) == list(EVENTS)


async def test_cassette_compares_result_limits_only_where_they_cut(path: Path) -> None:
    whole = REQUEST.messages[1]
    assert isinstance(whole, ToolCallMessage)
    outcome = ToolCallOutcome(result=ToolOk(data={"text": "가" * 2_000}))
    long = replace(whole, outcome=outcome)
    for message in (whole, long):
        await record(path, EventModel(EVENTS), with_message(1, message))
        assert "max_bytes" not in text_of(path)
        other = with_message(1, replace(message, max_bytes=4_096, hint="less, please"))
        if message is whole:
            assert await collect(CassetteModel.open(path), other) == list(EVENTS)
        else:
            assert "max_bytes" in await refusal(path, other)


def with_message(index: int, message: Any) -> ModelRequest:
    messages = list(REQUEST.messages)
    messages[index] = message
    return replace(REQUEST, messages=tuple(messages))


@pytest.mark.parametrize(
    ("asked", "part", "gone", "new"),
    [
        (replace(REQUEST, instructions="Answer in English."), "instructions", "Korean", "English"),
        (
            replace(REQUEST, tools=(replace(TOOL, description="물 기록"),)),
            "tools",
            "물을 적는다.",
            "물 기록",
        ),
        (replace(REQUEST, tools=()), "tools", "log_water", "[]"),
        (with_message(5, UserMessage(text="잘가")), "message 6", "고마워", "잘가"),
        (
            with_message(0, UserMessage(text="물 200ml 마셨어", context="2026-11-23")),
            "message 1",
            "2026-11-22",
            "2026-11-23",
        ),
        (
            with_message(
                1, ToolCallMessage.of(name="log_water", args={"ml": 2}, result=ToolOk(data={}))
            ),
            "message 2",
            '"ml": 200',
            '"ml": 2',
        ),
        (replace(REQUEST, sampling=Sampling(max_tokens=8)), "sampling", "256", "8"),
    ],
    ids=["instructions", "tool", "no tools", "last", "context", "call", "sampling"],
)
async def test_cassette_refuses_an_unknown_request_with_a_diff(
    path: Path, asked: ModelRequest, part: str, gone: str, new: str
) -> None:
    await record(path, ScriptedModel([]), HELLO, REQUEST)
    sentence, *diff = (await refusal(path, asked)).split("\n")
    assert str(path) in sentence
    assert f"nearest recorded one in {part}: record it again" in sentence
    assert diff[:2] == [f"--- recorded {part}", f"+++ new {part}"]
    assert gone in "".join(line for line in diff[2:] if line.startswith("-"))
    assert new in "".join(line for line in diff[2:] if line.startswith("+"))


@pytest.mark.parametrize(
    ("messages", "sign", "part"),
    [
        (REQUEST.messages[:5], "-", "message 6"),
        ((*REQUEST.messages, UserMessage(text="또")), "+", "message 7"),
    ],
    ids=["one less", "one more"],
)
async def test_cassette_diff_names_a_missing_or_additional_message(
    path: Path, messages: Any, sign: str, part: str
) -> None:
    await record(path, ScriptedModel([]), REQUEST)
    message = await refusal(path, replace(REQUEST, messages=messages))
    assert f"one in {part}:" in message
    assert {line[0] for line in message.split("\n")[4:]} == {sign}


async def test_cassette_diff_names_all_changes_and_is_cut(path: Path) -> None:
    await record(path, ScriptedModel([]), REQUEST)
    asked = replace(REQUEST, instructions="줄\n" * 90, sampling=Sampling(seed=1))
    message = await refusal(path, asked)
    assert "in instructions and sampling:" in message
    assert "more lines" in message
    assert len(message.split("\n")) < 40


async def test_cassette_diff_shows_the_change_in_a_long_line(path: Path) -> None:
    await record(path, ScriptedModel([]), replace(HELLO, instructions="가" * 500 + "old"))
    message = await refusal(path, replace(HELLO, instructions="가" * 500 + "new"))
    shown = [line for line in message.split("\n")[4:] if line[0] in "-+"]
    assert [("old" in line, "new" in line) for line in shown] == [(True, False), (False, True)]


async def test_cassette_diff_escapes_control_characters(path: Path) -> None:
    await record(path, ScriptedModel([]), HELLO)
    message = await refusal(path, replace(HELLO, instructions="\x9b2J \u202e \ud800"))
    assert message.replace("\n", "").isprintable()


OTHER = replace(REQUEST, instructions="다른 지시", sampling=Sampling(seed=3))


def spoken(text: str) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text=text),))


@pytest.mark.parametrize(
    ("recorded", "asked", "phrase"),
    [
        (
            [with_message(0, UserMessage(text="걸었어")), OTHER],
            with_message(5, UserMessage(text="잘가")),
            "in instructions and sampling and message 6:",
        ),
        ([OTHER, replace(REQUEST, sampling=Sampling(seed=4))], REQUEST, "in sampling:"),
        (
            [spoken("물 200ml 마셨어"), spoken("오늘 기분 좋아"), spoken("어제 늦게 잤어")],
            spoken("오늘 기분 나빠"),
            "오늘 기분 좋아",
        ),
        ([HELLO], spoken(normalize("NFD", "안녕")), "look the same: one has composed Korean"),
    ],
    ids=["longest shared conversation", "fewest changes", "most alike words", "normalization"],
)
async def test_cassette_diff_takes_the_most_similar_request(
    path: Path, recorded: list[ModelRequest], asked: ModelRequest, phrase: str
) -> None:
    await record(path, ScriptedModel([]), *recorded)
    assert phrase in await refusal(path, asked)


async def test_cassette_file_leaves_out_repeated_fields(path: Path) -> None:
    other = with_message(5, UserMessage(text="잘가"))
    await record(path, ScriptedModel([]), REQUEST, other, REQUEST)
    text = text_of(path)
    assert text.count(TOOL.description) == 1
    assert text.count("Be short.") == 1


async def test_recording_skips_an_abandoned_response(path: Path) -> None:
    model = RecordingModel(ScriptedModel([say("아주 긴 대답이라 여러 조각"), say("둘")]), path)
    async with aclosing(model.stream(REQUEST)) as events:
        await anext(events)
    assert files_by(path) == []
    second = await collect(model)
    assert await collect(CassetteModel.open(path)) == second
    assert len(read_cassette(path).responses) == 1


async def test_recording_passes_model_errors_through(path: Path) -> None:
    failure = StreamBrokenError("gone: look")
    model = RecordingModel(EventModel(EVENTS[:2], error=failure), path)
    with pytest.raises(StreamBrokenError) as caught:
        await collect(model)
    assert caught.value is failure
    await model.aclose()
    assert files_by(path) == []


async def test_recording_saves_a_response_before_its_last_event(path: Path) -> None:
    model = RecordingModel(EventModel(EVENTS), path)
    for done in (1, 2):
        async for event in model.stream(REQUEST):
            if isinstance(event, Finished):
                assert len(read_cassette(path).responses) == done


async def test_recording_keeps_the_old_file_if_a_write_fails_and_retries_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = RecordingModel(ScriptedModel([say("하나"), say("둘")]), path)
    await collect(model)
    before = text_of(path)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", disk_full)
        with pytest.raises(CassetteError, match="cannot be written"):
            await collect(model)
    assert text_of(path) == before
    await model.aclose()
    assert len(read_cassette(path).responses) == 2
    assert files_by(path) == ["cassette.jsonl"]


def disk_full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), descriptor)


async def test_recording_closes_the_inner_model_if_a_write_fails() -> None:
    inner = EventModel(EVENTS)
    model = RecordingModel(inner, "/dev/null/cassette.jsonl")
    with pytest.raises(CassetteError, match="cannot be written"):
        await collect(model)
    with pytest.raises(CassetteError, match="cannot be written"):
        await model.aclose()
    assert inner.is_closed


async def test_recording_without_responses_keeps_an_old_cassette(path: Path) -> None:
    await record(path, EventModel(EVENTS), REQUEST)
    before = text_of(path)
    await record(path, EventModel(EVENTS))
    assert text_of(path) == before


async def test_recording_separates_concurrent_conversations(path: Path) -> None:
    inner = ScriptedModel(lambda request: say(request.instructions * 5))
    model = RecordingModel(inner, path)
    requests = [replace(HELLO, instructions=name) for name in ("물을", "걷기", "잠을")]
    streams = [model.stream(request) for request in requests]
    mixed: list[list[ModelEvent]] = [[], [], []]
    for _ in range(3):  # two pieces of text and the end, in turn
        for events, into in zip(streams, mixed, strict=True):
            into.append(await anext(events))
    for events in streams:
        await events.aclose()
    replaying = CassetteModel.open(path)
    assert [await collect(replaying, request) for request in requests] == mixed
    assert [isinstance(each[-1], Finished) for each in mixed] == [True] * 3


async def test_recording_refuses_invalid_json_and_keeps_other_responses(path: Path) -> None:
    replies = [Reply(calls=(ToolCall(name="f", args={"a": float("nan")}),)), call("g")]
    model = RecordingModel(ScriptedModel(replies), path)
    with pytest.raises(CassetteError, match=r"cannot be recorded: nan is not"):
        await collect(model)
    nan = ToolCallMessage.of(name="f", args=float("nan"), result=ToolCancelled())
    with pytest.raises(CassetteError, match=r"cannot be recorded or replayed: nan is not"):
        await collect(model, with_message(1, nan))
    second = await collect(model)
    assert await collect(CassetteModel.open(path)) == second


HEAD = encode_cassette(Cassette(identity=IDENTITY))
END = {"at_s": 1.0, "finished": {"reason": "stop"}}


def with_events(*events: Any, **more: Any) -> str:
    request = {"instructions": "", "tools": [], "sampling": {}, "messages": []}
    return HEAD + json.dumps({"request": request, "events": events, **more})


@check_rows(
    ("content", "phrase"),
    [
        (HEAD + '{"request": }', "a.jsonl:2: Expecting value"),
        ("", "a.jsonl:1: Expecting value"),
        ('{"cassette": NaN}', "a.jsonl:1: NaN is not JSON"),
        ("[" * 100_000, "a.jsonl:1: "),
        ("[]", "a.jsonl:1: field cassette"),
        (HEAD.replace("2", "1", 1), "a.jsonl:1: field cassette: Input should be 2"),
        ('{"cassette": 2}', "a.jsonl:1: field identity: Field required"),
        (with_events(END, nope=1), "a.jsonl:2: field nope: "),
        (
            with_events({"at_s": 0, "text": 5}, END),
            "a.jsonl:2: field events.0.text: Input should be a valid string",
        ),
        (HEAD + '{"request": {}, "events": []}', "2: field request.instructions: Field required"),
        (with_events({"at_s": -1, "text": ""}, END), "a.jsonl:2: field events.0.at_s: "),
        (with_events(), "a.jsonl:2: field events: the last event and no other"),
        (with_events(END, END), "a.jsonl:2: field events: the last event and no other"),
        (with_events({"at_s": 0}, END), "a.jsonl:2: field events: give one of text"),
    ],
)
def test_cassette_refuses_an_invalid_file_with_its_place(
    tmp_path: Path, content: str, phrase: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(CassetteError) as caught:
        CassetteModel.open(path)
    assert phrase in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "record it again" in str(caught.value)


def test_cassette_refuses_a_pipe_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(CassetteError, match=r"pipe\.jsonl is not a regular file"):
        CassetteModel.open(tmp_path / "pipe.jsonl")


def test_cassette_refuses_a_binary_or_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'"\xff"')
    with pytest.raises(CassetteError, match=r"a\.jsonl:1: .*utf-8"):
        CassetteModel.open(tmp_path / "a.jsonl")
    with pytest.raises(CassetteError, match=r"b\.jsonl .*record one with RecordingModel"):
        CassetteModel.open(tmp_path / "b.jsonl")


async def test_cassette_reports_that_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(encode_cassette(Cassette(identity=IDENTITY)))
    with pytest.raises(CassetteError, match=r"a\.jsonl is empty: record it again"):
        await collect(CassetteModel.open(tmp_path / "a.jsonl"))
