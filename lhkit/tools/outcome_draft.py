"""The outcome of a call that is still being dispatched."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lhkit.base.json_values import JSON
from lhkit.conversation.messages import GateOutcome, RowChange, ToolCallOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolResult


@dataclass(slots=True, kw_only=True)
class OutcomeDraft:
    """The fields of a `ToolCallOutcome`, set step by step.

    A dispatch may be interrupted at any step, so the fields are a valid outcome at each.
    """

    result: ToolResult = field(default_factory=ToolCancelled)
    gate: GateOutcome = GateOutcome.NOT_NEEDED
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

    def outcome(self) -> ToolCallOutcome:
        """Return the outcome as it is now."""
        return ToolCallOutcome(
            result=self.result,
            gate=self.gate,
            args=self.args,
            filled_in=self.filled_in,
            extra_args=self.extra_args,
            ran=self.ran,
            summary=self.summary,
            answer=self.answer,
            reason=self.reason,
            shown_args=self.shown_args,
            run_args=self.run_args,
            validation_s=self.validation_s,
            waiting_s=self.waiting_s,
            handler_s=self.handler_s,
            changes=self.changes,
        )
