"""The record of one dispatch. Times are seconds of a monotonic clock, as durations."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lhkit.vocab.json_values import JSON
from lhkit.vocab.results import ToolResult


class GateOutcome(StrEnum):
    """What became of the question to the user."""

    NOT_NEEDED = "not_needed"  # read-only, or it never came to the question
    ABSENT = "absent"  # destructive, and nobody there to ask
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"  # the gate raised: counts as no
    NOT_ASKED = "not_asked"  # another destructive call of the same message came first


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTrace:
    """What one call went through.

    `args` holds the validated arguments (None if validation failed), `extra_args` the keys that
    were dropped. `ran` tells whether the handler was started. `waiting_s` is time spent waiting
    for a person and is no part of the tool's latency.
    """

    name: str
    raw_args: Any
    args: Mapping[str, JSON] | None
    extra_args: tuple[str, ...]
    gate: GateOutcome
    ran: bool
    result: ToolResult
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0
