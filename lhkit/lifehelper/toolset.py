"""life-helper as a toolset: six tools, an assistant, and a store that is a world."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.confirm.summary import Summarizer
from lhkit.errors import StoreError
from lhkit.json_values import JSON
from lhkit.lifehelper import tools
from lhkit.lifehelper.catalog import ProtocolCatalog, load_protocols
from lhkit.lifehelper.prompts import TRUNCATION_HINT, instructions, now_line
from lhkit.lifehelper.rules import State, broken_rules
from lhkit.lifehelper.schemas import tool_texts
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.summaries import Summaries
from lhkit.lifehelper.tools import LifeHelper
from lhkit.lifehelper.world import ROW_KEYS, parse_world, seed, snapshot
from lhkit.responses import Sampling
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry

__all__ = [
    "LIFE_HELPER",
    "LifeHelper",
    "LifeHelperSession",
    "LifeHelperToolset",
    "build_registry",
    "registry_of",
]

_HANDLERS: Mapping[str, Handler] = {
    "search_catalog": tools.search_catalog,
    "query_protocol": tools.query_protocol,
    "query_tracker": tools.query_tracker,
    "log_tracker_entry": tools.log_tracker_entry,
    "list_habits": tools.list_all_habits,
    "add_habit": tools.add_habit,
}


_CLAIMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "log_tracker_entry": {
        "ko": ("기록했", "저장했", "체크했", "남겼", "기록을 마쳤"),
        "en": ("logged", "entry has been saved", "saved", "recorded", "checked off"),
    },
    "add_habit": {
        "ko": ("추가했", "등록했", "넣었", "만들었"),
        "en": ("added", "created", "put on your list"),  # habits are called "Set up …"
    },
}
"""The words in which each write reports its success; no model reads them."""


def build_registry(catalog: ProtocolCatalog, locale: str) -> ToolRegistry:
    """Return the registry of the six tools; their handlers take a `LifeHelper` as `deps`.

    Args:
        catalog: gives the categories of the schema and the titles of the summaries.
        locale: the language of the descriptions that the model reads (`ko`, `en`).
    """
    summaries = Summaries(catalog)
    writing: Mapping[str, Summarizer] = {
        "log_tracker_entry": summaries.log_tracker_entry,
        "add_habit": summaries.add_habit,
    }
    return ToolRegistry(
        ToolDefinition(
            name=name,
            description=text.description,
            parameters=text.parameters,
            handler=_HANDLERS[name],
            is_destructive=name in writing,
            summarize=writing.get(name),
            implied=text.implied,
            claims=_CLAIMS.get(name, {}),
        )
        for name, text in tool_texts(catalog.categories, locale).items()
    )


@cache
def registry_of(locale: str) -> ToolRegistry:
    """Return the six tools over the shipped catalog, described in `locale`."""
    return build_registry(_protocols(), locale)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperSession:
    """One conversation's life-helper: a store, a clock, a language."""

    deps: LifeHelper
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def registry(self) -> ToolRegistry:
        """The six tools."""
        return registry_of(self.deps.locale)

    @property
    def assistant(self) -> Assistant:
        """Who the model plays, with the store that the tools work on."""
        deps = self.deps
        return Assistant(
            instructions=instructions(deps.locale),
            context=lambda message: now_line(deps.now(), deps.locale, message),
            deps=deps,
            sampling=self.sampling,
            truncation_hint=TRUNCATION_HINT,
        )

    @property
    def today(self) -> date:
        """The day by the clock of the tools."""
        return self.deps.today()

    @property
    def store(self) -> Store:
        """Where habits and entries are."""
        return self.deps.store

    def state(self) -> Mapping[str, JSON]:
        """Return habits and tracker entries as plain JSON."""
        return snapshot(self.store)

    def known_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return the ids that exist, by the argument that names them."""
        habits = self.store.rows("SELECT id FROM habit ORDER BY id")
        return {"protocol_id": tuple(_protocols()), "habit_id": tuple(row["id"] for row in habits)}

    def row_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return the fields that tell habits, and entries, apart."""
        return ROW_KEYS

    def broken_rules(self, before: State, after: State) -> tuple[tuple[str, str], ...]:
        """Return the rules of life-helper that a change of state breaks."""
        return broken_rules(before, after, today=self.today)

    def in_locale(self, locale: str) -> "LifeHelperSession":
        """Return a session over the same store, in another language."""
        return replace(self, deps=replace(self.deps, locale=locale))

    def close(self) -> None:
        """Close the store; one in memory is forgotten."""
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperToolset:
    """Opens a fresh life-helper for each scenario. `sampling` is how the model decodes."""

    name: str = "life-helper"
    locales: tuple[str, ...] = ("en", "ko")
    sampling: Sampling = field(default_factory=Sampling)

    def open(self, world: Mapping[str, Any], locale: str) -> LifeHelperSession:
        """Return a session in the initial state `world`; its clock stands still.

        Raises:
            UsageError: the world is not well-formed; the message names the field.
        """
        parsed = parse_world(world)
        store = _image().fresh()
        seed(store, parsed)
        deps = LifeHelper(store=store, now=lambda: parsed.now, locale=locale)
        return LifeHelperSession(deps=deps, sampling=self.sampling)

    def open_kept(
        self, file: Path | None, *, now: Callable[[], datetime], locale: str
    ) -> LifeHelperSession:
        """Return a session over the SQLite database `file`, or over one in memory.

        Raises:
            StoreError: the file cannot be made, is no database of ours, or a newer one.
        """
        store = _image().fresh() if file is None else _kept_store(file)
        deps = LifeHelper(store=store, now=now, locale=locale)
        return LifeHelperSession(deps=deps, sampling=self.sampling)


LIFE_HELPER = LifeHelperToolset()
"""What `--toolset life-helper` is."""


def _kept_store(file: Path) -> Store:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{file} cannot be made ({error}): choose another file.") from error
    return Store.open(file, _protocols())


@cache
def _protocols() -> ProtocolCatalog:
    return load_protocols()


@cache
def _image() -> StoreImage:
    return StoreImage.prepare(_protocols())
