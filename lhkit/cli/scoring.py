"""`eval` and `audit`: options of the commands that play scenarios and read records."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import BaseUrl, Constrain, Dialect, Environment, Model, Paths, RunsDir, Split
from lhkit.settings import process_age_s

_Stress = Annotated[
    str,
    typer.Option(help="Make it harder: distractors=10, rename, shuffle, seed=1; joined by commas."),
]
_FailUnder = Annotated[
    float | None, typer.Option(min=0, max=100, help="Lowest pass rate in percent.")
]
_MaxViolations = Annotated[
    int | None, typer.Option(min=0, help="Attempted violations allowed; of escaped ones none is.")
]
_Baseline = Annotated[
    Path | None, typer.Option(help="Earlier run (name or folder): fails if that was better.")
]


def add_eval(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit eval`."""

    @cli.command("eval")
    def eval_(
        paths: Paths = None,
        split: Split = None,
        environment: Environment = None,
        model: Model = None,
        base_url: BaseUrl = None,
        dialect: Dialect = "json",
        constrain: Constrain = "off",
        stress: _Stress = "",
        repeats: Annotated[int, typer.Option(min=1, help="Times to play each scenario.")] = 1,
        concurrency: Annotated[
            int | None,
            typer.Option(min=1, help="Conversations at once; by default what fits the server."),
        ] = None,
        limit: Annotated[int | None, typer.Option(min=1, help="The first N scenarios.")] = None,
        max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one model message.")] = 128,
        name: Annotated[str | None, typer.Option(help="Name of the run's folder.")] = None,
        runs_dir: RunsDir = Path("runs"),
        fail_under: _FailUnder = None,
        max_violations: _MaxViolations = None,
        baseline: _Baseline = None,
        keep_prompts: Annotated[
            bool, typer.Option("--keep-prompts", help="Keep prompt texts in records.")
        ] = False,
    ) -> None:
        """Replay scenarios against a model and score them. The same command again resumes."""
        from lhkit.commands.evaluate import EvalOptions, evaluate  # noqa: PLC0415 - scipy, pandas

        options = EvalOptions(
            paths=tuple(paths or ()),
            split=split,
            environment=environment,
            model=model,
            base_url=base_url,
            dialect=dialect,
            constrain=constrain,
            stress=stress,
            repeats=repeats,
            concurrency=concurrency,
            limit=limit,
            max_tokens=max_tokens,
            name=name,
            runs_dir=runs_dir,
            fail_under=fail_under,
            max_violations=max_violations,
            baseline=baseline,
            keep_prompts=keep_prompts,
            command=("lhkit", *sys.argv[1:]),
            begun_s=time.perf_counter() - process_age_s(),
        )
        finish(run, lambda settings: evaluate(options, settings))


def add_audit(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit audit`."""

    @cli.command("audit")
    def audit_(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")],
    ) -> None:
        """Show what the models of a run really wrote, and what had to be mended."""
        from lhkit.commands.audit import audit_run  # noqa: PLC0415 - scipy

        finish(run, lambda settings: audit_run(folder, settings))
