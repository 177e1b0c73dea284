"""The tools that a manifest or a record describes, checked as tools are when they are registered.

A run folder may be somebody else's: what scorers, exporters and reviews read of a tool is valid
from here on. Its regular expressions run with a time limit wherever they run.
"""

import json
from functools import lru_cache
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from lhkit.errors import RegistrationError
from lhkit.json_values import compact
from lhkit.tool_results import ToolErr


@with_config(ConfigDict(strict=True, extra="allow"))
class _Spec(TypedDict):
    name: str
    description: str
    parameters: dict[str, Any]
    destructive: bool
    implied: NotRequired[dict[str, Any]]
    claims: NotRequired[dict[str, list[str]]]


def _checked(spec: _Spec) -> _Spec:
    if fault := _fault(compact(spec)):
        raise ValueError(fault)
    return spec


ToolSpec = Annotated[_Spec, AfterValidator(_checked)]
"""A tool as `fingerprint.tool_specs` writes it; fields that are not known are left alone."""

TOOL_SPECS: TypeAdapter[tuple[ToolSpec, ...]] = TypeAdapter(tuple[ToolSpec, ...])


@lru_cache(maxsize=512)
def _fault(spec_json: str) -> str | None:
    """Return why a tool could not have been registered, in words; None if it could."""
    from lhkit.tools.definition import ToolDefinition
    from lhkit.tools.registry import ToolRegistry

    spec = json.loads(spec_json)  # valid already; pydantic reads no half of a surrogate pair
    tool = ToolDefinition(
        name=spec["name"],
        description=spec["description"] or "-",
        parameters=spec["parameters"],
        handler=lambda _args, _deps: ToolErr("not_found", "a tool of a record"),
        is_destructive=spec["destructive"],
        implied=spec.get("implied", {}),
        claims=spec.get("claims", {}),
    )
    try:
        ToolRegistry([tool])
    except RegistrationError as error:
        return str(error)
    return None
