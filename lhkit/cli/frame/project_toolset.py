"""`lhkit.toml`: the toolset of the scenarios in a folder."""

import tomllib
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.options import DEFAULT_TOOLSET

PROJECT = "lhkit.toml"
"""File of a folder that names the toolset of its scenarios."""


def find_project_toolset(values: Any) -> Any:
    """Add the toolset of a `lhkit.toml` in the folder of the scenarios, unless one is given.

    A pydantic validator (mode "before") of options with `paths` and `toolset`.

    Raises:
        UsageError: the file is invalid.
    """
    if values.get("toolset", DEFAULT_TOOLSET) != DEFAULT_TOOLSET:
        return values
    for path in values.get("paths") or ():
        folder = path if path.is_dir() else path.parent
        if (folder / PROJECT).is_file():
            return values | {"toolset": _read_project(folder / PROJECT)}
    return values


def _read_project(file: Path) -> str:
    try:
        project = tomllib.loads(read_text_file(file))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is invalid: {error}") from error
    toolset = project.pop("toolset", None)
    if not isinstance(toolset, str) or project:
        raise UsageError(f'{file} is invalid: expected one line, toolset = "FILE.py:NAME"')
    from lhkit.toolset import reference_from  # not for the help of a command

    return reference_from(file.parent, toolset)
