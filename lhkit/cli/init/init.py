"""`lhkit init`: write a project to start from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lhkit.base.errors import UsageError
from lhkit.base.files import write_atomically
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.harness.scenarios import scenario
from lhkit.settings import Settings

_TEMPLATE = Path(__file__).with_name("project")
_SCHEMA = Path(scenario.__file__).with_name("scenario.schema.json")

FILES = {
    "tools.py": _TEMPLATE / "tools.py",
    "shopping.scenario.yaml": _TEMPLATE / "shopping.scenario.yaml",
    "lhkit.toml": _TEMPLATE / "lhkit.toml",
    "chat.ipynb": _TEMPLATE / "chat.ipynb",
    "AGENTS.md": _TEMPLATE / "AGENTS.md",
    "scenario.schema.json": _SCHEMA,
    ".github/workflows/lhkit.yml": _TEMPLATE / "ci.yml",
}
"""The files of a project, and what they are copied from."""


class InitOptions(Options):
    """Options of `lhkit init`."""

    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder of the project.")
    ] = Path()


@command("lhkit init demo")
async def init_project(options: InitOptions, settings: Settings) -> int:
    """Write a toolset, three scenarios, a notebook and a CI workflow; overwrite nothing.

    Raises:
        UsageError: a file exists already.
        OSError: a file cannot be written.
    """
    existing = [name for name in FILES if (options.folder / name).exists()]
    if existing:
        raise UsageError(
            f"{options.folder / existing[0]} exists already. Give another folder, or move it away."
        )
    for name, source in FILES.items():
        target = options.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, source.read_bytes())
    catalog, console = load_catalog(settings.locale), Console()
    for name in FILES:
        print_lines([str(options.folder / name)], console)
    print_lines([catalog.text("init.next", folder=options.folder)], console)
    return ExitCode.OK
