"""A discrete-event simulation of one small fleet. It is a simulation: devices are counters and time is a number.

Both kinds of policy run in it: a peer picks from its queue; ours is the operator's own `schedule()`, given the snapshot that the
operator would have, and taken at its word, preemptions included. Preempted work keeps what it has done, and pays for
starting again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf

from bench.scheduling.peers import Peer
from bench.scheduling.workload import CPUS, GPUS, SimJob
from inference_operator.api.conditions import Reason
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.requirements import pod_requirements
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet, Option, PlacementRequest, RunningWork
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node, Pod, PodPhase
from inference_operator.state.request import job_request

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_SLOTS = {"gpu": GPUS, "cpu": CPUS}
_SHAPES = {"gpu": pod_requirements((("gpu", 1),)), "cpu": pod_requirements((("cpu", 1),))}
_NODES = tuple(Node(name, "1", {}, (), {name: amount}, ready=True, unschedulable=False) for name, amount in _SLOTS.items())
WATTS = {"gpu": 300.0, "cpu": 15.0}
# What going on after a preemption costs, in ticks.
RESUME_TICKS = 2.0
PREEMPTIONS_PER_JOB = 3


@dataclass(frozen=True, slots=True)
class Ours:
    """The operator's policy: its weights, how far off it knows its estimates to be (sigma of their logarithm), its budget."""

    weights: CostWeights = field(default_factory=CostWeights)
    spread: float = 0.0
    preemptions_per_job: int = PREEMPTIONS_PER_JOB


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a workload: the share of jobs on time, the energy its declared watts come to, and preemptions per job.

    `wasted` is the share of busy time that went into what was not on time; `turnaround` the mean ticks from arrival to end of what
    was; `on_gpu` the share of starts on a GPU.
    """

    on_time: float
    joules: float
    preemptions: float
    wasted: float
    turnaround: float
    on_gpu: float


@dataclass(slots=True)
class _Run:
    """A job at a place: `share` of its work was left when it began, and `load` ticks come before it."""

    klass: str
    begun: float
    load: float
    share: float
    end: float


class Simulation:
    """One run."""

    def __init__(self, jobs: Sequence[SimJob]) -> None:
        self._jobs = {job.number: job for job in jobs}
        self._arrivals = sorted(jobs, key=lambda job: job.arrival)
        # The share of each waiting job's work that is left.
        self._waiting: dict[int, float] = {}
        self._running: dict[int, _Run] = {}
        self._preemptions: dict[int, int] = {}
        self._met = 0
        self._busy_ticks = {"gpu": 0.0, "cpu": 0.0}
        self._wasted_ticks = 0.0
        self._turnaround_ticks = 0.0
        self._starts = {"gpu": 0, "cpu": 0}

    def run(self, policy: Peer | Ours) -> Outcome:
        """Run the workload to its end."""
        arrivals = list(reversed(self._arrivals))
        stops = isinstance(policy, Ours) or policy.stops
        while arrivals or self._running:
            now = min([job.arrival for job in arrivals[-1:]] + [self._next(number, stops=stops) for number in self._running])
            while arrivals and arrivals[-1].arrival <= now:
                self._waiting[arrivals.pop().number] = 1.0
            self._finish(now, stops=stops)
            if isinstance(policy, Peer):
                self._dispatch_peer(policy, now)
            else:
                self._dispatch_ours(policy, now)
        total = sum(self._busy_ticks.values())
        return Outcome(
            self._met / len(self._jobs),
            sum(WATTS[klass] * intervals for klass, intervals in self._busy_ticks.items()),
            sum(self._preemptions.values()) / len(self._jobs),
            self._wasted_ticks / total if total else 0.0,
            self._turnaround_ticks / max(self._met, 1),
            self._starts["gpu"] / max(sum(self._starts.values()), 1),
        )

    def _next(self, number: int, *, stops: bool) -> float:
        """When something happens to a running job: its end, or its deadline."""
        deadline = self._jobs[number].deadline if stops else inf
        return min(self._running[number].end, deadline + 1e-6)

    def _finish(self, now: float, *, stops: bool) -> None:
        for number, run in list(self._running.items()):
            deadline = self._jobs[number].deadline
            if run.end <= now:
                self._leave(number, run, run.end, wasted=run.end > deadline)
                self._met += run.end <= deadline
                self._turnaround_ticks += run.end - self._jobs[number].arrival if run.end <= deadline else 0.0
            elif stops and deadline < now:
                self._leave(number, run, now, wasted=True)

    def _leave(self, number: int, run: _Run, now: float, *, wasted: bool = False) -> None:
        del self._running[number]
        self._busy_ticks[run.klass] += now - run.begun
        if wasted:
            self._wasted_ticks += now - run.begun

    def _dispatch_peer(self, peer: Peer, now: float) -> None:
        for job in sorted((self._jobs[number] for number in self._waiting), key=peer.order):
            if peer.sheds and now + min(job.believed_gpu, job.believed_cpu) > job.deadline:
                del self._waiting[job.number]
                continue
            idle = [klass for klass in _SLOTS if self._free(klass) > 0]
            if peer.sheds:
                idle = [klass for klass in idle if now + _believed(job, klass) <= job.deadline]
            if idle:
                self._start(job, min(idle, key=lambda klass: _believed(job, klass)), now)

    def _dispatch_ours(self, ours: Ours, now: float) -> None:
        # What was preempted leaves at once, so a second look gives its place away.
        for _ in range(2):
            decisions = schedule(self._fleet(ours), ours.weights, _at(now))
            for key, decision in decisions.items():
                number = int(key.name)
                if decision.preemption is not None:
                    self._preempt(number, now)
                elif decision.assignments:
                    self._start(self._jobs[number], decision.assignments[0].accelerator, now)
                elif decision.pending is not None and decision.pending.reason is Reason.DEADLINE_INFEASIBLE:
                    del self._waiting[number]
            if not any(decision.preemption for decision in decisions.values()):
                break

    def _fleet(self, ours: Ours) -> Fleet:
        pods = tuple(
            Pod(Key("sim", str(n)), str(n), "1", run.klass, {run.klass: 1}, PodPhase.RUNNING, deleting=False)
            for n, run in self._running.items()
        )
        requests = tuple(self._request(self._jobs[number], share, ours) for number, share in self._waiting.items())
        return Fleet(_NODES, pods, requests, tuple(self._running_work(number, run, ours) for number, run in self._running.items()))

    def _request(self, job: SimJob, share: float, ours: Ours) -> PlacementRequest:
        return PlacementRequest(
            key=job_request(Key("sim", str(job.number))),
            uid=str(job.number),
            revision="",
            workers=1,
            options=_options(job, share, ours, load=RESUME_TICKS if job.number in self._preemptions else 0.0),
            created=_at(job.arrival),
            deadline=_at(job.deadline),
            firm=True,
        )

    def _running_work(self, number: int, run: _Run, ours: Ours) -> RunningWork:
        job = self._jobs[number]
        return RunningWork(
            key=job_request(Key("sim", str(number))),
            uid=str(number),
            revision="",
            node=run.klass,
            requirements=_SHAPES[run.klass],
            begun=_at(run.begun),
            end=_at(run.begun + run.load + run.share * _believed(job, run.klass)),
            deadline=_at(job.deadline),
            movable=self._preemptions.get(number, 0) < ours.preemptions_per_job,
            leaving_seconds=0.0,
            resuming_seconds=RESUME_TICKS,
        )

    def _preempt(self, number: int, now: float) -> None:
        run, job = self._running[number], self._jobs[number]
        self._leave(number, run, now)
        done = max(0.0, now - run.begun - run.load) / _really(job, run.klass)
        self._waiting[number] = max(run.share - done, 1e-6)
        self._preemptions[number] = self._preemptions.get(number, 0) + 1

    def _free(self, klass: str) -> int:
        return _SLOTS[klass] - sum(run.klass == klass for run in self._running.values())

    def _start(self, job: SimJob, klass: str, now: float) -> None:
        share = self._waiting.pop(job.number)
        load = RESUME_TICKS if job.number in self._preemptions else 0.0
        self._starts[klass] += 1
        self._running[job.number] = _Run(klass, now, load, share, now + load + share * _really(job, klass))


def _at(intervals: float) -> datetime:
    return EPOCH + timedelta(seconds=intervals)


def _believed(job: SimJob, klass: str) -> float:
    return job.believed_gpu if klass == "gpu" else job.believed_cpu


def _really(job: SimJob, klass: str) -> float:
    return job.on_gpu if klass == "gpu" else job.on_cpu


def _options(job: SimJob, share: float, ours: Ours, *, load: float) -> tuple[Option, ...]:
    return tuple(
        Option(
            klass, _SHAPES[klass], Estimate(load, share * _believed(job, klass), measured=True, spread=ours.spread), WATTS[klass]
        )
        for klass in _SLOTS
    )
