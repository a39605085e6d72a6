"""gRPC's health checking protocol, as Kubernetes' probes, load balancers and clients use it (grpc/grpc, doc/health-checking.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from inference_worker.serve.grpc_health import SERVICE
from tests.process import callers, models
from tests.process.harness import a_config, until
from tests.process.scripted import Orders
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place, Worker

INFERENCE = b"inference.GRPCInferenceService"
# The messages by hand, from the protocol's numbers: service is field 1 of a request, status field 1 of an answer.
UNKNOWN_SERVICE, SERVING, NOT_SERVING = b"\x08\x03", b"\x08\x01", b"\x08\x02"
NOT_FOUND, OK, INVALID = 5, 0, 3


def asked(service: bytes) -> bytes:
    return b"\x0a" + bytes((len(service),)) + service if service else b""


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    config = a_config(shared_place.put("m.onnx", models.identity()), model_control="explicit")
    return shared_place.start(config).wait_ready()


@pytest.fixture
def wire2(worker: Worker) -> Iterator[Wire2]:
    with Wire2(worker) as made:
        yield made


@pytest.mark.parametrize("service", [b"", INFERENCE], ids=["the server", "the service"])
def test_a_ready_worker_serves(wire2: Wire2, service: bytes) -> None:
    heard = wire2.call(f"/{SERVICE}/Check", message(asked(service)))

    assert (heard.grpc_status, heard.messages) == (OK, [SERVING])


@pytest.mark.parametrize("service", [b"net", b"other.Service", b"x" * 100])
def test_an_unknown_service_is_not_found(wire2: Wire2, service: bytes) -> None:
    heard = wire2.call(f"/{SERVICE}/Check", message(asked(service)))

    assert heard.grpc_status == NOT_FOUND and len(heard.headers["grpc-message"]) < 500


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_garbage_is_refused(wire2: Wire2, method: str) -> None:
    assert wire2.call(f"/{SERVICE}/{method}", message(b"\xff\xff")).grpc_status == INVALID
    assert wire2.ping()


def test_all_services_are_listed_with_their_states(wire2: Wire2) -> None:
    (listed,) = wire2.call(f"/{SERVICE}/List", message(b"")).messages

    assert INFERENCE in listed and listed.count(SERVING) == 2


def test_who_watches_is_told_at_once_and_of_every_change(wire2: Wire2, worker: Worker) -> None:
    stream = wire2.open(f"/{SERVICE}/Watch")
    wire2.send(stream, message(asked(b"")), end=True)
    assert wire2.wait_messages(stream, 1) == [SERVING]

    with callers.stub(worker) as stub:
        stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="net"))
        assert wire2.wait_messages(stream, 2) == [SERVING, NOT_SERVING]
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="net"))
        assert wire2.wait_messages(stream, 3) == [SERVING, NOT_SERVING, SERVING]


def test_who_watches_an_unknown_service_is_told_so_and_not_sent_away(wire2: Wire2) -> None:
    stream = wire2.open(f"/{SERVICE}/Watch")
    wire2.send(stream, message(asked(b"later")), end=True)

    assert wire2.wait_messages(stream, 1) == [UNKNOWN_SERVICE]
    assert wire2.ping() and not wire2.heard[stream].ended


def test_a_thousand_watchers_hold_nobody_up_and_are_forgotten(worker: Worker) -> None:
    with Wire2(worker) as wire2:
        streams = [wire2.open(f"/{SERVICE}/Watch") for _ in range(1000)]
        for stream in streams:
            wire2.send(stream, message(asked(b"")), end=True)
        assert all(wire2.wait_messages(stream, 1) == [SERVING] for stream in streams)
    with Wire2(worker) as wire2:
        assert wire2.call(f"/{SERVICE}/Check", message(b"")).messages == [SERVING]


def test_a_loading_worker_does_not_serve_yet(place: Place) -> None:
    orders = Orders(place)
    orders.give("hold_load")
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=orders.patches()).wait_answering()
    with Wire2(worker) as wire2:
        assert wire2.call(f"/{SERVICE}/Check", message(b"")).messages == [NOT_SERVING]
        orders.take_back("hold_load")
        worker.wait_ready()
        assert wire2.call(f"/{SERVICE}/Check", message(b"")).messages == [SERVING]


def test_who_watches_does_not_hold_the_end(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity()), drain_seconds=20.0)).wait_ready()
    with Wire2(worker) as wire2:
        stream = wire2.open(f"/{SERVICE}/Watch")
        wire2.send(stream, message(asked(b"")), end=True)
        assert wire2.wait_messages(stream, 1) == [SERVING]
        worker.stop()
        heard = wire2.wait(stream)
    assert heard.messages[-1] == NOT_SERVING and heard.grpc_status == 14
    assert worker.ended(seconds=15.0).said.outcome == "Drained"


def test_grpcs_own_client_watches_before_it_sends(worker: Worker) -> None:
    """grpc/grpc, doc/health-checking.md: a client told to check health sends nothing until the service serves."""
    config = (
        '{"healthCheckConfig": {"serviceName": "inference.GRPCInferenceService"}, "loadBalancingConfig": [{"round_robin": {}}]}'
    )
    options = [("grpc.service_config", config), ("grpc.enable_health_checking", 1)]
    with callers.stub(worker, options=options) as stub:
        until(lambda: callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 2]]), wait_for_ready=True)) == "OK", "OK")


def test_grpcs_own_channel_can_check(worker: Worker) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{worker.grpc_port}") as channel:
        check = channel.unary_unary(f"/{SERVICE}/Check", request_serializer=bytes, response_deserializer=bytes)
        assert check(asked(INFERENCE), timeout=20) == SERVING
