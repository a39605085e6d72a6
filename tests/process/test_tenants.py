"""Several tenants at one worker, as a gateway names them: their turns, their quotas, and what they have used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from inference_worker.serve.tenant_header import TENANT
from tests.process import models
from tests.process.callers import INFER, code_of, metric, queued, rows_request, stub, tensor_request
from tests.process.harness import a_config, until
from tests.process.wire import infer_json, post

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

FLOOD = 20
ROW = [[1.0, 2.0, 3.0, 4.0]]


@pytest.fixture(scope="module", params=["0", "2"], ids=["alone", "frontends"])
def worker(request: pytest.FixtureRequest, shared_place: Place) -> Worker:
    variables = {FRONTENDS_VARIABLE: request.param}
    config = a_config(shared_place.put("m.onnx", models.identity(shape=["N", 4])), batch_size=4)
    return shared_place.start(config, variables=variables).wait_ready()


def by_http(worker: Worker, tenant: str) -> str:
    return str(post(worker.port, INFER, infer_json(ROW), {TENANT: tenant}).status)


def by_grpc(worker: Worker, tenant: str) -> str:
    with stub(worker) as grpc:
        return str(code_of(lambda: grpc.ModelInfer(rows_request(ROW), metadata=[(TENANT, tenant)])))


def test_a_tenant_that_has_used_its_rows_is_refused_and_told_when_to_ask_again(worker: Worker) -> None:
    wasteful = infer_json(ROW * 50)

    first = post(worker.port, INFER, wasteful, {TENANT: "wasteful;rows=2"})
    second = post(worker.port, INFER, wasteful, {TENANT: "wasteful;rows=2"})

    assert (first.status, second.status) == (200, 429)
    assert b"quota of 2 rows a second" in second.body and int(second.headers["retry-after"]) >= 20
    assert by_grpc(worker, "wasteful;rows=2") == "RESOURCE_EXHAUSTED"
    assert by_http(worker, "thrifty;rows=2") == "200" and by_grpc(worker, "thrifty;rows=100") == "OK"


def test_what_each_tenant_used_is_counted(worker: Worker) -> None:
    for _ in range(3):
        assert by_http(worker, "counted;weight=2") == "200"
    assert by_grpc(worker, "counted;weight=2") == "OK"

    assert metric(worker, "inference_tenant_requests_total", tenant="counted") == 4
    assert metric(worker, "inference_tenant_rows_total", tenant="counted") == 4
    assert metric(worker, "inference_tenant_compute_seconds_total", tenant="counted") > 0
    assert metric(worker, "inference_tenant_in_flight", tenant="counted") == 0


def test_a_header_that_says_nonsense_is_refused_as_the_callers_fault(worker: Worker) -> None:
    assert by_http(worker, "x;weight=heavy") == "400" and by_grpc(worker, "x;weight=heavy") == "INVALID_ARGUMENT"


def test_who_comes_behind_a_flood_of_another_is_answered_before_most_of_it(place: Place) -> None:
    slow = place.start(a_config(place.put("slow.onnx", models.slow(steps=500)), batch_size=1)).wait_ready()
    # A run for each row: some hundred milliseconds for each request.
    many, one = tensor_request(np.ones((400, 64), np.float32)), tensor_request(np.ones((1, 64), np.float32))
    order: list[str] = []
    with stub(slow) as grpc:
        flood = [grpc.ModelInfer.future(many, metadata=[(TENANT, "flood")]) for _ in range(FLOOD)]
        for each in flood:
            each.add_done_callback(lambda _: order.append("flood"))
        until(lambda: queued(slow) > FLOOD / 2, "the flood waits")

        other = grpc.ModelInfer.future(one, metadata=[(TENANT, "other")])
        other.add_done_callback(lambda _: order.append("other"))

        assert {code_of(each.result) for each in [other, *flood]} == {"OK"}
        until(lambda: len(order) == FLOOD + 1, "all are told")

    # By deadlines alone it would be the last. Some of the flood may be answered before it comes.
    assert order.index("other") < FLOOD - 2
