"""Spans as a test looks at them, and a receiver of OTLP over HTTP that keeps them: a stand-in for a collector, in the test's process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Seen:
    """One span. Ids are hexadecimal, and `parent` is empty without one; times are microseconds since 1970."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    begun: float
    ended: float
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...] = ()


@dataclass
class Received:
    """What came, and where it is sent to."""

    url: str = ""
    spans: list[Seen] = field(default_factory=list)

    def of(self, trace: str) -> list[Seen]:
        """The spans of one trace."""
        return [span for span in list(self.spans) if span.trace == trace]


def _read(body: bytes) -> Iterator[Seen]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield Seen(
                service,
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.start_time_unix_nano / 1e3,
                span.end_time_unix_nano / 1e3,
                _attributes(span.attributes),
                tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            )


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


@contextmanager
def receiver() -> Iterator[Received]:
    """One that listens while the block runs."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = self.headers["Content-Length"]
            body = self.rfile.read(int(length)) if length is not None else b"".join(self._chunks())
            if self.path == "/v1/traces":
                received.spans.extend(_read(body))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _chunks(self) -> Iterator[bytes]:
            # As Envoy sends them.
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        received.url = f"http://127.0.0.1:{port}"
        yield received
