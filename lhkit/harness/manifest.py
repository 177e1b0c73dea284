"""What a run folder's `manifest.json` says: where the records come from. A value; no I/O."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lhkit.harness.plan import Plan

SCHEMA = 1

_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What only the caller can know. `started_at` should have a time zone."""

    started_at: datetime | None = None
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One call of `replay` on a folder; `ended_at` is None while it goes on, or was killed."""

    started_at: str | None = None
    ended_at: str | None = None
    concurrency: int = 1
    kept: int = 0
    played: int = 0
    invalid: int = 0
    finished: bool = False


def manifest_of(
    plan: Plan, provenance: Provenance, sittings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest as plain JSON; `sittings` are oldest first."""
    return {
        "schema": SCHEMA,
        "versions": versions(),
        "git_commit": provenance.git_commit,
        "hardware": dict(provenance.hardware),
        **plan.facts,
        "sittings": list(sittings),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _VERSIONS_OF}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
