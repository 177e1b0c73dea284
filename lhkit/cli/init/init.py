"""`lhkit init`: write a project to start from."""

from pathlib import Path
from typing import Annotated, ClassVar

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

SHARED_FILES = {
    "README.md": _TEMPLATE / "README.md",
    ".gitignore": _TEMPLATE / "gitignore",
    "pytest.ini": _TEMPLATE / "pytest.ini",
}
"""The files that a folder may have already: then it keeps them."""

_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


class InitOptions(Options):
    """Options of `lhkit init`."""

    project_keys: ClassVar = ()  # it writes the project

    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder of the project.")
    ] = Path()


@command("lhkit init demo")
async def init_project(options: InitOptions, settings: Settings) -> int:
    """Write a toolset, three scenarios, a notebook and a CI workflow; overwrite nothing.

    A README, `.gitignore` or configuration of pytest that exists is kept, and what is missing in it
    is printed.

    Raises:
        UsageError: a file exists already.
        OSError: a file cannot be written.
    """
    catalog, console = load_catalog(settings.locale), Console()
    existing = [name for name in FILES if (options.folder / name).exists()]
    if existing:
        raise UsageError(
            f"{options.folder / existing[0]} exists already. Give another folder, or move it away."
        )
    kept = [name for name in SHARED_FILES if _is_there(options.folder, name)]
    written = {**FILES, **{k: v for k, v in SHARED_FILES.items() if k not in kept}}
    for name, source in written.items():
        target = options.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, _in_locale(source, catalog.locale).read_bytes())
    print_lines((str(options.folder / name) for name in written), console)
    for name in kept:
        if name != "README.md":
            missing = SHARED_FILES[name].read_text(encoding="utf-8").splitlines()[-1]
            print_lines([catalog.text("init.kept", name=name, line=missing)], console)
    print_lines([catalog.text("init.next", folder=options.folder)], console)
    return ExitCode.OK


def _in_locale(source: Path, locale: str) -> Path:
    """Return the translation of a page for people, such as `README.ko.md`; else the page."""
    translated = source.with_suffix(f".{locale}{source.suffix}")
    return translated if translated.is_file() else source


def _is_there(folder: Path, name: str) -> bool:
    """Return whether a folder has a file, or another one that pytest would read."""
    names = _PYTEST_FILES if name == "pytest.ini" else (name,)
    return any((folder / each).exists() for each in names)
