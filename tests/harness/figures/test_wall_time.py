"""The time breakdown of a run: the model while any request is open, and the rest."""

import pytest

from lhkit.events import EndReason, ModelCalled, TurnEnded
from lhkit.harness.manifest import Invocation, Manifest
from lhkit.harness.timings import TimeBreakdown, WallClock
from lhkit.responses import Finished, TextDelta

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
    played=8, setup_s=2.0, server_s=35.0, wall_s=60.0, model_s=57.0, writing_s=1.0
)


def test_time_breakdown_adds_up_to_the_wall_time() -> None:
    breakdown = Manifest(invocations=[Invocation(played=1), MEASURED]).time_breakdown()
    assert breakdown == TimeBreakdown(setup_s=2, server_s=35, model_s=57, writing_s=1, harness_s=2)
    assert breakdown.wall_s == 97
    assert breakdown.own_share == pytest.approx(40 / 97)


@pytest.mark.parametrize(
    "invocations",
    [
        [],
        [Invocation(played=8)],
        [MEASURED, MEASURED.model_copy(update={"played": 0})],
        [MEASURED.model_copy(update={"setup_s": None})],
    ],
)
def test_time_breakdown_is_none_if_not_measured(invocations: list[Invocation]) -> None:
    assert Manifest(invocations=invocations).time_breakdown() is None
