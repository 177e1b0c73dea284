"""Render prompts in Gemma 3's turn format, with all control tokens in messages escaped.

User and model turns alternate; the system text opens the first user turn. Rendered here instead of
by the server's chat template, so that prompts are stable to the byte.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import assert_never

from lhkit.base.json_values import compact
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import (
    Dialect,
    ToolSpec,
    group_messages,
    replace_lone_surrogates,
    result_text,
    tool_spec,
    user_text,
)

BOS = "<bos>"
START_OF_TURN_ID = 105
END_OF_TURN_ID = 106

CONTROL_TOKEN = re.compile(
    r"<(?=/?(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image|end_of_image"
    r"|image_soft_token|start_of_audio|end_of_audio|audio_soft_token|unused\d+)>)"
)

_TURN_START = "<start_of_turn>"
_TURN_END = "<end_of_turn>\n"
_MODEL_START = f"{_TURN_START}model\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTurn:
    """One turn; `role` is `user` or `model`."""

    role: str
    text: str


def escape_control_tokens(text: str) -> str:
    """Return `text` without control tokens: `<end_of_turn>` becomes `< end_of_turn>`.

    User text, tool data and model text are untrusted and could otherwise start a turn of another
    role. Lone surrogates, which vLLM refuses with HTTP 400, become U+FFFD.
    """
    return CONTROL_TOKEN.sub("< ", replace_lone_surrogates(text))


def render_turns(turns: Iterable[PromptTurn]) -> str:
    """Return the prompt for the model's next turn; adjacent turns of one role are merged.

    The prompt of a continued conversation starts with that of the shorter one up to its open model
    turn, for the server's prefix cache (up to the end of the text where turns are merged).
    """
    blocks = []
    for role, group in groupby(turns, key=lambda turn: turn.role):
        text = escape_control_tokens("\n\n".join(turn.text for turn in group))
        blocks.append(f"{_TURN_START}{role}\n{text}{_TURN_END}")
    return BOS + "".join(blocks) + _MODEL_START


class PromptedDialect(Dialect):
    """A dialect for models without a native tool format, which describes one in the prompt.

    Instructions, `protocol` and tools are in the first user turn, results of calls in user turns.
    """

    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """Includes the start of a turn, since a base model may open one instead of ending its own."""
    stop_texts = ()
    protocol: str

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return the lines of the calls of one model message, or the raw text of malformed ones."""

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt, instructions and tools first."""
        preamble = [instructions.strip()] if instructions.strip() else []
        if tools:
            specs = (compact(tool_spec(tool)) for tool in tools)
            preamble.append("\n".join([self.protocol, *specs]))
        turns = [PromptTurn(role="user", text="\n\n".join(preamble))] if preamble else []
        for group in group_messages(messages):
            match group:
                case UserMessage():
                    turns.append(PromptTurn(role="user", text=user_text(group)))
                case ModelMessage(text=text):
                    turns.append(PromptTurn(role="model", text=text))
                case list():
                    lines = [call.text for call in group if call.text]
                    lines += self.render_calls(group)
                    turns.append(PromptTurn(role="model", text="\n".join(lines)))
                    results = [
                        f"Result of {call.name or 'the call'}: {result_text(call)}"
                        for call in group
                        if call.outcome is not None
                    ]
                    if results:
                        turns.append(PromptTurn(role="user", text="\n".join(results)))
                case _:
                    assert_never(group)
        return render_turns(turns)
