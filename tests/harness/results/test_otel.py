"""Traces of OpenTelemetry, read by its own classes and taken by a receiver on this machine."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from lhkit.commands.export import ExportOptions, export_run
from lhkit.errors import RunError
from lhkit.harness.scenario import Scenario
from lhkit.settings import load_settings
from tests.harness.results.test_export import SCRIPT, TALK, played, record, run_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

Load = Callable[[str], tuple[Scenario, ...]]

KNOWN = {
    value
    for name, value in vars(gen_ai_attributes).items()
    if name.startswith("GEN_AI") and isinstance(value, str)
}


def parsed(body: bytes) -> ExportTraceServiceRequest:
    """Return a request as OpenTelemetry's own class reads it; OTLP's JSON has hexadecimal ids."""
    told = json.loads(body)
    for span in (s for r in told["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = _base64(span[key])
    return json_format.ParseDict(told, ExportTraceServiceRequest())


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def spans_in(body: bytes) -> list[Span]:
    return [s for r in parsed(body).resource_spans for c in r.scope_spans for s in c.spans]


def told(span: Span) -> Mapping[str, Any]:
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value")))
        for each in span.attributes
    }


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """Yield the address of a receiver, and what it got: path, kind of content, body."""
    got: list[tuple[str, str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], body))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.promise("export.otel")
async def test_a_conversation_is_one_trace_with_requests_tools_and_what_the_user_was_asked(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await played(load(TALK), SCRIPT, toolset, tmp_path / "run")
    file = tmp_path / "traces.jsonl"
    await export_run(ExportOptions(folder=run, otel=str(file)), load_settings())
    (line,) = file.read_bytes().splitlines()
    spans = spans_in(line)
    assert len({span.trace_id for span in spans}) == 1
    assert [span.name for span in spans] == [
        "invoke_agent lhkit",
        *("turn 1", "chat scripted", "execute_tool find_notes", "chat scripted"),
        *("turn 2", "chat scripted", "execute_tool add_note", "confirm add_note", "chat scripted"),
        *("turn 3", "chat scripted", "execute_tool add_note", "confirm add_note", "chat scripted"),
    ]
    by_id = {span.span_id: span for span in spans}
    parents = [by_id[s.parent_span_id].name for s in spans if s.parent_span_id]
    assert parents.count("invoke_agent lhkit") == 3
    assert parents.count("execute_tool add_note") == 2
    for span in spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span.parent_span_id:
            assert by_id[span.parent_span_id].start_time_unix_nano <= span.start_time_unix_nano
        assert {key for key in told(span) if key.startswith("gen_ai.")} <= KNOWN
    asked = [told(span) for span in spans if span.name.startswith("confirm")]
    assert [each["lhkit.confirm.gate"] for each in asked] == ["accepted", "rejected"]
    requests = [told(span) for span in spans if span.name == "chat scripted"]
    last = json.loads(requests[-1]["gen_ai.input.messages"])
    assert [each["role"] for each in last].count("tool") == 3
    assert last[-1]["parts"][0]["response"]["status"] == "cancelled"
    for one, other in pairwise(requests[:2]):
        assert len(one["gen_ai.input.messages"]) < len(other["gen_ai.input.messages"])
    assert "우유가 있어요" in requests[1]["gen_ai.output.messages"]
    assert told(spans[0])["gen_ai.evaluation.score.label"] == "pass"


@pytest.mark.promise("export.otel")
async def test_a_receiver_gets_what_the_file_would_hold_some_conversations_at_a_time(
    tmp_path: Path,
) -> None:
    folder = run_of(tmp_path / "run", *(record(f"s{number}") for number in range(120)))
    file = tmp_path / "new" / "traces.jsonl"
    with receiver() as (address, got):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
    await export_run(ExportOptions(folder=folder, otel=str(file)), load_settings())
    assert [(path, kind) for path, kind, _ in got] == [("/v1/traces", "application/json")] * 3
    assert b"".join(body + b"\n" for _, _, body in got) == file.read_bytes()
    assert len({span.trace_id for _, _, body in got for span in spans_in(body)}) == 120


@pytest.mark.promise("export.otel")
async def test_a_receiver_that_refuses_or_is_not_there_is_told(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", record("a"))
    with receiver(status=415) as (address, _), pytest.raises(RunError, match="refuses the traces"):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
    with pytest.raises(RunError, match="cannot be reached"):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
