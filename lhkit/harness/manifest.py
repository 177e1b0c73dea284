"""The `manifest.json` of a run folder: where the records come from, and what may stand in it. Pure.

Of a manifest that somebody else gave us, unknown fields are ignored.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from lhkit.files import installed_version
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


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class AssistantLimits(_Part):
    """Limits of the assistant, as far as exports read them."""

    max_result_bytes: Annotated[int, Field(ge=1, le=2**31)] = 2**31
    truncation_hint: str = ""


class Prompt(_Part):
    """What reached the model in one language: hashes, limits and the tools in full."""

    instructions_sha256: str = ""
    tools_sha256: str = ""
    rendering_sha256: str = ""
    texts_sha256: str = ""
    assistant: AssistantLimits = AssistantLimits()
    tools: Sequence[ToolSpec] = ()


class Invocation(_Part):
    """One call of `replay` on a folder; `ended_at` is None while it runs, or if it was killed.

    `changes` differ from the invocation before, where samples were asked anew. `remarks` are
    sentences on what could not be known. `warmed_up` is how many prompt beginnings the server had
    read before the first sample. Of `wall_s` seconds, in `model_s` a request was open, and in
    `writing_s` more a record was written; `setup_s` and `server_s` were before (see
    `metrics.TimeBreakdown`).
    """

    started_at: _Moment | None = None
    ended_at: _Moment | None = None
    concurrency: _Count = 1
    kept: _Count = 0
    played: _Count = 0
    invalid: _Count = 0
    finished: bool = False
    changes: Sequence[Mapping[str, str]] = ()
    remarks: Sequence[str] = ()
    warmed_up: _Count = 0
    setup_s: _Seconds | None = None
    server_s: _Seconds | None = None
    wall_s: _Seconds = 0.0
    model_s: _Seconds = 0.0
    writing_s: _Seconds = 0.0


class Manifest(_Part):
    """The contents of a `manifest.json`; every field may be absent.

    `locales` has the prompt of each language, `tools` the names of the tools of a scenario that has
    not all of its language, `questions` the content hashes of the repeats of each scenario.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    command: Sequence[str] = ()
    hardware: dict[str, _Scalar] = Field(default_factory=dict)
    models: Sequence[dict[str, _Scalar]] = ()
    sampling: Sequence[dict[str, _Scalar]] = ()
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    toolset: str = ""
    user: str = ""
    locales: dict[str, Prompt] = Field(default_factory=dict)
    tools: dict[str, Sequence[str]] = Field(default_factory=dict)
    scenarios: dict[str, str] = Field(default_factory=dict)
    contexts: dict[str, str] | None = None
    questions: dict[str, Annotated[Sequence[str], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    invocations: Sequence[Invocation] = ()
    rescored_from: str = ""
    rescored_with: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, manifest: "Manifest | Mapping[str, Any]") -> "Manifest":
        """Return the manifest of a run from plain data."""
        return manifest if isinstance(manifest, cls) else cls.model_validate(manifest)

    def plain(self) -> dict[str, Any]:
        """Return the fields that are set, as plain JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True, warnings=False)


def manifest_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return the first field that is not valid, and why; None if all are."""
    try:
        Manifest.model_validate(manifest, strict=True)
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


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {
        "python": platform.python_version(),
        **{name: installed_version(name) or "not installed" for name in _VERSIONS_OF},
    }
