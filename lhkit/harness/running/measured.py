"""What a run was measured with, and what is in front, for a policy of approvals.

Both are made from the same hashes as those of a run, so that they are equal if nothing differs.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import canonical
from lhkit.confirm.policy import ApprovalPolicy, Measured, tool_sha256
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.records.manifest import Manifest, Prompt, text_sha256
from lhkit.harness.running.fingerprint import Fingerprints
from lhkit.toolset import Session, Toolset, assistant_of, source_sha256, tool_programs

_ELSEWHERE = frozenset({"base_url", "device", "dialect", "constraint", "template_sha256"})
"""Fields of an identity in other parts, and address and card, which may change."""


def measured_by_locale(manifest: Manifest) -> dict[str, Measured]:
    """Return what a run was measured with, in each language of its scenarios.

    Raises:
        UsageError: the run has several models, prompts or sets of tools, so that its figures belong
            to none of them; the message says which.
    """
    models = _distinct(manifest.models)
    sampling = _distinct([{"temperature": each.get("temperature")} for each in manifest.sampling])
    several = [
        *(["models"] if len(models) > 1 else []),
        *(["temperatures"] if len(sampling) > 1 else []),
        *(["prompts"] if manifest.several_prompts else []),
        *(["sets of tools"] if manifest.tools else []),
    ]
    if several:
        raise UsageError(
            f"The run was measured with several {several[0]}, so that its figures "
            "belong to none of them. Give a run with one."
        )
    if not (models and sampling and manifest.locales):
        raise UsageError(
            "The manifest of the run does not say what was measured. Run it again with `lhkit "
            "eval`."
        )
    return {
        locale: measured_of(models[0], sampling[0], prompt, manifest.code_sha256)
        for locale, prompt in manifest.locales.items()
    }


def measured_in_front(
    identity: ModelIdentity, toolset: Toolset, current: Callable[[], tuple[Session, str]]
) -> Callable[[], Measured]:
    """Return a function that returns what is in front in a conversation, as it is then.

    Tools that are registered during the conversation are part of it.

    Args:
        identity: of the model.
        toolset: from which the session was opened; its code counts.
        current: returns the session, and the language of the dispatcher's texts.
    """
    code_sha256 = source_sha256(toolset)
    cached: list[tuple[tuple[Any, ...], Measured]] = []

    def measured() -> Measured:
        session, locale = current()
        key = (id(session), session.assistant, locale, session.registry.definitions)
        if not cached or cached[0][0] != key:
            assistant = assistant_of(session)
            prompt, _ = Fingerprints(warns=False).prompt(
                locale, session.registry, assistant, identity, tool_programs(session)
            )
            sampling = {"temperature": assistant.sampling.temperature}
            cached[:] = [(key, measured_of(asdict(identity), sampling, prompt, code_sha256))]
        return cached[0][1]

    return measured


def measured_tools(
    policy: ApprovalPolicy, toolset: Toolset, current: Callable[[], tuple[Session, str]]
) -> Callable[[], Measured | None]:
    """Return a function that returns what is in front where only the tools can be seen.

    All else is taken to be as it was measured: the user of an MCP client says so.

    Args:
        policy: the policy.
        toolset: from which the session was opened; its code counts.
        current: returns the session, and its language.

    Returns:
        A function that returns None if nothing was measured in that language.
    """
    code = _code(source_sha256(toolset), tool_programs(current()[0]))

    def measured() -> Measured | None:
        session, locale = current()
        tools = {
            tool.name: tool_sha256(tool.name, tool.description, tool.parameters)
            for tool in session.registry.definitions
        }
        before = policy.measured.get(locale)
        return before and before.model_copy(update={"tools": tools, "code": code})

    return measured


def _code(code_sha256: str, programs: Mapping[str, Any]) -> str:
    return _named("", [code_sha256, programs]) if code_sha256 or programs else ""


def measured_of(
    model: Mapping[str, Any], sampling: Mapping[str, Any], prompt: Prompt, code_sha256: str
) -> Measured:
    """Return what is measured with these.

    Args:
        model: the identity of the model, as a manifest has it.
        sampling: its temperature.
        prompt: the prompt in a language, as a manifest has it.
        code_sha256: of the tools' code; empty if it is unknown.
    """
    fields = {name: value for name, value in model.items() if value and name not in _ELSEWHERE}
    if fields.get("weights_sha256"):
        fields.pop("weights", None)  # only a name for the hashed content
    programs = (prompt.model_extra or {}).get("runs_on") or {}
    limits = prompt.assistant.model_dump(exclude_unset=True)
    return Measured(
        model=_named(str(model["model"]), [fields, sampling]),
        prompt=_named("", [prompt.instructions_sha256, prompt.texts_sha256, limits]),
        tools={
            tool["name"]: tool_sha256(tool["name"], tool["description"], tool["parameters"])
            for tool in prompt.tools
        },
        dialect=_named(
            str(model.get("dialect") or ""),
            [model.get("dialect"), model.get("template_sha256"), prompt.rendering_sha256],
        ),
        constraint=str(model.get("constraint") or "off"),
        code=_code(code_sha256, programs),
    )


def _named(name: str, content: Any) -> str:
    return f"{name} sha256:{text_sha256(canonical(content))}".lstrip()


def _distinct(rows: Any) -> list[dict[str, Any]]:
    """Return the different rows, without the address of a model."""
    plain = [{key: value for key, value in row.items() if key != "base_url"} for row in rows]
    return [*{canonical(row): row for row in plain}.values()]
