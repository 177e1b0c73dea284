"""What a model made of scenarios on the way of its training: a row for each, beside the log."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lhkit.errors import TuningError
from lhkit.files import write_whole
from lhkit.harness.shares import wilson
from lhkit.locales import Catalog
from lhkit.text import part_of, percents

SCORES: Final = "scores.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Right calls of those that counted, and scenarios passed of those that could be played.

    After so many steps, and seconds of training; 0: what it began from. `asked_sha256` is of all
    that was asked: scenarios, tools and what is told of them. `adapter_sha256` is of the weights,
    empty for a bare base. `served_as` says what played: quantisation and server.
    """

    step: int
    seconds: float
    right_calls: int
    counted_calls: int
    passed: int
    valid: int
    asked_sha256: str
    adapter_sha256: str
    served_as: str


def all_scores(folder: Path) -> tuple[Score, ...]:
    """Return every score of a training, in the order in which they were made.

    Raises:
        TuningError: they cannot be read.
    """
    path = folder / SCORES
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return tuple(Score(**json.loads(line)) for line in lines)
    except (OSError, ValueError, TypeError) as error:
        raise TuningError(f"{path} is broken ({error}): remove it to score anew") from error


def shown_scores(folder: Path) -> tuple[Score, ...]:
    """Return the scores that may stand beside each other, by steps.

    They are those of what was asked last, and of each step the newest.

    Raises:
        TuningError: they cannot be read.
    """
    made = all_scores(folder)
    by_step = {each.step: each for each in made if each.asked_sha256 == made[-1].asked_sha256}
    return tuple(by_step[step] for step in sorted(by_step))


def add_score(folder: Path, score: Score) -> None:
    """Add a score to those of a training.

    Raises:
        TuningError: the disk does not take it.
    """
    rows = (*all_scores(folder), score)
    lines = [json.dumps(asdict(row)).encode() + b"\n" for row in rows]
    try:
        write_whole(folder / SCORES, lines)
    except OSError as error:
        raise TuningError(f"{folder} cannot be written ({error}): free some space") from error


def share_words(part: int, whole: int) -> str:
    """Return so many of so many, with the share and its 95 % interval, such as `3/4 75% [30–95]`.

    A dash where nothing was counted.
    """
    interval = wilson(part, whole)
    ends = f" [{percents(interval.low, interval.high)}]" if whole else ""
    return f"{part_of(part, whole)}{ends}"


def score_words(score: Score, catalog: Catalog) -> str:
    """Return a score as a line."""
    return catalog.text(
        "tune.score",
        step=score.step,
        minutes=f"{score.seconds / 60:.1f}",
        calls=share_words(score.right_calls, score.counted_calls),
        passed=share_words(score.passed, score.valid),
        served=score.served_as,
    )
