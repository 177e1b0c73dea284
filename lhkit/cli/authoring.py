"""`lint`, `mutate`, `accept`, `data-check`: for those who write scenarios."""

import time
from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import MOST, Environment, Paths


def add_lint(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit lint`."""

    @cli.command("lint")
    def lint_(
        paths: Paths = None,
        environment: Environment = None,
        as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
    ) -> None:
        """Check scenarios against tools and data: every fault with file, line and field."""
        from lhkit.commands.lint import lint_paths  # noqa: PLC0415 - scipy

        files = tuple(paths or ())
        finish(
            run,
            lambda settings: lint_paths(files, settings, as_json=as_json, environment=environment),
        )


def add_mutate(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit mutate`."""

    @cli.command("mutate")
    def mutate_(
        paths: Paths = None,
        environment: Environment = None,
        fail_under: Annotated[
            float | None,
            typer.Option(min=0, max=100, help="Lowest share of noticed mistakes in percent."),
        ] = None,
        survivors: Annotated[
            Path | None,
            typer.Option(
                dir_okay=False, exists=True, help="TOML list of known survivors with reasons."
            ),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    ) -> None:
        """Spoil every gold trace in many ways: which mistakes would nobody notice?"""
        from lhkit.commands.mutate import MutateOptions, mutate_paths  # noqa: PLC0415 - scipy

        options = MutateOptions(
            paths=tuple(paths or ()),
            environment=environment,
            fail_under=fail_under,
            survivors=survivors,
            as_json=as_json,
        )
        finish(run, lambda settings: mutate_paths(options, settings))


def add_accept(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit accept`."""

    @cli.command("accept")
    def accept_(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")],
        sample: Annotated[
            str,
            typer.Argument(metavar="SAMPLE", help="SCENARIO, or SCENARIO#2 for its second repeat."),
        ],
        turn: Annotated[
            int | None, typer.Option(min=0, max=MOST, help="User turn, from 0.")
        ] = None,
        call: Annotated[
            int | None, typer.Option(min=0, max=MOST, help="Call of the turn, from 0.")
        ] = None,
        arg: Annotated[str | None, typer.Option(help="Name of the argument.")] = None,
        phrase: Annotated[
            str | None, typer.Option(help="Words of the reply to accept, instead of an argument.")
        ] = None,
        scenarios: Annotated[
            list[Path] | None, typer.Option(help="Files that hold the scenario.")
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Show the change, write nothing.")
        ] = False,
    ) -> None:
        """Take what a model did as one more right way, in the scenario's own YAML."""
        from lhkit.commands.accept import AcceptOptions, accept_sample  # noqa: PLC0415 - scipy

        options = AcceptOptions(
            run=folder,
            sample=sample,
            paths=tuple(scenarios or ()),
            turn=turn,
            call=call,
            arg=arg,
            phrase=phrase,
            is_dry=dry_run,
        )
        finish(run, lambda settings: accept_sample(options, settings))


def add_data_check(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit data-check`."""

    @cli.command("data-check")
    def data_check_(
        folder: Annotated[
            Path | None,
            typer.Argument(file_okay=False, help="Folder with a folder for each split."),
        ] = None,
        total: Annotated[
            int, typer.Option(min=0, max=MOST, help="Least number of scenarios.")
        ] = 240,
        per_ac: Annotated[
            int, typer.Option(min=0, max=MOST, help="Least number for each criterion.")
        ] = 16,
        noticed: Annotated[
            float, typer.Option(min=0, max=100, help="Least share of noticed mistakes in percent.")
        ] = 97.0,
        warnings: Annotated[bool, typer.Option("--warnings", help="Show warnings, too.")] = False,
    ) -> None:
        """Check all that the shipped scenarios promise: lint, gold, mistakes, splits, counts."""
        from lhkit.commands.data_check import DataCheckOptions, data_check  # noqa: PLC0415 - scipy
        from lhkit.harness.authoring.data_check import Requirements  # noqa: PLC0415 - scipy

        wanted = Requirements(total=total, per_ac=per_ac, noticed=noticed)
        options = DataCheckOptions(folder=folder, requirements=wanted, warnings=warnings)
        finish(run, lambda settings: data_check(options, settings, time.perf_counter))
