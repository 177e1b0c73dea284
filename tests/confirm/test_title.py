"""The short name of a tool for people heads every card."""

from typing import Any

import pytest

from lhkit.base.errors import RegistrationError
from lhkit.base.locales import load_catalog
from lhkit.confirm.gate import ScriptedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.imports.functions import build_registry
from lhkit.imports.tool_shapes import parse_tools
from lhkit.notebook.panel.render import fragment
from lhkit.notebook.panel.state import CardItem
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

LONG = "Share an event. Slots are alternative times; use ids that a search returned."


@pytest.mark.anyio
@check_rows(
    ("title", "heading"),
    [
        ("일정 공유", "일정 공유"),
        ("", LONG),
        (" ", LONG),
        ("<b>\u3164", None),
        ({"en": "Share it", "ko": "공유"}, "Share it"),
        ({"ko": "공유"}, LONG),  # the card is in one language
        ({}, LONG),
    ],
)
async def test_title_heads_the_card_in_panel_and_terminal(
    title: str | dict[str, str], heading: str | None
) -> None:
    registry = ToolRegistry()

    @registry.tool(destructive=True, title=title, description=LONG)
    def share(event_id: str) -> dict[str, Any]:
        return {"shared": event_id}

    gate, lines = ScriptedGate([False]), []
    dispatcher = ToolDispatcher(registry, catalog=load_catalog("en"))
    await dispatcher.dispatch("share", {"event_id": "e1"}, confirm=gate)

    async def read(_prompt: str) -> str:
        return "n"

    async def forget() -> bool:
        return False

    terminal = TerminalGate(read, lines.append, load_catalog("en"), forget=forget)
    await dispatcher.dispatch("share", {"event_id": "e1"}, confirm=terminal)
    html = fragment(CardItem(card="1", request=gate.asked[0]), load_catalog("en"))
    if heading is None:
        assert lines[0] == "share: <b>\\u3164"
        assert "&lt;b&gt;\\u3164" in html
    else:
        assert lines[0] == f"share: {heading}"
        assert f"<code>share</code> {heading}</div>" in html
    assert (LONG in html) == (heading == LONG)


@pytest.mark.anyio
async def test_title_by_language_follows_the_language_of_the_card() -> None:
    registry, gate = ToolRegistry(), ScriptedGate([False, False])
    title = {"en": "Share an event", "ko": "일정 공유"}
    registry.tool(destructive=True, title=title, description=LONG, name="share")(lambda: {})
    for locale in ("ko", "en"):
        dispatcher = ToolDispatcher(registry, catalog=load_catalog(locale))
        await dispatcher.dispatch("share", {}, confirm=gate)
    assert [request.heading for request in gate.asked] == ["일정 공유", "Share an event"]


@check_rows("title", [5, ["x"], {"en": 5}, {1: "x"}, {"en": None}])
def test_title_that_is_no_text_is_refused(title: object) -> None:
    with pytest.raises(RegistrationError, match="'share': title must be a text"):
        ToolRegistry().tool(title=title, description=LONG, name="share")(lambda: {})  # type: ignore[arg-type]


def test_title_of_imported_tools_is_read() -> None:
    listed = [
        {"name": "a", "description": "d", "title": "Read all", "inputSchema": {}},
        {"type": "function", "function": {"name": "b", "title": "Write\none", "parameters": {}}},
        {"name": "c", "annotations": {"title": "Third"}, "parameters": {}},
        {"name": "d", "title": 3, "annotations": "x", "parameters": {"title": "Args"}},
    ]
    registry = build_registry(parse_tools(listed), lambda _name: lambda _args, _deps: {})
    assert [tool.title for tool in registry.definitions] == ["Read all", "Write one", "Third", ""]
