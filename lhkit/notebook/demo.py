"""life-helper's chat panel, and a demo of it with a scripted assistant and the real tools."""

import asyncio
from datetime import datetime
from pathlib import Path

from lhkit.base.locales import available_locales
from lhkit.conversation.responses import Sampling
from lhkit.lifehelper.locales import life_helper_catalog
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.notebook.demo_script import demo_reply
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.settings import Settings

PACE_S = 0.03
"""The pause between two pieces of text, in seconds, to show streaming."""


def life_helper_panel(
    model: ChatModel,
    path: Path | str | None = None,
    *,
    locale: str | None = None,
    opt_in: bool = False,
    now: datetime | None = None,
    sampling: Sampling | None = None,
    record: Path | str | None = None,
    settings: Settings | None = None,
) -> ChatPanel:
    """Return a `ChatPanel` with life-helper's toolset.

    Args:
        model: the model.
        path: the SQLite file; None keeps the data in memory.
        locale: `ko` or `en`; by default the language of the user.
        opt_in: True skips the question for consent.
        now: a fixed time for the tools; by default the wall clock.
        sampling: the sampling parameters of the model.
        record: the folder for the record of the chat, as for `ChatPanel`.
        settings: folders and clock; by default from the environment.

    Raises:
        StoreError: the file is not a life-helper database, or was written by a newer version.
    """
    return ChatPanel(
        model=model,
        toolset=LifeHelperToolset(sampling=sampling or Sampling()),
        file=path,
        now=None if now is None else lambda: now,
        locale=locale,
        opt_in=opt_in,
        record=record,
        settings=settings,
    )


def demo_panel(
    path: Path | str | None = None,
    locale: str | None = None,
    *,
    pace_s: float = PACE_S,
    now: datetime | None = None,
    record: Path | str | None = None,
    settings: Settings | None = None,
) -> ChatPanel:
    """Return life-helper's panel with a scripted assistant. Nothing leaves the kernel.

    Args:
        path: the SQLite file; None keeps the data in memory.
        locale: `ko` or `en`; by default the language of the user.
        pace_s: the pause between two pieces of text, in seconds; 0 for none.
        now: a fixed time for the tools; by default the wall clock.
        record: the folder for the record of the chat, as for `ChatPanel`.
        settings: folders and clock; by default from the environment.

    Raises:
        StoreError: the file is not a life-helper database, or was written by a newer version.
    """
    model = ScriptedModel(
        demo_reply,
        name="scripted-demo",
        chunk_chars=3,
        pause=lambda: asyncio.sleep(pace_s),
    )
    return ChatPanel(
        model=model,
        toolset=LifeHelperToolset(sampling=Sampling()),
        file=path,
        now=None if now is None else lambda: now,
        locale=locale,
        opt_in=True,
        record=record,
        examples={
            name: [
                life_helper_catalog(name).text(f"script.example_{number}") for number in (1, 2, 3)
            ]
            for name in available_locales()
        },
        settings=settings,
    )
