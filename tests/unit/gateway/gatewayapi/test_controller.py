"""What is written and when: once, where the kinds are, not over what is somebody else's; and who is told of a refusal."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from inference_operator.errors import RefusedError
from inference_operator.gateway.gatewayapi.controller import GatewayRoutes
from inference_operator.settings import EndpointPicker, GatewayApi, GatewaySettings, ParentGateway
from inference_operator.state.objects import Key
from inference_operator.state.store import Store
from tests.builders import a_job, a_pod
from tests.unit.autoscaling.metricsapi.kube import FakeKube, Raw
from tests.unit.autoscaling.test_metrics import Clock

JOB = a_job(serve=True)
ROUTES, POOLS = "/apis/gateway.networking.k8s.io/v1", "/apis/inference.networking.k8s.io/v1"
SETTINGS = GatewaySettings(
    api=GatewayApi(enabled=True, parents=[ParentGateway("public", "infra")]), endpoint_picker=EndpointPicker(service="picker")
)
PICKING = GatewaySettings(api=SETTINGS.api, endpoint_picker=EndpointPicker(enabled=True, service="picker"))


class Api(FakeKube):
    """With lists, deletions, and kinds that are there."""

    def __init__(self, *groups: str) -> None:
        super().__init__()
        kinds = {ROUTES: ("httproutes", "grpcroutes"), POOLS: ("inferencepools",)}
        for group in groups:
            self.objects[group] = {"resources": [{"name": name} for name in kinds[group]]}
        self.refuses = ""

    async def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        del selector
        plural = path.rpartition("/")[2]
        yield [one for place, one in self.objects.items() if place.split("/")[-2] == plural and "metadata" in one]

    async def apply(self, path: str, body: Raw) -> Raw:
        if self.refuses and self.refuses in path:
            self._note("apply", path, body)
            raise RefusedError(422, "Invalid", "no such field")
        return await super().apply(path, body)

    async def delete(self, path: str, *, uid: str) -> None:
        self._note("delete", path, {"uid": uid})
        del self.objects[path]

    def writes(self) -> list[tuple[str, str]]:
        return [(verb, path.split("/")[-2]) for verb, path, _ in self.asked if verb in ("create", "apply", "delete")]


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[Key, str]] = []

    def record(self, job: Key, uid: str, *, message: str, **_: object) -> None:
        del uid
        self.told.append((job, message))


@pytest.fixture
def store() -> Store:
    made = Store()
    made.put_job(JOB)
    made.put_pod(replace(a_pod(JOB, 1), uid="pod-1", address="10.0.0.1"))
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def events() -> Events:
    return Events()


def doors(store: Store, api: Api, events: Any, clock: Clock, settings: GatewaySettings = SETTINGS) -> GatewayRoutes:
    return GatewayRoutes(store, api, events, clock, settings, "system")


async def test_routes_are_written_once_and_again_when_somebody_changed_them(store: Store, events: Events, clock: Clock) -> None:
    api = Api(ROUTES)
    made = doors(store, api, events, clock)
    for _ in range(3):
        await made.look()
        clock.seconds += 60
    assert [verb for verb, _ in api.writes()] == ["apply", "apply"]

    place = next(place for place in api.objects if "/httproutes/" in place)
    api.objects[place]["spec"]["hostnames"] = ["other"]
    api.objects[place]["spec"]["parentRefs"] = []
    await made.look()

    assert [verb for verb, _ in api.writes()] == ["apply", "apply", "apply"]


async def test_without_the_crds_nothing_is_asked_for_and_with_them_later_everything(
    store: Store, events: Events, clock: Clock
) -> None:
    api = Api()
    made = doors(store, api, events, clock)
    await made.look()
    assert not api.writes()

    api.objects |= Api(ROUTES).objects
    clock.seconds += 60
    await made.look()

    assert len(api.writes()) == 2


async def test_without_inference_pools_routes_lead_to_services(store: Store, events: Events, clock: Clock) -> None:
    api = Api(ROUTES)
    await doors(store, api, events, clock, PICKING).look()

    assert sorted(name for _, name in api.writes()) == ["grpcroutes", "httproutes"]


async def test_with_pools_each_namespace_has_a_service_that_leads_to_the_picker(store: Store, events: Events, clock: Clock) -> None:
    api = Api(ROUTES, POOLS)
    slices = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices/picker-x"
    endpoint = {"addresses": ["10.9.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "resourceVersion": "7"}}
    api.objects[slices] = {
        "metadata": {"name": "picker-x", "namespace": "system"},
        "addressType": "IPv4",
        "endpoints": [endpoint],
    }
    await doors(store, api, events, clock, PICKING).look()

    made = api.objects["/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/picker-ipv4"]
    assert made["endpoints"] == [{**endpoint, "targetRef": {"kind": "Pod"}}]
    assert "/api/v1/namespaces/default/services/picker" in api.objects
    assert sum("/inferencepools/" in place for place in api.objects) == 2


async def test_a_route_of_somebody_else_with_the_name_is_left_alone_and_the_job_is_told(
    store: Store, events: Events, clock: Clock
) -> None:
    api = Api(ROUTES)
    made = doors(store, api, events, clock)
    await made.look()
    place = next(place for place in api.objects if "/httproutes/" in place)
    theirs = {**api.objects[place], "metadata": {**api.objects[place]["metadata"], "ownerReferences": []}}
    fresh = Api(ROUTES)
    fresh.objects[place] = theirs

    async def nothing(path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        del path, selector
        yield []

    fresh.list_pages = nothing  # type: ignore[method-assign]
    await doors(store, fresh, events, clock).look()

    assert fresh.objects[place] == theirs
    assert any("somebody else" in text for _, text in events.told)


async def test_what_the_api_server_refuses_is_told_and_not_tried_again_until_the_next_list(
    store: Store, events: Events, clock: Clock
) -> None:
    api = Api(ROUTES)
    api.refuses = "httproutes"
    made = doors(store, api, events, clock)
    for _ in range(3):
        await made.look()

    assert [name for _, name in api.writes()].count("httproutes") == 1
    assert "no such field" in events.told[0][1]
    clock.seconds += 60
    await made.look()
    assert [name for _, name in api.writes()].count("httproutes") == 2


async def test_routes_of_a_service_that_is_gone_go(store: Store, events: Events, clock: Clock) -> None:
    api = Api(ROUTES)
    made = doors(store, api, events, clock)
    await made.look()
    store.drop_job(JOB.key, JOB.uid)

    await made.look()

    assert [verb for verb, _ in api.writes()] == ["apply", "apply", "delete", "delete"]
