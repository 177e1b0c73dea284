"""`lhkit accept`: take what a model did as one more right way, in the scenario's own YAML."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lhkit.cli.command import Options, command
from lhkit.cli.options import RunFolder
from lhkit.errors import MissingRunError, UsageError
from lhkit.harness.author.accept import (
    Edit,
    Observed,
    accept_argument,
    accept_phrase,
    observed_arguments,
    refuse_changed,
    schema_of,
)
from lhkit.harness.loader import Sources, read_sources
from lhkit.harness.manifest import Manifest
from lhkit.harness.record import SampleId, SampleRecord
from lhkit.harness.results import Run
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.text import printable

_MOST = 1_000_000
"""A turn or a call beyond this number is a typing error."""


class AcceptOptions(Options):
    """What `lhkit accept` takes as right.

    `sample` is a scenario, with `#2` behind it for its second repeat. `turn`, `call` and `arg`
    choose among several wrong arguments; `phrase` takes words of the reply instead.
    """

    run: RunFolder
    sample: Annotated[
        str,
        typer.Argument(metavar="SAMPLE", help="SCENARIO, or SCENARIO#2 for its second repeat."),
    ]
    turn: Annotated[int | None, typer.Option(min=0, max=_MOST, help="User turn, from 0.")] = None
    call: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="Call of the turn, from 0.")
    ] = None
    arg: Annotated[str | None, typer.Option(help="Name of the argument.")] = None
    phrase: Annotated[
        str | None, typer.Option(help="Words of the reply to accept, instead of an argument.")
    ] = None
    paths: Annotated[
        tuple[Path, ...], typer.Option("--scenarios", help="Files that hold the scenario.")
    ] = ()
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Show the change, write nothing.")] = (
        False
    )


@command(
    "lhkit accept runs/gemma-json SCENARIO#2 --turn 0 --call 0 --arg limit",
    "lhkit accept runs/gemma-json SCENARIO --phrase noted --dry-run",
)
async def accept_sample(options: AcceptOptions, settings: Settings) -> int:
    """Show the change and write it, unless only a look is wanted.

    Raises:
        MissingRunError: there is no such run or sample.
        UsageError: nothing, or not one thing, can be accepted; or the scenario changed.
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
    words = printable(load_catalog(settings.locale).text(key, file=edit.file))
    console.print(Text(words), soft_wrap=True)
    return 0


def _edit(
    options: AcceptOptions, record: SampleRecord, sources: Sources, manifest: Manifest
) -> Edit:
    scenario_id = record.sample_id.scenario
    origin = sources.origins.get(scenario_id)
    if origin is None:
        raise UsageError(
            f"no scenario {scenario_id} in these files: name its file with --scenarios"
        )
    scenario = next(each for each in sources.scenarios if each.id == scenario_id)
    refuse_changed(scenario, manifest)
    text = origin.file.read_bytes().decode("utf-8")
    if options.phrase is not None:
        turn = options.turn or 0
        if turn >= len(record.evidence.turns):
            last = len(record.evidence.turns) - 1
            raise UsageError(f"{scenario_id} has no turn {turn}: give --turn 0 to {last}")
        return accept_phrase(options.phrase, turn, record.evidence.turns[turn].reply, origin, text)
    chosen = _chosen(options, record)
    return accept_argument(chosen, origin, schema_of(chosen, record, manifest), text)


def _record(options: AcceptOptions, run: Run) -> SampleRecord:
    try:
        wanted = SampleId.parse(options.sample)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for record in run.records:
        if record.sample_id == wanted:
            return record
    raise MissingRunError(
        f"{options.run} has no sample {options.sample}: give SCENARIO or SCENARIO#2"
    )


def _chosen(options: AcceptOptions, record: SampleRecord) -> Observed:
    wrong = observed_arguments(record)
    wanted = [
        each
        for each in wrong
        if options.turn in {None, each.turn}
        and options.call in {None, each.call}
        and options.arg in {None, each.name}
    ]
    if len(wanted) == 1:
        return wanted[0]
    choices = "\n".join(f"  {each}" for each in wanted or wrong)
    if not wrong:
        raise UsageError(
            f"{options.sample}: no call was expected with other arguments, so there is none to "
            "accept: give --phrase for words of the reply, or widen the scenario by hand"
        )
    raise UsageError(f"{options.sample}: choose one of\n{choices}")
