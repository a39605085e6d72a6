"""EndpointSlices of our Services: what they say, cut down to what decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from inference_operator.api import names
from inference_operator.state.index import discard
from inference_operator.state.objects import Job, Key, Pod
from inference_operator.state.raw import Raw, RawMeta, RawStruct, is_ours

LABEL_SERVICE = "kubernetes.io/service-name"
LABEL_WRITER = "endpointslice.kubernetes.io/managed-by"
# Who writes the slices, as `LABEL_WRITER` has it: each writer changes and deletes its own alone.
WRITER = f"{names.MANAGED_BY}.{names.DOMAIN}"


def family_of(address: str) -> str:
    """Return the addressType of a slice with this address."""
    return "IPv6" if ":" in address else "IPv4"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A worker as callers of its Service see it; the conditions are those of discovery.k8s.io/v1."""

    pod: str
    uid: str
    address: str
    node: str | None
    zone: str | None
    ready: bool
    serving: bool
    terminating: bool


Port = tuple[str, int, str]
"""Name, number, application protocol."""


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """One EndpointSlice of a Service of ours. `writer` is who wrote it: we, or one of Kubernetes' own controllers."""

    key: Key
    uid: str
    resource_version: str
    service: str
    writer: str
    family: str
    ports: tuple[Port, ...]
    endpoints: tuple[Endpoint, ...]

    @property
    def ours(self) -> bool:
        """Whether we wrote it."""
        return self.writer == WRITER

    @property
    def says(self) -> tuple[str, tuple[Port, ...], tuple[Endpoint, ...]]:
        """What of it matters to callers."""
        return self.family, self.ports, self.endpoints


@dataclass(frozen=True, slots=True)
class EndpointsObserved:
    """All that decides the endpoints of a serving job: a snapshot.

    `selecting` is the uid of a Service that still has a selector, so that Kubernetes' own controller writes slices for it too.
    `heard` are the pods that were ready once and answer the operator's polls. Of the suspected ones those in `recovering` answer
    again, and not yet often enough to be trusted.
    """

    job: Job
    service: Key
    selecting: str | None
    pods: tuple[Pod, ...]
    suspected: frozenset[str]
    heard: frozenset[str]
    zones: Mapping[str, str]
    slices: tuple[EndpointSlice, ...]
    recovering: frozenset[str] = frozenset()


class Slices:
    """EndpointSlices by their keys, and by their Services."""

    def __init__(self) -> None:
        self.known: dict[Key, EndpointSlice] = {}
        self._of: dict[Key, set[Key]] = {}

    def put(self, key: Key, found: EndpointSlice | None) -> None:
        """Take a slice in, None for one that is gone."""
        if (before := self.known.pop(key, None)) is not None:
            discard(self._of, Key(key.namespace, before.service), key)
        if found is not None:
            self.known[key] = found
            self._of.setdefault(Key(key.namespace, found.service), set()).add(key)

    def of(self, service: Key) -> tuple[EndpointSlice, ...]:
        """The slices of a Service, by name."""
        return tuple(self.known[key] for key in sorted(self._of.get(service, ())))


class _Conditions(RawStruct, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class _Target(RawStruct, frozen=True):
    name: str = ""
    uid: str = ""


class _RawEndpoint(RawStruct, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: _Conditions = _Conditions()
    target_ref: _Target = _Target()
    node_name: str | None = None
    zone: str | None = None


class _RawPort(RawStruct, frozen=True):
    name: str = ""
    port: int = 0
    app_protocol: str = ""


class _RawSlice(RawStruct, frozen=True):
    metadata: RawMeta
    address_type: str = ""
    # The API server has null for none.
    endpoints: tuple[_RawEndpoint, ...] | None = None
    ports: tuple[_RawPort, ...] | None = None


def parse_slice(raw: Raw) -> EndpointSlice | None:
    """An EndpointSlice of a Service of ours; None for one that names none."""
    found = msgspec.convert(raw, _RawSlice)
    meta = found.metadata
    service, writer = meta.labels.get(LABEL_SERVICE), meta.labels.get(LABEL_WRITER, "")
    if service is None:
        return None
    return EndpointSlice(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        service=service,
        writer=writer if writer != WRITER or is_ours(meta) else "",
        family=found.address_type,
        ports=tuple((port.name, port.port, port.app_protocol) for port in found.ports or ()),
        endpoints=tuple(_endpoint(one) for one in found.endpoints or ()),
    )


def _endpoint(raw: _RawEndpoint) -> Endpoint:
    told = raw.conditions
    return Endpoint(
        pod=raw.target_ref.name,
        uid=raw.target_ref.uid,
        address=raw.addresses[0] if len(raw.addresses) == 1 else "",
        node=raw.node_name,
        zone=raw.zone,
        ready=told.ready is True,
        serving=told.serving is True,
        terminating=told.terminating is True,
    )
