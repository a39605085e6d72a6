"""The slack of services as places: who may have it, what it costs, and what it never does."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.job import Backend
from inference_operator.api.job_status import SlackPlacement
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.slack import Slack
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node
from inference_protocol.messages import ModelSource, Trust
from tests.builders import NOW, a_node, a_request, an_option

WEIGHTS = CostWeights()
SOURCE = ModelSource("m", "1", "file:///m.onnx")
GPU = an_option("gpu", seconds=12, gpu=1)
ONE_GPU = a_node("gpu-1", cpu="4", gpu=1)
TASK = SlackTask("default", SOURCE, Backend.ONNX, 8, (("data", True),))


def a_worker(name: str = "web-1", *, service: str = "web", accelerator: str = "gpu", share: float = 0.25) -> SlackWorker:
    return SlackWorker(Key("default", service), Key("default", name), "gpu-0", accelerator, share)


def a_service(*workers: SlackWorker, name: str = "web", namespace: str = "default", **changes: Any) -> ServiceSlack:
    lent = ServiceSlack(Key(namespace, name), SOURCE, Backend.ONNX, 8, (("data", True), ("models", False)), workers=workers)
    return replace(lent, **changes)


def a_batch(name: str = "batch", *options: Any, task: SlackTask | None = TASK, **more: Any) -> PlacementRequest:
    return replace(a_request(name, *(options or (GPU,)), **more), slack=task)


def decisions(
    *requests: PlacementRequest, services: Sequence[ServiceSlack], nodes: Sequence[Node] = (ONE_GPU,)
) -> dict[str, Decision]:
    found = schedule(Fleet(tuple(nodes), (), requests, slack=tuple(services)), WEIGHTS, NOW)
    return {key.name: found.explained(key) for key in found}


def slack_of(decision: Decision) -> SlackPlacement | None:
    return decision.assignments[0].slack if decision.assignments else None


def only(request: PlacementRequest, *services: ServiceSlack, nodes: Sequence[Node] = (ONE_GPU,)) -> Decision:
    return decisions(request, services=services, nodes=nodes)[request.key.name]


def test_of_two_places_that_are_in_time_slack_is_the_cheaper() -> None:
    decision = only(a_batch(deadline_in=60), a_service(a_worker()))

    assert slack_of(decision) == SlackPlacement(service="web", share=0.25)
    ((given_place, why),) = decision.explained
    assert (given_place.node, given_place.warm_worker) == ("gpu-0", Key("default", "web-1"))
    # Ten seconds of work, with a quarter of the time, a model that is loaded, and the energy of ten seconds.
    assert (why.cost.latency_seconds, why.cost.switch_seconds, why.cost.energy_joules) == (40, 0, 3000)
    assert why.alternatives[0].reason == "takes a device of its own; in the slack of service web it takes none"


def test_where_slack_would_be_late_a_batch_gets_a_worker_of_its_own() -> None:
    decision = only(a_batch(deadline_in=30), a_service(a_worker()))

    assert decision.assignments and slack_of(decision) is None
    ((_, why),) = decision.explained
    assert why.alternatives[0].reason.startswith(
        "slack of service web: would finish at 2026-04-02T12:00:40Z with 25% of its worker's"
    )


def test_work_without_a_deadline_goes_where_it_is_done_sooner() -> None:
    long, short = a_batch("long"), a_batch("short", an_option("gpu", seconds=2.2, gpu=1))

    assert slack_of(only(long, a_service(a_worker()))) is None
    assert slack_of(only(short, a_service(a_worker()))) is not None
    # Rather than to wait for a device that nobody frees.
    assert slack_of(only(long, a_service(a_worker()), nodes=())) is not None


def test_a_worker_is_given_one_batch() -> None:
    batches = [a_batch(f"b{i}", deadline_in=300 + i) for i in range(3)]
    found = decisions(*batches, services=[a_service(a_worker("web-1"), a_worker("web-2"))], nodes=())

    assert [slack_of(found[f"b{i}"]) is not None for i in range(3)] == [True, True, False]
    assert {found[f"b{i}"].assignments[0].warm_worker for i in range(2)} == {Key("default", "web-1"), Key("default", "web-2")}


def test_a_model_that_has_to_be_signed_runs_in_slack_too() -> None:
    """A record with a map in it has no hash, and one batch ended the pass for all."""
    signed = msgspec.structs.replace(SOURCE, trust=Trust(required=True, keys={"release": "PEM"}))
    batch = a_batch(deadline_in=60, task=replace(TASK, source=signed))

    assert slack_of(only(batch, a_service(a_worker(), source=signed))) is not None
    # One that others may have signed is another model.
    assert slack_of(only(batch, a_service(a_worker()))) is None


@pytest.mark.parametrize("firm", [True, False])
def test_an_assumption_puts_nothing_that_has_a_deadline_into_slack(*, firm: bool) -> None:
    guess = an_option("gpu", seconds=3, gpu=1, measured=False)

    assert slack_of(only(a_batch("due", guess, deadline_in=600, firm=firm), a_service(a_worker()))) is None
    assert slack_of(only(a_batch("open", an_option("gpu", seconds=2.2, gpu=1, measured=False)), a_service(a_worker()))) is not None


REFUSED: dict[str, tuple[SlackTask, dict[str, Any], str]] = {
    "claims": (replace(TASK, claims=(("out", True),)), {}, "its workers don't mount out for the batch; add to serve.slack.claims"),
    "a claim that is only read": (replace(TASK, claims=(("models", True),)), {}, "its workers don't mount models for the batch"),
    "batch size": (replace(TASK, batch_size=9), {}, "its workers are warmed for batchSize 8, and the batch has 9"),
    "back end": (replace(TASK, backend=Backend.TRITON), {}, "it computes with onnx, and the batch with triton"),
    "another class": (replace(TASK, accelerator="l4"), {"accelerator": "gpu"}, "its workers are on gpu, and the batch asks for l4"),
    "a class that is not promised": (
        replace(TASK, accelerator="gpu"),
        {},
        "its accelerator is auto, and the batch asks for gpu by name",
    ),
    "barred": (replace(TASK, barred="an attempt of the batch has failed"), {}, "an attempt of the batch has failed"),
    "closed": (TASK, {"closed": "its load is not known yet", "workers": ()}, "its load is not known yet"),
    "taken": (TASK, {"workers": ()}, "each of its workers has a batch already"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_service_that_is_passed_over_is_named_with_the_reason(why: str) -> None:
    task, changes, words = REFUSED[why]
    service = a_service(a_worker(), **changes)
    placed, waiting = (only(a_batch(task=task, deadline_in=60), service, nodes=nodes) for nodes in ((ONE_GPU,), ()))

    assert placed.assignments and slack_of(placed) is None
    told = placed.explained[0][1].alternatives[0].reason
    assert told.startswith(f"slack of service web: {words}")
    assert waiting.pending is not None and told in waiting.pending.message


@pytest.mark.parametrize(
    "service",
    [a_service(a_worker(), namespace="other"), a_service(a_worker(), source=ModelSource("other", "1", "file:///other.onnx"))],
    ids=["of another namespace", "of another model"],
)
def test_nobody_hears_of_a_service_that_does_not_serve_its_model_in_its_namespace(service: ServiceSlack) -> None:
    decision = only(a_batch(deadline_in=60), service)

    assert slack_of(decision) is None
    assert not any("slack" in one.reason for one in decision.explained[0][1].alternatives)


def test_a_class_that_the_batch_does_not_allow_is_no_place() -> None:
    assert slack_of(only(a_batch("b", an_option("cpu", seconds=12), deadline_in=600), a_service(a_worker()))) is None


def test_a_service_asks_for_no_slack() -> None:
    assert slack_of(only(a_batch(task=None), a_service(a_worker()), nodes=())) is None


def test_once_all_slack_is_given_nobody_else_is_asked_about_it() -> None:
    """Ten thousand that wait must not make a pass longer than it is without."""
    slack = Slack([a_service(a_worker("web-1"), a_worker("web-2"))], WEIGHTS)
    assert len(slack.candidates(a_batch(), inf, 1.0)) == 1
    (timelines,) = slack.timelines
    for timeline in timelines.timelines:
        timeline.free = inf
        timelines.moved(timeline)

    assert slack.candidates(a_batch(), inf, 1.0) == []


def test_workers_that_no_batch_can_tell_apart_are_one_way_to_go() -> None:
    many = [a_service(a_worker(f"{name}-1", service=name), name=name) for name in ("a", "b", "c")]

    assert len(Slack(many, WEIGHTS).timelines) == 1
    assert len(Slack([*many, a_service(a_worker("d-1", share=0.5), name="d")], WEIGHTS).timelines) == 2


shares = st.sampled_from([0.1, 0.15, 0.3, 0.5])
services = st.lists(st.lists(shares, min_size=0, max_size=3), max_size=3).map(
    lambda found: tuple(
        a_service(*(a_worker(f"s{i}-{j}", service=f"s{i}", share=share) for j, share in enumerate(each)), name=f"s{i}")
        for i, each in enumerate(found)
    )
)
batches = st.lists(
    st.tuples(st.integers(3, 60), st.booleans(), st.none() | st.integers(-5, 300), st.booleans(), st.floats(0, 0.5)), max_size=8
).map(
    lambda found: tuple(
        a_batch(f"b{i}", _spread(an_option("gpu", seconds=seconds, measured=measured, gpu=1), spread), deadline_in=due, firm=firm)
        for i, (seconds, measured, due, firm, spread) in enumerate(found)
    )
)
fleets = st.builds(
    lambda gpus, requests, lent: Fleet((a_node("gpu-1", cpu="9", gpu=gpus),), (), requests, slack=lent),
    st.integers(0, 2),
    batches,
    services,
)


def _spread(option: Any, spread: float) -> Any:
    known = option.estimate
    return replace(option, estimate=Estimate(known.load_seconds, known.work_seconds, known.measured, spread))


@given(fleets)
def test_no_worker_has_two_batches_and_none_is_given_what_its_service_does_not_lend(fleet: Fleet) -> None:
    lent = {worker.pod: worker for service in fleet.slack for worker in service.workers}
    given_places = [a for decision in schedule(fleet, WEIGHTS, NOW).values() for a in decision.assignments if a.slack is not None]
    pods = [a.warm_worker for a in given_places]

    assert len(pods) == len(set(pods))
    for place in given_places:
        assert place.warm_worker is not None and place.slack is not None
        worker = lent[place.warm_worker]
        assert (worker.service.name, worker.share) == (place.slack.service, place.slack.share)


@given(fleets)
def test_what_has_a_deadline_is_put_into_slack_only_where_a_measurement_says_that_it_is_in_time(fleet: Fleet) -> None:
    found = schedule(fleet, WEIGHTS, NOW)
    for request in fleet.requests:
        for place in found[request.key].assignments:
            late = request.deadline is not None and (
                request.deadline <= NOW or (request.deadline - NOW).total_seconds() < request.least_seconds
            )
            if place.slack is None or request.deadline is None or (late and not request.firm):
                continue
            known = request.options[0].estimate
            cautious = Estimate(0.0, known.work_seconds / place.slack.share, known.measured, known.spread).cautious_seconds
            assert known.measured
            assert NOW + timedelta(seconds=cautious) <= request.deadline + timedelta(milliseconds=1)


@given(fleets, st.integers(0, 10))
def test_the_order_of_the_snapshot_does_not_matter(fleet: Fleet, seed: int) -> None:
    dice = random.Random(seed)
    shuffled = replace(
        fleet,
        requests=tuple(dice.sample(fleet.requests, len(fleet.requests))),
        slack=tuple(
            replace(one, workers=tuple(dice.sample(one.workers, len(one.workers))))
            for one in dice.sample(fleet.slack, len(fleet.slack))
        ),
    )
    before, after = (schedule(each, WEIGHTS, NOW) for each in (fleet, shuffled))

    assert {key: before.explained(key) for key in before} == {key: after.explained(key) for key in after}


@given(fleets)
def test_slack_takes_no_place_from_anybody(fleet: Fleet) -> None:
    """Whatever is lent, at least as many batches have a place as without."""
    without = schedule(replace(fleet, slack=()), WEIGHTS, NOW)
    count = sum(len(decision.assignments) for decision in schedule(fleet, WEIGHTS, NOW).values())

    assert count >= sum(len(decision.assignments) for decision in without.values())
