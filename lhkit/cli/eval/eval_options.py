"""Options of `lhkit eval`."""

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lhkit.base.errors import UsageError
from lhkit.base.options import REPLY_TOKENS
from lhkit.cli.eval.ray_options import RayOptions
from lhkit.cli.frame.options import (
    APPROVALS,
    BASE_URL,
    CHAT_TEMPLATE,
    CONSTRAINT,
    DIALECT,
    DTYPE,
    LOGPROBS,
    RUNTIME,
    SCORE,
    Details,
    HtmlFile,
    JunitFile,
    MarkdownFile,
    Paths,
    RunsDir,
    SelectOptions,
    ThresholdOptions,
)
from lhkit.harness.running.run_options import RunOptions


class EvalOptions(RunOptions, SelectOptions, ThresholdOptions, RayOptions):
    """Options of `lhkit eval`: those of a run, and what only the command line has."""

    shown: ClassVar = {
        "model": typer.Option(
            help="gemma or gemma-base (embedded), gold (reference calls), silent (no-op baseline), "
            "or the name that the server at --base-url serves."
        ),
        "base_url": BASE_URL,
        "toolset": typer.Option(
            metavar="FILE.py:NAME",
            help="Your own toolset: FILE.py:NAME, package.module:NAME or mcp:SERVER; needs PATHS.",
        ),
        "dialect": DIALECT,
        "chat_template": CHAT_TEMPLATE,
        "constraint": CONSTRAINT,
        "dtype": DTYPE,
        "runtime": RUNTIME,
        "user": typer.Option(
            metavar="USER",
            help="Simulated user who answers confirmations: script (as the scenario says), careful "
            "(yes to expected calls), hasty (yes to all).",
        ),
        "stress": typer.Option(
            help="Harder conditions, joined by commas: distractors=10, shuffle, seed=1."
        ),
        "repeats": typer.Option(help="Samples per scenario."),
        "variants": typer.Option(help="Run every wording of the user's messages, not only one."),
        "concurrency": typer.Option(
            help="Conversations at once. Default: as many as the server can run; 1 for the "
            "embedded llama.cpp on few cores."
        ),
        "max_attempts": typer.Option(help="Attempts per sample, if the server fails."),
        "max_tokens": typer.Option(
            help=f"Most tokens of a model message. Default: {REPLY_TOKENS}."
        ),
        "keep_prompts": typer.Option(help="Keep prompt texts in the records."),
        "keep_states": typer.Option(help="Keep whole states in the records, not only changes."),
        "logprobs": LOGPROBS,
        "approvals": APPROVALS,
        "scores": SCORE,
    }

    approvals: Path | None = None
    scores: tuple[str, ...] = ()

    paths: Paths = ()
    split: Annotated[
        str | None,
        typer.Option(help="Shipped scenarios, instead of PATHS: dev (default), test, all."),
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of the run folder.")] = None
    runs_dir: RunsDir = Path("runs")
    html: HtmlFile = None
    markdown: MarkdownFile = None
    junit: JunitFile = None
    details: Details = False
    stop_when_decided: Annotated[
        bool,
        typer.Option(
            "--stop-when-decided",
            help="With --baseline: run the scenarios in a random order (--seed), and stop when "
            "an always-valid paired test has decided. Without it the same command runs the rest.",
        ),
    ] = False
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="Exit with 0 instead of 1 or 4, and print the reason."),
    ] = False

    @property
    def order_seed(self) -> int | None:
        """The seed of the random order of a run that stops when it is decided; None for others."""
        return self.seed if self.stop_when_decided else None

    def require_valid(self) -> None:
        """Check the thresholds before a run.

        Raises:
            UsageError: as `ThresholdOptions.require_valid`, or the run cannot stop when decided.
        """
        super().require_valid()
        if not self.stop_when_decided:
            return
        if self.baseline is None:
            raise UsageError("--stop-when-decided is for a comparison: give --baseline too")
        if self.max_regressions is not None:
            raise UsageError(
                "--stop-when-decided stops by the paired test, and --max-regressions counts over "
                "all scenarios: leave one of them out"
            )

    def run_options(self) -> RunOptions:
        """Return the options of the run, with `failed` in the folder of runs."""
        if self.failed is not None and (self.runs_dir / self.failed).is_dir():
            return self.derive(failed=self.runs_dir / self.failed)
        return self.derive()
