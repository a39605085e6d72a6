"""Mutual TLS between a real authority and real workers: who is believed, and certificates that live for seconds."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from inference_operator.controllers import worker_client
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.identity import authority as authorities
from inference_operator.identity.authority import Authority
from inference_operator.identity.authority_secret import AuthoritySecret
from inference_operator.identity.checks import ExpectedWorker, worker_context
from inference_operator.identity.issuer import Issuer, Rules
from inference_operator.identity.keyring import Lifetimes
from inference_operator.kube.ports import WorkerAddress
from inference_operator.runtime.bounded_http import BoundedHttp, Secured
from inference_operator.runtime.clock import SystemClock
from inference_operator.runtime.pki import Pair
from inference_protocol.messages import TELEMETRY_PATH, WorkerIdentity
from tests import authority as test_authority
from tests.builders import a_job, a_pod
from tests.loopback import free_ports
from tests.process import models, wire
from tests.process.harness import a_config
from tests.unit.autoscaling.metricsapi.kube import FakeKube
from tests.unit.controllers.test_worker_client import leading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from inference_operator.state.objects import Key, Pod
    from tests.process.harness import Place, Worker

DOMAIN = "example.org"
OPERATOR = f"spiffe://{DOMAIN}/ns/ops/sa/op"
AUDIENCE = f"{OPERATOR}/certificates"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
DAY = Lifetimes(timedelta(days=1), timedelta(days=365))
SECONDS = Lifetimes(timedelta(seconds=6), timedelta(seconds=2))
JOB = a_job("net", namespace="team", serve=True)


@dataclass
class World:
    """An authority on loopback, an API server that knows its tokens, and the operator's client of workers."""

    place: Place
    authority: Authority
    client: WorkerHttpClient
    pods: dict[Key, Pod]
    port: int
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def token(self, pod: Pod) -> str:
        bound = {"namespace": pod.key.namespace, "pod": {"name": pod.key.name, "uid": pod.uid}}
        claims = json.dumps({"aud": [AUDIENCE], "kubernetes.io": bound}).encode()
        return "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".c2ln"

    def start(self, root: Path, number: int = 1, *, trust: str | None = None, operator: str = OPERATOR, **more: Any) -> Worker:
        pod = a_pod(JOB, number)
        self.pods[pod.key] = pod
        (root / "identity").mkdir(parents=True)
        (root / "identity" / "token").write_text(self.token(pod))
        (root / "identity" / "trust.pem").write_text(trust if trust is not None else self.authority.trust)
        config = a_config(
            self.place.put("net.onnx", models.two_outputs()), identity=WorkerIdentity(f"https://localhost:{self.port}", operator)
        )
        return self.place.start(config, variables={"INFERENCE_IDENTITY_ROOT": str(root)}, **more)


@asynccontextmanager
async def a_world(place: Place, lifetimes: Lifetimes = DAY) -> AsyncIterator[World]:
    kube, pods, clock = FakeKube(), dict[Any, Any](), SystemClock()
    kube.put("/api/v1/namespaces/ops/secrets/authority", {"metadata": {"name": "authority"}})
    kube.reviews[REVIEWS] = lambda spec: reviewed(spec["token"])
    (port,) = free_ports(1)
    issuer = Issuer(
        kube, pods.get, lambda _: (), Rules(AUDIENCE, DOMAIN, lifetimes), now=clock.now, monotonic=lambda: clock.monotonic() * 1e6
    )
    secret = AuthoritySecret(kube, namespace="ops", name="authority", lifetimes=lifetimes)
    authority = Authority(secret, issuer, clock, lifetimes, domain=DOMAIN, uri=OPERATOR, hosts=("localhost",), port=port)
    await authority.open()
    async with BoundedHttp() as http:

        def secured(worker: WorkerAddress) -> Secured:
            return Secured(authority.of_workers, ExpectedWorker(worker.namespace, worker.uid).server_name)

        world = World(place, authority, WorkerHttpClient(http, leading(), secured), pods, port)
        tasks = [asyncio.create_task(authority.serve()), asyncio.create_task(authority.run())]
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def reviewed(token: str) -> dict[str, Any]:
    bound = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["kubernetes.io"]
    extra = {
        "authentication.kubernetes.io/pod-name": [bound["pod"]["name"]],
        "authentication.kubernetes.io/pod-uid": [bound["pod"]["uid"]],
    }
    user = {"username": f"system:serviceaccount:{bound['namespace']}:default", "extra": extra}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user}


async def until(condition: Callable[[], Any], what: str) -> None:
    """As the harness's, and lets the authority answer meanwhile."""
    for _ in range(1200):
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(what)


def meant(number: int = 1) -> WorkerAddress:
    pod = a_pod(JOB, number)
    return WorkerAddress("127.0.0.1", pod.key.namespace, pod.uid)


async def has_certificate(worker: Worker) -> None:
    await until(lambda: "a certificate for" in worker.log or not worker.running, "a certificate")
    assert worker.running, worker.log


@pytest.fixture(autouse=True)
def _answered_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "_LOOK_SECONDS", 0.2)


async def test_a_worker_is_asked_by_mutual_tls_and_believed_as_the_pod_that_it_is(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(place) as world:
        worker = world.start(tmp_path / "1")
        monkeypatch.setattr(worker_client, "CONTROL_PORT", worker.control_port)
        await has_certificate(worker)

        assert await world.client.telemetry(meant()) is not None
        # The same address with another worker behind it: the operator means somebody else, and says nothing.
        assert await world.client.telemetry(meant(2)) is None
        assert await world.client.telemetry(meant()._replace(namespace="other")) is None


async def test_the_operators_calls_are_on_no_other_port(place: Place, tmp_path: Path) -> None:
    async with a_world(place) as world:
        worker = world.start(tmp_path / "1")
        await until(lambda: worker.answers("/v2/health/ready") == 200, "ready")
        for path in (TELEMETRY_PATH, "/tasks", "/tasks/wait", "/tasks/stop"):
            for port in (worker.port, worker.health_port):
                assert (await asyncio.to_thread(wire.get, port, path)).status == 404


async def test_nobody_but_the_operator_is_let_in_at_its_port(place: Place, tmp_path: Path) -> None:
    async with a_world(place) as world:
        worker = world.start(tmp_path / "1")
        await has_certificate(worker)
        ring = world.authority._ring
        assert ring is not None
        ours = test_authority.Authority.of(ring.signing.certificate, ring.signing.key)
        other = test_authority.Authority()
        refused = {
            "without a certificate": None,
            "of another authority": other.client(uri=OPERATOR),
            "that has expired": ours.client(uri=OPERATOR, seconds=-1),
            "of somebody else": ours.client(uri=f"spiffe://{DOMAIN}/ns/ops/sa/another"),
            "of a worker": ours.server(uri=f"spiffe://{DOMAIN}/ns/team/sa/default/pod/u"),
            "of a worker that calls itself the operator": ours.server(uri=OPERATOR),
            "without a name": ours.client(),
        }
        for name, shown in refused.items():
            assert not await lets_in(worker, world, shown), name
        assert await lets_in(worker, world, ours.client(uri=OPERATOR))
        with wire.Wire(worker.control_port) as plain, pytest.raises(ConnectionError):
            await asyncio.to_thread(plain.send(wire.request("GET", TELEMETRY_PATH)).read)


async def lets_in(worker: Worker, world: World, shown: test_authority.Signed | None) -> bool:
    pod = a_pod(JOB, 1)
    context = ssl.create_default_context(cadata=world.authority.trust)
    context.check_hostname = False
    if shown is not None:
        context = worker_context(Pair(shown.chain, shown.key), world.authority.trust, DOMAIN)
    name = ExpectedWorker(pod.key.namespace, pod.uid).server_name
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.control_port, ssl=context, server_hostname=name)
        writer.write(wire.request("GET", TELEMETRY_PATH))
        answer = await asyncio.wait_for(reader.read(64), wire.PATIENCE_SECONDS)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return answer.startswith(b"HTTP/1.1 200")


async def test_a_worker_does_not_show_its_token_to_whoever_is_not_the_operator(place: Place, tmp_path: Path) -> None:
    async with a_world(place) as world:
        wrong_ca = world.start(tmp_path / "1", trust=test_authority.Authority().pem)
        wrong_name = world.start(tmp_path / "2", 2, operator=f"{OPERATOR}-2")
        await until(lambda: "CERTIFICATE_VERIFY_FAILED" in wrong_ca.log, "a word of the wrong CA")
        await until(lambda: f"is {OPERATOR}, and not {OPERATOR}-2" in wrong_name.log, "a word of the wrong name")

        # It serves its callers all the same.
        await until(lambda: wrong_ca.answers("/v2/health/ready") == 200, "ready")


async def test_certificates_and_keys_of_seconds_are_renewed_without_a_lost_request(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate lives for 6 s, and an authority's key signs for some 14: all are replaced several times under load."""
    quick = {"inference_worker.serve.certificates:_PAUSE_SECONDS": 0.1}
    async with a_world(place, SECONDS) as world:
        worker = world.start(tmp_path / "1", patches=quick)
        monkeypatch.setattr(worker_client, "CONTROL_PORT", worker.control_port)
        await has_certificate(worker)
        first, seen = world.authority.trust.split("-----END")[0], set()

        async def asked() -> bool:
            """Whether the key was replaced twice, and what was trusted first is forgotten."""
            assert await world.client.telemetry(meant()) is not None, worker.log
            ring = world.authority._ring
            assert ring is not None
            seen.add(ring.signing.certificate)
            return len(seen) >= 3 and first not in world.authority.trust

        async with asyncio.timeout(180):
            while not await asked():
                await asyncio.sleep(0.01)

        # Twice for each key, as it signs for more than two lives of a certificate.
        assert worker.log.count("a certificate for") >= 2 * len(seen)
