"""Where the `lhkit.toml` of a folder is."""

from collections.abc import Iterator
from pathlib import Path
from stat import S_IWOTH

PROJECT = "lhkit.toml"


def find_project_file(start: Path) -> Path | None:
    """Return the `lhkit.toml` of a folder or of those above it, up to the root of its repository.

    A folder above in which everybody may write, such as `/tmp`, is nobody's project: its file would
    run another user's code.
    """
    found = (folder / PROJECT for folder in _folders(start) if _is_project(folder, start))
    return next(found, None)


def _folders(start: Path) -> Iterator[Path]:
    for folder in (start, *start.parents):
        yield folder
        if (folder / ".git").exists():
            return


def _is_project(folder: Path, start: Path) -> bool:
    if not (folder / PROJECT).is_file():
        return False
    return folder == start or not folder.stat().st_mode & S_IWOTH
