"""Tools as manifests and records store them, validated as if they were registered.

A run folder may come from another user: after validation, scorers, exporters and reviews can rely
on its tools. Their regular expressions always run with a time limit.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from lhkit.base.errors import RegistrationError
from lhkit.base.json_values import compact
from lhkit.conversation.tool_results import ToolErr

if TYPE_CHECKING:
    from lhkit.tools.definition import ToolDefinition


@with_config(ConfigDict(strict=True, extra="allow"))
class _Spec(TypedDict):
    name: str
    description: str
    parameters: dict[str, Any]
    destructive: bool
    always_ask: NotRequired[bool]
    implied: NotRequired[dict[str, Any]]
    claims: NotRequired[dict[str, list[str]]]


def _check_spec(spec: _Spec) -> _Spec:
    if error := _registration_error(compact(spec)):
        raise ValueError(error)
    return spec


ToolSpec = Annotated[_Spec, AfterValidator(_check_spec)]
"""A tool as `fingerprint.tool_specs` writes it; unknown fields are kept."""

TOOL_SPECS: TypeAdapter[tuple[ToolSpec, ...]] = TypeAdapter(tuple[ToolSpec, ...])


@lru_cache(maxsize=512)
def _registration_error(spec_json: str) -> str | None:
    """Return why the tool cannot be registered, or None if it can."""
    from lhkit.tools.registry import ToolRegistry

    try:
        # json, because pydantic rejects unpaired surrogates
        ToolRegistry([stored_tool(json.loads(spec_json))])
    except RegistrationError as error:
        return str(error)
    return None


def stored_tool(spec: Mapping[str, Any]) -> "ToolDefinition":
    """Return the tool of a spec, which cannot be called."""
    from lhkit.tools.definition import ToolDefinition

    return ToolDefinition(
        name=spec["name"],
        description=spec["description"] or "-",
        parameters=spec["parameters"],
        handler=lambda _args, _deps: ToolErr("not_found", "a stored tool has no handler"),
        is_destructive=spec["destructive"],
        always_ask=spec.get("always_ask", False),
        implied=spec.get("implied", {}),
        claims=spec.get("claims", {}),
    )
