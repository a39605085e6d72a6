"""A simulated world: API, cluster, and one life of the real operator after the other, in virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from inference_operator.api import names
from inference_operator.api.schema import API_VERSION, rfc3339
from inference_operator.autoscaling.controller import Autoscale
from inference_operator.controllers.apply import Applier
from inference_operator.controllers.endpoints_reconciler import EndpointsReconciler
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.controllers.job_reconciler import JobReconciler
from inference_operator.controllers.pool_reconciler import PoolReconciler
from inference_operator.controllers.queue_workers import Workers
from inference_operator.controllers.resync import Resync
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.controllers.waiting_jobs import WaitingJobs
from inference_operator.kube.events import EventRecorder
from inference_operator.kube.ports import ExporterClient
from inference_operator.liveness.prober import Prober
from inference_operator.metering.controller import Meters
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import Settings
from inference_operator.state.request import Kind, Request, job_request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from inference_operator.warmpools.credentials import TaskKey
from inference_operator.warmpools.tasks import Tasks
from tests.simulation.api import At, Raw, SimulatedApi
from tests.simulation.cluster import DIGEST, Script, SimulatedCluster
from tests.simulation.meter import SimulatedExporters
from tests.simulation.pings import SimulatedPings
from tests.simulation.trace import Trace, is_placeholder, whose
from tests.simulation.truth import contradictions
from tests.simulation.virtual_time import START, VirtualClock, run
from tests.simulation.warm import Ledger

RESTART_SECONDS = 1.0


class CrashingApi:
    """Passes everything on; after so many writes the answer never comes, and the operator is dead."""

    def __init__(self, api: SimulatedApi, writes: int | None) -> None:
        self._api = api
        self._left = writes
        self.dead = asyncio.Event()

    async def get(self, path: str) -> Raw:
        """See KubeClient."""
        return await self._api.get(path)

    def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        """See KubeClient."""
        return self._api.list_pages(path, selector=selector)

    async def create(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._written(await self._api.create(path, body))

    async def apply(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._written(await self._api.apply(path, body))

    async def merge(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._written(await self._api.merge(path, body))

    async def replace(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._written(await self._api.replace(path, body))

    async def delete(self, path: str, *, uid: str) -> None:
        """See KubeClient."""
        await self._api.delete(path, uid=uid)
        await self._written({})

    async def _written(self, decision: Raw) -> Raw:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.dead.set()
                await asyncio.Event().wait()
        return decision


class Operator:
    """One life: all the real parts, put together as `app.run` does, without kopf, lease and HTTP."""

    def __init__(
        self,
        api: SimulatedApi,
        cluster: SimulatedCluster,
        settings: Settings,
        crash_after: int | None,
        exporters: ExporterClient | None = None,
        *,
        silent: set[str] | None = None,
        with_load: bool = False,
    ) -> None:
        """`with_load` has it reckon with the requests of services, as the real one always does."""
        clock = VirtualClock()
        self.store = Store()
        self.queue: WorkQueue[Request] = WorkQueue(clock.monotonic)
        self.kube = CrashingApi(api, crash_after)
        self._api, self._clock, self._settings = api, clock, settings
        tokens = TaskKey(b"of the simulation")
        pools = Pools(self.store, settings, clock, tokens)
        self.scheduling = SchedulingLoop(self.store, pools, settings, clock, self.queue.add)
        seconds = settings.telemetry_seconds
        autoscale = Autoscale(self.store, clock, self.queue.add, settings.autoscaling, telemetry_seconds=seconds)
        after_round = (autoscale.round,) if with_load else ()
        self._telemetry = Telemetry(self.store, cluster, clock, self.queue.add, seconds=seconds, after_round=after_round)
        tasks = Tasks(self.store, cluster, clock, tokens, self.queue.add)
        self._events = EventRecorder(self.kube, clock, reporter="simulation")
        applier = Applier(self.kube, self.store, tasks, self._events, clock)
        waiting_jobs = WaitingJobs(self.store, self.scheduling, self.queue.add)
        jobs = JobReconciler(
            self.store, self.queue, self.scheduling, self._telemetry, applier, waiting_jobs, settings, tokens, clock
        )
        of_pools = PoolReconciler(self.queue, self.scheduling, pools, applier, waiting_jobs, clock)
        endpoints = EndpointsReconciler(self.store, self.kube, clock)
        self._workers = Workers(self.queue, {Kind.JOB: jobs, Kind.POOL: of_pools, Kind.ENDPOINTS: endpoints})
        self._informer = InformerHandlers(self.store, self.scheduling, self.queue.add, metering=settings.metering)
        wake_owner = partial(self._informer.wake_owner, urgent=True)
        self._prober = None
        if silent is not None:
            self._prober = Prober(self.store, SimulatedPings(api, silent), clock, wake_owner, self.scheduling.touch)
        self._meters = Meters(self.store, exporters, clock, settings.metering) if exporters is not None else None
        self._resync = Resync(self.kube, self.store, self._informer, lambda _: None)

    def _take(self, event: str, plural: str, raw: Raw) -> None:
        take: dict[str, Callable[..., None]] = {
            "inferencejobs": self._informer.job,
            "inferencemodels": self._informer.model,
            "pods": self._informer.pod,
            "nodes": self._informer.node,
            "persistentvolumeclaims": self._informer.claim,
            "services": self._informer.service,
            "endpointslices": self._informer.slice,
        }
        if plural in take:
            take[plural](raw, gone=event == "DELETED")

    async def live(self) -> None:
        """Until cancelled, or dead."""
        close = self._api.watch(self._take)
        try:
            async with asyncio.TaskGroup() as group:
                await self._resync.once()
                group.create_task(self._events.run())
                group.create_task(self.scheduling.run())
                group.create_task(self._telemetry.run())
                if self._prober is not None:
                    group.create_task(self._prober.run())
                if self._meters is not None:
                    group.create_task(self._meters.run())
                group.create_task(self._resync.run(self._settings.resync_seconds))
                group.create_task(self._sweep())
                for _ in range(self._settings.workers):
                    group.create_task(self._workers.work())
        finally:
            close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(10)
            for uid in self.store.drop_stale_assumptions(self._clock.now()):
                if (key := self.store.job_key(uid)) is not None:
                    self.queue.add(job_request(key))


@dataclass
class World:
    """What is there at the start, and what shall happen when. `seed` shuffles lists and delays."""

    seed: int | None = None
    scripts: dict[str, Script] = field(default_factory=dict)
    settings: Settings = field(default_factory=lambda: Settings(workers=4))
    crash_after: tuple[int, ...] = ()
    crash_always_after: int | None = None

    def __post_init__(self) -> None:
        dice = random.Random(self.seed) if self.seed is not None else None
        self.trace = Trace()
        self.api = SimulatedApi(dice)
        self.api.listeners.append(self.trace.operator)
        self.api.listeners.append(self._count)
        self.writes: Counter[tuple[str, str]] = Counter()
        self.deleted: Counter[str] = Counter()
        self.most_workers: dict[str, int] = {}
        self.least_answering: dict[str, int] = {}
        self.ledger = Ledger()
        self.lives = 0
        # Meters of devices, where a simulation has any.
        self.exporters: SimulatedExporters | None = None
        # Whether workers are polled, which takes twenty steps a second, and the nodes and workers that nobody hears.
        self.polled = False
        self.silent: set[str] = set()
        # Nodes that start no container.
        self.stuck: set[str] = set()
        self._deleted_models: dict[str, Raw] = {}
        self._plot: list[tuple[float, Callable[[], object]]] = []
        self._told: dict[str, Raw] = {}
        self.contradictions: list[str] = []
        self.api.watch(self._hold_to_the_truth)

    def _hold_to_the_truth(self, event: str, plural: str, raw: Raw) -> None:
        if plural != "inferencejobs" or event == "DELETED" or not raw.get("status"):
            return
        uid = raw["metadata"]["uid"]
        before, self._told[uid] = self._told.get(uid, {}), raw["status"]
        self.contradictions += [f"{raw['metadata']['name']}: {rule}: {raw['status']}" for rule in contradictions(raw, before)]

    def _count(self, verb: str, at: At, raw: Raw) -> None:
        name = whose(raw) if at.plural == "pods" else raw["metadata"].get("labels", {}).get(names.LABEL_JOB, at.name)
        self.writes[at.plural, name] += 1
        if verb == "delete" and at.plural == "pods":
            self.deleted[raw["metadata"]["uid"]] += 1
        for raw_pod in self.api.all("pods").values():
            job = whose(raw_pod)
            self.most_workers[job] = max(self.most_workers.get(job, 0), len(self.living(job)))

    # What is there.

    def node(self, name: str, *, cpu: int = 8, gpu: int = 0, at: float = 0.0) -> None:
        """A node that is ready."""
        allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
        raw = {
            "metadata": {"name": name},
            "spec": {},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.at(at, lambda: self.api.put(At("nodes", "", name), raw))

    def model(
        self,
        name: str = "m",
        *,
        seconds: dict[str, float] | None = None,
        versions: tuple[str, ...] = ("1",),
        pool: Raw | None = None,
        digest: str = DIGEST,
        memory: str | None = None,
        namespace: str = "default",
    ) -> None:
        """A model whose speed is known: thirty items take so many seconds, and loading three. It takes 100 MB."""
        profiles = [
            {"digest": digest, "accelerator": class_, "backend": "onnx", "batchSize": 1, "itemsPerSecond": 30 / time, "loadSeconds": 3.0, "samples": 9,
             "memoryBytes": 100_000_000,
             "observedTime": rfc3339(START - timedelta(days=1))}
            for class_, time in (seconds or {}).items()
        ]  # fmt: skip
        spec: Raw = {"versions": [{"name": v, "uri": f"file:///models/{v}.onnx", "digest": digest} for v in versions]}
        if pool is not None:
            spec = {**spec, "warmPool": {"accelerator": "cpu", "claims": ["data"], **pool}}
        if memory is not None:
            resources = {"requests": {"memory": memory}, "limits": {"memory": memory}}
            spec = {**spec, "resources": [{"accelerator": "cpu", "resources": resources}]}
        raw = {"metadata": {"name": name}, "spec": spec, "status": {"observedGeneration": 0, "profiles": profiles}}
        self.trace.model(name, raw["status"])
        self.at(0.0, lambda: self.api.put(At("inferencemodels", namespace, name), raw))

    def job(
        self,
        name: str,
        *,
        at: float = 0.1,
        deadline_at: float | None = None,
        batch: bool = True,
        items: int | None = 30,
        namespace: str = "default",
        **spec: Any,
    ) -> None:
        """A job that comes at a time: a batch unless it serves. With `items` None it does not say how many it has."""
        body: Raw = {"model": "m", **spec}
        if batch:
            counted = {"items": items} if items is not None else {}
            body |= {"input": {"uri": "pvc://data/in.npy", **counted}, "output": {"uri": f"pvc://data/{name}"}}
        if deadline_at is not None:
            body["deadline"] = rfc3339(START + timedelta(seconds=deadline_at))
        raw = {"apiVersion": API_VERSION, "kind": "InferenceJob", "metadata": {"name": name}, "spec": body}

        def come() -> None:
            self.trace.say(name, "comes")
            self.api.put(At("inferencejobs", namespace, name), raw)

        self.at(at, come)

    def change(self, name: str, *, at: float, **spec: Any) -> None:
        """A user changes a job's spec."""

        def write() -> None:
            self.trace.say(name, f"is changed: {spec}")
            raw = self.api.objects[At("inferencejobs", "default", name)]
            self.api.put(At("inferencejobs", "default", name), {**raw, "spec": {**raw["spec"], **spec}})

        self.at(at, write)

    def somebodys_service(self, name: str) -> None:
        """A Service that is not ours."""
        self.at(0.0, lambda: self.api.put(At("services", "default", name), {"metadata": {"name": name}, "spec": {}}))

    def delete_job(self, name: str) -> None:
        """A user deletes a job, now."""
        self.trace.say(name, "is deleted")
        self.api.mark_deleted(At("inferencejobs", "default", name))

    def delete_model(self, name: str) -> None:
        """A user deletes a model, now; one that is gone already stays so."""
        self.trace.say(name, "is deleted")
        if (raw := self.api.objects.get(At("inferencemodels", "default", name))) is not None:
            self._deleted_models[name] = raw
        self.api.mark_deleted(At("inferencemodels", "default", name))

    def put_model(self, name: str) -> None:
        """A user applies a model's manifest again, now, whether it was deleted or not."""
        self.trace.say(name, "comes back")
        at = At("inferencemodels", "default", name)
        raw = self.api.objects.get(at) or self._deleted_models[name]
        self.api.put(At("inferencemodels", "default", name), {"metadata": {"name": name}, "spec": raw["spec"]})

    def delete_pods(self, name: str, count: int) -> None:
        """Somebody deletes so many workers of a job, now."""
        for raw in [raw for raw in self.living(name) if "deletionTimestamp" not in raw["metadata"]][:count]:
            self.api.mark_deleted(At("pods", raw["metadata"]["namespace"], raw["metadata"]["name"]))

    def crash(self) -> None:
        """The operator dies, now."""
        self._operator.kube.dead.set()

    def watch_answering(self, name: str, *, since: float) -> None:
        """Keep the smallest number of workers that ever answer."""

        def look(_: str, plural: str, __: Raw) -> None:
            if plural == "pods" and asyncio.get_running_loop().time() >= since:
                self.least_answering[name] = min(self.least_answering.get(name, 10**6), len(self.answering(name)))

        self.at(0.0, lambda: self.api.watch(look))

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        """Have something happen."""
        self._plot.append((seconds, do))

    # What comes of it.

    def status(self, name: str, namespace: str = "default") -> Raw:
        """A job's status."""
        found: Raw = self.api.objects[At("inferencejobs", namespace, name)]["status"]
        return found

    def model_status(self, name: str = "m") -> Raw:
        """A model's status."""
        found: Raw = self.api.objects[At("inferencemodels", "default", name)]["status"]
        return found

    def workers(self, name: str) -> list[Raw]:
        """A job's pods."""
        return [raw for raw in self.api.all("pods").values() if whose(raw) == name and not is_placeholder(raw)]

    def placeholders(self, name: str) -> list[Raw]:
        """A job's placeholder pods."""
        return [raw for raw in self.api.all("pods").values() if whose(raw) == name and is_placeholder(raw)]

    def living(self, name: str) -> list[Raw]:
        """Those that have not ended."""
        return [raw for raw in self.workers(name) if raw["status"].get("phase") not in ("Succeeded", "Failed")]

    def answering(self, name: str) -> list[Raw]:
        """Those that take requests."""
        return [
            raw for raw in self.living(name) if "deletionTimestamp" not in raw["metadata"] and raw["status"].get("conditions", [])
        ]

    def endpoints(self, name: str) -> dict[str, Raw]:
        """The conditions of a job's endpoints, by their nodes."""
        slices = [raw for raw in self.api.all("endpointslices").values() if raw["metadata"]["labels"][names.LABEL_JOB] == name]
        return {one["nodeName"]: one["conditions"] for raw in slices for one in raw["endpoints"]}

    def taking(self, name: str) -> set[str]:
        """The nodes where callers of a job are sent."""
        return {node for node, conditions in self.endpoints(name).items() if conditions["ready"]}

    def created(self, name: str) -> int:
        """How many workers were ever created for a job."""
        return sum(f"{name:<10} worker" in line and "is created" in line for line in self.trace.lines)

    def final(self) -> dict[str, tuple[object, ...]]:
        """How every job stands: what must be the same whatever the order of events."""
        jobs = self.api.all("inferencejobs").values()
        return {raw["metadata"]["name"]: _gist(raw["status"]) for raw in jobs}

    def run(self, until: float) -> "World":
        """Let it all happen."""
        run(self._happen(until))
        return self

    async def _happen(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        cluster = self.cluster = SimulatedCluster(self.api, self.trace, self.scripts, self.ledger, self.stuck)
        for seconds, do in self._plot:
            if seconds <= 0:
                do()
            else:
                loop.call_at(seconds, do)
        while loop.time() < until:
            await self._one_life(cluster, until - loop.time())
        assert not self.ledger.faults, self.ledger.faults
        assert not self.contradictions, "\n".join(self.contradictions[:3])
        assert all(amount >= 0 for free in cluster.free().values() for amount in free.values()), "a node is oversubscribed"

    async def _one_life(self, cluster: SimulatedCluster, seconds: float) -> None:
        crash_after = self.crash_after[self.lives] if self.lives < len(self.crash_after) else self.crash_always_after
        self.lives += 1
        with_load = any(script.requests for script in self.scripts.values())
        silent = self.silent if self.polled else None
        operator = self._operator = Operator(
            self.api, cluster, self.settings, crash_after, self.exporters, silent=silent, with_load=with_load
        )
        life, death = asyncio.create_task(operator.live()), asyncio.create_task(operator.kube.dead.wait())
        done, _ = await asyncio.wait((life, death), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (life, death):
            task.cancel()
        outcomes = await asyncio.gather(life, death, return_exceptions=True)
        if life in done:
            raise AssertionError(f"the operator ended by itself: {outcomes[0]!r}")
        if death in done:
            self.trace.say("operator", "crashes")
            await asyncio.sleep(RESTART_SECONDS)


def writes_of(world: World, name: str) -> int:
    """How often a job's status was written."""
    return world.writes["inferencejobs", name]


def _gist(status: Raw) -> tuple[object, ...]:
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
    outlook = status.get("deadline", {}).get("outlook")
    return (
        status.get("phase"),
        outlook,
        status.get("attempts"),
        status.get("failedAttempts"),
        status.get("readyReplicas"),
        conditions,
    )
