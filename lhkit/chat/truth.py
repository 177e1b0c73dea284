"""The line of truth under a reply: what a turn wrote, from its calls and not from its words."""

from collections.abc import Iterable, Mapping
from typing import Any

from lhkit.locales import Catalog
from lhkit.messages import GateOutcome, ToolCallMessage
from lhkit.text import one_line, visible
from lhkit.tool_results import ToolErr, ToolOk

_LABEL_CHARS = 60


def truth_line(calls: Iterable[ToolCallMessage], catalog: Catalog) -> str:
    """Return what the calls of a turn wrote, as one line such as `Saved: add_habit · tea`.

    Args:
        calls: the calls of the turn, such as `Transcript.calls_of_this_turn`.
        catalog: texts.

    Returns:
        The writes that ran, those that failed midway and may have written something, and those
        that the user did not approve; without any of them, that nothing was changed.
    """
    writes: dict[str, list[str]] = {"saved": [], "unclear": [], "cancelled": []}
    for call in calls:
        if (key := _kind(call)) is not None:
            writes[key].append(_label(call))
    lines = [
        catalog.text(f"truth.{key}", writes=", ".join(dict.fromkeys(labels)))
        for key, labels in writes.items()
        if labels
    ]
    return " / ".join(lines) or catalog.text("truth.nothing")


def _kind(call: ToolCallMessage) -> str | None:
    """Return `saved`, `unclear` or `cancelled`; None for a call that changed nothing."""
    outcome = call.outcome
    if outcome is None or outcome.gate is None or not outcome.gate.was_asked:
        return None  # read-only, refused before the question, or not asked
    if outcome.gate is not GateOutcome.ACCEPTED:
        return "cancelled"
    if not outcome.ran:
        return None
    match outcome.result:
        case ToolOk():
            return "saved"
        case ToolErr(code="handler_error"):
            return "unclear"
        case _:
            return None  # refused by the tool


def _label(call: ToolCallMessage) -> str:
    """Return the tool, and the argument that names the thing it wrote."""
    outcome = call.outcome
    args = (outcome and (outcome.run_args or outcome.args)) or {}
    thing = _thing(args)
    name = visible(call.name)
    return name if thing is None else f"{name} · {one_line(visible(thing), max_chars=_LABEL_CHARS)}"


def _thing(args: Mapping[str, Any]) -> str | None:
    """Return an id or name among the arguments, else the first text or number."""
    texts = {
        name: str(value)
        for name, value in sorted(args.items())
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    named = [text for name, text in texts.items() if name in _NAMES or name.endswith("_id")]
    return next(iter([*named, *texts.values()]), None)


_NAMES = frozenset({"id", "name", "title", "path"})
