"""Gemma 3's turn markup: roles alternate, one `<bos>`, and nobody else may write control tokens.

Everything inside a turn is defused here, in one place, so that no caller can forget it.

Source: Gemma 3's formatting (user and model turns only; the system text opens the first user
turn). Not a chat template: it is rendered here so that the prompt is ours to the byte.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from lhkit.json_values import compact
from lhkit.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import Dialect, ToolSpec, spec_of
from lhkit.models.dialects.transcript import grouped, result_text, unicode_of, words_of

BOS = "<bos>"
START_OF_TURN_ID = 105
END_OF_TURN_ID = 106

CONTROL_TOKEN = re.compile(
    r"<(?=/?(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image|end_of_image"
    r"|image_soft_token|unused\d+)>)"
)

_TURN_START = "<start_of_turn>"
_TURN_END = "<end_of_turn>\n"
_MODEL_START = f"{_TURN_START}model\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTurn:
    """One turn; `role` is `user` or `model`."""

    role: str
    text: str


def defused(text: str) -> str:
    """Return `text` without control tokens: `<end_of_turn>` becomes `< end_of_turn>`.

    User text, tool data and model text are untrusted. Without this they could close a turn and
    speak in another role. A lone surrogate, which vLLM refuses with HTTP 400, becomes U+FFFD.
    """
    return CONTROL_TOKEN.sub("< ", unicode_of(text))


def render_turns(turns: Iterable[PromptTurn]) -> str:
    """Return the prompt for the model's next turn; neighbours of one role are merged.

    A longer conversation's prompt begins with a shorter one's up to its open model turn, so that
    the server finds it in its prefix cache (up to the end of the text where turns are merged).
    """
    blocks = [
        f"{_TURN_START}{turn.role}\n{defused(turn.text)}{_TURN_END}" for turn in _merged(turns)
    ]
    return BOS + "".join(blocks) + _MODEL_START


class PromptedDialect(Dialect):
    """Speaks with models without a tool format of their own, which are told a `protocol`.

    Instructions and tools stand in the first user turn, the results of calls in a user turn.
    """

    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()
    protocol: str

    @abstractmethod
    def written(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return the lines of the calls of one model message.

        Each as it should have been written, or as it was if that cannot be.
        """

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        preamble = [instructions.strip()] if instructions.strip() else []
        if tools:
            specs = (compact(spec_of(tool)) for tool in tools)
            preamble.append("\n".join([self.protocol, *specs]))
        turns = [PromptTurn(role="user", text="\n\n".join(preamble))] if preamble else []
        for group in grouped(messages):
            match group:
                case UserMessage():
                    turns.append(PromptTurn(role="user", text=words_of(group)))
                case ModelMessage(text=text):
                    turns.append(PromptTurn(role="model", text=text))
                case list():
                    said = [*(call.text for call in group if call.text), *self.written(group)]
                    turns.append(PromptTurn(role="model", text="\n".join(said)))
                    results = "\n".join(
                        f"Result of {call.name or 'the call'}: {result_text(call)}"
                        for call in group
                    )
                    turns.append(PromptTurn(role="user", text=results))
                case _:
                    assert_never(group)
        return render_turns(turns)


def _merged(turns: Iterable[PromptTurn]) -> list[PromptTurn]:
    merged: list[PromptTurn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            text = f"{merged[-1].text}\n\n{turn.text}"
            merged[-1] = PromptTurn(role=turn.role, text=text)
        else:
            merged.append(turn)
    return merged
