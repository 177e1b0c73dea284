"""A conversation in words, for where no panel can be drawn."""

from collections.abc import Callable
from typing import Any

import pytest

from lhkit.errors import ServerUnreachableError
from lhkit.models.scripted import Reply, call, say
from lhkit.notebook.panel import ChatPanel

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
        "  이 작업을 수행할까요? 취소함 (코드로 답함)",
        "  도우미: done",
        "    and said",
        "  취소됨: write",
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
