from collections.abc import Sequence

import pytest

from lhkit.errors import TuningError
from lhkit.lifehelper import toolset as life_helper
from lhkit.messages import ToolCallMessage, ToolCancelled
from lhkit.models.scripted import Reply, call, say
from lhkit.tuning.teacher import Conversation, Line, simulate

WORLD = {"now": "2026-06-15T09:00:00+09:00", "habits": [{"protocol_id": "daily-walk"}]}


def logs_a_walk(settled: Sequence[ToolCallMessage]) -> Reply:
    if not settled:
        return call("log_tracker_entry", habit_id="daily-walk", value="done")
    is_cancelled = isinstance(settled[-1].result, ToolCancelled)
    return say("취소하셔서 기록하지 않았어요." if is_cancelled else "기록했어요.")


def conversation(**changes: object) -> Conversation:
    line = Line(user="오늘 걸었어", act=logs_a_walk)
    told: dict[str, object] = {
        "name": "walk",
        "kind": "log",
        "locale": "ko",
        "world": WORLD,
        "lines": (line,),
    }
    return Conversation(**{**told, **changes})  # type: ignore[arg-type] - a test's table


@pytest.mark.anyio
async def test_a_conversation_becomes_one_text_with_the_real_result_in_it() -> None:
    (sequence,) = await simulate([conversation()], life_helper.LifeHelperToolset(), progress=False)
    first, second = (sequence.text[begin:end] for begin, end in sequence.answers)
    assert first == (
        '{"name": "log_tracker_entry", "parameters": '
        '{"habit_id":"daily-walk","value":"done"}}<end_of_turn>'
    )
    assert second == "기록했어요.<end_of_turn>"
    assert '"date":"2026-06-15"' in sequence.text[sequence.answers[0][1] : sequence.answers[1][0]]
    assert (sequence.group, sequence.kind) == ("ko", "log")


@pytest.mark.anyio
async def test_a_rejection_is_in_the_data_as_the_application_tells_it() -> None:
    rejected = Line(user="오늘 걸었어", act=logs_a_walk, confirm="reject")
    (sequence,) = await simulate(
        [conversation(lines=(rejected,))], life_helper.LifeHelperToolset(), progress=False
    )
    assert '"status":"cancelled"' in sequence.text
    assert sequence.text.endswith("취소하셔서 기록하지 않았어요.<end_of_turn>")


@pytest.mark.anyio
async def test_a_conversation_that_cannot_be_played_is_named() -> None:
    def breaks(_settled: Sequence[ToolCallMessage]) -> Reply:
        raise ZeroDivisionError("no plan")

    broken = conversation(lines=(Line(user="?", act=breaks),))
    with pytest.raises(TuningError, match=r"walk could not be played.*ZeroDivisionError"):
        await simulate([broken], life_helper.LifeHelperToolset(), progress=False)
