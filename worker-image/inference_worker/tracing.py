"""Traces: one span a request with its wait and its run inside, for callers that are traced or that the sampling ratio picks.

Whether a request is traced is decided from its `traceparent` header (W3C Trace Context) before anything is made, since making a
span costs more than a small model's run. Configured by OpenTelemetry's own environment variables; without an endpoint nothing of
OpenTelemetry is even imported. Spans wait for a thread that sends them: at most 2048, and what comes on top of them is dropped.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from inference_protocol.messages import TaskOrder, TerminationReport, WorkerConfig
    from inference_worker.batching.ticket import Timing
    from inference_worker.errors import RequestError

log = logging.getLogger(__name__)

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# How a refusal is called; of others, those from 500 on are faults.
_OUTCOMES = {
    HTTPStatus.TOO_MANY_REQUESTS: "shed",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "expired",
}
# A session's name is its caller's choice.
_SESSION_CHARACTERS = 256
# A collector that takes nothing must not hold a worker that is to go.
_CLOSE_SECONDS = 3.0


class Caller(NamedTuple):
    """Who asks, as W3C Trace Context tells it. `state` is its header `tracestate`, which is handed on as it is."""

    trace: int
    span: int
    sampled: bool
    state: str


def caller(headers: Mapping[str, str]) -> Caller | None:
    """The span that a request comes from; None where its headers name none."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    # A later version may say more, of which nothing is known.
    if match is None or (match[5] is not None and match[1] == "00"):
        return None
    trace, span = int(match[2], 16), int(match[3], 16)
    if not trace or not span:
        return None
    return Caller(trace, span, bool(int(match[4], 16) & 1), headers.get("tracestate", ""))


def outcome(error: RequestError | None) -> str:
    """How a request ended, in one word."""
    if error is None:
        return "answered"
    return _OUTCOMES.get(error.status) or ("failed" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused")


def linked(members: Sequence[Span], own: Span) -> Sequence[Span]:
    """Whom a member of a run links to: the first one to all others, and they to it.

    All with all would be ten thousand links of a hundred requests.
    """
    first, *others = members
    return others if first is own else [first]


class Span:
    """A request that is traced. Its parts are made at its end, when their times are known."""

    def __init__(self, tracer: Any, context: Any, attributes: dict[str, str | float], arrived: float | None) -> None:
        """`arrived` is an instant of time.monotonic: the request's first byte. From now on it waits for the model."""
        self._tracer = tracer
        self._asked = time.time_ns()
        self._begun = self._asked - (round((time.monotonic() - arrived) * 1e9) if arrived is not None else 0)
        self._span = tracer.start_span(
            "inference", context=context, kind=_server_kind(), attributes=attributes, start_time=self._begun
        )

    def end(self, timing: Timing | None, error: RequestError | None) -> None:
        """Close the span; `timing` is None for a request that was refused before it waited."""
        from opentelemetry import trace

        if timing is not None:
            self._tell(timing)
        self._span.set_attribute("inference.outcome", outcome(error))
        if error is not None:
            self._span.set_attribute("http.response.status_code", int(error.status))
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error.message))
        self._span.end()

    def left(self) -> None:
        """Close the span of a request whose caller did not wait for the answer."""
        from opentelemetry import trace

        self._span.set_attribute("inference.outcome", "left")
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, "the caller left"))
        self._span.end()

    def _tell(self, timing: Timing) -> None:
        """The wait, and the run if there was one."""
        from opentelemetry import trace

        inner = trace.set_span_in_context(self._span)
        ran = self._asked + round(timing.queue * 1e9)
        self._tracer.start_span("queue", context=inner, start_time=self._asked).end(ran)
        rows = timing.rows or (timing.batch.rows if timing.batch is not None else 0)
        if not rows:
            return
        tickets = timing.batch.tickets if timing.batch is not None else []
        members = [ticket.trace for ticket in tickets if isinstance(ticket.trace, Span)]
        links = [trace.Link(member._span.get_span_context()) for member in (linked(members, self) if members else ())]  # noqa: SLF001
        own = next((ticket.rows for ticket in tickets if ticket.trace is self), rows)
        self._span.set_attribute("inference.rows", own)
        attributes = {"inference.batch.rows": rows, "inference.batch.requests": len(tickets) or 1}
        part = self._tracer.start_span("run", context=inner, start_time=ran, attributes=attributes, links=links)
        part.end(ran + round(timing.compute * 1e9))


class Tracer:
    """Decides which requests are traced. Without an endpoint it says no at the price of one comparison."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        exporter: Any = None,
        guarded: Sequence[str] | None = None,
        session_header: str = "",
    ) -> None:
        """`exporter` stands for the one that the environment names (tests). `guarded` is there where a job named it: the hosts.

        `session_header` names sessions of callers, by whom their requests can then be found.
        """
        environment = os.environ if environment is None else environment
        self._tracer: Any = None
        self._provider: Any = None
        self._ids: Any = None
        self._session_header = session_header
        self._ratio = _ratio(environment)
        if exporter is not None or any(environment.get(name) for name in ENDPOINTS):
            self._start(exporter, guarded)

    def request(
        self,
        headers: Mapping[str, str],
        model: str,
        version: str,
        *,
        arrived: float | None = None,
        timeout_seconds: float | None = None,
    ) -> Span | None:
        """A span for a request that is to be traced, by its headers; None for all others."""
        if self._tracer is None:
            return None
        parent = caller(headers)
        # Sampling needs no secrecy, only speed.
        if not (parent.sampled if parent is not None else random.random() < self._ratio):  # noqa: S311
            return None
        attributes: dict[str, str | float] = {"inference.model.name": model, "inference.model.version": version}
        if timeout_seconds is not None:
            attributes["inference.timeout_ms"] = round(timeout_seconds * 1e3, 3)
        if self._session_header and (session := headers.get(self._session_header)):
            attributes["session.id"] = session[:_SESSION_CHARACTERS]
        return Span(self._tracer, None if parent is None else _remote(parent), attributes, arrived)

    def attempt(self, of: WorkerConfig | TaskOrder) -> Callable[[TerminationReport], None]:
        """Begin the span of a batch's attempt; returns what is told its end. All attempts of a job are one trace, its UID's."""
        if self._tracer is None:
            return lambda _: None
        self._ids.given = _as_trace(of.uid)
        span = self._tracer.start_span(
            "attempt",
            attributes={
                "inference.model.name": of.model.name,
                "inference.model.version": of.model.version,
                "k8s.namespace.name": of.namespace,
                "inference.job": of.job,
                "inference.attempt": of.attempt,
            },
        )
        self._ids.given = None
        return lambda report: _end_attempt(span, report)

    def close(self) -> None:
        """Send what is not sent yet, as far as that takes no longer than a moment."""
        if self._provider is not None:
            sending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
            sending.start()
            sending.join(_CLOSE_SECONDS)

    def _start(self, exporter: Any, guarded: Sequence[str] | None) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider, sampling
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter(session=_session(guarded))
        except ImportError as error:
            log.warning("traces are asked for, but OpenTelemetry is not installed: %s", error)
            return
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "inference-worker")})
        self._ids = _ids()
        self._provider = TracerProvider(
            sampler=sampling.ALWAYS_ON, resource=resource, shutdown_on_exit=False, id_generator=self._ids
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("inference_worker")


def _session(guarded: Sequence[str] | None) -> Any:
    """What posts the traces; None for the exporter's own, which goes wherever the administrator says."""
    if guarded is None:
        return None
    from inference_worker.guarded_session import guarded_session

    return guarded_session(guarded)


def _ratio(environment: Mapping[str, str]) -> float:
    """The share of requests without a traced caller that are traced all the same; none unless asked for."""
    text = environment.get("OTEL_TRACES_SAMPLER_ARG", "0")
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        log.warning("OTEL_TRACES_SAMPLER_ARG must be a ratio, not %r; untraced callers stay untraced", text)
        return 0.0


def _ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Random ones, but for a trace whose id is `given`."""

        given: int | None = None

        def generate_trace_id(self) -> int:
            return self.given or super().generate_trace_id()

    return Ids()


def _as_trace(uid: str) -> int | None:
    """A UID as the id of a trace, which has as many bits; None for another text."""
    try:
        return uuid.UUID(uid).int
    except ValueError:
        return None


def _end_attempt(span: Any, report: TerminationReport) -> None:
    from opentelemetry import trace

    span.set_attribute("inference.outcome", report.outcome)
    if report.progress is not None:
        span.set_attribute("inference.items.completed", report.progress.completed)
        span.set_attribute("inference.items.total", report.progress.total)
    if report.reason is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{report.reason}: {report.message}"))
    span.end()


def _remote(parent: Caller) -> Any:
    from opentelemetry import trace as api

    state = api.TraceState.from_header([parent.state])
    context = api.SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=api.TraceFlags(1), trace_state=state)
    return api.set_span_in_context(api.NonRecordingSpan(context))


def _server_kind() -> Any:
    from opentelemetry import trace

    return trace.SpanKind.SERVER
