"""The one plug-in point: tools with an assistant and a world. Chat, panel, eval and lint use it.

Whoever has tools implements `Toolset` and `Session`, in a file of their own, and names it
`FILE.py:NAME`. life-helper is such a reference, the default one. lhkit knows no domain beside this.

    class Kitchen:
        def open(self, world, locale):
            items = [dict(row) for row in world.get("items", [])]
            return KitchenSession(items)

Their code may keep and change whatever it gets, and give away what it goes on changing: what
crosses this line is copied. It runs with our rights, as a script of theirs would: it is trusted
like one. Whatever goes wrong in it is told in one sentence, with the line of their file.
"""

from lhkit.toolset.base import (
    BareSession,
    BareToolset,
    Session,
    Toolset,
    ToolsetSource,
    day_of,
    isolation_fault,
    name_of,
    require_isolated,
    waits_of,
)
from lhkit.toolset.references import DEFAULT, label_of, load, load_named, load_toolset, seen_from
from lhkit.toolset.sessions import (
    SessionAround,
    ToolsetAround,
    assistant_of,
    closed_after,
    limited,
    locales_of,
    open_session,
    opened,
    place_in_their_code,
    registry_of,
    runs_on_of,
    state_of,
    their_code,
)

__all__ = [
    "DEFAULT",
    "BareSession",
    "BareToolset",
    "Session",
    "SessionAround",
    "Toolset",
    "ToolsetAround",
    "ToolsetSource",
    "assistant_of",
    "closed_after",
    "day_of",
    "isolation_fault",
    "label_of",
    "limited",
    "load",
    "load_named",
    "load_toolset",
    "locales_of",
    "name_of",
    "open_session",
    "opened",
    "place_in_their_code",
    "registry_of",
    "require_isolated",
    "runs_on_of",
    "seen_from",
    "state_of",
    "their_code",
    "waits_of",
]
