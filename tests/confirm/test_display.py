"""Arguments where a person decides: every invisible character is an escape, nothing is markup."""

import io
import sys
import unicodedata
from dataclasses import replace
from datetime import date
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

pytestmark = pytest.mark.anyio

ENGLISH = load_catalog("en")
POINTS = [
    char
    for char in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(char) not in ("Cs", "Co") or char in "\ue000\U0010fffd"
]
INVISIBLE = {char for char in POINTS if char != "\n" and visible(char) != char}
NAMED = "\u3164\uffa0\u115f\u2800\xa0\u200b\ufe0f\U000e0100\u202e\x1b\x9b\u2028\u200d\t\r"
LITERAL = ":on: [red]x[/red] <b>y</b> \\u3164"
TEXT = LITERAL + "x".join(sorted(INVISIBLE))
ARGS = {"to": TEXT, "note": LITERAL, "tags": ["\u3164x\u202e"]}
SCHEMA = object_schema(
    to={"type": "string"}, note={"type": "string"}, tags={"type": "array", "description": NAMED}
)
WRITE = replace(echo_tool(parameters=SCHEMA, is_destructive=True), description=NAMED)


async def ask(gate: ConfirmGate) -> None:
    await ToolDispatcher(ToolRegistry([WRITE]), catalog=ENGLISH).dispatch(
        WRITE.name, ARGS, confirm=gate
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
    call = ToolCallMessage(call=ToolCall(name=TEXT, args={}), outcome=outcome)
    return truth_line([call], ENGLISH)


@pytest.mark.parametrize("door", [terminal, client, truth])
async def test_every_invisible_character_of_an_argument_is_an_escape(door: Any) -> None:
    assert set(NAMED) <= INVISIBLE
    shown = await door()
    assert not set(shown) & INVISIBLE
    assert LITERAL in shown
    assert "\\u3164x" in shown


async def test_summary_shows_what_the_arguments_are_to_the_last_letter() -> None:
    assert visible(pretty({"to": "a\u3164"})) != visible(pretty({"to": "a"}))
