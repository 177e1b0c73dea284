"""Laws of the gate over the panels: whatever is pressed, a tool writes only after its own yes."""

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lhkit.chat.assistant import Assistant
from lhkit.confirm.decision import Approve, Edit, Reject
from lhkit.conversation.messages import ToolCallMessage
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook.boards.ab import ABPanel
from lhkit.notebook.boards.review import Review
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.state import CardItem
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession, Session
from tests.notebook.conftest import FrontEnd

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SIDES = (1, 2)
STEPS = 30  # so often the loop goes round: a turn of a script takes fewer

BUTTONS = "vote stop begin unblind retry reason judge save open tool x"
PRESSES = st.tuples(
    st.just("press"),
    st.sampled_from(BUTTONS.split()),
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


VALUES = st.sampled_from(("1", "2", "", "-1", "x", "\u3164", '"a"'))
FIELDS = st.dictionaries(st.sampled_from(("a", "note", "other")), VALUES, max_size=3)
DECISIONS = st.one_of(
    st.sampled_from((True, False, "yes", Approve(), Reject(), Reject("no"))),
    st.dictionaries(
        st.sampled_from(("a", "note", "other")), st.sampled_from((1, -1, "\u3164")), max_size=2
    ).map(Edit),
)
CARD_ACTIONS = st.one_of(
    st.just(("send",)),
    st.just(("edit", {"a": "3"})),
    st.tuples(
        st.just("press"),
        st.sampled_from(
            ("run", "run", "edit", "edit", "check", "back", "cancel", "escape", "send")
        ),
        st.sampled_from((0, 0, 0, -1, 1, None)),  # the version of the card
        FIELDS,
    ),
    st.tuples(st.just("old"), st.sampled_from(("run", "check", "cancel"))),
    st.tuples(st.just("code"), st.booleans(), DECISIONS),
    st.just(("stop",)),
    st.just(("locale", "en")),
)


class Desk:
    """A panel whose model proposes a write in every turn, and the writes that ran."""

    def __init__(self, folder: str) -> None:
        self.ran: list[Mapping[str, Any]] = []
        parameters = object_schema(
            "a",
            a={"type": "integer", "minimum": 0},
            note={"type": "string", "minLength": 1},
        )
        tool = echo_tool("write", parameters=parameters, is_destructive=True, handler=self._write)
        script = [reply for n in range(40) for reply in (call("write", a=n, note="n"), say("."))]
        self.panel = ChatPanel(
            model=ScriptedModel(script),
            toolset=ToolRegistry([tool]),
            opt_in=True,
            settings=Settings(config_dir=Path(folder)),
        )
        self.page = FrontEnd(self.panel._screen)

    def _write(self, args: Mapping[str, Any], _deps: Any) -> ToolOk:
        self.ran.append(dict(args))
        return ToolOk({})

    def shown(self) -> Mapping[str, Any]:
        """Return the arguments that the page shows on the open card."""
        html = "".join(self.panel._screen._document()[0])
        *_, text = re.findall(r'<pre class="lhkit-summary">(.*?)</pre>', html, re.DOTALL)
        args: Mapping[str, Any] = json.loads(unescape(re.sub("<.*?>", "", text)))
        return args


@pytest.mark.slow
@example(actions=[("send",), ("edit", {"a": "3"}), ("press", "run", -1, {})])
@example(actions=[("send",), ("edit", {"a": "3"}), ("press", "run", 0, {})])
@example(actions=[("send",), ("edit", {"note": "\u3164"}), ("press", "run", 0, {})])
@given(actions=st.lists(CARD_ACTIONS, max_size=20))
@settings(deadline=None, max_examples=100)
async def test_panel_runs_what_the_card_showed_at_the_press_and_nothing_else(
    actions: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk, expected, old = Desk(folder), [], ["none"]
        panel, page = desk.panel, desk.page
        for action in actions:
            card = panel.state.open_card
            own = card.card if card is not None else "none"
            match action:
                case ("send",):
                    page.press("send", text="write")
                case ("edit", fields) if card is not None:
                    page.answer("edit")
                    page.answer("check", fields=fields)
                case ("press", how, offset, fields):
                    attempt = None if card is None or offset is None else card.attempts + offset
                    if card is not None and offset == 0 and how == "run" and card.edit is None:
                        expected.append(desk.shown())
                    page.press("answer", card=own, attempt=attempt, how=how, fields=fields)
                case ("old", how):
                    page.press("answer", card=old[-1], how=how)
                case ("code", is_own, decision):
                    panel.answer(own if is_own else old[-1], decision)
                    await rounds()
                    if card is not None and is_own and (decision is True or decision == Approve()):
                        expected.append(card.request.args)
                    elif card is not None and is_own and panel.state.open_card is None:
                        expected += [decision.arguments] if isinstance(decision, Edit) else []
                case (kind, *values):
                    page.press(kind, **({"value": values[0]} if values else {}))
            await rounds()
            if panel.state.open_card is None or panel.state.open_card.card != own:
                old.append(own)
        panel.close()
        await rounds()
        assert desk.ran == expected
        cards = [item for item in panel.state.items if isinstance(item, CardItem)]
        assert sum(item.outcome.is_allowed for item in cards if item.outcome) == len(expected)
        assert all(item.outcome is not None for item in cards)
        calls = [item for item in panel.state.items if isinstance(item, ToolCallMessage)]
        wrote = [each.outcome for each in calls if each.outcome and each.outcome.ran]
        assert [outcome.run_args or outcome.args for outcome in wrote] == expected
