"""The limits of `--min-score` and `--max-score`: read, checked before a run, decided after it."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog
from lhkit.base.text import one_line
from lhkit.harness.figures.metrics import ScoreFigure

_ERROR_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLimit:
    """The least or the highest value of a score."""

    name: str
    value: float
    is_least: bool

    @classmethod
    def parse(cls, text: str, *, is_least: bool) -> "ScoreLimit":
        """Read `NAME=VALUE`.

        Raises:
            UsageError: it is not a name and a number.
        """
        name, equals, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or not name.strip() or not math.isfinite(number):
            option = "--min-score" if is_least else "--max-score"
            raise UsageError(f"{option} {text!r} is invalid: give NAME=NUMBER, such as polite=0.9")
        return cls(name=name.strip(), value=number, is_least=is_least)

    def is_missed(self, value: float) -> bool:
        """Return whether a value is beyond the limit."""
        return value < self.value if self.is_least else value > self.value


def parse_limits(least: Sequence[str], most: Sequence[str]) -> tuple[ScoreLimit, ...]:
    """Return the limits of both options.

    Raises:
        UsageError: one is invalid.
    """
    return (
        *(ScoreLimit.parse(text, is_least=True) for text in least),
        *(ScoreLimit.parse(text, is_least=False) for text in most),
    )


def require_known(limits: Collection[ScoreLimit], names: Collection[str]) -> None:
    """Refuse limits of scores that a run does not have.

    Args:
        limits: the limits, of a score or of one of its values, such as `style.short`.
        names: the names of the run's scores.

    Raises:
        UsageError: a score is unknown; the message names those that the run has.
    """
    for limit in limits:
        if limit.name.partition(".")[0] not in names:
            option = "--min-score" if limit.is_least else "--max-score"
            known = ", ".join(names) or "none: give them with --score FILE.py:NAME"
            raise UsageError(f"{option} {limit.name}: the run has no such score. It has {known}")


def check_limits(
    limits: Collection[ScoreLimit], figures: Sequence[ScoreFigure], catalog: Catalog
) -> tuple[list[str], list[str]]:
    """Return sentences on the limits that are missed, and on those that cannot be decided.

    A sample for which a score failed or was not computed may have any value.
    """
    missed: list[str] = []
    unknown: list[str] = []
    by_name = {figure.name: figure for figure in figures}
    for limit in limits:
        figure = by_name.get(limit.name, ScoreFigure(name=limit.name))
        if figure.value is None:
            unknown.append(
                catalog.text("scores.unmeasured", name=limit.name, limit=_text(limit.value))
            )
            continue
        are_missed = [limit.is_missed(value) for value in _possible(figure)]
        if all(are_missed):
            key = "scores.below" if limit.is_least else "scores.above"
            value, shown = _unequal(figure.value, limit.value)
            missed.append(catalog.text(key, name=limit.name, value=value, limit=shown))
        elif any(are_missed) or not (figure.is_rate or _is_whole(figure)):
            unknown.append(
                catalog.text(
                    "scores.undecided",
                    name=limit.name,
                    limit=_text(limit.value),
                    count=figure.failed + figure.missing,
                    error=one_line(figure.error, max_chars=_ERROR_CHARS),
                )
            )
    return missed, unknown


def _is_whole(figure: ScoreFigure) -> bool:
    return not figure.failed + figure.missing


def _possible(figure: ScoreFigure) -> Iterator[float]:
    """Yield the values that a score may have, whatever it is where it is unknown."""
    unknown = figure.failed + figure.missing
    if not figure.is_rate or not unknown or figure.value is None:
        yield figure.value or 0.0
        return
    for more in (0, unknown):
        yield (figure.value * figure.n + more) / (figure.n + unknown)


def _text(value: float) -> str:
    return f"{value:g}"


def _unequal(value: float, limit: float) -> tuple[str, str]:
    """Return two different numbers as different texts."""
    for digits in range(3, 17):
        shown = f"{value:.{digits}g}", f"{limit:.{digits}g}"
        if shown[0] != shown[1]:
            return shown
    return repr(value), repr(limit)
