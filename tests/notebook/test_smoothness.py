"""Long answers and long conversations: few updates, and each costs the same."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.conversation.responses import Finished, ModelEvent, ModelIdentity, TextDelta
from lhkit.models.base import ModelRequest
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.screen import UPDATE_S, Screen

pytestmark = pytest.mark.timeout(300)

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


@pytest.mark.longer
@pytest.mark.anyio
async def test_screen_updates_at_most_twenty_times_a_second(
    make_panel: MakePanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = make_panel(Slow())
    sent: list[Any] = []
    monkeypatch.setattr(panel.widget, "send", sent.append)
    loop = asyncio.get_running_loop()
    before, begun = panel._screen.updates, loop.time()
    await panel.send("talk")
    seconds = loop.time() - begun
    assert panel._screen.updates - before <= seconds / UPDATE_S + 2
    text = "".join(c[2] for m in sent for c in m["changes"] if c[0] == "append")
    assert text.count("말") > 80


def test_screen_publishes_a_fast_stream_once() -> None:
    async def main() -> int:
        screen = Screen(
            loop=HomeLoop(), catalog=load_catalog("ko"), name="x", receive=lambda _: None
        )
        for _ in range(1000):
            screen.apply(TextDelta(text="token "))
        await asyncio.sleep(0)
        return screen.updates

    with asyncio.Runner() as runner:
        assert runner.run(main()) <= 1
