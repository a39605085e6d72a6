"""What a pod and an event tell, as the API server shows them."""

import json
from typing import Any

import pytest

from kubectl_inference.snapshot import event_view, pod_view
from tests.unit.client.objects import Raw, at


def a_pod(*, waiting: Raw | None = None, ended: Raw | None = None, **status: Any) -> Raw:
    state = {"waiting": waiting} if waiting else {"terminated": ended} if ended else {"running": {}}
    return {
        "metadata": {"name": "job-1", "creationTimestamp": at(-60), "labels": {"inference.myorg/attempt": "2"}},
        "spec": {"nodeName": "cpu-1"},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "worker", "state": state, "restartCount": 1}], **status},
    }


REPORT = json.dumps({"outcome": "Failed", "reason": "ModelNotFound", "message": "there is no such file"})
UNBOUND = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}


@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        (a_pod(waiting={"reason": "ContainerCreating"}), None),
        (
            a_pod(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
            "container worker: ImagePullBackOff: no such image",
        ),
        (a_pod(ended={"exitCode": 137, "reason": "OOMKilled"}), "container worker: OOMKilled, exit code 137"),
        (
            a_pod(ended={"exitCode": 1, "reason": "Error", "message": REPORT}),
            "container worker: ModelNotFound: there is no such file",
        ),
        (
            a_pod(ended={"exitCode": 2, "reason": "Error", "message": "Traceback\n"}),
            "container worker: Error, exit code 2: Traceback",
        ),
        (a_pod(ended={"exitCode": 0, "reason": "Completed"}), None),
        (a_pod(conditions=[UNBOUND]), "Unschedulable: 0/2 nodes are available"),
        (a_pod(reason="Evicted", message="The node was low on memory"), "Evicted: The node was low on memory"),
    ],
    ids=["starting", "image", "memory", "report", "crash", "done", "unbound", "node"],
)
def test_a_pod_tells_what_is_wrong_with_it(pod: Raw, problem: str | None) -> None:
    view = pod_view(pod)

    assert (view.problem, view.attempt, view.node, view.restarts) == (problem, 2, "cpu-1", 1)


def test_a_pod_that_goes_is_terminating_as_kubectl_says() -> None:
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = at(0)

    assert pod_view(pod).phase == "Terminating"
    assert pod_view({"metadata": {"name": "bare"}}).phase == "Unknown"


def test_an_event_has_its_last_time_and_count() -> None:
    raw = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "job-1"},
        "type": "Warning",
        "reason": "FailedMount",
        "note": "no such claim",
        "eventTime": at(-60),
        "series": {"count": 4, "lastObservedTime": at(-5)},
    }
    view = event_view(raw)
    old = event_view({**raw, "series": None, "eventTime": None, "deprecatedLastTimestamp": at(-9), "deprecatedCount": 2})

    assert (view.about, view.count, view.time and view.time.second) == ("pod/job-1", 4, 55)
    assert (old.count, old.time and old.time.second) == (2, 51)
