"""The `gemma4` dialect: Gemma 4, `<|tool_call>call:f{…}<tool_call|>`, thinking split off.

Source: vLLM's `examples/tool_chat_template_gemma4.jinja` and `vllm/parser/gemma4.py`. Unlike the
template, keys of arguments keep their order (the model's own words stay a prefix), and a
property keeps all of its schema, not only the words that the template knows.

Not checked against a checkpoint, whose weights are gated: the ids of the tokens (so it stops at
texts), `null`, whether models answer better after an empty thinking channel, and whether they
understand the JSON-quoted strings that stand in for those with control tokens. Thinking is never
asked for (`<|think|>`) but always understood.
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
"""Speaks Gemma 4's own format. It stops at texts, because the token ids could not be checked; a
response is opened to wait for one."""
