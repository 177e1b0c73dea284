"""replay(): isolation, concurrency, retries and resuming."""

import asyncio
import io
import itertools
import json
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import (
    ContextTooLongError,
    MissingPackageError,
    RunError,
    ScenarioError,
    ServerOverloadedError,
    ServerUnreachableError,
    UsageError,
)
from lhkit.conversation.responses import Finished, ModelEvent, Sampling
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.manifest import Provenance
from lhkit.harness.records.record import SampleScore
from lhkit.harness.records.store import MANIFEST, Journal, read_records
from lhkit.harness.running import sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scoring import verdict
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import INVALID, PASS, Load, Play

pytestmark = pytest.mark.anyio


ADD = """
- id: add-{n}
  ac: AC-4
  world: {{now: "2026-06-15T09:00:00+09:00", notes: [{{id: note-0, text: old}}]}}
  turns:
    - user: add milk
      confirm: accept
      expect: {{calls: [{{tool: add_note, args: {{text: milk}}, result: ok}}]}}
      reply: {{contains_any: [added]}}
    - user: and bread
      confirm: reject
      expect: {{calls: [{{tool: add_note, args: {{text: bread}}, result: cancelled}}]}}
    - user: and eggs
      confirm: absent
      expect: {{calls: [{{tool: add_note, args: {{text: eggs}}, result: cancelled}}]}}
  final: {{notes: [{{text: milk}}]}}
"""
CHAT = """
- id: chat-{n}
  ac: AC-12
  turns: [{{user: hello, reply: {{matches: '\\S'}}}}]
"""


def scenarios_of(load: Load, n: int, text: str = CHAT) -> tuple[Scenario, ...]:
    return load("".join(text.format(n=number) for number in range(n)))


def failing(error: Exception, times: int = 10**6) -> ScriptedModel:
    """Return a model that fails so many times and then answers."""
    asked = iter(range(10**6))
    return ScriptedModel(lambda _: Reply(error=error) if next(asked) < times else say("hi"))


async def test_record_contains_whole_conversation(play: Play, load: Load) -> None:
    run = await play(scenarios_of(load, 1, ADD), gold_model, keep_states=True)
    (record,) = run.records
    assert [turn.user for turn in record.trajectory.turns] == ["add milk", "and bread", "and eggs"]
    assert [turn.calls[0].gate for turn in record.trajectory.turns] == [
        "accepted",
        "rejected",
        "absent",
    ]
    assert [turn.calls[0].ran for turn in record.trajectory.turns] == [True, False, False]
    assert record.trajectory.initial_state["notes"] == (
        {"id": "note-0", "text": "old", "done": False},
    )
    assert [row["text"] for row in record.state_diff["notes"].added] == ["milk"]
    assert (
        record.trajectory.turns[0].model_calls[0].response.raw_text.startswith('{"name":"add_note"')
    )
    assert 0 < record.harness_s < record.wall_s


@pytest.mark.parametrize(
    ("confirm", "answers"),
    [("accept", [True, True]), ("[accept]", [True, False]), ("[reject, accept]", [False, True])],
)
async def test_scripted_gate_rejects_after_its_last_answer(
    play: Play, load: Load, confirm: str, answers: list[bool]
) -> None:
    (scenario,) = load(
        f"- id: a\n  ac: x\n  turns: [{{user: x, confirm: {confirm}, expect: {{extra: any}}}}]\n"
    )
    model = ScriptedModel([call("add_note", text="a"), call("add_note", text="b"), say("x")])
    (record,) = (await play([scenario], model)).records
    assert [each.gate == "accepted" for each in record.trajectory.turns[0].calls] == answers


async def test_replay_returns_records_in_order_of_scenarios(play: Play, load: Load) -> None:
    run = await play(scenarios_of(load, 3), gold_model, repeats=2, concurrency=5)
    assert [(r.sample_id.scenario, r.sample_id.repeat) for r in run.records] == [
        (f"chat-{n}", repeat) for n in range(3) for repeat in range(2)
    ]


class After(ScriptedModel):
    """Says hi after it has waited for something."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        super().__init__(lambda _: say("hi"))
        self._wait = wait

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await self._wait()
        async for event in super().stream(request):
            yield event


async def test_replay_limits_concurrency(play: Play, load: Load) -> None:
    waiting = most = 0
    all_here = asyncio.Event()

    async def wait_for_four() -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == 4:
            all_here.set()
        await all_here.wait()
        waiting -= 1

    async with asyncio.timeout(120):  # against a hang only
        run = await play(scenarios_of(load, 10), After(wait_for_four), concurrency=4)
    assert most == 4
    assert run.summary().total.passed == 10


async def test_resume_reuses_finished_samples(play: Play, load: Load, tmp_path: Path) -> None:
    scenarios = scenarios_of(load, 4)
    first = await play(scenarios[:2], gold_model, run_dir=tmp_path)
    second = await play(scenarios, gold_model, run_dir=tmp_path)
    assert (first.kept, second.kept) == (0, 2)
    assert second.records[:2] == first.records
    assert len(read_records(tmp_path)) == 4
    third = await play(scenarios, gold_model, run_dir=tmp_path, concurrency=3)
    assert third.records == second.records


@pytest.mark.parametrize(
    "changed", [CHAT.replace("hello", "hello!"), CHAT + "  world: {{notes: []}}\n"]
)
async def test_resume_runs_changed_samples_again(
    play: Play, load: Load, tmp_path: Path, changed: str
) -> None:
    model = ScriptedModel(lambda _: say("hi"))
    await play(scenarios_of(load, 1), model, run_dir=tmp_path)
    run = await play(scenarios_of(load, 1, changed), model, run_dir=tmp_path)
    assert run.kept == 0


async def test_replay_increases_seed_of_repeats(
    play: Play, load: Load, toolset: Any, tmp_path: Path
) -> None:
    toolset.sampling = Sampling(temperature=1.0, seed=7)
    model = ScriptedModel(lambda _: say("hi"))
    run = await play(scenarios_of(load, 1), model, repeats=3)
    assert len({record.content_hash for record in run.records}) == 3
    assert [request.sampling.seed for request in model.requests] == [7, 8, 9]
    toolset.sampling = Sampling()
    await play(scenarios_of(load, 1), model, repeats=2, run_dir=tmp_path)
    assert [request.sampling.seed for request in model.requests[3:]] == [None, None]


async def test_replay_retries_transient_error_with_growing_pauses(
    play: Play, load: Load, pauses: list[float]
) -> None:
    run = await play(scenarios_of(load, 1), failing(ServerOverloadedError("busy"), times=2))
    assert (run.records[0].score.verdict, run.records[0].attempts) == (PASS, 3)
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    ("error", "attempts"), [(ServerOverloadedError("busy"), 3), (ContextTooLongError("long"), 1)]
)
async def test_replay_marks_lasting_error_invalid_and_resume_retries_it(
    play: Play, load: Load, tmp_path: Path, pauses: list[float], error: Exception, attempts: int
) -> None:
    run = await play(scenarios_of(load, 1), failing(error), run_dir=tmp_path)
    assert (run.records[0].score.verdict, run.records[0].attempts) == (INVALID, attempts)
    assert run.records[0].score.reasons == (f"turn 0: {type(error).__name__}: {error}",)
    assert len(pauses) == attempts - 1
    assert run.summary().total.pass_rate is None
    again = await play(scenarios_of(load, 1), ScriptedModel([say("hi")]), run_dir=tmp_path)
    assert (again.kept, again.records[0].score.verdict) == (0, PASS)


async def test_sample_ends_with_first_failed_turn(play: Play, load: Load) -> None:
    run = await play(scenarios_of(load, 1, ADD), failing(ContextTooLongError("long"), times=1))
    assert [turn.ended for turn in run.records[0].trajectory.turns] == ["failed"]


@pytest.mark.longer
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_replay_gives_up_on_unreachable_server(
    play: Play, load: Load, pauses: list[float], concurrency: int
) -> None:
    model = failing(ServerUnreachableError("nothing answers"))
    run = await play(scenarios_of(load, 40), model, concurrency=concurrency)
    assert {record.score.verdict for record in run.records} == {INVALID}
    assert len(model.requests) <= 3 * concurrency + concurrency
    assert len(pauses) <= 3 * concurrency
    assert "not tried" in run.records[-1].score.reasons[0]


async def test_replay_continues_after_server_returns(play: Play, load: Load) -> None:
    model = failing(ServerUnreachableError("nothing answers"), times=2)
    run = await play(scenarios_of(load, 5), model)
    assert run.summary().total.passed == 5


async def test_exception_makes_only_its_sample_invalid(
    play: Play, load: Load, toolset: Any
) -> None:
    asked: list[str] = []

    def maker(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        asked.append(scenario.id)
        if asked.count("chat-1") > 1:  # the plan asks once before the first sample
            asked.clear()
            raise ZeroDivisionError("our bug")
        return gold_model(scenario, registry)

    run = await play(scenarios_of(load, 3), maker, concurrency=2)
    assert [record.score.verdict for record in run.records] == ["pass", "invalid", "pass"]
    assert "ZeroDivisionError: our bug" in run.records[1].score.reasons[0]
    assert "Traceback" in (run.records[1].trajectory.error or "")
    assert all(session.is_closed for session in toolset.sessions)


async def test_replay_refuses_invalid_scenarios_before_first_sample(
    play: Play, load: Load, tmp_path: Path
) -> None:
    text = (
        "- {id: a, ac: x, world: {zzz: []}, turns: [{user: x}]}\n"
        "- {id: b, ac: x, turns: [{user: x, reply: {matches: z}}]}\n"
        "- {id: c, ac: x, turns: [{user: x}]}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        await play(load(text), gold_model, run_dir=tmp_path / "run")
    first, second = str(caught.value).splitlines()
    assert first.startswith("a.world: unknown tables")
    assert second.startswith("b.turns[0].reply:")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["repeats", "concurrency", "max_attempts"])
async def test_replay_refuses_number_below_one(play: Play, load: Load, option: str) -> None:
    with pytest.raises(UsageError, match=option):
        await play(scenarios_of(load, 1), gold_model, **{option: 0})


async def test_replay_reports_a_missing_package_before_the_first_sample(
    play: Play, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingPackageError, match=r"scipy is not installed.*lhkit\[eval\]"):
        await play(scenarios_of(load, 1), failing(AssertionError("was asked")), repeats=2)


async def test_replay_refuses_duplicate_ids(play: Play, load: Load) -> None:
    with pytest.raises(UsageError, match="chat-0"):
        await play([*scenarios_of(load, 1)] * 2, gold_model)


async def test_replay_without_scenarios_returns_empty_run(play: Play) -> None:
    run = await play([], gold_model)
    assert (run.records, run.summary().total.valid) == ((), 0)


class Prompted(ScriptedModel):
    """A script that reports its prompt."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            prompted = {"prompt_text": "what was asked", "prompt_token_ids": (2, 105, 7)}
            yield replace(event, **prompted) if isinstance(event, Finished) else event


@pytest.mark.parametrize("stored", [True, False])
async def test_keep_prompts_stores_prompt_text(play: Play, load: Load, stored: bool) -> None:
    run = await play(scenarios_of(load, 1), Prompted([say("hi")]), keep_prompts=stored)
    response = run.records[0].trajectory.turns[0].model_calls[0].response
    assert response.prompt_text == ("what was asked" if stored else "")
    assert response.prompt_token_ids == (2, 105)  # enough to see a doubled <bos>


class Stuck(After):
    """Answers the first conversations and then keeps one waiting forever."""

    def __init__(self, answers: int) -> None:
        super().__init__(self._answer_or_wait)
        self.left = answers
        self.is_stuck = asyncio.Event()

    async def _answer_or_wait(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.is_stuck.set()
            await asyncio.Event().wait()


async def test_cancelled_replay_keeps_finished_samples(
    play: Play, load: Load, tmp_path: Path
) -> None:
    model = Stuck(answers=3)
    scenarios = scenarios_of(load, 5)
    task = asyncio.create_task(play(scenarios, model, run_dir=tmp_path, concurrency=1))
    await model.is_stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(read_records(tmp_path)) == 3
    invocation = json.loads((tmp_path / MANIFEST).read_text("utf-8"))["invocations"][-1]
    assert (invocation["completed"], invocation["finished"]) == (3, False)
    model.left = 10
    run = await play(scenarios, model, run_dir=tmp_path)
    assert (run.kept, len(run.records)) == (3, 5)


async def test_cancelled_replay_writes_waiting_records(
    play: Play, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, may_go_on, append = threading.Event(), threading.Event(), Journal.append

    def slowly(journal: Journal, *records: Any) -> None:
        steps.append(len(records))
        is_writing.set()
        assert may_go_on.wait(10)
        append(journal, *records)

    steps: list[int] = []
    monkeypatch.setattr(Journal, "append", slowly)
    pauses = itertools.count(0, 30)

    async def let_others_go_first() -> None:
        for _ in range(next(pauses)):
            await asyncio.sleep(0)

    model = After(let_others_go_first)
    scenarios = scenarios_of(load, 2)
    running = play(scenarios, lambda *_: model, run_dir=tmp_path, concurrency=2)
    task = asyncio.create_task(running)
    await asyncio.to_thread(is_writing.wait, 10)
    for _ in range(100):  # let the second sample finish and queue up behind the first
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(read_records(tmp_path)) == 2
    assert steps == [1, 1]


async def test_replay_writes_simultaneous_records_in_one_step(
    play: Play, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, append = list[int](), Journal.append

    def counted(journal: Journal, *records: Any) -> None:
        steps.append(len(records))
        append(journal, *records)

    monkeypatch.setattr(Journal, "append", counted)
    model = ScriptedModel(lambda _: say("hi"))
    await play(scenarios_of(load, 4), lambda *_: model, run_dir=tmp_path, concurrency=4)
    assert steps == [4]


@pytest.mark.parametrize(
    ("is_scripted", "concurrency", "thread"),
    [(False, 2, "lhkit-scoring"), (False, 1, "MainThread"), (True, 2, "MainThread")],
)
async def test_replay_scores_beside_other_conversations(
    play: Play,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    is_scripted: bool,
    concurrency: int,
    thread: str,
) -> None:
    threads: list[str] = []

    def judge(*args: Any, **options: Any) -> SampleScore:
        threads.append(threading.current_thread().name.partition("_")[0])
        return verdict.judge(*args, **options)

    monkeypatch.setattr(sample, "judge", judge)
    model = ScriptedModel(lambda _: say("hi"))
    source = (lambda *_: model) if is_scripted else model
    run = await play(scenarios_of(load, 3), source, concurrency=concurrency)
    assert [record.score.verdict for record in run.records] == [PASS] * 3
    assert threads == [thread] * 3


async def test_replay_refuses_folder_in_use(play: Play, load: Load, tmp_path: Path) -> None:
    model = Stuck(answers=0)
    task = asyncio.create_task(play(scenarios_of(load, 1), model, run_dir=tmp_path))
    await model.is_stuck.wait()
    with pytest.raises(RunError, match="in use"):
        await play(scenarios_of(load, 1), gold_model, run_dir=tmp_path)
    task.cancel()
    await asyncio.wait({task})


async def test_full_disk_ends_replay_with_run_error(
    play: Play, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_journal: Journal, *_records: Any) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(Journal, "append", refuse)
    with pytest.raises(RunError, match="the disk is full"):
        await play(scenarios_of(load, 3), gold_model, run_dir=tmp_path, concurrency=2)


async def test_manifest_contains_provenance_and_invocations(
    play: Play, load: Load, tmp_path: Path
) -> None:
    provenance = Provenance(
        started_at=datetime(2026, 6, 15, tzinfo=UTC), git_commit="abc", hardware={"cores": 2}
    )
    run = await play(scenarios_of(load, 2), run_dir=tmp_path, provenance=provenance)
    manifest = json.loads((tmp_path / MANIFEST).read_text("utf-8"))
    assert manifest == run.manifest.plain()
    assert manifest["git_commit"] == "abc"
    assert manifest["hardware"] == {"cores": 2}
    assert manifest["versions"]["scipy"]
    assert manifest["models"][0]["model"] == "gold"
    assert manifest["sampling"][0]["temperature"] == 0.0
    assert manifest["locales"]["en"]["tools"][0]["name"] == "find_notes"
    assert set(manifest["scenarios"]) == {"chat-0", "chat-1"}
    (invocation,) = manifest["invocations"]
    moments = [invocation["started_at"], run.records[0].started_at, invocation["ended_at"]]
    assert moments == sorted(moments)
    assert (invocation["completed"], invocation["kept"], invocation["finished"]) == (2, 0, True)
    again = await play(scenarios_of(load, 2), run_dir=tmp_path)
    assert [each.kept for each in again.manifest.invocations] == [0, 2]


async def test_progress_bar_is_optional(
    play: Play, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    await play(scenarios_of(load, 2), gold_model)
    assert capsys.readouterr() == ("", "")
    await play(scenarios_of(load, 2), gold_model, progress=True)
    assert "2/2" in capsys.readouterr().err


class Screen(io.StringIO):
    """Standard error; `moved` is set once the same line was drawn three times."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal, self.moved = is_terminal, asyncio.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("the model reads the prompt: ") >= 3:
            self.moved.set()
        return written


class Reading(ScriptedModel):
    """Reads its first prompt until `until` is set."""

    until: asyncio.Event | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if self.until is not None:
            await self.until.wait()
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_progress_bar_moves_in_a_terminal_while_a_prompt_is_read(
    play: Play, load: Load, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setattr("lhkit.harness.running.run.TICK_S", 0.001)
    model = Reading(lambda _: say("hi"))
    model.until = screen.moved if is_terminal else None
    await play(scenarios_of(load, 2), model, progress=True, concurrency=1)
    assert "2/2" in screen.getvalue()
    assert screen.moved.is_set() is is_terminal
    assert screen.getvalue().split("\r")[-1].startswith("100%")


class Owned(ScriptedModel):
    """Counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        Owned.closed += 1


async def test_replay_closes_only_models_of_factory(play: Play, load: Load) -> None:
    shared = Owned(lambda _: say("hi"))
    await play(scenarios_of(load, 2), shared)
    assert Owned.closed == 0
    await play(scenarios_of(load, 2), lambda _scenario, _registry: Owned([say("hi")]))
    assert Owned.closed == 2
