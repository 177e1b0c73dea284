"""`lhkit accept`: add an observed argument or phrase to the accepted ones of a scenario file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lhkit.base.errors import MissingRunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.text import printable
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.options import RunFolder
from lhkit.harness.authoring.accept import (
    Edit,
    ObservedArgument,
    accept_argument,
    accept_phrase,
    observed_arguments,
    require_unchanged,
    tool_schema,
)
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.loader import Sources, read_sources
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.settings import Settings

_MAX_INDEX = 1_000_000


class AcceptOptions(Options):
    """Options of `lhkit accept`.

    `turn`, `call` and `arg` choose among several wrong arguments; `phrase` accepts text of the
    reply instead.
    """

    run: RunFolder
    sample: Annotated[
        str,
        typer.Argument(metavar="SAMPLE", help="SCENARIO, or SCENARIO#2 for its second sample."),
    ]
    turn: Annotated[
        int | None, typer.Option(min=0, max=_MAX_INDEX, help="Index of the user turn, from 0.")
    ] = None
    call: Annotated[
        int | None,
        typer.Option(min=0, max=_MAX_INDEX, help="Index of the tool call in the turn, from 0."),
    ] = None
    arg: Annotated[str | None, typer.Option(help="Name of the argument to accept.")] = None
    phrase: Annotated[
        str | None, typer.Option(help="Text of the reply to accept, instead of an argument.")
    ] = None
    paths: Annotated[
        tuple[Path, ...],
        typer.Option("--scenarios", help="Scenario files or folders; default: shipped."),
    ] = ()
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Show the change without writing it.")
    ] = False


@command(
    "lhkit accept runs/gemma-json SCENARIO#2 --turn 0 --call 0 --arg limit",
    "lhkit accept runs/gemma-json SCENARIO --phrase noted --dry-run",
)
async def accept_sample(options: AcceptOptions, settings: Settings) -> int:
    """Show the change of the scenario file and write it, unless it is a dry run.

    Raises:
        MissingRunError: the run or sample does not exist.
        UsageError: nothing or more than one argument can be accepted, or the scenario changed.
    """
    run = Run.load(options.run)
    record = _record(options, run)
    sources = read_sources(options.paths or scenario_paths("all"))
    edit = _edit(options, record, sources, run.manifest)
    console = Console()
    for line in edit.diff.splitlines():
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        console.print(Text(printable(line), style=style), soft_wrap=True)
    if not options.is_dry:
        edit.file.write_bytes(edit.after.encode())
    key = "accept.dry" if options.is_dry else "accept.written"
    print_lines([load_catalog(settings.locale).text(key, file=edit.file)], console)
    return 0


def _edit(
    options: AcceptOptions, record: SampleRecord, sources: Sources, manifest: Manifest
) -> Edit:
    scenario_id = record.sample_id.scenario
    origin = sources.origins.get(scenario_id)
    if origin is None:
        raise UsageError(
            f"scenario {scenario_id} is not in these files: give its file with --scenarios"
        )
    scenario = next(s for s in sources.scenarios if s.id == scenario_id)
    require_unchanged(scenario, manifest)
    text = origin.file.read_bytes().decode("utf-8")
    if options.phrase is not None:
        turn = options.turn or 0
        if turn >= len(record.trajectory.turns):
            last = len(record.trajectory.turns) - 1
            raise UsageError(f"{scenario_id} has no turn {turn}: give --turn 0 to {last}")
        return accept_phrase(
            options.phrase, turn, record.trajectory.turns[turn].reply, origin, text
        )
    observed = _observed_argument(options, record)
    schema = tool_schema(observed, record, manifest)
    return accept_argument(observed, origin, schema, text)


def _record(options: AcceptOptions, run: Run) -> SampleRecord:
    try:
        sample_id = SampleId.parse(options.sample)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for record in run.records:
        if record.sample_id == sample_id:
            return record
    raise MissingRunError(
        f"{options.run} has no sample {options.sample}: give SCENARIO or SCENARIO#2"
    )


def _observed_argument(options: AcceptOptions, record: SampleRecord) -> ObservedArgument:
    """Return the only wrong argument that the options select."""
    wrong = observed_arguments(record)
    selected = [
        argument
        for argument in wrong
        if options.turn in {None, argument.turn}
        and options.call in {None, argument.call}
        and options.arg in {None, argument.name}
    ]
    if len(selected) == 1:
        return selected[0]
    if not wrong:
        raise UsageError(
            f"{options.sample}: no expected call has a wrong argument to accept. Give --phrase for "
            "text of the reply, or edit the scenario by hand"
        )
    choices = "\n".join(f"  {argument}" for argument in selected or wrong)
    raise UsageError(f"{options.sample}: choose one of\n{choices}")
