"""`chat`, `serve` and `doctor`: options of the commands around a served model."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import BaseUrl, Constrain, Dialect, Locale, Model

_ServerParser = Annotated[
    bool,
    typer.Option("--server-parser", help="The server parses calls, too: for --dialect openai."),
]
_Served = Annotated[
    str | None,
    typer.Argument(help="gemma (default) or gemma-base (embedded), or a name such as org/model."),
]
_Device = Annotated[str | None, typer.Option(help="gpu (default) or cpu, for org/model only.")]
_Port = Annotated[
    int | None,
    typer.Option(min=1, max=65_535, help="Default: a free port; for org/model vLLM's own."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the line that serves MODEL.")]
_Weights = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder of a tuned model, instead of MODEL.")
]
_Compiled = Annotated[
    bool, typer.Option("--compile", help="Embedded: start later, answer faster. For long runs.")
]


def add_chat(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit chat`."""

    @cli.command()
    def chat(
        model: Model = None,
        base_url: BaseUrl = None,
        dialect: Dialect = "json",
        constrain: Constrain = "off",
        locale: Locale = None,
        db: Annotated[
            Path | None, typer.Option(dir_okay=False, help="The chat's SQLite file.")
        ] = None,
    ) -> None:
        """Talk to life-helper in the terminal; every write asks y/N first."""
        from lhkit.commands.chat import ChatOptions, converse  # noqa: PLC0415 - prompt_toolkit

        options = ChatOptions(
            model=model,
            base_url=base_url,
            dialect=dialect,
            constrain=constrain,
            locale=locale,
            database=db,
        )
        finish(run, lambda settings: converse(options, settings))


def add_serve(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit serve`."""

    @cli.command()
    def serve(
        model: _Served = None,
        port: _Port = None,
        dry_run: _DryRun = False,
        device: _Device = None,
        server_parser: _ServerParser = False,
        compiled: _Compiled = False,
        weights: _Weights = None,
    ) -> None:
        """Serve a model until Ctrl-C; chat and eval find the embedded one and start at once."""
        from lhkit.commands.serve import (  # noqa: PLC0415 - aiohttp
            embedded_line,
            serve_embedded,
            serve_line,
        )
        from lhkit.models.embedded import EMBEDDED, EMBEDDED_NAMES  # noqa: PLC0415 - aiohttp

        if weights is not None and model is not None:
            raise typer.BadParameter(
                f"--weights is served instead of {model}: leave one of them out"
            )
        name = model or EMBEDDED
        is_dry_other = dry_run and name not in EMBEDDED_NAMES
        if weights is None and ("/" in name or is_dry_other):
            finish(
                run,
                lambda settings: serve_line(
                    name,
                    device or "gpu",
                    port,
                    server_parser=server_parser,
                    dry_run=dry_run,
                    compiled=compiled,
                    cache_dir=settings.cache_dir,
                ),
            )
        if device is not None:
            raise typer.BadParameter(f"--device is for org/model, not for {weights or name}")
        command = embedded_line if dry_run else serve_embedded
        finish(
            run,
            lambda settings: command(
                name,
                port,
                settings,
                server_parser=server_parser,
                compiled=compiled,
                weights=weights,
            ),
        )


def add_doctor(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit doctor`."""

    @cli.command()
    def doctor(base_url: BaseUrl = None, model: Model = None, dialect: Dialect = "json") -> None:
        """Look at this machine and a server; one line for each finding, with the next step."""
        from lhkit.commands.doctor import DoctorOptions, examine  # noqa: PLC0415 - aiohttp

        options = DoctorOptions(base_url=base_url, model=model, dialect=dialect)
        finish(run, lambda settings: examine(options, settings))
