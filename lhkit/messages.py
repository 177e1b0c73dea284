"""Messages of a conversation, tool calls and their outcomes, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from lhkit.json_values import JSON
from lhkit.tool_results import MAX_RESULT_BYTES, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A complete call as parsed from the model's text.

    `args` is whatever the model wrote (normally an object): nothing has been validated yet.
    `raw` is the text it was parsed from; `repairs` names what the parser had to repair. `id` is
    unique within a conversation; the `ChatController` gives it, a model need not.
    """

    name: str
    args: Any
    raw: str = ""
    repairs: tuple[str, ...] = ()
    id: str = ""


class GateOutcome(StrEnum):
    """What became of the question to the user."""

    NOT_NEEDED = "not_needed"  # read-only, or it never came to the question
    ABSENT = "absent"  # destructive, and nobody there to ask
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"  # the gate raised: counts as no
    NOT_ASKED = "not_asked"  # another destructive call of the same message came first

    @property
    def is_answer(self) -> bool:
        """True if the question was answered, with yes or no."""
        return self in {GateOutcome.ACCEPTED, GateOutcome.REJECTED}

    @property
    def was_asked(self) -> bool:
        """True if the question was put, whether or not it was answered."""
        return self.is_answer or self is GateOutcome.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutcome:
    """What became of one call: its result, the user's decision, the times.

    `gate` is the decision; None where the call was answered without being dispatched. `args` are
    the validated arguments (None if validation failed), `extra_args` the keys that were dropped.
    `ran`: the handler was started. `summary` is what the user was asked, and `answer` how they
    answered, where the gate reports it (`confirm.decision.QuestionOutcome`).
    Times are seconds; `waiting_s` was spent waiting for the user and is no part of the tool's
    latency.
    """

    result: ToolResult
    gate: GateOutcome | None = None
    args: Mapping[str, JSON] | None = None
    extra_args: tuple[str, ...] = ()
    ran: bool = False
    summary: str = ""
    answer: str = ""
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message of the user. `context` is a line for the model only, such as the present date."""

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """Words of the model that end a turn. `stopped` if the user stopped it midway."""

    text: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallMessage:
    """One call, and its outcome; None while it is pending.

    `index` is the call's place among the calls of one model message, `text` the model's words
    before the calls (kept on the first). `is_cut` marks the remains of a call that was cut off:
    its name is empty, and it can only be answered, never run. `hint` is what the model reads in
    place of a result of more than `max_bytes` (`truncation_hint` and `max_result_bytes` of the
    `Assistant`); empty for the general sentence.
    """

    call: ToolCall
    outcome: ToolCallOutcome | None = None
    text: str = ""
    index: int = 0
    is_cut: bool = False
    hint: str = ""
    max_bytes: int = MAX_RESULT_BYTES

    @classmethod
    def of(
        cls, *, name: str, args: Any, result: ToolResult, raw: str = "", **more: Any
    ) -> "ToolCallMessage":
        """Return a message of a call with this result; `more` are fields of the message."""
        call = ToolCall(name=name, args=args, raw=raw)
        return cls(call=call, outcome=ToolCallOutcome(result=result), **more)

    def settled(self, outcome: ToolCallOutcome) -> "ToolCallMessage":
        """Return the same call with its outcome."""
        return replace(self, outcome=outcome)

    @property
    def name(self) -> str:
        """The tool's name; empty for a call that was cut off."""
        return self.call.name

    @property
    def args(self) -> Any:
        """The arguments as the model wrote them."""
        return self.call.args

    @property
    def raw(self) -> str:
        """The text of the model that the call was parsed from."""
        return self.call.raw

    @property
    def result(self) -> ToolResult:
        """The result of a call that has one.

        Raises:
            ValueError: the call is pending.
        """
        if self.outcome is None:
            raise ValueError(f"the call of {self.name!r} is pending: it has no result yet")
        return self.outcome.result


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """A notice of the application to the user. It is never sent to the model."""

    text: str


Message: TypeAlias = UserMessage | ModelMessage | ToolCallMessage | SystemMessage
