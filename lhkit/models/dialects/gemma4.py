"""The `gemma4` dialect: Gemma 4, `<|tool_call>call:f{…}<tool_call|>`, thinking split off.

Source: Google's chat template of 2026-07-09, the newest of the five revisions that TRL has copies
of. Results are given to it as `tool_responses` of the model's message, the only form that every
revision renders as data.

Not verified against a checkpoint, which is gated: the token ids (so it stops at texts), and whether
an empty thinking channel improves answers. Thinking is never requested (`<|think|>`) and left out
of the history, but always parsed.
"""

import re

from lhkit.models.dialects.marked import MarkedDialect
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.turns import CONTROL_TOKEN

GEMMA4_MARKUP = Markup(
    turn=("<|turn>", "<turn|>"),
    system_role="system",
    declaration=("<|tool>", "<tool|>"),
    call=("<|tool_call>", "<tool_call|>"),
    response=("<|tool_response>", "<tool_response|>"),
    quote='<|"|>',
    thinking=(("<|channel>thought\n", "<|channel>"), "<channel|>"),
    control=re.compile(CONTROL_TOKEN.pattern + r"|<(?=\|[^<>\s]{1,40}>)|<(?=[^<>|\s]{1,40}\|>)"),
)

GEMMA4 = MarkedDialect(
    name="gemma4",
    markup=GEMMA4_MARKUP,
    stop_texts=(GEMMA4_MARKUP.turn[1], GEMMA4_MARKUP.turn[0], GEMMA4_MARKUP.response[0]),
)
"""Gemma 4's native format; the model opens a response to request one, so that stops it."""
