"""The `manifest.json` of a run folder: where the records come from, and what may stand in it. Pure.

Of a manifest that somebody else gave us, unknown fields are ignored.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from lhkit.files import version_of
from lhkit.harness.manifest_changes import Change
from lhkit.harness.record import SCHEMA
from lhkit.harness.record_json import MAX_SECONDS, moment_of
from lhkit.harness.tool_specs import ToolSpec

MAX_REPEATS = 10_000
"""A manifest that asks for more is no run of ours: every repeat becomes a row in memory."""

_Scalar: TypeAlias = str | int | float | bool | None

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=-MAX_SECONDS, le=MAX_SECONDS)]


def _checked_moment(text: str) -> str:
    if moment_of(text) is None:
        raise ValueError("no date and time in ISO 8601, of a year from 1000 to 9000")
    return text


_Moment = Annotated[str, AfterValidator(_checked_moment)]


class _Assistant(TypedDict, total=False):
    max_result_bytes: Annotated[int, Field(ge=1, le=2**31)]
    truncation_hint: str


class _Told(TypedDict, total=False):
    instructions_sha256: str
    tools_sha256: str
    rendering_sha256: str
    texts_sha256: str
    assistant: _Assistant
    tools: list[ToolSpec]


class _Invocation(TypedDict, total=False):
    started_at: _Moment | None
    ended_at: _Moment | None
    concurrency: _Count
    kept: _Count
    played: _Count
    invalid: _Count
    finished: bool
    changes: list[dict[str, str]]
    remarks: list[str]
    warmed_up: _Count
    setup_s: _Seconds | None
    server_s: _Seconds | None
    wall_s: _Seconds
    model_s: _Seconds
    writing_s: _Seconds


@with_config(ConfigDict(strict=True))
class _Manifest(TypedDict, total=False):
    toolset: str
    user: str
    versions: dict[str, str]
    git_commit: str | None
    command: list[str]
    hardware: dict[str, _Scalar]
    models: list[dict[str, _Scalar]]
    sampling: list[dict[str, _Scalar]]
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)]
    locales: dict[str, _Told]
    scenarios: dict[str, str]
    contexts: dict[str, str]
    tools: dict[str, list[str]]
    questions: dict[str, Annotated[list[str], Field(min_length=1)]]
    invocations: list[_Invocation]
    rescored_from: str
    rescored_with: dict[str, str]


_ADAPTER = TypeAdapter(_Manifest)


def manifest_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return which field is not as lhkit writes it, and why; None if all are."""
    try:
        _ADAPTER.validate_python(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What only the caller can know. `started_at` should have a time zone.

    `command` is the line that began the invocation, if one did. Before it, `setup_s` seconds went
    by until all was ready, and `server_s` more until a server had started for it; None if nobody
    took the time.
    """

    started_at: datetime | None = None
    command: Sequence[str] = ()
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float | None = None
    server_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of `replay` on a folder; `ended_at` is None while it goes on, or was killed.

    `changes` are what is told otherwise than in the invocation before, where samples were asked
    anew.
    `remarks` are sentences on what nobody could know.
    `warmed_up` is how many prompt beginnings the server had read before the first sample. Of
    `wall_s` seconds, in `model_s` a request was open, and in `writing_s` more a record was written;
    `setup_s` and `server_s` were before (see `metrics.Spent`).
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
    facts: Mapping[str, Any], provenance: Provenance, invocations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest as plain JSON.

    Args:
        facts: of the plan: models, sampling, hashes of prompts, tools, scenarios and questions.
        provenance: what only the caller can know.
        invocations: oldest first, the present one last.
    """
    return {
        "schema": SCHEMA,
        "versions": versions(),
        "git_commit": provenance.git_commit,
        "command": list(provenance.command),
        "hardware": dict(provenance.hardware),
        **facts,
        "invocations": list(invocations),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {
        "python": platform.python_version(),
        **{name: version_of(name) or "not installed" for name in _VERSIONS_OF},
    }
