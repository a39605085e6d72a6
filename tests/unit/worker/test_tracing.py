"""Which requests are traced is decided before anything is made for them; those that are tell where their time went."""

from __future__ import annotations

import random
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from inference_protocol.messages import Progress, TerminationReport
from inference_protocol.reasons import WorkerReason
from inference_worker import tracing
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.ticket import Timing
from inference_worker.errors import RequestError
from inference_worker.tracing import ENDPOINTS, Tracer, linked, outcome
from inference_worker.warmup import Warm
from tests.process import models
from tests.process.harness import a_config
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import ALONE, ROWS, Scripted
from tests.unit.worker.states import a_worker_state, ask, infer, inferring, routes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ONE = infer_json([[1, 2]])


def headers(traceparent: str | None) -> dict[str, str]:
    return {} if traceparent is None else {"traceparent": traceparent}


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
        span = self.tracer.request(headers(traceparent), "net", "1")
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
        assert traces.tracer.request(headers(traceparent), "net", "1") is None


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
        f"00-{TRACE}-{SPAN}-01-and-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01",
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
    assert [quarter.tracer.request({}, "net", "1") is not None for _ in range(4)] == [True, False, False, False]
    quarter.tracer.close()


@pytest.mark.parametrize(("text", "ratio"), [("2", 1.0), ("-1", 0.0), ("much", 0.0), ("", 0.0), ("0.5", 0.5)])
def test_a_ratio_is_one_or_is_taken_for_none(text: str, ratio: float) -> None:
    assert Tracer({"OTEL_TRACES_SAMPLER_ARG": text})._ratio == ratio


def test_without_an_endpoint_nobody_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer({"OTEL_TRACES_SAMPLER_ARG": "1"})

    assert tracer.request(headers(SAMPLED), "net", "1") is None
    tracer.close()


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_turns_it_on(name: str) -> None:
    tracer = Tracer({name: "http://127.0.0.1:9"})

    assert tracer._tracer is not None
    tracer.close()


def test_a_span_is_a_child_of_its_callers_and_has_its_wait_and_its_run_inside(traces: Traces) -> None:
    span = traces.tracer.request(headers(SAMPLED), "net", "7")
    assert span is not None
    span.end(Timing(queue=0.25, compute=0.5, rows=3), None)

    spans = traces.spans
    outer, queue, run = spans["inference"], spans["queue"], spans["run"]
    assert outer.parent is not None and f"{outer.parent.span_id:016x}" == SPAN and outer.parent.is_remote
    assert {f"{s.context.trace_id:032x}" for s in spans.values()} == {TRACE}
    assert queue.parent == run.parent == outer.context and outer.kind is SpanKind.SERVER
    assert outer.attributes == {
        "inference.model.name": "net",
        "inference.model.version": "7",
        "inference.rows": 3,
        "inference.outcome": "answered",
    }
    assert run.attributes == {"inference.batch.rows": 3, "inference.batch.requests": 1} and not run.links
    assert queue.start_time == outer.start_time and queue.end_time == run.start_time
    assert lasting(queue) == 250_000_000 and lasting(run) == 500_000_000
    assert outer.status.status_code is StatusCode.UNSET


def lasting(span: Any) -> int:
    return int(span.end_time - span.start_time)


def test_a_refusal_is_an_error_and_has_no_run(traces: Traces) -> None:
    span = traces.tracer.request(headers(SAMPLED), "net", "1")
    assert span is not None
    span.end(None, RequestError(HTTPStatus.TOO_MANY_REQUESTS, "the queue is full"))

    (outer,) = traces.spans.values()
    assert (outer.status.status_code, outer.status.description) == (StatusCode.ERROR, "the queue is full")
    assert outer.attributes is not None and outer.attributes["http.response.status_code"] == 429
    assert outer.attributes["inference.outcome"] == "shed"


async def test_a_request_over_http_is_traced_to_its_answer(traces: Traces) -> None:
    routes = routes_of(await a_worker_state(models.identity()), traces.tracer)

    assert (await infer(routes, ONE, traceparent=SAMPLED)).status == 200
    assert (await infer(routes, ONE)).status == 200

    assert sorted(traces.spans) == ["inference", "queue", "run"]


async def test_probes_and_metadata_are_not_traced(traces: Traces) -> None:
    routes = routes_of(await a_worker_state(models.identity()), traces.tracer)

    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/net", "/v2/models/net/ready", "/metrics"):
        assert (await ask(routes, path, traceparent=SAMPLED)).status == 200

    assert traces.spans == {}


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


def test_a_tracestate_is_handed_on_as_its_caller_gave_it(traces: Traces) -> None:
    span = traces.tracer.request({"traceparent": SAMPLED, "tracestate": "vendor=a1,other=b2"}, "net", "1")
    assert span is not None
    span.end(None, None)

    (outer,) = traces.spans.values()
    assert outer.context.trace_state.to_header() == "vendor=a1,other=b2"


def test_a_span_begins_with_its_requests_first_byte_and_says_what_time_it_had(traces: Traces) -> None:
    arrived = time.monotonic() - 0.5
    span = traces.tracer.request(headers(SAMPLED), "net", "1", arrived=arrived, timeout_seconds=0.75)
    assert span is not None
    span.end(Timing(queue=0.0, compute=0.0, rows=1), None)

    outer, queue = traces.spans["inference"], traces.spans["queue"]
    assert outer.attributes is not None and outer.attributes["inference.timeout_ms"] == 750
    assert outer.start_time is not None and queue.start_time is not None
    assert queue.start_time - outer.start_time >= 500_000_000


def test_requests_of_a_session_are_told_by_the_header_that_the_gateway_knows_them_by() -> None:
    exporter = InMemorySpanExporter()
    tracer = Tracer({}, exporter=exporter, session_header="agent")
    for more in ({"agent": "a" * 1000}, {}):
        span = tracer.request({"traceparent": SAMPLED, **more}, "net", "1")
        assert span is not None
        span.end(None, None)
    tracer.close()

    first, second = (dict(span.attributes or {}) for span in exporter.get_finished_spans())
    assert first["session.id"] == "a" * 256 and "session.id" not in second


async def test_the_first_of_a_run_links_to_its_other_members_and_they_to_it() -> None:
    exporter, engine = InMemorySpanExporter(), Scripted(held=True)
    tracer = Tracer({}, exporter=exporter)
    state = await a_worker_state(
        engine, Warm(ROWS, LatencyProfile({1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}), None, inline=False, threads=1), batch_size=8
    )
    routes = routes_of(state, tracer)
    asked = [inferring(routes, ONE, traceparent=SAMPLED)]
    await engine.begun()
    # They gather while it runs; one of them is not traced.
    asked += [inferring(routes, ONE, **headers(parent)) for parent in (SAMPLED, SAMPLED, UNSAMPLED, SAMPLED)]
    engine.let()
    for each in asked:
        await each.reply()
    tracer.close()

    runs = [span for span in exporter.get_finished_spans() if span.name == "run"]
    alone, first, *others = runs
    own = [run.parent.span_id for run in (first, *others) if run.parent is not None]
    links = [[link.context.span_id for link in run.links] for run in (first, *others)]
    assert not alone.links and links == [own[1:], own[:1], own[:1]]
    assert first.attributes == {"inference.batch.rows": 4, "inference.batch.requests": 4}


def test_of_a_large_run_each_span_but_one_has_one_link() -> None:
    members: list[Any] = [object() for _ in range(100)]

    assert linked(members, members[0]) == members[1:]
    assert all(linked(members, member) == [members[0]] for member in members[1:])


@pytest.mark.parametrize("uid", ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "no-uid"])
def test_attempts_of_a_job_are_one_trace_which_its_uid_names(traces: Traces, uid: str) -> None:
    config = msgspec.structs.replace(a_config("pvc://data/m.onnx"), uid=uid, attempt=2)
    traces.tracer.attempt(config)(TerminationReport("Drained", "told to stop", progress=Progress(total=9, completed=4, resumed=0)))
    # Ids of requests stay random.
    assert traces.ask(SAMPLED)

    span = traces.spans["attempt"]
    assert (f"{span.context.trace_id:032x}" == uid.replace("-", "")) is (uid != "no-uid") and span.parent is None
    said = span.attributes or {}
    assert (said["inference.outcome"], said["inference.attempt"], said["inference.items.completed"]) == ("Drained", 2, 4)
    assert span.status.status_code is StatusCode.UNSET


def test_a_failed_attempt_is_an_error_with_its_reason(traces: Traces) -> None:
    report = TerminationReport("Failed", "no such file", reason=WorkerReason.INTERNAL)
    traces.tracer.attempt(a_config("pvc://data/m.onnx"))(report)

    status = traces.spans["attempt"].status
    assert (status.status_code, status.description) == (StatusCode.ERROR, f"{WorkerReason.INTERNAL}: no such file")


def test_without_an_endpoint_attempts_are_not_traced() -> None:
    Tracer({}).attempt(a_config("pvc://data/m.onnx"))(TerminationReport("Succeeded", ""))


@pytest.mark.parametrize(
    ("status", "word"),
    [(400, "refused"), (404, "refused"), (429, "shed"), (500, "failed"), (503, "unavailable"), (504, "expired")],
)
def test_how_a_request_ended_is_one_word(status: int, word: str) -> None:
    assert outcome(None) == "answered"
    assert outcome(RequestError(HTTPStatus(status), "")) == word


class Silent(SpanExporter):
    """Stands for a collector that takes a request and never answers."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        threading.Event().wait()
        return SpanExportResult.FAILURE


def test_a_collector_that_never_answers_costs_a_bounded_number_of_spans_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_CLOSE_SECONDS", 0.1)
    exporter = Silent()
    tracer = Tracer({}, exporter=exporter)
    for _ in range(10_000):
        span = tracer.request(headers(SAMPLED), "net", "1")
        assert span is not None
        span.end(None, None)

    assert exporter.asked.wait(20)
    (processor,) = tracer._provider._active_span_processor._span_processors
    assert len(processor._batch_processor._queue) <= 2048
    tracer.close()
