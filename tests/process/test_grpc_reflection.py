"""Server reflection: what grpcurl and other tools need to call the worker without a file of its messages.

grpcurl is built once with Go, into the cache that the cluster's programs are in.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from dev import tools
from inference_worker.serve.grpc_reflection import REFLECTIONS, SERVICES
from inference_worker.serve.inference import Arrival
from tests.process import models
from tests.process.callers import resident_bytes
from tests.process.harness import a_config
from tests.process.wire2 import Wire2, message
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place, Worker

HERE = Path(__file__).resolve().parent
V1, V1ALPHA = REFLECTIONS


def reflect(reflection: object, **asked: object) -> object:
    """One answer, without a connection."""
    told: list[object] = []
    reflection.answer(reflection._request(**asked).SerializeToString(), Arrival(0.0), told.append)  # type: ignore[attr-defined]
    (answer,) = told
    assert isinstance(answer, bytes), answer
    return reflection._response.FromString(answer)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("m.onnx", models.identity()))).wait_ready()


@pytest.fixture(scope="module")
def grpcurl() -> Iterator[Path]:
    if shutil.which("go") is None:
        pytest.skip("grpcurl is built with Go")
    tools.TOOL_SETS["grpcurl"] = tools.ToolSet(
        module=str(HERE / "grpcurl"), programs={"grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl"}
    )
    try:
        yield tools.ensure("grpcurl") / "grpcurl"
    finally:
        del tools.TOOL_SETS["grpcurl"]


def run(grpcurl: Path, worker: Worker, *arguments: str, data: str | None = None) -> str:
    options = ["-plaintext", *(["-d", data] if data is not None else [])]
    address = f"127.0.0.1:{worker.grpc_port}"
    done = subprocess.run([grpcurl, *options, address, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_grpcurl_lists_and_describes_what_there_is(grpcurl: Path, worker: Worker) -> None:
    assert set(run(grpcurl, worker, "list").split()) == set(SERVICES)
    for service in SERVICES:
        for method in run(grpcurl, worker, "list", service).split():
            assert "rpc" in run(grpcurl, worker, "describe", method)
    assert "raw_input_contents" in run(grpcurl, worker, "describe", "inference.ModelInferRequest")


@pytest.mark.slow
def test_grpcurl_asks_for_health_metadata_and_an_inference(grpcurl: Path, worker: Worker) -> None:
    assert json.loads(run(grpcurl, worker, "grpc.health.v1.Health/Check"))["status"] == "SERVING"
    metadata = json.loads(run(grpcurl, worker, "inference.GRPCInferenceService/ModelMetadata", data='{"name": "net"}'))
    assert metadata["inputs"][0]["name"] == "x"
    config = json.loads(run(grpcurl, worker, "inference.GRPCInferenceService/ModelConfig", data='{"name": "net"}'))
    assert config["config"]["input"][0]["dataType"] == "TYPE_FP32"
    request = {
        "model_name": "net",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2]}],
        "raw_input_contents": [base64.b64encode(struct.pack("<2f", 1, 2)).decode()],
    }
    answer = json.loads(run(grpcurl, worker, "inference.GRPCInferenceService/ModelInfer", data=json.dumps(request)))
    assert struct.unpack("<2f", base64.b64decode(answer["rawOutputContents"][0])) == (1, 2)


@pytest.mark.parametrize("reflection", REFLECTIONS, ids=["v1", "v1alpha"])
def test_a_stream_of_questions_is_answered_in_order(worker: Worker, reflection: object) -> None:
    asked = [reflection._request(list_services="*"), reflection._request(file_containing_symbol="nobody.knows")] * 200  # type: ignore[attr-defined]
    with Wire2(worker) as wire2:
        heard = wire2.call(reflection.path, b"".join(message(one.SerializeToString()) for one in asked))  # type: ignore[attr-defined]

    answers = [reflection._response.FromString(one) for one in heard.messages]  # type: ignore[attr-defined]
    assert [answer.original_request for answer in answers] == asked and heard.grpc_status == 0
    assert [answer.error_response.error_code for answer in answers] == [0, 5] * 200


@pytest.mark.parametrize("service", SERVICES)
def test_the_file_of_each_service_is_whole_by_itself(service: str) -> None:
    """grpcurl and others build the messages from it: nothing may be missing, and no method without an answer."""
    answer = reflect(V1, file_containing_symbol=service)
    file = descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])  # type: ignore[attr-defined]
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindServiceByName(service)

    assert found.methods and not file.dependency
    assert reflect(V1, file_by_filename=file.name).file_descriptor_response == answer.file_descriptor_response  # type: ignore[attr-defined]
    for method in found.methods:
        assert reflect(V1ALPHA, file_containing_symbol=method.full_name).file_descriptor_response.file_descriptor_proto  # type: ignore[attr-defined]


def test_our_methods_are_the_protocols() -> None:
    (theirs,) = service_pb2.DESCRIPTOR.services_by_name.values()
    ours = V1._table and reflect(V1, file_containing_symbol=SERVICES[0])
    file = descriptor_pb2.FileDescriptorProto.FromString(ours.file_descriptor_response.file_descriptor_proto[0])  # type: ignore[attr-defined]
    (service,) = file.service

    for method in service.method:
        known = theirs.methods_by_name[method.name]
        assert (method.input_type, method.output_type) == (f".{known.input_type.full_name}", f".{known.output_type.full_name}")
        assert (method.client_streaming, method.server_streaming) == (known.client_streaming, known.server_streaming)


def test_every_method_that_is_told_is_there(worker: Worker) -> None:
    with Wire2(worker) as wire2:
        for service in SERVICES:
            file = descriptor_pb2.FileDescriptorProto.FromString(
                reflect(V1, file_containing_symbol=service).file_descriptor_response.file_descriptor_proto[0]  # type: ignore[attr-defined]
            )
            for method in file.service[0].method:
                heard = wire2.call(f"/{service}/{method.name}", message(b"\xff\xff"))
                assert heard.grpc_status != 12, method.name


@given(st.text(max_size=40), st.sampled_from(["file_by_filename", "file_containing_symbol", "all_extension_numbers_of_type"]))
@STEADY
def test_any_name_is_found_or_told_unknown(name: str, field: str) -> None:
    answer = reflect(V1, **{field: name})

    assert answer.WhichOneof("message_response")  # type: ignore[attr-defined]


def test_garbage_and_floods_end_the_stream_and_nothing_else(worker: Worker) -> None:
    with Wire2(worker) as wire2:
        assert wire2.call(V1.path, message(b"\xff\xff")).grpc_status == 3
        assert wire2.call(V1.path, message(b"\x0a\xff\xff\x04" + b"x" * 0x1FFFF)).grpc_status == 8
        assert wire2.ping()


def test_questions_without_end_are_held_while_their_answers_are_not_read(worker: Worker) -> None:
    """Each asks with sixty bytes for ten thousand: unread, they must not gather in memory."""
    ask = message(V1._request(file_containing_symbol=SERVICES[0]).SerializeToString())
    narrow = b"\0\4" + (1000).to_bytes(4, "big")
    with Wire2(worker, settings=narrow) as wire2:
        stream = wire2.open(V1.path)
        before = resident_bytes(worker)
        wire2.send(stream, ask * 20_000)
        assert wire2.ping()
        assert len(wire2.heard[stream].body) <= 1000 and resident_bytes(worker) - before < 32 << 20


def test_who_begins_to_read_again_gets_all_answers(worker: Worker) -> None:
    ask = message(V1._request(file_containing_symbol=SERVICES[0]).SerializeToString())
    with Wire2(worker, settings=b"\0\4" + (1000).to_bytes(4, "big")) as wire2:
        stream = wire2.open(V1.path)
        wire2.send(stream, ask * 300, end=True)
        assert wire2.ping()
        wire2.frame(8, 0, stream, (1 << 30).to_bytes(4, "big"))
        heard = wire2.wait(stream)
    assert (len(heard.messages), heard.grpc_status) == (300, 0)
