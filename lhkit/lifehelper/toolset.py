"""life-helper as a toolset: six tools, an assistant, and a store as state.

Confirmation cards show values on one line, so that a value cannot imitate another line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from lhkit.base.errors import StoreError
from lhkit.base.json_values import JSON
from lhkit.base.locales import Catalog
from lhkit.chat.assistant import Assistant
from lhkit.confirm.summary import Summarizer
from lhkit.conversation.responses import Sampling
from lhkit.lifehelper import tools
from lhkit.lifehelper.catalog import ProtocolCatalog, load_protocols
from lhkit.lifehelper.criteria import CRITERIA, chat_criterion
from lhkit.lifehelper.locales import life_helper_catalog
from lhkit.lifehelper.prompts import TRUNCATION_HINT, instructions, now_line
from lhkit.lifehelper.rules import State, find_broken_rules
from lhkit.lifehelper.schemas import tool_texts
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.tools import LifeHelper
from lhkit.lifehelper.world import ROW_KEYS, parse_world, seed, snapshot
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import ChatCall, Criteria

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
"""The success phrases of each write; the model does not read them."""

_NUMBERED = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class _Summaries:
    """The confirmation summaries of the two tools that write."""

    protocols: ProtocolCatalog

    def add_habit(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        texts = life_helper_catalog(catalog.locale)
        anchors = [
            texts.text(f"summary.{name}", text=text)
            for name in ("when", "after_what")
            if (text := _one_line(args.get(f"anchor_{name}", "")))
        ]
        return texts.text(
            "summary.add_habit",
            title=self._title(args["protocol_id"], catalog.locale),
            frame=texts.text(f"frame.{args['frame_level']}"),
            sentence=_one_line(args["framed_text"]),
            anchors=" / ".join(anchors) or "-",
        )

    def log_tracker_entry(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        texts = life_helper_catalog(catalog.locale)
        return texts.text(
            "summary.log_tracker_entry",
            habit=self._title(args["habit_id"], catalog.locale),
            date=args.get("date") or texts.text("summary.today"),
            value=texts.text(f"summary.{args['value']}"),
        )

    def _title(self, key: str, locale: str) -> str:
        """Return the title of a protocol or of a habit (`<protocol id>` or `<protocol id>-2`)."""
        protocol = self.protocols.get(key) or self.protocols.get(_NUMBERED.sub("", key))
        text = protocol.texts.get(locale) if protocol else None
        return text.title if text else _one_line(key)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def build_registry(catalog: ProtocolCatalog, locale: str) -> ToolRegistry:
    """Return the registry of the six tools; their handlers take a `LifeHelper` as `deps`.

    Args:
        catalog: source of the schema's categories and the summaries' titles.
        locale: the language of the descriptions that the model reads (`ko`, `en`).
    """
    summaries = _Summaries(catalog)
    summarizers: Mapping[str, Summarizer] = {
        "log_tracker_entry": summaries.log_tracker_entry,
        "add_habit": summaries.add_habit,
    }
    return ToolRegistry(
        ToolDefinition(
            name=name,
            description=text.description,
            parameters=text.parameters,
            handler=_HANDLERS[name],
            is_destructive=name in summarizers,
            summarize=summarizers.get(name),
            implied=text.implied,
            claims=_CLAIMS.get(name, {}),
        )
        for name, text in tool_texts(catalog.categories, locale).items()
    )


@cache
def registry_of(locale: str) -> ToolRegistry:
    """Return the registry over the shipped catalog, with descriptions in `locale`."""
    return build_registry(_protocols(), locale)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperSession:
    """The session of one conversation: a store, a clock and a language."""

    deps: LifeHelper
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def registry(self) -> ToolRegistry:
        """The six tools."""
        return registry_of(self.deps.locale)

    @property
    def assistant(self) -> Assistant:
        """The assistant: instructions, context line and dependencies of the tools."""
        deps = self.deps
        return Assistant(
            instructions=instructions(deps.locale),
            context=lambda message: now_line(deps.now(), deps.locale, message),
            deps=deps,
            sampling=self.sampling,
            truncation_hint=TRUNCATION_HINT,
            result_format="envelope",
        )

    @property
    def today(self) -> date:
        """The current date by the session's clock."""
        return self.deps.today()

    @property
    def store(self) -> Store:
        """The database with habits and tracker entries."""
        return self.deps.store

    def state(self) -> Mapping[str, JSON]:
        """Return habits and tracker entries as plain JSON."""
        return snapshot(self.store)

    def known_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return the existing ids by argument name."""
        habits = self.store.rows("SELECT id FROM habit ORDER BY id")
        return {"protocol_id": tuple(_protocols()), "habit_id": tuple(row["id"] for row in habits)}

    def row_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return the key fields of habits and tracker entries."""
        return ROW_KEYS

    def broken_rules(self, before: State, after: State) -> tuple[tuple[str, str], ...]:
        """Return (code, detail) of the rules that a change of state breaks."""
        return find_broken_rules(before, after, today=self.today)

    def in_locale(self, locale: str) -> "LifeHelperSession":
        """Return a session over the same store, in another language."""
        return replace(self, deps=replace(self.deps, locale=locale))

    def close(self) -> None:
        """Close the store; a store in memory is discarded."""
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperToolset:
    """The life-helper toolset. `sampling` sets the model's decoding parameters."""

    name: str = "life-helper"
    locales: tuple[str, ...] = ("en", "ko")
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def criteria(self) -> Criteria:
        """The texts of the acceptance criteria, by criterion and language."""
        return CRITERIA

    def criterion(self, calls: Sequence[ChatCall]) -> str:
        """Return the criterion that the expected calls of a chat fit best."""
        return chat_criterion(calls)

    def open(self, world: Mapping[str, Any], locale: str) -> LifeHelperSession:
        """Return a session with the initial state `world` and a fixed clock.

        Raises:
            UsageError: the initial state is invalid; the message names the field.
        """
        parsed = parse_world(world)
        with ExitStack() as on_error:
            store = on_error.enter_context(_image().fresh())
            seed(store, parsed)
            on_error.pop_all()
        deps = LifeHelper(store=store, now=lambda: parsed.now, locale=locale)
        return LifeHelperSession(deps=deps, sampling=self.sampling)

    def open_kept(
        self, file: Path | None, *, now: Callable[[], datetime], locale: str
    ) -> LifeHelperSession:
        """Return a session over the SQLite database `file`, or over a database in memory.

        Raises:
            StoreError: the file cannot be created, is not a life-helper database, or was written
                by a newer version.
        """
        store = _image().fresh() if file is None else _kept_store(file)
        deps = LifeHelper(store=store, now=now, locale=locale)
        return LifeHelperSession(deps=deps, sampling=self.sampling)


LIFE_HELPER = LifeHelperToolset()
"""The toolset that `--toolset life-helper` selects."""


def _kept_store(file: Path) -> Store:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{file} cannot be created ({error}): choose another file.") from error
    return Store.open(file, _protocols())


@cache
def _protocols() -> ProtocolCatalog:
    return load_protocols()


@cache
def _image() -> StoreImage:
    return StoreImage.prepare(_protocols())
