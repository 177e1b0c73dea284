"""Options and arguments of several commands, each declared once.

Those of a run are fields of `harness.run_options`; an option of one command is in its module.
"""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.locales import DEFAULT_LOCALE, available_locales

LOCALES = " or ".join(sorted(available_locales(), key=lambda name: name != DEFAULT_LOCALE))
"""The values of `--locale` as text, the default first."""
SHAPE = "FILE.py:NAME"
USUAL_CHATS = Path("runs/chats")

BaseUrl = Annotated[
    str | None,
    typer.Option(help="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000."),
]
Locale = Annotated[
    str | None,
    typer.Option(help=f"{LOCALES}. Default: LHKIT_LOCALE, else {DEFAULT_LOCALE}."),
]
Paths = Annotated[tuple[Path, ...], typer.Argument(help="Scenario files or folders.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")]
RunsDir = Annotated[Path, typer.Option(file_okay=False, help="Where run folders are.")]
OpenedToolset = Annotated[
    str,
    typer.Option(
        metavar=SHAPE,
        help="Tools of your own: FILE.py:NAME, package.module:NAME or mcp:SERVER.",
    ),
]
World = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="YAML file: the state that the tools begin in."),
]
Database = Annotated[
    Path | None,
    typer.Option("--db", dir_okay=False, help="The file that life-helper keeps its data in."),
]
NewFolder = Annotated[Path, typer.Option(file_okay=False, help="A new folder for what is made.")]
AsJsonl = Annotated[bool, typer.Option("--jsonl", help="Scenarios one a line, instead of YAML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ChatsFolder = Annotated[
    Path, typer.Option("--in", metavar="FOLDER", file_okay=False, help="Where chats are kept.")
]
