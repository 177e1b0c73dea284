"""A shopping list with two tools: one reads, one writes."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import Field

from lhkit import Assistant, ToolErr, ToolOk, ToolRegistry, ToolResult

registry = ToolRegistry()

ItemName = Annotated[str, Field(min_length=1, max_length=40)]

INSTRUCTIONS = """\
You keep a shopping list. Answer briefly.
- Call a tool for requests about the list. Small talk needs no tool.
- After cancelled or error, never say that it was done. Give the reason instead."""


@registry.tool()
def list_items(deps: list[str]) -> ToolResult:
    """List what is on the shopping list."""
    return ToolOk({"items": list(deps)})


@registry.tool(destructive=True, claims={"en": ["added", "put"]})
def add_item(name: ItemName, deps: list[str]) -> ToolResult:
    """Add an item to the shopping list."""
    if name in deps:
        return ToolErr("r1_duplicate", f"{name} is on the list already. Nothing has to be added.")
    deps.append(name)
    return ToolOk({"added": name})


class Session:
    """One conversation's own list."""

    registry = registry

    def __init__(self, items: list[str]) -> None:
        self.items = items
        self.today = date.today()
        self.assistant = Assistant(instructions=INSTRUCTIONS, deps=items)

    def state(self) -> Mapping[str, Any]:
        return {"items": [{"id": name} for name in self.items]}

    def close(self) -> None:
        """Close what `open` opened, such as a database."""


class ShoppingList:
    """Opens a fresh list for each conversation."""

    name = "shopping-list"
    locales = ("en",)

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        return Session([row["id"] for row in world.get("items", [])])


toolset = ShoppingList()
