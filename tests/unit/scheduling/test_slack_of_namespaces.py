"""The slack of services, where namespaces have caps and share what comes free."""

from dataclasses import replace

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Pod
from inference_operator.state.request import Request
from inference_protocol.messages import ModelSource
from tests.builders import NOW, a_node, a_request, a_worker, an_option

SOURCE = ModelSource("m", "1", "file:///m.onnx")
GPU = an_option("gpu", seconds=12, gpu=1)
LENDER = "lender"


def a_service(workers: int) -> ServiceSlack:
    """A service of the namespace `lender` that lends so many workers."""
    service = Key(LENDER, "web")
    lent = (SlackWorker(service, Key(LENDER, f"web-{number}"), "gpu-0", "gpu", 0.25) for number in range(workers))
    return ServiceSlack(service, SOURCE, Backend.ONNX, 8, (), workers=tuple(lent))


def batches(namespace: str, count: int) -> tuple[PlacementRequest, ...]:
    """Batches that could have slack in their namespace, in the order of their names."""
    task = SlackTask(namespace, SOURCE, Backend.ONNX, 8, ())
    return tuple(
        replace(a_request(f"b{number}", GPU, namespace=namespace, deadline_in=300.0 + number), slack=task)
        for number in range(count)
    )


def decided(
    *requests: PlacementRequest,
    lent: int,
    gpus: int,
    pods: tuple[Pod, ...] = (),
    limits: NamespaceLimits | None = None,
) -> dict[Request, Decision]:
    fleet = Fleet((a_node("node-1", cpu="16", gpu=gpus),), pods, requests, slack=(a_service(lent),))
    return dict(schedule(fleet, CostWeights(), NOW, limits or NamespaceLimits()))


def places(decisions: dict[Request, Decision], *, in_slack: bool) -> list[str]:
    """The namespaces of the batches that have a place, in slack or of their own."""
    given = [(key.namespace, place) for key, decision in decisions.items() for place in decision.assignments]
    return sorted(namespace for namespace, place in given if (place.slack is not None) == in_slack)


@pytest.mark.parametrize("limits", [Limits(max_devices={"gpu": 1}), Limits(max_replicas=1)])
def test_a_cap_on_workers_keeps_no_batch_out_of_slack(limits: Limits) -> None:
    """It takes no device: the service's worker has been counted already."""
    service = a_worker("web-0", namespace=LENDER, option=GPU)
    first, second = batches(LENDER, 2)
    decisions = decided(first, second, lent=1, gpus=4, pods=(service,), limits=NamespaceLimits(overrides={LENDER: limits}))

    assert places(decisions, in_slack=True) == [LENDER]
    assert decisions[first.key].assignments
    waits = decisions[second.key].pending
    assert waits is not None and waits.reason is Reason.NAMESPACE_CAPPED


def test_what_runs_in_slack_takes_no_room_under_a_cap() -> None:
    limits = NamespaceLimits(default=Limits(max_devices={"gpu": 1}))
    decisions = decided(*batches(LENDER, 3), lent=1, gpus=4, limits=limits)

    assert places(decisions, in_slack=True) == [LENDER]
    assert places(decisions, in_slack=False) == [LENDER]


def test_what_runs_in_slack_takes_no_share_of_the_devices() -> None:
    """Lending would cost a namespace the devices that it has a right to."""
    decisions = decided(*batches(LENDER, 4), *batches("other", 4), lent=2, gpus=2)

    assert places(decisions, in_slack=True) == [LENDER, LENDER]
    assert places(decisions, in_slack=False) == [LENDER, "other"]


def test_no_more_work_is_reckoned_without_a_share_than_workers_are_lent() -> None:
    decisions = decided(*batches(LENDER, 8), *batches("other", 8), lent=1, gpus=4)

    assert places(decisions, in_slack=True) == [LENDER]
    assert places(decisions, in_slack=False) == [LENDER, LENDER, "other", "other"]


def test_slack_is_lent_to_no_other_namespace_whatever_its_share() -> None:
    decisions = decided(*batches("other", 2), *batches(LENDER, 1), lent=2, gpus=0)

    assert places(decisions, in_slack=True) == [LENDER]
