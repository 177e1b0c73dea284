"""The composition root: the one place where concrete parts are wired together.

Holds no logic of its own. Everything it needs from outside comes in as `Settings`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from lhkit.chat.controller import Assistant, ChatController
from lhkit.confirm.gate import ConfirmGate
from lhkit.errors import StoreError, UsageError
from lhkit.harness.scenarios.scenario import load_scenarios
from lhkit.harness.scenarios.script import Scenario
from lhkit.lifehelper.catalog import ProtocolCatalog, load_protocols
from lhkit.lifehelper.prompts import TRUNCATION_HINT, instructions, now_line
from lhkit.lifehelper.state_rules import State, broken_rules
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.toolset import LifeHelper, build_registry
from lhkit.lifehelper.world import ROW_KEYS, parse_world, seed, snapshot
from lhkit.locales import load_catalog
from lhkit.models import embedded, served, weights
from lhkit.models.base import ChatModel
from lhkit.models.connection import Endpoint, require_address
from lhkit.models.dialects.base import Constraint, ToolSpec
from lhkit.models.request_body import OPENAI
from lhkit.models.vllm_server import Report as ServerReport
from lhkit.models.vllm_server import VllmServer
from lhkit.models.vllm_server import silent as silent_server
from lhkit.models.weights_hash import require_unchanged, weights_sha256
from lhkit.models.weights_source import Report as WeightsReport
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning import embedded_models
from lhkit.vocab.generation import ModelIdentity, Sampling
from lhkit.vocab.json_values import JSON

EMBEDDED = embedded.EMBEDDED
embedded_name = embedded.embedded_name
embedded_folder = embedded_models.embedded_folder
embedded_server = embedded_models.embedded_server
running_server = embedded_models.running_server
constraint_of = served.constraint_of

SPLITS = ("dev", "test")
"""`dev` is for looking at while building, `test` for the figure at the end."""

DATABASE = "life-helper.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model to talk to: an embedded one by name, or any served one by address."""

    name: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    dialect: str = "json"
    constraint: Constraint = "off"
    tools: Sequence[ToolSpec] = ()  # that `constraint` has to fit: those of the conversations

    @property
    def is_embedded(self) -> bool:
        """True if lhkit has to find or start the server itself."""
        return self.base_url is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Who is told how weights and server are coming along."""

    weights: WeightsReport = weights.silent
    server: ServerReport = silent_server


@asynccontextmanager
async def open_model(
    choice: ModelChoice, settings: Settings, reports: Reports | None = None
) -> AsyncIterator[ChatModel]:
    """Yield a connected model; a server that had to be started ends with the block.

    Raises:
        UsageError: no such embedded model, an address that is none, or tools that cannot have
            the constraint.
        SetupError: weights or server cannot be had.
        ModelError: the server at the address does not answer as it should.
    """
    require_choice(choice)
    async with _served(choice, settings, reports or Reports()) as endpoint:
        model = await served.connect(endpoint)
        try:
            yield model
        finally:
            await model.aclose()


@asynccontextmanager
async def _served(
    choice: ModelChoice, settings: Settings, reports: Reports
) -> AsyncIterator[Endpoint]:
    if choice.base_url is not None:
        yield Endpoint(
            base_url=choice.base_url,
            model=choice.name,
            api_key=choice.api_key,
            dialect=choice.dialect,
            constraint=choice.constraint,
        )
        return
    name = embedded_name(choice.name)
    running = await running_server(name, settings)
    if running is not None:
        yield _embedded_endpoint(running.base_url, choice)
        return
    is_parsing = choice.dialect == OPENAI
    plan = await embedded_server(settings, reports.weights, name=name, server_parser=is_parsing)
    async with VllmServer(plan, report=reports.server) as server:
        await require_unchanged(plan, settings.cache_dir)
        yield _embedded_endpoint(server.base_url, choice)


def require_choice(choice: ModelChoice) -> None:
    """Refuse what could be known to be wrong before anything is fetched, started or asked.

    Raises:
        UsageError: no such embedded model, dialect or constraint, or an address that is none.
    """
    if choice.base_url is None:
        embedded_name(choice.name)
    else:
        require_address(choice.base_url)
    served.require_constraint(choice.dialect, choice.constraint, choice.tools)


async def expected_identity(
    choice: ModelChoice, settings: Settings, report: WeightsReport = weights.silent
) -> ModelIdentity | None:
    """Return who would answer for `choice` if a server were started for it now.

    None where only asking tells: at an address, where a server is running already, or where the
    weights are not made yet. `report` is told how far the reading of the weights is.

    Raises:
        UsageError: no such embedded model.
        TuningError: there is no adapter.
        WeightsError: the weights cannot be read.
    """
    if not choice.is_embedded:
        return None
    name = embedded_name(choice.name)
    if await running_server(name, settings) is not None:
        return None
    folder = embedded_folder(name, settings)
    if not await asyncio.to_thread(folder.is_dir):
        return None
    return embedded.expected_identity(
        name,
        folder,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
        dialect=choice.dialect,
        constraint=choice.constraint,
    )


def _embedded_endpoint(base_url: str, choice: ModelChoice) -> Endpoint:
    return Endpoint(
        base_url=base_url,
        model=embedded_name(choice.name),
        dialect=choice.dialect,
        constraint=choice.constraint,
    )


def open_chat(
    model: ChatModel, store: Store, confirm: ConfirmGate | None, settings: Settings
) -> ChatController:
    """Return a life-helper conversation over `store`."""
    deps = LifeHelper(store=store, now=settings.now, locale=settings.locale)
    catalog = load_catalog(settings.locale)
    registry = registry_of(settings.locale)
    return ChatController(
        model=model,
        dispatcher=ToolDispatcher(registry, catalog=catalog),
        assistant=_assistant(deps, settings.now, Sampling()),
        confirm=confirm,
        catalog=catalog,
    )


def open_store(settings: Settings, path: Path | None = None) -> Store:
    """Open the chat's database, made if it is not there.

    Raises:
        StoreError: the file cannot be made, is no database of ours, or a newer one.
    """
    target = path or settings.data_dir / DATABASE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{target} cannot be made ({error}): choose another file.") from error
    return Store.open(target, protocols())


def scenario_folder() -> Path:
    """Return where the shipped scenarios lie: in the package, or beside it in a checkout.

    Inside, each split has a folder of its own (`scenario_paths`).
    """
    package = Path(__file__).parent
    shipped = package / "datasets" / "ac"
    return shipped if shipped.is_dir() else package.parent / "datasets" / "ac"


def scenario_paths(split: str) -> tuple[Path, ...]:
    """Return where the shipped scenarios of a split lie: `dev`, `test` or `all`.

    Raises:
        UsageError: there is no such split.
    """
    if split not in (*SPLITS, "all"):
        raise UsageError(f"no split {split!r}: choose one of {', '.join(SPLITS)}, all")
    folder = scenario_folder()
    return (folder,) if split == "all" else (folder / split,)


def shipped_scenarios(*ids: str) -> tuple[Scenario, ...]:
    """Return the shipped scenarios with these ids, in this order.

    Raises:
        UsageError: there is no such scenario; the message says where they stand.
    """
    known = {scenario.id: scenario for scenario in load_scenarios(scenario_paths("all"))}
    if missing := [each for each in ids if each not in known]:
        raise UsageError(f"no scenario {', '.join(missing)}: all stand in {scenario_folder()}")
    return tuple(known[each] for each in ids)


@cache
def protocols() -> ProtocolCatalog:
    """Return the shipped catalog, read once."""
    return load_protocols()


@cache
def registry_of(locale: str) -> ToolRegistry:
    """Return the six tools, described in `locale`."""
    return build_registry(protocols(), locale)


def _assistant(deps: LifeHelper, now: Callable[[], datetime], sampling: Sampling) -> Assistant:
    return Assistant(
        instructions=instructions(deps.locale),
        context=lambda message: now_line(now(), deps.locale, message),
        deps=deps,
        sampling=sampling,
        truncation_hint=TRUNCATION_HINT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperSession:
    """One scenario's own world: a store nobody else sees, and a clock that stands still."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    store: Store

    def state(self) -> Mapping[str, JSON]:
        """Return habits and tracker entries as plain JSON."""
        return snapshot(self.store)

    def known_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return the ids that exist, by the argument that names them."""
        habits = self.store.rows("SELECT id FROM habit ORDER BY id")
        return {"protocol_id": tuple(protocols()), "habit_id": tuple(row["id"] for row in habits)}

    def row_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return the fields that tell habits, and entries, apart."""
        return ROW_KEYS

    def broken_rules(self, before: State, after: State) -> tuple[tuple[str, str], ...]:
        """Return the rules of life-helper that a change of state breaks."""
        return broken_rules(before, after, today=self.today)

    def close(self) -> None:
        """Forget the store."""
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeHelperEnvironment:
    """Opens a fresh life-helper for each scenario.

    `sampling` is how the model decodes; `instructions` replace the assistant's own, by locale.
    """

    sampling: Sampling = field(default_factory=Sampling)
    instructions: Mapping[str, str] = field(default_factory=dict)

    def open(self, world: Mapping[str, Any], locale: str) -> LifeHelperSession:
        """Return a session in the initial state `world`.

        Raises:
            UsageError: the world is not well-formed; the message names the field.
        """
        parsed = parse_world(world)
        store = _image().fresh()
        seed(store, parsed)
        deps = LifeHelper(store=store, now=lambda: parsed.now, locale=locale)
        assistant = _assistant(deps, deps.now, self.sampling)
        own = self.instructions.get(locale, assistant.instructions)
        return LifeHelperSession(
            registry=registry_of(locale),
            assistant=replace(assistant, instructions=own),
            today=parsed.now.date(),
            store=store,
        )


@cache
def _image() -> StoreImage:
    return StoreImage.prepare(protocols())
