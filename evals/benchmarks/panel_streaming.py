"""What the chat panel costs the kernel: CPU per streamed token, and per turn of a long history.

No browser is attached: measured are the fold, the HTML and the messages that would be sent. The
bare line is the same paced loop without a panel.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from lhkit.models.base import ModelRequest
from lhkit.notebook import ChatPanel
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import Finished, ModelEvent, ModelIdentity, TextDelta

TOKENS = 1000
PACE_S = 0.004
PIECES = ("안녕", "하세요", " 물", "을 ", "마셔", "요", ". ", "Hello")


class Paced:
    """A model of so many tokens."""

    identity = ModelIdentity(model="paced")

    def __init__(self, tokens: int, pace_s: float) -> None:
        self._tokens = tokens
        self._pace_s = pace_s

    async def stream(
        self,
        request: ModelRequest,  # noqa: ARG002 - the protocol's name
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the tokens, a pause before each."""
        for number in range(self._tokens):
            await asyncio.sleep(self._pace_s)
            yield TextDelta(text=PIECES[number % len(PIECES)])
        yield Finished(reason="stop")

    async def aclose(self) -> None:
        """Do nothing."""


async def bare(tokens: int) -> float:
    """Return the CPU seconds of the pauses alone."""
    begun = time.process_time()
    for _ in range(tokens):
        await asyncio.sleep(PACE_S)
    return time.process_time() - begun


async def streamed(panel: ChatPanel) -> float:
    """Return the CPU seconds of one turn."""
    begun = time.process_time()
    await panel.send("말해 줘")
    return time.process_time() - begun


def panel_of(tokens: int, pace_s: float) -> ChatPanel:
    """Return a panel over a model of so many tokens."""
    return ChatPanel(model=Paced(tokens, pace_s), toolset=ToolRegistry(), opt_in=True)


async def main() -> None:
    """Print the figures."""
    floor = await bare(TOKENS)
    panel = panel_of(TOKENS, PACE_S)
    cost = await streamed(panel)
    updates = panel._screen.updates  # noqa: SLF001 - what is measured
    print(f"{TOKENS} tokens: {updates} updates, {(cost - floor) / TOKENS * 1e6:.0f} µs CPU a token")
    talk = panel_of(20, 0)
    turns = [await streamed(talk) for _ in range(200)]
    early, late = sum(turns[:50]) / 50, sum(turns[-50:]) / 50
    print(
        f"200 turns: the first 50 cost {early * 1e3:.2f} ms each, the last 50 {late * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    asyncio.run(main())
