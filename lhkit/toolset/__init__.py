"""Toolsets: tools with an assistant and an initial state, for chat, notebook panel, eval and lint.

A user implements `Toolset` and `Session` in a file and refers to it as `FILE.py:NAME`; the default
is `life-helper`.

    class Kitchen:
        def open(self, world, locale):
            items = [dict(row) for row in world.get("items", [])]
            return KitchenSession(items)

- `base`: the protocols `Toolset` and `Session`, and `BareToolset` for tools without a state.
- `changes`: compares a session's state before and after a call.
- `criteria`: reads the acceptance criteria that a toolset names.
- `instructions`: replaces the instructions of a toolset's assistant.
- `references`: loads a toolset by its reference.
- `sessions`: opens, reads and closes sessions, and wraps toolsets.
- `source`: hashes the code of a toolset, so that a run is not resumed with other code.

User code is trusted like any script. Data that it passes or receives is copied, and its exceptions
become a `UsageError` with the line of the user's file.
"""

from lhkit.toolset.base import (
    BareSession,
    BareToolset,
    Session,
    Toolset,
    ToolsetSource,
    day_of,
    is_blocking,
    isolation_issue,
    name_of,
    require_isolated,
)
from lhkit.toolset.changes import watch_state
from lhkit.toolset.criteria import (
    ChatCall,
    Criteria,
    WrittenAnswer,
    criteria_of,
    criterion_of,
)
from lhkit.toolset.instructions import with_instructions
from lhkit.toolset.references import (
    DEFAULT,
    label_of,
    load,
    load_named,
    load_toolset,
    reference_from,
)
from lhkit.toolset.sessions import (
    WrappedSession,
    WrappedToolset,
    assistant_of,
    closing_session,
    limit_tokens,
    open_session,
    opened,
    read_state,
    registry_of,
    supported_locales,
    tool_programs,
    user_code,
    user_code_location,
)
from lhkit.toolset.source import source_sha256

__all__ = [
    "DEFAULT",
    "BareSession",
    "BareToolset",
    "ChatCall",
    "Criteria",
    "Session",
    "Toolset",
    "ToolsetSource",
    "WrappedSession",
    "WrappedToolset",
    "WrittenAnswer",
    "assistant_of",
    "closing_session",
    "criteria_of",
    "criterion_of",
    "day_of",
    "is_blocking",
    "isolation_issue",
    "label_of",
    "limit_tokens",
    "load",
    "load_named",
    "load_toolset",
    "name_of",
    "open_session",
    "opened",
    "read_state",
    "reference_from",
    "registry_of",
    "require_isolated",
    "source_sha256",
    "supported_locales",
    "tool_programs",
    "user_code",
    "user_code_location",
    "watch_state",
    "with_instructions",
]
