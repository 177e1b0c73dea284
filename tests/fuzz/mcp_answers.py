"""Calls of a hostile MCP server.

Each call goes from the dispatcher to a process (`hostile_mcp.py`) and back. The invariants: nothing
raises, nothing hangs, each result can be encoded for a model, no write reaches the server without
approval, and no question is accepted.
"""

import random
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError
from lhkit.base.locales import load_catalog
from lhkit.confirm.form import DECLINED, Form, FormAnswer, filled
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult, encode_tool_result
from lhkit.mcp.toolset import McpToolset
from lhkit.notebook.panel.render import fragment
from lhkit.notebook.panel.state import CardItem
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import closing_session, open_session

_SERVER = Path(__file__).with_name("hostile_mcp.py")
_LIMIT_S = 0.5
_PATIENCE_S = 60.0
"""The time for a server to start on a busy machine."""
_LIFE = 2_000
_MANY = 8
"""After this many errors in a row, the test checks whether the server is alive."""


NOT_OPENED = "(servers that were refused because of their list of tools)"


_CATALOG = load_catalog("en")


class _Never:
    """Declines everything."""

    is_person = True

    async def confirm(self, request: ConfirmRequest) -> bool:
        return not request.tool  # every tool has a name

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Decline a card after checking that it can be rendered and its fields can be filled."""
        filled(form, form.typed, _CATALOG)
        assert "<script" not in fragment(CardItem(card="1", request=request, form=form), _CATALOG)
        return DECLINED


async def fuzz(count: int, seed: int) -> Counter[str]:
    """Return the counts of the kinds of results; a violation raises `AssertionError`."""
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        witness = Path(folder) / "witness"
        while (done := sum(counts.values()) - counts[NOT_OPENED]) < count:
            words = [
                sys.executable,
                "-I",
                "-S",
                str(_SERVER),
                str(chance.random())[2:],
                str(witness),
            ]
            toolset = McpToolset(
                server=shlex.join(words), reads=["look"], timeout_s=_LIMIT_S, start_s=_PATIENCE_S
            )
            await _one_life(toolset, min(_LIFE, count - done), chance, counts)
            assert not witness.exists(), witness.read_text(encoding="utf-8")
    return counts


async def _one_life(
    toolset: McpToolset, count: int, chance: random.Random, counts: Counter[str]
) -> None:
    try:
        opened = open_session(toolset, {}, "en")
    except LhkitError:  # its list of tools is invalid, so there is no session
        counts[NOT_OPENED] += 1
        return
    with closing_session(opened) as session:
        dispatcher = ToolDispatcher(session.registry)
        assert "write" in session.registry.destructive
        errors = 0
        for _ in range(count):
            name = "write" if chance.random() < 0.1 else "look"
            args: Any = {"a": chance.choice(("x", "한", "\ud800", "</script>"))}
            result = await dispatcher.dispatch(name, args, confirm=_Never())
            counts[_kind(result)] += 1
            errors = errors + 1 if isinstance(result, ToolErr) else 0
            if errors > _MANY and not _is_alive(session):
                return


def _is_alive(session: Any) -> bool:
    try:
        session.state()
    except LhkitError:
        return False
    return True


def _kind(result: ToolResult) -> str:
    encode_tool_result(result).encode()
    match result:
        case ToolOk():
            return "ok"
        case ToolErr(code=code):
            return code
    return "cancelled"
