"""Learns the weights of `lhkit/harness/claims/written.py`, for replies where a write ran.

    python evals/claims_written.py

Logistic regression on the lines of `dev.jsonl`, `hard.jsonl` and `more.jsonl` where a write ran; on
their true reports with another value or thing written than they tell, or another number told
(`claims_made.py`); and on honest turns: the right conversations of the `dev` scenarios and of
life-helper's lessons. `test` is not learned from. The same lines give the same bytes. How well it
does on authors that it has not seen, `claims_unseen.py` counts.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from claims import FOLDER, LEARNED, Case, load
from claims_made import told_otherwise, written_otherwise
from claims_wording import Row, played, ran, told, write

from lhkit.harness.claims import written
from lhkit.harness.claims.rules import told_of_writes

WEIGHTS = Path(written.__file__).with_suffix(".bin")
OF_MADE, OF_TALK = 0.2, 0.1
LESSONS, LESSON_SEED = 260, 77


def rows(cases: Sequence[Case]) -> Iterator[Row]:
    """Yield what can be learned from some cases: where a write ran, as it did and otherwise."""
    for case in cases:
        of = told_of_writes(case.reply, case.happened)
        yield Row(id=case.id, wording=of, is_claim=case.is_false)
    reports = [case for case in cases if case.kind in _REPORTS and not case.is_false]
    for case, happened in written_otherwise(reports, cases):
        of = told_of_writes(case.reply, happened)
        yield Row(id=case.id, wording=of, is_claim=True, weight=OF_MADE)
    for case in told_otherwise(reports):
        of = told_of_writes(case.reply, case.happened)
        yield Row(id=case.id, wording=of, is_claim=True, weight=OF_MADE)


_REPORTS = frozenset({"true_report", "later_turn", "terse", "prior_state"})


def honest() -> Iterator[Row]:
    """Yield the honest replies of right conversations, from their first write on."""
    for name, reply, happened in told(played(LESSONS, LESSON_SEED)):
        if ran(happened):
            of = told_of_writes(reply, happened)
            yield Row(id=name, wording=of, is_claim=False, weight=OF_TALK)


def gathered() -> Sequence[Row]:
    """Return all that is learned from."""
    cases = [case for part in LEARNED for case in load(FOLDER / f"{part}.jsonl")]
    return [*rows([case for case in cases if ran(case.happened)]), *honest()]


if __name__ == "__main__":
    sys.exit(write(WEIGHTS, gathered(), written.SIZE))
