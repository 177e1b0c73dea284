"""Join the pieces of a chat response: shared indices, repeated calls and texts, halves."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.chat.controller import ChatController
from lhkit.conversation.events import EndReason, ModelCalled, TurnEnded, TurnStarted
from lhkit.conversation.messages import ToolCallMessage, UserMessage
from lhkit.conversation.responses import (
    Finished,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.records.turn_record import turn_record
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_pieces import TextPieces
from lhkit.models.client.openai_chat import ChatContent
from lhkit.models.client.request import chat_messages
from lhkit.models.client.response import ResponseReader
from lhkit.models.recorded.cassette import (
    Cassette,
    RequestContent,
    Response,
    TimedEvent,
    encode_cassette,
    read_cassette,
)
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.models import fake_vllm
from tests.rows import check_rows

KNOWN = ("add", "add_many", "list_all", "추가")
Piece = tuple[str | None, Any]


def piece(name: str | None, arguments: Any, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        **fields,
        "function": {key: value for key, value in function.items() if value is not None},
    }


def chunk(delta: Mapping[str, Any], reason: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def stream(*events: Mapping[str, Any], ensure_ascii: bool = False) -> bytes:
    texts = (json.dumps(event, ensure_ascii=ensure_ascii) for event in events)
    return "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"]).encode()


def read(chunks: Sequence[bytes]) -> tuple[list[Any], Finished]:
    clock: Iterator[float] = itertools.count(0.0, 0.25)
    reader = ResponseReader(content=ChatContent(KNOWN), max_tokens=64, clock=lambda: next(clock))
    reader.mark_sent()
    events = [event for part in chunks for event in reader.feed(part)]
    return events, reader.finished(identity=ModelIdentity(model="m"), prompt_text="")


def answer(*events: Mapping[str, Any]) -> Finished:
    return read([stream(*events)])[1]


def made(*events: Sequence[Mapping[str, Any]], reason: str = "tool_calls") -> list[Any]:
    chunks = [chunk({"tool_calls": list(pieces)}) for pieces in events]
    return [(call.name, call.args) for call in answer(*chunks, chunk({}, reason)).calls]


TWO: dict[str, tuple[list[Piece], list[Any]]] = {
    "another tool": (
        [("list_all", "{}"), ("add", '{"a":1}')],
        [("list_all", {}), ("add", {"a": 1})],
    ),
    "the same tool": (
        [("add", '{"a":1}'), ("add", '{"a":2}')],
        [("add", {"a": 1}), ("add", {"a": 2})],
    ),
    "three": (
        [("추가", '{"이름":"물"}'), ("list_all", "{}"), ("추가", '{"이름":"빵"}')],
        [("추가", {"이름": "물"}), ("list_all", {}), ("추가", {"이름": "빵"})],
    ),
    "no arguments, then some": (
        [("list_all", ""), ("add", '{"a":1}')],
        [("list_all", {}), ("add", {"a": 1})],
    ),
    "an empty object, then another": (
        [("list_all", "{}"), ("list_all", '{"tag":"x"}')],
        [("list_all", {}), ("list_all", {"tag": "x"})],
    ),
    "objects": ([("add", {"a": 1}), ("add", {"a": 2})], [("add", {"a": 1}), ("add", {"a": 2})]),
    "encoded twice": (
        [("add", '"{\\"a\\":1}"'), ("add", '"{\\"a\\":2}"')],
        [("add", {"a": 1}), ("add", {"a": 2})],
    ),
    "an unknown tool": (
        [("list_all", "{}"), ("erase", '{"a":1}')],
        [("list_all", {}), ("erase", {"a": 1})],
    ),
    "names with the same beginning": (
        [("add", '{"a":1}'), ("add_many", '{"a":[2]}')],
        [("add", {"a": 1}), ("add_many", {"a": [2]})],
    ),
    "a null": ([("list_all", "null"), ("add", '{"a":1}')], [("list_all", {}), ("add", {"a": 1})]),
}
SHARED: dict[str, dict[str, Any]] = {
    "index 0": {"index": 0},
    "index 0, empty id": {"index": 0, "id": ""},
    "index 0, no id": {"index": 0, "id": None, "type": "function"},
    "index 0, one id": {"index": 0, "id": "call_0"},
    "no index": {},
    "no index, empty id": {"id": ""},
    "index 1": {"index": 1},
}


@check_rows("in_one_event", [True, False])
@check_rows("shared", SHARED.values(), ids=SHARED)
@check_rows(("pieces", "expected"), TWO.values(), ids=TWO)
def test_calls_without_an_index_of_their_own_stay_apart(
    pieces: list[Piece], expected: list[Any], shared: dict[str, Any], *, in_one_event: bool
) -> None:
    if shared.get("id") and [name for name, _ in pieces] == ["list_all", "list_all"]:
        expected = expected[1:]  # with one id, an empty object before the arguments is no call
    sent = [piece(name, arguments, **shared) for name, arguments in pieces]
    assert made(*([sent] if in_one_event else [[each] for each in sent])) == expected


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("first", ["add", "list_all"])
@given(cuts=st.lists(st.integers(0, 20), max_size=4))
def test_calls_with_a_shared_index_may_be_cut_anywhere(
    shared: dict[str, Any], first: str, cuts: list[int]
) -> None:
    events = []
    for name, arguments in ((first, '{"a": "}{", "b": [1]}'), ("add", '{"a": "{\\"x"}')):
        ends = [0, *sorted(cuts), len(arguments)]
        parts = [arguments[start:end] for start, end in itertools.pairwise(ends)]
        events.append([piece(name, parts[0], **shared)])
        events += [[piece(None, part, **shared)] for part in parts[1:]]
    assert made(*events) == [(first, {"a": "}{", "b": [1]}), ("add", {"a": '{"x'})]


@check_rows("shared", list(SHARED.values())[:4], ids=list(SHARED)[:4])
@check_rows(
    "pieces",
    [
        [("add", '{"a":'), ("add", "1}")],
        [("add", ""), ("add", '{"a":1}')],
        [("add", '{"a":1}'), ("add", "")],
        [("add", '{"a":1}'), ("add", None)],
        [("add", '{"a":1}'), ("add", '{"a": 1}')],
        [("add", '{"a":1}'), (None, '{"a":1}')],
        [("a", ""), ("dd", '{"a":1}')],
        [("add", {"a": 1}), ("add", {"a": 1})],
        [("add", '{"a'), ("add", '":'), ("add", "1"), ("add", "}"), ("add", "")],
    ],
)
def test_a_call_that_is_continued_or_repeated_stays_one(
    pieces: list[Piece], shared: dict[str, Any]
) -> None:
    assert made(*[[piece(name, args, **shared)] for name, args in pieces]) == [("add", {"a": 1})]


def test_all_calls_sent_again_at_the_end_stay_as_many() -> None:
    sent = [[piece("add", json.dumps({"a": number}), index=0)] for number in (1, 2)]
    assert made(*sent, *sent) == [("add", {"a": 1}), ("add", {"a": 2})]


def test_a_repeated_call_lists_its_repair() -> None:
    sent = [piece("add", '{"a":1}', index=0)]
    events = [chunk({"tool_calls": sent})] * 2
    [call] = answer(*events, chunk({}, "tool_calls")).calls
    assert (call.args, call.repairs) == ({"a": 1}, ("repeated_arguments",))
    assert call.raw == 'add {"a":1}{"a":1}'


def test_pieces_without_a_name_follow_the_latest_call_of_their_index() -> None:
    sent = [
        [piece("add", "", index=0, id="x")],
        [piece(None, '{"a":1}', index=0)],
        [piece("add", "", index=0, id="y")],
        [piece(None, '{"a":', index=0)],
        [piece(None, "2}", index=0)],
    ]
    assert made(*sent) == [("add", {"a": 1}), ("add", {"a": 2})]


def test_a_call_without_function_is_read() -> None:
    sent = [{"index": 0, "id": "x", "name": "add", "arguments": '{"a":'}]
    assert made(sent, [{"index": 0, "arguments": "1}"}]) == [("add", {"a": 1})]


def test_a_single_call_that_is_not_in_a_list_is_read() -> None:
    delta = {"tool_calls": piece("add", '{"a":1}', index=0)}
    [call] = answer(chunk(delta, "tool_calls")).calls
    assert (call.name, call.args, call.repairs) == ("add", {"a": 1}, ())


def test_equal_calls_with_ids_of_their_own_stay_two() -> None:
    sent = [piece("add", '{"a":1}', index=0, id=name) for name in "xy"]
    assert made(sent) == [("add", {"a": 1})] * 2


def test_a_cut_call_of_a_shared_index_is_a_fragment() -> None:
    events = [chunk({"tool_calls": [piece("add", text, index=0)]}) for text in ('{"a":1}', '{"a":')]
    last = answer(*events, chunk({}, "length"))
    assert ([call.args for call in last.calls], last.fragment) == ([{"a": 1}], 'add {"a":')


GROWING = ['{"a"', '{"a": [1', '{"a": [1, "', '{"a": [1, "}"]', '{"a": [1, "}"]}']


@check_rows("named", [True, False])
@check_rows("pieces", [GROWING, [*GROWING, GROWING[-1]], [GROWING[1], GROWING[-1]]])
def test_cumulative_arguments_are_read_once(pieces: list[str], *, named: bool) -> None:
    sent = [
        piece("add" if named or number == 0 else None, text, index=0)
        for number, text in enumerate(pieces)
    ]
    events = [chunk({"tool_calls": [each]}) for each in sent]
    [call] = answer(*events, chunk({}, "tool_calls")).calls
    assert (call.name, call.args) == ("add", {"a": [1, "}"]})
    assert "cumulative_arguments" in call.repairs


def test_cumulative_names_are_read_once() -> None:
    sent = [[piece(name, "", index=0)] for name in ("ad", "add_m", "add_many")]
    assert made(*sent, [piece(None, "{}", index=0)]) == [("add_many", {})]


CUMULATIVE = [
    ["네", "네, 적", "네, 적을", "네, 적을게요."],
    ["H", "He", "Hel", "Hell", "Hello", "Hello."],
    ["I will add milk", "I will add milk to your list.", "I will add milk to your list. Done."],
    ["Hello", "Hello world"],
    ["Hel", "Hello"],
    ["H", "He", "Hello"],
    ["Hi", "Hi", "Hi t", "Hi there"],
    ["알겠습니다", "알겠습니다. 추가했어요."],
    ["Sure!", "Sure! It is", "Sure! It is", "Sure! It is on the list."],
]
PLAIN = [
    ["ha", "haha"],
    ["하", "하하", "하하하"],
    ["1", "10"],
    ["-", "--", "---", "----"],
    ["정말 ", "정말 좋아요"],
    ["No, ", "No, no."],
    ["네", "네"],
    ["The ", "The", " end"],
    ["very ", "very ", "very ", "good"],
    ["\n", "\n\n", "a"],
    ["Hello there, all of you", " and ", "Hello there, all of you too"],
    ["a", "an"],
    ["", "네", "", "요"],
]


@check_rows("key", ["content", "reasoning_content"])
@check_rows(
    ("pieces", "text", "is_cumulative"),
    [
        *((pieces, pieces[-1], True) for pieces in CUMULATIVE),
        *((pieces, "".join(pieces), False) for pieces in PLAIN),
    ],
)
def test_cumulative_text_is_read_once(
    pieces: list[str], text: str, key: str, *, is_cumulative: bool
) -> None:
    sent = [chunk({key: each}) for each in pieces]
    events, last = read([stream(*sent, chunk({"content": ""}, "stop"))])
    kind = TextDelta if key == "content" else ThinkingDelta
    assert "".join(each.text for each in events if isinstance(each, kind)) == text
    assert last.text == (text if key == "content" else "")
    assert last.notes == (("cumulative_text",) if is_cumulative else ())


def test_equal_pieces_are_not_held_back_for_long() -> None:
    pieces = TextPieces()
    shown = [pieces.add("네") for _ in range(10)]
    assert "".join(shown[:6]) == "네" * 6


@given(text=st.text(min_size=1), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_text_in_pieces_is_the_text(text: str, cuts: list[int]) -> None:
    """Pieces that only look as if they repeat the text lose nothing."""
    ends = [0, *sorted(cuts), len(text)]
    pieces = TextPieces(may_repeat=False)
    shown = [pieces.add(text[start:end]) for start, end in itertools.pairwise(ends)]
    assert "".join([*shown, pieces.close()]) == pieces.text == text


HALVES = ["\ud83d", "\ude00"]


def test_halves_of_a_character_in_two_events_are_one() -> None:
    events = [
        chunk({"content": f"좋아{HALVES[0]}"}),
        chunk({"content": f"{HALVES[1]}!"}),
        chunk({"reasoning": HALVES[0]}),
        chunk({"reasoning": HALVES[1]}),
        chunk({"tool_calls": [piece("add", f'{{"a":"{HALVES[0]}', index=0)]}),
        chunk({"tool_calls": [piece(None, f'{HALVES[1]}","b":"\\ud83d', index=0)]}),
        chunk({"tool_calls": [piece(None, '\\ude00"}', index=0)]}),
        chunk({}, "tool_calls"),
    ]
    shown, last = read([stream(*events, ensure_ascii=True)])
    assert last.text == "좋아😀!"
    assert [call.args for call in last.calls] == [{"a": "😀", "b": "😀"}]
    assert "".join(each.text for each in shown if isinstance(each, ThinkingDelta)) == "😀"
    last.raw_text.encode()


@check_rows("letter", ["é", "한", "😀"])
@check_rows("key", ["content", "reasoning", "arguments"])
def test_bytes_of_a_character_in_two_events_are_one(letter: str, key: str) -> None:
    data = letter.encode()
    for cut in range(1, len(data)):
        sent = []
        for part in ('"a<', ">\\n"):
            delta: dict[str, Any] = {key: part}
            if key == "arguments":
                delta = {"tool_calls": [piece("add" if "<" in part else None, part, index=0)]}
            sent.append(json.dumps(chunk(delta)).encode())
        raw = b"".join(b"data: " + event + b"\n\n" for event in sent)
        raw = raw.replace(b"<", data[:cut]).replace(b">", data[cut:])
        shown, last = read([raw, stream(chunk({}, "stop"))])
        thought = "".join(each.text for each in shown if isinstance(each, ThinkingDelta))
        assert f'"a{letter}\\n' in last.raw_text + thought


@check_rows("parts", [(b"a\xf0", b"b"), (b"a", b"\x80b"), (b"\xf0\x9f", b"\x98"), (b"a\xffb", b"")])
def test_bytes_that_are_no_character_are_refused(parts: tuple[bytes, bytes]) -> None:
    raw = b"".join(
        b"data: " + json.dumps(chunk({"content": "<"})).encode().replace(b"<", part) + b"\n\n"
        for part in parts
    )
    with pytest.raises(UnicodeDecodeError):
        read([raw, stream(chunk({}, "stop"))])


def test_a_half_without_the_other_stays() -> None:
    events = [chunk({"content": "a\ud83d"}), chunk({"content": "b\ud83d"}, "stop")]
    assert read([stream(*events, ensure_ascii=True)])[1].text == "a\ud83db\ud83d"


MIXED = [
    chunk({"content": "하나"}, index=0),
    chunk({"content": "둘"}, index=1),
    chunk({"tool_calls": [piece("add", '{"a":2}', index=0)]}, index=1),
    chunk({"tool_calls": [piece("add", '{"a":1}', index=0)]}, index=0),
    chunk({}, "stop", index=1),
    chunk({}, "tool_calls", index=0),
]


@pytest.mark.parametrize("events", [MIXED, [*MIXED[1:2], *MIXED[:1], *MIXED[2:]]])
def test_only_the_first_choice_is_read(events: list[dict[str, Any]]) -> None:
    last = answer(*events)
    assert (last.text, [call.args for call in last.calls]) == ("하나", [{"a": 1}])
    assert (last.reason, last.notes) == ("tool_calls", ("other_choices",))


def test_choices_in_one_event_are_not_joined() -> None:
    one, two = ({"index": i, "delta": {"content": text}} for i, text in enumerate(["one", "TWO"]))
    last = answer({"choices": [one, two]}, {"choices": [two, one]}, chunk({}, "stop"))
    assert (last.text, last.notes) == ("oneone", ("other_choices",))


def test_a_single_choice_of_another_index_is_read() -> None:
    last = answer(chunk({"content": "네"}, index=1), chunk({}, "stop", index=1))
    assert (last.text, last.reason, last.notes) == ("네", "stop", ())


REFUSALS = {
    "delta": [chunk({"content": None, "refusal": "그건 "}), chunk({"refusal": "못 해요."})],
    "message": [
        {"choices": [{"index": 0, "delta": {}, "message": {"refusal": "그건 못 해요."}}]},
    ],
    "parts": [chunk({"content": [{"type": "refusal", "refusal": "그건 못 해요."}]})],
    "repeated in a message": [
        chunk({"refusal": "그건 못 해요."}),
        {"choices": [{"index": 0, "delta": {}, "message": {"refusal": "그건 못 해요."}}]},
    ],
}


@check_rows("events", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_the_reply_and_is_noted(events: list[dict[str, Any]]) -> None:
    last = answer(*events, chunk({}, "stop"))
    assert (last.text, last.notes) == ("그건 못 해요.", ("refusal",))


def test_an_answer_without_refusal_has_no_note() -> None:
    assert answer(chunk({"content": "네", "refusal": None}), chunk({}, "stop")).notes == ()


SIGNED = {"google": {"thought_signature": "A/b+c=="}}


def followed(last: Finished) -> list[dict[str, Any]]:
    """The messages of the next request, after the calls were answered."""
    calls = [
        ToolCallMessage.of(name=call.name, args=call.args, result=ToolOk({}), index=number)
        for number, call in enumerate(last.calls)
    ]
    answered = [
        ToolCallMessage(call=call, outcome=message.outcome, index=message.index)
        for call, message in zip(last.calls, calls, strict=True)
    ]
    return chat_messages([UserMessage(text="u"), *answered])


def test_fields_of_calls_that_a_provider_wants_back_return_unchanged() -> None:
    signed = piece("add", '{"a":1}', index=0, id="f1", type="function", extra_content=SIGNED)
    other = piece("add", '{"a":2}', index=1, id="f2", type="function")
    other["function"]["thought_signature"] = "x=="
    last = answer(chunk({"tool_calls": [signed]}), chunk({"tool_calls": [other]}, "tool_calls"))
    sent = followed(last)[1]["tool_calls"]
    assert sent[0]["extra_content"] == SIGNED
    assert "extra_content" not in sent[1]
    assert sent[1]["function"] == {
        "name": "add",
        "arguments": '{"a":2}',
        "thought_signature": "x==",
    }
    assert "signature" not in repr(last.calls)


def test_reasoning_content_of_calls_returns_with_them() -> None:
    events = [
        chunk({"reasoning_content": "먼저 "}),
        chunk({"reasoning_content": "더하자."}),
        chunk({"reasoning_details": [{"type": "t", "index": 0, "text": "a"}]}),
        chunk({"reasoning_details": [{"type": "t", "index": 0, "text": "b", "signature": "s"}]}),
        chunk({"tool_calls": [piece("add", '{"a":1}', index=0)]}, "tool_calls"),
    ]
    message = followed(answer(*events))[1]
    assert message["reasoning_content"] == "먼저 더하자."
    assert message["reasoning_details"] == [
        {"type": "t", "index": 0, "text": "ab", "signature": "s"}
    ]
    assert message["role"] == "assistant"


def test_fields_that_return_are_in_cassettes_and_not_in_records(tmp_path: Path) -> None:
    signed = piece("add", '{"a":1}', index=0, extra_content=SIGNED)
    shown, last = read([stream(chunk({"tool_calls": [signed]}, "tool_calls"))])
    timed = tuple(TimedEvent.of(0.0, event) for event in [*shown, last])
    content = RequestContent(instructions="", tools=[], messages=[], sampling={})
    cassette = Cassette(
        identity=ModelIdentity(model="m"), responses=(Response(request=content, events=timed),)
    )
    file = tmp_path / "c.jsonl"
    file.write_text(encode_cassette(cassette), encoding="utf-8")
    event = read_cassette(file).responses[0].events[0].event
    assert isinstance(event, ToolCallParsed)
    assert event.call.echo == {"call": {"extra_content": SIGNED}}
    turn = turn_record(
        "u",
        (
            (0.0, TurnStarted(message=UserMessage(text="u"))),
            (0.0, ModelCalled(turn=0)),
            (1.0, last),
            (1.0, TurnEnded(reason=EndReason.ANSWERED)),
        ),
        destructive=(),
    )
    assert [call.echo for call in turn.model_calls[0].response.calls] == [None]


@pytest.mark.anyio
async def test_a_signature_returns_in_the_next_request_of_a_conversation() -> None:
    tools = ToolRegistry()

    @tools.tool(destructive=False)
    def add(a: int) -> dict[str, int]:
        """Add."""
        return {"a": a}

    signed = piece("add", '{"a":1}', index=0, id="f1", extra_content=SIGNED)
    first = stream(
        chunk({"reasoning_content": "음"}), chunk({"tool_calls": [signed]}, "tool_calls")
    )
    second = stream(chunk({"content": "네"}, "stop"))
    routes = {"/version": fake_vllm.answers(404, fake_vllm.NOT_FOUND)}
    behaviours = [fake_vllm.streams([first]), fake_vllm.streams([second])]
    async with (
        fake_vllm.FakeVllm(*behaviours, routes=routes) as server,
        fake_vllm.connected(server, dialect="openai") as model,
    ):
        chat = ChatController(model=model, dispatcher=ToolDispatcher(tools))
        await chat.user_turn("더해 줘")
    message = server.bodies[1]["messages"][1]
    assert message["tool_calls"][0]["extra_content"] == SIGNED
    assert message["reasoning_content"] == "음"


@pytest.mark.anyio
async def test_a_note_of_the_answers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    routes = {"/version": fake_vllm.answers(404, fake_vllm.NOT_FOUND)}
    refused = fake_vllm.streams([stream(*MIXED)])
    async with (
        fake_vllm.FakeVllm(refused, refused, routes=routes) as server,
        fake_vllm.connected(server, dialect="openai") as model,
    ):
        for _ in range(2):
            async for _ in model.stream(ModelRequest(messages=(UserMessage(text="u"),))):
                pass
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.split(" ", 1)[1] for line in lines] == [
        "sends several choices: only the first is read (logged once)"
    ]


def test_reasoning_under_another_name_does_not_return() -> None:
    call = piece("add", '{"a":1}', index=0)
    message = followed(answer(chunk({"reasoning": "음", "tool_calls": [call]}, "tool_calls")))[1]
    assert message.keys() == {"role", "content", "tool_calls"}


LAWS = [
    [chunk({"tool_calls": [piece("list_all", "{}", index=0), piece("add", '{"가":1}', index=0)]})],
    [chunk({"content": text}) for text in CUMULATIVE[0]],
    REFUSALS["delta"],
    MIXED[:4],
    [chunk({"tool_calls": [piece("add", text, index=0)]}) for text in GROWING],
]


@pytest.mark.longer
@check_rows("events", LAWS)
def test_the_answer_does_not_depend_on_where_its_bytes_are_cut(
    events: list[dict[str, Any]],
) -> None:
    raw = stream(*events, chunk({}, "stop"))
    shown, whole = read([raw])
    for cut in range(1, len(raw)):
        parts, last = read([raw[:cut], raw[cut:]])
        assert (parts, last.text, last.calls, last.raw_text, last.notes) == (
            shown,
            whole.text,
            whole.calls,
            whole.raw_text,
            whole.notes,
        )
