"""Locate the shipped scenarios."""

from collections.abc import Sequence
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.lifehelper.catalog import data_folder
from lhkit.toolset import DEFAULT

SPLITS = ("dev", "test")
"""`dev` is for development, `test` for the reported figures."""


def scenario_folder() -> Path:
    """Return the folder of the shipped scenarios; it has a subfolder for each split."""
    return data_folder("ac")


def scenario_paths(split: str) -> tuple[Path, ...]:
    """Return the paths of the shipped scenarios of a split.

    Args:
        split: `dev`, `test` or `all`.

    Raises:
        UsageError: the split is unknown.
    """
    if split not in (*SPLITS, "all"):
        raise UsageError(f"Unknown split {split!r}: choose one of {', '.join(SPLITS)}, all.")
    folder = scenario_folder()
    return (folder,) if split == "all" else (folder / split,)


def scenarios_at(
    paths: Sequence[Path], toolset: str = DEFAULT, split: str = "all"
) -> tuple[Path, ...]:
    """Return `paths`, or the shipped scenarios of a split if there are none.

    Raises:
        UsageError: no paths for a toolset without shipped scenarios, or the split is unknown.
    """
    if not paths and toolset != DEFAULT:
        raise UsageError(
            f"--toolset {toolset}: no scenarios are shipped for this toolset. Give scenario files "
            "or folders as PATHS."
        )
    return tuple(paths) or scenario_paths(split)
