"""Serve a toolset as an MCP server, through lhkit's dispatcher and a confirm gate.

The client's user confirms every write, by elicitation. A write of a client without elicitation is
refused, unless the server was started with writes allowed. Not covered: a client that answers for
its user. An answer is valid once, within an hour, for a question with the same tool, arguments and
summary; any other leads to a new question.
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
_MAX_PENDING = 100
"""The most unanswered questions kept; the oldest is dropped, and asked again."""

ANSWER_TIMEOUT_S = 3600.0
"""A question answered later than this is asked again."""


class McpServing:
    """An MCP server with the tools of a session.

    Args:
        session: the session whose tools are served.
        name: the server's name.
        catalog: texts of the questions.
        allow_writes: allow writes of clients without elicitation.
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
        self._question_lock = asyncio.Lock()
        self._clock = clock
        self._pending: dict[str, tuple[str, float]] = {}  # request key and time, by token
        self.server: Server[Any] = Server(
            name,
            version=version("lhkit"),
            instructions=session.assistant.instructions or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def run(self) -> None:
        """Serve standard input and output until the client goes away."""
        async with stdio_server() as (read_stream, write_stream):
            options = self.server.create_initialization_options()
            await self.server.run(read_stream, write_stream, options)

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

    async def ask(
        self,
        request: ConfirmRequest,
        context: ServerRequestContext[Any],
        params: CallToolRequestParams,
    ) -> bool | InputRequiredResult | str:
        """Return the user's answer, a question for the client to ask, or a reason for refusal."""
        if not _supports_forms(context):
            return True if self._allow_writes else self._catalog.text("mcp.cannot_ask")
        question = self._question(request)
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            async with self._question_lock:
                answer = await context.session.elicit_form(
                    question.message, question.requested_schema, context.request_id
                )
            return _is_yes(answer)
        key = canonical([request.tool, request.args, request.summary])
        asked_key, asked_s = self._pending.pop(params.request_state or "", ("", 0.0))
        if asked_key == key and self._clock() - asked_s < ANSWER_TIMEOUT_S:
            return _is_yes((params.input_responses or {}).get(_QUESTION))
        token = secrets.token_urlsafe()
        self._pending[token] = key, self._clock()
        while len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        return InputRequiredResult(
            input_requests={_QUESTION: ElicitRequest(params=question)}, request_state=token
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
    """The confirm gate of one call; keeps the pending question or the reason for refusal."""

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
            answer = await self._serving.ask(request, self._context, self._params)
        except MCPError as error:  # despite its declared capability
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


def _supports_forms(context: ServerRequestContext[Any]) -> bool:
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # without a mode it means forms, the only mode of earlier protocol versions
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _is_yes(answer: Any) -> bool:
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return False
    return (answer.content or {}).get(_QUESTION) is True


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
