"""Two tools over the lamps of a house, for `05_tune`: small enough to be learnt in a minute."""

from typing import Annotated, Literal

from pydantic import Field

from lhkit import ToolOk, ToolRegistry, ToolResult

LAMPS = ToolRegistry()
Room = Literal["kitchen", "bedroom", "study", "hall"]


@LAMPS.tool(destructive=True, claims={"ko": ["맞췄", "껐"], "en": ["is at", "is off now"]})
def set_lamp(room: Room, percent: Annotated[int, Field(ge=0, le=100)]) -> ToolResult:
    """Set how bright the lamp of a room is, in percent; 0 is off."""
    return ToolOk({"room": room, "percent": percent})


@LAMPS.tool()
def read_lamp(room: Room) -> ToolResult:
    """Tell how bright the lamp of a room is, in percent."""
    return ToolOk({"room": room, "percent": 40})
