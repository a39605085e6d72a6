"""The slack of services as places for batches: whose workers a batch may have time of, how much, and what that costs.

A batch in slack runs behind every request, so it has no device of its own: what it takes of one is what its runs compute. It is
reckoned with a cautious share of the time that requests leave, and with nothing where that is too little to count on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from inference_operator.scheduling.cost import total_cost
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.scheduling.timeline import Candidate, Timeline, Timelines
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
    """Workers of one service and class that have the same share to give. Each takes one batch at a time."""

    service: ServiceSlack
    accelerator: str
    share: float
    timelines: Timelines


class Slack:
    """The slack of all services in one pass."""

    def __init__(self, services: Sequence[ServiceSlack], weights: CostWeights) -> None:
        self.services = tuple(sorted(services, key=lambda one: one.service))
        self._weights = weights
        self._alike = list(_alike(self.services))
        self._passed: dict[SlackTask, tuple[str, ...]] = {}
        self._takers: dict[SlackTask, tuple[_Alike, ...]] = {}

    @property
    def timelines(self) -> tuple[Timelines, ...]:
        """The workers' time."""
        return tuple(alike.timelines for alike in self._alike)

    def candidates(self, request: PlacementRequest, left: float, delay_weight: float) -> list[Candidate]:
        """Return the ways to do a request's work in slack. `left` is the seconds to its deadline, endless without one.

        What has a deadline is put there by measurements alone: an assumption that is wrong would make it late.
        """
        task = request.slack
        if task is None or not self._alike:
            return []
        found = []
        for alike in self._takers_of(task):
            for number, option in enumerate(request.options):
                if option.accelerator == alike.accelerator and (option.estimate.measured or left == inf):
                    there = in_slack(option, alike.share)
                    spent = total_cost(there, self._weights, weight(delay_weight, left, alike.share))
                    estimate = there.estimate
                    found.append(Candidate(alike.timelines, estimate.cautious_seconds, spent, estimate.measured, number))
        return found

    def passed_over(self, request: PlacementRequest) -> tuple[str, ...]:
        """Return why the services of a batch's model can't take it now, in words; looked up once for all alike."""
        task = request.slack
        if task is None or not self.services:
            return ()
        found = self._passed.get(task)
        if found is None:
            found = self._passed[task] = tuple(why for _, why in passed_over(self.services, task))
        return found

    def _takers_of(self, task: SlackTask) -> tuple[_Alike, ...]:
        """Looked up once for all alike."""
        found = self._takers.get(task)
        if found is None:
            mine = (a for a in self._alike if serves(a.service, task) and refusal(a.service, task) is None)
            found = self._takers[task] = tuple(mine)
        return found


def _alike(services: Iterable[ServiceSlack]) -> Iterator[_Alike]:
    for service in services:
        found: dict[tuple[str, float], list[SlackWorker]] = {}
        for worker in sorted(service.workers, key=lambda one: one.pod):
            found.setdefault((worker.accelerator, worker.share), []).append(worker)
        for (accelerator, share), workers in found.items():
            yield _Alike(service, accelerator, share, Timelines([Timeline(slack_worker=worker) for worker in workers]))
