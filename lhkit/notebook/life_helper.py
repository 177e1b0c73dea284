"""Life-helper in a panel: its tools, its store and its clock, put together."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from lhkit import app
from lhkit.chat.controller import Assistant
from lhkit.lifehelper.prompts import TRUNCATION_HINT, instructions, now_line
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.toolset import LifeHelper
from lhkit.lifehelper.world import ROW_KEYS, snapshot
from lhkit.locales import DEFAULT_LOCALE
from lhkit.models.base import ChatModel
from lhkit.notebook.panel import ChatPanel
from lhkit.notebook.toolset import Toolset
from lhkit.settings import Settings, load_settings
from lhkit.vocab.generation import Sampling


def life_helper_panel(
    model: ChatModel,
    path: Path | str | None = None,
    *,
    locale: str = DEFAULT_LOCALE,
    opt_in: bool = False,
    now: datetime | None = None,
    sampling: Sampling | None = None,
    settings: Settings | None = None,
) -> ChatPanel:
    """Return a panel for life-helper.

    Args:
        model: who answers.
        path: the SQLite file; None keeps everything in memory.
        locale: `ko` or `en`.
        opt_in: True skips the question before anything is sent.
        now: where the clock of the tools stands still; by default it is the wall clock.
        sampling: how the model decodes.
        settings: folders and clock; by default from the environment.

    Raises:
        StoreError: the file is no database of ours, or a newer one.
    """
    told = settings or load_settings()
    clock = told.now if now is None else lambda: now
    store = memory_store() if path is None else app.open_store(told, Path(path))
    return ChatPanel(
        model=model,
        toolset=lambda name: life_helper(store, clock, name, sampling or Sampling()),
        locale=locale,
        opt_in=opt_in,
        settings=told,
    )


def life_helper(
    store: Store, now: Callable[[], datetime], locale: str, sampling: Sampling
) -> Toolset:
    """Return life-helper's tools over `store`, in `locale`."""
    deps = LifeHelper(store=store, now=now, locale=locale)
    assistant = Assistant(
        instructions=instructions(locale),
        context=lambda message: now_line(now(), locale, message),
        deps=deps,
        sampling=sampling,
        truncation_hint=TRUNCATION_HINT,
    )
    return Toolset(
        registry=app.registry_of(locale),
        assistant=assistant,
        world=lambda: {"now": now().isoformat(timespec="seconds"), **snapshot(store)},
        row_keys=ROW_KEYS,
    )


def memory_store() -> Store:
    """Return an empty store in memory."""
    return StoreImage.prepare(app.protocols()).fresh()
