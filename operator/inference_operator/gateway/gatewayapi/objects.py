"""What routes and pools have in common: kinds, owners, and whether an object says already what it should. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from inference_operator.api import names
from inference_operator.api.job import KIND
from inference_operator.api.schema import API_VERSION
from inference_operator.gateway.manifests import Manifest
from inference_operator.gateway.snapshot import Service
from inference_operator.state.objects import Key

ROUTE_GROUP, POOL_GROUP = "gateway.networking.k8s.io", "inference.networking.k8s.io"
HTTP_ROUTE, GRPC_ROUTE, POOL, SERVICE, SLICE = "HTTPRoute", "GRPCRoute", "InferencePool", "Service", "EndpointSlice"
MADE_FOR = "gateway-api"
# Group and version, and the collection.
KINDS: Mapping[str, tuple[str, str]] = {
    HTTP_ROUTE: (f"{ROUTE_GROUP}/v1", "httproutes"),
    GRPC_ROUTE: (f"{ROUTE_GROUP}/v1", "grpcroutes"),
    POOL: (f"{POOL_GROUP}/v1", "inferencepools"),
    SERVICE: ("v1", "services"),
    SLICE: ("discovery.k8s.io/v1", "endpointslices"),
}


def collection(kind: str, namespace: str | None) -> str:
    """The path of a kind's objects: of a namespace, or of all."""
    version, plural = KINDS[kind]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace is not None else f"{root}/{plural}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A job: its uid, and how many of its workers take requests."""

    uid: str
    workers: int = 0


Owners = Mapping[Key, Owner]


@dataclass(frozen=True, slots=True)
class Owned:
    """An object to be: its kind, its name, and the first job that it belongs to."""

    kind: str
    key: Key
    job: Key
    manifest: Manifest


def manifest(
    kind: str, key: Key, jobs: Sequence[Key], owners: Owners, said: Manifest, labels: Mapping[str, str] = MappingProxyType({})
) -> Owned:
    """An object that says `said` below its metadata. It goes with the last of its jobs; the first is its controller."""
    job, uid = jobs[0], owners[jobs[0]].uid
    references = [_reference(one, owners[one].uid, controller=one is job) for one in jobs]
    all_labels = {
        **labels,
        names.LABEL_MADE_FOR: MADE_FOR,
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_JOB: names.label_value(job.name),
        names.LABEL_JOB_UID: uid,
    }
    metadata = {"name": key.name, "namespace": key.namespace, "labels": all_labels, "ownerReferences": references}
    return Owned(kind, key, job, {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": metadata, **said})


def _reference(job: Key, uid: str, *, controller: bool) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": False,
    }


def pool_name(service: Service, protocol: str) -> str:
    """The pool of all versions of a service's model, by one protocol."""
    return names.route_name(service.model, "", f"-{protocol}")


def says(found: Any, wanted: Any) -> bool:
    """Whether an object says what it should. What it says beside that is the API's defaults, or somebody else's."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(key in found and says(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(says, found, wanted))
    return bool(found == wanted)


def refusals(found: Manifest) -> tuple[str, ...]:
    """Why gateways do not take a route or a pool, each in its controller's words. What they said of an older one says nothing."""
    metadata: Any = found["metadata"]
    status: Any = found.get("status") or {}
    name, generation = f"{found['kind']} {metadata['name']}", metadata.get("generation")
    texts = []
    for parent in status.get("parents") or ():
        reference = parent.get("parentRef", {})
        gateway = f"{reference.get('namespace') or metadata['namespace']}/{reference.get('name', '')}"
        for condition in parent.get("conditions") or ():
            current = condition.get("observedGeneration", generation) == generation
            if current and condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") == "False":
                why = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                texts.append(f"Gateway {gateway} does not take {name}: {why}")
    return tuple(texts)


def owners_of(found: Manifest) -> frozenset[str]:
    """The uids of the jobs that an object belongs to; none for somebody else's."""
    metadata: Any = found["metadata"]
    return frozenset(one["uid"] for one in metadata.get("ownerReferences") or () if one.get("kind") == KIND)
