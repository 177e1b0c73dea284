"""Render prompts in the native markup of FunctionGemma and Gemma 4.

The text is that of the checkpoints' own chat templates, byte for byte. Results are within the
model's turn, which stays open until the model answers.

Where a template cannot express a conversation, these extensions apply:

- A control token in a text is escaped (`< turn|>`); a string with one is written in JSON quotes.
- A key that is not a plain word is written as a string.
- A call that was cut off or malformed is shown as the model wrote it.
- The text before a call is a message of its own in the same turn.
- A turn that ends with a result is closed before the user's next message.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from lhkit.base.json_values import NotJsonError
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import (
    Group,
    ToolSpec,
    group_messages,
    is_renderable,
    result_text,
    user_text,
)
from lhkit.models.dialects.declaration import render_declaration
from lhkit.models.dialects.markup import Markup, render_call
from lhkit.models.dialects.turns import BOS


def render_prompt(
    markup: Markup, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str
) -> str:
    """Return the prompt for the model's next message.

    The prompt of a continued conversation starts with that of the shorter one up to its open model
    turn, for the server's prefix cache.
    """
    start, end = markup.turn
    parts = [BOS, _system_turn(markup, tools, instructions)]
    role = ""
    is_answered = False  # the last message has calls, so the model's turn stays open
    for group in joined_groups(group_messages(messages)):
        if (next_role := "user" if isinstance(group, UserMessage) else "model") != role:
            parts.append((f"{end}\n" if role else "") + f"{start}{next_role}\n")
            role = next_role
        parts.append(_body(markup, group))
        is_answered = isinstance(group, list)
    if not is_answered:
        parts.append((f"{end}\n" if role else "") + f"{start}model\n")
    return "".join(parts)


def _system_turn(markup: Markup, tools: Sequence[ToolSpec], instructions: str) -> str:
    text = markup.system_text(instructions, has_tools=bool(tools))
    if not text and not tools:
        return ""
    declarations = "".join(render_declaration(markup, tool) for tool in tools)
    start, end = markup.turn
    return f"{start}{markup.system_role}\n{text}{declarations}{end}\n"


def joined_groups(groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the groups, adjacent messages of one role as one, as in chat messages.

    Calls and what follows them stay apart, since their results are between them.
    """
    last: Group | None = None
    for group in groups:
        match last, group:
            case UserMessage(), UserMessage():
                last = UserMessage(text=f"{user_text(last)}\n\n{user_text(group)}")
            case ModelMessage(), ModelMessage():
                last = ModelMessage(text=f"{last.text}\n\n{group.text}")
            case ModelMessage(), [first, *others]:
                text = last.text
                if first.text or not is_renderable(first):
                    text += f"\n\n{first.text}"
                last = [replace(first, text=text), *others]
            case _:
                if last is not None:
                    yield last
                last = group
    if last is not None:
        yield last


def _body(markup: Markup, group: Group) -> str:
    match group:
        case UserMessage():
            return markup.escape_control_tokens(user_text(group)).strip()
        case ModelMessage(text=text):
            return markup.escape_control_tokens(text).strip()
        case list():
            return "".join([*_written(markup, group), *_responses(markup, group)])
        case _:
            assert_never(group)


def _written(markup: Markup, group: Sequence[ToolCallMessage]) -> Iterator[str]:
    """Yield the texts and calls of one model message, of a malformed call its raw text.

    Adjacent texts are escaped together: two of them could join into a control token.
    """
    text = "".join(call.text for call in group)
    for call in group:
        rendered = _rendered_call(markup, call)
        if rendered is None:
            text += call.raw
        else:
            yield markup.escape_control_tokens(text).strip() + rendered
            text = ""
    yield markup.escape_control_tokens(text).strip()


def _rendered_call(markup: Markup, message: ToolCallMessage) -> str | None:
    """Return the text of a call, or None for a malformed one."""
    if not is_renderable(message):
        return None
    try:
        return render_call(markup, message.name, message.args)
    except NotJsonError:
        return None


def _responses(markup: Markup, group: Sequence[ToolCallMessage]) -> Iterator[str]:
    """Yield the results of calls; without any, the token with which the model requests them."""
    completed = [call for call in group if call.outcome is not None]
    if not completed:
        yield markup.response[0]
    for call in completed:
        yield _response(markup, call)


def _response(markup: Markup, message: ToolCallMessage) -> str:
    start, end = markup.response
    name = markup.escape_control_tokens(message.name) or "unknown"
    result = json.loads(result_text(message, "plain"))
    return f"{start}response:{name}{markup.render_object(result)}{end}"
