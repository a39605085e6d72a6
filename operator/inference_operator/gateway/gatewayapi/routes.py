"""HTTPRoutes and GRPCRoutes that lead to services as our own gateway does: for each version, owned by its jobs. Pure.

The route of the default version also has the requests that name none, split between versions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from inference_operator.api import names
from inference_operator.gateway.clusters import PORTS
from inference_operator.gateway.gatewayapi.objects import GRPC_ROUTE, HTTP_ROUTE, POOL_GROUP, Owned, Owners, manifest, pool_name
from inference_operator.gateway.lua import MODEL_HEADER, NAMESPACE_HEADER, VERSION_HEADER
from inference_operator.gateway.manifests import Manifest
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.split import WHOLE, Split, splits
from inference_operator.state.objects import Key

_GRPC_SERVICE = "inference.GRPCInferenceService"
_METHODS = ("ModelInfer", "ModelStreamInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
# The API's own limit.
_MOST_BACKENDS = 16
# In paths they mean another place.
_NO_NAMES = (".", "..")
# Weights are whole numbers: a share between jobs is right within a thousandth.
_FINENESS = 1000


@dataclass(frozen=True, slots=True)
class Doors:
    """What is set for all routes. Each of `parents` is a parentRef; `picker` leads to InferencePools in place of Services."""

    parents: tuple[Manifest, ...]
    grpc_parents: tuple[Manifest, ...]
    hostnames: tuple[str, ...] = ()
    domain: str = ""
    picker: bool = False


def routes(services: Iterable[Service], owners: Owners, doors: Doors) -> tuple[Owned, ...]:
    """All routes. `owners` has each job's uid, and how many of its workers take requests."""
    known = [service for service in services if not {service.model, service.version} & set(_NO_NAMES)]
    unnamed = {split.shares[0][0]: split for split in splits(known)}
    return tuple(route for service in known for route in _of_service(service, unnamed.get(service), owners, doors))


def _of_service(service: Service, unnamed: Split | None, owners: Owners, doors: Doors) -> Iterable[Owned]:
    """The routes of a version: by any host, which need the namespace's name in the request, and by the namespace's own."""
    splits_of = [(f"/versions/{service.version}", Split(((service, WHOLE),))), *([("", unnamed)] if unnamed is not None else [])]
    hosts = [("", doors.hostnames, False), *([("-host", (f"{service.namespace}.{doors.domain}",), True)] if doors.domain else [])]
    grpc_kind = HTTP_ROUTE if doors.picker else GRPC_ROUTE
    for suffix, hostnames, by_host in hosts:
        http = [rule for path, split in splits_of for rule in _http_rules(service, path, split, owners, doors, by_host=by_host)]
        grpc = [_grpc_rule(service, path, split, owners, doors, by_host=by_host) for path, split in splits_of]
        for kind, protocol, parents, rules in (
            (HTTP_ROUTE, "http", doors.parents, http),
            (grpc_kind, "grpc", doors.grpc_parents, grpc),
        ):
            spec = {"parentRefs": list(parents), **({"hostnames": list(hostnames)} if hostnames else {}), "rules": rules}
            name = names.route_name(service.model, service.version, f"-{protocol}{suffix}")
            yield manifest(kind, Key(service.namespace, name), service.jobs, owners, {"spec": spec})


def _http_rules(service: Service, version: str, split: Split, owners: Owners, doors: Doors, *, by_host: bool) -> Iterable[Manifest]:
    """By the path, which loses the namespace's name, and by the header; by the host, the path is as it is."""
    path = f"/v2/models/{service.model}{version}"
    copied = _copied(split)
    to = {"backendRefs": _backends(split, "http", owners, doors), "timeouts": {"request": "0s"}}
    plain = {"path": {"type": "PathPrefix", "value": path}}
    if by_host:
        yield {"matches": [plain], "filters": [_told(service), *copied], **to}
        return
    prefixed = {"path": {"type": "PathPrefix", "value": f"/{service.namespace}{path}"}}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}}}
    yield {"matches": [prefixed], "filters": [rewrite, *copied], **to}
    named = {**plain, "headers": [_header(NAMESPACE_HEADER, service.namespace)]}
    yield {"matches": [named], **({"filters": copied} if copied else {}), **to}


def _grpc_rule(service: Service, version: str, split: Split, owners: Owners, doors: Doors, *, by_host: bool) -> Manifest:
    """By metadata: no route reads what is in a request."""
    headers = [
        *([] if by_host else [_header(NAMESPACE_HEADER, service.namespace)]),
        _header(MODEL_HEADER, service.model),
        *([_header(VERSION_HEADER, service.version)] if version else []),
    ]
    copied = [*([_told(service)] if by_host else []), *_copied(split, "grpc")]
    to = {"backendRefs": _backends(split, "grpc", owners, doors), **({"filters": copied} if copied else {})}
    if doors.picker:
        # An InferencePool is a backend of HTTPRoutes.
        paths = [{"path": {"type": "Exact", "value": f"/{_GRPC_SERVICE}/{method}"}, "headers": headers} for method in _METHODS]
        return {"matches": paths, **to, "timeouts": {"request": "0s"}}
    methods = [{"type": "Exact", "service": _GRPC_SERVICE, "method": method} for method in _METHODS]
    return {"matches": [{"method": method, "headers": headers} for method in methods], **to}


def _told(service: Service) -> Manifest:
    """The host says the namespace: what a caller says of it besides is no word to whoever picks a worker."""
    named = {"name": NAMESPACE_HEADER, "value": service.namespace}
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [named]}}


def _header(name: str, value: str) -> Manifest:
    return {"type": "Exact", "name": name, "value": value}


def _backends(split: Split, protocol: str, owners: Owners, doors: Doors) -> list[Manifest]:
    if doors.picker:
        # The picker splits, since it alone knows who would answer in time.
        service = split.shares[0][0]
        name = pool_name(service, protocol)
        return [{"group": POOL_GROUP, "kind": "InferencePool", "name": name, "weight": 1}]
    found = weights(split, {key: owner.workers for key, owner in owners.items()})
    return [{**_service(key, protocol), "weight": weight} for key, weight in found]


def _service(job: Key, protocol: str) -> Manifest:
    return {"group": "", "kind": "Service", "name": names.service_name(job.name), "port": PORTS[protocol]}


def weights(split: Split, workers: Mapping[Key, int]) -> tuple[tuple[Key, int], ...]:
    """What each job of a split gets: its version's share, as its workers are to those of the version's other jobs."""
    found: list[tuple[Key, int]] = []
    for service, percent in split.shares:
        counts = {job: workers.get(job, 0) for job in service.jobs}
        if not any(counts.values()):
            counts = dict.fromkeys(counts, 1)
        total = sum(counts.values())
        found += [(job, round(percent * _FINENESS * count / total)) for job, count in counts.items()]
    taking = sorted(((job, weight) for job, weight in found if weight), key=lambda one: -one[1])[:_MOST_BACKENDS]
    common = gcd(*(weight for _, weight in taking))
    return tuple((job, weight // common) for job, weight in taking)


def _copied(split: Split, protocol: str = "http") -> list[Manifest]:
    """Filters that send copies; a copy goes to the first job of a version."""
    return [
        {"type": "RequestMirror", "requestMirror": {"backendRef": _service(service.jobs[0], protocol), "percent": percent}}
        for service, percent in split.mirrors
    ]
