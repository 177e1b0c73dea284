"""Tools without a world of their own: what a bare registry is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.json_values import JSON
from lhkit.locales import available_locales
from lhkit.settings import load_settings
from lhkit.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class BareToolset:
    """Tools without a world of their own: what a bare registry is. All languages have one text."""

    registry: ToolRegistry
    assistant: Assistant = field(default_factory=Assistant)
    name: str = "tools"
    locales: tuple[str, ...] = field(default_factory=available_locales)

    def open(self, world: Mapping[str, Any], locale: str) -> "BareSession":
        """Return a session without a state; of `world`, only `now` means something."""
        return BareSession(
            registry=self.registry, assistant=self.assistant, today=day_of(world.get("now"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSession:
    """A conversation over tools whose data lhkit knows nothing of."""

    registry: ToolRegistry
    assistant: Assistant
    today: date

    def state(self) -> Mapping[str, JSON]:
        """Return nothing: whatever the tools change cannot be seen."""
        return {}

    def close(self) -> None:
        """Leave everything as it is."""


def day_of(now: Any) -> date:
    """Return the day of a world's clock; without one, that of the wall clock, as the tools see."""
    if now is None:
        return load_settings().now().date()
    try:
        return datetime.fromisoformat(now).date()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"world.now: {now!r} is no time: write one such as 2026-03-04T09:00:00+09:00"
        ) from error
