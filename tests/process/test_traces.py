"""A real worker that sends real traces, by OTLP over HTTP, to a collector that this test is."""

from __future__ import annotations

import uuid

import pytest

from inference_protocol.messages import BatchTask
from tests.collectors import receiver
from tests.process import models
from tests.process.harness import Place, a_config
from tests.process.wire import infer_json, post

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
INFER = "/v2/models/net/infer"


def test_a_traced_callers_request_is_traced_through_queue_and_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
        for flags in ("01", "00"):
            post(worker.port, INFER, infer_json([[1, 2]]), {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        post(worker.port, INFER, infer_json([[1, 2]]))
        worker.stop()
        worker.ended()

    spans = received.spans
    assert sorted(span.name for span in spans) == ["inference", "queue", "run"]
    outer = next(span for span in spans if span.name == "inference")
    assert (outer.trace, outer.parent) == (TRACE, PARENT)
    assert all(span.parent == outer.id for span in spans if span is not outer)


@pytest.mark.parametrize(("rows", "ended"), [("[1, 2]\n[3, 4]", "Succeeded"), ("[1, 2, 3]", "Failed")])
def test_a_batchs_attempt_is_a_span_in_the_trace_that_its_jobs_uid_names(
    place: Place, monkeypatch: pytest.MonkeyPatch, rows: str, ended: str
) -> None:
    with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        task = BatchTask(input_data=rows, output_uri="pvc://data/out")
        said = place.run(a_config(place.put("m.onnx", models.identity()), task=task, uid=str(uuid.UUID(TRACE)))).said

    (span,) = received.spans
    assert said.outcome == ended
    assert (span.name, span.trace, span.attributes["inference.outcome"]) == ("attempt", TRACE, ended)
