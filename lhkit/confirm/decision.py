"""Decisions on a destructive call: approve it, edit its arguments, or reject it with a reason."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from lhkit.base.json_values import JSON, canonical


class QuestionOutcome(StrEnum):
    """How a question was answered."""

    RUN = "run"
    SENT = "sent"  # a form was filled in
    TYPED_YES = "typed_yes"
    CODE_YES = "code_yes"  # answered by a program, such as a notebook under nbval
    POLICY = "policy"  # not asked: a policy of approvals let it run
    CANCEL = "cancel"
    DECLINED = "declined"  # a form was declined
    ESCAPE = "escape"
    TYPED_NO = "typed_no"
    CODE_NO = "code_no"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    NOBODY = "nobody"  # no front end is connected
    FAILED = "failed"
    WITHDRAWN = "withdrawn"  # the caller was cancelled or no longer needs an answer
    OTHER_REQUEST = "other_request"  # the decision belongs to another request
    INVALID_EDIT = "invalid_edit"  # the edited arguments are invalid

    @property
    def is_allowed(self) -> bool:
        """True if the tool may run, or the form may be sent."""
        return self in _ALLOWED

    @property
    def is_failure(self) -> bool:
        """True if the gate failed, timed out, or answered another request."""
        return self in _FAILURES


_ALLOWED = frozenset(
    {
        QuestionOutcome.RUN,
        QuestionOutcome.SENT,
        QuestionOutcome.TYPED_YES,
        QuestionOutcome.CODE_YES,
        QuestionOutcome.POLICY,
    }
)
_FAILURES = frozenset(
    {QuestionOutcome.TIMED_OUT, QuestionOutcome.FAILED, QuestionOutcome.OTHER_REQUEST}
)


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call as it was shown.

    Attributes:
        how: how the question was answered, for the record.
        binding: `ConfirmRequest.binding` of the request that it decides; empty for the one that
            the gate is answering. A gate whose answers come from elsewhere, such as a browser,
            sets it: a decision on any other request runs nothing.
    """

    _: KW_ONLY
    how: QuestionOutcome | None = None
    binding: str = ""


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run the call.

    Attributes:
        reason: the user's reason; the model reads it as `user_message`.
        how: as in `Approve`.
        binding: as in `Approve`.
    """

    reason: str = ""
    _: KW_ONLY
    how: QuestionOutcome | None = None
    binding: str = ""

    def __bool__(self) -> bool:
        """Return False, so that `if await gate.confirm(request)` never runs a rejected call."""
        return False


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with other arguments, which the tool's schema must accept.

    The model reads the result and, as `edited`, the arguments that changed.

    Attributes:
        arguments: all arguments, not only the changed ones: `{**request.args, "date": "…"}`.
        reason: why, for the record.
        how: as in `Approve`.
        binding: as in `Approve`.
    """

    arguments: Mapping[str, JSON]
    reason: str = ""
    _: KW_ONLY
    how: QuestionOutcome | None = None
    binding: str = ""

    def __bool__(self) -> bool:
        """Return False: the call as it was proposed is not approved."""
        return False


Decision: TypeAlias = Approve | Reject | Edit


def decision_of(answer: Any) -> Decision:
    """Return a gate's answer as a decision: True is `Approve()`, anything else `Reject()`."""
    if type(answer) not in (Approve, Reject, Edit):
        return Approve() if answer is True else Reject()
    decision: Decision = answer
    texts: list[Any] = [decision.binding, getattr(decision, "reason", "")]
    outcome: Any = decision.how
    is_valid = all(isinstance(text, str) for text in texts)
    if not (is_valid and (outcome is None or isinstance(outcome, QuestionOutcome))):
        return Reject(how=QuestionOutcome.FAILED)
    if outcome is QuestionOutcome.POLICY and not isinstance(decision, Approve):
        return Reject(how=QuestionOutcome.FAILED)  # a policy only lets calls run as they are
    if isinstance(decision, Reject) or decision.how is None or decision.how.is_allowed:
        return decision
    return Reject(how=decision.how, binding=decision.binding)  # it contradicts itself


def changed_arguments(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the arguments that an edit changed; None for those that it removed."""
    same = {
        name
        for name in before.keys() & after.keys()
        if canonical(before[name]) == canonical(after[name])
    }
    changed = {name: value for name, value in after.items() if name not in same}
    return changed | {name: None for name in before if name not in after}
