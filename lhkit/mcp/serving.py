"""lhkit's own tools as an MCP server: through the same dispatcher, and with a gate as everywhere.

Before a write the client's person is asked, by elicitation. A client that cannot ask gets the write
refused, unless whoever started the server said that writes are allowed. Not covered: a client that
answers for its person. What a person approves is what runs: an answer counts once, within an hour,
for one question with the same tool, arguments and summary. Any other leads to a new question.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, assert_never

from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from lhkit.confirm.gate import ConfirmRequest
from lhkit.json_values import canonical, compact, plain_json
from lhkit.locales import Catalog
from lhkit.text import visible
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, result_to_dict
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import Session

_QUESTION = "run"
_MOST_OPEN = 100
"""So many questions wait for a client at most; the oldest is then never answered."""

OPEN_S = 3600.0
"""A later answer is asked again. Seconds."""


class McpServing:
    """A session's tools, as an MCP server.

    Args:
        session: the tools, and what they work on.
        name: what the server calls itself.
        catalog: texts of the questions.
        allow_writes: let a client that cannot ask its person write all the same.
        clock: monotonic seconds, for the age of a question.
    """

    def __init__(
        self,
        session: Session,
        *,
        name: str,
        catalog: Catalog,
        allow_writes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._catalog = session, catalog
        self._allow_writes = allow_writes
        self._dispatcher = ToolDispatcher(session.registry, catalog=catalog)
        self._one_question = asyncio.Lock()
        self._clock = clock
        self._asked: dict[str, tuple[str, float]] = {}  # by state: about what, and when
        self.server: Server[Any] = Server(
            name,
            version=version("lhkit"),
            instructions=session.assistant.instructions or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def run(self) -> None:
        """Serve standard input and output until the client goes away."""
        async with stdio_server() as (heard, spoken):
            await self.server.run(heard, spoken, self.server.create_initialization_options())

    async def _list(
        self, _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=dict(plain_json(tool.parameters)),
                    annotations=ToolAnnotations(
                        read_only_hint=not tool.is_destructive, destructive_hint=tool.is_destructive
                    ),
                )
                for tool in self._session.registry.definitions
            ]
        )

    async def _call(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        gate = _ClientGate(self, context, params)
        result = await self._dispatcher.dispatch(
            params.name,
            params.arguments or {},
            confirm=gate,
            deps=self._session.assistant.deps,
        )
        if gate.question is not None:
            return gate.question
        return _call_result(result, gate.refusal)

    async def allows(
        self,
        request: ConfirmRequest,
        context: ServerRequestContext[Any],
        params: CallToolRequestParams,
    ) -> bool | InputRequiredResult | str:
        """Return a person's answer; or what the client has to ask first, or why nobody asks."""
        if not _can_ask(context):
            return True if self._allow_writes else self._catalog.text("mcp.cannot_ask")
        asked = self._question(request)
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            async with self._one_question:
                answer = await context.session.elicit_form(
                    asked.message, asked.requested_schema, context.request_id
                )
            return _is_yes(answer)
        about = _about(request)
        shown, since_s = self._asked.pop(params.request_state or "", ("", 0.0))
        if shown == about and self._clock() - since_s < OPEN_S:
            return _is_yes((params.input_responses or {}).get(_QUESTION))
        token = secrets.token_urlsafe()
        self._asked[token] = about, self._clock()
        while len(self._asked) > _MOST_OPEN:
            del self._asked[next(iter(self._asked))]
        return InputRequiredResult(
            input_requests={_QUESTION: ElicitRequest(params=asked)}, request_state=token
        )

    def _question(self, request: ConfirmRequest) -> ElicitRequestFormParams:
        title = self._catalog.text("confirm.title")
        field = {"type": "boolean", "title": self._catalog.text("confirm.run")}
        return ElicitRequestFormParams(
            message=visible(f"{title}\n{request.tool}: {request.description}\n{request.summary}"),
            requested_schema={
                "type": "object",
                "properties": {_QUESTION: field},
                "required": [_QUESTION],
            },
        )


class _ClientGate:
    """The gate of one call; keeps what stands in its way."""

    def __init__(
        self,
        serving: McpServing,
        context: ServerRequestContext[Any],
        params: CallToolRequestParams,
    ) -> None:
        self._serving, self._context, self._params = serving, context, params
        self.question: InputRequiredResult | None = None
        self.refusal = ""

    async def confirm(self, request: ConfirmRequest) -> bool:
        try:
            answer = await self._serving.allows(request, self._context, self._params)
        except MCPError as error:  # it said that it could ask
            answer = f"the client could not ask: {error}"
        match answer:
            case bool():
                return answer
            case InputRequiredResult():
                self.question = answer
            case str():
                self.refusal = answer
            case _:
                assert_never(answer)
        return False


def _can_ask(context: ServerRequestContext[Any]) -> bool:
    capabilities = context.session.client_capabilities
    asks = None if capabilities is None else capabilities.elicitation
    # one that names no mode has forms: that was all there was
    return asks is not None and (asks.form is not None or asks.url is None)


def _is_yes(answer: Any) -> bool:
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return False
    return (answer.content or {}).get(_QUESTION) is True


def _about(request: ConfirmRequest) -> str:
    return canonical([request.tool, request.args, request.summary])


def _call_result(result: ToolResult, refusal: str) -> CallToolResult:
    match result:
        case ToolOk(data=data):
            plain: Mapping[str, Any] = plain_json(data)
            return CallToolResult(content=[_text(compact(plain))], structured_content=plain)
        case ToolErr(code=code, reason=reason):
            return CallToolResult(content=[_text(f"{code}: {reason}")], is_error=True)
        case ToolCancelled():
            why = refusal or str(result_to_dict(result)["reason"])
            return CallToolResult(content=[_text(f"cancelled: {why}")], is_error=True)
        case _:
            assert_never(result)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text.encode(errors="replace").decode())
