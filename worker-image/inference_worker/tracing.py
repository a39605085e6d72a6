"""Traces: one span a request with its wait and its run inside, for callers that are traced or that the sampling ratio picks.

Whether a request is traced is decided from its `traceparent` header (W3C Trace Context) before anything is made, since making a
span costs more than a small model's run. Configured by OpenTelemetry's own environment variables; without an endpoint nothing of
OpenTelemetry is even imported.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inference_worker.batching.ticket import Timing
    from inference_worker.errors import RequestError

log = logging.getLogger(__name__)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Span:
    """A request that is traced. Its parts are made at its end, when their times are known."""

    def __init__(self, tracer: Any, context: Any, attributes: dict[str, str]) -> None:
        self._tracer = tracer
        self._begun = time.time_ns()
        self._span = tracer.start_span(
            "inference", context=context, kind=_server_kind(), attributes=attributes, start_time=self._begun
        )

    def end(self, timing: Timing | None, error: RequestError | None) -> None:
        """Close the span; `timing` is None for a request that was refused before it waited."""
        from opentelemetry import trace

        if timing is not None:
            inner = trace.set_span_in_context(self._span)
            run = self._begun + round(timing.queue * 1e9)
            self._tracer.start_span("queue", context=inner, start_time=self._begun).end(run)
            part = self._tracer.start_span("run", context=inner, start_time=run, attributes={"inference.batch.rows": timing.rows})
            part.end(run + round(timing.compute * 1e9))
        if error is not None:
            self._span.set_attribute("http.response.status_code", int(error.status))
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error.message))
        self._span.end()

    def left(self) -> None:
        """Close the span of a request whose caller did not wait for the answer."""
        from opentelemetry import trace

        self._span.set_status(trace.Status(trace.StatusCode.ERROR, "the caller left"))
        self._span.end()


class Tracer:
    """Decides which requests are traced. Without an endpoint it says no at the price of one comparison."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, exporter: Any = None, guarded: Sequence[str] | None = None
    ) -> None:
        """`exporter` stands for the one that the environment names (tests). `guarded` is there where a job named it: the hosts."""
        environment = os.environ if environment is None else environment
        self._tracer: Any = None
        self._provider: Any = None
        self._ratio = _ratio(environment)
        if exporter is not None or any(environment.get(name) for name in ENDPOINTS):
            self._start(exporter, guarded)

    def request(self, traceparent: str | None, model: str, version: str) -> Span | None:
        """A span for a request that is to be traced; None for all others."""
        if self._tracer is None:
            return None
        parent = None
        if traceparent is not None and (match := _TRACEPARENT.fullmatch(traceparent)):
            if not int(match[3], 16) & 1:
                return None
            parent = _remote(match[1], match[2]) if int(match[1], 16) and int(match[2], 16) else None
        # Sampling needs no secrecy, only speed.
        if parent is None and random.random() >= self._ratio:  # noqa: S311
            return None
        return Span(self._tracer, parent, {"inference.model.name": model, "inference.model.version": version})

    def close(self) -> None:
        """Send what is not sent yet."""
        if self._provider is not None:
            self._provider.shutdown()

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
        self._provider = TracerProvider(sampler=sampling.ALWAYS_ON, resource=resource, shutdown_on_exit=False)
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


def _remote(trace: str, span: str) -> Any:
    from opentelemetry import trace as api

    context = api.SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=api.TraceFlags(1))
    return api.set_span_in_context(api.NonRecordingSpan(context))


def _server_kind() -> Any:
    from opentelemetry import trace

    return trace.SpanKind.SERVER
