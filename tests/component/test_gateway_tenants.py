"""Tenants of a real Envoy: who is known by what, who is refused, and what workers are told."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tritonclient.grpc import service_pb2 as pb

from inference_operator.gateway import tenants_lua
from inference_operator.gateway.snapshot import Service
from inference_operator.tenants import Tenant, Tenants, Tokens
from tests.authority import Authority
from tests.component.doors import Counting, Plane, by_grpc, plane
from tests.component.operators import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INFER = "/default/v2/models/m/infer"
KEY, OTHER_KEY = "k-0123456789abcdef", "k-fedcba9876543210"


def keys(folder: Path, text: str) -> str:
    file = folder / "keys"
    file.write_text(text)
    return str(file)


async def told(workers: Counting, door: Plane, headers: Mapping[str, str]) -> str | None:
    """What the worker heard of the tenant."""
    status, text, _ = await door.ask(INFER, headers)
    assert (status, text) == (200, "worker"), (text, door.envoy.log[-2000:])
    return workers.headers["worker"].get("inference-tenant")


async def test_a_key_makes_its_caller_a_tenant_and_never_reaches_the_worker(workers: Counting, tmp_path: Path) -> None:
    tenants = Tenants(
        enabled=True,
        key_file=keys(
            tmp_path, f"a {KEY}\nb {OTHER_KEY}\nb short\nnobody {'n' * 20}\na {'t' * 20}\nb {'t' * 20}\na {'t' * 20}\nnonsense\n"
        ),
        list=(Tenant("a", weight=3, rows_per_second=500, device_seconds_per_second=0.5, concurrent_requests=5), Tenant("b")),
    )
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=tenants) as door:
        await door.until(INFER, "worker", {"x-api-key": KEY})
        assert await told(workers, door, {"x-api-key": KEY}) == "a;weight=3;rows=500;device=0.5;concurrent=5"
        assert "x-api-key" not in workers.headers["worker"] and KEY not in str(workers.headers["worker"])
        assert await told(workers, door, {"x-api-key": OTHER_KEY, "inference-tenant": "a;weight=1000"}) == "b"
        workers.asked.clear()
        for headers in (
            {},
            {"x-api-key": "wrong"},
            {"x-api-key": "short"},
            {"x-api-key": "n" * 20},
            {"x-api-key": "t" * 20},
            {"inference-tenant": "a"},
        ):
            status, text, said = await door.ask(INFER, headers)
            assert status == 401 and "x-api-key: KEY" in text and said["www-authenticate"], (headers, text)
        assert not workers.asked
        # Whoever wrote the keys reads which of them are not taken, and nobody reads a key.
        log = door.envoy.log
        for number, why in ((3, "less than 16 characters"), (4, "no tenant of"), (6, "several tenants"), (8, "is not TENANT KEY")):
            assert re.search(f"line {number} of the tenants' keys is passed over: it [a-z]* ?.*{why}", log), (number, log[-2000:])
        assert KEY not in log and "t" * 20 not in log


ISSUER = "https://issuer.example"


def key_set(**keys: ec.EllipticCurvePrivateKey) -> str:
    return json.dumps({"keys": [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid} for kid, key in keys.items()]})


def token(key: ec.EllipticCurvePrivateKey, *, kid: str = "1", **claims: Any) -> dict[str, str]:
    """The header with a token that is good but for these claims."""
    usual = {"iss": ISSUER, "aud": "gateway", "exp": time.time() + 600, "groups": "svc-a"}
    given = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return {"authorization": f"Bearer {jwt.encode(given, key, 'ES256', {'kid': kid})}"}


async def test_a_token_makes_its_caller_a_tenant_if_issuer_audience_time_and_key_are_right(
    workers: Counting, tmp_path: Path
) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    tokens = Tokens(ISSUER, ("gateway",), "groups")
    tenants = Tenants(enabled=True, tokens=tokens, list=(Tenant("a", claims=("svc-a", "group-a")), Tenant("b", claims=("svc-b",))))
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=tenants, key_set=key_set(**{"1": key})) as door:
        await door.until(INFER, "worker", token(key))
        assert await told(workers, door, token(key)) == "a"
        assert "authorization" not in workers.headers["worker"]
        assert await told(workers, door, token(key, groups=["nobody", "svc-b"])) == "b"
        workers.asked.clear()
        wrong = {
            "expired": token(key, exp=time.time() - 600),
            "no exp": token(key, exp=None),
            "audience": token(key, aud="other"),
            "issuer": token(key, iss="https://other.example"),
            "key": token(other),
            "claim": token(key, groups="svc-c"),
            "no claim": token(key, groups=None),
            "none": {"authorization": "Bearer " + jwt.encode({"iss": ISSUER, "aud": "gateway", "groups": "svc-a"}, "", "none")},
            "junk": {"authorization": "Bearer a.b.c"},
            "another way": {"authorization": "Basic YTpi"},
        }
        for what, headers in wrong.items():
            status, text, _ = await door.ask(INFER, headers)
            assert status == 401 and "authorization: Bearer" in text, (what, text)
            assert json.loads(text)["error"]
        assert "expired" in (await door.ask(INFER, wrong["expired"]))[1]
        status, text, _ = await door.ask(INFER + "?access_token=" + token(key)["authorization"].split()[1])
        assert status == 401 and not workers.asked


async def test_a_certificate_makes_its_caller_a_tenant_by_its_subject_or_names(workers: Counting, tmp_path: Path) -> None:
    authority, callers, folder, ca = Authority(), Authority("callers"), tmp_path / "tls", tmp_path / "callers"
    authority.server("gateway.example.com").put(folder)
    ca.mkdir()
    (ca / "ca.crt").write_text(callers.pem)
    tenants = Tenants(
        enabled=True,
        unknown="Anonymous",
        certificate_folder=str(ca),
        list=(
            Tenant("common", certificates=("CN:Team A",)),
            Tenant("dns", certificates=("DNS:a.example.com",)),
            Tenant("uri", certificates=("URI:spiffe://cluster.local/ns/a/sa/a",)),
        ),
    )
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))

    def shown(name: str, by: Authority, *names: str, uri: str | None = None, common: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=authority.pem)
        context.check_hostname = False
        context.load_cert_chain(by.client(*names, uri=uri, common=common).file(tmp_path, name))
        return context

    bare = ssl.create_default_context(cadata=authority.pem)
    bare.check_hostname = False
    async with plane(tmp_path, service, trusted=bare, tls_folder=str(folder), tenants=tenants) as door:
        await door.until(INFER, "worker")
        found = {}
        for name, context in {
            "none": bare,
            "common": shown("common", callers, common="Team A"),
            "dns": shown("dns", callers, "other.example.com", "a.example.com"),
            "uri": shown("uri", callers, uri="spiffe://cluster.local/ns/a/sa/a"),
            # A name of one kind is none of another.
            "other-kind": shown("other-kind", callers, "Team-A", common="a.example.com"),
        }.items():
            for _ in range(2):
                door.trusted = context
                assert (await door.ask(INFER))[0] == 200
                found[name] = workers.headers["worker"]["inference-tenant"]
        assert found == {"none": "anonymous", "common": "common", "dns": "dns", "uri": "uri", "other-kind": "anonymous"}
        door.trusted = shown("forged", Authority("callers"), common="Team A")
        with pytest.raises(aiohttp.ClientError):
            await door.ask(INFER)


async def test_a_tenant_reaches_its_namespaces_alone(workers: Counting, tmp_path: Path) -> None:
    tenants = Tenants(
        enabled=True,
        key_file=keys(tmp_path, f"a {KEY}\n"),
        unknown="Anonymous",
        list=(Tenant("a", namespaces=("default", "team-*")), Tenant("anonymous", namespaces=("public",))),
    )
    names = ("default", "team-1", "public", "defaults", "team")
    services = [Service(name, "m", "1", True, (await workers.start(name, number),)) for number, name in enumerate(names, 1)]
    async with plane(tmp_path, *services, tenants=tenants) as door:
        await door.until(INFER, "default", {"x-api-key": KEY})

        async def reached(**headers: str) -> dict[str, int]:
            found = {name: await door.ask(f"/{name}/v2/models/m/infer", headers) for name in names}
            assert all(name in text for name, (status, text, _) in found.items() if status == 403), found
            return {name: status for name, (status, _, _) in found.items()}

        await door.until("/team-1/v2/models/m/infer", "team-1", {"x-api-key": KEY})
        await door.until("/public/v2/models/m/infer", "public")
        assert await reached(**{"x-api-key": KEY}) == {"default": 200, "team-1": 200, "public": 403, "defaults": 403, "team": 403}
        assert await reached() == {"default": 403, "team-1": 403, "public": 200, "defaults": 403, "team": 403}
        assert (await door.ask("/public/v2/repository/index", {"x-api-key": KEY}))[0] == 403
        assert (await door.ask("/team-1/v2/repository/index", {"x-api-key": KEY}))[0] == 200
        assert (await door.ask("/v2/health/ready"))[0] == 200
        # The namespace is the header's that the route is made of, and no other's.
        assert (await door.ask("/v2/models/m/infer", {"inference-namespace": "default"}))[0] == 403
        assert (await door.ask(INFER, {"inference-namespace": "public", "inference-route": "http:public/m"}))[0] == 403


async def test_grpc_callers_are_told_who_they_are_not_and_workers_who_they_are(workers: Counting, tmp_path: Path) -> None:
    tenants = Tenants(
        enabled=True,
        key_file=keys(tmp_path, f"a {KEY}\nb {OTHER_KEY}\n"),
        list=(Tenant("a", weight=2, requests_per_second=0.01), Tenant("b", namespaces=("other",))),
    )
    backend = await workers.start("worker", 1)
    service = Service("default", "m", "1", True, (backend,))
    async with (
        by_grpc(backend.address) as heard,
        plane(tmp_path, service, tenants=tenants) as door,
        grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel,
    ):
        # Without a quota, so that it is not used up by waiting.
        await door.until("/v2/health/live", '{"live": true}', {"x-api-key": OTHER_KEY})
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelReady", response_deserializer=pb.ModelReadyResponse.FromString
        )
        request = pb.ModelReadyRequest(name="m").SerializeToString()

        async def refused(**headers: str) -> tuple[grpc.StatusCode, str]:
            given = {"inference-namespace": "default", **headers}
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request, metadata=tuple(given.items()))
            return caught.value.code(), caught.value.details() or ""

        code, text = await refused()
        assert code is grpc.StatusCode.UNAUTHENTICATED and "x-api-key: KEY" in text
        code, text = await refused(**{"x-api-key": OTHER_KEY})
        assert code is grpc.StatusCode.PERMISSION_DENIED and "default" in text
        given = (("inference-namespace", "default"), ("x-api-key", KEY), ("inference-tenant", "b;weight=1000"))
        assert (await call(request, metadata=given, wait_for_ready=True)).ready
        assert heard[-1]["inference-tenant"] == "a;weight=2" and "x-api-key" not in heard[-1]
        code, text = await refused(**{"x-api-key": KEY})
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "0.01 requests a second" in text, text
        assert len(heard) == 1


async def test_requests_over_a_tenants_quota_cost_workers_nothing(workers: Counting, tmp_path: Path) -> None:
    tenants = Tenants(
        enabled=True,
        key_file=keys(tmp_path, f"a {KEY}\nb {OTHER_KEY}\n"),
        list=(Tenant("a", requests_per_second=0.02, request_burst=20), Tenant("b")),
    )
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    # Each of two Envoys grants a half.
    async with plane(tmp_path, service, tenants=tenants, envoys=2) as door:
        await door.until(INFER, "worker", {"x-api-key": OTHER_KEY})
        workers.asked.clear()
        answers = [await door.ask(INFER, {"x-api-key": KEY}) for _ in range(30)]
        assert [status for status, _, _ in answers] == [200] * 10 + [429] * 20
        _, text, headers = answers[-1]
        assert json.loads(text) == {"error": "the tenant a has used its quota of 0.02 requests a second"}
        assert headers["retry-after"] == "100"
        assert workers.asked["worker"] == 10
        # Others have nothing to do with it, and who is nobody has no quota to use up.
        assert (await door.ask(INFER, {"x-api-key": OTHER_KEY}))[0] == 200
        assert (await door.ask(INFER, {"inference-tenant": "a"}))[0] == 401


async def test_each_worker_is_told_its_part_of_a_tenants_quota(workers: Counting, tmp_path: Path) -> None:
    tenants = Tenants(
        enabled=True,
        unknown="Anonymous",
        list=(Tenant("anonymous", rows_per_second=100, device_seconds_per_second=0.5, concurrent_requests=7),),
    )
    backends = tuple([await workers.start("worker", number) for number in (1, 2, 3)])
    service = Service("default", "m", "1", True, backends[:1])
    async with plane(tmp_path, service, tenants=tenants) as door:
        await door.until(INFER, "worker")
        assert await told(workers, door, {}) == "anonymous;rows=100;device=0.5;concurrent=7"
        door.say(replace(service, backends=backends))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await told(workers, door, {}) != "anonymous;rows=33.333333;device=0.166667;concurrent=3":
                await asyncio.sleep(0.02)
        # One that drains takes nothing new.
        door.say(replace(service, backends=(*backends[:2], replace(backends[2], draining=True))))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await told(workers, door, {}) != "anonymous;rows=50;device=0.25;concurrent=4":
                await asyncio.sleep(0.02)


async def test_without_tenants_nobody_says_who_a_caller_is(workers: Counting, tmp_path: Path) -> None:
    """The worker would believe it."""
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        assert await told(workers, door, {"inference-tenant": "a;weight=1000"}) is None


async def test_a_key_that_is_taken_back_counts_no_longer(workers: Counting, tmp_path: Path) -> None:
    file = keys(tmp_path, f"a {KEY}\n")
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=Tenants(enabled=True, key_file=file, list=(Tenant("a"),))) as door:
        await door.until(INFER, "worker", {"x-api-key": KEY})
        keys(tmp_path, f"a {OTHER_KEY}\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await door.ask(INFER, {"x-api-key": KEY}))[0] != 401:
                await asyncio.sleep(0.2)
        assert await told(workers, door, {"x-api-key": OTHER_KEY}) == "a"


@pytest.mark.parametrize("broken", ["", "no JSON", '{"keys": ["none"]}'])
async def test_without_keys_of_the_issuer_only_tokens_are_refused(workers: Counting, tmp_path: Path, broken: str) -> None:
    """A ConfigMap that can't be used would take the gateway from everybody."""
    tokens = Tokens(ISSUER, ("gateway",), key_set_file="/set")
    tenants = Tenants(enabled=True, tokens=tokens, key_file=keys(tmp_path, f"a {KEY}\n"), list=(Tenant("a", claims=("svc-a",)),))
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=tenants, key_set=broken) as door:
        await door.until(INFER, "worker", {"x-api-key": KEY})
        assert (await door.ask(INFER, token(ec.generate_private_key(ec.SECP256R1()), sub="svc-a")))[0] == 401


async def test_a_changed_list_loses_no_request(workers: Counting, tmp_path: Path) -> None:
    """Connections of the old list end one by one, each with an answer on it."""
    tenants = Tenants(enabled=True, key_file=keys(tmp_path, f"a {KEY}\n"), list=(Tenant("a"),))
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=tenants) as door:
        await door.until(INFER, "worker", {"x-api-key": KEY})
        stop, heard = asyncio.Event(), set[str | None]()

        async def call() -> None:
            while not stop.is_set():
                heard.add(await told(workers, door, {"x-api-key": KEY}))

        callers = [asyncio.create_task(call()) for _ in range(10)]
        for weight in (2, 3):
            door.options["tenants"] = Tenants(enabled=True, key_file=tenants.key_file, list=(Tenant("a", weight=weight),))
            door.say(service)
            await until(lambda: f"a;weight={weight}" in heard, "the changed list")  # noqa: B023
        stop.set()
        await asyncio.gather(*callers)
        assert heard == {"a", "a;weight=2", "a;weight=3"}
        assert await told(workers, door, {"x-api-key": KEY}) == "a;weight=3"


@pytest.mark.parametrize("which", ["_WHO", "_TOLD"])
async def test_a_request_that_can_not_be_judged_is_refused(
    workers: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Envoy lets pass what a filter of ours fails for."""
    monkeypatch.setattr(tenants_lua, which, "function judge(handle) error('fault') end")
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service, tenants=Tenants(enabled=True, unknown="Anonymous")) as door:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    status, text, _ = await door.ask(INFER)
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
        assert status == 500 and "can't say" in text and not workers.asked
        assert "fault" in door.envoy.log
