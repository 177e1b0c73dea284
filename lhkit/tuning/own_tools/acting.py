"""What the expert does: the calls of a wish, then words for what really came of them."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.errors import TuningError
from lhkit.models.scripted import Reply, say
from lhkit.tuning.expert import Act
from lhkit.tuning.own_tools.templates import Slot, filled, word_in
from lhkit.vocab.json_values import compact
from lhkit.vocab.messages import ToolCall, ToolCallMessage
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, ToolResult, encode_tool_result

_OURS = frozenset({"handler_error", "validation", "unknown_tool", "repeated_call"})
"""Results that no phrase is written for: the tool broke, or the call should not have been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One call, the words that stand for its arguments, and what may be said afterwards.

    `place` is where the replies stand: `file:line: field`.
    """

    tool: str
    args: Mapping[str, Any]
    words: Mapping[str, str]
    replies: Mapping[str, Sequence[str]]
    place: str


def acting(wishes: Sequence[Wish], *, seed: int) -> Act:
    """Return an act that makes the calls one after the other and then speaks of all of them.

    Raises (when it acts):
        TuningError: a tool broke, or no reply fits what came of a call.
    """

    def act(settled: Sequence[ToolCallMessage]) -> Reply:
        if len(settled) < len(wishes):
            wish = wishes[len(settled)]
            return Reply(calls=(ToolCall(name=wish.tool, args=dict(wish.args)),))
        rng = random.Random(seed)  # noqa: S311 - a choice of words, no secret
        told = (
            _words(wish, message.result, rng) for wish, message in zip(wishes, settled, strict=True)
        )
        return say(" ".join(told))

    return act


def _words(wish: Wish, result: ToolResult, rng: random.Random) -> str:
    outcomes, data = _outcomes(wish, result)
    for outcome in outcomes:
        replies = list(wish.replies.get(outcome, ()))
        for template in rng.sample(replies, len(replies)):
            text = filled(template, lambda slot: _word(wish, data, slot))
            if text is not None:
                return text
    raise TuningError(_unsaid(wish, outcomes, data))


def _word(wish: Wish, data: Mapping[str, Any], slot: Slot) -> str | None:
    if slot.name in wish.words and not slot.key:
        return wish.words[slot.name]
    return word_in(data, slot)


def _outcomes(wish: Wish, result: ToolResult) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return under which keys a reply may stand, best first, and the fields it may name.

    These are the fields that the model sees: a result that is too long has lost its data.
    """
    match result:
        case ToolCancelled():
            return ("cancelled",), {}
        case ToolErr(code=code, reason=reason):
            if code in _OURS:
                raise TuningError(
                    f"the tool {wish.tool} answered {code} to {compact(wish.args)} ({reason}): "
                    "mend the tool, or change the values or worlds of the phrase file"
                )
            is_missing = code.endswith("not_found")
            keys = (code, "not_found", "refused") if is_missing else (code, "refused")
            return keys, {"code": code, "reason": reason}
        case ToolOk():
            data: Mapping[str, Any] = json.loads(encode_tool_result(result))["data"]
            return _outcomes_of(data), data


def _outcomes_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys for a result: one that holds nothing at all is not found.

    With an empty list beside other fields it may be either; the replies decide, by their slots.
    """
    if data and not any(data.values()):
        return ("not_found", "ok")
    return ("ok", "not_found") if [] in data.values() else ("ok",)


def _unsaid(wish: Wish, outcomes: Sequence[str], data: Mapping[str, Any]) -> str:
    fields = ", ".join([*wish.words, *data]) or "none"
    keys = " or ".join(f"`{outcome}`" for outcome in outcomes)
    return (
        f"{wish.place}: {wish.tool} came to `{outcomes[0]}` with {compact(wish.args)} and no reply "
        f"for it can be filled (slots there: {fields}): write one under {keys}"
    )
