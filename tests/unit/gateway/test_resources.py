"""What Envoy is told: the same for the same, and of nobody else's workers."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import ParseError
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.gateway import messages
from inference_operator.gateway.door import Door
from inference_operator.gateway.resources import Resources, resources
from inference_operator.gateway.snapshot import Backend, Service

WORKER = Backend("10.0.0.1", "a")
SERVICE = Service("default", "m", "1", True, (WORKER, Backend("10.0.0.2", "b", draining=True)))
names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
made_services = st.builds(
    Service,
    names,
    names,
    names,
    st.booleans(),
    st.lists(st.builds(Backend, st.ip_addresses().map(str), names, st.booleans()), max_size=4, unique_by=lambda b: b.uid).map(
        tuple
    ),
)


def told(*services: Service, weights: dict[str, int] | None = None) -> Resources:
    return resources(services, weights or {}, Door(8080, 1 << 20))


def versions(found: Resources) -> dict[tuple[str, str], str]:
    return {(kind, name): one.version for kind, all_ in found.items() for name, one in all_.items()}


def changed(before: Resources, after: Resources) -> set[tuple[str, str]]:
    old, new = versions(before), versions(after)
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def manifest(found: Resources, kind: str, name: str) -> Any:
    return messages.unpacked(kind, found[kind][name].data)


def routes_of(found: Resources) -> dict[str, Any]:
    (host,) = manifest(found, messages.ROUTES, "models")["virtual_hosts"]
    entries = host["matcher"]["matcher_tree"].get("exact_match_map", {}).get("map", ())
    return {entry["key"]: entry["value"]["action"]["typed_config"] for entry in entries}


@given(st.lists(made_services, max_size=5))
def test_equal_services_make_equal_bytes(services: list[Service]) -> None:
    assert told(*services) == told(*services)


def test_a_worker_that_comes_changes_its_own_endpoints_alone() -> None:
    other = replace(SERVICE, model="other")
    more = replace(SERVICE, backends=(*SERVICE.backends, Backend("10.0.0.3", "c")))

    assert changed(told(SERVICE, other), told(more, other)) == {
        (messages.ENDPOINTS, f"{protocol}:default/m@1") for protocol in ("grpc", "http")
    }


def test_a_service_that_comes_changes_no_other_cluster_and_never_the_listener() -> None:
    found = changed(told(), told(SERVICE))

    assert {name for _, name in found} == {"http:default/m@1", "grpc:default/m@1", "models", "answers"}


def test_workers_have_their_ports_weights_and_health() -> None:
    (locality,) = manifest(told(SERVICE, weights={"a": 250}), messages.ENDPOINTS, "grpc:default/m@1")["endpoints"]

    seen = [
        (e["endpoint"]["address"]["socket_address"], e["load_balancing_weight"], e["health_status"])
        for e in locality["lb_endpoints"]
    ]
    assert seen == [
        ({"address": "10.0.0.1", "port_value": 8001}, 250, 1),
        ({"address": "10.0.0.2", "port_value": 8001}, 1000, 3),
    ]


@given(st.lists(made_services, max_size=6, unique_by=lambda s: (s.namespace, s.model, s.version)))
def test_every_route_leads_to_a_cluster_of_its_own_namespace(services: list[Service]) -> None:
    found = told(*services)
    routes = routes_of(found)
    assert bool(routes) == bool(services)

    for key, route in routes.items():
        cluster = route["route"]["cluster"]
        assert cluster in found[messages.CLUSTER] and cluster in found[messages.ENDPOINTS]
        assert cluster.split("/")[0] == key.split("/")[0]


def test_only_what_no_worker_has_begun_is_tried_again() -> None:
    policies = [route["route"]["retry_policy"] for route in routes_of(told(SERVICE)).values()]

    assert policies
    begun = {"5xx", "gateway-error", "reset", "retriable-4xx", "cancelled", "deadline-exceeded", "internal", "unavailable"}
    assert all(begun.isdisjoint(p["retry_on"].split(",")) and "retriable_status_codes" not in p for p in policies)


def test_a_field_that_envoy_does_not_have_is_a_fault_at_once() -> None:
    with pytest.raises(ParseError):
        messages.packed(messages.CLUSTER, {"name": "a", "lb_polic": 1})
