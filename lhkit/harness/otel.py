"""A run as traces of OpenTelemetry, by the semantic conventions for generative AI.

One trace a conversation: a span for it, one for each turn, request, tool and question to the user.
The SDK makes the spans and encodes them as OTLP: in JSON, lines of a file as the file exporter of
the collector writes them; in Protobuf, requests that a receiver takes at `/v1/traces`.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from lhkit.errors import MissingPackageError
from lhkit.files import installed_version
from lhkit.harness.export.conversation import json_bytes
from lhkit.harness.export.inspect_log import begin_of
from lhkit.harness.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.harness.results import Run
from lhkit.json_values import json_or_repr
from lhkit.text import whole_unicode

_Json: TypeAlias = dict[str, Any]

_AGENT = "lhkit"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_IDS = ("traceId", "spanId", "parentSpanId")
_AT_ONCE = 50
"""So many conversations travel in one request."""


def trace_lines(run: Run) -> Iterator[bytes]:
    """Yield the conversations of a run as requests of OTLP in JSON, some of them in each.

    Raises:
        MissingPackageError: the SDK is not installed.
    """
    for request in _requests(run):
        from google.protobuf import json_format

        line = json_format.MessageToDict(request, use_integers_for_enums=True)
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for key in filter(span.get, _IDS):  # Protobuf's own JSON has them in Base64
                span[key] = base64.b64decode(span[key]).hex()
        yield json_bytes(line)


def trace_requests(run: Run) -> Iterator[bytes]:
    """Yield what `trace_lines` does in Protobuf, which every receiver of OTLP over HTTP reads.

    Raises:
        MissingPackageError: the SDK is not installed.
    """
    for request in _requests(run):
        yield request.SerializeToString()


def _requests(run: Run) -> Iterator[Any]:
    try:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise MissingPackageError(
            "OpenTelemetry's SDK is not installed: `pip install 'lhkit[export]'`"
        ) from error
    ids, finished = _Ids(), InMemorySpanExporter()
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": _AGENT, "lhkit.run": whole_unicode(run.name)}),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("lhkit", installed_version("lhkit"))
    waiting = iter(run.records)
    while batch := list(islice(waiting, _AT_ONCE)):
        for record in batch:
            ids.begin(f"{run.name}/{record.sample_id}/{record.content_hash}")
            _Trace(record, run, tracer).add()
        yield encode_spans(finished.get_finished_spans())
        finished.clear()


class _Ids:
    """The SDK's source of ids: those of a conversation are the same every time."""

    def begin(self, seed: str) -> None:
        self._seed, self._spans = seed, count()

    def generate_trace_id(self) -> int:
        return _hash(self._seed, 32)

    def generate_span_id(self) -> int:
        return _hash(f"{self._seed}/{next(self._spans)}", 16)

    def is_trace_id_random(self) -> bool:
        return False


class _Trace:
    """One record on its way: its spans in order of time."""

    def __init__(self, record: SampleRecord, run: Run, tracer: Any) -> None:
        self._record, self._run, self._tracer = record, run, tracer
        self._begun = begin_of(record, run).astimezone()
        self._history: list[_Json] = []
        self._calls = 0

    def add(self) -> None:
        """Make the spans of the conversation, its own first."""
        record, judgement = self._record, self._record.judgement
        lasted_s = sum(turn.duration_s for turn in record.evidence.turns)
        is_broken = judgement.verdict is Verdict.INVALID and record.evidence.fault is not None
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": _AGENT,
            "gen_ai.conversation.id": str(record.sample_id),
            "gen_ai.evaluation.name": "lhkit",
            "gen_ai.evaluation.score.label": str(judgement.verdict),
            "gen_ai.evaluation.explanation": "\n".join(judgement.reasons),
            "error.type": "invalid" if is_broken else None,
            "lhkit.toolset": self._run.toolset,
            "lhkit.locale": record.locale,
            "lhkit.ac": record.ac,
        }
        fault = record.evidence.fault if is_broken else None
        root = self._span(f"invoke_agent {_AGENT}", None, 0.0, lasted_s, attributes, fault=fault)
        at_s = 0.0
        for number, turn in enumerate(record.evidence.turns):
            self._turn(turn, number, root, at_s)
            at_s += turn.duration_s

    def _span(
        self,
        name: str,
        parent: Any,
        begun_s: float,
        ended_s: float,
        attributes: Mapping[str, Any],
        *,
        is_client: bool = False,
        fault: str | None = None,
    ) -> Any:
        """Return a finished span that lasts between two offsets from the start.

        Attributes that are None or empty are left out.
        """
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            whole_unicode(name),
            context=Context() if parent is None else set_span_in_context(parent, Context()),
            kind=SpanKind.CLIENT if is_client else SpanKind.INTERNAL,
            attributes={
                key: whole_unicode(value) if isinstance(value, str) else value
                for key, value in attributes.items()
                if value is not None and value not in ("", [])
            },
            start_time=self._nano(begun_s),
        )
        bad = Status(StatusCode.ERROR, whole_unicode(fault or ""))
        span.set_status(Status(StatusCode.OK) if fault is None else bad)
        span.end(self._nano(max(begun_s, ended_s)))
        return span

    def _nano(self, offset_s: float) -> int:
        since = self._begun + timedelta(seconds=offset_s) - _EPOCH
        return since // timedelta(microseconds=1) * 1_000

    def _turn(self, turn: TurnRecord, number: int, root: Any, at_s: float) -> None:
        """Add a turn that began `at_s` seconds after its conversation."""
        attributes = {
            "lhkit.turn": number,
            "lhkit.ended": str(turn.ended),
            "error.type": turn.cause,
            "lhkit.hint": turn.hint,
        }
        ended_s = at_s + turn.duration_s
        span = self._span(f"turn {number + 1}", root, at_s, ended_s, attributes, fault=turn.error)
        self._history.append(_message("user", _text(turn.user)))
        sent: list[ModelCallRecord | None] = [None, *turn.model_calls]
        for index, request in enumerate(sent):
            of = None if request is None else index - 1
            calls = [call for call in turn.calls if call.model_call == of]
            begun_s = at_s if request is None else at_s + request.offset_s + request.duration_s
            names = [f"call{self._calls + n:05d}" for n in range(len(calls))]
            self._calls += len(calls)
            self._requested(request, list(zip(names, calls, strict=True)), span, at_s)
            for name, call in zip(names, calls, strict=True):
                begun_s = self._called(name, call, span, begun_s)

    def _requested(
        self,
        request: ModelCallRecord | None,
        calls: list[tuple[str, CallRecord]],
        parent: Any,
        at_s: float,
    ) -> None:
        """Add a request to the model, if there is one, and what it answered to the history."""
        if request is None and not calls:
            return
        text = "" if request is None else request.response.text
        parts = [
            *_text(text),
            *(
                {"type": "tool_call", "id": name, "name": call.tool, "arguments": call.raw_args}
                for name, call in calls
            ),
        ]
        answer = _message("assistant", parts)
        if request is not None:
            begun_s = at_s + request.offset_s
            model = request.response.identity.model if request.response.identity else ""
            self._span(
                f"chat {model}".rstrip(),
                parent,
                begun_s,
                begun_s + request.duration_s,
                self._asked(request) | {"gen_ai.output.messages": json_or_repr([answer])},
                is_client=True,
                fault=None if request.response.reason else "the answer broke off",
            )
        self._history.append(answer)

    def _asked(self, request: ModelCallRecord) -> _Json:
        """Return what the conventions say of a request."""
        response = request.response
        who, usage = response.identity, response.usage
        server = urlsplit(who.base_url.split(" ")[0] if who else "")
        sampling = [*self._run.manifest.get("sampling", ()), {}][0]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": who.server if who and who.server else _AGENT,
            "gen_ai.request.model": who.model if who else None,
            "gen_ai.response.model": who.model if who else None,
            "gen_ai.request.temperature": sampling.get("temperature"),
            "gen_ai.request.max_tokens": sampling.get("max_tokens"),
            "gen_ai.conversation.id": str(self._record.sample_id),
            "gen_ai.response.finish_reasons": [response.reason] if response.reason else [],
            "gen_ai.response.time_to_first_chunk": response.timing.first_token_s,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.input.messages": json_or_repr(self._history),
            "error.type": None if response.reason else "_OTHER",
            "server.address": server.hostname,
            "server.port": server.port,
            "lhkit.dialect": who.dialect if who else None,
        }

    def _called(self, name: str, call: CallRecord, parent: Any, at_s: float) -> float:
        """Add a tool's span, with the question to the user inside; return when it was over."""
        ended_s = at_s + call.validation_s + call.waiting_s + call.handler_s
        is_error = call.result.get("status") == "error"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": name,
            "gen_ai.tool.call.arguments": json_or_repr(call.raw_args),
            "gen_ai.tool.call.result": json_or_repr(dict(call.result)),
            "error.type": call.outcome if is_error else None,
            "lhkit.outcome": call.outcome,
            "lhkit.ran": call.ran,
            "lhkit.destructive": call.destructive,
        }
        fault = str(call.result.get("reason", call.outcome)) if is_error else None
        span = self._span(
            f"execute_tool {call.tool}", parent, at_s, ended_s, attributes, fault=fault
        )
        if call.gate.was_asked:
            asked_s = at_s + call.validation_s
            question = {
                "gen_ai.tool.call.id": name,
                "lhkit.confirm.gate": str(call.gate),
                "lhkit.confirm.answer": call.answer,
                "lhkit.confirm.summary": call.summary,
            }
            self._span(f"confirm {call.tool}", span, asked_s, asked_s + call.waiting_s, question)
        response = {"type": "tool_call_response", "id": name, "response": dict(call.result)}
        self._history.append(_message("tool", [response]))
        return ended_s


def _hash(text: str, digits: int) -> int:
    return int(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:digits], 16)


def _message(role: str, parts: Iterable[_Json]) -> _Json:
    return {"role": role, "parts": list(parts)}


def _text(text: str) -> list[_Json]:
    return [{"type": "text", "content": text}] if text else []
