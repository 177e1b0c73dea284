"""The always-call baseline in a toolset with more writing tools than a turn has room for."""

from dataclasses import replace
from typing import Any

import pytest

from lhkit.harness.author.reference import always_call_model
from lhkit.harness.sample import run_sample
from lhkit.tool_results import ToolOk
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load

pytestmark = pytest.mark.anyio

LAX = """\
- id: a-en-01
  ac: AC-1
  locale: en
  turns:
    - user: "Jot it down."
      confirm: accept
      expect: {extra: any}
      reply: {contains_any: [logged]}
  final: {notes: [{}]}
"""
TEXT = {"type": "string", "maxLength": 80}


def writing(name: str, argument: str) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description="Write",
        parameters={"type": "object", "properties": {argument: TEXT}, "required": [argument]},
        handler=lambda _args, _notes: ToolOk({"done": True}),
        is_destructive=True,
    )


@pytest.mark.parametrize(
    ("more", "calls"),
    [
        ([], ["find_notes", "add_note", "finish_note"]),
        (["text"], ["find_notes", "add_note", "finish_note", "write_0"]),
        (["page_id", "text"], ["find_notes", "add_note", "finish_note", "write_1"]),
        (["text", "text", "text"], ["find_notes", "add_note", "write_0", "write_1"]),
    ],
)
async def test_always_call_model_claims_success_within_message_limit(
    toolset: Any, load: Load, more: list[str], calls: list[str]
) -> None:
    added = [writing(f"write_{number}", argument) for number, argument in enumerate(more)]
    larger = replace(toolset, registry=ToolRegistry([*toolset.registry.definitions, *added]))
    (scenario,) = load(LAX)
    played = await run_sample(scenario, always_call_model(scenario, larger), larger)
    assert [call.tool for call in played.evidence.turns[0].calls] == calls
    assert "It is all done!" in played.evidence.turns[0].reply
