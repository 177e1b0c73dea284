"""The importers of `lhkit import`: those of lhkit, and of installed packages by entry point."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points
from typing import TypeAlias

from lhkit.imports.imported import Imported
from lhkit.toolset import load_named

GROUP = "lhkit.importers"

Importer: TypeAlias = Callable[..., Imported | Awaitable[Imported]]
"""A function from a source to scenarios, sync or async.

Its positional parameters become arguments of `lhkit import NAME`, keyword-only ones options, by
typer's rules. The first paragraph of its docstring is the help. `into` and `as_jsonl` are reserved.
"""

SHIPPED: Mapping[str, str] = {
    "openai-messages": "lhkit.imports.openai_messages:import_messages",
    "bfcl": "lhkit.imports.bfcl:import_bfcl",
    "functionchat": "lhkit.imports.functionchat:import_functionchat",
    "tau2": "lhkit.imports.tau2:import_tau2",
}
"""References to lhkit's own importers, by name."""


def find_importers() -> dict[str, str]:
    """Return references to all importers by name; those of lhkit come first and win."""
    return {**SHIPPED, **{p.name: p.value for p in entry_points(group=GROUP)}, **SHIPPED}


def load_importer(name: str) -> Importer:
    """Return the importer of a name of `find_importers`.

    Raises:
        UsageError: its module or function does not exist, or importing it fails.
    """
    importer: Importer = load_named(f"importer {name}", find_importers()[name])
    return importer
