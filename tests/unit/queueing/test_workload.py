"""What a Workload asks for, and what the operator writes into one."""

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.resources import Resources
from inference_operator.api.template import PodTemplate, Toleration
from inference_operator.queueing import workload as workloads
from inference_operator.queueing.admission import Admitted, Waiting
from inference_operator.queueing.nodes import narrowed
from inference_operator.state.kueue import parse_flavor, parse_priority_class, parse_workload
from inference_operator.state.objects import Job
from inference_operator.workers.actions import PatchWorkload
from inference_operator.workers.resolve import ResolvedJob
from tests.builders import GPU, NOW, a_job, observed, resolved_of
from tests.kueues import QUEUED, SINCE, a_workload, admitted, evicted, kueue, patched, says, waiting

NOW_TEXT = "2026-04-02T12:00:00Z"


def resolved(job: Job) -> ResolvedJob:
    return resolved_of(observed(job, kueue=kueue()), QUEUED)


def manifest(job: Job, classes: dict[str, int] | None = None, own: int = 0) -> dict[str, Any]:
    return workloads.create_workload(resolved(job), QUEUED, classes or {}, own).manifest


def conditions(action: PatchWorkload | None) -> dict[str, tuple[str, str, str]]:
    assert action is not None
    return {one["type"]: (one["status"], one["reason"], one["lastTransitionTime"]) for one in action.body["status"]["conditions"]}


# What it asks for.


def test_it_asks_for_what_the_worker_would() -> None:
    made = manifest(a_job(gpu=1, queue_name="team", node_selector={"zone": "a"}, tolerations=[Toleration(key="spot")]))
    (pod_set,) = made["spec"]["podSets"]
    pod = pod_set["template"]["spec"]

    assert (made["apiVersion"], made["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")
    assert made["spec"]["queueName"] == "team"
    assert (pod_set["name"], pod_set["count"]) == ("worker", 1)
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": str(2**30), GPU: "1"}
    assert pod["nodeSelector"] == {"zone": "a"}
    assert [one["key"] for one in pod["tolerations"]] == [GPU, "spot"]


def test_it_belongs_to_its_job() -> None:
    job = a_job(queue_name="team")
    found = parse_workload({**manifest(job), "metadata": {**manifest(job)["metadata"], "uid": "u"}})

    assert found is not None
    assert found.job_uid == job.uid
    (owner,) = manifest(job)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("InferenceJob", job.uid, True)


def test_one_job_has_one_name_and_another_of_its_name_another() -> None:
    name = manifest(a_job(queue_name="team"))["metadata"]["name"]

    assert name == manifest(a_job(queue_name="other"))["metadata"]["name"]
    assert name != manifest(a_job(uid="next", queue_name="team"))["metadata"]["name"]
    assert len(manifest(a_job("j" * 253, queue_name="team"))["metadata"]["name"]) <= 63


def test_a_job_on_any_class_asks_for_the_first_that_suits_it() -> None:
    first = next(iter(QUEUED.accelerators))

    assert manifest(a_job(queue_name="team"))["metadata"]["labels"]["inference.myorg/accelerator"] == first


@pytest.mark.parametrize(
    "change",
    [
        {"queue_name": "other"},
        {"resources": Resources(requests={"cpu": "2"})},
        {"node_selector": {"zone": "b"}},
        {"accelerator": "gpu"},
        {"tolerations": [Toleration(key="spot")]},
    ],
    ids=str,
)
def test_another_question_is_another_revision(change: dict[str, Any]) -> None:
    before, after = (workloads.revision(workloads.spec(resolved(job), QUEUED)) for job in (
        a_job(queue_name="team"), a_job(**{"queue_name": "team", **change})))  # fmt: skip

    assert before != after


def test_an_admission_is_not_another_question() -> None:
    found = resolved(a_job(queue_name="team"))
    narrow = narrowed(found, Admitted((("zone", "a"),)))

    assert workloads.spec(narrow, QUEUED) == workloads.spec(found, QUEUED)
    assert narrow.revisions == found.revisions


def test_the_priority_is_the_jobs_own_or_that_of_its_priority_class() -> None:
    plain, high = a_job(queue_name="team"), a_job(queue_name="team", template=PodTemplate(priority_class_name="high"))
    ref = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}

    assert manifest(plain, {"high": 9000}, own=7)["spec"]["priority"] == 7
    assert "priorityClassRef" not in manifest(plain, {"high": 9000})["spec"]
    assert manifest(high, {"high": 9000}, own=7)["spec"] | {"podSets": 0} == {
        "queueName": "team", "podSets": 0, "priority": 9000, "priorityClassRef": ref,
    }  # fmt: skip
    # The pod will be refused for it; until then it waits like one without.
    assert manifest(high, {}, own=7)["spec"]["priority"] == 7


def test_a_priority_is_changed_once() -> None:
    workload = waiting(a_job(queue_name="team"))
    action = workloads.with_priority(workload, {"priority": 5})

    assert action is not None
    assert action.body["spec"] == {"priority": 5, "priorityClassRef": None}
    assert workloads.with_priority(patched(workload, action), {"priority": 5}) is None


# Where it is placed.


def test_the_nodes_are_those_of_the_job_and_of_its_flavors() -> None:
    found = narrowed(resolved(a_job(queue_name="team", node_selector={"disk": "ssd"})), Admitted((("zone", "a"),)))

    (option,) = found.options
    assert option.requirements.node_selector == (("disk", "ssd"), ("zone", "a"))
    assert found.spec.node_selector == {"disk": "ssd", "zone": "a"}


def test_a_flavor_that_contradicts_the_job_leaves_no_node() -> None:
    (option,) = narrowed(resolved(a_job(queue_name="team", node_selector={"zone": "b"})), Admitted((("zone", "a"),))).options

    assert option.requirements.node_selector == (("zone", "a"), ("zone", "b"))


def test_it_has_no_class_but_that_of_its_quota() -> None:
    found = resolved(a_job(queue_name="team"))

    assert len(found.options) > 1
    assert [one.accelerator for one in narrowed(found, Waiting("")).options] == [found.options[0].accelerator]


# What the operator writes afterwards.


def test_what_was_evicted_gives_its_quota_back_as_kueues_own_controllers_do() -> None:
    workload = evicted(a_job(queue_name="team"), "preempted", generation=4)
    action = workloads.give_back(workload, NOW)

    assert action.of_status
    assert action.body["status"]["admission"] is None
    assert conditions(action) == {
        "QuotaReserved": ("False", "Pending", NOW_TEXT),
        "Admitted": ("False", "NoReservation", NOW_TEXT),
        "Evicted": ("True", "Preempted", SINCE),
        "Requeued": ("True", "Preempted", NOW_TEXT),
    }
    assert action.body["metadata"]["resourceVersion"] == workload.resource_version
    again = patched(workload, action)
    assert not again.reserved


@pytest.mark.parametrize(
    "reason", ["Deactivated", "ClusterQueueStopped", "LocalQueueStopped", "AdmissionCheck", "PodsReadyTimeout"]
)
def test_when_others_are_queued_again_is_kueues_to_say(reason: str) -> None:
    action = workloads.give_back(evicted(a_job(queue_name="team"), reason=reason), NOW)

    assert conditions(action)["Requeued"] == ("False", reason, NOW_TEXT)


def test_a_worker_that_runs_is_told_once_and_told_off_when_it_has_stopped() -> None:
    workload = admitted(a_job(queue_name="team"))
    action = workloads.ready(workload, NOW)

    assert conditions(action)["PodsReady"] == ("True", "Started", NOW_TEXT)
    assert conditions(action)["Admitted"][0] == "True"
    told = patched(workload, action) if action is not None else workload
    assert workloads.ready(told, NOW) is None
    stopped = workloads.give_back(replace(told, conditions=(*told.conditions, says("Evicted"))), NOW)
    assert conditions(stopped)["PodsReady"][:2] == ("False", "WaitForStart")


@pytest.mark.parametrize(("failed", "reason"), [(True, "Failed"), (False, "Succeeded")])
def test_the_end_is_told_once(*, failed: bool, reason: str) -> None:
    job = a_job(queue_name="team")
    workload = admitted(job)
    action = workloads.finish(workload, job, NOW, failed=failed)

    assert conditions(action)["Finished"] == ("True", reason, NOW_TEXT)
    assert action is not None
    assert workloads.finish(patched(workload, action), job, NOW, failed=failed) is None


def test_suspended_work_leaves_the_queue_and_comes_back() -> None:
    workload = waiting(a_job(queue_name="team"))
    out = patched(workload, workloads.suspend(workload))
    back = patched(out, workloads.resume(out))

    assert (out.active, out.suspended) == (False, True)
    assert (back.active, back.suspended) == (True, False)


# Parsing.


def test_what_kueue_has_written_is_read() -> None:
    made = manifest(a_job(queue_name="team"))
    status = {
        "admission": {
            "clusterQueue": "all",
            "podSetAssignments": [{"name": "worker", "flavors": {"cpu": "small", "memory": "small", GPU: "gpu"}}],
        },
        "conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": SINCE}],
    }
    meta = {**made["metadata"], "uid": "u", "resourceVersion": "3", "generation": 2}
    found = parse_workload({**made, "metadata": meta, "status": status})

    assert found is not None
    assert found.flavors == ("gpu", "small")
    assert found.cluster_queue == "all"
    assert found.holds("Admitted") and found.reserved


def test_a_workload_of_somebody_else_is_nobodys() -> None:
    assert parse_workload({"metadata": {"name": "w", "uid": "u", "labels": {}}}) is None


def test_a_flavor_without_a_spec_has_no_labels() -> None:
    assert parse_flavor({"metadata": {"name": "any", "uid": "u"}}).node_labels == {}
    assert parse_priority_class({"metadata": {"name": "low"}}) == ("low", 0)


def test_the_spec_has_the_queue() -> None:
    assert InferenceJobSpec(model="m", queue_name="team").queue_name == "team"
    assert a_workload(a_job(), uid="x").uid == "x"
