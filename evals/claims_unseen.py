"""Counts what the check of false claims is worth on authors that its learned scores have not seen.

    python evals/claims_unseen.py

For each author of `dev`, `hard` and `more`, both scores are learned anew without a line of theirs,
and the whole check judges their lines. (The rules were written by `dev`, so that `dev` flatters
them; of `hard` and `more` only some errors were read.) Some minutes. By these counts features and
thresholds are chosen: `test` is for the end.
"""

import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import claims_wording
import claims_written
from claims import FOLDER, LEARNED, Figures, load

from lhkit.harness.claims import wording, written


def main() -> int:
    """Print the counts of each author, and of each part."""
    scores = {
        "wording": claims_wording.weights_of(claims_wording.gathered(), wording.SIZE),
        "written": claims_wording.weights_of(claims_written.gathered(), written.SIZE),
    }
    for part in LEARNED:
        cases = load(FOLDER / f"{part}.jsonl")
        counts = []
        for author in sorted({case.id.partition("-")[0] for case in cases}):
            weights = {name: zlib.decompress(of(author)) for name, of in scores.items()}
            with_weights(weights)
            counts.append(
                Figures.of([case for case in cases if case.id.partition("-")[0] == author])
            )
            print(f"{part:5}{author:4} {told(counts[-1])}", flush=True)
        whole = Figures(**{name: sum(getattr(each, name) for each in counts) for name in NAMES})
        print(f"{part:5}all  {told(whole)}")
    return 0


NAMES = ("hits", "missed", "wrong", "passed")


def with_weights(weights: dict[str, bytes]) -> None:
    """Let the check judge by other weights than those in its files."""
    setattr(wording, "weights_of", weights.__getitem__)  # noqa: B010 - read from files otherwise


def told(figures: Figures) -> str:
    """Return the counts in words."""
    right, found = figures.precision
    hits, false = figures.recall
    return (
        f"precision {right / max(1, found):.1%} ({right} of {found})"
        f"  recall {hits / max(1, false):.1%} ({hits} of {false})"
    )


if __name__ == "__main__":
    sys.exit(main())
