"""The operator's view of the outside: small protocols, so that tests can stand in for the world."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol

from inference_operator.state.power import Device
from inference_protocol.messages import TaskOrder, TaskQuery, TaskState, Telemetry

Raw = dict[str, Any]


class KubeClient(Protocol):
    """The verbs that we need of the API server. Every method raises the errors of `inference_operator.errors`."""

    async def get(self, path: str) -> Raw:
        """GET one object."""
        ...

    def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        """GET a collection, page by page."""
        ...

    async def create(self, path: str, body: Raw) -> Raw:
        """POST into a collection."""
        ...

    async def apply(self, path: str, body: Raw) -> Raw:
        """Server-side apply as our field manager, forcing what we own."""
        ...

    async def merge(self, path: str, body: Raw) -> Raw:
        """JSON merge patch: what is null goes, whoever has written it."""
        ...

    async def replace(self, path: str, body: Raw) -> Raw:
        """PUT with the body's resourceVersion."""
        ...

    async def delete(self, path: str, *, uid: str) -> None:
        """DELETE this very object; one that is gone already is fine."""
        ...


class WorkerAddress(NamedTuple):
    """Where a worker pod is, and which pod is meant: addresses are used again, and names too."""

    address: str
    namespace: str
    uid: str


class ClaimingClient(KubeClient, Protocol):
    """A KubeClient that also makes objects whose names are all that it has a right to."""

    async def claim(self, path: str, body: Raw) -> Raw:
        """Create one object by its name. An object that says otherwise is somebody else's: ConflictError."""
        ...


class WatchingClient(KubeClient, Protocol):
    """A KubeClient that also watches kinds which may come and go: kopf's watches stay for the operator's life."""

    def watch(self, path: str, *, selector: str = "") -> AsyncIterator[Raw]:
        """Events of a collection, from what there is on, until the API server ends the stream."""
        ...


class WorkerClient(Protocol):
    """What the operator asks of a worker pod."""

    async def telemetry(self, worker: WorkerAddress) -> Telemetry | None:
        """How the worker stands; None when it can't be reached."""
        ...

    async def order(self, worker: WorkerAddress, token: str, order: TaskOrder) -> TaskState:
        """Hand a task over, or hear how it stands. Raises WorkerUnreachableError."""
        ...

    async def wait(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """Wait for a task's end, or the query's seconds; None for a task that is not known there. Raises WorkerUnreachableError."""
        ...

    async def stop(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """Have a task end; None for one that is not known there. Raises WorkerUnreachableError."""
        ...


class ExporterClient(Protocol):
    """What the operator asks of a meter."""

    async def devices(self, address: str) -> tuple[Device, ...]:
        """The devices of its node. Raises ExporterError."""
        ...
