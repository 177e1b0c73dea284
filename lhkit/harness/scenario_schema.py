"""The JSON Schema of a scenario file, for editors."""

from typing import Any

from pydantic import TypeAdapter

from lhkit.harness.scenario import Scenario


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a scenario file, for editors."""
    schema = TypeAdapter(tuple[Scenario, ...]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
