"""Arguments where a person decides: every invisible character is an escape, nothing is markup."""

import io
import sys
import unicodedata
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import groupby
from typing import Any

import pytest
from rich.console import Console

from lhkit.base.locales import load_catalog
from lhkit.base.text import visible
from lhkit.chat.assistant import Assistant
from lhkit.chat.truth import truth_line
from lhkit.cli.chat.chat import terminal_gate
from lhkit.confirm.gate import ConfirmGate
from lhkit.confirm.summary import pretty
from lhkit.conversation.messages import GateOutcome, ToolCall, ToolCallMessage, ToolCallOutcome
from lhkit.conversation.tool_results import ToolOk
from lhkit.mcp.serving import McpServing
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

ENGLISH = load_catalog("en")
NAMED = "\u3164\uffa0\u115f\u2800\xa0\u200b\ufe0f\U000e0100\u202e\x1b\x9b\u2028\u200d\t\r"
LITERAL = ":on: [red]x[/red] <b>y</b> \\u3164"
SCHEMA = object_schema(
    to={"type": "string"}, note={"type": "string"}, tags={"type": "array", "description": NAMED}
)
WRITE = replace(echo_tool(parameters=SCHEMA, is_destructive=True), description=NAMED)


def is_invisible(char: str) -> bool:
    return char != "\n" and visible(char) != char


@cache
def invisible() -> str:
    """Return the invisible characters: all assigned ones, and the ends of each unassigned range.

    `tests/test_text.py` tests `visible` itself.
    """
    points = map(chr, range(sys.maxunicode + 1))
    kinds = groupby(points, key=lambda char: unicodedata.category(char).replace("Co", "Cn"))
    runs = ((kind, [*run]) for kind, run in kinds if kind != "Cs")
    tried = (
        char for kind, run in runs for char in (run[:: len(run) - 1 or 1] if kind == "Cn" else run)
    )
    return "".join(filter(is_invisible, tried))


async def ask(gate: ConfirmGate) -> None:
    args = {"to": LITERAL + "x".join(invisible()), "note": LITERAL, "tags": ["\u3164x\u202e"]}
    await ToolDispatcher(ToolRegistry([WRITE]), catalog=ENGLISH).dispatch(
        WRITE.name, args, confirm=gate
    )


async def terminal() -> str:
    """Return the terminal's output for a question and for each field of an edit."""
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    prompts: list[str] = []

    class Lines:
        typed = iter(("e", "", "", NAMED, "", "n", ""))

        async def read(self, prompt: str) -> str:
            prompts.append(prompt)
            return next(self.typed)

        async def forget(self) -> bool:
            return False

    await ask(terminal_gate(Lines(), console, ENGLISH))
    return "".join([output.getvalue(), *prompts])


async def client() -> str:
    """Return the texts that a client of `lhkit mcp serve` shows."""
    session = BareSession(
        registry=ToolRegistry([WRITE]), assistant=Assistant(), today=date(2026, 6, 15)
    )
    serving, shown = McpServing(session, name="x", catalog=ENGLISH), []

    class Gate:
        async def confirm(self, request: Any) -> bool:
            question = serving._question(request)
            shown.append(question.message)
            for part in question.requested_schema["properties"].values():
                shown.append(f"{part['title']} {part.get('default', '')}")
            return False

    await ask(Gate())
    return "\n".join(shown)


async def truth() -> str:
    outcome = ToolCallOutcome(
        result=ToolOk({}), args={"note": LITERAL}, gate=GateOutcome.ACCEPTED, ran=True
    )
    call = ToolCallMessage(
        call=ToolCall(name=LITERAL + "x".join(invisible()), args={}), outcome=outcome
    )
    return truth_line([call], ENGLISH)


@pytest.mark.longer
@check_rows("door", [terminal, client, truth])
async def test_every_invisible_character_of_an_argument_is_an_escape(door: Any) -> None:
    assert set(NAMED) <= {*invisible()}
    shown = await door()
    assert [char for char in set(shown) if is_invisible(char)] == []
    assert LITERAL in shown
    assert "\\u3164x" in shown


async def test_summary_shows_what_the_arguments_are_to_the_last_letter() -> None:
    assert visible(pretty({"to": "a\u3164"})) != visible(pretty({"to": "a"}))
