"""Hashes of all that reaches a model: two samples of the same hash are the same question.

The request is rendered as the model's client renders it, context lines are made as the controller
makes them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.manifest import AssistantLimits, Prompt, versions
from lhkit.harness.scenario import Scenario
from lhkit.harness.tool_injection import is_distractor
from lhkit.json_values import NotJsonError, canonical, compact, plain_json
from lhkit.locales import available_locales, load_catalog
from lhkit.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.request import request_body
from lhkit.responses import ModelIdentity, Sampling
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.tools.registry import ToolRegistry

_SCENARIO = TypeAdapter(Scenario)

_UNTOLD = frozenset({"implied", "claims"})
"""What scorers know of a tool and no model reads."""

_ELSEWHERE = ("instructions", "context", "deps", "sampling")
"""Fields of an assistant that are hashed as what they say; `deps` are the scenario's world."""

_MODEL_TEXTS = ("dispatch.", "validation.")
"""Texts of the locales that come back to a model as the result of its call."""

_CONVERSATION: tuple[Message, ...] = (
    UserMessage(text="hello", context="[now]"),
    ToolCallMessage.of(name="look", args={"at": 1}, result=ToolOk({"seen": "x" * 4096}), text="so"),
    ToolCallMessage.of(name="look", args={"at": None}, result=ToolErr("code", "why"), index=1),
    ToolCallMessage.of(name="", args={}, result=ToolCancelled(), index=2, raw='{"name":"l'),
    ModelMessage(text="there"),
    UserMessage(text="and"),
    ToolCallMessage.of(name="look", args={"at": [True, 1.5, {"a": "b"}]}, result=ToolOk({"n": 1})),
)
"""One message of each kind, so that what a dialect makes of each is in the hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFingerprint:
    """Hashes of what reaches the model in all scenarios alike.

    `tools_sha256` is of the tools as they are told, in their order and that of their words.
    `rendering_sha256` is of what a server is sent for a conversation with all kinds of messages:
    the dialect's own words, the envelope of results, stops, constraint; empty for a script.
    `assistant` are the limits of the assistant, `texts_sha256` the refusals of the dispatcher.
    `runs_on` is the program that the tools are run by, where it is another one.
    """

    instructions: str
    tools: Sequence[Mapping[str, Any]]
    tools_sha256: str
    rendering_sha256: str
    assistant: Mapping[str, Any]
    texts_sha256: str
    lhkit: str
    runs_on: Mapping[str, str] = field(default_factory=dict)

    def facts(self, tools: Sequence[Mapping[str, Any]] | None = None) -> Prompt:
        """Return it for the manifest, with the tools in full and the instructions as a hash."""
        more: dict[str, Any] = {"runs_on": dict(self.runs_on)} if self.runs_on else {}
        return Prompt.model_construct(
            instructions_sha256=sha256(self.instructions),
            tools_sha256=self.tools_sha256,
            rendering_sha256=self.rendering_sha256,
            texts_sha256=self.texts_sha256,
            assistant=AssistantLimits.model_construct(**self.assistant),
            tools=tools,
            **more,
        )


class Fingerprints:
    """What was hashed before: most scenarios share their tools and all that stands around them.

    The hash of tools leaves out what only the scorers know: a better word on that asks nothing
    anew.
    """

    def __init__(self) -> None:
        self._tools: dict[int, tuple[ToolRegistry, list[dict[str, Any]], str]] = {}
        self._told: dict[tuple[Any, ...], tuple[PromptFingerprint, str]] = {}
        self._lhkit = versions()["lhkit"]

    def prompt(
        self,
        locale: str,
        registry: ToolRegistry,
        assistant: Assistant,
        identity: ModelIdentity,
        runs_on: Mapping[str, str],
    ) -> tuple[PromptFingerprint, str]:
        """Return the fingerprint of a prompt, and its hash."""
        tools, tools_sha256 = self._tools_of(registry)
        limits = {
            each.name: plain_json(getattr(assistant, each.name))
            for each in fields(Assistant)
            if each.name not in _ELSEWHERE
        }
        others = canonical([limits, runs_on])
        key = (locale, tools_sha256, assistant.instructions, others, identity)
        if key not in self._told:
            told = PromptFingerprint(
                instructions=assistant.instructions,
                tools=tools,
                tools_sha256=tools_sha256,
                rendering_sha256=_rendering_sha256(registry, assistant.instructions, identity),
                assistant=limits,
                texts_sha256=_texts_sha256(locale),
                lhkit=self._lhkit,
                runs_on=runs_on,
            )
            facts = told.facts().model_dump(exclude_unset=True, warnings=False)
            self._told[key] = (told, sha256({**facts, "lhkit": told.lhkit}))
        return self._told[key]

    def _tools_of(self, registry: ToolRegistry) -> tuple[list[dict[str, Any]], str]:
        """Return the tools of `registry`, kept alive so that its id stays its own."""
        if id(registry) not in self._tools:
            specs = tool_specs(registry)
            asked = [{k: v for k, v in spec.items() if k not in _UNTOLD} for spec in specs]
            ordered = compact(asked)  # the order of tools and words reaches the model, too
            digest = hashlib.sha256(ordered.encode()).hexdigest()
            self._tools[id(registry)] = (registry, specs, digest)
        _, specs, digest = self._tools[id(registry)]
        return specs, digest


def contexts_sha256(scenario: Scenario, assistant: Assistant) -> str:
    """Return the hash of the lines that the assistant adds to the user's; empty if to none."""
    try:
        lines = [assistant.context(turn.user) for turn in scenario.turns]
    except Exception as error:  # noqa: BLE001 - boundary: their code spoils its own sample only
        lines = [repr(error)]
    return sha256(lines) if any(lines) else ""


@lru_cache(maxsize=64)
def asked_sha256(identity: ModelIdentity, sampling: Sampling) -> str:
    """Return the hash of who is asked, and how: the same for most samples of a run."""
    model = asdict(replace(identity, base_url=""))  # it may move to a new port
    if identity.weights_sha256:
        del model["weights"]  # a name of the same content
    return sha256({"model": model, "sampling": asdict(sampling)})


def _rendering_sha256(registry: ToolRegistry, instructions: str, identity: ModelIdentity) -> str:
    """Return the hash of what a server is sent; empty for a model that is no such server."""
    request = ModelRequest(
        messages=_CONVERSATION, tools=registry.definitions, instructions=instructions
    )
    try:
        body = request_body(request, identity)
    except UsageError as error:  # the samples meet it, too
        return sha256(str(error))
    return hashlib.sha256(compact(body).encode()).hexdigest() if body else ""


def _texts_sha256(locale: str) -> str:
    """Return the hash of what the dispatcher says to a model; empty for an unknown locale."""
    if locale not in available_locales():
        return ""
    texts = load_catalog(locale).texts
    return sha256({key: text for key, text in texts.items() if key.startswith(_MODEL_TEXTS)})


def tool_specs(registry: ToolRegistry) -> list[dict[str, Any]]:
    """Return all that the model, the gate and the scorers know of the tools, as plain data."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "destructive": tool.is_destructive,
            **({"distractor": True} if is_distractor(tool) else {}),
            **({"implied": plain_json(tool.implied)} if tool.implied else {}),
            **({"repeatable": True} if tool.repeatable else {}),
            **({"claims": plain_json(tool.claims)} if tool.is_destructive else {}),
        }
        for tool in registry.definitions
    ]


def scenario_hash(scenario: Scenario) -> str:
    """Return the hash that tells whether a scenario is still the one that was played.

    Raises:
        UsageError: it holds a value that JSON cannot carry.
    """
    try:
        return sha256(_SCENARIO.dump_python(scenario, exclude_defaults=True))
    except NotJsonError as error:  # one made in Python: a file holds nothing else
        raise UsageError(f"the scenario is no JSON: {error}: give plain values") from error


def sha256(content: Any) -> str:
    """Return the hash of plain data, independent of the order of keys."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()
