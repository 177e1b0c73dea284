"""Records built for tests, and the types of the fixtures of `conftest.py`."""

import io
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from rich.console import Console, RenderableType

from lhkit.chat.assistant import Assistant
from lhkit.chat.step import MAX_TURNS
from lhkit.conversation.events import EndReason
from lhkit.conversation.responses import Finished
from lhkit.harness.records.record import (
    ModelCallRecord,
    SampleRecord,
    SampleScore,
    Severity,
    Trajectory,
    TurnRecord,
    Verdict,
    Violation,
)
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.tools.registry import ToolRegistry

Load = Callable[[str], tuple[Scenario, ...]]
Play = Callable[..., Awaitable[Run]]

PASS, FAIL, INVALID = Verdict.PASS, Verdict.FAIL, Verdict.INVALID


def model_call(duration_s: float = 0.0, offset_s: float = 0.0, **finished: Any) -> ModelCallRecord:
    response = Finished(reason="stop", **finished)
    return ModelCallRecord(response=response, duration_s=duration_s, offset_s=offset_s)


def turn_of(*model_calls: ModelCallRecord, **more: Any) -> TurnRecord:
    more = {"user": "hello", "ended": EndReason.ANSWERED, **more}
    return TurnRecord(model_calls=model_calls, **more)


def sample(
    scenario: str = "s",
    verdict: Verdict | str = PASS,
    repeat: int = 0,
    *turns: TurnRecord,
    ac: str = "AC-1",
    locale: str = "ko",
    tags: tuple[str, ...] = (),
    content_hash: str = "h",
    **score: Any,
) -> SampleRecord:
    return SampleRecord(
        sample_id=SampleId(scenario=scenario, repeat=repeat),
        content_hash=content_hash,
        ac=ac,
        locale=locale,
        tags=tags,
        trajectory=Trajectory(turns=turns),
        score=SampleScore(verdict=Verdict(verdict), **score),
    )


def blocked(code: str, turn: int = 0) -> Violation:
    return Violation(code=code, severity=Severity.ATTEMPTED, turn=turn)


def occurred(code: str) -> Violation:
    return Violation(code=code, severity=Severity.ESCAPED)


def printed(view: RenderableType, width: int = 100, **options: Any) -> str:
    """Return the output on a terminal without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(view, **options)
    return capture.get()


@dataclass(kw_only=True)
class PlainSession:
    """A session whose state is what `seen` returns."""

    registry: ToolRegistry
    seen: Callable[[], Any]
    deps: Any = None
    today: date = date(2026, 6, 15)
    instructions: str = ""
    max_turns: int = MAX_TURNS

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions=self.instructions, deps=self.deps, max_turns=self.max_turns)

    def state(self) -> Any:
        return self.seen()

    def close(self) -> None:
        """Nothing to close."""


@dataclass(kw_only=True)
class KeyedSession(PlainSession):
    """A session that names the keys of its rows."""

    keys: Mapping[str, Any] = field(default_factory=dict)

    def row_keys(self) -> Mapping[str, Any]:
        return self.keys


class SteppingClock:
    """Monotonic seconds that advance by a fixed step at every look."""

    def __init__(self, step_s: float = 0.001) -> None:
        self._now_s = 0.0
        self._step_s = step_s

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s
