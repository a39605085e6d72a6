"""KEDA's scaler in operators as processes, asked by gRPC's own client: leader and standby tell the same, from what each knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from inference_operator.autoscaling.keda import messages
from tests.component.objects import a_model, a_node, a_server
from tests.component.operators import PATIENCE_SECONDS, Operator, Ward

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer

SCALER = {"kedaScaler": {"enabled": True, "port": 0}}


async def both(server: ApiServer, ward: Ward) -> list[Operator]:
    for one in (a_node(), a_model()):
        server.create(one)
    server.create(a_server("resting", replicas=0, serve={"minReplicas": 0, "latencyTargetMilliseconds": 100}))
    server.create(a_server("starting", serve={"minReplicas": 0, "latencyTargetMilliseconds": 100}))
    leader = await ward.lead(server, settings=SCALER)
    standby = ward.start(server.url, who="second", settings=SCALER)
    for operator in (leader, standby):
        await operator.says("KEDA's scaler listens")
    return [leader, standby]


async def ask(operator: Operator, method: str, job: str, *, namespace: str = "default") -> Any:
    (port,) = re.findall(r"scaler listens on port (\d+)", operator.log)
    reference = messages.ScaledObjectRef(name="scaled", namespace=namespace, scalerMetadata={"job": job})
    request, reply = {
        "IsActive": (reference, messages.IsActiveResponse),
        "GetMetrics": (messages.GetMetricsRequest(scaledObjectRef=reference, metricName="any"), messages.GetMetricsResponse),
    }[method]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            f"/externalscaler.ExternalScaler/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await call(request, timeout=PATIENCE_SECONDS)


async def test_every_replica_knows_a_service_at_rest(server: ApiServer, ward: Ward) -> None:
    for operator in await both(server, ward):
        assert not (await ask(operator, "IsActive", "resting")).result
        (value,) = (await ask(operator, "GetMetrics", "resting")).metricValues
        assert (value.metricName, value.metricValueFloat) == ("inference_desired_replicas", 0.0)


async def test_every_replica_says_what_it_does_not_know(server: ApiServer, ward: Ward) -> None:
    unknown = (("starting", "default", grpc.StatusCode.UNAVAILABLE), ("resting", "other", grpc.StatusCode.NOT_FOUND))
    for operator in await both(server, ward):
        for method in ("IsActive", "GetMetrics"):
            for job, namespace, code in unknown:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(operator, method, job, namespace=namespace)
                assert caught.value.code() is code
