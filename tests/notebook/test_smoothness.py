"""Long answers and long conversations: few updates, and each costs the same."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from time import process_time
from typing import Any

import pytest

from lhkit.locales import load_catalog
from lhkit.messages import (
    EndReason,
    Finished,
    ModelCalled,
    ModelEvent,
    ModelFinished,
    ModelIdentity,
    TextDelta,
    TextStreamed,
    TurnEnded,
    UserMessage,
)
from lhkit.messages import TurnStarted as Started
from lhkit.models.base import ModelRequest
from lhkit.notebook.panel import ChatPanel
from lhkit.notebook.widget import UPDATE_S, HomeLoop, Screen

pytestmark = [pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]


class Slow:
    """A model that takes a second for a hundred pieces."""

    identity = ModelIdentity(model="slow")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assert request.messages
        for _ in range(100):
            await asyncio.sleep(0.01)
            yield TextDelta(text="말 ")
        yield Finished(reason="stop", text="말 " * 100)

    async def aclose(self) -> None: ...


@pytest.mark.anyio
@pytest.mark.promise("notebook.smooth")
async def test_there_are_at_most_twenty_updates_a_second(
    make_panel: MakePanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = make_panel(Slow())
    sent: list[Any] = []
    monkeypatch.setattr(panel.widget, "send", sent.append)
    loop = asyncio.get_running_loop()
    before, begun = panel._screen.updates, loop.time()  # noqa: SLF001 - what is published
    await panel.send("talk")
    seconds = loop.time() - begun
    assert panel._screen.updates - before <= seconds / UPDATE_S + 2  # noqa: SLF001 - see above
    said = "".join(c[2] for m in sent for c in m["changes"] if c[0] == "append")
    assert said.count("말") > 80


def seconds_of(messages: int) -> float:
    """Return the CPU seconds of a conversation of so many turns, every turn published."""
    screen = Screen(loop=HomeLoop(), catalog=load_catalog(), name="x", receive=lambda _: None)
    screen.widget.send = lambda *_: None
    begun = process_time()
    for _ in range(messages):
        screen.take(Started(message=UserMessage(text="안녕")))
        screen.take(ModelCalled(turn=1))
        screen.take(TextStreamed(text="**안녕**하세요"))
        screen.take(ModelFinished(response=Finished(reason="stop")))
        screen.take(TurnEnded(reason=EndReason.ANSWERED))
    return process_time() - begun


def test_a_conversation_twice_as_long_costs_about_twice_as_much() -> None:
    short = min(seconds_of(100) for _ in range(3))
    long = min(seconds_of(200) for _ in range(3))
    assert long < 3.2 * short
    assert long / 200 < 0.01  # seconds a turn of five updates


def test_a_model_of_no_pace_is_published_at_the_end() -> None:
    async def main() -> int:
        screen = Screen(loop=HomeLoop(), catalog=load_catalog(), name="x", receive=lambda _: None)
        for _ in range(1000):
            screen.take(TextStreamed(text="token "))
        await asyncio.sleep(0)
        return screen.updates

    with asyncio.Runner() as runner:
        assert runner.run(main()) <= 1
