"""What is asked of the API server: each request as a value, so that it can be compared, and carried out in either way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from inference_client.api import InferenceJob, InferenceModel

Raw = dict[str, Any]

GROUP_VERSION = "inference.myorg/v1"
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
# One answer has at most so many objects; what a list holds beyond comes with the next.
PAGE = 500


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: its plural below the path of its group."""

    root: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Where objects are: all of them without a namespace, one with a name."""
        middle = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
        return f"{self.root}{middle}/{self.plural}" + (f"/{quote(name, safe='')}" if name is not None else "")


JOBS = Resource(f"/apis/{GROUP_VERSION}", "inferencejobs")
MODELS = Resource(f"/apis/{GROUP_VERSION}", "inferencemodels")
PODS = Resource("/api/v1", "pods")
CLAIMS = Resource("/api/v1", "persistentvolumeclaims")
EVENTS = Resource("/apis/events.k8s.io/v1", "events")
NODES = Resource("/api/v1", "nodes")


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `first_change`: answered by the first event of a watch, or by nothing when the server ends it."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Raw | None = None
    content_type: str = JSON
    first_change: bool = False
    text: bool = False
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Exec:
    """A program in a pod's first container, without input; what it prints goes to `sink`, which may raise to end it."""

    namespace: str
    pod: str
    command: tuple[str, ...]
    sink: Callable[[bytes], None]
    timeout_seconds: float = 60.0

    @property
    def call(self) -> "Call":
        """The request that begins it."""
        query = (*(("command", word) for word in self.command), ("stdout", "true"), ("stderr", "true"))
        # A stream is no JSON: whoever takes that alone is refused (406).
        return Call("GET", f"{PODS.path(self.namespace, self.pod)}/exec", query, text=True)


@dataclass(frozen=True, slots=True)
class Work:
    """What blocks and asks no API server: files of this machine, or a bucket."""

    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait between two calls, for a server that was away."""

    seconds: float


def get(resource: Resource, namespace: str | None, name: str) -> Call:
    """One object."""
    return Call("GET", resource.path(namespace, name))


def list_(resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", resume: str = "") -> Call:
    """A page of objects: all namespaces without one, those that selectors match; `resume` is metadata.continue of the last page."""
    query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": resume}
    return Call("GET", resource.path(namespace), _given(query))


def next_change(resource: Resource, namespace: str | None, *, since: str, seconds: int, labels: str = "", fields: str = "") -> Call:
    """The next change after a resourceVersion, waited for at most so long."""
    query = {
        "watch": "1",
        "resourceVersion": since,
        "timeoutSeconds": str(seconds),
        "labelSelector": labels,
        "fieldSelector": fields,
    }
    return Call("GET", resource.path(namespace), _given(query), first_change=True, timeout_seconds=seconds + 10.0)


def create(resource: Resource, namespace: str, manifest: Raw, *, dry_run: bool = False) -> Call:
    """Make an object; a dry run goes through admission and stores nothing."""
    return Call("POST", resource.path(namespace), _given({"dryRun": "All" if dry_run else ""}), manifest)


def patch(resource: Resource, namespace: str, name: str, change: Raw) -> Call:
    """Change some fields, as a merge patch."""
    return Call("PATCH", resource.path(namespace, name), body=change, content_type=MERGE_PATCH)


def delete(resource: Resource, namespace: str, name: str, *, grace_seconds: int | None = None) -> Call:
    """Delete an object; what it owns goes after it."""
    query = {"propagationPolicy": "Background", "gracePeriodSeconds": "" if grace_seconds is None else str(grace_seconds)}
    return Call("DELETE", resource.path(namespace, name), _given(query))


def _given(query: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in query.items() if value)


def manifest(one: InferenceJob | InferenceModel) -> Raw:
    """An object as the API server takes it."""
    plain: Raw = msgspec.to_builtins(one)
    kept = {key: value for key, value in plain.items() if key in {"metadata", "spec"}}
    return {"apiVersion": one.api_version, "kind": one.kind, **kept}
