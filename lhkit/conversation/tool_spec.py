"""What a model reads of a tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool, as it is declared to a model.

    Attributes:
        name: 1 to 64 ASCII letters, digits, `_` or `-`.
        description: what the tool does, for the model.
        parameters: the arguments' JSON Schema (Draft 2020-12), of type `object`.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
