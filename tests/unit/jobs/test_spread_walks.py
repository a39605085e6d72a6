"""Walks over random fleets: from any state services come to rest, on no fewer nodes, and none who is wanted is taken away."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from inference_operator.jobs.plan import plan
from inference_operator.jobs.state import ServiceState, job_state
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Node, Pod, PodPhase
from inference_operator.state.observed import Observed
from inference_operator.state.topology import ZONE_LABEL
from inference_operator.workers.actions import Action, CreatePod, DeletePod
from inference_operator.workers.options import planned_node
from tests.builders import NOW, SETTINGS, TOKENS, a_job, a_node, a_pod, observed
from tests.unit.scheduling.support import after

# Two of them are longer than it takes until a service is spread again.
STEP_SECONDS = 200.0


class Walk:
    """Some services on some nodes, and what the operator does about them."""

    def __init__(self, nodes: list[Node], services: list[Observed]) -> None:
        self.nodes, self.services = nodes, services
        self.now = NOW
        self.created = 0

    def step(self) -> None:
        """What had begun is done, and each service is looked at once."""
        self.services = [
            replace(seen, pods=tuple(self._answering(pod) for pod in seen.pods if not pod.deleting)) for seen in self.services
        ]
        states = [job_state(seen, SETTINGS, self.now) for seen in self.services]
        requests = tuple(state.request for state in states if state.request is not None)
        pods = tuple(pod for seen in self.services for pod in seen.pods)
        decided = schedule(Fleet(tuple(self.nodes), pods, requests), CostWeights(), self.now)
        looked = list[Observed]()
        for seen, state in zip(self.services, states, strict=True):
            assert isinstance(state, ServiceState)
            decision = decided.explained(state.request.key) if state.request is not None else None
            done = plan(seen, state, decision, SETTINGS, TOKENS, self.now)
            self.created += sum(isinstance(action, CreatePod) for action in done.actions)
            judge(seen.pods, done.actions, state.replicas.wanted)
            looked.append(after(seen, done, now=self.now))
        self.services = looked
        self.now += timedelta(seconds=STEP_SECONDS)

    def _answering(self, pod: Pod) -> Pod:
        started = pod.started or self.now
        return replace(pod, node=planned_node(pod), phase=PodPhase.RUNNING, ready=True, address="10.0.0.1", started=started)


def judge(pods: tuple[Pod, ...], actions: tuple[Action, ...], wanted: int) -> None:
    """All pods answer. What goes leaves those that are wanted, on as many nodes, and no node has more of them."""
    gone = {action.uid for action in actions if isinstance(action, DeletePod)}
    before, left = Counter(map(planned_node, pods)), Counter(planned_node(pod) for pod in pods if pod.uid not in gone)
    assert not gone or left.total() >= wanted
    assert len(left) >= min(wanted, len(before))
    if len(before) > 1:
        assert max(left.values()) <= max(before.values())


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    names = [f"n{number}" for number in range(draw(st.integers(2, 5)))]
    zones = [{ZONE_LABEL: draw(st.sampled_from("xy"))} for _ in names]
    nodes = [a_node(name, cpu=str(draw(st.sampled_from([0, 1, 4]))), labels=zone) for name, zone in zip(names, zones, strict=True)]
    services = []
    for service in range(draw(st.integers(1, 3))):
        wanted = draw(st.integers(1, 4))
        job = a_job(f"s{service}", serve=True, replicas=wanted)
        anywhere = st.lists(st.tuples(st.sampled_from(names), st.sampled_from([8.0, 1000.0])), max_size=5)
        places = draw(st.just([(names[0], 1000.0)] * wanted) | anywhere)
        pods = [
            a_pod(job, number, node=node, created_ago=ago, uid=f"{service}-{number}")
            for number, (node, ago) in enumerate(places, 1)
        ]
        services.append(observed(job, *pods))
    return Walk(nodes, services)


@settings(max_examples=40, deadline=None)
@given(walks())
def test_services_come_to_rest_wherever_their_workers_were(walk: Walk) -> None:
    wanted = sum(seen.job.spec.replicas for seen in walk.services if seen.job.spec is not None)
    for _ in range(12):
        walk.step()
    created = walk.created
    assert created <= 2 * wanted
    for _ in range(12):
        walk.step()

    assert walk.created == created
