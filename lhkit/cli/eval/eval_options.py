"""Options of `lhkit eval`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import model_validator

from lhkit.base.options import DEFAULT_TOOLSET, REPLY_TOKENS, validate_options
from lhkit.cli.eval.ray_options import RayOptions
from lhkit.cli.frame.options import (
    ChatTemplateFile,
    Constraint,
    Dialect,
    DtypeOption,
    HtmlFile,
    JunitFile,
    MarkdownFile,
    Paths,
    RunsDir,
    RuntimeOption,
    SelectOptions,
    ThresholdOptions,
)
from lhkit.cli.frame.project_toolset import find_project_toolset

if TYPE_CHECKING:
    from lhkit.harness.running.run_options import RunOptions


class EvalOptions(SelectOptions, ThresholdOptions, RayOptions):
    """Options of `lhkit eval`. Those of a run are validated by `harness.run_options.RunOptions`."""

    paths: Paths = ()
    split: Annotated[
        str | None,
        typer.Option(help="Shipped scenarios, instead of PATHS: dev (default), test, all."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            help="gemma or gemma-base (embedded), gold (reference calls), silent (no-op baseline), "
            "or the name that the server at --base-url serves."
        ),
    ] = None
    base_urls: Annotated[
        tuple[str, ...],
        typer.Option(
            "--base-url",
            help="URL of an OpenAI-compatible server, such as http://127.0.0.1:8000; repeat it, or "
            "give @FILE with one URL a line, for several servers of one model.",
        ),
    ] = ()
    toolset: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Your own toolset: FILE.py:NAME, package.module:NAME or mcp:SERVER; needs PATHS.",
        ),
    ] = DEFAULT_TOOLSET
    _project = model_validator(mode="before")(find_project_toolset)
    dialect: Dialect = None
    chat_template: ChatTemplateFile = None
    constraint: Constraint = "off"
    dtype: DtypeOption = None
    runtime: RuntimeOption = None
    user: Annotated[
        Literal["script", "careful", "hasty"],
        typer.Option(
            metavar="USER",
            help="Simulated user who answers confirmations: script (as the scenario says), careful "
            "(yes to expected calls), hasty (yes to all).",
        ),
    ] = "script"
    stress: Annotated[
        str,
        typer.Option(help="Harder conditions, joined by commas: distractors=10, shuffle, seed=1."),
    ] = ""
    repeats: Annotated[int, typer.Option(min=1, help="Samples per scenario.")] = 1
    variants: Annotated[
        bool,
        typer.Option("--variants", help="Run every wording of the user's messages, not only one."),
    ] = False
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Conversations at once. Default: as many as the server can run."),
    ] = None
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a model message.")] = (
        REPLY_TOKENS
    )
    name: Annotated[str | None, typer.Option(help="Name of the run folder.")] = None
    runs_dir: RunsDir = Path("runs")
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Keep prompt texts in the records.")
    ] = False
    keep_states: Annotated[
        bool,
        typer.Option("--keep-states", help="Keep whole states in the records, not only changes."),
    ] = False
    html: HtmlFile = None
    markdown: MarkdownFile = None
    junit: JunitFile = None
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="Exit with 0 instead of 1 or 4, and print the reason."),
    ] = False

    def run_options(self) -> "RunOptions":
        """Return the options of the run.

        Raises:
            UsageError: a value is out of range.
        """
        from lhkit.harness.running.run_options import RunOptions

        names = RunOptions.model_fields.keys() & EvalOptions.model_fields.keys()
        values = {name: getattr(self, name) for name in names}
        if self.failed is not None and (self.runs_dir / self.failed).is_dir():
            values["failed"] = self.runs_dir / self.failed
        return validate_options(RunOptions, **values)
