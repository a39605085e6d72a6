"""The slack of services as places for batches: whose workers a batch may have time of, how much, and what that costs.

A batch in slack runs behind every request, so it has no device of its own: what it takes of one is what its runs compute. It is
reckoned with a cautious share of the time that requests leave, and with nothing where that is too little to count on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from inference_operator.accelerators import AUTO
from inference_operator.scheduling.cost import total_cost
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.scheduling.timeline import Candidate, SchedulingUnit, Timeline, Timelines
from inference_operator.scheduling.types import Option, PlacementRequest, mounted
from inference_operator.settings import CostWeights


def serves(service: ServiceSlack, task: SlackTask) -> bool:
    """Return whether a service answers with a batch's model in its namespace. Nobody hears of another namespace's services."""
    return service.service.namespace == task.namespace and service.source == task.source


def refusal(service: ServiceSlack, task: SlackTask) -> str | None:
    """Return why a service that serves a batch's model does not take it, whatever its load; None where it does."""
    if task.barred:
        return task.barred
    if service.backend is not task.backend:
        return f"it computes with {service.backend.value}, and the batch with {task.backend.value}"
    if AUTO not in (task.accelerator, service.accelerator) and task.accelerator != service.accelerator:
        return f"its workers are on {service.accelerator}, and the batch asks for {task.accelerator}"
    if service.accelerator == AUTO != task.accelerator:
        # What may fall back to the CPU does not do for what was promised a device.
        return f"its accelerator is auto, and the batch asks for {task.accelerator} by name"
    if task.batch_size > service.batch_size:
        return f"its workers are warmed for batchSize {service.batch_size}, and the batch has {task.batch_size}"
    mounts = dict(service.mounts)
    lacking = sorted(claim for claim, writes in task.claims if not mounted([(claim, writes)], mounts))
    if lacking:
        return f"its workers don't mount {', '.join(lacking)} for the batch; add to serve.slack.claims"
    return service.closed or None


def in_slack(option: Option, share: float) -> Option:
    """Return the option on a worker that has the model loaded, and this share of its time for the batch.

    The energy is that of the runs: the device is there for others, and draws what it idles with in any case.
    """
    known = option.estimate
    pace = known.items_per_second * share if known.items_per_second is not None else None
    estimate = Estimate(0.0, known.work_seconds / share, known.measured, known.spread, pace)
    return replace(option, estimate=estimate, watts=option.watts * share)


def weight(delay_weight: float, left: float, share: float) -> float:
    """Return what a second counts there. Of work that is in time anyway, it counts for as much as it takes of the device."""
    return delay_weight if left == inf else delay_weight * share


def passed_over(services: Iterable[ServiceSlack], task: SlackTask) -> Iterator[tuple[ServiceSlack, str]]:
    """Yield the services of a batch's model that can't take it now, each with the reason in words."""
    for service in services:
        if serves(service, task):
            why = refusal(service, task)
            if why is None and not service.workers:
                why = "each of its workers has a batch already"
            if why is not None:
                yield service, f"slack of service {service.service.name}: {why}"


@dataclass(frozen=True, slots=True)
class _Alike:
    """Workers of one class with the same share to give, of services that no batch can tell apart. Each takes one batch."""

    service: ServiceSlack
    accelerator: str
    share: float
    timelines: Timelines

    @property
    def open(self) -> bool:
        """Whether one of them is still free in this pass."""
        first = self.timelines.earliest()
        return first is not None and first.free != inf


class Slack:
    """The slack of all services in one pass."""

    def __init__(self, services: Iterable[ServiceSlack], weights: CostWeights) -> None:
        self.services = tuple(sorted(services, key=lambda one: one.service))
        self._weights = weights
        self._alike = _alike(self.services)
        # How many of the alike workers the turns of namespaces are reckoned without.
        self._foreseen: Counter[Timelines] = Counter()
        self._passed: dict[SlackTask, tuple[str, ...]] = {}
        self._takers: dict[SlackTask, tuple[_Alike, ...]] = {}

    @property
    def timelines(self) -> tuple[Timelines, ...]:
        """The workers' time."""
        return tuple(alike.timelines for alike in self._alike)

    def candidates(self, request: PlacementRequest, left: float, delay_weight: float) -> list[Candidate]:
        """Return the ways to do a request's work in what slack is still free. `left` is the seconds to its deadline, if it has one.

        What has a deadline is put there by measurements alone: an assumption that is wrong would make it late. Asked by rank, and
        only for as long as there is any: ten thousand that wait make a pass no longer.
        """
        task = request.slack
        if task is None:
            return []
        found = []
        for alike in self._takers_of(task):
            if not alike.open:
                continue
            for number, option in enumerate(request.options):
                is_sure = option.estimate.measured
                if option.accelerator != alike.accelerator or (left != inf and not is_sure):
                    continue
                if not is_sure or option.estimate.work_seconds / alike.share <= left:
                    there = in_slack(option, alike.share)
                    spent = total_cost(there, self._weights, weight(delay_weight, left, alike.share))
                    found.append(Candidate(alike.timelines, there.estimate.cautious_seconds, spent, is_sure, number))
        return found

    def foreseen(self, request: PlacementRequest, unit: SchedulingUnit) -> bool:
        """Return whether a request's work goes into slack as far as costs tell: then it takes no share of the devices.

        Asked before anything is planned, in the order in which the work of a namespace has its turns. Each worker takes one batch.
        Work without a deadline goes there when devices are gone: there is nothing left to share.
        """
        if request.slack is None or unit.due == inf or all(map(self._is_foreseen, self._takers_of(request.slack))):
            return False
        own = min((candidate.cost for candidate in unit.candidates), default=inf)
        for there in sorted(self.candidates(request, unit.due, unit.delay_weight), key=lambda candidate: candidate.cost):
            if there.cost <= own and self._foreseen[there.timelines] < len(there.timelines.timelines):
                self._foreseen[there.timelines] += 1
                return True
        return False

    def passed_over(self, request: PlacementRequest) -> tuple[str, ...]:
        """Return why the services of a batch's model can't take it now, in words; looked up once for all alike."""
        task = request.slack
        if task is None or not self.services:
            return ()
        found = self._passed.get(task)
        if found is None:
            found = self._passed[task] = tuple(why for _, why in passed_over(self.services, task))
        return found

    def _is_foreseen(self, alike: _Alike) -> bool:
        """Whether each of these workers has its batch."""
        return self._foreseen[alike.timelines] >= len(alike.timelines.timelines)

    def _takers_of(self, task: SlackTask) -> tuple[_Alike, ...]:
        found = self._takers.get(task)
        if found is None:
            mine = (a for a in self._alike if serves(a.service, task) and refusal(a.service, task) is None)
            found = self._takers[task] = tuple(mine)
        return found


def _alike(services: Iterable[ServiceSlack]) -> tuple[_Alike, ...]:
    found: dict[object, tuple[ServiceSlack, list[SlackWorker]]] = {}
    for service in services:
        what = (
            service.service.namespace,
            service.source,
            service.backend,
            service.batch_size,
            service.mounts,
            service.closed,
        )
        for worker in sorted(service.workers, key=lambda one: one.pod):
            key = (*what, service.accelerator, worker.accelerator, worker.share)
            found.setdefault(key, (service, []))[1].append(worker)
    return tuple(
        _Alike(service, workers[0].accelerator, workers[0].share, Timelines([Timeline(slack_worker=one) for one in workers]))
        for service, workers in found.values()
    )
