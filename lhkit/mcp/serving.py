"""Serve a toolset as an MCP server, through lhkit's dispatcher and a confirm gate.

The client's user confirms, edits or rejects every write, by elicitation. A write of a client
without elicitation is refused, unless the server was started with writes allowed. Not covered: a
client that answers for its user. An answer is valid once, within an hour, for a question with the
same tool, arguments and summary; any other leads to a new question, and so does an edit, which is
shown before it runs.

A policy of approvals may let writes run without a question. While a question is open it is
suspended, and after any answer but a plain yes until the server ends.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
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

from lhkit.base.json_values import canonical, compact, json_or_repr, plain_json
from lhkit.base.locales import Catalog
from lhkit.base.text import visible
from lhkit.confirm.decision import Approve, Decision, Edit, Reject, changed_arguments
from lhkit.confirm.form import (
    MOST_FIELDS,
    FieldKind,
    Form,
    FormField,
    argument_form,
    edited_arguments,
    parse_value,
)
from lhkit.confirm.gate import ConfirmRequest, InvalidEditError
from lhkit.confirm.policy import ApprovalPolicy, Front, PolicyGate
from lhkit.conversation.tool_results import (
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    result_to_dict,
)
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import Session

_QUESTION = "run"
_WHY = "user_message"
_ARGUMENT = "args."
"""Prefix of the fields in which the user edits arguments."""

_MOST_ASKED = 20
"""How often a write is asked about, with an edit in between."""

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
        policy: lets writes run without a question; see `measured`.
        measured: what is in front, for the policy: model, prompt and dialect are the client's, so
            that only the user can know them.
        report: called with a line for each write that runs without a question.
        clock: monotonic seconds, for the age of a question.
    """

    def __init__(
        self,
        session: Session,
        *,
        name: str,
        catalog: Catalog,
        allow_writes: bool = False,
        policy: ApprovalPolicy | None = None,
        measured: Front = None,
        report: Callable[[str], object] = lambda _line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._catalog = session, catalog
        self._allow_writes = allow_writes
        self._policy, self._measured, self._report = policy, measured, report
        self.is_suspended = False
        """The policy is: a server cannot tell the conversations of its client apart."""
        self.asking = 0
        """The questions for which the client's answer is awaited."""
        self._dispatcher = ToolDispatcher(
            session.registry, catalog=catalog, today=lambda: session.today
        )
        self._question_lock = asyncio.Lock()
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        """The unanswered questions, by token."""
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
                    title=tool.title_in(self._catalog.locale) or None,
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
        pending = self._pending.get(params.request_state or "")
        is_same_tool = pending is not None and pending.request.tool == params.name
        policy_gate = None if self._policy is None else self._policy_gate(self._policy, gate)
        result = await self._dispatcher.dispatch(
            params.name,
            params.arguments or {},
            confirm=policy_gate or gate,
            deps=self._session.assistant.deps,
            asked=pending.request if pending is not None and is_same_tool else None,
        )
        return gate.question or _call_result(result, gate.refusal)

    def _policy_gate(self, policy: ApprovalPolicy, gate: "_ClientGate") -> PolicyGate:
        def ran(request: ConfirmRequest) -> None:
            self._report(f"{request.tool}: {self._catalog.text('policy.ran')}")

        policy_gate = PolicyGate(policy, gate, self._measured, ran=ran)
        # a question without an answer may yet be declined, or was dropped by the client
        policy_gate.is_suspended = self.is_suspended or self.asking > 0 or bool(self._pending)
        return policy_gate

    async def ask(
        self,
        request: ConfirmRequest,
        context: ServerRequestContext[Any],
        params: CallToolRequestParams,
    ) -> Decision | InputRequiredResult | str:
        """Return the decision, a question for the client to ask, or a reason for refusal."""
        if not _supports_forms(context):
            return Approve() if self._allow_writes else self._catalog.text("mcp.cannot_ask")
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._answered(request, params)
        shown = request
        for _ in range(_MOST_ASKED):
            question = self._question(shown)
            async with self._question_lock:
                answer = await context.session.elicit_form(
                    question.message, question.requested_schema, context.request_id
                )
            decision = _decision(answer, request, shown, self._catalog)
            if not isinstance(decision, ConfirmRequest):
                return decision
            shown = decision
        return Reject()

    def _answered(
        self, request: ConfirmRequest, params: CallToolRequestParams
    ) -> Decision | InputRequiredResult:
        """Return the decision that a call brings with it, or a question."""
        pending = self._pending.pop(params.request_state or "", None)
        shown = request
        if pending is not None and self._is_about(pending, request):
            asked = pending.shown
            with suppress(InvalidEditError):  # what the tool accepts may have changed
                if changed_arguments(request.args, asked.args):
                    shown = request.edited(asked.args)
                if shown.texts == asked.texts:
                    answer = (params.input_responses or {}).get(_QUESTION)
                    decision = _decision(answer, request, shown, self._catalog)
                    if not isinstance(decision, ConfirmRequest):
                        return decision
                    shown = decision
        token = secrets.token_urlsafe()
        self._pending[token] = _Pending(request=request, shown=shown, asked_s=self._clock())
        while len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        return InputRequiredResult(
            input_requests={_QUESTION: ElicitRequest(params=self._question(shown))},
            request_state=token,
        )

    def _is_about(self, pending: "_Pending", request: ConfirmRequest) -> bool:
        """Return True if a question was about the same call, and not too long ago."""
        is_late = self._clock() - pending.asked_s >= ANSWER_TIMEOUT_S
        return not is_late and _key(pending.request) == _key(request)

    def _question(self, request: ConfirmRequest) -> ElicitRequestFormParams:
        text = self._catalog.text
        card = f"{request.tool}: {request.heading}"
        lines = [text("confirm.title"), card, *request.texts, request.error]
        why = {"type": "string", "title": text("confirm.why_label")}
        return ElicitRequestFormParams(
            message=visible("\n".join(filter(None, lines))),
            requested_schema={
                "type": "object",
                "properties": {
                    _QUESTION: {"type": "boolean", "title": text("confirm.run")},
                    _WHY: why,
                    **{f"{_ARGUMENT}{field.name}": _property(field) for field in _fields(request)},
                },
                "required": [_QUESTION],
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A question: the request of the call, the one that was shown (it may be edited), and when."""

    request: ConfirmRequest
    shown: ConfirmRequest
    asked_s: float


def _key(request: ConfirmRequest) -> str:
    return canonical([request.tool, request.args, request.summary])


def _fields(request: ConfirmRequest) -> tuple[FormField, ...]:
    """Return the fields of arguments that can be edited, each with its present text."""
    if request.revise is None:
        return ()
    fields = argument_form(request.parameters, request.args).fields
    return fields if len(fields) <= MOST_FIELDS - 2 else ()


_TYPES = {FieldKind.INTEGER: "integer", FieldKind.NUMBER: "number", FieldKind.YES_NO: "boolean"}
_FORMATS = frozenset({"date", "email", "uri"})

_NULL = "/null"
"""What the user types or chooses for null, which a form of MCP does not have."""


def _property(field: FormField) -> dict[str, Any]:
    """Return the schema of a field, with the present value unless it has invisible characters."""
    is_plain = not (field.options or field.is_nullable)
    is_json = field.kind is FieldKind.JSON
    title = f"{field.label} (JSON)" if is_json else field.label
    is_null = field.is_nullable and not is_json
    part: dict[str, Any] = {
        "type": _TYPES.get(field.kind, "string") if is_plain else "string",
        "title": visible(f"{title} ({_NULL} = null)" if is_null else title),
    }
    if part["type"] == "string" and field.kind in (FieldKind.CHOICE, FieldKind.YES_NO):
        part["enum"] = [choice.value for choice in field.choices] + ([_NULL] if is_null else [])
    elif field.format in _FORMATS and is_plain:
        part["format"] = field.format
    typed = _NULL if field.typed is None else field.typed
    if typed and visible(typed) == typed:
        with suppress(ValueError):
            is_typed = part["type"] == "string"
            part["default"] = typed if is_typed else parse_value(field, field.typed)
    return part


def _typed(field: FormField, value: Any) -> str | None:
    """Return the text of a field for a value of an answer."""
    if field.is_nullable and value == _NULL:
        return None
    return value if isinstance(value, str) else json_or_repr(value)


def _decision(
    answer: Any, request: ConfirmRequest, shown: ConfirmRequest, catalog: Catalog
) -> Decision | ConfirmRequest:
    """Return the decision of an answer, or the edited request that has to be shown next."""
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return Reject()
    content = answer.content or {}
    if content.get(_QUESTION) is not True:
        why = content.get(_WHY)
        return Reject(why.strip() if isinstance(why, str) else "")
    fields = _fields(shown)
    names = {_QUESTION, _WHY, *(f"{_ARGUMENT}{field.name}" for field in fields)}
    if unknown := sorted(content.keys() - names):  # its sender meant an edit
        text = catalog.text(
            "mcp.not_asked", names=", ".join(unknown), known=", ".join(sorted(names))
        )
        return replace(shown, error=text)
    sent = {field.name: content.get(f"{_ARGUMENT}{field.name}") for field in fields}
    typed = {
        field.name: _typed(field, sent[field.name])
        for field in fields
        if sent[field.name] not in (None, "")
    }
    done = edited_arguments(Form(fields=fields), typed, shown.args, catalog)
    if done.errors:
        errors = (f"{name}: {error}" for name, error in done.errors.items())
        return replace(shown, error="\n".join(errors))
    if changed_arguments(shown.args, done.values):
        try:
            return shown.edited(done.values)
        except InvalidEditError as error:
            return replace(shown, error=str(error))
    return Edit(shown.args) if changed_arguments(request.args, shown.args) else Approve()


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

    async def confirm(self, request: ConfirmRequest) -> Decision:
        serving, is_suspended = self._serving, True  # also if the call is cancelled meanwhile
        serving.asking += 1
        try:
            answer = await serving.ask(request, self._context, self._params)
            is_suspended = isinstance(answer, Reject | Edit)
        except MCPError as error:  # despite its declared capability
            answer = f"the client could not ask: {error}"
        finally:
            serving.asking -= 1
            serving.is_suspended = serving.is_suspended or is_suspended
        if isinstance(answer, Approve | Reject | Edit):
            return answer
        if isinstance(answer, InputRequiredResult):
            self.question = answer
        else:
            self.refusal = answer
        return Reject()


def _supports_forms(context: ServerRequestContext[Any]) -> bool:
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # without a mode it means forms, the only mode of earlier protocol versions
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _call_result(result: ToolResult, refusal: str) -> CallToolResult:
    extra = {
        key: plain_json(value)
        for key, value in result_to_dict(result).items()
        if key in ("edited", "user_message")
    }
    more = [_text(compact(extra))] if extra else []
    match result:
        case ToolOk(data=data):
            plain: Mapping[str, Any] = plain_json(data)
            return CallToolResult(content=[_text(compact(plain)), *more], structured_content=plain)
        case ToolErr(code=code, reason=reason):
            return CallToolResult(content=[_text(f"{code}: {reason}"), *more], is_error=True)
        case ToolCancelled():
            why = refusal or str(result_to_dict(result)["reason"])
            return CallToolResult(content=[_text(f"cancelled: {why}"), *more], is_error=True)
        case _:
            assert_never(result)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text.encode(errors="replace").decode())
