"""What a panel talks about: tools, the assistant, and the state that the tools change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.chat.controller import Assistant
from lhkit.locales import available_locales
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON


def _nothing() -> Mapping[str, JSON]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolset:
    """Tools with what they need.

    `world` returns the present state as plain JSON: a list of rows per table, and `now`, the
    clock. It is what "save as scenario" writes; without it a scenario has no state.
    `row_keys` names the fields that tell the rows of a table apart, as a session's `row_keys()`.
    """

    registry: ToolRegistry
    assistant: Assistant = field(default_factory=Assistant)
    world: Callable[[], Mapping[str, JSON]] = _nothing
    row_keys: Mapping[str, Sequence[str]] = field(default_factory=dict)


ToolsetSource: TypeAlias = ToolRegistry | Toolset | Callable[[str], Toolset]
"""A registry, a toolset, or a function from a locale to one.

A function is asked for every language once, when a panel is made: it raises in those that its tools
do not speak.
"""


def toolset_of(source: ToolsetSource, locale: str, store: Any = None) -> Toolset:
    """Return the toolset in `locale`; `store` is handed to the handlers of a bare registry."""
    match source:
        case Toolset():
            return source
        case ToolRegistry():
            return Toolset(registry=source, assistant=Assistant(deps=store))
        case _:
            return source(locale)


def spoken_locales(source: ToolsetSource, present: str) -> tuple[str, ...]:
    """Return the languages that both lhkit and the tools have, sorted.

    Args:
        source: the tools; a registry or a toolset has the same texts in all languages.
        present: the language that the tools are opened in anyhow, and in which they are not asked.
    """
    if isinstance(source, Toolset | ToolRegistry):
        return available_locales()
    return tuple(each for each in available_locales() if each == present or _opens(source, each))


def _opens(source: Callable[[str], Toolset], locale: str) -> bool:
    try:
        source(locale)
    except Exception:  # noqa: BLE001 - boundary: however their function refuses a language
        return False
    return True
