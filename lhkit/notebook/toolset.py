"""What a panel talks about: tools, the assistant, and the state that the tools change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.chat.controller import Assistant
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON


def _nothing() -> Mapping[str, JSON]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolset:
    """Tools with what they need.

    `world` returns the present state as plain JSON: a list of rows per table, and `now`, the
    clock. It is what "save as scenario" writes; without it a scenario has no state.
    """

    registry: ToolRegistry
    assistant: Assistant = field(default_factory=Assistant)
    world: Callable[[], Mapping[str, JSON]] = _nothing


ToolsetSource: TypeAlias = ToolRegistry | Toolset | Callable[[str], Toolset]
"""A registry, a toolset, or a function from a locale to one."""


def toolset_of(source: ToolsetSource, locale: str, store: Any = None) -> Toolset:
    """Return the toolset in `locale`; `store` is handed to the handlers of a bare registry."""
    match source:
        case Toolset():
            return source
        case ToolRegistry():
            return Toolset(registry=source, assistant=Assistant(deps=store))
        case _:
            return source(locale)
