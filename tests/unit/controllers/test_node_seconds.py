"""How long nodes take to come, as jobs' statuses tell: by class, of the newest, and the same to a new operator."""

from dataclasses import replace
from datetime import timedelta

from inference_operator.api.job_status import InferenceJobStatus, ProvisioningStatus
from inference_operator.controllers.node_seconds import NodeSeconds
from inference_operator.state.objects import Job
from tests.builders import NOW, a_job


def came_for(name: str, seconds: float | None, *, ago: float = 0.0, accelerator: str = "gpu") -> Job:
    came = ProvisioningStatus(accelerator=accelerator, request_time=NOW - timedelta(seconds=ago), seconds=seconds)
    return a_job(name, uid=f"uid-of-{name}", status=InferenceJobStatus(provisioning=[came]))


def learned(*jobs: Job) -> dict[str, float]:
    found = NodeSeconds()
    for job in jobs:
        found.read(job)
    return dict(found.by_class())


def test_nothing_is_known_before_a_node_came() -> None:
    assert learned(a_job(), came_for("waits", None)) == {}


def test_a_slow_node_counts_little_and_classes_are_apart() -> None:
    gpus = [came_for(f"gpu-{number}", seconds) for number, seconds in enumerate((90.0, 100.0, 800.0))]

    assert learned(*gpus, came_for("other", 20.0, accelerator="npu")) == {"gpu": 100.0, "npu": 20.0}


def test_only_the_newest_count_in_whatever_order_they_are_read() -> None:
    old = [came_for(f"old-{number}", 500.0, ago=1000 + number) for number in range(20)]
    new = [came_for(f"new-{number}", 50.0, ago=number) for number in range(9)]

    assert learned(*old, *new) == learned(*new, *old) == {"gpu": 50.0}


def test_a_status_that_is_read_again_counts_once() -> None:
    job = came_for("a", 10.0)

    assert learned(job, job, job, came_for("b", 30.0)) == {"gpu": 20.0}
    assert learned(job, replace(job, resource_version="2"), came_for("b", 30.0)) == {"gpu": 20.0}
