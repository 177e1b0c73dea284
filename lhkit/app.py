"""The composition root: the one place where concrete parts are wired together.

Holds no logic of its own. Everything it needs from outside comes in as `Settings`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from lhkit import embedded
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate
from lhkit.embedded import Reports
from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.scenario import Scenario
from lhkit.lifehelper.shipped import scenario_folder, scenario_paths
from lhkit.lifehelper.toolset import registry_of
from lhkit.locales import load_catalog
from lhkit.models import gemma, served
from lhkit.models.base import ChatModel
from lhkit.models.dialects.base import Constraint, ToolSpec
from lhkit.models.pool import connect_pool
from lhkit.models.request import OPENAI
from lhkit.models.transport import Endpoint, require_address
from lhkit.models.weights_folder import WeightsReport, ignore_progress
from lhkit.models.weights_hash import weights_sha256
from lhkit.responses import ModelIdentity
from lhkit.settings import LLAMA_CPP, VLLM, Runtime, Settings
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import DEFAULT, Session, assistant_of

EMBEDDED = gemma.EMBEDDED
embedded_name = gemma.embedded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model to talk to: an embedded one by name, or any served one by address.

    `beside` are the addresses of more servers of the same model (see `connect_pool`).
    """

    name: str | None = None
    base_url: str | None = None
    beside: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    dialect: str = "json"
    constraint: Constraint = "off"
    tools: Sequence[ToolSpec] = ()  # that `constraint` has to fit: those of the conversations

    @property
    def is_embedded(self) -> bool:
        """True if lhkit has to find or start the server itself."""
        return self.base_url is None


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
    require_choice(choice, settings.runtime)
    async with _served(choice, settings, reports or Reports()) as endpoint:
        if choice.beside:
            beside = [replace(endpoint, base_url=each) for each in choice.beside]
            async with connect_pool([endpoint, *beside]) as pool:
                yield pool
            return
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
    running = await embedded.running_server(name, settings)
    if running is not None:
        yield _embedded_endpoint(running.base_url, choice)
        return
    is_parsing = choice.dialect == OPENAI
    server = await embedded.prepare_server(settings, reports, name=name, server_parser=is_parsing)
    async with server:
        await embedded.require_same_weights(server, settings)
        yield _embedded_endpoint(server.base_url, choice)


def require_choice(choice: ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse what could be known to be wrong before anything is fetched, started or asked.

    `runtime` is what would serve an embedded model.

    Raises:
        UsageError: no such embedded model, dialect or constraint, an address that is none, or
            what the runtime cannot do.
    """
    if choice.base_url is None:
        embedded_name(choice.name)
        _require_of(runtime, choice)
    else:
        for each in (choice.base_url, *choice.beside):
            require_address(each)
    served.require_constraint(choice.dialect, choice.constraint, choice.tools)


def _require_of(runtime: Runtime, choice: ModelChoice) -> None:
    if runtime != LLAMA_CPP:
        return
    if choice.constraint != "off":
        raise UsageError(
            "lhkit does not constrain what llama.cpp's server writes: give --constrain off, or "
            f"--runtime {VLLM}"
        )
    if choice.dialect == OPENAI:
        raise UsageError(
            f"--dialect {OPENAI} needs a server that parses calls: give another, or --runtime "
            f"{VLLM}"
        )


async def expected_identity(
    choice: ModelChoice, settings: Settings, report: WeightsReport = ignore_progress
) -> ModelIdentity | None:
    """Return who would answer for `choice` if a server were started for it now.

    None where only asking tells: at an address, where a server is running already, where the
    weights are not made yet, or of a llama.cpp, whose build only the server names. `report` is told
    how far the reading of the weights is.

    Raises:
        UsageError: no such embedded model.
        AdapterError: there is no adapter.
        WeightsError: the weights cannot be read.
    """
    if not choice.is_embedded or settings.runtime == LLAMA_CPP:
        return None
    name = embedded_name(choice.name)
    if await embedded.running_server(name, settings) is not None:
        return None
    folder = embedded.embedded_folder(name, settings)
    if not await asyncio.to_thread(folder.is_dir):
        return None
    return gemma.expected_identity(
        name,
        folder,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
        dialect=choice.dialect,
        constraint=choice.constraint,
        dtype=gemma.served_dtype(settings.dtype),
    )


def _embedded_endpoint(base_url: str, choice: ModelChoice) -> Endpoint:
    return Endpoint(
        base_url=base_url,
        model=embedded_name(choice.name),
        dialect=choice.dialect,
        constraint=choice.constraint,
    )


def open_chat(
    model: ChatModel, session: Session, confirm: ConfirmGate | None, locale: str
) -> ChatController:
    """Return a conversation over a toolset's session, with texts for the user in `locale`."""
    catalog = load_catalog(locale)
    return ChatController(
        model=model,
        dispatcher=ToolDispatcher(session.registry, catalog=catalog),
        assistant=assistant_of(session),
        confirm=confirm,
        catalog=catalog,
    )


def shipped_scenarios(*ids: str) -> tuple[Scenario, ...]:
    """Return the shipped scenarios with these ids, in this order.

    Raises:
        UsageError: there is no such scenario; the message says where they stand.
    """
    known = {scenario.id: scenario for scenario in load_scenarios(scenario_paths("all"))}
    if missing := [each for each in ids if each not in known]:
        raise UsageError(f"no scenario {', '.join(missing)}: all stand in {scenario_folder()}")
    return tuple(known[each] for each in ids)


def require_toolset(scenarios: Iterable[Scenario], toolset: str) -> None:
    """Refuse scenarios of other tools that would be played with life-helper's, and fail there.

    Raises:
        ScenarioError: `toolset` is the default one, and an expected call is of no tool of its.
    """
    if toolset != DEFAULT:
        return
    known = set(registry_of("ko"))
    for each in scenarios:
        for place, tool in each.unavailable_calls(known):
            raise ScenarioError(
                f"{place}: life-helper has no tool {tool!r}: for other tools give their --toolset"
            )
