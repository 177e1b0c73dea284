"""Ask a server for a tool call, to learn whether it parses calls itself.

A server may refuse tools, or accept and ignore them: only a call in its answer shows that it parses
calls. The first request leaves the choice to the model; if it answers with plain text, a second one
requires a call.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace

from lhkit.base.errors import RequestRefusedError, ServerFailedError, StreamBrokenError
from lhkit.conversation.messages import ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity, Sampling, ThinkingDelta
from lhkit.conversation.tool_results import ToolOk
from lhkit.conversation.tool_spec import ToolSpec
from lhkit.models.base import ModelRequest
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.request import OPENAI
from lhkit.models.client.transport import Connection
from lhkit.models.decoding import Constraint

_MAX_TOKENS = 256
_KEY_STATUSES = frozenset({401, 403})
_TOOL = ToolSpec(
    name="get_time",
    description="Return the current time in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city."}},
        "required": ["city"],
    },
)
PROBE_TOOLS = (_TOOL,)
PROBE_MESSAGES = (
    UserMessage(text="What time is it in Seoul?"),
    ToolCallMessage.of(
        name="get_time", args={"city": "Seoul"}, result=ToolOk({"time": "09:00", "is_dst": False})
    ),
    ModelMessage(text="It is 09:00."),
    UserMessage(text="And in Busan?"),
)
"""A conversation with a call, to try how a template renders one."""
_QUESTION = "Call the tool get_time for the city Seoul."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Whether a server parses calls; if not, why."""

    is_parsing: bool
    reason: str = ""


async def probe_calls(identity: ModelIdentity, connection: Connection) -> ProbeResult:
    """Return whether a server parses the tool calls of its model.

    Raises:
        ModelError: the server does not answer, is overloaded, or refuses the key or the model.
    """
    constraints: tuple[Constraint, ...] = ("off", "required")
    for constraint in constraints:
        asked = replace(identity, dialect=OPENAI, constraint=constraint)
        try:
            response, is_thinking = await _request(OpenAiHttp(asked, connection))
        except (RequestRefusedError, ServerFailedError, StreamBrokenError) as error:
            if getattr(error.__cause__, "status", None) in _KEY_STATUSES:
                raise
            return ProbeResult(is_parsing=False, reason=str(error))
        if response.calls or response.fragment:
            return ProbeResult(is_parsing=True)
        # a thinking model may need more tokens than a probe has: the server took the tools
        if response.truncated and (is_thinking or response.text.lstrip().startswith("<think")):
            return ProbeResult(is_parsing=True)
    return ProbeResult(is_parsing=False, reason="it answered with text when a call was required")


async def _request(model: OpenAiHttp) -> tuple[Finished, bool]:
    request = ModelRequest(
        messages=(UserMessage(text=_QUESTION),),
        tools=(_TOOL,),
        sampling=Sampling(max_tokens=_MAX_TOKENS),
    )
    is_thinking = False
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            is_thinking = is_thinking or isinstance(event, ThinkingDelta)
            if isinstance(event, Finished):
                return event, is_thinking
    raise AssertionError("a stream ends with Finished or raises")
