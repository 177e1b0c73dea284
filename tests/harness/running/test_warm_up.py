"""The warm-up of shared prompt prefixes before concurrent requests."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ServerUnreachableError
from lhkit.conversation.responses import ModelEvent
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.store import read_manifest
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.base import ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.recorded.scripted import ScriptedModel, say
from tests.harness.build import Load, Play
from tests.models.fake_vllm import FakeVllm, chat_completion, completion, streams

pytestmark = pytest.mark.anyio

CHAT = """
- id: chat-{locale}-{n}
  ac: AC-12
  locale: {locale}
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: hello {n}, reply: {{matches: '\\S'}}}}]
"""


def chats(load: Load, **counts: int) -> tuple[Scenario, ...]:
    places = [(locale, n) for locale, count in counts.items() for n in range(count)]
    return load("".join(CHAT.format(locale=locale, n=n) for locale, n in places))


class Reading(ScriptedModel):
    """A model that answers with text and records its warm-up and other requests in order."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(lambda _: say("hi"))
        self.seen: list[tuple[str, ModelRequest]] = []
        self._error = error

    async def warm(self, request: ModelRequest) -> None:
        await asyncio.sleep(0)
        self.seen.append(("shown", request))
        if self._error is not None:
            raise self._error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.seen.append(("asked", request))
        async for event in super().stream(request):
            yield event

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.seen]


@pytest.fixture
def play(play: Play) -> Play:
    return partial(play, concurrency=4)


async def test_warm_up_sends_each_shared_prefix_once(
    play: Play, load: Load, tmp_path: Path
) -> None:
    model = Reading()
    await play(chats(load, ko=3, en=3), model, toolset=LIFE_HELPER, run_dir=tmp_path)
    assert model.kinds == ["shown"] * 2 + ["asked"] * 6
    shown, asked = (
        {request.instructions for kind, request in model.seen if kind == each}
        for each in ("shown", "asked")
    )
    assert shown == asked
    assert len(shown) == 2
    assert read_manifest(tmp_path).invocations[-1].warmed_up == 2


async def test_warm_up_has_no_user_message_of_samples(play: Play, load: Load) -> None:
    model = Reading()
    await play(chats(load, ko=2), model)
    (_, shown), (_, asked), _ = model.seen
    assert (shown.tools, shown.instructions) == (asked.tools, asked.instructions)
    assert "hello" not in repr(shown.messages)


@pytest.mark.parametrize(("count", "concurrency"), [(1, 4), (3, 1)])
async def test_warm_up_is_skipped_without_concurrency(
    play: Play, load: Load, count: int, concurrency: int
) -> None:
    model = Reading()
    await play(chats(load, ko=count), model, concurrency=concurrency)
    assert model.kinds == ["asked"] * count


async def test_warm_up_is_skipped_for_reused_samples(
    play: Play, load: Load, tmp_path: Path
) -> None:
    model = Reading()
    scenarios = chats(load, ko=3)
    await play(scenarios, model, run_dir=tmp_path)
    model.seen.clear()
    await play(scenarios, model, run_dir=tmp_path)
    assert model.seen == []


async def test_warm_up_ignores_errors(play: Play, load: Load) -> None:
    model = Reading(ServerUnreachableError("gone"))
    run = await play(chats(load, ko=3), model)
    assert [record.score.verdict for record in run.records] == [Verdict.PASS] * 3


async def test_warm_up_includes_distractors(play: Play, load: Load, toolset: Any) -> None:
    model = Reading()
    await play(chats(load, ko=2), model, toolset=toolset, stress="distractors=1")
    (kind, shown), (_, asked), _ = model.seen
    assert kind == "shown"
    assert shown.tools == asked.tools
    assert "get_weather" in [tool.name for tool in shown.tools]


@pytest.mark.parametrize("dialect", ["json", "openai"])
async def test_warm_up_requests_one_token(play: Play, load: Load, dialect: str) -> None:
    answer = completion(["hi"]) if dialect == "json" else chat_completion([{"content": "hi"}])
    async with FakeVllm(*(streams(answer) for _ in range(4))) as server:
        model = await connect(Endpoint(base_url=server.base_url, dialect=dialect))
        await play(chats(load, ko=3), model)
        await model.aclose()
    first, *others = server.bodies
    assert first["max_tokens"] == 1
    assert all(body["max_tokens"] > 1 for body in others)
    if dialect == "json":
        shared, _, _ = first["prompt"].rpartition("…")
        assert all(body["prompt"].startswith(shared) for body in others)
