"""Google's chat templates as an oracle: the revisions that TRL ships, rendered by Jinja.

TRL is only read, never imported, and none of its text is part of this project. `make test` installs
it and fails without it; in the fast suite these tests are skipped.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import group_messages, user_text

REVISIONS = ("gemma4_v2", "gemma4_v3", "gemma4", "gemma4_v4", "gemma4_v5")
"""TRL's names of the revisions of Gemma 4's template, oldest first."""
NEWEST = REVISIONS[-1]


@cache
def templates_folder() -> Path | None:
    """Return the folder with TRL's templates; None if TRL is not installed."""
    spec = find_spec("trl")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / "chat_templates").is_dir():
            return folder
    return None


def _refuse(message: str) -> None:
    raise TemplateError(message)


@cache
def revision_text(revision: str) -> str:
    """Return the text of a revision; without TRL the test is skipped."""
    folder = templates_folder()
    if folder is None:
        pytest.skip("TRL is not installed: run `make finetune`")
    return (folder / f"{revision}.jinja").read_text(encoding="utf-8")


@cache
def _template(revision: str) -> Any:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(revision_text(revision))


def rendered(
    revision: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    instructions: str = "",
) -> str:
    """Return the prompt of a revision of the template for the model's next message."""
    text = _template(revision).render(
        messages=template_messages(messages, instructions),
        tools=[{"type": "function", "function": tool} for tool in tools],
        bos_token="<bos>",  # noqa: S106 - a token of text
        add_generation_prompt=True,
    )
    return str(text)


def template_messages(messages: Sequence[Message], instructions: str) -> list[dict[str, Any]]:
    """Return a conversation as Google's documentation writes it for Gemma 4.

    Results are `tool_responses` of the message with the calls, and so is an answer that follows: in
    the first revision a message of its own would open another turn. Text before calls is a message
    of its own: the templates write `content` after the calls.
    """
    converted: list[dict[str, Any]] = []
    if instructions.strip():
        converted.append({"role": "system", "content": instructions})
    for group in group_messages(messages):
        last = converted[-1] if converted else {}
        match group:
            case UserMessage() if last.get("role") == "user":
                last["content"] += f"\n\n{user_text(group)}"
            case UserMessage():
                converted.append({"role": "user", "content": user_text(group)})
            case ModelMessage(text=text):
                if last.get("role") == "assistant":
                    before = f"{last['content']}\n\n" if last["content"] else ""
                    last["content"] = before + text
                else:
                    converted.append({"role": "assistant", "content": text})
            case list():
                if group[0].text:
                    converted.append({"role": "assistant", "content": group[0].text})
                converted.append(_calls(group))
    return converted


def _calls(group: Sequence[ToolCallMessage]) -> dict[str, Any]:
    calls = [{"function": {"name": call.name, "arguments": dict(call.args)}} for call in group]
    responses = [{"name": call.name, "response": _plain(call)} for call in group]
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": calls,
        "tool_responses": responses,
    }


def _plain(call: ToolCallMessage) -> dict[str, Any]:
    """Return the plain form of a result, written out anew."""
    result = call.result
    match type(result).__name__:
        case "ToolOk":
            return dict(result.data)  # type: ignore[union-attr]
        case "ToolErr":
            return {"error": f"{result.code}: {result.reason}"}  # type: ignore[union-attr]
        case _:
            return {"cancelled": "user did not confirm"}
