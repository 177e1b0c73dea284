"""What may stand in a `manifest.json` that somebody else gave us. Making one: `manifest`. Pure.

Unknown fields are left alone: a newer lhkit may have written them.
"""

from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic asks for it below Python 3.12
    TypeAlias,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

MAX_REPEATS = 10_000
"""A manifest that asks for more is no run of ours: every repeat becomes a row in memory."""

_Scalar: TypeAlias = str | int | float | bool | None


class _Tool(TypedDict):
    name: str
    parameters: dict[str, Any]
    implied: NotRequired[dict[str, Any]]


class _Told(TypedDict, total=False):
    instructions_sha256: str
    tools_sha256: str
    rendering_sha256: str
    texts_sha256: str
    assistant: dict[str, Any]
    tools: list[_Tool]


@with_config(ConfigDict(strict=True))
class _Manifest(TypedDict, total=False):
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
    questions: dict[str, Annotated[list[str], Field(min_length=1)]]
    sittings: list[dict[str, Any]]


_ADAPTER = TypeAdapter(_Manifest)


def manifest_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return which field is not as lhkit writes it, and why; None if all are."""
    try:
        _ADAPTER.validate_python(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
