"""`lhkit approvals`: which tools need their confirmation card, and the policy that says so."""

import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lhkit.base.errors import RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_json, print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import AsJson, Locale
from lhkit.confirm.policy import ApprovalPolicy
from lhkit.harness.chats.approvals import approvals, policy_of, remarks_on
from lhkit.harness.figures.approvals import ApprovalDecision, Approvals
from lhkit.harness.report.terminal import table_view
from lhkit.harness.results.results import Run
from lhkit.harness.views.approvals import approvals_table
from lhkit.settings import Settings

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,10})?)\s*%")


class ApprovalsOptions(Options):
    """Options of `lhkit approvals`."""

    runs: Annotated[
        tuple[Path, ...], typer.Argument(metavar="RUN...", help="Folders such as runs/NAME.")
    ]
    chats: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Also count recorded chats and their reviews."
        ),
    ] = None
    risk: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Highest risk at which a tool may run unasked, such as 2%."
        ),
    ] = "2%"
    confidence: Annotated[
        str, typer.Option(metavar="PERCENT", help="Confidence level of the decisions.")
    ] = "95%"
    trust_approvals: Annotated[
        bool,
        typer.Option(
            "--trust-approvals", help="Count the approval of a person in a chat as right."
        ),
    ] = False
    tool: Annotated[
        tuple[str, ...], typer.Option(metavar="NAME", help="Decide this tool only; repeatable.")
    ] = ()
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Write the decisions as a policy, such as approvals.toml.",
        ),
    ] = None
    as_json: AsJson = False
    locale: Locale = None


@command(
    "lhkit approvals runs/gemma-json",
    "lhkit approvals runs/a runs/b --risk 5% --tool log_entry",
    "lhkit approvals runs/gemma-json --write approvals.toml",
)
async def show_approvals(options: ApprovalsOptions, settings: Settings) -> int:
    """Show which tools need their card; return 0 if all are decided, 1 if one must ask, else 4.

    Raises:
        RunError: a run or chat cannot be read, or the policy cannot be written.
        UsageError: an option is invalid, or the runs do not allow a policy.
    """
    catalog, console = load_catalog(options.locale or settings.locale), wide_console()
    runs = [Run.load(folder) for folder in options.runs]
    table = approvals(
        *runs,
        chats=options.chats,
        risk=parse_percent(options.risk, "--risk"),
        confidence=_parse_confidence(options.confidence),
        trust_approvals=options.trust_approvals,
        tools=options.tool,
    )
    remarks = [catalog.translate(remark) for remark in remarks_on(runs)]
    if options.as_json:
        print_json(console, _as_json(table))
        print_lines(remarks, Console(stderr=True))
    else:
        view = approvals_table(table, catalog)
        if table.tools:
            console.print(table_view(replace(view, notes=())))
        print_lines((*view.notes, *remarks), console)
    if options.write is not None:
        policy = policy_of(table, runs, has_chats=options.chats is not None)
        _write(policy, options.write)
        key = "written" if policy.unasked else "written_none"
        line = catalog.text(f"approvals.{key}", path=str(options.write))
        typer.echo(line, err=options.as_json)
    return exit_code(row.decision for row in table.tools)


def exit_code(decisions: Iterable[ApprovalDecision]) -> ExitCode:
    """Return the exit code of some decisions; without any, nothing is decided."""
    found = set(decisions)
    if ApprovalDecision.ASK in found:
        return ExitCode.FAILED
    if not found or ApprovalDecision.CANNOT_TELL in found:
        return ExitCode.CANNOT_TELL
    return ExitCode.OK


def parse_percent(text: str, option: str) -> float:
    """Return the share of a percentage such as `2%`.

    Raises:
        UsageError: the text is not a percentage above 0 and below 100.
    """
    match = _PERCENT.fullmatch(text.strip())
    if match is None or not 0 < Decimal(match[1]) < 100:
        raise UsageError(f"{option} is invalid: {text!r}. Give a percentage such as 2% or 0.5%")
    return float(Decimal(match[1]) / 100)


def _parse_confidence(text: str) -> float:
    confidence = parse_percent(text, "--confidence")
    if confidence < 0.5:
        raise UsageError(f"--confidence is invalid: {text!r}. Give at least 50%, such as 95%")
    return confidence


def _as_json(table: Approvals) -> dict[str, Any]:
    """Return the table as plain JSON."""
    values = asdict(table)
    for row, plain in zip(table.tools, values["tools"], strict=True):
        plain["saved"] = row.saved
    return values


def _write(policy: ApprovalPolicy, path: Path) -> None:
    try:
        policy.write(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}): choose another place") from error
