"""Mutual TLS in operators as processes: one authority for all replicas, what workers are given, and KEDA's scaler by TLS."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import grpc

from inference_operator.api import names
from inference_operator.autoscaling.keda import messages
from tests import authority
from tests.component.objects import a_batch, a_model, a_node, a_server
from tests.component.operators import Operator, Ward, until
from tests.loopback import free_ports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.api_server import ApiServer

SCALER_NAME = "inference-operator-keda-scaler.operator-system.svc"


def settings(**scaler: Any) -> dict[str, Any]:
    mutual = {"enabled": True, "port": free_ports(1)[0], "namespace": "operator-system"}
    return {"mutualTls": mutual, "kedaScaler": {"enabled": True, "port": 0, "tls": True, **scaler}}


def trust(server: ApiServer) -> str:
    return base64.b64decode(server.get("secrets", "inference-operator-authority", "operator-system")["data"]["ca.crt"]).decode()


async def test_all_replicas_have_one_authority_and_workers_are_told_of_it(server: ApiServer, ward: Ward) -> None:
    for one in (a_node(), a_model(), a_batch("job")):
        server.create(one)
    await ward.lead(server, settings=settings())
    second = ward.start(server.url, who="second", settings=settings())
    await second.says("workers get their certificates on port")
    (pod,) = await until(lambda: server.all("pods"), "the worker")

    assert pod["metadata"]["annotations"][names.ANNOTATION_TRUST] == trust(server)
    assert len(server.calls("POST", "/secrets$")) == 2, "the authority's, and that of the tasks' key"
    assert any(
        "serviceAccountToken" in source
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
    )


async def ask(operator: Operator, root: str, pair: authority.Signed | None = None, *, plain: bool = False) -> bool:
    (port,) = re.findall(r"scaler listens on port (\d+)", operator.log)
    reference = messages.ScaledObjectRef(name="scaled", namespace="default", scalerMetadata={"job": "resting"})
    shown = (pair.key.encode(), pair.chain.encode()) if pair is not None else (None, None)
    credentials = grpc.ssl_channel_credentials(root.encode(), *shown)
    options = [("grpc.ssl_target_name_override", SCALER_NAME)]
    where = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(where) if plain else grpc.aio.secure_channel(where, credentials, options) as channel:
        call = channel.unary_unary(
            "/externalscaler.ExternalScaler/IsActive",
            request_serializer=messages.ScaledObjectRef.SerializeToString,
            response_deserializer=messages.IsActiveResponse.FromString,
        )
        try:
            return (await call(reference, timeout=5)).result is False
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False


async def resting(server: ApiServer, ward: Ward, told: dict[str, Any]) -> Operator:
    for one in (a_node(), a_model()):
        server.create(one)
    server.create(a_server("resting", replicas=0, serve={"minReplicas": 0, "latencyTargetMilliseconds": 100}))
    operator = await ward.lead(server, settings=told)
    await operator.says("KEDA's scaler listens")
    return operator


async def test_the_scaler_for_keda_speaks_tls_by_the_authoritys_certificate(server: ApiServer, ward: Ward) -> None:
    operator = await resting(server, ward, settings())

    assert await ask(operator, trust(server))
    assert not await ask(operator, authority.Authority().pem)
    assert not await ask(operator, trust(server), plain=True)


async def test_the_scaler_asks_keda_for_a_certificate_where_it_is_told_to(server: ApiServer, ward: Ward, tmp_path: Path) -> None:
    keda = authority.Authority("keda")
    (tmp_path / "ca.crt").write_text(keda.pem)
    operator = await resting(server, ward, settings(clientCaFile=str(tmp_path / "ca.crt")))

    assert await ask(operator, trust(server), keda.client())
    assert not await ask(operator, trust(server))
    assert not await ask(operator, trust(server), authority.Authority().client())
