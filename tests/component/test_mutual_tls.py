"""Mutual TLS in operators as processes: one authority for all replicas, what workers are given, and KEDA's scaler by TLS."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc

from inference_operator.api import names
from inference_operator.autoscaling.keda import messages
from tests import authority
from tests.component.objects import a_batch, a_model, a_node, a_server, succeeded
from tests.component.operators import PATIENCE_SECONDS, Operator, Ward, until
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.api_server import ApiServer, Call, Carry
    from tests.component.kinds import Raw

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
    assert server.calls("POST", "/secrets$") == []
    assert len(server.calls("PUT", "/secrets/inference-operator-authority$")) == 1
    assert any(
        "serviceAccountToken" in source
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
    )


async def test_a_batch_runs_on_a_warm_worker_that_is_asked_and_ordered_by_mutual_tls_alone(
    server: ApiServer, ward: Ward, tmp_path: Path
) -> None:
    node = WarmNode(server, tmp_path / "node")
    given = models.slow(width=8, steps=1)
    (node.claim / "model.onnx").write_bytes(given)
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(given).hexdigest()}"}
    model = a_model()
    model["spec"] = {"versions": [version], "warmPool": {"min": 1, "max": 1, "batchSize": 8, "claims": [CLAIM]}}
    server.script_when(lambda call: call.path.endswith("/tokenreviews"), reviewed)
    for one in (a_node(), model):
        server.create(one)
    ward.start(server.url, settings={**settings(), "telemetrySeconds": 0.1})
    try:
        await all_ready(node, 1)
        rows = node.put_rows("rows", 64, 8)
        server.create(a_batch("job", batchSize=8, input={"uri": rows}, output={"uri": f"pvc://{CLAIM}/out/job"}))

        await until(lambda: succeeded(server.get("inferencejobs", "job")), "the batch")
        assert server.get("inferencejobs", "job")["status"]["placement"]["pod"] == node.workers[0].pod
        for path in ("telemetry", "tasks"):
            async with aiohttp.ClientSession() as session, session.get(f"http://{node.workers[0].address}:8000/{path}") as answer:
                assert answer.status == 404
    finally:
        await node.end()


async def reviewed(call: Call, _: Carry) -> Raw:
    """The API server's word for a token of a pod, which it believes as it is."""
    claims = json.loads(base64.urlsafe_b64decode(call.body["spec"]["token"].split(".")[1] + "=="))
    bound, where = claims["kubernetes.io"], "authentication.kubernetes.io/pod-"
    extra = {f"{where}name": [bound["pod"]["name"]], f"{where}uid": [bound["pod"]["uid"]]}
    user = {"username": f"system:serviceaccount:{bound['namespace']}:default", "extra": extra}
    return {**call.body, "status": {"authenticated": True, "audiences": call.body["spec"]["audiences"], "user": user}}


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
            return (await call(reference, timeout=PATIENCE_SECONDS)).result is False
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
