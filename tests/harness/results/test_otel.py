"""OpenTelemetry traces, parsed by its own classes."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
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

from lhkit.base.errors import RunError
from lhkit.cli.export import ExportOptions, export_run
from lhkit.settings import load_settings
from tests.harness.build import Load
from tests.harness.results.runs import CHAT, SCRIPT, record, record_run, run_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


KNOWN = {
    value
    for name, value in vars(gen_ai_attributes).items()
    if name.startswith("GEN_AI") and isinstance(value, str)
}


def parsed(body: bytes) -> ExportTraceServiceRequest:
    """Return a request as OpenTelemetry's own class reads it; OTLP's JSON has hexadecimal ids."""
    data = json.loads(body)
    for span in (s for r in data["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(data, ExportTraceServiceRequest())


def spans_in(request: ExportTraceServiceRequest) -> list[Span]:
    return [s for r in request.resource_spans for c in r.scope_spans for s in c.spans]


def sent(body: bytes) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return request


def attributes(span: Span) -> Mapping[str, Any]:
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value")))
        for each in span.attributes
    }


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """Yield the address of a receiver, and its requests: path, content type, body."""
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


async def test_trace_has_spans_of_requests_tools_and_confirmations(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await record_run(load(CHAT), SCRIPT, toolset, tmp_path / "run")
    file = tmp_path / "traces.jsonl"
    await export_run(ExportOptions(folder=run, otel=str(file)), load_settings())
    (line,) = file.read_bytes().splitlines()
    spans = spans_in(parsed(line))
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
        assert {key for key in attributes(span) if key.startswith("gen_ai.")} <= KNOWN
    asked = [attributes(span) for span in spans if span.name.startswith("confirm")]
    assert [each["lhkit.confirm.gate"] for each in asked] == ["accepted", "rejected"]
    requests = [attributes(span) for span in spans if span.name == "chat scripted"]
    last = json.loads(requests[-1]["gen_ai.input.messages"])
    assert [each["role"] for each in last].count("tool") == 3
    assert last[-1]["parts"][0]["response"]["status"] == "cancelled"
    for one, other in pairwise(requests[:2]):
        assert len(one["gen_ai.input.messages"]) < len(other["gen_ai.input.messages"])
    assert "우유가 있어요" in requests[1]["gen_ai.output.messages"]
    assert attributes(spans[0])["gen_ai.evaluation.score.label"] == "pass"


@pytest.mark.longer
async def test_traces_are_posted_in_batches(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", *(record(f"s{number}") for number in range(120)))
    file = tmp_path / "new" / "traces.jsonl"
    with receiver() as (address, got):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
    await export_run(ExportOptions(folder=folder, otel=str(file)), load_settings())
    protobuf = "application/x-protobuf"  # which every receiver has to read; some know no JSON
    assert [(path, kind) for path, kind, _ in got] == [("/v1/traces", protobuf)] * 3
    requests = [sent(body) for _, _, body in got]
    assert requests == [parsed(line) for line in file.read_bytes().splitlines()]
    assert len({span.trace_id for each in requests for span in spans_in(each)}) == 120


@pytest.mark.longer
async def test_export_reports_refusing_or_unreachable_receiver(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", record("a"))
    with receiver(status=415) as (address, _), pytest.raises(RunError, match="refuses the traces"):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
    with pytest.raises(RunError, match="cannot be reached"):
        await export_run(ExportOptions(folder=folder, otel=address), load_settings())
