"""The line of truth under a reply: what a turn wrote, from its calls and not from its words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.locales import Catalog
from lhkit.messages import GateOutcome, ToolCallMessage, ToolCallOutcome
from lhkit.text import one_line, visible
from lhkit.tool_results import ToolCancelled, result_to_dict

_LABEL_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCall:
    """A completed call, as far as it says what was written.

    Attributes:
        tool: name of the tool.
        args: the arguments that it was run with, or would have been.
        gate: the decision; None if the call was answered without being dispatched.
        ran: the handler was started.
        outcome: `ok`, `cancelled` or an error code.
    """

    tool: str
    args: Mapping[str, Any]
    gate: GateOutcome | None
    ran: bool
    outcome: str


def truth_line(calls: Iterable[ToolCallMessage], catalog: Catalog) -> str:
    """Return what the calls of a turn wrote, as one line such as `Saved: add_habit · tea`.

    Args:
        calls: the calls of the turn, such as `Transcript.calls_of_this_turn`.
        catalog: texts.

    Returns:
        The writes that ran, those that failed midway and may have written something, and those
        that the user did not approve; without any of them, that nothing was changed.
    """
    return truth_of_calls(map(_completed, calls), catalog)


def truth_of_calls(calls: Iterable[CompletedCall], catalog: Catalog) -> str:
    """Return the line of `truth_line` for calls from another source, such as a record."""
    writes: dict[str, list[str]] = {"saved": [], "unclear": [], "cancelled": []}
    for call in calls:
        if (key := _kind(call)) is not None:
            writes[key].append(_label(call))
    lines = [
        catalog.text(f"truth.{key}", writes=", ".join(labels))
        for key, labels in writes.items()
        if labels
    ]
    return " / ".join(lines) or catalog.text("truth.nothing")


def _completed(call: ToolCallMessage) -> CompletedCall:
    outcome = call.outcome or ToolCallOutcome(result=ToolCancelled())
    result = result_to_dict(outcome.result)
    return CompletedCall(
        tool=call.name,
        args=outcome.run_args or outcome.args or {},
        gate=outcome.gate,
        ran=outcome.ran,
        outcome=result.get("code", result["status"]),
    )


def _kind(call: CompletedCall) -> str | None:
    """Return `saved`, `unclear` or `cancelled`; None for a call that changed nothing."""
    if call.gate is None or not call.gate.was_asked:
        return None  # read-only, refused before the question, or not asked
    if call.gate is not GateOutcome.ACCEPTED:
        return "cancelled"
    if call.ran and call.outcome in _UNCLEAR:
        return "unclear"
    return "saved" if call.ran and call.outcome == "ok" else None


def _label(call: CompletedCall) -> str:
    """Return the tool, and the arguments that name the thing it wrote."""
    thing = one_line(visible(_thing(call.args)), max_chars=_LABEL_CHARS)
    return f"{visible(call.tool)} · {thing}" if thing else visible(call.tool)


def _thing(args: Mapping[str, Any]) -> str:
    """Return the ids and names among the arguments, else all texts and numbers, by name."""
    texts = {
        name: str(value)
        for name, value in sorted(args.items())
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    named = [text for name, text in texts.items() if name in _NAMES or name.endswith("_id")]
    return ", ".join(named or texts.values())


_UNCLEAR = frozenset({"handler_error", "tool_error", "bad_result"})
"""Codes of failures, also of MCP servers, after which something may have been written."""

_NAMES = frozenset({"id", "name", "title", "path"})
