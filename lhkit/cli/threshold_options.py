"""Options that require something of a run: pass rate, violations, time, tokens, a baseline."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lhkit.cli.command import Options
from lhkit.errors import UsageError

if TYPE_CHECKING:
    from lhkit.cli.thresholds import Thresholds
    from lhkit.harness.results import Run

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")
_SECONDS = {"ms": 0.001, "s": 1.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `3s` or `500ms`.

    Raises:
        typer.BadParameter: the text is not a duration above 0.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise typer.BadParameter(
            f"{text!r} is not a duration: give a number with ms or s, such as 500ms or 3s"
        )
    return float(match[1]) * _SECONDS[match[2]]


class ThresholdOptions(Options):
    """Options of the thresholds of a run."""

    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Exit with 1 if the pass rate is below this percentage."),
    ] = None
    max_violations: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Exit with 1 if more violations were blocked; one that occurred always exits "
            "with 1.",
        ),
    ] = None
    max_p95_turn: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Exit with 1 if the p95 of a user turn takes longer, such as 3s.",
        ),
    ] = None
    max_p95_ttft: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Exit with 1 if the p95 of the time to first token is longer, such as 500ms.",
        ),
    ] = None
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Exit with 1 if the prompt of a request has more tokens."),
    ] = None
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="BASELINE", help="Exit with 1 if this earlier run (name or folder) is better."
        ),
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="POINTS",
            help="With --baseline: exit with 1 only if the run is worse by more than these points, "
            "and with 4 if that cannot be decided.",
        ),
    ] = None

    @property
    def has_limits(self) -> bool:
        """Whether there is a threshold besides the baseline."""
        limits = ThresholdOptions.model_fields.keys() - {"baseline"}
        return any(getattr(self, name) is not None for name in limits)

    def thresholds(self, baseline: "Run | None") -> "Thresholds":
        """Return the thresholds, with the loaded run of `--baseline`.

        Raises:
            UsageError: a percentage is given as a fraction, or a margin without a baseline.
        """
        from lhkit.cli.thresholds import Thresholds, require_percent  # slow to import

        require_percent(self.fail_under, "--fail-under")
        require_percent(self.margin, "--margin")
        if self.margin is not None and baseline is None:
            raise UsageError("--margin is for a comparison: give --baseline too")
        limits = ThresholdOptions.model_fields.keys() - {"baseline"}
        return Thresholds(baseline=baseline, **{name: getattr(self, name) for name in limits})
