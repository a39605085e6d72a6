"""A discrete-event simulation of one small fleet. It is a simulation: devices are counters and time is a number.

Both kinds of policy run in it: a peer picks from its queue; ours is the operator's own `schedule()`, given the snapshot that the
operator would have, and taken at its word.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.scheduling.peers import Peer
from bench.scheduling.workload import CPUS, GPUS, SimJob
from inference_operator.decisions.fleet import Fleet, Need, Option, Shape
from inference_operator.decisions.profile import Estimate
from inference_operator.decisions.schedule import schedule
from inference_operator.domain.cluster import Key, Node, Pod, PodPhase
from inference_operator.domain.conditions import Reason
from inference_operator.settings import CostWeights

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_SHAPES = {"gpu": Shape((("gpu", 1),)), "cpu": Shape((("cpu", 1),))}
_NODES = tuple(
    Node(name, "1", {}, (), {name: amount}, ready=True, unschedulable=False) for name, amount in (("gpu", GPUS), ("cpu", CPUS))
)
_WATTS = {"gpu": 300.0, "cpu": 15.0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a workload: the share of jobs that were on time, and the energy that its declared watts come to."""

    on_time: float
    joules: float


class Simulation:
    """One run."""

    def __init__(self, jobs: Sequence[SimJob]) -> None:
        self._jobs = {job.number: job for job in jobs}
        self._arrivals = sorted(jobs, key=lambda job: job.arrival)
        self._waiting: dict[int, SimJob] = {}
        self._running: dict[int, str] = {}
        self._ends: list[tuple[float, int]] = []
        self._met = 0
        self._busy_ticks = {"gpu": 0.0, "cpu": 0.0}

    def run(self, policy: Peer | CostWeights) -> Outcome:
        """Play the workload to its end."""
        arrivals = list(reversed(self._arrivals))
        while arrivals or self._ends or self._waiting:
            upcoming = [job.arrival for job in arrivals[-1:]] + [end for end, _ in self._ends[:1]]
            if not upcoming:
                break
            now = min(upcoming)
            while arrivals and arrivals[-1].arrival <= now:
                job = arrivals.pop()
                self._waiting[job.number] = job
            while self._ends and self._ends[0][0] <= now:
                _, number = heapq.heappop(self._ends)
                del self._running[number]
                self._met += now <= self._jobs[number].deadline
            self._dispatch(policy, now)
        joules = sum(_WATTS[klass] * ticks for klass, ticks in self._busy_ticks.items())
        return Outcome(self._met / len(self._jobs), joules)

    def _dispatch(self, policy: Peer | CostWeights, now: float) -> None:
        if isinstance(policy, Peer):
            self._dispatch_peer(policy, now)
        else:
            self._dispatch_ours(policy, now)

    def _dispatch_peer(self, peer: Peer, now: float) -> None:
        for job in sorted(self._waiting.values(), key=peer.order):
            if peer.sheds and now + min(job.believed_gpu, job.believed_cpu) > job.deadline:
                del self._waiting[job.number]
                continue
            idle = [klass for klass in ("gpu", "cpu") if self._free(klass) > 0]
            if peer.sheds:
                idle = [klass for klass in idle if now + _believed(job, klass) <= job.deadline]
            if idle:
                self._start(job, min(idle, key=lambda klass: _believed(job, klass)), now)

    def _dispatch_ours(self, weights: CostWeights, now: float) -> None:
        pods = tuple(
            Pod(Key("sim", str(n)), str(n), "1", klass, {klass: 1}, PodPhase.RUNNING, deleting=False)
            for n, klass in self._running.items()
        )
        needs = tuple(_need(job) for job in self._waiting.values())
        answers = schedule(Fleet(_NODES, pods, needs), weights, EPOCH + timedelta(seconds=now))
        for key, answer in answers.items():
            job = self._waiting[int(key.name)]
            if answer.assignments:
                self._start(job, answer.assignments[0].accelerator, now)
            elif answer.obstacle is not None and answer.obstacle.reason is Reason.DEADLINE_INFEASIBLE:
                del self._waiting[job.number]

    def _free(self, klass: str) -> int:
        return {"gpu": GPUS, "cpu": CPUS}[klass] - sum(k == klass for k in self._running.values())

    def _start(self, job: SimJob, klass: str, now: float) -> None:
        del self._waiting[job.number]
        time = job.on_gpu if klass == "gpu" else job.on_cpu
        self._running[job.number] = klass
        self._busy_ticks[klass] += time
        heapq.heappush(self._ends, (now + time, job.number))


def _believed(job: SimJob, klass: str) -> float:
    return job.believed_gpu if klass == "gpu" else job.believed_cpu


def _need(job: SimJob) -> Need:
    return Need(
        key=Key("sim", str(job.number)),
        uid=str(job.number),
        revision="",
        slots=1,
        options=tuple(
            Option(klass, _SHAPES[klass], Estimate(0.0, _believed(job, klass), measured=True), _WATTS[klass])
            for klass in ("gpu", "cpu")
        ),
        created=EPOCH + timedelta(seconds=job.arrival),
        priority=0,
        deadline=EPOCH + timedelta(seconds=job.deadline),
        firm=True,
    )
