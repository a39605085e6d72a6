"""Which requests are traced is decided before anything is made for them; those that are tell where their time went."""

from __future__ import annotations

import random
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from inference_worker import tracing
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.ticket import Timing
from inference_worker.errors import RequestError
from inference_worker.tracing import ENDPOINTS, Tracer
from inference_worker.warmup import Warm
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import ALONE, Scripted
from tests.unit.worker.states import a_worker_state, infer, inferring, routes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ONE = infer_json([[1, 2]])


class Traces:
    """A tracer and what it has sent."""

    def __init__(self, **environment: str) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracer = Tracer(environment, exporter=self._exporter)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name; each at most once."""
        self.tracer._provider.force_flush()
        spans = self._exporter.get_finished_spans()
        assert len({span.name for span in spans}) == len(spans)
        return {span.name: span for span in spans}

    def ask(self, traceparent: str | None) -> bool:
        """Whether a request of this caller is traced."""
        span = self.tracer.request(traceparent, "net", "1")
        if span is not None:
            span.end(None, None)
        return span is not None


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    yield made
    made.tracer.close()


@pytest.fixture
def all_traced() -> Iterator[Traces]:
    made = Traces(OTEL_TRACES_SAMPLER_ARG="1")
    yield made
    made.tracer.close()


def test_callers_who_are_traced_are_and_all_others_are_not(traces: Traces) -> None:
    assert traces.ask(SAMPLED)
    assert not traces.ask(UNSAMPLED) and not traces.ask(None)
    assert list(traces.spans) == ["inference"]


def test_nothing_is_made_for_a_request_that_is_not_traced(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "Span", lambda *_: pytest.fail("a span was made"))

    for traceparent in (UNSAMPLED, None, "garbage"):
        assert traces.tracer.request(traceparent, "net", "1") is None


def test_a_caller_who_says_no_is_not_traced_whatever_the_ratio(all_traced: Traces) -> None:
    assert not all_traced.ask(UNSAMPLED)
    assert all_traced.ask(None)


@pytest.mark.parametrize("flags", ["01", "03", "ff"])
def test_of_the_flags_only_the_one_for_sampling_counts(traces: Traces, flags: str) -> None:
    assert traces.ask(f"00-{TRACE}-{SPAN}-{flags}")


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{'g' * 32}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_header_that_names_no_trace_is_no_header(traces: Traces, all_traced: Traces, traceparent: str) -> None:
    assert not traces.ask(traceparent)
    assert all_traced.ask(traceparent)
    assert all_traced.spans["inference"].parent is None


def test_a_header_of_a_later_version_is_understood_as_far_as_we_know_it(traces: Traces) -> None:
    assert traces.ask(f"01-{TRACE}-{SPAN}-01-and-more")


def test_of_untraced_callers_so_many_are_traced_as_the_ratio_says(monkeypatch: pytest.MonkeyPatch) -> None:
    quarter = Traces(OTEL_TRACES_SAMPLER_ARG="0.25")
    rolls = iter([0.0, 0.1, 0.24, 0.25, 0.5, 0.99])
    monkeypatch.setattr(random, "random", lambda: next(rolls))

    assert [quarter.ask(None) for _ in range(2)] == [True, True]
    assert [quarter.tracer.request(None, "net", "1") is not None for _ in range(4)] == [True, False, False, False]
    quarter.tracer.close()


@pytest.mark.parametrize(("text", "ratio"), [("2", 1.0), ("-1", 0.0), ("much", 0.0), ("", 0.0), ("0.5", 0.5)])
def test_a_ratio_is_one_or_is_taken_for_none(text: str, ratio: float) -> None:
    assert Tracer({"OTEL_TRACES_SAMPLER_ARG": text})._ratio == ratio


def test_without_an_endpoint_nobody_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer({"OTEL_TRACES_SAMPLER_ARG": "1"})

    assert tracer.request(SAMPLED, "net", "1") is None
    tracer.close()


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_turns_it_on(name: str) -> None:
    tracer = Tracer({name: "http://127.0.0.1:9"})

    assert tracer._tracer is not None
    tracer.close()


def test_a_span_is_a_child_of_its_callers_and_has_its_wait_and_its_run_inside(traces: Traces) -> None:
    span = traces.tracer.request(SAMPLED, "net", "7")
    assert span is not None
    span.end(Timing(queue=0.25, compute=0.5, rows=3), None)

    spans = traces.spans
    outer, queue, run = spans["inference"], spans["queue"], spans["run"]
    assert outer.parent is not None and f"{outer.parent.span_id:016x}" == SPAN and outer.parent.is_remote
    assert {f"{s.context.trace_id:032x}" for s in spans.values()} == {TRACE}
    assert queue.parent == run.parent == outer.context and outer.kind is SpanKind.SERVER
    assert outer.attributes == {"inference.model.name": "net", "inference.model.version": "7"}
    assert run.attributes == {"inference.batch.rows": 3}
    assert queue.start_time == outer.start_time and queue.end_time == run.start_time
    assert lasting(queue) == 250_000_000 and lasting(run) == 500_000_000
    assert outer.status.status_code is StatusCode.UNSET


def lasting(span: Any) -> int:
    return int(span.end_time - span.start_time)


def test_a_refusal_is_an_error_and_has_no_run(traces: Traces) -> None:
    span = traces.tracer.request(SAMPLED, "net", "1")
    assert span is not None
    span.end(None, RequestError(HTTPStatus.TOO_MANY_REQUESTS, "the queue is full"))

    (outer,) = traces.spans.values()
    assert (outer.status.status_code, outer.status.description) == (StatusCode.ERROR, "the queue is full")
    assert outer.attributes is not None and outer.attributes["http.response.status_code"] == 429


async def test_a_request_over_http_is_traced_to_its_answer(traces: Traces) -> None:
    routes = routes_of(await a_worker_state(models.identity()), traces.tracer)

    assert (await infer(routes, ONE, traceparent=SAMPLED)).status == 200
    assert (await infer(routes, ONE)).status == 200

    assert sorted(traces.spans) == ["inference", "queue", "run"]


@pytest.mark.parametrize("fate", ["model", "late"])
async def test_a_request_that_fails_is_traced_with_what_its_caller_was_told(traces: Traces, fate: str) -> None:
    engine = Scripted(held=fate == "late", faults=lambda _: RuntimeError("broken"))
    state = await a_worker_state(engine, Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1))
    timeout = {"inference-timeout-ms": "20"} if fate == "late" else {}

    reply = await infer(routes_of(state, traces.tracer), ONE, traceparent=SAMPLED, **timeout)

    outer = traces.spans["inference"]
    assert outer.attributes is not None and outer.attributes["http.response.status_code"] == reply.status
    assert outer.status.status_code is StatusCode.ERROR


async def test_a_request_whose_caller_leaves_is_traced_too(traces: Traces) -> None:
    engine = Scripted(held=True)
    state = await a_worker_state(engine, Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1))
    asking = inferring(routes_of(state, traces.tracer), ONE, traceparent=SAMPLED)
    await engine.begun()

    asking.leave()
    engine.let()

    assert "inference" in traces.spans
