"""Composition root: open models and chats from settings and options.

Only `shipped_scenarios` and `require_toolset` use life-helper; the rest works with any toolset.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lhkit import embedded
from lhkit.base.errors import ScenarioError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.redaction import masked_repr
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate
from lhkit.conversation.responses import ModelIdentity
from lhkit.embedded import Reports
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scoring.success_claims import guess_false_claim
from lhkit.lifehelper.shipped import scenario_folder, scenario_paths
from lhkit.lifehelper.toolset import registry_of
from lhkit.models.address import require_address
from lhkit.models.base import ChatModel
from lhkit.models.client import served
from lhkit.models.client.chat_template import require_template
from lhkit.models.client.request import OPENAI
from lhkit.models.client.transport import Endpoint
from lhkit.models.decoding import Constraint
from lhkit.models.dialects.base import ToolSpec
from lhkit.models.families import default_dialect
from lhkit.models.runtimes import LLAMA_CPP, VLLM, Runtime
from lhkit.models.serving import gemma
from lhkit.models.weights.weights_folder import WeightsReport, ignore_progress
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings
from lhkit.tools.dispatcher import StateWatch, ToolDispatcher
from lhkit.toolset import DEFAULT, Session, assistant_of, watch_state

EMBEDDED = gemma.EMBEDDED
embedded_name = gemma.embedded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A model: an embedded one by name, or one of a server by address.

    Attributes:
        name: of an embedded model, or as the server names it; None is the default.
        base_url: address of the server; None for an embedded model.
        api_key: of the server.
        dialect: format of tool calls; None takes that of the model's family.
        chat_template: file or folder of the model's chat template.
        constraint: of decoding.
        tools: those that `constraint` has to support.
    """

    name: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    dialect: str | None = None
    chat_template: Path | None = None
    constraint: Constraint = "off"
    tools: Sequence[ToolSpec] = ()

    def __repr__(self) -> str:
        """Show the choice without keys."""
        return masked_repr(self, "base_url")

    @property
    def is_embedded(self) -> bool:
        """True if lhkit finds or starts the server itself."""
        return self.base_url is None

    @property
    def known_dialect(self) -> str | None:
        """The given dialect, or that of the model by its name; None if only a server knows."""
        return self.dialect or default_dialect(self.name, is_embedded=self.is_embedded)


@asynccontextmanager
async def open_model(
    choice: ModelChoice, settings: Settings, reports: Reports | None = None
) -> AsyncIterator[ChatModel]:
    """Yield a connected model; a server that was started for it stops with the block.

    Raises:
        UsageError: the embedded model or address is invalid, or the tools do not support the
            constraint.
        SetupError: the weights cannot be prepared or the server does not start.
        ModelError: the server at the address fails.
    """
    require_choice(choice, settings.runtime)
    async with _open_endpoint(choice, settings, reports or Reports()) as endpoint:
        model = await served.connect(endpoint)
        try:
            _require_late(choice, model.identity)
            yield model
        finally:
            await model.aclose()


@asynccontextmanager
async def _open_endpoint(
    choice: ModelChoice, settings: Settings, reports: Reports
) -> AsyncIterator[Endpoint]:
    if choice.base_url is not None:
        yield Endpoint(
            base_url=choice.base_url,
            model=choice.name,
            api_key=choice.api_key,
            dialect=choice.dialect,
            chat_template=choice.chat_template,
            constraint=choice.constraint,
        )
        return
    name = embedded_name(choice.name)
    running = await embedded.running_server(name, settings)
    if running is not None:
        yield _embedded_endpoint(running.base_url, choice, running.dtype)
        return
    is_parsing = choice.dialect == OPENAI
    server = await embedded.prepare_server(settings, reports, name=name, server_parser=is_parsing)
    async with server:
        await embedded.require_same_weights(server, settings)
        dtype = await asyncio.to_thread(server.settings.started_dtype)
        yield _embedded_endpoint(server.base_url, choice, dtype)


def require_choice(choice: ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse an invalid choice before anything is downloaded, started or requested.

    Args:
        choice: the model.
        runtime: serves an embedded model.

    Raises:
        UsageError: the embedded model, dialect, constraint or address is invalid, or the runtime
            does not support it.
    """
    if choice.base_url is None:
        embedded_name(choice.name)
        if runtime == LLAMA_CPP:
            _require_for_llama_cpp(choice)
    else:
        require_address(choice.base_url)
    served.require_constraint(choice.known_dialect, choice.constraint, choice.tools)
    if choice.chat_template is not None:
        dialect = choice.known_dialect if choice.is_embedded else choice.dialect
        require_template(choice.chat_template, dialect)


def _require_late(choice: ModelChoice, identity: ModelIdentity) -> None:
    """Check the constraint with a dialect that only the server knew."""
    if choice.known_dialect != identity.dialect:
        served.require_constraint(identity.dialect, choice.constraint, choice.tools)


def _require_for_llama_cpp(choice: ModelChoice) -> None:
    if choice.constraint != "off":
        raise UsageError(
            "lhkit does not constrain decoding of llama.cpp's server: give --constrain off, or "
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
    """Return the identity of a model whose server would have to be started.

    Args:
        choice: the model.
        settings: with the folder of the weights and the runtime.
        report: called with the progress of reading the weights.

    Returns:
        None if only a server knows: at an address, if one is running, if the weights are not
        prepared yet, or with llama.cpp.

    Raises:
        UsageError: the embedded model does not exist.
        AdapterError: the adapter is missing.
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
        dialect=choice.known_dialect or "json",
        constraint=choice.constraint,
        dtype=gemma.served_dtype(settings.dtype),
    )


def _embedded_endpoint(base_url: str, choice: ModelChoice, dtype: str) -> Endpoint:
    return Endpoint(
        base_url=base_url,
        model=embedded_name(choice.name),
        dialect=choice.known_dialect,
        chat_template=choice.chat_template,
        constraint=choice.constraint,
        dtype=dtype,
    )


def open_chat(
    model: ChatModel,
    session: Session,
    confirm: ConfirmGate | None,
    locale: str,
    watch: StateWatch | None = None,
    *,
    logprobs: bool = False,
) -> ChatController:
    """Return a chat with the tools of a session, with texts for the user in `locale`.

    `watch` compares the session's state before and after each call, by default `watch_state`. With
    `logprobs` calls have log-probabilities, where the server reports them.
    """
    catalog = load_catalog(locale)
    return ChatController(
        model=model,
        dispatcher=ToolDispatcher(session.registry, catalog=catalog, today=lambda: session.today),
        assistant=assistant_of(session),
        confirm=confirm,
        catalog=catalog,
        watch=watch or watch_state(session),
        guess=guess_false_claim(session.registry),
        logprobs=logprobs,
    )


def shipped_scenarios(*ids: str) -> tuple[Scenario, ...]:
    """Return the shipped scenarios with these ids, in this order.

    Raises:
        UsageError: a scenario does not exist; the message names the folder.
    """
    known = {scenario.id: scenario for scenario in load_scenarios(scenario_paths("all"))}
    if missing := [id_ for id_ in ids if id_ not in known]:
        raise UsageError(f"no scenario {', '.join(missing)}: all are in {scenario_folder()}")
    return tuple(known[id_] for id_ in ids)


def require_toolset(scenarios: Iterable[Scenario], toolset: str) -> None:
    """Refuse scenarios of other tools with life-helper's toolset.

    Raises:
        ScenarioError: `toolset` is the default one and lacks the tool of an expected call.
    """
    if toolset != DEFAULT:
        return
    known = set(registry_of("ko"))
    for scenario in scenarios:
        for place, tool in scenario.unavailable_calls(known):
            raise ScenarioError(
                f"{place}: life-helper has no tool {tool!r}: for other tools give their --toolset"
            )
