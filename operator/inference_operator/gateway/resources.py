"""From services to what Envoy is told: pure functions whose results are manifests, as Envoy's documentation writes them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inference_operator.gateway import answers, messages
from inference_operator.gateway.clusters import PORTS, cluster, cluster_name, endpoints, prefers_zones
from inference_operator.gateway.door import Door
from inference_operator.gateway.listener import LISTENER_NAME, listener
from inference_operator.gateway.manifests import Manifest
from inference_operator.gateway.payloads import sink_cluster
from inference_operator.gateway.routes import ROUTES_NAME, routes
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.tls import secrets
from inference_operator.gateway.tracing import collector


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of Envoy's API by its name. `version` is a hash of `data`, so that every replica gives equal ones the same."""

    name: str
    version: str
    data: bytes


# By message, then by name.
Resources = Mapping[str, Mapping[str, Resource]]


def resources(services: Iterable[Service], weights: Mapping[str, int], door: Door) -> Resources:
    """All that Envoy is told. `weights` are by the pod's uid; a worker without one has the full weight."""
    known = tuple(services)
    names = [(service, protocol, cluster_name(service, protocol)) for service in known for protocol in PORTS]
    clusters = {name: cluster(name, service, protocol) for service, protocol, name in names}
    workers = {name: endpoints(name, service, PORTS[protocol], weights, audited=door.audit) for service, protocol, name in names}
    traces = collector(door.tracing) if door.tracing is not None else {}
    own = {answers.CLUSTER_NAME: answers.own_cluster(door.port), **sink_cluster(door.payloads), **traces}
    listeners = {
        LISTENER_NAME: listener(door),
        answers.LISTENER_NAME: answers.own_listener(door.port),
    }
    tables = {ROUTES_NAME: routes(known, door), answers.ANSWERS_NAME: answers.answers(known)}
    return {
        messages.SECRET: _by_name(messages.SECRET, secrets(door.tls_folder, door.trust, door.callers_folder)),
        messages.CLUSTER: _by_name(messages.CLUSTER, {**own, **clusters}),
        messages.ENDPOINTS: _by_name(messages.ENDPOINTS, workers),
        messages.LISTENER: _by_name(messages.LISTENER, listeners),
        messages.ROUTES: _by_name(messages.ROUTES, tables),
    }


def of_zones(
    services: Iterable[Service], weights: Mapping[str, int], *, audited: bool = False
) -> Mapping[str, Mapping[str, Resource]]:
    """What Envoys of each zone are told of workers, where that is not what all are told: by zone, then by name."""
    zoned = [service for service in services if prefers_zones(service)]
    found = {backend.zone for service in zoned for backend in service.backends if backend.zone}
    named = [(cluster_name(service, protocol), service, port) for service in zoned for protocol, port in PORTS.items()]
    return {
        zone: _by_name(
            messages.ENDPOINTS,
            {name: endpoints(name, service, port, weights, zone, audited=audited) for name, service, port in named},
        )
        for zone in found
    }


def without_door(told: Resources) -> Resources:
    """What an Envoy that is to go is told: without its listener it takes no caller, and sends away those that it answers."""
    return {**told, messages.LISTENER: {name: one for name, one in told[messages.LISTENER].items() if name != LISTENER_NAME}}


def _by_name(kind: str, manifests: Mapping[str, Manifest]) -> dict[str, Resource]:
    packed = {name: messages.packed(kind, manifest) for name, manifest in manifests.items()}
    return {name: Resource(name, hashlib.sha256(data).hexdigest()[:16], data) for name, data in packed.items()}
