"""life-helper's panels: over a model, or with a scripted assistant to try the flow anywhere.

The assistant plays a script (`demo_script`); the tools, the gate and the store are the real ones.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path

from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.locales import DEFAULT_LOCALE
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.scripted import ScriptedModel
from lhkit.notebook.demo_script import demo_reply
from lhkit.notebook.panel import ChatPanel
from lhkit.responses import ModelEvent, ModelIdentity, Sampling, TextDelta
from lhkit.settings import Settings

PACE_S = 0.03
"""Between two pieces of text, so that one sees it stream: about 100 letters a second."""


def life_helper_panel(
    model: ChatModel,
    path: Path | str | None = None,
    *,
    locale: str = DEFAULT_LOCALE,
    opt_in: bool = False,
    now: datetime | None = None,
    sampling: Sampling | None = None,
    record: Path | str | None = None,
    settings: Settings | None = None,
) -> ChatPanel:
    """Return a panel for life-helper: `ChatPanel` with its toolset.

    Args:
        model: who answers.
        path: the SQLite file; None keeps everything in memory.
        locale: `ko` or `en`.
        opt_in: True skips the question before anything is sent.
        now: where the clock of the tools stands still; by default it is the wall clock.
        sampling: how the model decodes.
        record: where the chat is kept, as for `ChatPanel`.
        settings: folders and clock; by default from the environment.

    Raises:
        StoreError: the file is no database of ours, or a newer one.
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
    locale: str = DEFAULT_LOCALE,
    *,
    pace_s: float = PACE_S,
    now: datetime | None = None,
    record: Path | str | None = None,
    settings: Settings | None = None,
) -> ChatPanel:
    """Return life-helper's panel with a scripted assistant. Nothing leaves the kernel.

    Args:
        path: the SQLite file; None keeps everything in memory.
        locale: `ko` or `en`.
        pace_s: seconds between two pieces of text; 0 streams as fast as it goes.
        now: where the clock of the tools stands still; by default it is the wall clock.
        record: where the chat is kept, as for `ChatPanel`.
        settings: folders and clock; by default from the environment.

    Raises:
        StoreError: the file is no database of ours, or a newer one.
    """
    model = PacedModel(
        ScriptedModel(demo_reply, name="scripted-demo", chunk_chars=3), pace_s=pace_s
    )
    return life_helper_panel(
        model, path, locale=locale, opt_in=True, now=now, record=record, settings=settings
    )


class PacedModel:
    """A scripted model that takes its time."""

    def __init__(self, inner: ScriptedModel, *, pace_s: float) -> None:
        self._inner = inner
        self._pace_s = pace_s

    @property
    def identity(self) -> ModelIdentity:
        """Who answers: the script."""
        return self._inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the script's next reply, a pause before each piece of text."""
        async for event in self._inner.stream(request):
            if isinstance(event, TextDelta):
                await asyncio.sleep(self._pace_s)
            yield event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""
        await self._inner.aclose()
