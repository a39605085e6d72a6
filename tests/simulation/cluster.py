"""Stand-ins for kube-scheduler, kubelet and workers. A simulation: pods turn Running, Ready and ended after given seconds."""

import asyncio
import hashlib
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import msgspec

from inference_operator.api import names
from inference_operator.api.schema import rfc3339
from inference_operator.errors import WorkerUnreachableError
from inference_operator.kube.ports import WorkerAddress
from inference_operator.state.parse import parse_node
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.resources import shortage, subtract
from inference_protocol.messages import (
    CONFIG_VARIABLE,
    Latency,
    ModelFacts,
    Progress,
    TaskOrder,
    TaskQuery,
    TaskState,
    Telemetry,
    TerminationReport,
    WorkerConfig,
    encode_report,
)
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from tests.simulation.api import At, Raw, SimulatedApi
from tests.simulation.trace import Trace, is_placeholder, pinned_to, whose
from tests.simulation.virtual_time import VirtualClock
from tests.simulation.warm import Ledger, WarmWorker

BIND_SECONDS = 0.02
# How often a node that starts no container tries.
_STUCK_SECONDS = 10.0
DRAIN_SECONDS = 1.0
# What a batch in the slack of a service gets of the time that requests leave, and how many of these come each second.
_OF_THE_REST = 0.66
_REQUESTS_PER_SECOND = 100
# Faults that a worker finds while it loads: it never answers.
_BEFORE_READY = ("ModelCorrupt", "ModelNotFound", "ModelUnreachable", "ModelDigestMismatch")
DIGEST = "sha256:" + "a" * 64


@dataclass(frozen=True)
class Script:
    """How the workers of a job behave. `outcomes` are those of its attempts in turn; the last one stands for all further.

    One that `resumes` commits what it has done when it is told to stop, and the next attempt goes on there.
    """

    start: float = 1.0
    load: float = 2.0
    work: float = 30.0
    items: int = 30
    outcomes: tuple[str, ...] = ("Succeeded",)
    resumes: bool = False
    # What a warm worker takes to commit, once it is told to stop.
    stop: float = 0.5
    # Whether a mesh has put its proxy into the pod: an ordinary container, which stands first and never ends by itself.
    proxy: bool = False
    # The requests of each worker of a service, in steps: from when on, the share of its time that they take, and their latency.
    requests: tuple[tuple[float, float, float], ...] = ()

    def load_at(self, time: float) -> tuple[float, float]:
        """The share of a worker's time that requests take then, and their latency in seconds."""
        return next(((busy, latency) for since, busy, latency in reversed(self.requests) if since <= time), (0.0, 0.0))

    def left_at(self, time: float) -> float:
        """The share of a worker's time that a task gets then."""
        return _OF_THE_REST * (1 - self.load_at(time)[0]) if self.requests else 1.0

    def outcome(self, attempt: int) -> str:
        """How an attempt ends."""
        return self.outcomes[min(attempt, len(self.outcomes)) - 1]


class SimulatedCluster:
    """Watches pods and moves them on."""

    def __init__(
        self, api: SimulatedApi, trace: Trace, scripts: dict[str, Script], ledger: Ledger, stuck: Container[str] = ()
    ) -> None:
        self._api = api
        # Nodes that start no container.
        self._stuck = stuck
        self._trace = trace
        self._scripts = scripts
        self._clock = VirtualClock()
        self._unbound: set[At] = set()
        self._ready_at: dict[str, float] = {}
        self._ledger = ledger
        self._committed = ledger.committed
        # Warm workers by their pod's uid.
        self._warm: dict[str, WarmWorker] = {}
        # What services' workers have counted by when, by their pod's uid.
        self._counted: dict[str, tuple[float, float, LatencySketch]] = {}
        api.watch(self._take)

    def _take(self, event: str, plural: str, raw: Raw) -> None:
        if plural == "nodes" and event == "ADDED":
            for waiting in sorted(self._unbound):
                self._later(BIND_SECONDS, self._bind, waiting)
        if plural != "pods":
            return
        at = At("pods", raw["metadata"]["namespace"], raw["metadata"]["name"])
        if event == "ADDED":
            self._later(BIND_SECONDS, self._bind, at)
        elif event == "MODIFIED" and "deletionTimestamp" in raw["metadata"]:
            running = raw["status"].get("phase") == "Running"
            self._later(DRAIN_SECONDS if running else 0.0, self._leave, at, raw["metadata"]["uid"])
        if event == "DELETED" or raw["status"].get("phase") in ("Succeeded", "Failed"):
            for waiting in sorted(self._unbound):
                self._later(BIND_SECONDS, self._bind, waiting)

    def _later(self, seconds: float, do: Any, *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *arguments)

    # kube-scheduler

    def _bind(self, at: At) -> None:
        raw = self._api.objects.get(at)
        if raw is None or raw["spec"].get("nodeName") or "deletionTimestamp" in raw["metadata"]:
            self._unbound.discard(at)
            return
        wanted, free = parse_pod(raw).requests.items(), self.free()
        roomy = (name for name in sorted(free) if shortage(wanted, free[name]) is None)
        name = pinned_to(raw) or next(roomy, "")
        short = shortage(wanted, free.get(name, {}))
        if short is not None:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"Insufficient {short}"}
            self._unbound.add(at)
            self._api.put(at, {**raw, "status": {**raw["status"], "conditions": [condition]}})
            return
        self._unbound.discard(at)
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(self._clock.now())}
        status = {"phase": "Pending", "conditions": [condition]} if is_placeholder(raw) else {"phase": "Pending"}
        self._api.put(at, {**raw, "spec": {**raw["spec"], "nodeName": name}, "status": status})
        if is_placeholder(raw):
            self._trace.worker(raw, f"is bound to {name}")
            return
        self._later(self._script(raw).start, self._start, at, raw["metadata"]["uid"])

    def free(self) -> dict[str, dict[str, int]]:
        """What is free on each node; a stand-in's own count, to check the operator's by."""
        free = {node.name: dict(node.allocatable) for node in map(parse_node, self._api.all("nodes").values())}
        for raw in self._api.all("pods").values():
            pod = parse_pod(raw)
            if pod.node in free and not pod.terminal:
                subtract(free[pod.node], pod.requests.items())
        return free

    # kubelet and worker

    def _start(self, at: At, uid: str) -> None:
        raw = self._living(at, uid)
        if raw is None:
            return
        if raw["spec"]["nodeName"] in self._stuck:
            self._later(_STUCK_SECONDS, self._start, at, uid)
            return
        state = {"running": {"startedAt": rfc3339(self._clock.now())}}
        self._status(at, raw, phase="Running", podIP=uid, conditions=[], containerStatuses=self._containers(raw, state))
        self._trace.worker(raw, "starts")
        self._later(self._script(raw).load, self._answer, at, uid)

    def _answer(self, at: At, uid: str) -> None:
        raw = self._living(at, uid)
        if raw is None:
            return
        if self._script(raw).outcome(number_of(raw)) in _BEFORE_READY:
            self._finish(at, raw, self._script(raw).outcome(number_of(raw)))
            return
        self._ready_at[uid], now = self._clock.monotonic(), rfc3339(self._clock.now())
        kinds = ("ContainersReady", "Ready")
        self._status(at, raw, conditions=[{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds])
        self._trace.worker(raw, "answers")
        if config_of(raw).task_token_digest:
            name = raw["metadata"]["name"]
            own = config_of(raw).model
            self._warm[uid] = WarmWorker(
                name,
                own,
                self._ledger,
                lambda job: self._scripts.get(job, Script()),
                self._trace.say,
                lambda: self._script(raw).left_at(self._clock.monotonic()),
            )
        elif config_of(raw).task is not None:
            self._ledger.begin(whose(raw), raw["metadata"]["name"])
        if self._is_too_much(raw):
            self._later(0.0, self._end, at, uid, "TooManyItems")
        elif config_of(raw).task is not None or self._script(raw).outcome(number_of(raw)) != "Succeeded":
            self._later(self._left(raw), self._end, at, uid, self._script(raw).outcome(number_of(raw)))

    def _end(self, at: At, uid: str, outcome: str) -> None:
        raw = self._living(at, uid)
        if raw is not None:
            self._finish(at, raw, outcome)

    def _finish(self, at: At, raw: Raw, outcome: str) -> None:
        if (warm := self._warm.pop(raw["metadata"]["uid"], None)) is not None:
            warm.vanish()
        self._ledger.end(whose(raw), raw["metadata"]["name"])
        script = self._script(raw)
        items = _items_at(outcome, script, self._done(raw))
        if script.resumes:
            self._committed[whose(raw)] = items
        report = TerminationReport(
            outcome=outcome if outcome in ("Succeeded", "Drained") else "Failed",  # type: ignore[arg-type]
            message={"Succeeded": "done", "Drained": "stopped"}.get(outcome, f"it says {outcome}"),
            reason=WorkerReason(outcome) if outcome not in ("Succeeded", "Drained") else None,
            model=self._facts(raw),
            progress=Progress(total=script.items, completed=items),
            latency=Latency(p50=10.0, p95=20.0, p99=30.0, count=items),
        )
        now = rfc3339(self._clock.now())
        ended = {
            "exitCode": 0 if outcome == "Succeeded" else 1,
            "message": encode_report(report).decode(),
            "startedAt": raw["status"]["containerStatuses"][-1]["state"]["running"]["startedAt"],
            "finishedAt": now,
        }
        phase = "Succeeded" if outcome in ("Succeeded", "Drained") else "Failed"
        self._status(
            at,
            raw,
            phase="Running" if script.proxy else phase,
            conditions=[],
            containerStatuses=self._containers(raw, {"terminated": ended}),
        )
        self._trace.worker(raw, f"ends: {outcome}")

    def _leave(self, at: At, uid: str) -> None:
        raw = self._api.objects.get(at)
        if raw is None or raw["metadata"]["uid"] != uid:
            return
        if raw["status"].get("phase") == "Running" and not parse_pod(raw).over:
            self._finish(at, raw, "Drained")
        self._api.remove(at)

    def _is_too_much(self, raw: Raw) -> bool:
        """Whether more items are left than the worker was told can be answered by a firm deadline."""
        task = config_of(raw).task
        left = self._script(raw).items - self._committed.get(whose(raw), 0)
        return task is not None and task.items_limit is not None and left > task.items_limit

    def _left(self, raw: Raw) -> float:
        """Seconds of work that no attempt has committed."""
        script = self._script(raw)
        return script.work * (1 - self._committed.get(whose(raw), 0) / script.items)

    def _done(self, raw: Raw) -> int:
        """Items that are done by now."""
        script, since = self._script(raw), self._ready_at.get(raw["metadata"]["uid"])
        before = self._committed.get(whose(raw), 0)
        ran = self._clock.monotonic() - since if since is not None else 0.0
        return min(script.items, before + int(script.items * ran / script.work))

    def _living(self, at: At, uid: str) -> Raw | None:
        raw = self._api.objects.get(at)
        gone = raw is None or raw["metadata"]["uid"] != uid or "deletionTimestamp" in raw["metadata"]
        return None if gone or raw is None or parse_pod(raw).over else raw

    def _status(self, at: At, raw: Raw, **changes: object) -> None:
        self._api.put(at, {**raw, "status": {**raw["status"], **changes}})

    def _script(self, raw: Raw) -> Script:
        return self._scripts.get(whose(raw), Script())

    def _facts(self, raw: Raw) -> ModelFacts:
        script, config = self._script(raw), config_of(raw)
        return ModelFacts(
            digest=config.model.digest or DIGEST,
            provider=config.providers[0],
            load_seconds=script.start,
            warmup_seconds=script.load,
            batch_size=config.batch_size,
            memory_bytes=2**28,
            items_per_second=script.items / script.work,
        )

    def _containers(self, raw: Raw, state: Raw) -> list[Raw]:
        proxies = [{"name": "istio-proxy", "state": {"running": {}}}] if self._script(raw).proxy else []
        return [*proxies, {"name": names.CONTAINER, "state": state}]

    async def telemetry(self, worker: WorkerAddress) -> Telemetry | None:
        """See WorkerClient. A worker's address is its pod's uid."""
        await asyncio.sleep(0.001)
        raw = next((raw for raw in self._api.all("pods").values() if raw["metadata"]["uid"] == worker.address), None)
        since = self._ready_at.get(worker.address)
        if raw is None or since is None or raw["status"]["phase"] != "Running":
            return None
        script = self._script(raw)
        done, before = self._done(raw), self._committed.get(whose(raw), 0)
        task = config_of(raw).task is not None
        warm = self._warm.get(worker.address)
        if script.requests:
            return self._serving(raw, script)
        if warm is not None:
            facts, colocated = self._facts(raw), tuple(warm.colocated)
            return Telemetry(True, False, facts, tasks=warm.open, idle_seconds=warm.idle_seconds, colocated=colocated)
        return Telemetry(
            ready=True,
            draining=False,
            model=self._facts(raw),
            progress=Progress(total=script.items, completed=done, resumed=before) if task else None,
        )

    def _serving(self, raw: Raw, script: Script) -> Telemetry:
        """What a service's worker tells: counts that grow by its load."""
        uid, now = raw["metadata"]["uid"], self._clock.monotonic()
        before, busy, sketch = self._counted.get(uid, (now, 0.0, LatencySketch()))
        share, latency = script.load_at(now)
        if share and (requests := round(_REQUESTS_PER_SECOND * (now - before))):
            sketch.record(latency, weight=requests)
        busy += share * (now - before)
        self._counted[uid] = now, busy, sketch
        tasks = self._warm[uid].open if uid in self._warm else ()
        facts, counts = self._facts(raw), dict(sketch.counts)
        return Telemetry(True, False, facts, sketch=counts, requests_total=sketch.total, busy_seconds=busy, tasks=tasks)

    async def order(self, worker: WorkerAddress, token: str, order: TaskOrder) -> TaskState:
        """See WorkerClient."""
        return self._reached(worker.address, token).order(order)

    async def wait(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        await asyncio.sleep(0.001)
        return await self._reached(worker.address, token).wait(query)

    async def stop(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        await asyncio.sleep(0.001)
        return self._reached(worker.address, token).stop(query)

    def _reached(self, address: str, token: str) -> WarmWorker:
        raw = next((raw for raw in self._api.all("pods").values() if raw["metadata"]["uid"] == address), None)
        warm = self._warm.get(address)
        if raw is None or warm is None or At("nodes", "", raw["spec"].get("nodeName", "")) not in self._api.objects:
            raise WorkerUnreachableError(f"{address} does not answer")
        if hashlib.sha256(token.encode()).hexdigest() != config_of(raw).task_token_digest:
            raise WorkerUnreachableError("401")
        return warm

    def fail(self, job: str) -> None:
        """The workers of a job end by a fault of their own."""
        for at, raw in self._api.all("pods").items():
            if whose(raw) == job and raw["status"].get("phase") == "Running":
                self._finish(at, raw, "WorkerFailed")

    def lose(self, node: str) -> None:
        """A node is gone with all that ran there; its pods are removed a while later, as the control plane does."""
        self._api.remove(At("nodes", "", node))
        for at, raw in self._api.all("pods").items():
            if raw["spec"].get("nodeName") == node:
                if (warm := self._warm.pop(raw["metadata"]["uid"], None)) is not None:
                    warm.vanish()
                self._later(40.0, self._api.remove, at)


def _items_at(outcome: str, script: Script, done: int) -> int:
    """Items that are answered when an attempt ends so."""
    if outcome == "Succeeded":
        return script.items
    if script.resumes:
        return done
    return 0 if outcome == "TooManyItems" else script.items // 2


def config_of(raw: Raw) -> WorkerConfig:
    """What the operator told the worker."""
    (text,) = [entry["value"] for entry in raw["spec"]["containers"][0]["env"] if entry["name"] == CONFIG_VARIABLE]
    return msgspec.json.decode(text, type=WorkerConfig)


def number_of(raw: Raw) -> int:
    """The worker's number."""
    return int(raw["metadata"]["labels"][names.LABEL_ATTEMPT])
