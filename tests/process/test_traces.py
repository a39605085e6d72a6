"""A real worker that sends real traces, by OTLP over HTTP, to a collector that this test is."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.process import models
from tests.process.harness import Place, a_config
from tests.process.wire import infer_json, post

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
INFER = "/v2/models/net/infer"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that it has got."""
    spans: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            spans.extend(span for r in request.resource_spans for scope in r.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
    finally:
        server.shutdown()


def test_a_traced_callers_request_is_traced_through_queue_and_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (address, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
        for flags in ("01", "00"):
            post(worker.port, INFER, infer_json([[1, 2]]), {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        post(worker.port, INFER, infer_json([[1, 2]]))
        worker.stop()
        worker.ended()

    assert sorted(span.name for span in spans) == ["inference", "queue", "run"]
    outer = next(span for span in spans if span.name == "inference")
    assert (outer.trace_id.hex(), outer.parent_span_id.hex()) == (TRACE, PARENT)
    assert all(span.parent_span_id == outer.span_id for span in spans if span is not outer)
