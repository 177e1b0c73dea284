"""The `functiongemma` dialect: FunctionGemma 270M, `<start_function_call>call:f{…}`.

Rendered here and not by vLLM, whose example template is not the trained format and whose parser
loses numbers and booleans. Sources: the prompts that Google's notebooks print (gemma-cookbook), the
formatting page, and the port of the checkpoint's `chat_template.jinja` in BFCL. Google's data end
the developer text with one sentence, which the template does not add: it is added here if the
instructions lack it.

Not verified against the checkpoint, which is gated: the token ids, and `null`.
"""

import re

from lhkit.models.dialects.marked import MarkedDialect
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.turns import CONTROL_TOKEN, END_OF_TURN_ID, START_OF_TURN_ID

FUNCTIONGEMMA_MARKUP = Markup(
    turn=("<start_of_turn>", "<end_of_turn>"),
    system_role="developer",
    sentence="You are a model that can do function calling with the following functions",
    declaration=("<start_function_declaration>", "<end_function_declaration>"),
    call=("<start_function_call>", "<end_function_call>"),
    response=("<start_function_response>", "<end_function_response>"),
    quote="<escape>",
    control=re.compile(
        CONTROL_TOKEN.pattern
        + r"|<(?=/?(?:(?:start|end)_function_(?:declaration|call|response)|escape)>)"
    ),
    describes_every_property=True,
    skips_standard_names=True,
    declares_nullable=False,
    declares_responses=False,
    has_tool_role=True,
)

FUNCTIONGEMMA = MarkedDialect(
    name="functiongemma",
    markup=FUNCTIONGEMMA_MARKUP,
    stop_token_ids=(START_OF_TURN_ID, END_OF_TURN_ID),
    stop_texts=(FUNCTIONGEMMA_MARKUP.response[0],),
)
"""FunctionGemma's native format; the model opens a response to request one, so that stops it."""
