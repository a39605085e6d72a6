"""Routes and pools as the API server's own CRDs judge them, written with the rights and under the policies of the chart."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.tools import share
from tests.cluster.client import MERGE, Client, jobs, models
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import DIGEST, a_job, a_model
from tests.cluster.operators import Installed, Release, install, until
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

POOLS = Path(__file__).parent / "schemas" / "inferencepools.yaml"
KINDS = ("gatewayclasses", "gateways", "httproutes", "grpcroutes")
VALUES = (
    "gateway.api.enabled=true",
    "gateway.api.parents[0].name=public",
    "gateway.api.parents[0].namespace=infra",
    "gateway.api.hostnames={models.example.com}",
    "gateway.api.domain=models.example.com",
    "settings.gateway.api.seconds=1",
)


def routes(namespace: str, plural: str = "httproutes") -> str:
    return f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/{plural}"


def pools(namespace: str) -> str:
    return f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools"


@pytest.fixture(scope="module")
def crds(cluster: Cluster, node: str) -> None:
    folder = share("gateway-api", "crds")
    for path in (*(folder / f"gateway.networking.k8s.io_{kind}.yaml" for kind in KINDS), POOLS):
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    names = [f"crd/{kind}.gateway.networking.k8s.io" for kind in KINDS]
    cluster.kubectl("wait", "--for=condition=Established", *names, "crd/inferencepools.inference.networking.k8s.io")
    # A kind that is established may still have no storage.
    paths = (*(routes("default", kind) for kind in KINDS[1:]), pools("default"))
    until(lambda: all(cluster.client.call("GET", path).ok for path in paths), "the kinds")


@dataclass(frozen=True)
class Doors:
    """An operator that watches one namespace and makes routes. Its own namespace has the name of its account."""

    operator: Installed
    namespace: str
    account: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.account}:{self.account}"


@pytest.fixture
def doors(cluster: Cluster, crds: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Doors]:
    namespace, account, (port,) = make_namespace(cluster.client), f"doors-{uuid.uuid4().hex[:8]}", free_ports(1)
    values = (f"watchNamespaces={{{namespace}}}", f"gateway.endpointPicker.port={port}", *VALUES, *getattr(request, "param", ()))
    made = Doors(install(cluster, tmp_path, Release(account, account, values)), namespace, account)
    yield made
    made.operator.stop()
    # What a test asks with the operator's token names no field manager.
    asked = [e for e in cluster.audited() if e["user"]["username"] == made.user and "responseStatus" in e]
    answers = [e for e in asked if e["verb"] != "create" or "fieldManager" in e["requestURI"]]
    assert not [(e["verb"], e["requestURI"], e["responseStatus"]) for e in answers if e["responseStatus"].get("code") == 403]


def serve(cluster: Cluster, doors: Doors) -> None:
    """Two versions of a model, the second as a canary; each has a worker that is ready."""
    namespace = doors.namespace
    versions = [{"name": name, "uri": "pvc://data/model.onnx", "digest": DIGEST} for name in ("1", "2")]
    cluster.client.create(models(namespace), a_model(versions=versions, defaultVersion="1"))
    cluster.client.create(jobs(namespace), a_job("stable", modelVersion="1"))
    cluster.client.create(jobs(namespace), a_job("canary", modelVersion="2", serve={"gateway": {"trafficPercent": 10}}))
    for name in ("stable", "canary"):
        doors.operator.run(doors.operator.worker(namespace, name=name))


def listed(cluster: Cluster, path: str) -> dict[str, Raw]:
    return {one["metadata"]["name"]: one for one in cluster.client.get(path)["items"]}


def unnamed(cluster: Cluster, namespace: str) -> dict[str, int]:
    """Who gets requests that name no version, by path."""
    wanted = f"/{namespace}/v2/models/digits"
    rules = [rule for one in listed(cluster, routes(namespace)).values() for rule in one["spec"]["rules"]]
    found = [rule for rule in rules if rule["matches"][0]["path"]["value"] == wanted]
    return {ref["name"]: ref["weight"] for rule in found for ref in rule["backendRefs"]}


def test_routes_pass_the_crds_and_the_policies_and_are_written_once(cluster: Cluster, doors: Doors) -> None:
    namespace = doors.namespace
    serve(cluster, doors)

    until(lambda: unnamed(cluster, namespace) == {"stable": 9, "canary": 1}, "the canary's share")
    until(lambda: len(listed(cluster, routes(namespace, "grpcroutes"))) == 4, "routes for gRPC")
    # Routes are written one by one: by the second list from here all of them have the share.
    _after_lists(cluster, doors, 2)
    http, grpc = listed(cluster, routes(namespace)), listed(cluster, routes(namespace, "grpcroutes"))
    assert len(http) == 4
    assert all(one["metadata"]["ownerReferences"][0]["kind"] == "InferenceJob" for one in (*http.values(), *grpc.values()))
    versions = {name: one["metadata"]["resourceVersion"] for name, one in http.items()}
    # Several lists later nothing has been written again.
    _after_lists(cluster, doors, 3)
    assert {name: one["metadata"]["resourceVersion"] for name, one in listed(cluster, routes(namespace)).items()} == versions


def _after_lists(cluster: Cluster, doors: Doors, count: int) -> None:
    def lists() -> int:
        return sum(
            e["user"]["username"] == doors.user and e["verb"] == "list" and e["objectRef"]["resource"] == "httproutes"
            for e in cluster.audited()
            if "objectRef" in e and e["objectRef"].get("namespace") == doors.namespace
        )

    before = lists()
    until(lambda: lists() >= before + count, "lists of routes")


def test_what_a_gateway_refuses_is_told_as_an_event_of_the_job(cluster: Cluster, doors: Doors) -> None:
    namespace = doors.namespace
    serve(cluster, doors)
    until(lambda: unnamed(cluster, namespace), "routes")
    name, route = next(iter(listed(cluster, routes(namespace)).items()))
    condition = {
        "type": "Accepted",
        "status": "False",
        "reason": "NotAllowedByListeners",
        "message": "no listener takes routes of this namespace",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": route["metadata"]["generation"],
    }
    parent = {"parentRef": {"name": "public", "namespace": "infra"}, "controllerName": "example.com/c", "conditions": [condition]}

    answer = cluster.client.call("PATCH", f"{routes(namespace)}/{name}/status", {"status": {"parents": [parent]}}, kind=MERGE)
    assert answer.ok, answer.message

    def told() -> list[Any]:
        events = cluster.client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return [e for e in events if e["reason"] == "RouteRefused"]

    (event,) = until(told, "the event")
    assert "infra/public" in event["note"] and "NotAllowedByListeners" in event["note"] and event["type"] == "Warning"


def test_a_changed_route_is_mended_one_of_somebody_else_left_alone_and_all_go_with_their_jobs(
    cluster: Cluster, doors: Doors
) -> None:
    namespace = doors.namespace
    theirs = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "theirs"}, "spec": {}}
    cluster.client.create(routes(namespace), theirs)
    serve(cluster, doors)
    until(lambda: unnamed(cluster, namespace) == {"stable": 9, "canary": 1}, "routes")
    path = f"{routes(namespace)}/{next(name for name in listed(cluster, routes(namespace)) if name != 'theirs')}"
    cluster.client.merge(path, {"spec": {"hostnames": ["other.example.com"]}})
    until(lambda: "other.example.com" not in cluster.client.get(path)["spec"]["hostnames"], "the mended route")

    cluster.client.delete(f"{jobs(namespace)}/canary")
    until(lambda: unnamed(cluster, namespace) == {"stable": 1} and len(listed(cluster, routes(namespace))) == 3, "the canary's end")
    cluster.client.delete(f"{jobs(namespace)}/stable")
    until(lambda: set(listed(cluster, routes(namespace))) == {"theirs"}, "the end of all routes")


def test_a_route_outlives_its_job_while_another_serves_the_version(cluster: Cluster, doors: Doors) -> None:
    namespace = doors.namespace
    serve(cluster, doors)
    cluster.client.create(jobs(namespace), a_job("twin", modelVersion="1"))
    doors.operator.run(doors.operator.worker(namespace, name="twin"))

    def each_owned_by() -> set[frozenset[str]]:
        found = listed(cluster, routes(namespace)).values()
        return {frozenset(owner["name"] for owner in one["metadata"]["ownerReferences"]) for one in found}

    def owners() -> set[str]:
        return set().union(*each_owned_by())

    # Of 9 parts, each of the two has a half.
    until(lambda: unnamed(cluster, namespace) == {"stable": 9, "twin": 9, "canary": 2}, "the split")
    # Routes are written one after the other: one that is the first job's alone would go with it.
    until(lambda: all("twin" in names for names in each_owned_by() if "stable" in names), "the second owner of each")
    before = {name: one["metadata"]["uid"] for name, one in listed(cluster, routes(namespace)).items()}

    cluster.client.delete(f"{jobs(namespace)}/stable")

    until(lambda: owners() == {"twin", "canary"} and unnamed(cluster, namespace) == {"twin": 9, "canary": 1}, "the other owner")
    after = {name: one["metadata"]["uid"] for name, one in listed(cluster, routes(namespace)).items()}
    # Some may have come since.
    assert before.items() <= after.items()


PICKING = ("gateway.endpointPicker.enabled=true", "gateway.endpointPicker.failureMode=FailOpen")


@pytest.mark.parametrize("doors", [PICKING], ids=["picking"], indirect=True)
def test_pools_pass_their_crd_and_name_a_picker_that_leads_to_the_operators_replicas(cluster: Cluster, doors: Doors) -> None:
    namespace = doors.namespace
    serve(cluster, doors)
    service = f"{doors.account}-endpoint-picker"
    endpoint = {
        "addresses": ["239.255.1.1"],
        "conditions": {"ready": True},
        "targetRef": {"kind": "Pod", "namespace": doors.account, "name": "operator-1"},
    }
    own = {
        "metadata": {"name": f"{service}-abc", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [endpoint],
    }
    slices = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
    cluster.client.create(slices.format(doors.account), own)

    until(lambda: len(listed(cluster, pools(namespace))) == 2, "pools")
    found = listed(cluster, pools(namespace))
    until(lambda: f"{service}-ipv4" in listed(cluster, slices.format(namespace)), "the picker's endpoints")
    copied = listed(cluster, slices.format(namespace))[f"{service}-ipv4"]
    route = until(lambda: list(listed(cluster, routes(namespace)).values()), "routes")[0]

    for pool in found.values():
        picker = pool["spec"]["endpointPickerRef"]
        assert (picker["name"], picker["failureMode"]) == (service, "FailOpen")
        assert (
            cluster.client.get(f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]["ports"][0]["port"]
            == picker["port"]["number"]
        )
        (labels,) = [pool["spec"]["selector"]["matchLabels"]]
        selected = f"/api/v1/namespaces/{namespace}/pods?labelSelector=" + ",".join(f"{k}={v}" for k, v in labels.items())
        assert len(cluster.client.get(selected)["items"]) == 2
    until(lambda: len(listed(cluster, routes(namespace))) == 8, "routes")
    assert copied["endpoints"][0]["addresses"] == ["239.255.1.1"]
    assert {ref["name"] for rule in route["spec"]["rules"] for ref in rule["backendRefs"]} <= set(found)
    assert not listed(cluster, routes(namespace, "grpcroutes"))
    # Nobody else's endpoints, and no other port: the operator may not, though RBAC lets it.
    account = Client(cluster.kubeconfig, token=doors.operator.token)
    bad = {**copied, "metadata": {**copied["metadata"], "name": "bad", "resourceVersion": ""}, "ports": [{"port": 22}]}
    assert account.call("POST", slices.format(namespace), bad).code in (403, 422)
