"""Read one streamed response from bytes."""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import (
    ContextTooLongError,
    ModelError,
    ServerFailedError,
    ServerOverloadedError,
    StreamBrokenError,
)
from lhkit.conversation.responses import Finished, ModelEvent, ModelIdentity, TextDelta, Usage
from lhkit.models.client.response import CompletionContent, ResponseReader
from lhkit.models.dialects import DIALECTS
from tests.models.fake_vllm import DONE, TOO_LONG, completion, event
from tests.rows import check_rows

IDENTITY = ModelIdentity(model="gemma")
CALL = '{"name": "log_water", "parameters": {"ml": 200}}'
TOKENS = ["네", "!", ' {"name": "log', '_water", "parameters": {"ml": ', "200", "}}", "\n", "끝"]


def reader(*, max_tokens: int = 256, clock: Callable[[], float] | None = None) -> ResponseReader:
    ticking = itertools.count().__next__
    made = ResponseReader(
        content=CompletionContent(DIALECTS["json"].incremental()),
        max_tokens=max_tokens,
        clock=clock or ticking,
    )
    made.mark_sent()
    return made


def finished(of: ResponseReader) -> Finished:
    return of.finished(identity=IDENTITY, prompt_text="p")


def read(*chunks: bytes, max_tokens: int = 256) -> tuple[list[ModelEvent], Finished]:
    it = reader(max_tokens=max_tokens)
    it.mark_headers()
    events = [event for chunk in chunks for event in it.feed(chunk)]
    return events, finished(it)


def chunk(**choice: Any) -> bytes:
    return event({"choices": [{"index": 0, **choice}]})


def test_reader_accepts_a_minimal_stream() -> None:
    events, last = read(
        chunk(text="안녕"),
        chunk(text="", finish_reason="stop"),
        chunk(text="", finish_reason="length"),  # the first word counts
        DONE,
        event({"error": "too late"}),
    )
    assert events == [TextDelta(text="안녕")]
    assert last.usage == Usage(prompt_tokens=0, completion_tokens=0, cached_tokens=None)
    assert (last.text, last.token_ids, last.server_metrics) == ("안녕", (), None)


def test_reader_treats_null_as_absent() -> None:
    nothing = {"usage": None, "metrics": None, "error": None, "choices": None}
    usage = {"prompt_tokens": None, "completion_tokens": None, "prompt_tokens_details": None}
    _, last = read(
        event(nothing),
        chunk(text=None, token_ids=None, finish_reason=""),
        chunk(text="네", token_ids=[7], finish_reason="stop"),
        event({"choices": [], "usage": usage}),
        DONE,
    )
    assert (last.text, last.usage.completion_tokens) == ("네", 1)


@check_rows("number", [7, 7.0, " 7 ", "7.0"])
def test_reader_accepts_usage_as_float_or_text(number: Any) -> None:
    usage = {
        "prompt_tokens": number,
        "completion_tokens": number,
        "prompt_tokens_details": {"cached_tokens": number},
    }
    end = event({"choices": [], "usage": usage})
    _, last = read(chunk(text="네", finish_reason="stop"), end, DONE, max_tokens=7)
    assert last.usage == Usage(prompt_tokens=7, completion_tokens=7, cached_tokens=7)
    assert {type(each) for each in astuple(last.usage)} == {int}
    assert last.truncated


@check_rows("number", ["many", 1e999, 7.5, "７", True, [7], "9" * 5000])
@check_rows("key", ["prompt_tokens", "completion_tokens"])
def test_reader_refuses_invalid_usage(key: str, number: Any) -> None:
    with pytest.raises(StreamBrokenError, match="an invalid event"):
        read(chunk(text="네", finish_reason="stop"), event({"usage": {key: number}}), DONE)


@pytest.mark.parametrize(
    ("reason", "max_tokens", "truncated"),
    [("length", 256, True), ("stop", 3, True), ("stop", 256, False)],
)
def test_reader_detects_truncation_by_reason_or_token_count(
    reason: str, max_tokens: int, *, truncated: bool
) -> None:
    _, last = read(*completion(["가", "나"], reason=reason), max_tokens=max_tokens)
    assert (last.reason, last.truncated) == (reason, truncated)


@check_rows("held", ["안녕 {", "```\nx\n```", "[", "말 <tool_", '{"name"', "  "])
def test_reader_yields_buffered_text_at_the_end(held: str) -> None:
    events, last = read(*completion(list(held)))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == last.text == held.strip()


@pytest.mark.longer
def test_reader_refuses_every_prefix_of_a_stream() -> None:
    body = b"".join(completion(TOKENS, cached_tokens=3))
    for end in range(len(body) - 1):  # the very last byte is an empty line
        with pytest.raises(StreamBrokenError, match="ended early after"):
            read(body[:end])
    read(body)


def test_reader_accepts_events_of_several_lines() -> None:
    body = b"".join(completion(TOKENS, cached_tokens=3))
    payloads = [json.loads(line[6:]) for line in body.split(b"\n\n") if b"{" in line]
    texts = [json.dumps(each, indent=1, ensure_ascii=False) for each in payloads]
    split = "".join(f"data: {text.replace(chr(10), chr(10) + 'data: ')}\n\n" for text in texts)
    for ends in ("\n", "\r", "\r\n"):
        events, last = read(("\ufeff" + split).replace("\n", ends).encode(), DONE)
        assert (events, last.text) == (read(body)[0], "네!\n끝")


def test_reader_accepts_events_without_blank_lines() -> None:
    body = b"".join(completion(TOKENS, cached_tokens=3))
    events, last = read(body.replace(b"\n\n", b"\n"), b"\n")
    assert (events, last.text) == (read(body)[0], "네!\n끝")


def test_reader_requires_a_reason_and_done() -> None:
    for body in ([DONE], [chunk(text="네"), DONE], [chunk(text="네", finish_reason="stop")], []):
        with pytest.raises(StreamBrokenError, match="check that the server is alive"):
            read(*body)


@given(sizes=st.lists(st.integers(1, 40), max_size=200))
def test_reader_reads_a_stream_in_any_chunks(sizes: Sequence[int]) -> None:
    body = b": keep-alive\n\n" + b"".join(completion([*TOKENS, "\u2028가"], cached_tokens=3))
    chunks, rest = [], body
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    events, last = read(*chunks, rest)
    whole_events, whole = read(body)
    assert _words(events) == _words(whole_events)
    for field in ("text", "calls", "raw_text", "token_ids", "usage", "server_metrics"):
        assert getattr(last, field) == getattr(whole, field)


def _words(events: Sequence[ModelEvent]) -> list[object]:
    merged: list[object] = []
    for each in events:
        if isinstance(each, TextDelta) and merged and isinstance(merged[-1], str):
            merged[-1] += each.text
        else:
            merged.append(each.text if isinstance(each, TextDelta) else each)
    return merged


@check_rows(
    ("body", "error", "sentence"),
    [
        (
            event(
                {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}
            ),
            ServerFailedError,
            "the server reported in its stream: engine died; look into its log",
        ),
        (event({"object": "error", "message": "old style", "code": 400}), ServerFailedError, "old"),
        (event({"type": "error", "message": "no room"}), ServerFailedError, "no room"),
        (event({"error": {"message": "retry", "code": "429"}}), ServerOverloadedError, "try later"),
        (event({"error": {"message": "odd", "code": [429]}}), ServerFailedError, "odd"),
        (event(json.loads(TOO_LONG)), ContextTooLongError, "clear it"),
        (
            b'event: error\ndata: {"message": "overloaded"}\n\n',
            ServerFailedError,
            "the server reported in its stream: overloaded; look into its log",
        ),
        (
            b'event: error\ndata: {"message": "later", "code": 503}\n\n',
            ServerOverloadedError,
            "later; try later",
        ),
        (b"event: error\ndata:\n\n", ServerFailedError, "reported in its stream"),
        (chunk(text="", finish_reason="abort"), ServerFailedError, "gave up .abort."),
        (b"data: <html>busy</html>\n\n", StreamBrokenError, "check that --base-url leads to"),
        (b"data: [1]\n\n", StreamBrokenError, "an invalid event"),
        (b"data: \n\n", StreamBrokenError, "an invalid event"),
        (b"data: " + b"[" * 100_000 + b"\n\n", StreamBrokenError, "an invalid event"),
        (event({"choices": [1]}), StreamBrokenError, "an invalid event"),
        (event({"usage": 3}), StreamBrokenError, "an invalid event"),
        (chunk(text=3), StreamBrokenError, "an invalid event"),
        (
            chunk(text="a", finish_reason="stop") + chunk(text="b"),
            StreamBrokenError,
            "went on after the end",
        ),
    ],
)
def test_reader_raises_typed_errors_with_advice(
    body: bytes, error: type[ModelError], sentence: str
) -> None:
    for before in (b"", chunk(text="네", token_ids=[1])):
        with pytest.raises(error, match=sentence):
            read(before, body, DONE)


def test_reader_times_chunks_by_arrival() -> None:
    moments = iter([100.0, 101.0, 102.0, 103.0, 104.5, 105.0, 106.0])
    it = reader(clock=lambda: next(moments))
    it.mark_headers()
    events = completion(["네! ", CALL[:9], CALL[9:]])
    assert len(events) == 6
    for data in [events[0], events[1], events[2] + events[3], events[4], events[5]]:
        assert isinstance(list(it.feed(data)), list)
    timing = finished(it).timing
    assert (timing.headers_s, timing.first_chunk_s, timing.first_token_s) == (1.0, 2.0, 2.0)
    assert (timing.first_text_s, timing.call_ready_s) == (2.0, 4.5)
    assert (timing.last_token_s, timing.done_s) == (4.5, 6.0)
    assert timing.chunk_gaps_s == (1.0, 1.5, 0.0)


def test_reader_keeps_a_first_time_of_zero() -> None:
    now = 5.0
    it = reader(clock=lambda: now)
    it.mark_headers()
    events = completion(["네", CALL, "끝", CALL])
    for data in events[:2]:
        list(it.feed(data))
    now = 6.0
    for data in events[2:]:
        list(it.feed(data))
    timing = finished(it).timing
    assert (timing.first_text_s, timing.call_ready_s, timing.done_s) == (0.0, 0.0, 1.0)


@given(
    pieces=st.lists(st.sampled_from(["네", " ", "{", CALL, CALL[:9], "[", "```"]), min_size=1),
    sizes=st.lists(st.integers(1, 400), max_size=60),
    reason=st.sampled_from(["stop", "length"]),
)
def test_reader_times_never_decrease(pieces: list[str], sizes: list[int], reason: str) -> None:
    body = b"".join(completion(pieces, reason=reason))
    chunks = []
    for size in sizes:
        chunks.append(body[:size])
        body = body[size:]
    _, last = read(*chunks, body)
    t = last.timing
    for shown in (t.first_text_s, t.call_ready_s):
        chain = [t.headers_s, t.first_chunk_s, t.first_token_s, shown, t.last_token_s, t.done_s]
        moments = [moment for moment in chain if moment is not None]
        assert moments == sorted(moments)
    assert (t.first_text_s is None) == (last.text == "")
    assert (t.call_ready_s is None) == (last.calls == ())
    assert None not in {t.headers_s, t.first_chunk_s, t.first_token_s, t.last_token_s, t.done_s}
    assert len(t.chunk_gaps_s) == len(last.token_ids) - 1


def test_reader_counts_silence_from_the_last_data_despite_comments() -> None:
    now = 0.0
    it = reader(clock=lambda: now)
    it.mark_headers()
    now = 3.0
    list(it.feed(b": keep-alive\n\n"))
    assert it.silent_s == 3.0
    list(it.feed(chunk(text="네")))
    now = 4.0
    assert it.silent_s == 1.0


LONG_S = 299.0


@check_rows(
    ("pieces", "is_progress"),
    [
        ([chunk(text="a"), chunk(text=" "), chunk(text="b")], True),
        ([chunk(text="", token_ids=[n]) for n in range(3)], True),
        ([chunk(delta={"reasoning": "a"}), chunk(delta={"thoughts": "b"})], True),
        ([chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})] * 2, True),
        ([chunk(delta={"tool_calls": [{"function": {"arguments": {"ml": 0}}}]})] * 2, True),
        ([chunk(delta={"content": [{"type": "text", "text": "a"}]})] * 2, True),
        ([event({"choices": [], "usage": {"completion_tokens": n}}) for n in range(1, 4)], True),
        ([event({"prompt_progress": {"total": 900, "processed": n}}) for n in range(3)], True),
        ([event({"prompt_progress": {"total": 900, "processed": 7}})] * 3, False),
        ([chunk(text="")] * 3, False),
        ([chunk(delta={})] * 3, False),
        ([chunk(delta={"role": "assistant", "content": ""})] * 3, False),
        ([chunk(delta={"role": "assistant", "content": None, "refusal": None})] * 3, False),
        ([chunk(delta={"content": [{"type": "text", "text": ""}]})] * 3, False),
        ([chunk(delta={"tool_calls": []})] * 3, False),
        (
            [chunk(delta={"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]})]
            * 3,
            False,
        ),
        ([event({"usage": {"completion_tokens": 3}})] * 3, False),
        ([event({"id": "c-1", "created": n}) for n in range(3)], False),
    ],
)
def test_reader_counts_silence_from_the_last_progress(
    pieces: list[bytes], *, is_progress: bool
) -> None:
    now = 0.0
    it = reader(clock=lambda: now)
    it.mark_headers()
    list(it.feed(pieces[0]))
    for piece in pieces[1:]:
        now += LONG_S
        list(it.feed(piece))
    assert it.silent_s == (0.0 if is_progress else LONG_S * (len(pieces) - 1))


@check_rows("ids", [["1"], [1.5], [None], [True]])
@check_rows("key", ["token_ids", "prompt_token_ids"])
def test_reader_refuses_invalid_token_ids(key: str, ids: list[Any]) -> None:
    """A record with them could be written and never be read again."""
    with pytest.raises(StreamBrokenError, match="an invalid event"):
        read(chunk(text="a", **{key: ids}))


@pytest.mark.parametrize(
    ("has_ids", "first_s", "last_s", "gaps_s"), [(False, 2, 6, (1, 1, 1, 1)), (True, 3, 5, (2,))]
)
def test_reader_counts_chunks_without_token_ids_like_vllm_bench(
    *, has_ids: bool, first_s: int, last_s: int, gaps_s: tuple[int, ...]
) -> None:
    """The stream is one of vLLM's; `endpoint_request_func.py` takes an empty text for a token."""
    stream = [
        {"text": "", "token_ids": []},
        {"text": "네", "token_ids": [7]},
        {"text": "", "token_ids": []},
        {"text": "!", "token_ids": [8]},
        {"text": "", "token_ids": [], "finish_reason": "stop"},
    ]
    it = reader()
    it.mark_headers()
    left_out = set() if has_ids else {"token_ids"}
    choices = [{key: each[key] for key in each.keys() - left_out} for each in stream]
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    for data in (*(chunk(**each) for each in choices), event(usage), DONE):
        list(it.feed(data))
    timing = finished(it).timing
    assert (timing.first_token_s, timing.last_token_s) == (first_s, last_s)
    assert timing.chunk_gaps_s == gaps_s
    assert finished(it).usage.completion_tokens == 4
