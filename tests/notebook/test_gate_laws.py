"""Laws of the gate over the panels: whatever is pressed, a tool writes only after its own yes."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.chat.controller import Assistant
from lhkit.models.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook.ab import ABPanel
from lhkit.notebook.panel import ChatPanel
from lhkit.notebook.review import Review
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tool_results import ToolOk
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession, Session
from tests.notebook.conftest import FrontEnd

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.promise("notebook.gate_laws"),
]

SIDES = (1, 2)
STEPS = 30  # so often the loop goes round: a turn of a script takes fewer

PRESSES = st.tuples(
    st.just("press"),
    st.sampled_from(
        (
            "vote",
            "stop",
            "begin",
            "unblind",
            "retry",
            "reason",
            "judge",
            "save",
            "open",
            "tool",
            "x",
        )
    ),
    st.sampled_from(("left", "right", "tie", "run", "true", "1", "right:write", "")),
)
ANSWERS = st.tuples(
    st.just("answer"),
    st.sampled_from(SIDES),
    st.sampled_from(("run", "cancel", "escape", "RUN", "yes")),
    st.sampled_from(("its own", "the other's", "an old one's", "none's")),
)
ACTIONS = st.lists(st.one_of(st.just(("send",)), st.just(("send",)), PRESSES, ANSWERS), max_size=14)


class Notes(BareSession):
    """A session whose tool tells which number wrote."""

    def __init__(self, wrote: Counter[int]) -> None:
        def write(args: Mapping[str, Any], _deps: Any) -> ToolOk:
            wrote[args["a"]] += 1
            return ToolOk({})

        schema = object_schema("a", a={"type": "integer"})
        tool = echo_tool("write", parameters=schema, handler=write, is_destructive=True)
        super().__init__(
            registry=ToolRegistry([tool]), assistant=Assistant(), today=date(2026, 6, 15)
        )


class NotesToolset:
    """Opens such sessions."""

    def __init__(self) -> None:
        self.wrote: Counter[int] = Counter()

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        return Notes(self.wrote)


def writing(number: int) -> list[Reply]:
    """Return the replies of a model that wants to write in every turn, as `number`."""
    return [call("write", a=number), say("done")] * 40


async def rounds() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


def board_press(panel: Any, name: str, value: str, message: str = "") -> None:
    fields = {"message": message, "reason": "because", "tool": "write", "arg:a": "1"}
    content = {"type": "press", "press": name, "value": value, "fields": fields, "view": "page"}
    panel._board.take_message(content)


@pytest.mark.slow
@given(actions=ACTIONS)
@settings(deadline=None, max_examples=60)
async def test_ab_writes_exactly_once_per_accepted_card(
    actions: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tools = NotesToolset()
        panel = ABPanel(
            models=[ScriptedModel(writing(each), name=f"m{each}") for each in SIDES],
            toolset=tools,
            record=Path(folder) / "ab",
            opt_in=True,
            draw=lambda: False,
            settings=Settings(config_dir=Path(folder) / "config"),
        )
        allowed: Counter[int] = Counter()
        old: list[str] = []
        for action in actions:
            pages = [FrontEnd(chat.screen) for chat in panel._sides]
            cards = [page.screen.state.open_card for page in pages]
            match action:
                case ("send",):
                    board_press(panel, "send", "", message="write")
                case ("press", name, value):
                    board_press(panel, name, value)
                case ("answer", side, how, whose):
                    own, other = cards[side - 1], cards[2 - side]
                    chosen = {"its own": own, "the other's": other}.get(whose)
                    card = chosen.card if chosen else ([*old, "none"][-1])
                    pages[side - 1].press("answer", card=card, how=how)
                    if whose == "its own" and own is not None and how == "run":
                        allowed[side] += 1
            old += [each.card for each in cards if each is not None]
            await rounds()
        panel.close()
        await rounds()
        assert tools.wrote == allowed


@pytest.mark.slow
@given(actions=ACTIONS)
@settings(deadline=None, max_examples=30)
async def test_review_and_unanswered_chat_write_nothing(
    actions: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tools = NotesToolset()
        folder_of_chats = Path(folder) / "chats"
        config = Settings(config_dir=Path(folder) / "config")
        model = ScriptedModel(writing(1))
        panel = ChatPanel(
            model=model, toolset=tools, opt_in=True, record=folder_of_chats, settings=config
        )
        await panel.send("write", answers=[True])
        assert tools.wrote == {1: 1}
        review = Review(folder_of_chats, reviewer="kim", toolset=tools)
        for action in actions:
            match action:
                case ("press", name, value):
                    board_press(review, name, value)
                case ("answer", _, how, _):
                    FrontEnd(panel._screen).press("answer", card="none", how=how)
                    board_press(review, "judge", how)
                case _:
                    FrontEnd(panel._screen).press("send", text="write")
            await rounds()
        panel.close()
        await rounds()
        assert tools.wrote == {1: 1}
