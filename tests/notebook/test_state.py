"""Panel state is a fold of events."""

from lhkit.confirm.gate import ConfirmRequest
from lhkit.events import (
    CallReady,
    CallSettled,
    DispatchTrace,
    EndReason,
    GateOutcome,
    HistoryCleared,
    ModelCalled,
    ModelFinished,
    TextStreamed,
    TurnEnded,
    TurnStarted,
)
from lhkit.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.notebook.events import CardOpened, CardSettled, PanelEvent, QuestionOutcome, TurnDropped
from lhkit.notebook.items import AssistantItem, CardItem, Ending, ErrorItem, ToolItem, UserItem
from lhkit.notebook.state import ModelStatus, PanelState, fold
from lhkit.responses import Finished, Timing, Usage
from lhkit.tool_results import ToolCancelled, ToolOk

REQUEST = ConfirmRequest(tool="write", description="d", args={}, summary="s")
CALL = ToolCall(name="write", args={"a": 1}, raw="raw")


def folded(*events: PanelEvent, state: PanelState | None = None) -> PanelState:
    state = state or PanelState()
    for number, event in enumerate(events):
        state = fold(state, event, at_s=float(number))
    return state


def started(text: str = "hi") -> TurnStarted:
    return TurnStarted(message=UserMessage(text=text))


def settled(call: ToolCall, waiting_s: float = 0.0) -> CallSettled:
    result = ToolOk({"done": True})
    trace = DispatchTrace(
        name=call.name,
        raw_args=call.args,
        args=call.args,
        extra_args=(),
        gate=GateOutcome.ACCEPTED,
        ran=True,
        result=result,
        waiting_s=waiting_s,
    )
    message = ToolCallMessage(name=call.name, args=call.args, result=result, raw=call.raw)
    return CallSettled(message=message, trace=trace)


def test_words_stream_and_become_one_message() -> None:
    midway = folded(started(), ModelCalled(turn=1), TextStreamed(text="he"))
    assert midway.live == "he"
    done = folded(
        TextStreamed(text="llo"),
        ModelFinished(response=Finished(reason="stop", text="hello")),
        TurnEnded(reason=EndReason.ANSWERED),
        state=midway,
    )
    assert done.items == (UserItem(text="hi"), AssistantItem(text="hello"))
    assert (done.live, done.is_busy, done.connection) == (None, False, ModelStatus.READY)


def test_a_call_waits_then_has_its_result_in_its_place_and_words_before_it_stay_before() -> None:
    state = folded(
        started(),
        ModelCalled(turn=1),
        TextStreamed(text="I add it."),
        CallReady(call=CALL),
        ModelFinished(response=Finished(reason="stop", text="I add it.", calls=(CALL,))),
        CardOpened(card="1", request=REQUEST),
    )
    kinds = [type(item) for item in state.items]
    assert kinds == [UserItem, AssistantItem, ToolItem, CardItem]
    assert state.open_card is not None
    after = folded(CardSettled(card="1", outcome=QuestionOutcome.RUN), settled(CALL), state=state)
    assert [type(item) for item in after.items] == kinds
    assert after.open_card is None
    assert after.items[2].result == ToolOk({"done": True})
    assert after.has_written({"write"})
    assert not after.has_written({"other"})


def test_a_call_that_was_cut_off_appears_with_its_raw_text() -> None:
    message = ToolCallMessage(name="", args={}, result=ToolCancelled(), raw='{"name": "wr')
    state = folded(started(), CallSettled(message=message, trace=None))
    assert state.items[-1] == ToolItem(name="", args={}, raw='{"name": "wr', result=ToolCancelled())


def test_a_stop_keeps_the_words_so_far_and_cancels_calls_that_never_ran() -> None:
    state = folded(
        started(),
        ModelCalled(turn=1),
        CallReady(call=CALL),
        TextStreamed(text="and so"),
        TurnEnded(reason=EndReason.STOPPED),
    )
    tool, words = state.items[1:]
    assert tool.result == ToolCancelled()
    assert words == AssistantItem(text="and so", ending=Ending.STOPPED)


def test_a_lost_server_is_an_error_with_a_retry_and_a_retry_keeps_the_turn() -> None:
    failed = TurnEnded(
        reason=EndReason.FAILED, error="gone", cause="ServerUnreachableError", detail="at x"
    )
    state = folded(started(), ModelCalled(turn=1), failed)
    assert state.items[-1] == ErrorItem(text="gone", detail="at x", can_retry=True)
    assert state.connection is ModelStatus.LOST
    again = folded(TurnStarted(message=None), state=state)
    assert again.connection is ModelStatus.ANSWERING
    assert again.last_turn[0] == UserItem(text="hi")


def test_figures_add_up_over_a_turn_and_leave_out_the_wait_for_a_person() -> None:
    usage = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=64)
    first = Finished(reason="stop", usage=usage, timing=Timing(first_token_s=0.2), calls=(CALL,))
    state = folded(
        started(),  # at 0 s
        ModelCalled(turn=1),
        CallReady(call=CALL),
        ModelFinished(response=first),
        settled(CALL, waiting_s=3.0),
        ModelCalled(turn=2),
        ModelFinished(
            response=Finished(reason="stop", usage=usage, timing=Timing(first_token_s=0.1))
        ),
        TurnEnded(reason=EndReason.ANSWERED),  # at 7 s
    )
    figures = state.figures
    assert (figures.prompt_tokens, figures.completion_tokens, figures.cached_tokens) == (
        200,
        14,
        128,
    )
    assert (figures.first_token_s, figures.duration_s) == (0.2, 4.0)


def test_a_dropped_turn_is_gone_and_a_cleared_conversation_is_empty() -> None:
    two = folded(
        started("one"),
        TurnEnded(reason=EndReason.ANSWERED),
        started("two"),
        TurnEnded(reason=EndReason.ANSWERED),
    )
    assert folded(TurnDropped(), state=two).items == (UserItem(text="one"),)
    assert folded(HistoryCleared(), state=two).items == ()
