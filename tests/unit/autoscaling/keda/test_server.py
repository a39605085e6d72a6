"""The scaler over a real socket, asked by gRPC's own client."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest
from h2.connection import H2Connection
from h2.events import ResponseReceived, TrailersReceived

from inference_operator.api.job import Serve
from inference_operator.autoscaling.keda import messages, server
from inference_operator.autoscaling.keda.server import KedaScaler
from inference_operator.runtime.clock import SystemClock
from inference_operator.settings import KedaScalerSettings, Settings
from inference_operator.state.load import Load, Recommendation, ScalingMetrics, Workers
from inference_operator.state.store import Store
from tests.builders import a_job, a_load, a_pod

ROUND = 0.01
JOB = a_job(serve=Serve(min_replicas=0, latency_target_milliseconds=100), replicas=1)


class Bench:
    """A running scaler, and a client of it."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.put_job(JOB)
        self.store.put_pod(a_pod(JOB))
        settings = Settings(telemetry_seconds=ROUND, keda_scaler=KedaScalerSettings(enabled=True, port=0))
        self.scaler = KedaScaler(self.store, SystemClock(), settings)

    def connect(self) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.scaler.port}")

    async def disconnected(self) -> None:
        """Wait until the client has let its connection go: a call that is made before goes down with it."""
        async with asyncio.timeout(20):
            await self.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

    def measured(self, load: Load) -> None:
        """As if looked at an hour from now: news for as long as the test runs."""
        self.store.scaling_metrics[JOB.uid] = ScalingMetrics(
            SystemClock().monotonic() + 3600, load, Workers(1, 1), Recommendation(2)
        )

    def stale(self) -> None:
        self.store.scaling_metrics[JOB.uid] = replace(self.store.scaling_metrics[JOB.uid], time=0.0)

    async def ask(self, method: str, request: Any, reply: Any) -> Any:
        call = self.channel.unary_unary(
            f"/externalscaler.ExternalScaler/{method}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        return await call(request, timeout=20)

    def stream(self, **more: Any) -> Any:
        call = self.channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            request_serializer=messages.ScaledObjectRef.SerializeToString,
            response_deserializer=messages.IsActiveResponse.FromString,
        )
        return call(reference(**more))


def reference(*, namespace: str = "default", **metadata: str) -> Any:
    given = {"job": "job", "scalerAddress": "operator:6000", **metadata}
    return messages.ScaledObjectRef(name="scaled", namespace=namespace, scalerMetadata=given)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    made.measured(a_load(0.25))
    async with AsyncExitStack() as stack:
        serving = asyncio.create_task(made.scaler.serve())
        stack.callback(serving.cancel)
        while not made.scaler.port:
            await asyncio.sleep(0)
        made.connect()
        stack.push_async_callback(made.channel.close)
        yield made


async def fault(asked: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    return caught.value.code(), caught.value.details() or ""


async def spec(bench: Bench, **more: Any) -> Any:
    return await bench.ask("GetMetricSpec", reference(**more), messages.GetMetricSpecResponse)


async def values(bench: Bench, **more: Any) -> Any:
    request = messages.GetMetricsRequest(scaledObjectRef=reference(**more), metricName="any")
    return await bench.ask("GetMetrics", request, messages.GetMetricsResponse)


async def is_active(bench: Bench, **more: Any) -> bool:
    found: bool = (await bench.ask("IsActive", reference(**more), messages.IsActiveResponse)).result
    return found


async def test_keda_gets_metric_target_value_and_activity(bench: Bench) -> None:
    (aim,) = (await spec(bench)).metricSpecs
    (found,) = (await values(bench)).metricValues

    assert (aim.metricName, aim.targetSizeFloat) == ("inference_desired_replicas", 1.0)
    assert (found.metricName, found.metricValueFloat) == ("inference_desired_replicas", 2.0)
    assert await is_active(bench)


async def test_a_latency_is_told_by_its_name(bench: Bench) -> None:
    asked = {"metric": "inference_latency_ms", "target": "300"}
    (aim,) = (await spec(bench, **asked)).metricSpecs
    (found,) = (await values(bench, **asked)).metricValues

    assert (aim.metricName, aim.targetSizeFloat) == ("inference_latency_ms", 300.0)
    assert found.metricValueFloat == 250.0


async def test_messages_are_kedas_on_the_wire(bench: Bench) -> None:
    """By hand, field by field: name 1, namespace 2, scalerMetadata 3; the answer's result is field 1."""
    entry = b"\x0a\x03job\x12\x03job"
    text = b"\x0a\x06scaled" + b"\x12\x07default" + b"\x1a" + bytes([len(entry)]) + entry
    answer = await bench.ask("IsActive", text, messages.IsActiveResponse)

    assert answer.SerializeToString() == b"\x08\x01"


async def test_a_job_of_another_namespace_is_not_there(bench: Bench) -> None:
    code, text = await fault(is_active(bench, namespace="other"))

    assert (code, text) == (grpc.StatusCode.NOT_FOUND, "there is no InferenceJob 'job' in 'other'")
    assert (await fault(values(bench, job="default/job")))[0] is grpc.StatusCode.NOT_FOUND


async def test_what_is_not_known_is_unavailable(bench: Bench) -> None:
    bench.stale()

    for asked in (is_active(bench), values(bench)):
        code, text = await fault(asked)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "too old" in text
    # What to aim for is written, not measured: KEDA makes the HPA before there are workers.
    assert (await spec(bench)).metricSpecs


async def test_metadata_that_ask_for_nothing_are_told_what_to_write(bench: Bench) -> None:
    for asked in (spec(bench, metric="cpu"), values(bench, metric="cpu"), is_active(bench, metric="cpu")):
        code, text = await fault(asked)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "there is no metric 'cpu'" in text


async def test_bytes_that_are_no_message_are_an_invalid_argument(bench: Bench) -> None:
    code, _ = await fault(bench.ask("IsActive", b"\xff\xff\xff", messages.IsActiveResponse))

    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_newer_kedas_ask_as_well_is_unimplemented(bench: Bench) -> None:
    code, _ = await fault(bench.ask("StreamMetricSpec", reference(), messages.GetMetricSpecResponse))

    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_bug_is_told_without_its_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.scaler._service._scaler, "active", lambda _: 1 // 0)
    code, text = await fault(is_active(bench))

    assert code is grpc.StatusCode.UNKNOWN
    assert "division" not in text


async def test_a_stream_tells_activity_at_once_and_then_changes(bench: Bench) -> None:
    stream = bench.stream()
    told = [(await stream.read()).result]
    for load in (Load(seconds=15.0), a_load(0.1), Load(seconds=15.0)):
        bench.measured(load)
        told.append((await stream.read()).result)
    stream.cancel()

    assert told == [True, False, True, False]


async def test_a_stream_ends_when_it_has_nothing_true_to_tell(bench: Bench) -> None:
    stream = bench.stream()
    assert (await stream.read()).result
    bench.stale()

    code, text = await fault(stream.read())
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "too old" in text


async def test_a_stream_ends_with_its_job(bench: Bench) -> None:
    stream = bench.stream()
    await stream.read()
    bench.store.drop_job(JOB.key, JOB.uid)

    assert (await fault(stream.read()))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_stream_that_nobody_reads_any_more_is_let_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def active(_: Any) -> bool:
        nonlocal asked
        asked += 1
        return True

    monkeypatch.setattr(bench.scaler._service._scaler, "active", active)
    stream = bench.stream()
    await stream.read()
    stream.cancel()
    before = -1
    while asked != before:
        before = asked
        await asyncio.sleep(20 * ROUND)


async def test_as_many_streams_as_keda_has_objects_leave_room_for_questions(bench: Bench) -> None:
    streams = [bench.stream() for _ in range(300)]
    async with asyncio.timeout(30):
        assert all(answer.result for answer in await asyncio.gather(*(stream.read() for stream in streams)))

    assert (await values(bench)).metricValues[0].metricValueFloat == 2.0


async def test_a_request_that_is_far_too_large_ends_its_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        code, _ = await fault(is_active(bench, padding="x" * (server._REQUEST_BYTES + 1)))

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "larger than" in caplog.text
    await bench.disconnected()
    assert await is_active(bench)


def call_head(path: str = "/externalscaler.ExternalScaler/IsActive") -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "operator"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]


async def test_many_requests_that_never_end_cost_no_more_than_one_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_UNFINISHED_BYTES", 50_000)
    client = H2Connection()
    client.initiate_connection()
    with caplog.at_level(logging.WARNING):
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.scaler.port)
        for number in range(60):
            client.send_headers(2 * number + 1, call_head())
            client.send_data(2 * number + 1, b"\0\0\0\x40\0" + b"x" * 1000)
        writer.write(client.data_to_send())
        async with asyncio.timeout(20):
            while await reader.read(4096):
                pass
        writer.close()

    assert "none complete" in caplog.text
    assert await is_active(bench)


async def test_silent_connections_make_room_for_whoever_asks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server._Protocol, "connections", 3)
    stream = bench.stream()
    assert (await stream.read()).result
    silent = [await asyncio.open_connection("127.0.0.1", bench.scaler.port) for _ in range(2)]
    for reader, _ in silent:
        assert await reader.read(1)
    with caplog.at_level(logging.WARNING):
        last, writer = await asyncio.open_connection("127.0.0.1", bench.scaler.port)
        assert await last.read(1)
        async with asyncio.timeout(20):
            while await silent[0][0].read(4096):
                pass
    assert "asks nothing" in caplog.text
    bench.measured(Load(seconds=15.0))
    # The stream is the oldest, and stays; whoever has just come has not been ended either.
    assert not (await stream.read()).result
    assert not last.at_eof() and not silent[1][0].at_eof()
    for _, other in (*silent, (last, writer)):
        other.close()


def test_an_operator_without_it_pays_nothing_for_it() -> None:
    code = "import sys, inference_operator.app; print([m for m in ('grpclib', 'h2', 'google.protobuf') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


async def headers_sent(bench: Bench, *more: tuple[str, bytes], data: tuple[bytes, ...] = (b"\0\0\0\0\0",)) -> bytes:
    """What comes back for a question with these headers, until the connection ends or a stream does."""
    client = H2Connection()
    client.initiate_connection()
    client.send_headers(1, [*call_head(), *more])
    for part in data:
        client.send_data(1, part)
    client.end_stream(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.scaler.port)
    writer.write(client.data_to_send())
    try:
        async with asyncio.timeout(20):
            while got := await reader.read(4096):
                for event in client.receive_data(got):
                    if isinstance(event, (ResponseReceived, TrailersReceived)) and (
                        told := dict(event.headers).get(b"grpc-status")
                    ):
                        return told
    finally:
        writer.close()
    return b"ended"


async def test_an_empty_frame_of_data_is_not_the_end_of_a_request(bench: Bench) -> None:
    """Fuzzing found it: grpclib took it for that, and a right question was refused."""
    whole = reference().SerializeToString()
    whole = b"\0" + len(whole).to_bytes(4, "big") + whole
    assert await headers_sent(bench, data=(b"", whole[:3], b"", whole[3:])) == b"0"


async def test_metadata_that_is_no_base64_is_answered(bench: Bench) -> None:
    """Fuzzing found it: grpclib failed before it had a call to answer, and the caller heard nothing for ever."""
    assert await headers_sent(bench, ("x-any-bin", b"!!!")) == b"3"


async def test_a_header_that_is_not_ascii_ends_its_connection_in_a_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Fuzzing found it: the event loop logged h2's traceback for each."""
    assert await headers_sent(bench, ("x-any", b"\xff")) == b"ended"
    assert "can't be read" in caplog.text and "Traceback" not in caplog.text
    assert await is_active(bench)
