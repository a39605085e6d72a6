"""Placeholder pods in the store: told from workers and from what only says to be one, and found by their jobs."""

import copy
import json
from typing import Any

import pytest

from inference_operator.api import names
from inference_operator.state.objects import Placeholder, Pod
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.store import Store
from inference_operator.workers.placeholder import create_placeholder
from tests.builders import NOW, SETTINGS, a_job, observed, resolved_of

JOB = a_job(gpu=1)


def raw() -> dict[str, Any]:
    action = create_placeholder(resolved_of(observed(JOB)), "gpu", number=1, settings=SETTINGS, now=NOW)
    found: dict[str, Any] = json.loads(json.dumps(action.manifest))
    found["metadata"] |= {"uid": "uid-of-it", "resourceVersion": "7", "creationTimestamp": "2026-04-02T12:00:00Z"}
    found["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}
    return found


def a_store(*pods: Pod) -> Store:
    store = Store()
    store.put_job(JOB)
    for pod in pods:
        assert store.put_pod(pod)
    return store


def test_a_placeholder_is_no_worker_and_tells_what_kube_scheduler_says() -> None:
    pod = parse_pod(raw())

    assert (pod.placeholder, pod.worker, pod.owner_uid) == (Placeholder(JOB.uid, "gpu"), None, JOB.uid)
    assert pod.problem is not None and pod.problem.message == "no room"


def test_one_that_has_a_node_tells_since_when() -> None:
    bound = raw()
    bound["spec"]["nodeName"] = "gpu-1"
    bound["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-04-02T12:01:00Z"}]
    pod = parse_pod(bound)

    assert pod.node == "gpu-1" and pod.bound_since is not None and pod.bound_since.minute == 1


def test_a_label_alone_makes_no_placeholder() -> None:
    forged = copy.deepcopy(raw())
    del forged["metadata"]["ownerReferences"]

    assert parse_pod(forged).placeholder is None


def test_an_owner_that_is_never_collected_makes_no_placeholder() -> None:
    """The garbage collector doesn't know its group: the pod would stay for ever, and be the oldest that waits."""
    forged = raw()
    forged["metadata"]["ownerReferences"][0]["apiVersion"] = "nobody.example.com/v1"

    assert parse_pod(forged).placeholder is None


@pytest.mark.parametrize("seconds", [None, 30, 10**9])
def test_one_that_need_not_end_at_once_is_no_placeholder(seconds: int | None) -> None:
    """It could run for years, on room that counts as free."""
    forged = raw()
    forged["spec"]["terminationGracePeriodSeconds"] = seconds

    assert parse_pod(forged).placeholder is None


@pytest.mark.parametrize(
    "change",
    [{"namespace": "theirs"}, {"labels": {names.LABEL_PLACEHOLDER: "nobody"}}],
    ids=["another namespace's job", "no job"],
)
def test_one_of_no_job_of_its_namespace_asks_for_no_node_and_takes_its_room(change: dict[str, Any]) -> None:
    forged = raw()
    labels = {**forged["metadata"]["labels"], **change.get("labels", {})}
    forged["metadata"] |= {**change, "labels": labels}
    forged["metadata"]["ownerReferences"][0]["uid"] = labels[names.LABEL_PLACEHOLDER]
    store = a_store(parse_pod(forged))

    assert store.placeholders == ()
    assert [pod.placeholder for pod in store.counted_pods] == [None]


def test_a_job_has_its_placeholders_apart_from_its_workers_until_they_are_gone() -> None:
    pod = parse_pod(raw())
    store = a_store(pod)
    seen = store.observe(JOB.key)

    assert seen is not None and (seen.placeholders, seen.pods) == ((pod,), ())
    assert pod in store.placeholders and store.counted_pods == (pod,)
    store.drop_pod(pod.key, pod.uid)
    assert (*store.placeholders, *store.placeholders_of(JOB.uid)) == ()


def test_an_assumed_one_that_never_appears_is_dropped_and_its_job_looked_at() -> None:
    assumed = create_placeholder(resolved_of(observed(JOB)), "gpu", number=1, settings=SETTINGS, now=NOW).assumed
    store = a_store(assumed)

    assert store.drop_stale_assumptions(NOW.replace(year=2027)) == (JOB.uid,)
    assert store.placeholders == ()


def test_the_names_of_a_jobs_pods_are_apart() -> None:
    made = {create_placeholder(resolved_of(observed(JOB)), "gpu", number=n, settings=SETTINGS, now=NOW).assumed.key for n in (1, 2)}

    assert len(made) == 2 and all(len(key.name) <= 63 for key in made)
