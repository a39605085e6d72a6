"""The simulation with a veto: a learned score says which waiting jobs are kept from `schedule()` for now.

The rule stays in charge: nothing is started that it would not start. A job that is vetoed waits, and is judged anew at every event.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.learned.features import State, rows
from bench.scheduling.simulate import Ours, Simulation
from bench.scheduling.workload import CPUS, GPUS, SimJob
from inference_operator.scheduling.types import Fleet

# Rows in, for each the probability that the job is on time in the optimum.
Score = Callable[[np.ndarray], np.ndarray]
Watch = Callable[[State, "Judged"], None]


@dataclass(frozen=True, slots=True)
class Veto:
    """Jobs that score less than the threshold are held back, while any wait that score more."""

    score: Score
    threshold: float


class Judged(Simulation):
    """One run, with a veto or only watched."""

    def __init__(self, jobs: Sequence[SimJob], veto: Veto | None = None, watch: Watch | None = None) -> None:
        super().__init__(jobs)
        self._veto, self._watch = veto, watch
        self._times = [job.arrival for job in self._arrivals]

    def state(self, now: float) -> State:
        """What the policy sees."""
        ends: dict[str, list[float]] = {"gpu": [], "cpu": []}
        for number, run in self._running.items():
            job = self._jobs[number]
            believed = job.believed_gpu if run.klass == "gpu" else job.believed_cpu
            ends[run.klass].append(run.begun + run.load + run.share * believed)
        waiting = {number: (self._jobs[number], share) for number, share in self._waiting.items()}
        return State(now, waiting, ends, self._times)

    def fleet_at(self, ours: Ours, now: float) -> Fleet:
        """The snapshot that the operator would have."""
        self._now = now
        return super()._fleet(ours)

    def left(self, now: float) -> list[SimJob]:
        """All that is still to be done, as a workload that begins now: for the optimum from here on."""
        found = [_rest(self._jobs[number], share, now) for number, share in self._waiting.items()]
        for number, run in self._running.items():
            job = self._jobs[number]
            really = job.on_gpu if run.klass == "gpu" else job.on_cpu
            found.append(_rest(job, max(run.share - max(0.0, now - run.begun - run.load) / really, 1e-3), now))
        return [*found, *(job for job in self._arrivals if job.arrival > now)]

    def _dispatch_ours(self, ours: Ours, now: float) -> None:
        self._now = now
        if self._watch is not None and self._waiting:
            self._watch(self.state(now), self)
        super()._dispatch_ours(ours, now)

    def _fleet(self, ours: Ours) -> Fleet:
        fleet = super()._fleet(ours)
        if self._veto is None or not self._contended():
            return fleet
        numbers, table = rows(self.state(self._now))
        scores = dict(zip(numbers, self._veto.score(table), strict=True))
        kept = tuple(request for request in fleet.requests if scores[int(request.key.name)] >= self._veto.threshold)
        return replace(fleet, requests=kept) if kept else fleet

    def _contended(self) -> bool:
        free = GPUS + CPUS - len(self._running)
        return len(self._waiting) > max(free, 1)


def _rest(job: SimJob, share: float, now: float) -> SimJob:
    return replace(job, arrival=now, deadline=max(job.deadline, now + 1e-3), on_gpu=job.on_gpu * share, on_cpu=job.on_cpu * share)
