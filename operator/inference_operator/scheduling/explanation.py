"""Why this place and not another, in words: made when somebody asks, which is once for each worker that is really created."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import NamedTuple

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift, whole_second
from inference_operator.api.job_status import Alternative
from inference_operator.api.schema import rfc3339
from inference_operator.scheduling import cost, filters, slack
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.new_nodes import NewNodes
from inference_operator.scheduling.node_capacity import NodeCapacity, NodeInfo
from inference_operator.scheduling.slack_types import ServiceSlack, SlackWorker
from inference_operator.scheduling.types import (
    Assignment,
    Explanation,
    Option,
    PendingReason,
    PlacementRequest,
    Preemption,
    RunningWork,
)
from inference_operator.settings import CostWeights
from inference_operator.state.request import Request

_ALTERNATIVES = 4
_SLACK_ALTERNATIVES = 2
# The API's own limit; a volume's affinity may name any number of nodes.
_REASON_LIMIT = 512


class Chosen(NamedTuple):
    """What one assignment was made of. `node_info` is None where a worker takes it that is there already.

    `service` is the one in whose slack it is.
    """

    request: PlacementRequest
    option: Option
    node_info: NodeInfo | None
    delay_weight: float
    service: str | None = None

    @property
    def assignment(self) -> Assignment:
        """The place that a new worker gets by it."""
        assert self.node_info is not None
        return Assignment(self.option.accelerator, self.node_info.node.name)


def explain(
    chosen: Chosen,
    capacity: NodeCapacity,
    services: Sequence[ServiceSlack],
    new_nodes: NewNodes,
    weights: CostWeights,
    now: datetime,
) -> Explanation:
    """Why one assignment, over the node capacity as its pass has left it.

    The slack of services comes first, then new nodes, then the other classes.
    """
    terms = cost.cost_terms(chosen.option, weights, chosen.delay_weight)
    found = [
        *_slack_alternatives(chosen, services, weights, now),
        *_new_nodes(chosen, new_nodes, now),
        *_alternatives(chosen, capacity, weights, now),
    ]
    return Explanation(terms, tuple(found[:_ALTERNATIVES]))


def _new_nodes(chosen: Chosen, new_nodes: NewNodes, now: datetime) -> Iterator[Alternative]:
    """Why no new node of another class was waited for."""
    request = chosen.request
    for option in request.options:
        if option is chosen.option or (group := new_nodes.group(request, option)) is None:
            continue
        done = shift(now, group.seconds + option.estimate.total_seconds)
        late = request.deadline is not None and done > request.deadline
        why = f"would finish at {rfc3339(done)}, after the deadline" if late else "costs more with the wait for the node"
        yield Alternative(accelerator=option.accelerator, reason=f"{new_nodes.described(option.accelerator)}: {why}")


def _slack_alternatives(
    chosen: Chosen, services: Sequence[ServiceSlack], weights: CostWeights, now: datetime
) -> Iterator[Alternative]:
    """Why no service of the batch's model runs it: a few, since nodes are to be told of too."""
    request = chosen.request
    if chosen.service is not None or request.slack is None:
        return
    of_model = [service for service in services if slack.serves(service, request.slack)]
    passed = {service.service: why for service, why in slack.passed_over(of_model, request.slack)}
    for service in of_model[:_SLACK_ALTERNATIVES]:
        if (why := passed.get(service.service)) is not None:
            accelerator = min((one.accelerator for one in service.workers), default=chosen.option.accelerator)
            yield Alternative(accelerator=accelerator, reason=why[:_REASON_LIMIT])
            continue
        for worker, option in _slack_options(service, request):
            reason = f"slack of service {service.service.name}: {_why_no_slack(option, worker, chosen, weights, now)}"
            yield Alternative(accelerator=option.accelerator, node=worker.node, reason=reason[:_REASON_LIMIT])


def _slack_options(service: ServiceSlack, request: PlacementRequest) -> Iterator[tuple[SlackWorker, Option]]:
    """The best worker of each class, with what the request would be there."""
    for option in request.options:
        of_class = [one for one in service.workers if one.accelerator == option.accelerator]
        if of_class:
            worker = max(of_class, key=lambda one: (one.share, one.pod))
            yield worker, slack.in_slack(option, worker.share)


def _why_no_slack(option: Option, worker: SlackWorker, chosen: Chosen, weights: CostWeights, now: datetime) -> str:
    deadline = chosen.request.deadline
    share = f"with {worker.share:.0%} of its worker's time"
    if deadline is not None and not option.estimate.measured:
        return "how long the batch takes is not measured, or its items are not counted, and it has a deadline"
    if not cost.in_time(option, deadline, now):
        return f"would finish at {rfc3339(cost.completion(option, now))} {share}, after the deadline"
    more = cost.total_cost(option, weights, chosen.delay_weight) - cost.total_cost(chosen.option, weights, chosen.delay_weight)
    return f"costs {more:.3g} s more {share}" if more >= 0 else "was given to work that goes first"


def _alternatives(chosen: Chosen, capacity: NodeCapacity, weights: CostWeights, now: datetime) -> list[Alternative]:
    """The places not taken: what could have run before what could not."""
    found: list[Alternative] = []
    for option in sorted(chosen.request.options, key=lambda o: o is chosen.option):
        terms = cost.cost_terms(option, weights, chosen.delay_weight)
        for info in capacity.fit(option.requirements)[: _ALTERNATIVES + 1]:
            if option is chosen.option and info is chosen.node_info:
                continue
            reason = filters.full(info.node, info.free, option.requirements)
            reason = reason or _why_not(option, info, chosen, weights, now)
            found.append(Alternative(accelerator=option.accelerator, node=info.node.name, reason=reason, cost=terms))
        for node, reason in capacity.unfit(option.requirements)[:_ALTERNATIVES]:
            found.append(Alternative(accelerator=option.accelerator, node=node, reason=reason[:_REASON_LIMIT]))
        if len(found) >= _ALTERNATIVES:
            break
    return found[:_ALTERNATIVES]


def _why_not(option: Option, info: NodeInfo, chosen: Chosen, weights: CostWeights, now: datetime) -> str:
    taken, deadline = chosen.option, chosen.request.deadline
    if option is taken:
        usage = info.usage
        if usage.unmanaged_usage and usage.resource in option.requirements.wants:
            return f"has {usage.unmanaged_usage:g} {usage.resource} in use outside Kubernetes"
        if info.node.name in chosen.request.failed_on:
            return "the last worker failed there"
        if info.node.name in chosen.request.beside:
            return "has a worker of this service already"
        return "costs the same, and is no emptier than the chosen node"
    if deadline is not None and not cost.in_time(option, deadline, now):
        return f"would finish at {rfc3339(cost.completion(option, now))}, after the deadline"
    if chosen.service is not None:
        return f"takes a device of its own; in the slack of service {chosen.service} it takes none"
    if deadline is not None and option.watts > taken.watts:
        return f"draws {option.watts:g} W; {taken.accelerator} is on time too, and draws {taken.watts:g} W"
    more = cost.total_cost(option, weights, chosen.delay_weight) - cost.total_cost(taken, weights, chosen.delay_weight)
    return f"costs {more:.3g} s more" if more >= 0 else f"costs {-more:.3g} s less, but is reserved for work that goes first"


def infeasible(request: PlacementRequest, now: datetime, soonest: tuple[float, Option] | None = None) -> PendingReason:
    """The deadline can't be met: by how much, and the earliest one that could.

    `soonest` is in how many seconds it could start, and on which class, where that takes a new node.
    """
    assert request.deadline is not None
    opens, quickest = soonest or (0.0, min(request.options, key=lambda o: o.estimate.total_seconds))
    earliest = cost.completion(quickest, shift(now, opens))
    start = f"now on {quickest.accelerator}"
    if opens:
        start = f"on a new node of class {quickest.accelerator}, which takes some {ceil(opens)} s"
    if request.deadline <= now:
        text = f"the deadline {rfc3339(request.deadline)} has passed"
    else:
        text = (
            f"even if it starts {start}, the work finishes at {rfc3339(earliest)}, "
            f"{ceil((earliest - request.deadline).total_seconds())} s after the deadline{_pace(quickest.estimate)}"
        )
    cure = f"set deadline to {rfc3339(whole_second(earliest))} or later, or set deadlinePolicy to Soft to run late"
    return PendingReason(Reason.DEADLINE_INFEASIBLE, f"{text}; {cure}", final=True, possible=earliest)


def _pace(expected: Estimate) -> str:
    """What the time of the work was reckoned from; nothing where no items were."""
    if not (expected.measured and expected.items_per_second and expected.work_seconds):
        return ""
    items = round(expected.work_seconds * expected.items_per_second)
    # Three digits of a slow model, and all of a quick one: 1.05e+05 is no figure for people.
    speed = expected.items_per_second
    return f", with {items} items at {f'{speed:.3g}' if speed < 1000 else round(speed)} a second"


def preemption(running_work: RunningWork, beneficiary: Request) -> Preemption:
    """Why running work has to leave."""
    own = "" if running_work.deadline is None else f", with time left until its own deadline {rfc3339(running_work.deadline)}"
    cause = f"makes room on {running_work.node} for {beneficiary}, which can't be on time otherwise"
    return Preemption(beneficiary, f"{cause}; continues after the last committed chunk{own}")
