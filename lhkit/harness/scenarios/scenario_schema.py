"""The JSON Schema of scenario files, for editors.

`python -m lhkit.harness.scenarios.scenario_schema` writes `scenario.schema.json` into this folder.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lhkit.harness.scenarios.scenario import Scenario


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of scenario files."""
    schema = TypeAdapter(tuple[Scenario, ...]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


if __name__ == "__main__":
    text = json.dumps(scenario_json_schema(), ensure_ascii=False, indent=2)
    Path(__file__).with_name("scenario.schema.json").write_text(text + "\n", encoding="utf-8")
