"""Placeholder pods of one job: made, kept, withdrawn, given up, and what the status says of them."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest

from inference_operator.accelerators import Provisioning, default_classes
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Serve
from inference_operator.api.job_status import InferenceJobStatus, ProvisioningStatus
from inference_operator.scheduling.types import Decision, PendingReason, PlacementRequest
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Pod, PodProblem
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import CreatePod, DeletePod, EmitEvent, Plan
from tests.builders import GPU, LIMITS, NOW, a_create_failure, a_job, a_pod, observed, placed_on, whole
from tests.unit.jobs.situation import LOOKED
from tests.unit.scheduling.support import Scheduler, after, decide, facts, in_seconds, kinds, settled, status_of, wanted

GROWS = Provisioning(allocatable={"cpu": "8", "memory": "32Gi", GPU: "1"}, node_seconds=95.0, timeout_seconds=300.0)


def _settings() -> Settings:
    classes = default_classes()
    classes["gpu"] = msgspec.structs.replace(classes["gpu"], provisioning=GROWS)
    return Settings(accelerators=classes, pod_template=LIMITS)


SETTINGS = _settings()


def asks(*accelerators: str, reason: Reason = Reason.PROVISIONING) -> Scheduler:
    """What the scheduler answers while the job waits for new nodes."""

    def decision(request: PlacementRequest) -> Decision:
        pending = PendingReason(reason, "waits for a new node of class gpu, which takes some 95 s")
        return Decision(request.uid, request.revision, pending=pending, new_nodes=accelerators)

    return decision


def look(seen: Observed, scheduler: Scheduler | None = None, *, now: datetime = NOW) -> Plan:
    return decide(seen, scheduler, now=now, settings=SETTINGS)


def waiting(job: Job | None = None, *classes: str) -> Observed:
    """A job whose placeholders are there."""
    seen = observed(job or a_job(gpu=1, status=LOOKED), has_service=True)
    seen = after(seen, look(seen, asks(*(classes or ("gpu",)))))
    assert look(seen, asks(*(classes or ("gpu",)))).actions == ()
    return seen


def bound(seen: Observed, node: str, *, ago: float) -> Observed:
    pods = [replace(pod, node=node, bound_since=NOW - timedelta(seconds=ago)) for pod in seen.placeholders]
    return replace(seen, placeholders=tuple(pods))


def aged(seen: Observed, seconds: float, problem: PodProblem | None = None) -> Observed:
    pods = [replace(pod, created=NOW - timedelta(seconds=seconds), problem=problem) for pod in seen.placeholders]
    return replace(seen, placeholders=tuple(pods))


def deleted(done: Plan) -> list[str]:
    return [action.uid for action in done.actions if isinstance(action, DeletePod)]


def made(done: Plan) -> list[Pod]:
    return [action.assumed for action in done.actions if isinstance(action, CreatePod)]


def entry(status: InferenceJobStatus) -> ProvisioningStatus:
    assert status.provisioning is not None
    (found,) = status.provisioning
    return found


# Asked for.


def test_a_job_that_needs_a_new_node_gets_a_placeholder_and_says_so() -> None:
    seen = observed(a_job(gpu=1, status=LOOKED))
    done = look(seen, asks("gpu"))
    status = status_of(done)

    assert kinds(done) == ("CreatePod", "WriteStatus")
    assert facts(status.conditions)["Placed"] == ("False", "Provisioning")
    assert entry(status) == ProvisioningStatus(accelerator="gpu", request_time=whole(NOW))


def test_it_is_asked_for_once_and_looked_at_again_when_it_is_overdue() -> None:
    seen = waiting()

    assert [pod.placeholder and pod.placeholder.accelerator for pod in seen.placeholders] == ["gpu"]
    assert look(seen, asks("gpu")).recheck == whole(NOW) + timedelta(seconds=300)


def test_a_placeholder_asks_for_what_the_worker_would_and_can_do_nothing() -> None:
    job = a_job(gpu=1, node_selector={"zone": "a"}, status=LOOKED)
    seen = observed(job)
    (action,) = [a for a in look(seen, asks("gpu")).actions if isinstance(a, CreatePod)]
    (worker,) = [a for a in look(seen, lambda r: placed_on(r, "gpu-1", accelerator="gpu")).actions if isinstance(a, CreatePod)]
    spec, of_worker = action.manifest["spec"], worker.manifest["spec"]
    container = spec["containers"][0]

    assert action.assumed.requests == worker.assumed.requests
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": str(2**30), GPU: "1"}
    assert container["resources"]["limits"][GPU] == "1"
    for field in ("nodeSelector", "tolerations", "securityContext", "automountServiceAccountToken", "restartPolicy"):
        assert spec[field] == of_worker[field]
    assert "affinity" not in spec and "priorityClassName" not in spec and "env" not in container
    assert container["image"] == of_worker["containers"][0]["image"]
    assert action.manifest["metadata"]["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert action.manifest["metadata"]["ownerReferences"] == worker.manifest["metadata"]["ownerReferences"]
    # What selects workers selects no placeholder.
    assert "inference.myorg/job-uid" not in action.manifest["metadata"]["labels"]


def test_a_placeholder_mounts_the_claims_that_decide_on_the_node() -> None:
    job = a_job(gpu=1, input={"uri": "pvc://data/in.npy"}, output={"uri": "pvc://data/out"}, status=LOOKED)
    (action,) = [a for a in look(observed(job), asks("gpu")).actions if isinstance(a, CreatePod)]

    assert [volume["persistentVolumeClaim"]["claimName"] for volume in action.manifest["spec"]["volumes"]] == ["data"]


def test_a_service_has_one_for_each_worker() -> None:
    job = a_job(gpu=1, serve=Serve(min_replicas=3), status=LOOKED)
    seen = waiting(job, "gpu", "gpu", "gpu")

    assert len({pod.key for pod in seen.placeholders}) == 3
    assert len(deleted(look(seen, asks("gpu", "gpu")))) == 1


def test_what_a_quota_has_refused_takes_no_other_placeholder_away() -> None:
    seen = replace(waiting(a_job(gpu=1, serve=Serve(min_replicas=2), status=LOOKED)), create_failure=a_create_failure())

    assert deleted(look(seen)) == []


# Withdrawn.


@pytest.mark.parametrize("reason", [Reason.NO_FREE_CAPACITY, Reason.NO_NODE_FITS])
def test_a_placeholder_goes_once_the_scheduler_wants_none(reason: Reason) -> None:
    seen = waiting()
    done = look(seen, asks(reason=reason))

    assert deleted(done) == [seen.placeholders[0].uid]
    assert status_of(done).provisioning is None


def test_it_goes_when_the_job_is_suspended() -> None:
    seen = waiting()
    spec = seen.job.spec
    assert spec is not None
    done = look(replace(seen, job=replace(seen.job, spec=replace(spec, suspend=True))))

    assert deleted(done) == [seen.placeholders[0].uid]


def test_it_goes_when_the_job_has_ended() -> None:
    seen = waiting()
    failed = look(seen, lambda r: replace_final(asks()(r)))
    over = replace(after(seen, failed), placeholders=seen.placeholders)

    assert deleted(failed) == deleted(look(over)) == [seen.placeholders[0].uid]


def replace_final(decision: Decision) -> Decision:
    return decision._replace(pending=PendingReason(Reason.DEADLINE_INFEASIBLE, "too late", final=True))


def test_it_stays_while_the_scheduler_has_not_decided_anew() -> None:
    assert deleted(look(waiting())) == []


# There.


def test_it_makes_way_for_the_worker_and_the_status_keeps_how_long_the_node_took() -> None:
    seen = aged(waiting(), 90.0)
    seen = replace(seen, nodes_created={"gpu-1": NOW - timedelta(seconds=40), "gpu-0": NOW - timedelta(seconds=400)})
    done = look(seen, lambda r: placed_on(r, "gpu-1", accelerator="gpu"))
    elsewhere = look(seen, lambda r: placed_on(r, "gpu-0", accelerator="gpu"))

    assert kinds(done) == kinds(elsewhere) == ("DeletePod", "CreatePod", "WriteStatus")
    assert (entry(status_of(done)).node, entry(status_of(done)).seconds) == ("gpu-1", 90.0)
    assert status_of(elsewhere).provisioning is None


def test_how_long_the_node_took_stays_to_the_end() -> None:
    seen = replace(aged(waiting(), 90.0), nodes_created={"gpu-1": NOW})
    seen = after(seen, look(seen, lambda r: placed_on(r, "gpu-1", accelerator="gpu")))
    seen = settled(seen)

    assert entry(seen.job.status).seconds == 90.0


def test_one_that_has_a_node_waits_for_the_scheduler_and_no_second_one_is_made() -> None:
    seen = bound(waiting(), "gpu-1", ago=1.0)
    done = look(seen, asks("gpu"))

    assert done.actions == ()
    assert done.recheck == NOW + timedelta(seconds=1)


def test_one_whose_node_is_of_no_use_is_given_up_and_tried_again_later() -> None:
    seen = bound(waiting(), "gpu-1", ago=3.0)
    done = look(seen, asks("gpu"))

    assert kinds(done) == ("DeletePod", "WriteStatus", "EmitEvent")
    assert "went to node gpu-1, where the job has no place" in (entry(status_of(done)).message or "")
    assert entry(status_of(done)).retry_time == whole(in_seconds(5))
    assert wanted(after(seen, done), settings=SETTINGS) is not None


# It does not come.


def test_a_node_that_does_not_come_is_told_of_and_asked_for_again_later() -> None:
    problem = PodProblem("Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    seen = aged(waiting(), 301.0, problem)
    done = look(seen, asks("gpu"))
    status = status_of(done)

    assert kinds(done) == ("DeletePod", "WriteStatus", "EmitEvent")
    assert (entry(status).timeouts, entry(status).retry_time) == (1, whole(in_seconds(60)))
    assert "nothing came within 300 s of placeholder pod" in (entry(status).message or "")
    assert "kube-scheduler says: 0/1 nodes are available" in (entry(status).message or "")

    seen = replace(after(seen, done), placeholders=())
    request = wanted(seen, settings=SETTINGS)
    assert request is not None and request.grows == frozenset()
    told = look(seen, asks(reason=Reason.NO_NODE_FITS))
    message = next(c.message for c in status_of(told).conditions if c.type == "Placed")
    assert "no new node of class gpu: nothing came within 300 s" in message and "the next is asked for at 2026-" in message
    assert told.recheck == whole(in_seconds(60))

    later = wanted(seen, now=in_seconds(61), settings=SETTINGS)
    assert later is not None and later.grows == frozenset({"gpu"})


def test_what_is_asked_for_and_what_does_not_come_is_told_by_events() -> None:
    def told(done: Plan) -> list[tuple[str, str]]:
        return [(action.reason, action.type.value) for action in done.actions if isinstance(action, EmitEvent)]

    seen = observed(a_job(gpu=1, status=LOOKED))

    assert told(look(seen, asks("gpu"))) == [("Provisioning", "Normal")]
    assert told(look(aged(waiting(), 301.0), asks("gpu"))) == [("NodeTimeout", "Warning")]


def test_it_is_asked_for_ever_more_rarely() -> None:
    waits = []
    seen = observed(a_job(gpu=1, status=LOOKED))
    now = NOW
    for _ in range(8):
        seen = after(seen, look(seen, asks("gpu"), now=now), now=now)
        now += timedelta(seconds=301)
        seen = after(seen, look(seen, asks("gpu"), now=now), now=now)
        retry = entry(seen.job.status).retry_time
        assert retry is not None
        waits.append(round((retry - now).total_seconds()))
        now = retry + timedelta(seconds=1)

    assert Counter(waits)[3600] >= 1
    assert [round(wait / 60) for wait in waits[:4]] == [1, 2, 4, 8]


def test_a_service_on_one_node_asks_for_what_is_left_of_another_of_its_class() -> None:
    """It is no reason for another class, for new nodes, or for a deadline."""
    job = a_job(serve=True, replicas=2, deadline_in=60.0, firm=True)
    crowded = [a_pod(job, number, accelerator="gpu", created_ago=400.0, settings=SETTINGS) for number in (1, 2)]
    whole_again = replace(crowded[1], node="node-2")

    assert wanted(observed(job, crowded[0], whole_again), settings=SETTINGS) is None
    usual, found = (wanted(observed(job, *pods), settings=SETTINGS) for pods in (crowded[:1], crowded))
    assert usual is not None and (usual.spreads, len(usual.options), usual.grows) == (False, 2, frozenset({"gpu"}))
    assert found is not None and (found.workers, found.spreads, found.beside) == (1, True, ("node-1", "node-1"))
    assert ([option.accelerator for option in found.options], found.deadline, found.firm) == (["gpu"], None, False)
    assert found.grows == frozenset()
