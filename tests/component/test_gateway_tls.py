"""TLS at both ends of a real Envoy: what callers see, and whom it takes for a worker."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from typing import TYPE_CHECKING

import aiohttp
import grpc
from tritonclient.grpc import service_pb2 as pb

from inference_operator.gateway.snapshot import Service
from inference_operator.state.objects import Key
from tests.authority import Authority, Signed
from tests.component import envoys
from tests.component.doors import Counting, plane
from tests.component.objects import a_model, a_node, a_server
from tests.component.operators import PATIENCE_SECONDS
from tests.component.test_mutual_tls import reviewed, settings
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.operators import Ward

INFER = "/default/v2/models/m/infer"
OWN = "served.default.svc"


def shown(pair: Signed, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pair.file(folder, f"pair-{len(list(folder.iterdir()))}"))
    return context


def trusting(authority: Authority, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


async def test_callers_get_tls_with_both_protocols_and_a_renewed_certificate_while_it_runs(
    workers: Counting, tmp_path: Path
) -> None:
    authority, folder = Authority(), tmp_path / "tls"
    authority.server("first.example.com").put(folder)
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, trusted=trusting(authority), tls_folder=str(folder)) as door:
        await door.until(INFER, "worker")

        async def handshake(*protocols: str) -> tuple[str | None, str]:
            _, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=trusting(authority, *protocols))
            found = writer.get_extra_info("ssl_object")
            names = dict(found.getpeercert()["subjectAltName"])
            writer.close()
            return found.selected_alpn_protocol(), names["DNS"]

        assert await handshake("h2", "http/1.1") == ("h2", "first.example.com")
        assert await handshake("http/1.1") == ("http/1.1", "first.example.com")
        authority.server("second.example.com").put(folder)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await handshake("h2"))[1] != "second.example.com":
                await asyncio.sleep(0.05)
        assert (await door.ask(INFER))[:2] == (200, "worker")


async def test_a_worker_is_known_by_the_name_that_the_authority_gives_its_job_alone(workers: Counting, tmp_path: Path) -> None:
    """An address that is used again leads to another job's worker, or to somebody with a key of another authority."""
    authority = Authority()
    uri = "spiffe://cluster.local/ns/default/sa/default/pod/uid"
    good, other = authority.server(OWN, uri=uri), authority.server("other.default.svc", uri=uri)
    forged = Authority("somebody").server(OWN, uri=uri)
    backends = [
        await workers.start(name, number, shown(pair, tmp_path))
        for number, (name, pair) in enumerate({"good": good, "other": other, "forged": forged}.items(), 1)
    ]
    callers, folder = Authority(), tmp_path / "tls"
    callers.server("gateway.example.com").put(folder)

    def service(*found: int) -> Service:
        return Service("default", "m", "1", True, tuple(backends[n] for n in found), jobs=(Key("default", "served"),), tls=True)

    async with plane(tmp_path, service(0), trusted=trusting(callers), tls_folder=str(folder), trust=authority.pem) as door:
        await door.until(INFER, "good")
        for number in (1, 2):
            door.say(service(number))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await door.ask(INFER))[0] != 503:
                    await asyncio.sleep(0.02)
            assert {(await door.ask(INFER))[0] for _ in range(10)} == {503}
        door.say(service(0))
        await door.until(INFER, "good")
    assert workers.asked["good"] and not workers.asked["other"] and not workers.asked["forged"]


async def test_real_workers_with_tls_are_reached_over_http_and_grpc_by_the_operators_own_authority(
    server: ApiServer, ward: Ward, tmp_path: Path
) -> None:
    node = WarmNode(server, tmp_path / "node", runs_jobs=True)
    given = models.slow(width=8, steps=2)
    (node.claim / "model.onnx").write_bytes(given)
    model = a_model()
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(given).hexdigest()}"}
    model["spec"] = {"versions": [version]}
    server.script_when(lambda call: call.path.endswith("/tokenreviews"), reviewed)
    for obj in (a_node(), model, a_server("served", serve={"tls": {}})):
        server.create(obj)
    authority, folder, (control, listener) = Authority(), tmp_path / "tls", free_ports(2)
    authority.server("gateway.example.com").put(folder)
    gateway = {"enabled": True, "port": control, "listenerPort": listener, "tlsFolder": str(folder)}
    operator = await ward.lead(server, settings={**settings(), "telemetrySeconds": 0.1, "gateway": gateway})
    envoy = None
    try:
        await all_ready(node, 1)
        envoy = envoys.start(tmp_path, control=control, door=listener)
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{listener}",
            grpc.ssl_channel_credentials(authority.pem.encode()),
            [("grpc.ssl_target_name_override", "gateway.example.com")],
        )
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelReady", response_deserializer=pb.ModelReadyResponse.FromString
        )
        request = pb.ModelReadyRequest(name="digits").SerializeToString()
        url = f"https://127.0.0.1:{listener}/default/v2/models/digits/ready"
        async with aiohttp.ClientSession() as session, channel, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    async with session.get(url, ssl=trusting(authority)) as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
            assert (await call(request, metadata=(("inference-namespace", "default"),))).ready
        assert "refuses" not in operator.log
    finally:
        if envoy is not None:
            envoy.end()
        await node.end()
