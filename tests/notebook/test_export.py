"""A conversation in words, for where no panel can be drawn."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from lhkit.base.errors import ServerUnreachableError
from lhkit.confirm.decision import Edit, Reject
from lhkit.models.recorded.scripted import Reply, call, say
from lhkit.notebook.panel.markdown import is_active
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]


async def test_repr_contains_the_conversation(
    make_panel: MakePanel,
) -> None:
    panel = make_panel([call("write", a=1), say("done\nand said")])
    await panel.send("쓰기", answers=[False])
    data: dict[str, Any] = panel._repr_mimebundle_()[0]
    assert data["text/plain"] == repr(panel)
    assert repr(panel).splitlines() == [
        "ChatPanel(model='scripted', locale='ko')",
        "  나: 쓰기",
        '  write {"a":1} → cancelled',
        "  이 작업을 실행할까요? 취소함 (코드로 답함)",
        "  어시스턴트: done",
        "    and said",
        "  실행하지 않음: write",
    ]


async def test_repr_escapes_control_characters(make_panel: MakePanel) -> None:
    panel = make_panel([say("\x1b[2Jgone")])
    await panel.send("hi")
    assert "\x1b" not in repr(panel)
    assert "\\x1b[2Jgone" in repr(panel)


async def test_export_contains_error_details(
    make_panel: MakePanel,
) -> None:
    panel = make_panel([Reply(error=ServerUnreachableError("nothing answers at http://a"))])
    await panel.send("hi")
    assert "nothing answers at http://a" in repr(panel)
    assert "```\nnothing answers at http://a\n```" in panel.to_markdown()


async def test_exports_contain_edits_reasons_and_the_line_of_truth(make_panel: MakePanel) -> None:
    evil = "</b><img src=x> `*\u202e"
    tools = ToolRegistry([echo_tool("write", is_destructive=True, parameters=object_schema(a={}))])
    calls = [call("write", a=1), say("done"), call("write", a=1), say("done")]
    panel = make_panel(calls, toolset=tools, locale="en")
    await panel.send("one", answers=[Edit({"a": evil})])
    await panel.send("two", answers=[Reject(evil)])
    cards = [entry for entry in json.loads(panel.to_json())["messages"] if "allowed" in entry]
    assert (cards[0]["proposed"], cards[0]["arguments"]) == ({"a": 1}, {"a": evil})
    assert cards[1]["user_message"] == evil
    markdown = panel.to_markdown()
    assert "**Do this?** Done (answered from code) · Edited" in markdown
    assert r"""`Ran: write · "</b><img src=x> *\u202e" (edited: a 1 →""" in markdown
    assert "`Not run: write · 1`" in markdown
    assert not is_active(re.sub(r"```.*?```|`.*?`", "", markdown, flags=re.DOTALL))
    assert "Ran: write" in repr(panel)
