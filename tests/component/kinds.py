"""The kinds that the scripted API server serves, its paths, and what it says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of the API."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS = (
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind("", "v1", "nodes", "Node", namespaced=False),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Kind("", "v1", "pods", "Pod"),
    Kind("", "v1", "services", "Service"),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "endpoints", "Endpoints"),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("events.k8s.io", "v1", "events", "Event"),
    Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    Kind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload"),
    Kind("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False),
    Kind("inference.myorg", "v1", "inferencejobs", "InferenceJob"),
    Kind("inference.myorg", "v1", "inferencemodels", "InferenceModel"),
)


@dataclass(frozen=True)
class Place:
    """What a path names: a collection, an object, or a subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def kind_of(obj: Raw) -> Kind:
    return next(k for k in KINDS if (k.api_version, k.name) == (obj["apiVersion"], obj["kind"]))


def locate(path: str) -> Place | None:
    """Read a path; None when it names nothing that is served."""
    parts = path.strip("/").split("/")
    group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, parts = parts[0], parts[1:]
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    plural = parts[0] if parts else ""
    kind = next((k for k in KINDS if (k.group, k.version, k.plural) == (group, version, plural)), None)
    return Place(kind, namespace, *parts[1:3]) if kind is not None else None


def discovery(path: str, absent: set[str]) -> Raw | None:
    """The server's word about its kinds; None for other paths."""
    here = [k for k in KINDS if k.group not in absent]
    match path.strip("/").split("/"):
        case ["version"]:
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({k.group for k in here} - {""})
            return {"kind": "APIGroupList", "groups": [_group(name) for name in groups]}
        case ["api", version]:
            return _resources([k for k in here if k.group == "" and k.version == version], version)
        case ["apis", group, version] if any(k.group == group for k in here):
            return _resources([k for k in here if (k.group, k.version) == (group, version)], f"{group}/{version}")
    return None


def _group(name: str) -> Raw:
    number = next(k.version for k in KINDS if k.group == name)
    version = {"groupVersion": f"{name}/{number}", "version": number}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kinds: list[Kind], group_version: str) -> Raw:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = [
        {"name": k.plural + tail, "singularName": k.name.lower(), "namespaced": k.namespaced, "kind": k.name, "verbs": verbs}
        for k in kinds
        for tail in ("", "/status")
    ]
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}
