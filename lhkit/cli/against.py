"""Compare the prompt that lhkit renders with that of a template, server, run or training file."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.json_values import compact
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.manifest import text_sha256
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.results import Run
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_template import ChatTemplate, is_native, read_chat_template
from lhkit.models.client.request import OPENAI, rendered_fields, request_body
from lhkit.models.client.served import connect
from lhkit.models.client.server_rendering import served_prompt
from lhkit.models.client.transport import Endpoint
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import group_messages, user_text
from lhkit.models.dialects.prompt_diff import Place, prompt_differences
from lhkit.models.dialects.template import turn_messages
from lhkit.models.dialects.training import training_text
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.settings import Settings
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset

_JSON_LINES = ".jsonl"
_SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two renderings of one conversation.

    Attributes:
        against: what the second one is of.
        dialect: of the first one.
        is_whole: the whole conversation is compared, not only the prompt of the first turn.
        prompt: the prompt that lhkit renders.
        other: the prompt that it is compared with.
        places: where they differ.
    """

    against: str
    dialect: str
    is_whole: bool
    prompt: str
    other: str
    places: tuple[Place, ...]

    @classmethod
    def of(cls, prompt: str, other: str, **more: Any) -> "Comparison":
        """Compare two prompts."""
        return cls(prompt=prompt, other=other, places=prompt_differences(prompt, other), **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The requests of one conversation: of its first turn, and the last one, with all of it.

    `is_whole` is False if only the first is known.
    """

    first: ModelRequest
    last: ModelRequest
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How lhkit renders prompts: in a dialect, by a template if one is given.

    `dialect` is None where that of the other side applies.
    """

    dialect: str | None
    template: ChatTemplate | None = None

    def prompt(self, request: ModelRequest, dialect: str) -> str:
        """Return the prompt of a request.

        Raises:
            UsageError: the server renders the prompts of the dialect, or the template is invalid.
        """
        content = (request.messages, request.tools, request.instructions)
        if self.template is not None:
            return self.template.encode(dialect, *content)
        if dialect == OPENAI:
            raise UsageError(
                "With the dialect openai the server renders the prompt, so there is nothing to "
                "compare. Give another --dialect."
            )
        return DIALECTS[dialect].encode(*content)


async def reference_conversation(
    scenario: Scenario, toolset: Toolset, first: ModelRequest
) -> Conversation:
    """Return the conversation of a scenario with its reference calls.

    Only the first request is known if the reference cannot be derived or run.
    """
    models: list[ScriptedModel] = []

    def build(planned: Scenario, registry: ToolRegistry) -> ScriptedModel:
        models.append(gold_model(planned, registry))
        return models[-1]

    await run_sample(scenario, build, toolset)
    requests = models[-1].requests if models else []
    last = requests[-1] if requests else first
    return Conversation(first=first, last=last, is_whole=len(requests) > 0)


async def compare_prompts(
    what: str,
    conversation: Conversation,
    scenario: Scenario | None,
    rendering: Rendering,
    *,
    model: str | None,
    settings: Settings,
) -> Comparison:
    """Return how the prompts of a conversation differ from those of something else.

    Args:
        what: the address of a server, a template, the folder of a model, a run, or a file of
            `lhkit export --sft`.
        conversation: its requests.
        scenario: its scenario.
        rendering: how lhkit renders it.
        model: the name of the model, if the server has several or no dialect is given.
        settings: with the API key of a server, and the clock of templates.

    Raises:
        UsageError: `what` is none of these, or has no such conversation.
        ModelError: the server does not answer.
    """
    if "://" in what:
        return await _against_server(what, conversation, rendering, model, settings)
    compared = (Path(what), conversation, scenario, rendering, settings)
    return await asyncio.to_thread(_against_path, *compared)


def _against_path(
    path: Path,
    conversation: Conversation,
    scenario: Scenario | None,
    rendering: Rendering,
    settings: Settings,
) -> Comparison:
    if (path / RECORDS).is_file():
        return _against_run(path, conversation, scenario, rendering)
    if path.suffix == _JSON_LINES:
        return _against_sft(path, conversation, rendering)
    if not path.exists():
        raise UsageError(
            f"--against {path} does not exist: give the address of a server, a chat template, the "
            "folder of a model, a run, or a file of `lhkit export --sft`."
        )
    return _against_template(path, conversation, rendering, settings)


def _against_template(
    path: Path, conversation: Conversation, rendering: Rendering, settings: Settings
) -> Comparison:
    template = read_chat_template(path, settings.now())
    family = template.family
    dialect = rendering.dialect or (family.dialect if family else "json")
    prompt = rendering.prompt(conversation.last, dialect)
    if is_native(dialect):
        request = conversation.last
        other = template.encode(dialect, request.messages, request.tools, request.instructions)
    else:
        variables = {"messages": turn_messages(prompt), "add_generation_prompt": True}
        other = template.render(variables)
    return Comparison.of(
        prompt, other, against=str(path), dialect=dialect, is_whole=conversation.is_whole
    )


async def _against_server(
    address: str,
    conversation: Conversation,
    rendering: Rendering,
    model: str | None,
    settings: Settings,
) -> Comparison:
    endpoint = Endpoint(
        base_url=address, model=model, api_key=settings.api_key, dialect=rendering.dialect
    )
    async with aclosing(await connect(endpoint)) as connected:
        dialect = connected.identity.dialect
        prompt = rendering.prompt(conversation.last, dialect)
        other = await served_prompt(connected, conversation.last, prompt)
    if other is None:
        raise UsageError(
            f"{address} does not show how it renders a prompt: llama.cpp has /apply-template, vLLM "
            "/tokenize with messages. Give the chat template, or the folder of the model."
        )
    return Comparison.of(
        prompt, other, against=address, dialect=dialect, is_whole=conversation.is_whole
    )


def _against_run(
    folder: Path, conversation: Conversation, scenario: Scenario | None, rendering: Rendering
) -> Comparison:
    run = Run.load(folder)
    name = scenario.id if scenario is not None else ""
    responses = [
        request.response
        for record in run.records
        if record.sample_id.scenario == name and not record.sample_id.wording
        for request in record.trajectory.requests[:1]
    ]
    if not responses:
        known = ", ".join(dict.fromkeys(record.sample_id.scenario for record in run.records))
        raise UsageError(
            f"{folder} has no request of the scenario {name!r}. Give --scenario, one of: {known}."
        )
    response = responses[0]
    identity = replace(
        response.identity or ModelIdentity(model=""),
        **({"dialect": rendering.dialect} if rendering.dialect else {}),
    )
    prompt = _sent_prompt(conversation.first, identity, rendering)
    other = response.prompt_text
    if not (other or response.prompt_sha256):
        raise UsageError(f"The model of {folder} is a scripted one, which has no prompts.")
    if not other:
        if response.prompt_sha256 != text_sha256(prompt):
            raise UsageError(
                f"The prompt of {name} in {folder} is another one, but its text was not kept. Run "
                "it with --keep-prompts to see where they differ."
            )
        other = prompt
    return Comparison.of(
        prompt, other, against=str(folder), dialect=identity.dialect, is_whole=False
    )


def _sent_prompt(request: ModelRequest, identity: ModelIdentity, rendering: Rendering) -> str:
    """Return the prompt as a client of the model records it."""
    if rendering.template is not None:
        return rendering.prompt(request, identity.dialect)
    body = request_body(request, identity)
    return str(body["prompt"]) if "prompt" in body else compact(rendered_fields(body))


def _against_sft(path: Path, conversation: Conversation, rendering: Rendering) -> Comparison:
    dialect = rendering.dialect or "json"
    prompt = rendering.prompt(conversation.first, dialect)
    groups = group_messages(conversation.first.messages)
    users = [user_text(group) for group in groups if isinstance(group, UserMessage)]
    rows = _read_rows(path)
    matching = [row for row in rows if _users(row)[: len(users)] == users]
    if not matching:
        shown = "; ".join(repr(_users(row)[:1]) for row in rows[:_SHOWN_ROWS])
        raise UsageError(
            f"No conversation of {path} begins as {users!r}. The first ones begin as {shown}."
        )
    messages = [
        {key: value for key, value in message.items() if key != "weight"}
        for message in matching[0]["messages"]
    ]
    text = training_text({**matching[0], "messages": messages}, DIALECTS[dialect])
    answered = sum(not isinstance(group, UserMessage) for group in groups)
    if len(text.spans) <= answered:
        raise UsageError(f"The conversation of {path} that begins as {users!r} has no answer.")
    other = text.text[: text.spans[answered][0]]
    return Comparison.of(prompt, other, against=str(path), dialect=dialect, is_whole=False)


def _read_rows(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        rows = [json.loads(line) for line in read_text_file(path).splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--against {path} cannot be read ({error}).") from error
    if not all(isinstance(row, dict) and isinstance(row.get("messages"), list) for row in rows):
        raise UsageError(
            f"{path} is not a training file: each line is an object with `messages`, as `lhkit "
            "export --sft` writes it."
        )
    return rows


def _users(row: Mapping[str, Any]) -> list[Any]:
    return [
        message.get("content")
        for message in row["messages"]
        if isinstance(message, dict) and message.get("role") == "user"
    ]
