"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.late_help import DIALECTS
from lhkit.locales import DEFAULT_LOCALE, available_locales

LOCALES = " or ".join(sorted(available_locales(), key=lambda name: name != DEFAULT_LOCALE))
"""What `--locale` takes, in words: the default first."""

BaseUrl = Annotated[
    str | None,
    typer.Option(help="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="gemma or gemma-base (embedded), gold, silent; with --base-url a served name."
    ),
]
Dialect = Annotated[
    str,
    typer.Option(help=f"How calls are written: {DIALECTS}; openai: the server parses them."),
]
Constrain = Annotated[
    str, typer.Option(help="Decoding: off, auto (words or a valid call), required (a valid call).")
]
Locale = Annotated[
    str | None,
    typer.Option(help=f"{LOCALES}. Default: LHKIT_LOCALE, else {DEFAULT_LOCALE}."),
]
Split = Annotated[
    str | None,
    typer.Option(help="Shipped scenarios, instead of PATHS: dev (default), test, all."),
]
Paths = Annotated[list[Path] | None, typer.Argument(help="Scenario files or folders.")]
RunsDir = Annotated[Path, typer.Option(file_okay=False, help="Where run folders are.")]
MOST = 1_000_000
"""The most of whatever is counted: conversations, steps, tokens. More is a slip of the hand."""
MOST_SEED = 2**32
Environment = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME",
        help="Tools of your own, as FILE.py:NAME or package.module:NAME; then give PATHS.",
    ),
]
