"""The exchange as Envoy has it, over real gRPC: each mode of bodies, what is picked and what is refused, and who counts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from inference_operator.gateway.picker import messages
from inference_operator.gateway.picker.server import EndpointPicker
from inference_operator.state.store import Store
from tests.builders import a_job, a_pod
from tests.unit.autoscaling.test_metrics import Clock
from tests.unit.gateway.picker.test_asked import field, message

JOB = a_job(serve=True)
HTTP = {":path": "/default/v2/models/m/infer", ":method": "POST"}
GRPC = {
    ":path": "/inference.GRPCInferenceService/ModelInfer",
    "content-type": "application/grpc",
    "inference-namespace": "default",
}
REQUEST = message(field(1, "m"), field(2, "1"), field(5, "tensor"))
KEY = "x-gateway-destination-endpoint"


@pytest.fixture
def store() -> Store:
    made = Store()
    made.put_job(JOB)
    made.put_pod(replace(a_pod(JOB, 1), uid="pod-1", address="10.0.0.1"))
    return made


@pytest.fixture
async def picker(store: Store) -> AsyncIterator[EndpointPicker]:
    made = EndpointPicker(store, Clock(), 0)
    serving = asyncio.create_task(made.serve())
    while not made.port:
        await asyncio.sleep(0.01)
    yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def channel(picker: EndpointPicker) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}") as made:
        yield made


@pytest.fixture
def stream(channel: grpc.aio.Channel) -> Any:
    return channel.stream_stream(
        f"/{messages.EXTERNAL_PROCESSOR}/Process",
        request_serializer=messages.ProcessingRequest.SerializeToString,
        response_deserializer=messages.ProcessingResponse.FromString,
    )()


def head(headers: dict[str, str], *, mode: int = 0, end: bool = False, subset: list[str] | None = None) -> Any:
    pairs = [{"key": key, "raw_value": value.encode()} for key, value in headers.items()]
    made = messages.ProcessingRequest(
        request_headers={"headers": {"headers": pairs}, "end_of_stream": end},
        protocol_config={"request_body_mode": mode, "response_body_mode": mode},
    )
    if subset is not None:
        entry = made.metadata_context.filter_metadata.add(key="envoy.lb.subset_hint")
        listed = entry.value.fields["x-gateway-destination-endpoint-subset"].list_value
        for place in subset:
            listed.values.add(string_value=place)
    return made


def part(body: bytes, *, end: bool = False) -> Any:
    return messages.ProcessingRequest(request_body={"body": body, "end_of_stream": end})


async def said(stream: Any) -> Any:
    return await asyncio.wait_for(stream.read(), 10)


async def asked(stream: Any, request: Any) -> Any:
    await stream.write(request)
    return await said(stream)


def picked(common: Any, answer: Any) -> str:
    """What the header says; the metadata says the same."""
    (option,) = common.header_mutation.set_headers
    assert option.header.key == KEY
    # It takes the place of one that a caller has written.
    assert option.append_action == 2
    value: str = option.header.raw_value.decode()
    assert answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[KEY].string_value == value
    return value


async def test_headers_that_name_the_model_are_answered_at_once_with_header_and_metadata(stream: Any) -> None:
    answer = await asked(stream, head(HTTP))

    assert picked(answer.request_headers.response, answer) == "10.0.0.1:8000"
    assert not answer.request_headers.response.HasField("body_mutation")


async def test_in_the_full_duplex_mode_everything_is_sent_back_as_it_came(stream: Any) -> None:
    await asked(stream, head(HTTP, mode=messages.FULL_DUPLEX))
    for body, end in ((b"first", False), (b"last", True)):
        back = (await asked(stream, part(body, end=end))).request_body.response.body_mutation.streamed_response
        assert (back.body, back.end_of_stream) == (body, end)

    await stream.write(messages.ProcessingRequest(response_headers={}))
    assert (await said(stream)).HasField("response_headers")
    await stream.write(messages.ProcessingRequest(response_body={"body": b"answer", "end_of_stream": False}))
    assert (await said(stream)).response_body.response.body_mutation.streamed_response.body == b"answer"
    await stream.write(messages.ProcessingRequest(response_trailers={}))
    assert (await said(stream)).HasField("response_trailers")


async def test_the_model_in_a_grpc_message_is_read_from_its_pieces_and_nothing_of_them_is_lost(stream: Any) -> None:
    await stream.write(head(GRPC, mode=messages.FULL_DUPLEX))
    await stream.write(part(REQUEST[:6]))
    answer = await asked(stream, part(REQUEST[6:], end=True))
    back = (await said(stream)).request_body.response.body_mutation.streamed_response

    assert picked(answer.request_headers.response, answer) == "10.0.0.1:8001"
    assert (back.body, back.end_of_stream) == (REQUEST, True)


async def test_a_gateway_that_buffers_is_answered_with_the_body(stream: Any) -> None:
    assert not (await asked(stream, head(GRPC, mode=messages.BUFFERED))).request_headers.response.HasField("header_mutation")

    answer = await asked(stream, part(REQUEST, end=True))

    assert picked(answer.request_body.response, answer) == "10.0.0.1:8001"
    assert not answer.request_body.response.HasField("body_mutation")


async def test_a_gateway_that_shows_no_bodies_is_told_to_have_the_model_in_the_metadata(stream: Any) -> None:
    answer = await asked(stream, head(GRPC))

    assert answer.immediate_response.status.code == 400 and answer.immediate_response.grpc_status.status == 3
    assert b"inference-model" in answer.immediate_response.body


async def test_nobody_of_the_subset_is_503_with_when_to_come_again(stream: Any) -> None:
    answer = (await asked(stream, head(HTTP, subset=["10.9.9.9:8000"]))).immediate_response

    (option,) = answer.headers.set_headers
    assert answer.status.code == 503 and answer.grpc_status.status == 14
    assert (option.header.key, option.header.raw_value) == ("retry-after", b"1")


async def test_a_request_counts_for_its_worker_until_envoy_is_done_with_it(picker: EndpointPicker, stream: Any) -> None:
    await asked(stream, head(HTTP))
    assert picker._picker._requests == {"pod-1": 1}

    stream.cancel()

    async with asyncio.timeout(10):
        while picker._picker._requests:
            await asyncio.sleep(0.01)


async def test_it_tells_that_it_serves_as_grpc_has_it(channel: grpc.aio.Channel) -> None:
    check = channel.unary_unary(
        f"/{messages.HEALTH}/Check",
        request_serializer=messages.HealthCheckRequest.SerializeToString,
        response_deserializer=messages.HealthCheckResponse.FromString,
    )
    for service in ("liveness", "readiness", messages.EXTERNAL_PROCESSOR):
        assert (await check(messages.HealthCheckRequest(service=service))).status == messages.SERVING
