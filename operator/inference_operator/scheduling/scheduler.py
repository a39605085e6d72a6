"""Decide fleet-wide which placement requests get which places now, and which running work makes room for them.

Priority bands first; inside a band namespaces by fair share, and the work of each by deadline, as far as it can be on time
(`ranking`). Late work comes after all of it, so that it never makes anything else late. Work that can't be on time is shed before
it touches a device, and what a namespace's cap holds back is not planned (`caps`). `timeline` schedules all known work ahead and
says what starts now and on which class: the cheapest of those that meet the deadline, where a second that is early counts for
little. `node_capacity` gives what starts now a node, beside the room that `backfill` keeps for large work.

Pure and deterministic: one snapshot, one schedule. All requests with the same requirements share one look at the nodes, and
explanations are made when a worker is created, so that a job that waits costs next to nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf

from inference_operator.api.job_status import SlackPlacement
from inference_operator.namespace_limits import NamespaceLimits
from inference_operator.scheduling import cost, explanation
from inference_operator.scheduling.ahead import schedule_ahead
from inference_operator.scheduling.caps import Cap, Caps, in_the_way
from inference_operator.scheduling.new_nodes import NewNodes
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.pending import PendingReasons
from inference_operator.scheduling.ranking import Asked, bands_of, in_turn, late_by, namespaces_given, namespaces_of, seconds_left
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.room import Room
from inference_operator.scheduling.running import running_unit
from inference_operator.scheduling.schedule import Schedule
from inference_operator.scheduling.shares import Shares
from inference_operator.scheduling.slack import Slack, in_slack, weight
from inference_operator.scheduling.slack_types import SlackWorker
from inference_operator.scheduling.spreading import spread
from inference_operator.scheduling.timeline import Candidate, SchedulingUnit, Timelines
from inference_operator.scheduling.types import (
    Assignment,
    Decision,
    Fleet,
    Option,
    PlacementRequest,
    WarmWorker,
)
from inference_operator.scheduling.warm_workers import WarmPlaces, has_model, warmed
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key
from inference_operator.state.request import Request

# What is planned to start within this time starts now.
_NOW_SECONDS = 1e-3
# A warm worker is given its next tasks before it has done the last, so that it never waits for us; this much ahead, and so many.
_AHEAD_SECONDS = 0.25
_AHEAD_TASKS = 16
_NO_LIMITS = NamespaceLimits()


def schedule(fleet: Fleet, weights: CostWeights, now: datetime, limits: NamespaceLimits = _NO_LIMITS) -> Schedule:
    """Decide every placement request, and which running work has to make room."""
    run = _Pass(fleet, weights, now, limits)
    found = run.schedule()
    run.forget()
    return found


class _Pass:
    """One pass over the fleet: the node capacity that is used up, and the plan of what starts when."""

    def __init__(self, fleet: Fleet, weights: CostWeights, now: datetime, limits: NamespaceLimits) -> None:
        self._capacity = NodeCapacity(fleet.nodes, fleet.pods, fleet.usage)
        self._weights = weights
        self._now = now
        running = sorted(fleet.running, key=lambda running_work: running_work.key)
        bands, namespaces = bands_of(fleet), namespaces_of(fleet)
        self._caps = Caps(limits, fleet.nodes, fleet.pods, fleet.preemptions)
        # A namespace alone shares with nobody.
        self._shares = Shares(limits, fleet.nodes, fleet.pods, namespaces) if len(namespaces) > 1 else None
        self._running_units = [
            (running_work, running_unit(running_work, bands[False, -running_work.priority], self._shares, now))
            for running_work in running
        ]
        self._new_nodes = NewNodes(fleet.node_groups, self._capacity)
        self._room = Room(self._capacity, self._running_units)
        self._slack = Slack(fleet.slack, weights)
        self._waiting = PendingReasons(self._capacity, self._caps, fleet.warm_workers, self._slack, self._new_nodes, now)
        # What services want only to be spread needs no plan: it takes what is left.
        self._spreading = [request for request in fleet.requests if request.spreads]
        requests = [request for request in fleet.requests if not request.spreads] if self._spreading else fleet.requests
        self._wanted = sum([request.workers for request in requests])
        self._timelines: dict[PodRequirements, Timelines] = {}
        self._warm = WarmPlaces(fleet.warm_workers)
        self._given: Counter[Key] = Counter(
            {warm_worker.pod: warm_worker.tasks for warm_worker in fleet.warm_workers if warm_worker.pod is not None}
        )
        # What explanations are made of, should anybody ask for them.
        self._chosen: dict[Request, list[explanation.Chosen]] = {}
        self._asked = self._ranked(requests, bands)
        self._turns = in_turn(self._asked, self._shares, self._fits, self._slack.foreseen)
        self._plan()

    # the plan

    def _fits(self, requirements: PodRequirements) -> bool:
        return bool(self._capacity.fit(requirements)) or self._new_nodes.fit(requirements)

    def _ranked(self, requests: Iterable[PlacementRequest], bands: Mapping[tuple[bool, int], int]) -> list[Asked]:
        """On time before late, high priority before low, early deadlines before late ones, old before new.

        All that the plan wants to know of a request is read here, in the order in which requests lie in memory: by rank they
        lie all over it, and ten thousand of them are more than a cache holds.
        """
        found: list[tuple[float, datetime, Request, Asked]] = []
        for request in requests:
            left = seconds_left(request, self._now)
            late = late_by(request, left) or self._new_nodes.is_late(request, left)
            asked = Asked(request, late, inf if late else left, bands[late, -request.priority])
            if not (request.firm and late):
                asked.units = self._units(request, asked.left, asked.band)
            found.append((left, request.created, request.key, asked))
        found.sort()
        # Two plain sorts take half as long as one by all.
        return sorted([one[3] for one in found], key=lambda asked: asked.band)

    def _units(self, request: PlacementRequest, left: float, band: int) -> list[SchedulingUnit]:
        timed, namespace = left != inf, request.key.key.namespace
        delay_weight = self._weights.early if timed else 1.0
        candidates = (
            self._warm_candidates(request, delay_weight) if request.pool is not None or request.colocated is not None else []
        )
        # Without a deadline a job waits for the pool; with one it may have a worker of its own to be in time.
        if request.pool is None or timed:
            for number, option in enumerate(request.options):
                caps = self._caps.of(namespace, option.accelerator)
                if caps and in_the_way(caps) is not None:
                    continue
                timelines = self._timelines.get(option.requirements)
                if timelines is None:
                    timelines = self._timelines[option.requirements] = self._room.timelines(option.requirements, self._wanted)
                candidates.append(self._candidate(timelines, option, number, delay_weight, caps))
                if (new := self._new_nodes.of(request, option, self._wanted)) is not None:
                    candidates.append(self._candidate(new, option, number, delay_weight, caps))
        budget = self._caps.budget(namespace)
        return [
            SchedulingUnit(request.key, left, band, candidates, request.holds, delay_weight, namespace=namespace, budget=budget)
            for _ in range(request.workers)
        ]

    def _candidate(
        self, timelines: Timelines, option: Option, number: int, delay_weight: float, caps: tuple[Cap, ...] = ()
    ) -> Candidate:
        estimate, total = option.estimate, cost.total_cost(option, self._weights, delay_weight)
        # Having a node come is a switch too, so that what is there already goes first where it is as good.
        total += self._weights.beta * timelines.opens
        return Candidate(timelines, estimate.cautious_seconds, total, estimate.measured, number, caps)

    def _plan(self) -> None:
        # What a cap holds back needs no room.
        in_order = sorted(self._asked, key=lambda asked: asked.rank) if self._shares is not None else self._asked
        free = (asked for asked in in_order if not asked.late and not self._caps.hold_back(asked.request))
        self._room.reserve(((asked.rank, asked.request, asked.left) for asked in free), self._timelines)
        owners = [turn.asked.request for turn in self._turns] if self._slack.timelines else []
        schedule_ahead(
            [turn.unit for turn in self._turns],
            self._all_timelines(),
            (lambda unit: self._slack.candidates(owners[unit.number], unit.due, unit.delay_weight)) if owners else None,
        )

    def _all_timelines(self) -> tuple[Timelines, ...]:
        of_workers = [warm.timelines for warm in self._warm.all]
        return (*self._timelines.values(), *self._new_nodes.timelines, *of_workers, *self._slack.timelines)

    def _warm_candidates(self, request: PlacementRequest, delay_weight: float) -> list[Candidate]:
        found = []
        for warm in self._warm.open_to(request.pool, request.colocated):
            for number, option in enumerate(request.options):
                if option.accelerator == warm.accelerator:
                    there = warmed(option) if has_model(warm, request) else option
                    found.append(self._candidate(warm.timelines, there, number, delay_weight))
        return found

    # answers

    def schedule(self) -> Schedule:
        """A decision for each request, and for each running work that is to leave."""
        self._assign_in_turn()
        found: dict[Request, Decision] = {}
        waiting: list[tuple[float, int, Asked, SchedulingUnit]] = []
        for asked in self._asked:
            request = asked.request
            if request.firm and asked.late:
                reason = explanation.infeasible(request, self._now, self._new_nodes.soonest(request))
                found[request.key] = Decision(request.uid, request.revision, pending=reason)
            elif asked.waiting is None:
                found[request.key] = Decision(request.uid, request.revision, asked.given)
            else:
                waiting.append((asked.waiting.start, asked.rank, asked, asked.waiting))
        waiting.sort()
        position = 1
        competing = Counter([band for band, _ in {(asked.band, unit.namespace) for _, _, asked, unit in waiting}])
        given = namespaces_given(self._asked)
        for _, _, asked, unit in waiting:
            request = asked.request
            shares = self._shares if competing[asked.band] > 1 else None
            passed = any(given[asked.band, option.accelerator] - {unit.namespace} for option in request.options)
            pending = self._waiting.pending(request, unit, asked.left, position, shares, passed=passed)
            position += pending.position is not None
            found[request.key] = Decision(request.uid, request.revision, asked.given, pending, new_nodes=asked.new_nodes)
        for request in self._spreading:
            assignments: tuple[Assignment, ...] = ()
            if (chosen := spread(request, self._room, self._caps, self._weights, rank=len(self._asked))) is not None:
                self._note(chosen)
                assignments = (chosen.assignment,)
            found[request.key] = Decision(request.uid, request.revision, assignments)
        for running_work, leaving in self._running_units:
            if leaving.preempted_for is not None:
                cause = explanation.preemption(running_work, leaving.preempted_for.key)
                found[running_work.key] = Decision(running_work.uid, running_work.revision, preemption=cause)
        return Schedule(found, self._chosen, self._capacity, self._slack.services, self._new_nodes, self._weights, self._now)

    def forget(self) -> None:
        """Undo the references in circles: ten thousand units would stay until the collector comes, which is rare."""
        for timelines in self._all_timelines():
            timelines.forget()

    def _assign_in_turn(self) -> None:
        """Places for what starts now; of each request until the first worker that does not. The others may need new nodes."""
        for asked, unit in self._turns:
            if (accelerator := self._new_nodes.ask(unit)) is not None:
                asked.new_nodes = (*asked.new_nodes, accelerator)
            if asked.waiting is not None:
                continue
            assignment = self._assign(asked.request, asked.rank, unit, asked.given)
            if assignment is None:
                asked.waiting = unit
            else:
                asked.given = (*asked.given, assignment)

    def _assign(self, request: PlacementRequest, rank: int, unit: SchedulingUnit, given: Sequence[Assignment]) -> Assignment | None:
        """A node for what starts now, taken off the node capacity; None when it starts later, or the room is gone after all."""
        if unit.candidate is None or unit.timeline is None:
            return None
        if unit.timeline.warm_worker is not None:
            return self._hand_over(request, unit, unit.timeline.warm_worker)
        if unit.timeline.slack_worker is not None:
            return self._lend(request, unit, unit.timeline.slack_worker)
        if unit.start > _NOW_SECONDS:
            return None
        beside = (*request.beside, *[one.node for one in given]) if request.holds else ()
        assignment = self._take(request, rank, unit, unit.candidate, beside)
        if assignment is not None or len(unit.candidates) == 1:
            return assignment
        # Other workers have taken what the timeline promised. Another class may have room, and be in time too.
        for candidate in sorted(unit.candidates, key=lambda c: c.cost):
            if not candidate.timelines.shared and (not candidate.sure or candidate.seconds <= unit.due):
                assignment = self._take(request, rank, unit, candidate, beside)
                if assignment is not None:
                    return assignment
        return None

    def _take(
        self, request: PlacementRequest, rank: int, unit: SchedulingUnit, candidate: Candidate, beside: Sequence[str]
    ) -> Assignment | None:
        option = request.options[candidate.number]
        seconds = inf if request.holds else candidate.seconds
        node_info = self._room.take(option.requirements, seconds, rank, beside, caps=candidate.caps, failed_on=request.failed_on)
        if node_info is None:
            return None
        chosen = explanation.Chosen(request, option, node_info, unit.delay_weight)
        self._note(chosen)
        return chosen.assignment

    def _hand_over(self, request: PlacementRequest, unit: SchedulingUnit, warm_worker: WarmWorker) -> Assignment | None:
        """A warm worker that is free, or will be in a moment."""
        assert unit.candidate is not None
        if (
            not warm_worker.ready
            or warm_worker.pod is None
            or unit.start > _AHEAD_SECONDS
            or self._given[warm_worker.pod] >= _AHEAD_TASKS
        ):
            return None
        self._given[warm_worker.pod] += 1
        option = request.options[unit.candidate.number]
        there = warmed(option) if has_model(warm_worker, request) else option
        self._note(explanation.Chosen(request, there, None, unit.delay_weight))
        return Assignment(option.accelerator, warm_worker.node, warm_worker.pod)

    def _lend(self, request: PlacementRequest, unit: SchedulingUnit, worker: SlackWorker) -> Assignment:
        """A service's worker that has no other batch."""
        assert unit.candidate is not None
        option, service = in_slack(request.options[unit.candidate.number], worker.share), worker.service.name
        counts = weight(unit.delay_weight, unit.due, worker.share)
        self._note(explanation.Chosen(request, option, None, counts, service))
        return Assignment(option.accelerator, worker.node, worker.pod, SlackPlacement(service=service, share=worker.share))

    def _note(self, chosen: explanation.Chosen) -> None:
        self._chosen.setdefault(chosen.request.key, []).append(chosen)
