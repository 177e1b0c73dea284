"""Gemma 3's turn markup: roles alternate, one `<bos>`, and nobody else may write control tokens.

Everything inside a turn is defused here, in one place, so that no caller can forget it.

Source: Gemma 3's formatting (user and model turns only; the system text opens the first user
turn). Not a chat template: it is rendered here so that the prompt is ours to the byte.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

BOS = "<bos>"
START_OF_TURN_ID = 105
END_OF_TURN_ID = 106

CONTROL_TOKEN = re.compile(
    r"<(?=/?(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image|end_of_image"
    r"|image_soft_token|unused\d+)>)"
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TURN_END = "<end_of_turn>\n"
_MODEL_START = "<start_of_turn>model\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn; `role` is `user` or `model`."""

    role: str
    text: str


def defused(text: str) -> str:
    """Return `text` without control tokens: `<end_of_turn>` becomes `< end_of_turn>`.

    User text, tool data and model text are untrusted. Without this they could close a turn and
    speak in another role. A lone surrogate, which vLLM refuses with HTTP 400, becomes U+FFFD.
    """
    return CONTROL_TOKEN.sub("< ", _LONE_SURROGATE.sub("\ufffd", text))


def render_turns(turns: Iterable[Turn]) -> str:
    """Return the prompt for the model's next turn; neighbours of one role are merged.

    A longer conversation's prompt begins with a shorter one's up to its open model turn, so that
    the server finds it in its prefix cache (up to the end of the text where turns are merged).
    """
    blocks = [
        f"<start_of_turn>{turn.role}\n{defused(turn.text)}{_TURN_END}" for turn in _merged(turns)
    ]
    return BOS + "".join(blocks) + _MODEL_START


def _merged(turns: Iterable[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            text = f"{merged[-1].text}\n\n{turn.text}"
            merged[-1] = Turn(role=turn.role, text=text)
        else:
            merged.append(turn)
    return merged
