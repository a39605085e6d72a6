"""A stand-in for the API server, in memory. It simulates: objects, versions, uids, watches, owner references; nothing else.

It speaks the operator's own port (`KubeClient`), so what runs on it is the real operator down to its HTTP client.
"""

import asyncio
import copy
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from inference_operator.api.schema import rfc3339
from inference_operator.errors import ConflictError, NotFoundError, RefusedError, RetryableError
from tests.simulation.virtual_time import VirtualClock

Raw = dict[str, Any]

_PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<ns>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?P<sub>/status)?"
)
# The status of what is new; ours is the CRDs' default.
_FRESH: dict[str, Raw] = {
    "pods": {"phase": "Pending"},
    "inferencejobs": {"observedGeneration": 0},
    "inferencemodels": {"observedGeneration": 0},
}
# What a request takes, and how long a change takes to reach a watch.
REQUEST_SECONDS = 0.002
WATCH_SECONDS = 0.010


class At(NamedTuple):
    """Where an object is."""

    plural: str
    namespace: str
    name: str


Watcher = Callable[[str, str, Raw], None]
Admission = Callable[[At, Raw], None]
Listener = Callable[[str, At, Raw], None]


def locate(path: str) -> At:
    """What a path is about; a collection has no name."""
    found = _PATH.fullmatch(path)
    assert found is not None, path
    return At(found["plural"], found["ns"] or "", found["name"] or "")


@dataclass
class _Watch:
    take: Watcher
    due: dict[str, float] = field(default_factory=dict)
    closed: bool = False


class SimulatedApi:
    """Objects by plural, namespace and name. `dice` shuffle lists and delays; `admission` may refuse what is created."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.objects: dict[At, Raw] = {}
        self.admission: list[Admission] = []
        # Told about each change that is made through the operator's verbs, before it is answered.
        self.listeners: list[Listener] = []
        # Requests by verb and plural, refused ones too.
        self.requests: Counter[tuple[str, str]] = Counter()
        # What a creation takes beyond a request's usual time.
        self.creation_seconds = 0.0
        self._dice = dice
        self._watches: list[_Watch] = []
        self._version = 0
        self._clock = VirtualClock()

    # What the operator calls.

    async def get(self, path: str) -> Raw:
        """See KubeClient."""
        await self._delay()
        return copy.deepcopy(self._found(locate(path)))

    async def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        """See KubeClient."""
        await self._delay()
        at, wanted = locate(path), dict(part.split("=") for part in selector.split(",") if part)
        found = [
            copy.deepcopy(raw)
            for key, raw in self.objects.items()
            if key.plural == at.plural
            and at.namespace in ("", key.namespace)
            and wanted.items() <= raw["metadata"].get("labels", {}).items()
        ]
        if self._dice is not None:
            self._dice.shuffle(found)
        yield found

    async def create(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        await self._delay()
        await asyncio.sleep(self.creation_seconds)
        at = locate(path)._replace(name=body["metadata"]["name"])
        self.requests["create", at.plural] += 1
        if at in self.objects:
            raise ConflictError(f"{at} exists")
        for admit in self.admission:
            admit(at, body)
        return self._told("create", at, self.put(at, body))

    async def apply(self, path: str, body: Raw) -> Raw:
        """See KubeClient. The operator is the only one that applies, so what it leaves out is gone."""
        await self._delay()
        at = locate(path)
        raw = self._found(at)
        if at.plural in ("endpointslices", "poddisruptionbudgets"):
            return self._told("apply", at, self.put(at, body))
        if body["metadata"].get("uid", raw["metadata"]["uid"]) != raw["metadata"]["uid"]:
            raise ConflictError("another object of this name")
        assert path.endswith("/status"), "the operator applies status, EndpointSlices and PodDisruptionBudgets alone"
        return self._told("apply", at, self.put(at, {**raw, "status": body["status"]}))

    async def merge(self, path: str, body: Raw) -> Raw:
        """See KubeClient. Nobody else writes a status here; what is merged takes the selector from a Service."""
        await self._delay()
        at = locate(path)
        assert at.plural == "services" and body["spec"] == {"selector": None}
        raw = self._found(at)
        spec = {name: value for name, value in raw["spec"].items() if name != "selector"}
        return self._told("merge", at, self.put(at, {**raw, "spec": spec}))

    async def replace(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        await self._delay()
        at = locate(path)
        if body["metadata"]["resourceVersion"] != self._found(at)["metadata"]["resourceVersion"]:
            raise ConflictError(f"{at} has changed")
        return self._told("replace", at, self.put(at, body))

    async def delete(self, path: str, *, uid: str) -> None:
        """See KubeClient."""
        await self._delay()
        at = locate(path)
        raw = self.objects.get(at)
        if raw is None:
            return
        if raw["metadata"]["uid"] != uid:
            raise ConflictError("another object of this name")
        self._told("delete", at, raw)
        self.mark_deleted(at)

    # What the rest of the cluster does.

    def watch(self, take: Watcher) -> Callable[[], None]:
        """Be told of every change from now on; returns how to stop it."""
        watch = _Watch(take)
        self._watches.append(watch)

        def close() -> None:
            watch.closed = True
            self._watches.remove(watch)

        return close

    def put(self, at: At, body: Raw) -> Raw:
        """Create or replace an object; one that stays the same keeps its version."""
        old = self.objects.get(at)
        raw = copy.deepcopy(body)
        meta = raw["metadata"]
        meta.setdefault("namespace", at.namespace)
        if old is None:
            meta.setdefault("uid", f"uid-{self._version + 1:04}-of-{at.name}")
            meta.setdefault("creationTimestamp", rfc3339(self._clock.now()))
            meta.setdefault("generation", 1)
            raw.setdefault("status", copy.deepcopy(_FRESH.get(at.plural, {})))
        else:
            # What the server owns stays, whatever a manifest leaves out.
            for owned in ("uid", "creationTimestamp", "generation", "resourceVersion"):
                meta.setdefault(owned, old["metadata"][owned])
            raw.setdefault("status", copy.deepcopy(old["status"]))
            if raw == old:
                return copy.deepcopy(old)
            if raw.get("spec") != old.get("spec"):
                meta["generation"] = old["metadata"]["generation"] + 1
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self.objects[at] = raw
        self._tell("MODIFIED" if old is not None else "ADDED", at, raw)
        return copy.deepcopy(raw)

    def mark_deleted(self, at: At) -> None:
        """Begin a deletion: pods end first, everything else goes at once, and takes along what it owns."""
        raw = self.objects.get(at)
        if raw is None:
            return
        if at.plural == "pods":
            stamped = {
                **raw["metadata"],
                "deletionTimestamp": raw["metadata"].get("deletionTimestamp") or rfc3339(self._clock.now()),
            }
            self.put(at, {**raw, "metadata": stamped})
        else:
            self.remove(at)

    def remove(self, at: At) -> None:
        """End a deletion."""
        raw = self.objects.pop(at, None)
        if raw is None:
            return
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", at, raw)
        for other, owned in list(self.objects.items()):
            if any(owner["uid"] == raw["metadata"]["uid"] for owner in owned["metadata"].get("ownerReferences", [])):
                self.mark_deleted(other)

    def all(self, plural: str) -> dict[At, Raw]:
        """Every object of a kind."""
        return {at: raw for at, raw in self.objects.items() if at.plural == plural}

    async def _delay(self) -> None:
        await asyncio.sleep(REQUEST_SECONDS * (1 + (self._dice.random() if self._dice is not None else 0)))

    def _found(self, at: At) -> Raw:
        if at not in self.objects:
            raise NotFoundError(f"{at} is gone")
        return self.objects[at]

    def _told(self, verb: str, at: At, raw: Raw) -> Raw:
        for listener in self.listeners:
            listener(verb, at, raw)
        return raw

    def _tell(self, event: str, at: At, raw: Raw) -> None:
        """Kinds may overtake each other on their ways to a watcher; the events of one kind never do."""
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            delay = WATCH_SECONDS * (1 + (4 * self._dice.random() if self._dice is not None else 0))
            due = max(loop.time() + delay, watch.due.get(at.plural, 0.0) + 1e-6)
            watch.due[at.plural] = due
            loop.call_at(due, self._deliver, watch, event, at.plural, copy.deepcopy(raw))

    @staticmethod
    def _deliver(watch: _Watch, event: str, plural: str, raw: Raw) -> None:
        if not watch.closed:
            watch.take(event, plural, raw)


def no_pods(at: At, body: Raw) -> None:
    """A quota that is used up, in the words of Kubernetes' own admission."""
    if at.plural == "pods":
        raise RefusedError(403, "Forbidden", f'pods "{at.name}" is forbidden: exceeded quota: team, limited: pods=0')


def fails_once(plural: str) -> Admission:
    """The first creation of a kind meets a server that is out of order."""
    left = [1]

    def fail(at: At, body: Raw) -> None:
        if at.plural == plural and left:
            left.pop()
            raise RetryableError("503 Service Unavailable")

    return fail
