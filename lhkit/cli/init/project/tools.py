"""A shopping list with three tools: one reads, two write."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import Field

from lhkit import Assistant, ToolErr, ToolOk, ToolRegistry, ToolResult

registry = ToolRegistry()

Items = dict[str, int]  # name -> quantity
ItemName = Annotated[str, Field(min_length=1, max_length=40)]
Quantity = Annotated[int, Field(ge=1, le=99)]


def rows(items: Items) -> list[dict[str, Any]]:
    """Return the list as rows, each with an id."""
    return [{"id": name, "quantity": quantity} for name, quantity in items.items()]


@registry.tool()
def list_items(deps: Items) -> ToolResult:
    """List what is on the shopping list."""
    return ToolOk({"items": rows(deps)})


@registry.tool(
    destructive=True,
    title={"en": "Add to the shopping list", "ko": "장보기 목록에 추가"},
    claims={"en": ["added", "put"], "ko": ["추가했", "넣었"]},
)
def add_item(name: ItemName, deps: Items, quantity: Quantity = 1) -> ToolResult:
    """Add an item to the shopping list."""
    if name in deps:
        return ToolErr(
            "r1_duplicate",
            f"{name} is on the list already. Nothing has to be added.",
            translations={"ko": f"{name}: 이미 목록에 있습니다. 추가할 것이 없습니다."},
        )
    deps[name] = quantity
    return ToolOk({"added": name, "quantity": quantity})


@registry.tool(
    destructive=True,
    title={"en": "Remove from the shopping list", "ko": "장보기 목록에서 빼기"},
    claims={"en": ["removed", "took"], "ko": ["뺐", "지웠"]},
)
def remove_item(name: ItemName, deps: Items) -> ToolResult:
    """Remove an item from the shopping list."""
    if name not in deps:
        return ToolErr(
            "not_found",
            f"{name} is not on the list. Use a name of list_items.",
            translations={"ko": f"{name}: 목록에 없습니다. list_items의 이름을 쓰세요."},
        )
    del deps[name]
    return ToolOk({"removed": name})


INSTRUCTIONS = """\
You keep a shopping list. Answer briefly.
- Call a tool for requests about the list. Small talk needs no tool.
- After cancelled or error, never say that it was done. Give the reason instead."""


class Session:
    """One conversation's own list."""

    registry = registry

    def __init__(self, items: Items) -> None:
        self.items = items
        self.today = date.today()
        self.assistant = Assistant(instructions=INSTRUCTIONS, deps=items)

    def state(self) -> Mapping[str, Any]:
        return {"items": rows(self.items)}

    def close(self) -> None:
        """Close what `open` opened, such as a database."""


class ShoppingList:
    """Opens a fresh list for each conversation."""

    name = "shopping-list"
    locales = ("en", "ko")

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        return Session({row["id"]: row.get("quantity", 1) for row in world.get("items", [])})


toolset = ShoppingList()
