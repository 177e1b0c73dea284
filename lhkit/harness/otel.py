"""A run as traces of OpenTelemetry, by the semantic conventions for generative AI. Pure.

One trace a conversation: a span for it, one for each turn, request, tool and question to the user.
What is made is OTLP: in JSON, lines of a file as the file exporter of the collector writes them;
in Protobuf, requests that a receiver takes at `/v1/traces`. A receiver need not know JSON, and the
one of Phoenix does not.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from lhkit.errors import MissingPackageError
from lhkit.files import version_of
from lhkit.harness.export.inspect_log import begin_of
from lhkit.harness.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.harness.results import Run
from lhkit.json_values import json_or_repr
from lhkit.text import whole_unicode

_Json: TypeAlias = dict[str, Any]

_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_AGENT = "lhkit"
_UNKNOWN_START = "1970-01-01T00:00:00+00:00"
_IDS = ("traceId", "spanId", "parentSpanId")
_AT_ONCE = 50
"""So many conversations travel in one request."""


def trace_lines(run: Run) -> Iterator[bytes]:
    """Yield the conversations of a run as requests of OTLP in JSON, some of them in each."""
    waiting = iter(run.records)
    while batch := list(islice(waiting, _AT_ONCE)):
        spans = [span for record in batch for span in _Trace(record, run).spans()]
        yield _bytes(_request(spans, run))


def trace_requests(run: Run) -> Iterator[bytes]:
    """Yield what `trace_lines` does in Protobuf, which every receiver of OTLP over HTTP reads.

    Raises:
        MissingPackageError: opentelemetry-proto is not installed.
    """
    try:
        from google.protobuf import json_format
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    except ImportError as error:
        raise MissingPackageError(
            "opentelemetry-proto is not installed: in the clone, `pip install -e '.[export]'`, or "
            "write the traces to a file"
        ) from error
    for line in trace_lines(run):
        told = json.loads(line)
        for span in told["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            span |= {key: _base64(span[key]) for key in _IDS if key in span}
        request = trace_service_pb2.ExportTraceServiceRequest()
        yield json_format.ParseDict(told, request).SerializeToString()


def _base64(digits: str) -> str:
    """Return an id as Protobuf's own JSON has it: OTLP's has hexadecimal digits."""
    return base64.b64encode(bytes.fromhex(digits)).decode()


def _bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return whole_unicode(text).encode()


def _request(spans: list[_Json], run: Run) -> _Json:
    resource = _attributes({"service.name": _AGENT, "lhkit.run": run.name})
    scope = {"name": "lhkit", "version": version_of("lhkit")}
    scoped = [{"scope": scope, "spans": spans}]
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": scoped}]}


def _attributes(told: Mapping[str, Any]) -> list[_Json]:
    """Return attributes as OTLP has them; what is None or empty is left out."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in told.items()
        if value is not None and value not in ("", [])
    ]


def _value(value: Any) -> _Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}


class _Trace:
    """One record on its way: its spans in order of time, with ids that are the same every time."""

    def __init__(self, record: SampleRecord, run: Run) -> None:
        self._record, self._run = record, run
        self._begun = begin_of(record, run).astimezone()
        self._seed = f"{run.name}/{record.sample_id}/{record.content_hash}"
        self._spans: list[_Json] = []
        self._history: list[_Json] = []
        self._calls = 0

    def spans(self) -> list[_Json]:
        """Return the spans of the conversation, its own first."""
        record, judgement = self._record, self._record.judgement
        lasted_s = sum(turn.duration_s for turn in record.evidence.turns)
        told = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": _AGENT,
            "gen_ai.conversation.id": str(record.sample_id),
            "gen_ai.evaluation.name": "lhkit",
            "gen_ai.evaluation.score.label": str(judgement.verdict),
            "gen_ai.evaluation.explanation": "\n".join(judgement.reasons),
            "lhkit.toolset": self._run.toolset,
            "lhkit.locale": record.locale,
            "lhkit.ac": record.ac,
        }
        is_broken = judgement.verdict is Verdict.INVALID and record.evidence.fault is not None
        root = self._span(
            f"invoke_agent {_AGENT}",
            None,
            0.0,
            lasted_s,
            told | ({"error.type": "invalid"} if is_broken else {}),
            fault=record.evidence.fault if is_broken else None,
        )
        at_s = 0.0
        for number, turn in enumerate(record.evidence.turns):
            self._turn(turn, number, root, at_s)
            at_s += turn.duration_s
        return self._spans

    def _span(
        self,
        name: str,
        parent: str | None,
        begun_s: float,
        ended_s: float,
        told: Mapping[str, Any],
        *,
        kind: int = _INTERNAL,
        fault: str | None = None,
    ) -> str:
        """Add a span that lasts between two offsets from the start; return its id."""
        span_id = _hash(f"{self._seed}/{len(self._spans)}", 16)
        status = {"code": _OK} if fault is None else {"code": _ERROR, "message": fault}
        self._spans.append(
            {
                "traceId": _hash(self._seed, 32),
                "spanId": span_id,
                **({"parentSpanId": parent} if parent else {}),
                "name": name,
                "kind": kind,
                "startTimeUnixNano": self._nano(begun_s),
                "endTimeUnixNano": self._nano(max(begun_s, ended_s)),
                "attributes": _attributes(told),
                "status": status,
            }
        )
        return span_id

    def _nano(self, offset_s: float) -> str:
        at = self._begun + timedelta(seconds=offset_s)
        since = at - datetime.fromisoformat(_UNKNOWN_START)
        return str((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000)

    def _turn(self, turn: TurnRecord, number: int, root: str, at_s: float) -> None:
        """Add a turn that began `at_s` seconds after its conversation."""
        told = {
            "lhkit.turn": number,
            "lhkit.ended": str(turn.ended),
            "error.type": turn.cause,
            "lhkit.hint": turn.hint,
        }
        ended_s = at_s + turn.duration_s
        span = self._span(f"turn {number + 1}", root, at_s, ended_s, told, fault=turn.error)
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
        parent: str,
        at_s: float,
    ) -> None:
        """Add a request to the model, if one is told, and what it answered to the history."""
        if request is None and not calls:
            return
        said = "" if request is None else request.response.text
        parts = [*_text(said), *(_tool_call(name, call) for name, call in calls)]
        answer = _message("assistant", parts)
        if request is not None:
            begun_s = at_s + request.offset_s
            model = request.response.identity.model if request.response.identity else ""
            self._span(
                f"chat {model}".rstrip(),
                parent,
                begun_s,
                begun_s + request.duration_s,
                self._asked(request) | {"gen_ai.output.messages": _json([answer])},
                kind=_CLIENT,
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
            "gen_ai.input.messages": _json(self._history),
            "error.type": None if response.reason else "_OTHER",
            "server.address": server.hostname,
            "server.port": server.port,
            "lhkit.dialect": who.dialect if who else None,
        }

    def _called(self, name: str, call: CallRecord, parent: str, at_s: float) -> float:
        """Add a tool's span, with the question to the user inside; return when it was over."""
        ended_s = at_s + call.validation_s + call.waiting_s + call.handler_s
        is_error = call.result.get("status") == "error"
        told = {
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
        span = self._span(f"execute_tool {call.tool}", parent, at_s, ended_s, told, fault=fault)
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


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:digits]


def _message(role: str, parts: Iterable[_Json]) -> _Json:
    return {"role": role, "parts": list(parts)}


def _text(text: str) -> list[_Json]:
    return [{"type": "text", "content": text}] if text else []


def _tool_call(name: str, call: CallRecord) -> _Json:
    return {"type": "tool_call", "id": name, "name": call.tool, "arguments": call.raw_args}


def _json(value: Any) -> str:
    return json_or_repr(value)
