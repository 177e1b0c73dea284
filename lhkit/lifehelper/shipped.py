"""The scenarios that are shipped: where they lie, and for which toolset they are the default."""

from collections.abc import Sequence
from pathlib import Path

from lhkit.errors import UsageError
from lhkit.lifehelper.catalog import shipped_data
from lhkit.toolset import DEFAULT

SPLITS = ("dev", "test")
"""`dev` is for looking at while building, `test` for the figure at the end."""


def scenario_folder() -> Path:
    """Return where the shipped scenarios lie: in the package, or beside it in a checkout.

    Inside, each split has a folder of its own (`scenario_paths`).
    """
    return shipped_data("ac")


def scenario_paths(split: str) -> tuple[Path, ...]:
    """Return where the shipped scenarios of a split lie: `dev`, `test` or `all`.

    Raises:
        UsageError: there is no such split.
    """
    if split not in (*SPLITS, "all"):
        raise UsageError(f"no split {split!r}: choose one of {', '.join(SPLITS)}, all")
    folder = scenario_folder()
    return (folder,) if split == "all" else (folder / split,)


def scenarios_at(
    paths: Sequence[Path], toolset: str = DEFAULT, split: str = "all"
) -> tuple[Path, ...]:
    """Return where the scenarios are: at `paths`, by default the shipped ones of a split.

    Raises:
        UsageError: no paths for a toolset that no scenarios are shipped for, or no such split.
    """
    if not paths and toolset != DEFAULT:
        raise UsageError(
            f"--toolset {toolset}: no scenarios are shipped for it: give scenario files or folders "
            "as PATHS"
        )
    return tuple(paths) or scenario_paths(split)
