"""What a training's `manifest.json` says: what was learnt from, how, with what, and how far. Pure.

Enough to write a model card from, and to do the training again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from lhkit import __version__
from lhkit.tuning.sequence import TrainingSequence

MANIFEST: Final = "manifest.json"

_SCHEMA: Final = 1
_VERSIONS_OF: Final = ("torch", "transformers", "peft", "safetensors", "tokenizers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What does not change while it trains: recipe, base, data and machine.

    `recipe` is the checkpoint's: settings and hashes. `left_out` counts conversations that are too
    long to learn from.
    """

    recipe: Mapping[str, Any]
    base_name: str
    data: Mapping[str, Any]
    dev: Mapping[str, Any]
    machine: Mapping[str, Any]


def data_facts(sequences: Sequence[TrainingSequence], *, left_out: int) -> dict[str, Any]:
    """Return how many texts there are, of which groups and kinds."""
    return {
        "texts": len(sequences),
        "left_out": left_out,
        "groups": dict(sorted(Counter(each.group for each in sequences).items())),
        "kinds": dict(sorted(Counter(each.kind for each in sequences).items())),
    }


def manifest_of(
    origin: Origin, log: Sequence[Mapping[str, Any]], *, peak_memory_bytes: int | None
) -> dict[str, Any]:
    """Return the manifest as plain JSON.

    Args:
        origin: what is the same from the first step to the last.
        log: a row for each step that is done; seconds are those of the steps, not of set-up or of
            measuring.
        peak_memory_bytes: of the process that wrote this; an earlier one may have had more.
    """
    measured = [row["dev_loss"] for row in log if row["dev_loss"] is not None]
    return {
        "schema": _SCHEMA,
        "base": {"name": origin.base_name, "sha256": origin.recipe["base_sha256"]},
        "start": _start(origin.recipe),
        "data": {"sha256": origin.recipe["data_sha256"], **origin.data},
        "dev": {"sha256": origin.recipe["dev_sha256"], **origin.dev},
        "settings": origin.recipe["settings"],
        "steps_done": len(log),
        "seconds": round(sum(row["seconds"] for row in log), 1),
        "learnt_tokens": sum(row["learnt_tokens"] for row in log),
        "peak_memory_bytes": peak_memory_bytes,
        "loss": log[-1]["loss"] if log else None,
        "dev_loss": measured[-1] if measured else None,
        "versions": versions(),
        "machine": dict(origin.machine),
    }


def _start(recipe: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the adapter that the training went on from; None: a fresh one."""
    return {"sha256": recipe["start_sha256"]} if "start_sha256" in recipe else None


def versions() -> dict[str, str]:
    """Return the versions that a training depends on; of lhkit, the running one."""
    return {"lhkit": __version__, **{name: _version(name) for name in _VERSIONS_OF}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
