"""Exporting a run as OpenTelemetry traces, by the semantic conventions for generative AI.

Each conversation is one trace, with spans for turns, requests, tool calls and confirmations. The
SDK encodes them as OTLP: JSON lines in the format of the collector's file exporter, or Protobuf
requests for a receiver at `/v1/traces`.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from lhkit.base.errors import importing
from lhkit.base.files import installed_version
from lhkit.base.json_values import json_or_repr
from lhkit.base.text import whole_unicode
from lhkit.chat.truth import truth_kind
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.exports.conversation import call_id, json_bytes
from lhkit.harness.exports.inspect_log import start_of
from lhkit.harness.records.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    TurnRecord,
    Verdict,
)
from lhkit.harness.records.transcript import catalog_of, turn_truth
from lhkit.harness.results.results import Run

_Json: TypeAlias = dict[str, Any]

_AGENT = "lhkit"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_IDS = ("traceId", "spanId", "parentSpanId")
_BATCH_SIZE = 50
"""Conversations per request."""


def trace_lines(run: Run) -> Iterator[bytes]:
    """Yield the conversations of a run as OTLP requests in JSON, several in each.

    Raises:
        MissingPackageError: the SDK is not installed.
    """
    with importing("eval"):
        from google.protobuf import json_format
    for request in _requests(run):
        line = json_format.MessageToDict(request, use_integers_for_enums=True)
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for key in filter(span.get, _IDS):  # as Base64 in Protobuf's JSON
                span[key] = base64.b64decode(span[key]).hex()
        yield json_bytes(line)


def trace_requests(run: Run) -> Iterator[bytes]:
    """Yield the conversations of a run as OTLP requests in Protobuf.

    Raises:
        MissingPackageError: the SDK is not installed.
    """
    for request in _requests(run):
        yield request.SerializeToString()


def _requests(run: Run) -> Iterator[Any]:
    with importing("eval"):
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    ids, finished = _Ids(), InMemorySpanExporter()
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": _AGENT, "lhkit.run": whole_unicode(run.name)}),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("lhkit", installed_version("lhkit"))
    records = iter(run.records)
    while batch := list(islice(records, _BATCH_SIZE)):
        for record in batch:
            ids.begin(f"{run.name}/{record.sample_id}/{record.content_hash}")
            _Trace(record, run, tracer).add()
        yield encode_spans(finished.get_finished_spans())
        finished.clear()


class _Ids:
    """An id generator for the SDK: a conversation gets the same ids in every export."""

    def begin(self, seed: str) -> None:
        self._seed, self._spans = seed, count()

    def generate_trace_id(self) -> int:
        return _hash(self._seed, 32)

    def generate_span_id(self) -> int:
        return _hash(f"{self._seed}/{next(self._spans)}", 16)

    def is_trace_id_random(self) -> bool:
        return False


class _Trace:
    """Creates the spans of one record, in order of time."""

    def __init__(self, record: SampleRecord, run: Run, tracer: Any) -> None:
        self._record, self._run, self._tracer = record, run, tracer
        self._begun = start_of(record, run).astimezone()
        self._history: list[_Json] = []
        self._calls = 0

    def add(self) -> None:
        """Create the spans, beginning with that of the conversation."""
        record, score = self._record, self._record.score
        duration_s = sum(turn.duration_s for turn in record.trajectory.turns)
        is_broken = score.verdict is Verdict.INVALID and record.trajectory.error is not None
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": _AGENT,
            "gen_ai.conversation.id": str(record.sample_id),
            "gen_ai.evaluation.name": "lhkit",
            "gen_ai.evaluation.score.label": str(score.verdict),
            "gen_ai.evaluation.explanation": "\n".join(score.reasons),
            "error.type": "invalid" if is_broken else None,
            "lhkit.toolset": self._run.toolset,
            "lhkit.locale": record.locale,
            "lhkit.ac": record.ac,
        }
        error_text = record.trajectory.error if is_broken else None
        root = self._span(
            f"invoke_agent {_AGENT}", None, 0.0, duration_s, attributes, error_text=error_text
        )
        at_s = 0.0
        for number, turn in enumerate(record.trajectory.turns):
            self._add_turn(turn, number, root, at_s)
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
        error_text: str | None = None,
    ) -> Any:
        """Create a finished span between two offsets from the start of the conversation.

        Attributes that are None or empty are omitted.
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
        error = Status(StatusCode.ERROR, whole_unicode(error_text or ""))
        span.set_status(Status(StatusCode.OK) if error_text is None else error)
        span.end(self._nano(max(begun_s, ended_s)))
        return span

    def _nano(self, offset_s: float) -> int:
        elapsed = self._begun + timedelta(seconds=offset_s) - _EPOCH
        return elapsed // timedelta(microseconds=1) * 1_000

    def _add_turn(self, turn: TurnRecord, number: int, root: Any, at_s: float) -> None:
        """Add the span of a turn that began `at_s` seconds after the conversation."""
        attributes = {
            "lhkit.turn": number,
            "lhkit.ended": str(turn.ended),
            "error.type": turn.cause,
            "lhkit.notice": turn.notice,
            "lhkit.truth": turn_truth(turn, catalog_of(self._record)),
        }
        ended_s = at_s + turn.duration_s
        span = self._span(
            f"turn {number + 1}", root, at_s, ended_s, attributes, error_text=turn.error
        )
        self._history.append(_message("user", _text(turn.user)))
        for index, request in ((None, None), *enumerate(turn.model_calls)):
            calls = [call for call in turn.calls if call.model_call == index]
            begun_s = at_s if request is None else at_s + request.offset_s + request.duration_s
            named = [(call_id(n), call) for n, call in enumerate(calls, start=self._calls)]
            self._calls += len(calls)
            self._add_request(request, named, span, at_s)
            for name, call in named:
                begun_s = self._add_call(name, call, span, begun_s)

    def _add_request(
        self,
        request: ModelCallRecord | None,
        calls: list[tuple[str, CallRecord]],
        parent: Any,
        at_s: float,
    ) -> None:
        """Add the span of a request, if there is one, and its response to the history."""
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
        response = _message("assistant", parts)
        if request is not None:
            begun_s = at_s + request.offset_s
            model = request.response.identity.model if request.response.identity else ""
            self._span(
                f"chat {model}".rstrip(),
                parent,
                begun_s,
                begun_s + request.duration_s,
                self._request_attributes(request)
                | {"gen_ai.output.messages": json_or_repr([response])},
                is_client=True,
                error_text=None if request.response.reason else "the response was interrupted",
            )
        self._history.append(response)

    def _request_attributes(self, request: ModelCallRecord) -> _Json:
        response = request.response
        identity, usage = response.identity, response.usage
        server = urlsplit(identity.base_url.split(" ")[0] if identity else "")
        sampling = [*self._run.manifest.sampling, {}][0]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": identity.server if identity and identity.server else _AGENT,
            "gen_ai.request.model": identity.model if identity else None,
            "gen_ai.response.model": identity.model if identity else None,
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
            "lhkit.dialect": identity.dialect if identity else None,
        }

    def _add_call(self, name: str, call: CallRecord, parent: Any, at_s: float) -> float:
        """Add the span of a tool call with that of its confirmation; return when it ended."""
        ended_s = at_s + call.validation_s + call.waiting_s + call.handler_s
        is_error = call.result.get("status") == "error"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": name,
            "gen_ai.tool.call.arguments": json_or_repr(call.effective_args),
            "gen_ai.tool.call.result": json_or_repr(dict(call.result)),
            "error.type": call.outcome if is_error else None,
            "lhkit.outcome": call.outcome,
            "lhkit.ran": call.ran,
            "lhkit.destructive": call.destructive,
            "lhkit.truth": truth_kind(call.to_message()),
            "lhkit.min_logprob": call.min_logprob,
            "lhkit.mean_logprob": call.mean_logprob,
            # without a card there is no span of a question to have it
            "lhkit.confirm.gate": str(call.gate) if call.gate is GateOutcome.POLICY else None,
        }
        error_text = str(call.result.get("reason", call.outcome)) if is_error else None
        span = self._span(
            f"execute_tool {call.tool}", parent, at_s, ended_s, attributes, error_text=error_text
        )
        if call.gate.was_asked:
            confirm_s = at_s + call.validation_s
            attributes = {
                "gen_ai.tool.call.id": name,
                "lhkit.confirm.gate": str(call.gate),
                "lhkit.confirm.answer": call.answer,
                "lhkit.confirm.summary": call.summary,
                "lhkit.confirm.reason": call.reason,
                "lhkit.confirm.edited": json_or_repr(call.edited) if call.is_edited else None,
            }
            ended_confirm_s = confirm_s + call.waiting_s
            self._span(f"confirm {call.tool}", span, confirm_s, ended_confirm_s, attributes)
        response = {"type": "tool_call_response", "id": name, "response": dict(call.result)}
        self._history.append(_message("tool", [response]))
        return ended_s


def _hash(text: str, digits: int) -> int:
    return int(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:digits], 16)


def _message(role: str, parts: Iterable[_Json]) -> _Json:
    return {"role": role, "parts": list(parts)}


def _text(text: str) -> list[_Json]:
    return [{"type": "text", "content": text}] if text else []
