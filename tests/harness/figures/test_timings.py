"""Durations of requests and turns, by the definitions of `vllm bench serve`, and of a run."""

from typing import Any

import pytest

from lhkit.conversation.events import EndReason, ModelCalled, TurnEnded
from lhkit.conversation.messages import GateOutcome
from lhkit.conversation.responses import Finished, TextDelta, Timing, Usage
from lhkit.harness.figures.timings import is_warm, times
from lhkit.harness.records.manifest import Invocation, Manifest
from lhkit.harness.records.record import CallRecord, ModelCallRecord, TurnRecord
from lhkit.harness.records.wall_clock import TimeBreakdown, WallClock
from tests.harness.build import FAIL, INVALID, PASS, model_call, sample, turn_of
from tests.rows import check_rows

TIMING = Timing(
    headers_s=0.1,
    first_chunk_s=0.2,
    first_token_s=0.3,
    first_text_s=0.4,
    call_ready_s=0.8,
    last_token_s=1.3,
    done_s=1.4,
    chunk_gaps_s=(0.5, 0.5),
)


def request(offset_s: float = 0.0, timing: Timing = TIMING, **usage: Any) -> ModelCallRecord:
    counts = Usage(**{"prompt_tokens": 100, "completion_tokens": 3, **usage})
    return model_call(1.5, offset_s, timing=timing, usage=counts)


def turn(*requests: ModelCallRecord, **more: Any) -> TurnRecord:
    return turn_of(*requests, duration_s=9.0, **more)


def p50(turn: TurnRecord, *stages: str) -> list[float | None]:
    stages_found = times([sample("s", PASS, 0, turn)])
    return [stages_found[stage].p50_s for stage in stages]


def test_times_of_request_start_at_its_sending() -> None:
    stages = ("first_byte", "first_token", "first_text", "call_ready", "last_token")
    assert p50(turn(request()), *stages) == [0.1, 0.3, 0.4, 0.8, 1.3]


def test_per_token_excludes_first_token() -> None:
    assert p50(turn(request()), "per_token") == [pytest.approx((1.3 - 0.3) / 2)]
    assert p50(turn(request(completion_tokens=1)), "per_token") == [None]
    assert p50(turn(request(timing=Timing())), "per_token") == [None]


def test_token_gaps_are_pooled_over_requests() -> None:
    record_of_turn = turn(request(), request(timing=Timing(chunk_gaps_s=(2.0,))))
    gaps = times([sample("s", PASS, 0, record_of_turn)])["token_gap"]
    assert (gaps.n, gaps.p50_s) == (3, 0.5)


def test_times_of_turn_exclude_waiting() -> None:
    silent = Timing(first_token_s=0.3, call_ready_s=0.8, last_token_s=1.0)
    asked = CallRecord(
        tool="add",
        raw_args={},
        result={"status": "ok"},
        gate=GateOutcome.ACCEPTED,
        ran=True,
        waiting_s=5.0,
        handler_s=0.2,
        model_call=0,
    )
    record_of_turn = turn(request(0.5, silent), request(7.0), calls=(asked,))
    assert p50(record_of_turn, "turn_first_token", "turn_call_ready") == [0.8, 1.3]
    assert p50(record_of_turn, "turn_first_text", "turn_last_token") == pytest.approx([2.4, 3.3])
    assert p50(record_of_turn, "turn_time", "tool_time", "waiting_time") == [4.0, 0.2, 5.0]
    assert p50(record_of_turn, "harness_time") == [pytest.approx(4.0 - 1.5 - 1.5 - 0.2)]


def test_times_of_turn_include_retries() -> None:
    retried = Timing(first_token_s=0.3, retries=1, retried_s=2.0)
    assert p50(turn(request(0.5, retried)), "turn_first_token") == [pytest.approx(2.8)]


def test_tool_time_is_none_without_tools() -> None:
    assert p50(turn(request()), "tool_time", "waiting_time") == [None, None]


@check_rows(
    ("cached", "prompt", "warm"),
    [(50, 100, True), (49, 100, False), (0, 100, False), (None, 100, None), (0, 0, None)],
)
def test_is_warm_from_half_of_prompt_cached(
    cached: int | None, prompt: int, warm: bool | None
) -> None:
    assert is_warm(request(cached_tokens=cached, prompt_tokens=prompt)) is warm


def test_times_separate_warm_and_cold_and_skip_invalid() -> None:
    cold = request(timing=Timing(first_token_s=3.0), cached_tokens=0)
    warm = request(timing=Timing(first_token_s=1.0), cached_tokens=99)
    unknown = request(timing=Timing(first_token_s=2.0))
    records = [
        sample("s", PASS, 0, turn(cold)),
        sample("s", FAIL, 0, turn(warm, unknown)),
        sample("s", INVALID, 0, turn(cold)),
    ]
    stage_times = times(records)
    shown = [
        stage_times[stage] for stage in ("first_token_cold", "first_token_warm", "first_token")
    ]
    assert [(each.n, each.p50_s) for each in shown] == [(1, 3.0), (1, 1.0), (3, 2.0)]


REQUEST, RESPONSE = ModelCalled(turn=0), Finished(reason="stop")
FAILED = TurnEnded(reason=EndReason.FAILED)


class ManualClock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_wall_clock_counts_overlapping_requests_once(clock: ManualClock) -> None:
    wall = WallClock(clock)
    first, second = wall.listener(), wall.listener()
    for at_s, listener, event in [
        (101, first, REQUEST),
        (103, second, REQUEST),
        (104, first, TextDelta(text="hi")),
        (106, first, RESPONSE),
        (107, first, TurnEnded(reason=EndReason.ANSWERED)),
        (109, second, FAILED),
        (112, second, REQUEST),
        (113, second, RESPONSE),
        (115, second, FAILED),
    ]:
        clock.now_s = at_s
        listener(event)
    assert wall.seconds() == {"wall_s": 15, "model_s": 9, "writing_s": 0}


def test_wall_clock_knows_whether_every_open_request_is_read(clock: ManualClock) -> None:
    wall = WallClock(clock)
    first, second = wall.listener(), wall.listener()
    seen = [wall.is_reading]
    for listener, event in [
        (first, REQUEST),
        (second, REQUEST),
        (first, TextDelta(text="hi")),
        (first, TextDelta(text="hi")),
        (second, FAILED),
        (first, RESPONSE),
        (first, TurnEnded(reason=EndReason.ANSWERED)),
        (first, REQUEST),
        (first, RESPONSE),
    ]:
        listener(event)
        seen.append(wall.is_reading)
    assert seen == [False, True, True, False, False, False, False, False, True, False]
    with wall.request(is_reading=True):
        assert wall.is_reading
        with wall.request():
            assert not wall.is_reading
    assert not wall.is_reading


def test_wall_clock_counts_writing_without_open_requests(clock: ManualClock) -> None:
    wall = WallClock(clock)
    with wall.writing():
        clock.now_s += 2
        with wall.request():
            clock.now_s += 10
        clock.now_s += 3
    clock.now_s += 4
    assert wall.seconds() == {"wall_s": 19, "model_s": 10, "writing_s": 5}


MEASURED = Invocation(
    completed=8, setup_s=2.0, server_s=35.0, wall_s=60.0, model_s=57.0, writing_s=1.0
)


def test_time_breakdown_adds_up_to_the_wall_time() -> None:
    breakdown = Manifest(invocations=[Invocation(completed=1), MEASURED]).time_breakdown()
    assert breakdown == TimeBreakdown(setup_s=2, server_s=35, model_s=57, writing_s=1, harness_s=2)
    assert breakdown.wall_s == 97
    assert breakdown.own_share == pytest.approx(40 / 97)


@check_rows(
    "invocations",
    [
        [],
        [Invocation(completed=8)],
        [MEASURED, MEASURED.model_copy(update={"completed": 0})],
        [MEASURED.model_copy(update={"setup_s": None})],
    ],
)
def test_time_breakdown_is_none_if_not_measured(invocations: list[Invocation]) -> None:
    assert Manifest(invocations=invocations).time_breakdown() is None
