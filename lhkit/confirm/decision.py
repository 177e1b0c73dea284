"""The answer to a confirmation: yes or no, and how it was given."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class QuestionOutcome(StrEnum):
    """How a question was answered. Only the four that say so are a yes."""

    RUN = "run"
    SENT = "sent"  # a form, filled in
    TYPED_YES = "typed_yes"
    CODE_YES = "code_yes"  # answered by the program, such as a notebook under nbval
    CANCEL = "cancel"
    DECLINED = "declined"  # a form
    ESCAPE = "escape"
    TYPED_NO = "typed_no"
    CODE_NO = "code_no"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    NOBODY = "nobody"  # no front end that can click, nobody who can type
    FAILED = "failed"
    WITHDRAWN = "withdrawn"  # the caller is gone, or no longer needs an answer

    @property
    def is_allowed(self) -> bool:
        """True if the tool may run, or the form be sent."""
        return self in _ALLOWED


_ALLOWED = frozenset(
    {
        QuestionOutcome.RUN,
        QuestionOutcome.SENT,
        QuestionOutcome.TYPED_YES,
        QuestionOutcome.CODE_YES,
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a gate may return in place of a bool: the answer, and how it was given."""

    outcome: QuestionOutcome

    def __bool__(self) -> bool:
        """Return True for an explicit yes."""
        return self.outcome.is_allowed


def is_approved(answer: Any) -> bool:
    """Return True if what a gate returned is an explicit yes: True, or a `Decision` for it."""
    return answer is True or (type(answer) is Decision and bool(answer))
