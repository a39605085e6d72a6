"""From events to the store: who is woken by what, and what an event out of order must not do."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from inference_operator.api import names
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, endpoints_request, job_request, pool_request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from tests.builders import SETTINGS, TOKENS, a_job, a_node, a_request
from tests.simulation.virtual_time import VirtualClock
from tests.unit.state.raw import Raw, meta, raw_worker

KEY = Key("default", "job")
JOB = job_request(KEY)
FAILING = {
    "type": "Ready",
    "status": "False",
    "reason": "ModelNotFound",
    "message": "no such file",
    "lastTransitionTime": "2026-04-02T12:00:00Z",
}


@dataclass
class Taken:
    """The informer handlers, what they fill, and whom it woke."""

    store: Store = field(default_factory=Store)
    woken: list[Request] = field(default_factory=list)
    touched: int = 0

    def __post_init__(self) -> None:
        self.scheduling = SchedulingLoop(
            self.store, Pools(self.store, SETTINGS, VirtualClock(), TOKENS), SETTINGS, VirtualClock(), self.wake
        )
        self.scheduling.want(a_request().key, a_request())
        self.scheduling._changed.clear()
        self.informer = InformerHandlers(self.store, self.scheduling, self.wake)

    def wake(self, request: Request, *, urgent: bool = False) -> None:
        self.woken.append(request)

    def schedules_again(self) -> bool:
        changed = self.scheduling._changed.is_set()
        self.scheduling._changed.clear()
        return changed

    def news(self) -> list[Request]:
        woken, self.woken = self.woken, []
        return woken


def a_raw_job(version: int = 1, **spec: Any) -> Raw:
    return {"metadata": meta("job", resourceVersion=str(version)), "spec": {"model": "m", **spec}}


def a_raw_model(version: int = 1, *, uid: str = "uid-of-m", **spec: Any) -> Raw:
    versions = [{"name": "1", "uri": "pvc://models/m.onnx"}]
    return {"metadata": meta("m", resourceVersion=str(version), uid=uid), "spec": {"versions": versions, **spec}}


def a_raw_node(*, status: str = "True", cpu: str = "4", version: int = 1, **spec: Any) -> Raw:
    conditions = [{"type": "Ready", "status": status}]
    return {
        "metadata": meta("node-1", resourceVersion=str(version)),
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu}, "conditions": conditions},
    }


def a_raw_worker(version: int = 1, **how: Any) -> Raw:
    pod = raw_worker(**how)
    pod["metadata"]["resourceVersion"] = str(version)
    pod["spec"]["nodeName"] = "node-1"
    return pod


def test_a_job_wakes_itself_once_a_version() -> None:
    seen = Taken()
    for version in (1, 1, 2, 1):
        seen.informer.job(a_raw_job(version), gone=False)

    assert seen.news() == [JOB, JOB]


def test_a_job_that_is_gone_is_woken_to_be_forgotten() -> None:
    seen = Taken()
    seen.informer.job(a_raw_job(), gone=False)
    seen.informer.job(a_raw_job(), gone=True)

    assert seen.news() == [JOB, JOB]
    assert seen.store.jobs == {}


def test_a_model_wakes_the_jobs_that_name_it() -> None:
    seen = Taken()
    seen.informer.job(a_raw_job(), gone=False)
    seen.news()
    pool = pool_request(Key("default", "m"))
    seen.informer.model(a_raw_model(), gone=False)
    assert seen.news() == [JOB, pool]
    seen.informer.model(a_raw_model(), gone=False)
    assert seen.news() == []
    seen.informer.model(a_raw_model(), gone=True)
    assert seen.news() == [JOB, pool]


def test_a_models_first_job_wakes_it_and_no_other() -> None:
    """A model is written when it turns InUse, and not for each of thousands of jobs."""
    seen = Taken()
    pool = pool_request(Key("default", "m"))
    seen.informer.model(a_raw_model(), gone=False)
    seen.news()
    seen.informer.job(a_raw_job(), gone=False)
    assert seen.news() == [JOB, pool]

    usage = {"jobs": 1, "names": ["job"], "observedTime": "2026-04-02T12:00:00Z"}
    seen.informer.model({**a_raw_model(2), "status": {"usage": usage}}, gone=False)
    seen.news()
    seen.informer.job(a_raw_job(2, priority=1), gone=False)
    assert seen.news() == [JOB]


def test_a_finished_job_does_not_wake_its_model() -> None:
    seen = Taken()
    seen.informer.model(a_raw_model(), gone=False)
    seen.news()
    done = {
        "type": "Succeeded",
        "status": "True",
        "reason": "Succeeded",
        "message": "",
        "lastTransitionTime": "2026-04-02T12:00:00Z",
    }
    raw = a_raw_job()
    generation = raw["metadata"].get("generation", 0)
    status = {"startTime": "2026-04-02T12:00:00Z", "conditions": [done], "observedGeneration": generation}
    seen.informer.job({**raw, "status": status}, gone=False)

    assert seen.news() == [JOB]


def test_what_is_told_of_a_model_concerns_its_pool_and_the_jobs_that_wait() -> None:
    seen = Taken()
    for name in ("job", "waits"):
        raw = a_raw_job()
        seen.informer.job({**raw, "metadata": {**raw["metadata"], "name": name, "uid": f"uid-of-{name}"}}, gone=False)
    seen.informer.model(a_raw_model(), gone=False)
    seen.scheduling.want(job_request(Key("default", "waits")), a_request("waits"))
    seen.scheduling._changed.clear()
    seen.news()
    seen.informer.model({**a_raw_model(2), "status": {"warmPool": {"workers": 1, "ready": 1}}}, gone=False)
    assert seen.news() == [pool_request(Key("default", "m"))]
    seen.informer.model({**a_raw_model(3), "status": {"warmPool": {"conditions": [FAILING]}}}, gone=False)

    waiting, pool = job_request(Key("default", "waits")), pool_request(Key("default", "m"))
    assert (seen.news(), seen.schedules_again()) == ([waiting, pool], False)


def test_an_older_version_of_a_model_is_not_taken_in() -> None:
    seen = Taken()
    seen.informer.model(a_raw_model(9, defaultVersion="1"), gone=False)
    seen.informer.model(a_raw_model(8), gone=False)

    assert seen.store.models[Key("default", "m")].resource_version == "9"


def test_a_late_farewell_of_a_model_does_not_take_its_successor_along() -> None:
    seen = Taken()
    seen.informer.model(a_raw_model(9, uid="next"), gone=False)
    seen.informer.model(a_raw_model(8, uid="first"), gone=True)

    assert Key("default", "m") in seen.store.models


def test_a_late_farewell_of_a_node_does_not_take_its_successor_along() -> None:
    seen = Taken()
    new = a_raw_node()
    new["metadata"]["uid"] = "next"
    seen.informer.node(new, gone=False)
    seen.informer.node(a_raw_node(), gone=True)

    assert "node-1" in seen.store.nodes


# Pods and nodes: capacity.


def test_a_worker_wakes_its_job_and_takes_room() -> None:
    seen = Taken()
    job = a_raw_job()
    job["metadata"]["uid"] = "uid-of-job"
    seen.informer.job(job, gone=False)
    seen.news()

    seen.informer.pod(a_raw_worker(1, phase="Pending"), gone=False)
    assert (seen.news(), seen.schedules_again()) == ([JOB], True)
    seen.informer.pod(a_raw_worker(2, phase="Running"), gone=False)
    assert (seen.news(), seen.schedules_again()) == ([JOB], False)
    seen.informer.pod(a_raw_worker(1, phase="Pending"), gone=False)
    assert (seen.news(), seen.schedules_again()) == ([], False)
    seen.informer.pod(a_raw_worker(3, phase="Succeeded"), gone=False)
    assert (seen.news(), seen.schedules_again()) == ([JOB], True)
    seen.informer.pod(a_raw_worker(3, phase="Succeeded"), gone=True)
    assert (seen.news(), seen.schedules_again()) == ([JOB], False)


def test_somebodys_pod_takes_room_and_wakes_nobody() -> None:
    seen = Taken()
    seen.informer.pod(a_raw_worker(labels={names.LABEL_MANAGED_BY: "helm"}), gone=False)

    assert (seen.news(), seen.schedules_again()) == ([], True)


def test_a_node_is_scheduled_on_again_when_its_substance_changes() -> None:
    seen = Taken()
    changes = [a_raw_node(version=1), a_raw_node(version=2), a_raw_node(cpu="8", version=3)]
    changes.append(a_raw_node(cpu="8", unschedulable=True, version=4))
    again = []
    for raw in changes:
        seen.informer.node(raw, gone=False)
        again.append(seen.schedules_again())
    seen.informer.node(changes[-1], gone=True)

    assert again == [True, False, True, True]
    assert seen.schedules_again()
    assert seen.store.nodes == {}


@pytest.mark.parametrize("status", ["Unknown", "False"])
def test_a_node_that_can_not_be_counted_on_wakes_the_jobs_on_it(status: str) -> None:
    seen = Taken()
    job = a_raw_job()
    job["metadata"]["uid"] = "uid-of-job"
    seen.informer.node(a_raw_node(), gone=False)
    seen.informer.job(job, gone=False)
    seen.informer.pod(a_raw_worker(phase="Running"), gone=False)
    seen.news()

    seen.informer.node(a_raw_node(status=status, version=2), gone=False)

    assert seen.news() == [JOB]
    assert bool(seen.store.observe(KEY).lost) == (status == "Unknown")  # type: ignore[union-attr]


# Services.


def a_raw_service(uid: str = "uid-of-job", **changes: Any) -> Raw:
    labels = {names.LABEL_JOB_UID: uid, names.LABEL_MANAGED_BY: names.MANAGED_BY}
    owner = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "job", "uid": uid, "controller": True}
    return {"metadata": {**meta("job", labels=labels), "ownerReferences": [owner], **changes}}


def test_a_service_that_is_gone_wakes_its_job() -> None:
    seen = Taken()
    seen.store.put_job(a_job())
    seen.informer.service(a_raw_service(), gone=False)
    assert (seen.news(), seen.store.services) == ([endpoints_request(KEY)], {KEY: "uid-of-job"})
    seen.informer.service(a_raw_service(), gone=True)
    assert (seen.news(), seen.store.services) == ([JOB], {})


@pytest.mark.parametrize(
    "changes", [{"ownerReferences": []}, {"namespace": "theirs", "ownerReferences": []}], ids=["label", "namespace"]
)
def test_a_service_that_only_has_our_label_does_not_stand_in_for_the_jobs_own(changes: Raw) -> None:
    """Somebody in another namespace wrote a job's uid on a Service of theirs, and the job never got its own."""
    seen = Taken()
    seen.store.put_job(a_job())
    seen.informer.service(a_raw_service(**changes), gone=False)
    assert seen.store.services == {}

    seen.informer.service(a_raw_service(), gone=False)
    seen.informer.service(a_raw_service(**changes, name="other"), gone=True)
    assert seen.store.services == {KEY: "uid-of-job"}


def test_a_service_without_our_label_is_nobodys() -> None:
    seen = Taken()
    seen.informer.service({"metadata": meta("x")}, gone=False)

    assert seen.store.services == {}


def test_nodes_of_builders_and_of_the_api_are_alike() -> None:
    seen = Taken()
    seen.informer.node(a_raw_node(cpu="8"), gone=False)

    assert seen.store.nodes["node-1"].allocatable["cpu"] == a_node(cpu="8").allocatable["cpu"]


# HPAs concern the job that they scale, and the one whose name they have.


def a_raw_autoscaler(version: int = 1, *, target: str = "job", uid: str = "uid-of-hpa", name: str = "hpa") -> Raw:
    reference = {"kind": "InferenceJob", "apiVersion": "inference.myorg/v1", "name": target}
    return {
        "metadata": meta(name, resourceVersion=str(version), uid=uid),
        "spec": {"scaleTargetRef": reference},
        "status": {"currentReplicas": version},
    }


def test_an_hpa_wakes_the_job_that_it_scales() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.news()
    taken.informer.autoscaler(a_raw_autoscaler(), gone=False)
    assert taken.news() == [JOB]
    assert [a.key.name for a in taken.store.autoscalers_of(KEY)] == ["hpa"]

    taken.informer.autoscaler(a_raw_autoscaler(2), gone=False)
    assert taken.news() == []

    taken.informer.autoscaler(a_raw_autoscaler(3, target="other"), gone=False)
    assert taken.news() == [JOB]
    assert taken.store.autoscalers_of(KEY) == ()


def test_an_edit_of_our_hpa_wakes_its_job_and_of_anothers_does_not() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    owner = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "job", "uid": "uid-of-job", "controller": True}
    labels = {names.LABEL_JOB_UID: "uid-of-job", names.LABEL_MANAGED_BY: names.MANAGED_BY}
    woken = []
    for version, (ours, most) in enumerate([(True, 4), (True, 4), (True, 40), (False, 4), (False, 40)], start=1):
        raw = a_raw_autoscaler(version, uid="ours" if ours else "mine", name="job" if ours else "mine")
        raw["metadata"] |= {"labels": labels, "ownerReferences": [owner]} if ours else {}
        raw["spec"]["maxReplicas"] = most
        taken.news()
        taken.informer.autoscaler(raw, gone=False)
        woken.append(taken.news() == [JOB])

    assert woken == [True, False, True, True, False]


def test_an_hpa_wakes_the_job_of_its_name() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.news()
    taken.informer.autoscaler(a_raw_autoscaler(name="job", target="other"), gone=False)

    assert taken.news() == [JOB]
    assert len(taken.store.autoscalers_of(KEY)) == 1


def test_an_hpa_that_is_gone_wakes_its_job_and_another_of_its_name_stays() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.autoscaler(a_raw_autoscaler(2, uid="new"), gone=False)
    taken.news()
    taken.informer.autoscaler(a_raw_autoscaler(1, uid="old"), gone=True)
    assert taken.news() == []
    taken.informer.autoscaler(a_raw_autoscaler(2, uid="new"), gone=True)

    assert taken.news() == [JOB]
    assert taken.store.autoscalers == {}


def test_an_older_hpa_does_not_turn_the_view_back() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.autoscaler(a_raw_autoscaler(5, target="other"), gone=False)
    taken.informer.autoscaler(a_raw_autoscaler(4), gone=False)

    assert taken.store.autoscalers_of(KEY) == ()


def a_raw_volume(version: int = 1, *, zone: str = "b", uid: str = "uid-of-pv", phase: str = "Bound") -> Raw:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {
        "metadata": meta("pv", resourceVersion=str(version), uid=uid),
        "spec": {
            "claimRef": {"namespace": "default", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
        "status": {"phase": phase},
    }


def zones(taken: Taken) -> object:
    seen = taken.store.observe(KEY)
    assert seen is not None
    return {claim: terms[0][0].values for claim, terms in seen.volumes.items()}


def test_a_volume_wakes_those_who_wait_in_its_claims_namespace_when_it_says_something_new() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.scheduling.want(JOB, a_request("job"))
    elsewhere = job_request(Key("elsewhere", "job"))
    taken.scheduling.want(elsewhere, replace(a_request("job"), key=elsewhere))
    taken.news()

    taken.informer.volume(a_raw_volume(), gone=False)

    assert set(taken.news()) == {JOB, a_request().key}
    assert taken.schedules_again()
    assert zones(taken) == {"data": ("b",)}
    taken.informer.volume(a_raw_volume(2), gone=False)
    assert taken.news() == []


def test_a_volume_that_is_released_holds_nobody_back() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.volume(a_raw_volume(), gone=False)
    taken.news()

    taken.informer.volume(a_raw_volume(2, phase="Released"), gone=False)

    assert taken.news() == [a_request().key]
    assert zones(taken) == {}


def test_older_news_of_a_volume_and_a_late_farewell_change_nothing() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.volume(a_raw_volume(5), gone=False)
    taken.news()

    taken.informer.volume(a_raw_volume(4, zone="a"), gone=False)
    taken.informer.volume(a_raw_volume(6, uid="of one before"), gone=True)

    assert taken.news() == []
    assert zones(taken) == {"data": ("b",)}
    taken.informer.volume(a_raw_volume(5), gone=True)
    assert zones(taken) == {}


def a_raw_claim(version: int = 1, *, mode: str = "ReadWriteOnce", uid: str = "uid-of-claim", deleting: bool = False) -> Raw:
    more = {"deletionTimestamp": "2026-04-02T12:00:00Z"} if deleting else {}
    return {"metadata": meta("data", resourceVersion=str(version), uid=uid, **more), "spec": {"accessModes": [mode]}}


def modes(taken: Taken) -> object:
    seen = taken.store.observe(KEY)
    assert seen is not None
    return {name: claim.modes for name, claim in seen.claims.items()}


def test_a_claim_wakes_those_who_wait_in_its_namespace_when_it_says_something_new() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.scheduling.want(JOB, a_request("job"))
    taken.news()

    taken.informer.claim(a_raw_claim(), gone=False)

    assert JOB in taken.news()
    assert taken.schedules_again()
    assert modes(taken) == {"data": ("ReadWriteOnce",)}
    taken.informer.claim(a_raw_claim(2), gone=False)
    assert taken.news() == []


def test_a_claim_that_is_being_deleted_wakes_the_jobs_whose_pods_name_it() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.claim(a_raw_claim(), gone=False)
    pod = a_raw_worker()
    pod["spec"] = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    taken.informer.pod(pod, gone=False)
    taken.news()

    taken.informer.claim(a_raw_claim(2, deleting=True), gone=False)

    assert JOB in taken.news()


def test_older_news_of_a_claim_and_a_late_farewell_change_nothing() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.claim(a_raw_claim(5), gone=False)
    taken.news()

    taken.informer.claim(a_raw_claim(4, mode="ReadWriteMany"), gone=False)
    taken.informer.claim(a_raw_claim(6, uid="of one before"), gone=True)

    assert taken.news() == []
    assert modes(taken) == {"data": ("ReadWriteOnce",)}
    taken.informer.claim(a_raw_claim(5), gone=True)
    assert modes(taken) == {}


def test_a_claim_that_was_bound_anew_keeps_what_its_new_volume_says() -> None:
    taken = Taken()
    taken.informer.job(a_raw_job(), gone=False)
    taken.informer.volume(a_raw_volume(), gone=False)
    second = a_raw_volume(zone="a", uid="uid-of-second")
    second["metadata"]["name"] = "second"
    taken.informer.volume(second, gone=False)

    taken.informer.volume(a_raw_volume(2, phase="Released"), gone=False)

    assert zones(taken) == {"data": ("a",)}
