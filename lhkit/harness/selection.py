"""Scores of tool selection: precision, recall, exact calls, confusion. Pure.

Counted over calls (micro average). An optional call that was made counts as a right choice; one
that was left out does not count, nor does an unexpected call that the scenario allows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lhkit.harness.record import CallScore, TurnScore

NO_CALL = ""
"""The name for "no call" in the confusion matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Counts of selected tools and compared arguments.

    Attributes:
        chosen: calls of an expected tool, whatever their arguments.
        unexpected: calls that were not expected.
        missing: expected calls that were not made.
        exact: chosen calls with every argument right.
        arguments: compared arguments of the chosen calls.
        right_arguments: those that are right.
        confusion: counts of (expected tool, called tool): the n-th missing call of a turn with the
            n-th unexpected one, and (`NO_CALL`, `NO_CALL`) for a turn that rightly had none.
    """

    chosen: int = 0
    unexpected: int = 0
    missing: int = 0
    exact: int = 0
    arguments: int = 0
    right_arguments: int = 0
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def precision(self) -> float | None:
        """The share of calls that were of an expected tool; None where nothing was called."""
        return _share(self.chosen, self.chosen + self.unexpected)

    @property
    def recall(self) -> float | None:
        """The share of expected calls whose tool was called; None where none was expected."""
        return _share(self.chosen, self.chosen + self.missing)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without calls."""
        return _share(2 * self.chosen, 2 * self.chosen + self.unexpected + self.missing)


def count_selection(scores: Iterable[TurnScore]) -> Selection:
    """Count the calls of some turns; a call without a name chose nothing."""
    chosen = unexpected = missing = exact = arguments = right = 0
    confusion: Counter[tuple[str, str]] = Counter()
    for score in scores:
        confusion.update(_confusion_pairs(score.calls))
        for row in score.calls:
            if row.expected is not None and row.actual is not None:
                chosen += 1
                exact += row.is_exact
                arguments += len(row.arguments)
                right += sum(argument.ok for argument in row.arguments)
            elif not row.ok:
                missing += row.actual is None
                unexpected += row.expected is None and row.called != NO_CALL
    return Selection(
        chosen=chosen,
        unexpected=unexpected,
        missing=missing,
        exact=exact,
        arguments=arguments,
        right_arguments=right,
        confusion=dict(sorted(confusion.items())),
    )


def _confusion_pairs(rows: tuple[CallScore, ...]) -> Iterator[tuple[str, str]]:
    if not rows:
        yield (NO_CALL, NO_CALL)
    missing = [row.tool for row in rows if row.actual is None and not row.ok]
    unexpected = [row.called for row in rows if row.expected is None and not row.ok and row.called]
    for row in rows:
        if row.expected is not None and row.actual is not None:
            yield (row.tool, row.called)
    for n in range(max(len(missing), len(unexpected))):
        yield (
            missing[n] if n < len(missing) else NO_CALL,
            unexpected[n] if n < len(unexpected) else NO_CALL,
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
