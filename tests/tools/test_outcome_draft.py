"""OutcomeDraft: the outcome of a dispatch so far, as a `ToolCallOutcome`."""

from dataclasses import fields

from lhkit.conversation.messages import ChangeKind, GateOutcome, RowChange, ToolCallOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolErr
from lhkit.tools.outcome_draft import OutcomeDraft

COMPLETE = ToolCallOutcome(
    result=ToolErr("full", "꽉 찼어요", {"to": "Lee"}, changed=False),
    gate=GateOutcome.ACCEPTED,
    args={"to": "Kim", "day": "2026-06-15"},
    filled_in=("/day",),
    extra_args=("cc",),
    ran=True,
    summary="Send to Lee",
    answer="run",
    reason="이쪽이 맞아요",
    shown_args={"to": "Lee"},
    run_args={"to": "Lee", "day": "2026-06-15"},
    validation_s=0.25,
    waiting_s=1.5,
    handler_s=0.5,
    changes=(RowChange(table="mails", kind=ChangeKind.ADDED, count=1),),
)


def test_outcome_draft_passes_on_every_field() -> None:
    draft = OutcomeDraft()
    for field in fields(ToolCallOutcome):
        before = draft.outcome()
        setattr(draft, field.name, getattr(COMPLETE, field.name))
        assert draft.outcome() != before, field.name
    assert draft.outcome() == COMPLETE


def test_outcome_draft_starts_as_unapproved_call() -> None:
    outcome = OutcomeDraft().outcome()
    assert outcome == ToolCallOutcome(result=ToolCancelled(), gate=GateOutcome.NOT_NEEDED)
    assert not outcome.ran
