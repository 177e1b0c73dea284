"""Where the wall time of a run goes: the model while any request is open, and what is left."""

from typing import Any

import pytest

from lhkit.events import EndReason, ModelCalled, TurnEnded
from lhkit.harness.timings import TimeBreakdown, WallClock, spent
from lhkit.responses import Finished, TextDelta

ASKED, ANSWERED = ModelCalled(turn=0), Finished(reason="stop")
FAILED = TurnEnded(reason=EndReason.FAILED)


class Hand:
    """A clock that is set by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Hand:
    return Hand()


def test_a_second_counts_once_however_many_requests_are_open(clock: Hand) -> None:
    wall = WallClock(clock)
    first, second = wall.listener(), wall.listener()
    for at_s, hear, event in [
        (101, first, ASKED),
        (103, second, ASKED),
        (104, first, TextDelta(text="hi")),
        (106, first, ANSWERED),
        (107, first, TurnEnded(reason=EndReason.ANSWERED)),
        (109, second, FAILED),
        (112, second, ASKED),
        (113, second, ANSWERED),
        (115, second, FAILED),
    ]:
        clock.now_s = at_s
        hear(event)
    assert wall.seconds() == {"wall_s": 15, "model_s": 9, "writing_s": 0}


def test_writing_counts_where_nobody_asks(clock: Hand) -> None:
    wall = WallClock(clock)
    with wall.writing():
        clock.now_s += 2
        with wall.asking():
            clock.now_s += 10
        clock.now_s += 3
    clock.now_s += 4
    assert wall.seconds() == {"wall_s": 19, "model_s": 10, "writing_s": 5}


TOLD = {
    "played": 8,
    "setup_s": 2.0,
    "server_s": 35.0,
    "wall_s": 60.0,
    "model_s": 57.0,
    "writing_s": 1.0,
}


def test_the_parts_add_up_to_the_whole() -> None:
    found = spent({"invocations": [{"played": 1}, TOLD]})
    assert found == TimeBreakdown(setup_s=2, server_s=35, model_s=57, writing_s=1, harness_s=2)
    assert found.wall_s == 97
    assert found.own_share == pytest.approx(40 / 97)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"invocations": []},
        {"invocations": [{"played": 8}]},
        {"invocations": [TOLD, {**TOLD, "played": 0}]},
        {"invocations": [{**TOLD, "setup_s": None}]},
        {"invocations": [{**TOLD, "model_s": "much"}]},
    ],
)
def test_what_nobody_measured_or_played_is_not_told(manifest: dict[str, Any]) -> None:
    assert spent(manifest) is None
