"""The option logprobs of a run and of a chat."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.conversation.messages import ToolCall, ToolCallMessage
from lhkit.harness.records.resume import Resumption
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.cassette import CassetteModel, RecordingModel
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.testing import echo_tool
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load, Play

pytestmark = pytest.mark.anyio

NOTES = """
- id: add
  ac: AC-4
  locale: en
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}}]}
- id: chat
  ac: AC-12
  locale: en
  turns: [{user: hello, expect: {calls: []}}]
"""
ADD = ToolCall(name="add_note", args={"text": "milk"}, min_logprob=-1.5, mean_logprob=-0.25)


def server(request: ModelRequest) -> Reply:
    """Answer as a server that reports log-probabilities when it is asked for them."""
    last = request.messages[-1]
    if getattr(last, "text", "") != "add milk":
        return say("done")
    known = {} if request.logprobs else {"min_logprob": None, "mean_logprob": None}
    return Reply(calls=(replace(ADD, **known),))


async def test_run_requests_logprobs_and_keeps_them(play: Play, load: Load) -> None:
    model = ScriptedModel(server)
    run = await play(load(NOTES), model, logprobs=True)
    assert {request.logprobs for request in model.requests} == {True}
    (call,) = run.sample("add").calls
    assert (call.min_logprob, call.mean_logprob) == (-1.5, -0.25)
    assert run.calls[["min_logprob", "mean_logprob"]].to_numpy().tolist() == [[-1.5, -0.25]]
    assert run.manifest.plain()["logprobs"] is True


async def test_run_without_the_option_is_as_before(play: Play, load: Load) -> None:
    model = ScriptedModel(server)
    run = await play(load(NOTES), model)
    assert {request.logprobs for request in model.requests} == {False}
    (call,) = run.sample("add").calls
    assert (call.min_logprob, call.mean_logprob) == (None, None)
    assert run.calls["min_logprob"].isna().all()
    assert "logprobs" not in run.manifest.plain()


async def test_run_with_logprobs_reuses_no_record_without_them(
    play: Play, load: Load, tmp_path: Path
) -> None:
    kept: list[Resumption] = []

    async def again(**options: Any) -> tuple[int, list[str]]:
        await play(load(NOTES), ScriptedModel(server), run_dir=tmp_path,
                   on_resume=kept.append, **options)  # fmt: skip
        return kept[-1].kept, [change.what for change in kept[-1].changes]

    assert await again() == (0, [])
    assert await again(logprobs=True) == (0, ["logprobs"])
    assert await again(logprobs=True) == (2, [])
    assert await again() == (2, [])  # those of the first run are still there


async def test_chat_shows_the_logprob_of_a_call_to_the_gate() -> None:
    asked: list[ConfirmRequest] = []

    class Gate:
        async def confirm(self, request: ConfirmRequest) -> bool:
            asked.append(request)
            return True

    registry = ToolRegistry([echo_tool("add_note", is_destructive=True)])
    for logprobs, expected in ((True, -1.5), (False, None)):
        chat = ChatController(
            model=ScriptedModel(server),
            dispatcher=ToolDispatcher(registry),
            confirm=Gate(),
            catalog=load_catalog("en"),
            logprobs=logprobs,
        )
        await chat.user_turn("add milk")
        assert asked[-1].logprob == expected


async def test_cassette_replays_recorded_logprobs(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    registry = ToolRegistry([echo_tool("add_note", is_destructive=True)])
    found: list[ToolCallMessage] = []
    for model in (RecordingModel(ScriptedModel(server), path), None):
        chat = ChatController(
            model=model or CassetteModel.open(path),
            dispatcher=ToolDispatcher(registry),
            confirm=ScriptedGate([True]),
            logprobs=model is not None,  # a cassette needs not be asked
        )
        await chat.user_turn("add milk")
        assert chat.state.error is None
        found += [each for each in chat.state.messages if isinstance(each, ToolCallMessage)]
    assert [(each.min_logprob, each.mean_logprob) for each in found] == [(-1.5, -0.25)] * 2
