"""What the chat panel costs the kernel: CPU per streamed token, and per turn of a long history.

No browser is attached: measured are the fold, the HTML and the messages that would be sent. The
bare line is the same paced loop without a panel. Run it with `make bench`.
"""

import asyncio
import platform
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from importlib.metadata import version

import figures
from figures import Figure, Machine, Measurement

from lhkit.messages import Finished, ModelEvent, ModelIdentity, TextDelta
from lhkit.models.base import ModelRequest
from lhkit.notebook import ChatPanel
from lhkit.tools.registry import ToolRegistry

TOKENS = 1000
PACE_S = 0.004
GOAL_UPDATES_A_SECOND = 20.0
GOAL_TOKEN_US = 200.0
GOAL_GROWTH = 1.5
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU microseconds a token, updates a second, and CPU milliseconds a turn: first, last 50."""

    token_us: float
    updates_a_second: float
    early_ms: float
    late_ms: float


async def measure() -> Costs:
    """Stream one long answer, then hold a long conversation."""
    floor = await bare(TOKENS)
    panel = panel_of(TOKENS, PACE_S)
    begun_s = time.perf_counter()
    cost = await streamed(panel)
    wall_s = time.perf_counter() - begun_s
    updates: int = panel._screen.updates  # noqa: SLF001 - what is measured
    talk = panel_of(20, 0)
    turns = [await streamed(talk) for _ in range(200)]
    return Costs(
        token_us=(cost - floor) / TOKENS * 1e6,
        updates_a_second=updates / wall_s,
        early_ms=sum(turns[:50]) / 50 * 1e3,
        late_ms=sum(turns[-50:]) / 50 * 1e3,
    )


def found(costs: Costs, machine: Machine) -> Measurement:
    """Return the figures."""
    rows = (
        ("CPU a streamed token", costs.token_us, "µs", GOAL_TOKEN_US),
        ("updates of the page", costs.updates_a_second, "a second", GOAL_UPDATES_A_SECOND),
        (
            "CPU a turn, the last 50 of 200 turns: times the first 50",
            costs.late_ms / costs.early_ms,
            "×",
            GOAL_GROWTH,
        ),
    )
    return Measurement(
        title="Chat panel: what a streamed answer costs the kernel",
        command="python evals/benchmarks/panel_streaming.py",
        versions={"Python": platform.python_version(), "ipywidgets": version("ipywidgets")},
        figures=tuple(Figure(what=w, value=v, unit=u, at_most=most) for w, v, u, most in rows),
        machine=machine,
    )


def page(costs: Costs, told: Measurement) -> str:
    """Return the page."""
    lines = [
        *figures.heading(told, f"{TOKENS:,} tokens, one each {PACE_S * 1000:.0f} ms"),
        "One answer without a browser; the CPU of the pauses alone is taken off. Then 200 short",
        f"turns: the first 50 cost {costs.early_ms:.2f} ms each, the last 50 {costs.late_ms:.2f}.",
        "",
        *figures.goals(told.figures),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the page."""
    machine = figures.this_machine()
    costs = asyncio.run(measure())
    measurement = found(costs, machine)
    figures.write("panel_streaming", page(costs, measurement), measurement)


if __name__ == "__main__":
    main()
