"""The messages of a conversation, tool calls and their outcomes, as immutable values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

from lhkit.base.json_values import JSON
from lhkit.conversation.tool_results import (
    MAX_RESULT_BYTES,
    ResultFormat,
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A complete call as parsed from the model's text.

    Attributes:
        name: the tool's name as the model wrote it.
        args: the arguments as the model wrote them, not validated; normally an object.
        raw: the text that the call was parsed from.
        repairs: codes of the repairs that the parser made.
        id: unique within a conversation; the `ChatController` sets it if the model does not.
        echo: fields that the server of the chat API wants back with the conversation, such as
            Gemini's thought signature: those of the `call`, of its `function` and, on the first
            call, of the `message`. Not part of records.
        min_logprob: the natural log-probability of the least likely token of `raw`; None unless it
            was requested and the server reports it.
        mean_logprob: the mean over these tokens.
    """

    name: str
    args: Any
    raw: str = ""
    repairs: tuple[str, ...] = ()
    id: str = ""
    echo: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    min_logprob: float | None = field(default=None, repr=False, compare=False)
    mean_logprob: float | None = field(default=None, repr=False, compare=False)


class GateOutcome(StrEnum):
    """The result of asking the user to confirm a call."""

    NOT_NEEDED = "not_needed"  # read-only, or refused before the question
    ABSENT = "absent"  # destructive, but there is no gate
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"  # the gate raised or timed out: a no
    NOT_ASKED = "not_asked"  # another destructive call of the same message came first
    POLICY = "policy"  # a policy of approvals let it run without a question

    @property
    def is_answer(self) -> bool:
        """True if the question was answered, with yes or no."""
        return self in {GateOutcome.ACCEPTED, GateOutcome.REJECTED}

    @property
    def was_asked(self) -> bool:
        """True if the question was asked, answered or not."""
        return self.is_answer or self is GateOutcome.FAILED

    @property
    def is_decided(self) -> bool:
        """True if the call was allowed or not, by an answer or by a policy."""
        return self.is_answer or self is GateOutcome.POLICY


class ChangeKind(StrEnum):
    """How rows of a table differ after a call."""

    ADDED = "added"
    REMOVED = "removed"
    MODIFIED = "modified"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """The rows of one table that were added, removed or modified during a call.

    Attributes:
        table: name of the table.
        kind: how they differ.
        count: how many they are.
        rows: the first of them: the values of the key fields of each, or a name.
    """

    table: str
    kind: ChangeKind
    count: int
    rows: tuple[tuple[Any, ...], ...] = ()


class ClaimReason(StrEnum):
    """Why the success that a reply claims did not happen."""

    NOTHING = "nothing"  # no write ran
    NOT_RUN = "not_run"  # the claimed write was not approved, or refused before the question
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseReplyClaim:
    """Words of a reply that claim a write which did not happen in its turn.

    `is_guess`: not by a success phrase of a tool, but by a classifier, which is sometimes wrong.
    """

    words: str
    reason: ClaimReason
    is_guess: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutcome:
    """The outcome of one call: its result, the user's decision, the times.

    Attributes:
        result: the tool result.
        gate: the decision; None if the call was answered without being dispatched.
        args: the validated arguments as the model proposed them, read-only; of a destructive call
            with everything that it left out, as the user was asked. None if validation failed.
        filled_in: JSON Pointers (RFC 6901) of the values in `args` that the model left out.
        extra_args: the undeclared keys that were dropped.
        ran: the handler was started.
        summary: the text that the user was asked to confirm; empty without a question.
        answer: the `lhkit.confirm.decision.QuestionOutcome`, if the gate reports one.
        reason: the user's reason for the decision, or why it was refused.
        shown_args: the arguments that the user edited and approved; None without an edit.
        run_args: the edited arguments that the handler was started with; None without an edit.
        validation_s: seconds of validation.
        waiting_s: seconds spent waiting for the user; not part of the tool's latency.
        handler_s: seconds of the handler.
        changes: the difference of the session's state before and after the handler; empty if
            nothing changed, None if the state is not available.
    """

    result: ToolResult
    gate: GateOutcome | None = None
    args: Mapping[str, JSON] | None = None
    filled_in: tuple[str, ...] = ()
    extra_args: tuple[str, ...] = ()
    ran: bool = False
    summary: str = ""
    answer: str = ""
    reason: str = ""
    shown_args: Mapping[str, JSON] | None = None
    run_args: Mapping[str, JSON] | None = None
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0
    changes: tuple[RowChange, ...] | None = None

    @property
    def effective_args(self) -> Mapping[str, JSON] | None:
        """The validated arguments that ran, or would have: after an edit the edited ones."""
        return self.args if self.run_args is None else self.run_args

    @property
    def code(self) -> str:
        """`ok`, `cancelled` or the error code of the result."""
        match self.result:
            case ToolOk():
                return "ok"
            case ToolErr(code=code):
                return code
            case ToolCancelled():
                return "cancelled"
            case _:
                assert_never(self.result)

    @property
    def changed(self) -> bool | None:
        """Whether the tool says that it changed data; None if it does not say."""
        return None if isinstance(self.result, ToolCancelled) else self.result.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message of the user; `context` is a line for the model only, such as the current date."""

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """A text of the model that ends a turn; `stopped` if the user stopped it midway."""

    text: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallMessage:
    """One call and its outcome.

    Attributes:
        call: the call.
        outcome: its outcome; None while it is pending.
        text: the model's text before the calls, on the first call of a model message.
        index: the position among the calls of one model message.
        is_cut: the call was cut off: its name is empty and it never runs.
        hint: the text that replaces a result of more than `max_bytes`; empty for the
            default text. Set from `Assistant.truncation_hint`.
        max_bytes: limit of the result for the model. Set from `Assistant.max_result_bytes`.
        result_format: how the model reads the result; None for the default of the dialect. Set
            from `Assistant.result_format`.
    """

    call: ToolCall
    outcome: ToolCallOutcome | None = None
    text: str = ""
    index: int = 0
    is_cut: bool = False
    hint: str = ""
    max_bytes: int = MAX_RESULT_BYTES
    result_format: ResultFormat | None = None

    @classmethod
    def of(
        cls, *, name: str, args: Any, result: ToolResult, raw: str = "", **more: Any
    ) -> "ToolCallMessage":
        """Return a completed call with this result; `more` are fields of the message."""
        call = ToolCall(name=name, args=args, raw=raw)
        return cls(call=call, outcome=ToolCallOutcome(result=result), **more)

    @property
    def name(self) -> str:
        """The tool's name; empty for a call that was cut off."""
        return self.call.name

    @property
    def args(self) -> Any:
        """The arguments as the model wrote them."""
        return self.call.args

    @property
    def effective_args(self) -> Any:
        """The arguments that ran, after an edit the edited ones; else those of the model."""
        outcome = self.outcome
        if outcome is None or not (outcome.ran or self.is_edited):
            return self.call.args
        return outcome.effective_args

    @property
    def is_edited(self) -> bool:
        """Whether it ran with arguments that the user had edited."""
        return self.outcome is not None and self.outcome.run_args is not None

    @property
    def is_unasked(self) -> bool:
        """Whether a policy of approvals let it run without a question."""
        return self.outcome is not None and self.outcome.gate is GateOutcome.POLICY

    @property
    def raw(self) -> str:
        """The text that the call was parsed from."""
        return self.call.raw

    @property
    def min_logprob(self) -> float | None:
        """The log-probability of the least likely token of the call; None if unknown."""
        return self.call.min_logprob

    @property
    def mean_logprob(self) -> float | None:
        """The mean log-probability of the tokens of the call; None if unknown."""
        return self.call.mean_logprob

    @property
    def result(self) -> ToolResult:
        """The result of a completed call.

        Raises:
            ValueError: the call is pending.
        """
        if self.outcome is None:
            raise ValueError(f"the call of {self.name!r} is pending: it has no result yet")
        return self.outcome.result


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """A notice of the application to the user; never sent to the model."""

    text: str


Message: TypeAlias = UserMessage | ModelMessage | ToolCallMessage | SystemMessage
