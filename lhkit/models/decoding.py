"""How decoding may be constrained."""

from typing import Literal, TypeAlias

Constraint: TypeAlias = Literal["off", "auto", "required"]
"""Constrained decoding: `off`; `auto`, free text or a valid call; `required`, a valid call."""
