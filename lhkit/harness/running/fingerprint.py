"""Hashes of everything that reaches a model; samples with equal hashes are interchangeable.

Requests are rendered as the model's client renders them, and context lines are produced as the
controller produces them.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from lhkit.base.errors import UsageError
from lhkit.base.json_values import NotJsonError, canonical, compact, plain_json
from lhkit.base.locales import available_locales, load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.harness.records.manifest import AssistantLimits, Prompt, text_sha256, versions
from lhkit.harness.running.tool_injection import is_distractor
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ModelRequest
from lhkit.models.client.request import request_body, warn_undeclared
from lhkit.tools.registry import ToolRegistry

_SCENARIO = TypeAdapter(Scenario)
_VARIANTS: Any = {"turns": {"__all__": {"variants"}}}

_NOT_READ = frozenset({"implied", "claims", "always_ask"})
"""Fields of tool specs that only scorers and policies of approvals read."""

_NOT_LIMITS = (
    *("instructions", "context", "deps", "sampling", "history"),
    *("stops_after_calls", "result_format"),
)
"""Fields of an assistant that are hashed elsewhere; deps and history follow from the scenario."""

_MODEL_TEXTS = ("dispatch.", "validation.", "expected.")
"""Prefixes of the locale keys whose texts reach the model in tool results."""

_CONVERSATION: tuple[Message, ...] = (
    UserMessage(text="hello", context="[now]"),
    ToolCallMessage.of(name="look", args={"at": 1}, result=ToolOk({"seen": "x" * 4096}), text="so"),
    ToolCallMessage.of(name="look", args={"at": None}, result=ToolErr("code", "why"), index=1),
    ToolCallMessage.of(name="", args={}, result=ToolCancelled(), index=2, raw='{"name":"l'),
    ModelMessage(text="there"),
    UserMessage(text="and"),
    ToolCallMessage.of(name="look", args={"at": [True, 1.5, {"a": "b"}]}, result=ToolOk({"n": 1})),
)
"""One message of each kind, so that the hash covers how a dialect renders each."""


class Fingerprints:
    """Computes the hashes of prompts, and caches them, as most scenarios share their tools.

    The hash of tools excludes what only scorers read, so that such a change keeps records valid.

    Args:
        warns: log what a model does not read of the tools.
    """

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns
        self._tools: dict[int, tuple[ToolRegistry, list[dict[str, Any]], str]] = {}
        self._prompts: dict[tuple[Any, ...], tuple[Prompt, str]] = {}
        self._checked: set[tuple[str, str]] = set()  # dialect and tools
        self._lhkit = versions()["lhkit"]

    def prompt(
        self,
        locale: str,
        registry: ToolRegistry,
        assistant: Assistant,
        identity: ModelIdentity,
        runs_on: Mapping[str, str],
    ) -> tuple[Prompt, str]:
        """Return the manifest entry of a prompt, and the hash of all that it covers.

        Args:
            locale: the language of the dispatcher's texts.
            registry: the tools.
            assistant: the instructions and limits.
            identity: the model, whose client renders the request.
            runs_on: the program that runs the tools, if it is another one.
        """
        if id(registry) not in self._tools:
            specs = tool_specs(registry)
            rendered = [{k: v for k, v in spec.items() if k not in _NOT_READ} for spec in specs]
            digest = text_sha256(compact(rendered))  # in order, which reaches the model
            self._tools[id(registry)] = (registry, specs, digest)  # kept alive, so the id is unique
        _, tools, tools_sha256 = self._tools[id(registry)]
        limits = {
            field_.name: plain_json(getattr(assistant, field_.name))
            for field_ in fields(Assistant)
            if field_.name not in _NOT_LIMITS
        }
        if assistant.stops_after_calls:  # absent otherwise, so that older records stay valid
            limits["stops_after_calls"] = True
        others = canonical([limits, runs_on])
        form = assistant.result_format
        key = (locale, tools_sha256, assistant.instructions, others, form, identity)
        if key not in self._prompts:
            if self._warns and (identity.dialect, tools_sha256) not in self._checked:
                self._checked.add((identity.dialect, tools_sha256))
                warn_undeclared(identity.dialect, registry.definitions)
            more: dict[str, Any] = {"runs_on": dict(runs_on)} if runs_on else {}
            prompt = Prompt.model_construct(
                instructions_sha256=sha256(assistant.instructions),
                tools_sha256=tools_sha256,
                rendering_sha256=_rendering_sha256(registry, assistant, identity),
                texts_sha256=_texts_sha256(locale),
                assistant=AssistantLimits.model_construct(**limits),
                tools=tools,
                **more,
            )
            hashes = prompt.model_dump(exclude_unset=True, exclude={"tools"}, warnings=False)
            digest = sha256({**hashes, "tools": None, "lhkit": self._lhkit})
            if form is not None:  # for exports; the hash of the rendering covers it
                limited = AssistantLimits.model_construct(**limits, result_format=form)
                prompt = prompt.model_copy(update={"assistant": limited})
            self._prompts[key] = (prompt, digest)
        return self._prompts[key]


def contexts_sha256(scenario: Scenario, assistant: Assistant) -> str:
    """Return the hash of the context lines of a scenario; empty if there are none."""
    try:
        lines = [assistant.context(turn.user) for turn in scenario.turns]
    except Exception as error:  # noqa: BLE001 - boundary: the toolset's fault ends this sample only
        lines = [repr(error)]
    return sha256(lines) if any(lines) else ""


@lru_cache(maxsize=64)
def model_sha256(identity: ModelIdentity, sampling: Sampling) -> str:
    """Return the hash of model and sampling, the same for most samples of a run."""
    model = asdict(replace(identity, base_url=""))  # the port may change
    del model["device"]  # the number type is what may change answers
    if not identity.template_sha256:
        del model["template_sha256"]
    if identity.weights_sha256:
        del model["weights"]  # only a name for the hashed content
    return sha256({"model": model, "sampling": asdict(sampling)})


def _rendering_sha256(registry: ToolRegistry, assistant: Assistant, identity: ModelIdentity) -> str:
    """Return the hash of a request body; empty for a model that is not a server."""
    messages = tuple(
        replace(message, result_format=assistant.result_format)
        if isinstance(message, ToolCallMessage)
        else message
        for message in _CONVERSATION
    )
    request = ModelRequest(
        messages=messages, tools=registry.definitions, instructions=assistant.instructions
    )
    try:
        body = request_body(request, identity)
    except UsageError as error:  # the samples will fail with it
        return sha256(str(error))
    return text_sha256(compact(body)) if body else ""


def _texts_sha256(locale: str) -> str:
    """Return the hash of the dispatcher's texts for a model; empty for an unknown locale."""
    if locale not in available_locales():
        return ""
    texts = load_catalog(locale).texts
    return sha256({key: text for key, text in texts.items() if key.startswith(_MODEL_TEXTS)})


def tool_specs(registry: ToolRegistry) -> list[dict[str, Any]]:
    """Return the specs of tools for model, gate and scorers, as plain data."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "destructive": tool.is_destructive,
            **({"distractor": True} if is_distractor(tool) else {}),
            **({"implied": plain_json(tool.implied)} if tool.implied else {}),
            **({"repeatable": True} if tool.repeatable else {}),
            **({"always_ask": True} if tool.always_ask else {}),
            **({"claims": plain_json(tool.claims)} if tool.is_destructive else {}),
        }
        for tool in registry.definitions
    ]


def scenario_hash(scenario: Scenario) -> str:
    """Return the hash of a scenario in its wording, which changes with it.

    Raises:
        UsageError: the scenario has a value that is not JSON.
    """
    fields = _SCENARIO.dump_python(scenario, exclude_defaults=True, exclude=_VARIANTS)
    if fields.get("locale") == "ko":  # as in earlier runs, whose hashes stay valid
        del fields["locale"]
    try:
        return sha256(fields)
    except NotJsonError as error:  # only possible for one created in Python
        raise UsageError(
            f"The scenario is invalid: it is not JSON ({error}). Use plain values."
        ) from error


def sha256(content: Any) -> str:
    """Return the hash of plain data, independent of the order of keys."""
    return text_sha256(canonical(content))
