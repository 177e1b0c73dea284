"""A panel with a fake front end, which sends a browser's messages."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.assistant import Assistant
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import Reply, ScriptedModel
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.screen import Screen
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession, Session, Toolset


class FrontEnd:
    """A page that shows a screen: it can press, and waits for what is shown."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        screen.take_message({"type": "ready", "view": "page"})

    def press(self, kind: str, **values: Any) -> None:
        """Send what a button sends; an answer is to what the open card shows."""
        card = self.screen.state.open_card
        if kind == "answer" and card is not None:
            values = {"attempt": card.attempts, **values}
        self.screen.take_message({"type": kind, **values})

    def answer(self, how: str, **more: Any) -> None:
        """Press a button of the open card."""
        card = self.screen.state.open_card
        assert card is not None
        self.press("answer", card=card.card, how=how, **more)

    def close(self) -> None:
        """Take the screen off the page."""
        self.screen.take_message({"type": "gone", "view": "page"})

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the loop run until something is so; fails after two seconds."""
        async with asyncio.timeout(2):
            while not is_so():  # noqa: ASYNC110 - what is waited for is the state itself
                await asyncio.sleep(0)

    async def until_asked(self) -> None:
        """Wait for a card."""
        await self.until(lambda: self.screen.state.open_card is not None)


REGISTRY = ToolRegistry([echo_tool("look"), echo_tool("write", is_destructive=True)])

MakePanel = Callable[..., ChatPanel]


@pytest.fixture
def purse() -> type[Toolset]:
    """Return a toolset whose state is a live object that its tool changes."""
    jars = [{"id": "j1", "coins": 3}]

    def spend(_args: Any, _deps: Any) -> ToolOk:
        jars[0]["coins"] = 2
        return ToolOk(jars[0])

    class Jars(BareSession):
        def state(self) -> Mapping[str, Any]:
            return {"jars": jars}

    class Purse:
        def open(self, world: Mapping[str, Any], locale: str) -> Session:
            registry = ToolRegistry([echo_tool("spend", handler=spend)])
            return Jars(registry=registry, assistant=Assistant(), today=date(2026, 6, 15))

    return Purse


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(config_dir=tmp_path / "config", data_dir=tmp_path / "data")


@pytest.fixture
def make_panel(settings: Settings) -> MakePanel:
    def made(script: ChatModel | Iterable[Reply], **options: Any) -> ChatPanel:
        model = script if hasattr(script, "stream") else ScriptedModel(script)
        given = {"toolset": REGISTRY, "opt_in": True, "settings": settings, "locale": "ko"}
        return ChatPanel(model=model, **{**given, **options})

    return made


@pytest.fixture
def front_end() -> Callable[[ChatPanel], FrontEnd]:
    return lambda panel: FrontEnd(panel._screen)


@pytest.fixture
def front_end_of() -> Callable[[Screen], FrontEnd]:
    return FrontEnd
