"""The server over real TLS: who is believed, what is allowed, what is told, and what a new CA or certificate changes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from inference_operator.api.job import Serve
from inference_operator.autoscaling.metricsapi import certificates, service
from inference_operator.autoscaling.metricsapi.authentication import CONFIG_PATH
from inference_operator.autoscaling.metricsapi.budget import ReviewClients
from inference_operator.autoscaling.metricsapi.endpoint import Replica
from inference_operator.autoscaling.metricsapi.service import CustomMetricsService
from inference_operator.runtime.clock import SystemClock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import CustomMetrics, Settings
from inference_operator.state.load import Recommendation, ScalingMetrics, Workers
from inference_operator.state.objects import MetricsApiState
from inference_operator.state.request import Request
from inference_operator.state.store import Store
from tests.builders import a_job, a_load, a_pod
from tests.unit.autoscaling.metricsapi.kube import FakeKube
from tests.unit.autoscaling.metricsapi.pki import Authority, client_context

Raw = dict[str, Any]
GROUP = "/apis/custom.metrics.k8s.io"
METRIC = f"{GROUP}/v1beta2/namespaces/default/inferencejobs.inference.myorg/job/inference_latency_ms"
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
SECRET = "/api/v1/namespaces/system/secrets/tls"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def config_map(ca: str, *, allowed: list[str] | None = None) -> Raw:
    data = {
        "requestheader-client-ca-file": ca,
        "requestheader-allowed-names": json.dumps(allowed if allowed is not None else ["front-proxy-client"]),
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {"metadata": {"name": "extension-apiserver-authentication"}, "data": data}


class Bench:
    """A running service, and callers of it."""

    def __init__(self, folder: Path, reviews: ReviewClients | None = None) -> None:
        self.folder = folder
        self.kube = FakeKube()
        self.authority = Authority()
        self.kube.put(SECRET, {"metadata": {"name": "tls"}})
        self.kube.put(CONFIG_PATH, config_map(self.authority.pem))
        self.allowed = True
        self.kube.reviews[REVIEWS] = lambda _: {"allowed": self.allowed}
        self.kube.reviews["/apis/authentication.k8s.io/v1/tokenreviews"] = self._token
        self.store = Store()
        job = a_job(serve=Serve(latency_target_milliseconds=100), replicas=1)
        self.store.put_job(job)
        self.store.put_pod(a_pod(job))
        clock = SystemClock()
        self.store.scaling_metrics[job.uid] = ScalingMetrics(
            clock.monotonic() + 3600, a_load(0.25), Workers(1, 1), Recommendation(2)
        )
        queue: WorkQueue[Request] = WorkQueue(clock.monotonic)
        settings = Settings(custom_metrics=CustomMetrics(enabled=True, port=0, service="metrics", secret="tls"))
        reviewing = reviews or ReviewClients(self.kube, self.kube, self.kube)
        here = Replica("operator-1", "10.0.0.1")
        self.service = CustomMetricsService(self.kube, self.kube, reviewing, self.store, queue, clock, settings, "system", here)

    @staticmethod
    def _token(spec: Raw) -> Raw:
        if spec["token"] != "good":
            return {"authenticated": False}
        return {"authenticated": True, "user": {"username": "jane", "groups": ["devs"], "uid": "1", "extra": {"scopes": ["x"]}}}

    @property
    def ca(self) -> str:
        return base64.b64decode(self.kube.objects[SECRET]["data"]["ca.crt"]).decode()

    async def ask(
        self, path: str = METRIC, *, client: Path | None = None, headers: Any = None, method: str = "GET"
    ) -> tuple[int, Raw]:
        """One request on a connection of its own."""
        context = client_context(self.ca, client)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://127.0.0.1:{self.service._port}{path}"
            async with session.request(method, url, headers=headers, server_hostname="metrics.system.svc") as response:
                text = await response.text()
                return response.status, json.loads(text) if text.startswith("{") else {"text": text}

    def proxy(self, name: str = "front-proxy-client", **more: Any) -> Path:
        return self.authority.client(self.folder, name, **more)

    def reviewed(self) -> list[Raw]:
        """What was asked of the API server's authorization."""
        return [body["spec"] for verb, path, body in self.kube.asked if (verb, path) == ("create", REVIEWS)]

    async def serving(self) -> None:
        while self.service._bundle is None:
            await asyncio.sleep(0.01)


def remote(user: str = HPA, *groups: str, **more: str) -> list[tuple[str, str]]:
    return [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups), *more.items()]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(service, "HURRY_SECONDS", 0.01)
    made = Bench(tmp_path)
    task = asyncio.create_task(made.service.serve())
    await asyncio.wait_for(made.serving(), 20)
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# Who is believed.


async def test_the_aggregator_speaks_for_its_users(bench: Bench) -> None:
    code, body = await bench.ask(client=bench.proxy(), headers=remote(HPA, "system:serviceaccounts"))

    assert code == 200
    assert [item["value"] for item in body["items"]] == ["250000m"]
    (spec,) = bench.reviewed()
    assert (spec["user"], spec["groups"]) == (HPA, ["system:serviceaccounts", "system:authenticated"])
    assert spec["resourceAttributes"] == {
        "group": "custom.metrics.k8s.io",
        "version": "v1beta2",
        "namespace": "default",
        "resource": "inferencejobs.inference.myorg",
        "subresource": "inference_latency_ms",
        "name": "job",
        "verb": "get",
    }


async def test_headers_alone_make_nobody(bench: Bench) -> None:
    code, body = await bench.ask(headers=remote("system:admin", "system:masters"))

    assert (code, body["reason"]) == (401, "Unauthorized")
    assert bench.reviewed() == []


async def test_a_certificate_with_another_name_makes_nobody(bench: Bench) -> None:
    assert (await bench.ask(client=bench.proxy("somebody"), headers=remote("system:admin", "system:masters")))[0] == 401


async def test_any_name_will_do_where_none_is_demanded(bench: Bench) -> None:
    bench.kube.put(CONFIG_PATH, config_map(bench.authority.pem, allowed=[]))
    while bench.service._front.front_proxy is None or bench.service._front.front_proxy.allowed_names:
        await asyncio.sleep(0.01)

    assert (await bench.ask(client=bench.proxy("somebody"), headers=remote()))[0] == 200


async def test_a_certificate_of_another_ca_ends_the_handshake(bench: Bench) -> None:
    stranger = Authority().client(bench.folder, "front-proxy-client")

    with pytest.raises((aiohttp.ClientError, OSError)):
        await bench.ask(client=stranger, headers=remote("system:admin", "system:masters"))


async def test_a_certificate_for_servers_ends_the_handshake(bench: Bench) -> None:
    server = bench.proxy(usage=ExtendedKeyUsageOID.SERVER_AUTH)

    with pytest.raises((aiohttp.ClientError, OSError)):
        await bench.ask(client=server, headers=remote("system:admin", "system:masters"))


async def test_a_certificate_without_headers_makes_nobody(bench: Bench) -> None:
    assert (await bench.ask(client=bench.proxy()))[0] == 401


async def test_uid_and_extra_are_handed_on(bench: Bench) -> None:
    headers = [*remote("jane", "devs"), ("X-Remote-Uid", "7"), ("X-Remote-Extra-Acme.org%2Fscopes", "a")]
    headers.append(("X-Remote-Extra-Acme.org%2Fscopes", "b"))
    assert (await bench.ask(client=bench.proxy(), headers=headers))[0] == 200

    (spec,) = bench.reviewed()
    assert (spec["uid"], spec["extra"]) == ("7", {"acme.org/scopes": ["a", "b"]})


async def test_a_token_is_reviewed_once_in_a_while(bench: Bench) -> None:
    for _ in range(3):
        assert (await bench.ask(headers={"Authorization": "Bearer good"}))[0] == 200

    (spec,) = bench.reviewed()
    assert (spec["user"], spec["groups"], spec["extra"]) == ("jane", ["devs", "system:authenticated"], {"scopes": ["x"]})
    assert len([p for p in bench.kube.did("create") if p.endswith("tokenreviews")]) == 1


@pytest.mark.parametrize("header", ["Bearer bad", "Bearer ", "Basic good", "good"])
async def test_a_bad_token_makes_nobody(bench: Bench, header: str) -> None:
    assert (await bench.ask(headers={"Authorization": header}))[0] == 401


async def test_a_token_goes_before_headers_that_nobody_vouches_for(bench: Bench) -> None:
    headers = [*remote("system:admin", "system:masters"), ("Authorization", "Bearer good")]
    assert (await bench.ask(headers=headers))[0] == 200

    assert bench.reviewed()[0]["user"] == "jane"


# What is allowed.


async def test_who_may_not_is_told_so(bench: Bench) -> None:
    bench.allowed = False
    code, body = await bench.ask(client=bench.proxy(), headers=remote("jane"))

    assert (code, body["reason"], body["kind"]) == (403, "Forbidden", "Status")
    assert "jane may not get" in body["message"]


async def test_masters_are_not_asked_about(bench: Bench) -> None:
    bench.allowed = False

    assert (await bench.ask(GROUP + "/v1beta2", client=bench.proxy(), headers=remote("system:kube-aggregator", "system:masters")))[
        0
    ] == 200
    assert bench.reviewed() == []


async def test_the_aggregator_itself_comes_without_groups_and_is_let_in(bench: Bench) -> None:
    code, body = await bench.ask(GROUP + "/v1beta1", client=bench.proxy(), headers=remote("system:kube-aggregator"))

    assert code == 200
    assert body["resources"][0]["name"] == "inferencejobs.inference.myorg/inference_latency_ms"
    (spec,) = bench.reviewed()
    assert spec["groups"] == ["system:authenticated"]
    assert spec["nonResourceAttributes"] == {"path": GROUP + "/v1beta1", "verb": "get"}


async def test_an_api_server_that_is_away_is_no_permission(bench: Bench) -> None:
    bench.kube.down = True
    code, body = await bench.ask(client=bench.proxy(), headers=remote("jane"))

    assert (code, body["reason"]) == (503, "ServiceUnavailable")


# What is told.


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [
        (GROUP, "GET", 200),
        (METRIC.replace("v1beta2", "v1beta1"), "GET", 200),
        (METRIC.replace("/job/", "/%2A/"), "GET", 200),
        (METRIC.replace("/job/", "/*/") + "?labelSelector=a+in+(b)", "GET", 200),
        (METRIC + "?metricLabelSelector=signal%3Drecommended", "GET", 200),
        (METRIC + "?labelSelector=a%20in", "GET", 400),
        (METRIC.replace("/job/", "/x%2Fy/"), "GET", 404),
        (METRIC.replace("/job/", "/job%2F"), "GET", 404),
        (METRIC.replace("latency", "nonsense"), "GET", 404),
        ("/apis", "GET", 404),
        ("/openapi/v2", "GET", 404),
        ("/openapi/v3", "GET", 404),
        ("/", "GET", 404),
        (METRIC, "POST", 405),
        (METRIC, "DELETE", 405),
    ],
)
async def test_codes(bench: Bench, path: str, method: str, code: int) -> None:
    found, body = await bench.ask(path, client=bench.proxy(), headers=remote(), method=method)

    assert found == code
    assert body["kind"] == "Status" if code != 200 else body["kind"] in ("MetricValueList", "APIGroup")


async def test_health_needs_no_name(bench: Bench) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await bench.ask(path) == (200, {"text": "ok"})


async def test_a_bug_is_told_without_its_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.service._front._metrics, "values", lambda _: 1 // 0)
    code, body = await bench.ask(client=bench.proxy(), headers=remote())

    assert (code, body["reason"]) == (500, "InternalError")
    assert "division" not in body["message"]


# What changes while it runs.


async def test_a_rotated_ca_is_trusted_and_the_old_one_no_longer(bench: Bench) -> None:
    old = bench.proxy()
    assert (await bench.ask(client=old, headers=remote()))[0] == 200
    bench.authority = Authority()
    bench.kube.put(CONFIG_PATH, config_map(bench.authority.pem))
    while bench.service._front.front_proxy is None or bench.service._front.front_proxy.ca != bench.authority.pem:
        await asyncio.sleep(0.01)

    assert (await bench.ask(client=bench.proxy(), headers=remote()))[0] == 200
    with pytest.raises((aiohttp.ClientError, OSError)):
        await bench.ask(client=old, headers=remote())


async def test_a_connection_that_an_old_ca_let_in_is_ended(bench: Bench) -> None:
    context = client_context(bench.ca, bench.proxy())
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", bench.service._port, ssl=context, server_hostname="metrics.system.svc"
    )
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    bench.kube.put(CONFIG_PATH, config_map(Authority().pem))

    assert (await asyncio.wait_for(reader.read(), 20)).endswith(b"ok")
    writer.close()


async def test_a_renewed_certificate_is_used_without_a_restart(bench: Bench) -> None:
    names = ("metrics.system.svc",)
    before = certificates.read_secret(bench.kube.objects[SECRET])
    renewed = certificates.issue((*names, "metrics.system", "metrics"), datetime.now(UTC), before)
    secret = bench.kube.objects[SECRET]
    bench.kube.put(SECRET, {**secret, "data": {**secret["data"], **_encoded(renewed)}})
    while bench.service._bundle is None or bench.service._bundle.certificate != renewed.certificate:
        await asyncio.sleep(0.01)

    loop = asyncio.get_running_loop()
    connect = partial(loop.create_connection, asyncio.Protocol, "127.0.0.1", bench.service._port)
    transport, _ = await connect(ssl=client_context(bench.ca), server_hostname=names[0])
    shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    transport.close()
    assert base64.encodebytes(shown).decode().replace("\n", "") in renewed.certificate.replace("\n", "")
    assert (await bench.ask(client=bench.proxy(), headers=remote()))[0] == 200


async def test_a_key_that_belongs_to_another_certificate_spoils_nothing(bench: Bench) -> None:
    secret = bench.kube.objects[SECRET]
    other = certificates.issue(("metrics.system.svc", "metrics.system", "metrics"), datetime.now(UTC))
    bench.kube.put(SECRET, {**secret, "data": {**secret["data"], "tls.key": _encoded(other)["tls.key"]}})
    looks = len(bench.kube.asked)
    while len(bench.kube.asked) < looks + 6:
        await asyncio.sleep(0.01)

    assert (await bench.ask(client=bench.proxy(), headers=remote()))[0] == 200


async def test_an_api_server_that_is_away_leaves_all_as_it_is(bench: Bench) -> None:
    assert (await bench.ask(client=bench.proxy(), headers=remote()))[0] == 200
    bench.kube.down = True

    # The decision of a moment ago still holds, and so do certificate and CA.
    assert (await bench.ask(client=bench.proxy(), headers=remote()))[0] == 200


async def test_a_cluster_without_the_config_map_knows_tokens_alone(bench: Bench) -> None:
    client = bench.proxy()
    del bench.kube.objects[CONFIG_PATH]
    while bench.service._front.front_proxy is not None:
        await asyncio.sleep(0.01)

    assert (await bench.ask(client=client, headers=remote()))[0] == 401
    assert (await bench.ask(headers={"Authorization": "Bearer good"}))[0] == 200


async def test_the_registration_tells_the_jobs(bench: Bench) -> None:
    task = asyncio.create_task(bench.service.register())
    await registered(bench)
    task.cancel()


async def test_a_service_that_could_not_be_led_here_is_tried_again_soon(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead to a dead leader, although the API group is served already."""
    monkeypatch.setattr(service, "LOOK_SECONDS", 3600.0)
    task = asyncio.create_task(bench.service.register())
    await registered(bench)

    bench.kube.put("/api/v1/namespaces/system/services/metrics", {"metadata": {"name": "metrics"}})
    async with asyncio.timeout(20):
        while not any(path.endswith("/endpointslices/metrics-ipv4") for path in bench.kube.objects):
            await asyncio.sleep(0.01)
    task.cancel()


async def registered(bench: Bench) -> None:
    """As the aggregator answers a registration."""
    path = "/apis/apiregistration.k8s.io/v1/apiservices/{}.custom.metrics.k8s.io"
    while path.format("v1beta1") not in bench.kube.objects:
        await asyncio.sleep(0.01)
    for version in ("v1beta1", "v1beta2"):
        found = bench.kube.objects[path.format(version)]
        bench.kube.put(path.format(version), {**found, "status": {"conditions": [{"type": "Available", "status": "True"}]}})
    while bench.store.metrics_api.state is not MetricsApiState.SERVING:
        await asyncio.sleep(0.01)


def _encoded(bundle: certificates.Bundle) -> dict[str, str]:
    texts = {"tls.crt": bundle.certificate, "tls.key": bundle.key, "ca.crt": bundle.ca, "ca.key": bundle.ca_key or ""}
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
