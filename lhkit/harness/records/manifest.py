"""What a run folder's `manifest.json` says: where the records come from. A value; no I/O."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lhkit.harness.records.questions import Change

SCHEMA = 1

_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What only the caller can know. `started_at` should have a time zone.

    `command` is the line that began the sitting, if one did. Before it, `setup_s` seconds went by
    until all was ready, and `server_s` more until a server had started for it; None if nobody took
    the time.
    """

    started_at: datetime | None = None
    command: Sequence[str] = ()
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float | None = None
    server_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One call of `replay` on a folder; `ended_at` is None while it goes on, or was killed.

    `changes` are what is told otherwise than in the sitting before, where samples were asked anew.
    `remarks` are sentences on what nobody could know.
    `warmed_up` is how many prompt beginnings the server had read before the first sample. Of
    `wall_s` seconds, in `model_s` a request was open, and in `writing_s` more a record was written;
    `setup_s` and `server_s` were before (see `timings.Spent`).
    """

    started_at: str | None = None
    ended_at: str | None = None
    concurrency: int = 1
    kept: int = 0
    played: int = 0
    invalid: int = 0
    finished: bool = False
    changes: Sequence[Change] = ()
    remarks: Sequence[str] = ()
    warmed_up: int = 0
    setup_s: float | None = None
    server_s: float | None = None
    wall_s: float = 0.0
    model_s: float = 0.0
    writing_s: float = 0.0


def manifest_of(
    facts: Mapping[str, Any], provenance: Provenance, sittings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest as plain JSON.

    Args:
        facts: of the plan: models, sampling, hashes of prompts, tools, scenarios and questions.
        provenance: what only the caller can know.
        sittings: oldest first, the present one last.
    """
    return {
        "schema": SCHEMA,
        "versions": versions(),
        "git_commit": provenance.git_commit,
        "command": list(provenance.command),
        "hardware": dict(provenance.hardware),
        **facts,
        "sittings": list(sittings),
    }


def earlier_sittings(manifest: Mapping[str, Any]) -> list[Any]:
    """Return the sittings that a folder's manifest tells of; empty if it tells none."""
    earlier = manifest.get("sittings", [])
    return earlier if isinstance(earlier, list) else []


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _VERSIONS_OF}}


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
