"""Connect to a served model with the client that fits its dialect and server."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from lhkit.base.errors import MissingPackageError, ModelError, UsageError
from lhkit.base.notices import NOTICE
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.call_probe import PROBE_MESSAGES, PROBE_TOOLS, probe_calls
from lhkit.models.client.chat_template import (
    ChatTemplate,
    folder_family,
    folder_template,
    is_native,
    read_chat_template,
    require_jinja,
)
from lhkit.models.client.identity import ServerDetails, connecting
from lhkit.models.client.llama_cpp import LlamaCppHttp, is_llama_cpp
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.request import OPENAI, warn_undeclared
from lhkit.models.client.server_rendering import probe_rendering
from lhkit.models.client.transport import Clock, Connection, Endpoint
from lhkit.models.client.vllm import VllmHttp, count_bos_tokens
from lhkit.models.decoding import Constraint
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import ToolSpec
from lhkit.models.families import (
    GEMMA_TURN,
    UNFIT,
    Family,
    family_of,
    identity_family,
    template_family,
    unfit_values,
)
from lhkit.models.names import DIALECT_NAMES

_log = logging.getLogger(__name__)

_KNOWN_DIALECTS = ", ".join(sorted(DIALECT_NAMES))


async def connect(
    endpoint: Endpoint | str, *, clock: Clock | None = None
) -> VllmHttp | LlamaCppHttp | OpenAiHttp:
    """Identify a server and return a model that uses it in the endpoint's dialect.

    Without one it is the dialect of the model's family, by name or chat template. For any other
    model the server is asked for a call: if it parses one, the dialect is `openai`. A dialect that
    the family does not know is used, and a warning is logged.

    Args:
        endpoint: where the model is served; a string is its address, with defaults for the rest.
        clock: clock, sleep and random numbers; by default the real ones.

    Raises:
        UsageError: the dialect, the address or the constraint is invalid, or no dialect is given
            for an unknown model whose server does not parse calls.
        UnknownModelError: the server does not serve that model.
        ModelError: the server does not answer, or refuses.
    """
    endpoint = Endpoint(base_url=endpoint) if isinstance(endpoint, str) else endpoint
    if endpoint.dialect is not None:
        _require_dialect(endpoint.dialect)
    if endpoint.dialect == OPENAI:
        _require_chat_constraint(endpoint.constraint)
    today = (clock or Clock()).today()
    template = _read_template(endpoint, today)
    async with connecting(endpoint, clock) as (connection, found, details):
        dialect = endpoint.dialect
        if dialect is None and template is not None and template.family is not None:
            dialect = template.family.dialect
        is_vllm = found.server.startswith("vllm ")
        bos_tokens: int | None = 1
        if not is_vllm and not is_llama_cpp(found) and dialect != OPENAI:
            is_needed = dialect is not None or _family(found, details) is not None
            bos_tokens = await count_bos_tokens(connection, found.model) if is_needed else None
        takes_prompts = bos_tokens in {None, 1, 2}
        if dialect is None:
            dialect = await _choose_dialect(found, details, connection, takes_prompts=takes_prompts)
        if template is None:
            template = await asyncio.to_thread(served_template, dialect, details, found, today)
        else:
            await asyncio.to_thread(_probe_template, template, dialect)
        sha256 = template.sha256 if template else ""
        identity = replace(found, dialect=dialect, template_sha256=sha256)
        _warn_if_unfit(identity)
        if identity.dialect == OPENAI:
            _require_chat_constraint(endpoint.constraint)
            chat_model = OpenAiHttp(identity, connection)
            chat_model.max_num_seqs = details.max_num_seqs
            return chat_model
        if is_llama_cpp(identity):
            return LlamaCppHttp(identity, connection, template)
        if not takes_prompts:
            _warn_of_prompts(identity)
        model = VllmHttp(identity, connection, template, adds_bos=bos_tokens == 2)
        model.max_num_seqs = details.max_num_seqs
        if is_vllm and template is None and is_native(identity.dialect):
            await _warn_if_rendered_otherwise(model)
        return model


async def _warn_if_rendered_otherwise(model: VllmHttp) -> None:
    """Log that the server's own chat template renders a first request differently from lhkit.

    vLLM does not give its template away, but shows what it renders.
    """
    with suppress(ModelError):  # the first request will report the issue
        places = await probe_rendering(model)
        if places:
            values = {"address": model.identity.base_url, "count": len(places)}
            text = "%(address)s renders a first request differently in %(count)s places"
            _log.warning(text, values, extra={NOTICE: ("dialect.rendering_differs", values)})


def _warn_of_prompts(identity: ModelIdentity) -> None:
    """Log that a server does not take lhkit's prompts as they are."""
    values = {"address": identity.base_url, "dialect": identity.dialect}
    text = "%(address)s does not take prompts as they are, which %(dialect)s needs: give openai"
    _log.warning(text, values, extra={NOTICE: ("dialect.prompt_wrapped", values)})


def _family(identity: ModelIdentity, details: ServerDetails) -> Family | None:
    return (
        template_family(details.chat_template)
        or (folder_family(details.folder) if details.folder else None)
        or identity_family(identity)
        or family_of(details.parent)
    )


async def _choose_dialect(
    identity: ModelIdentity, details: ServerDetails, connection: Connection, *, takes_prompts: bool
) -> str:
    """Return the dialect of a model's family; `openai` for another model whose calls are parsed.

    `openai` also for a server that has no completions, or that puts its own template around their
    prompts: then lhkit's prompts do not reach the model.

    Raises:
        UsageError: no dialect is known, and the server does not parse calls.
    """
    family = _family(identity, details)
    if family is not None and takes_prompts:
        return family.dialect
    if GEMMA_TURN in details.chat_template:  # of Gemma, without a tool format of its own
        return "json"
    probe = await probe_calls(identity, connection)
    if probe.is_parsing:
        return OPENAI
    why = f"{identity.model} is of no known model family"
    if family is not None:
        why = f"{identity.base_url} does not take prompts as they are"
    raise UsageError(
        f"{why}, and {identity.base_url} does not parse "
        f"tool calls ({probe.reason}). Start the server with its parser for tool calls, or choose "
        f"a format with --dialect: {_KNOWN_DIALECTS}."
    )


def _read_template(endpoint: Endpoint, today: datetime) -> ChatTemplate | None:
    path = endpoint.chat_template
    return None if path is None else read_chat_template(path, today)


def _probe_template(template: ChatTemplate, dialect: str) -> None:
    """Render a conversation with a call.

    Raises:
        UsageError: the template cannot render it, or is for no such dialect.
    """
    template.encode(dialect, PROBE_MESSAGES, PROBE_TOOLS, "Be brief.")


def served_template(
    dialect: str, details: ServerDetails, identity: ModelIdentity, today: datetime
) -> ChatTemplate | None:
    """Return the chat template that a server reports, or that is in its folder on this machine.

    One that has not the native format of the dialect renders no prompts. One that cannot render a
    conversation with a call does not either, which is logged.
    """
    text, source = details.chat_template, identity.base_url
    if not text and details.folder is not None:
        text, source = folder_template(details.folder), str(details.folder)
    family = template_family(text)
    if family is None or family.dialect != dialect:
        return None
    template = ChatTemplate(text=text, source=source, now=today)
    try:
        require_jinja()
        _probe_template(template, dialect)
    except (UsageError, MissingPackageError) as error:
        values = {"source": source, "reason": str(error), "dialect": dialect}
        text = "the chat template of %(source)s is not used: %(reason)s"
        _log.warning(text, values, extra={NOTICE: ("dialect.template_unused", values)})
        return None
    return template


def _warn_if_unfit(identity: ModelIdentity) -> None:
    """Log that a model does not know the dialect that was chosen for it."""
    if values := unfit_values(identity):
        text = "%(model)s is a %(family)s, whose dialect is %(fitting)s and not %(dialect)s"
        _log.warning(text, values, extra={NOTICE: (UNFIT, values)})


def require_constraint(
    dialect: str | None, constraint: Constraint, tools: Sequence[ToolSpec]
) -> None:
    """Check that a dialect supports a constraint for these tools; log those that it leaves out.

    A dialect that only the server knows (None) is checked once it is known.

    Raises:
        UsageError: the dialect is invalid, or does not support the constraint, or any tool with it.
    """
    if dialect is None:
        return
    _require_dialect(dialect)
    warn_undeclared(dialect, tools)
    if dialect == OPENAI:
        _require_chat_constraint(constraint)
    else:
        DIALECTS[dialect].constrain(tools, constraint)
        for values in unconstrained(dialect, constraint, tools):
            text = "%(tool)s: decoding cannot be constrained by %(reason)s, so it cannot be called"
            _log.warning(text, values, extra={NOTICE: ("tools.unconstrained", values)})


def unconstrained(dialect: str, constraint: str, tools: Sequence[ToolSpec]) -> list[dict[str, str]]:
    """Return `tool` and `reason` of the tools that cannot be called under a constraint."""
    if constraint == "off" or dialect not in DIALECTS:
        return []
    issues = DIALECTS[dialect].unconstrained_tools(tools)
    return [{"tool": name, "reason": reason} for name, reason in issues.items()]


def _require_dialect(dialect: str) -> None:
    if dialect not in DIALECT_NAMES:
        raise UsageError(f"Invalid dialect {dialect!r}: choose one of {_KNOWN_DIALECTS}.")


def _require_chat_constraint(constraint: Constraint) -> None:
    """Check that the chat protocol supports a constraint.

    `required` is its `tool_choice`. Its `auto` guarantees nothing about a call's arguments, so the
    constraint `auto` is not supported.
    """
    if constraint not in ("off", "required"):
        raise UsageError(
            f"Invalid constraint {constraint!r} for the dialect {OPENAI}: give off, required, or "
            "another dialect."
        )
