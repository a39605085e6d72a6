"""Situations of batch jobs, from new to gone."""

from dataclasses import replace
from datetime import timedelta

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus, ProgressStatus
from inference_operator.state.objects import PodPhase, PodProblem
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, a_create_failure, a_fact, a_job, a_model, a_pod, a_reading, a_report, observed, whole
from tests.unit.jobs.situation import (
    DONE,
    LOOKED,
    PENDING,
    SUSPENDED,
    Situation,
    ended,
    fails,
    failure,
    full,
    on,
    opens,
    waits,
)
from tests.unit.scheduling.support import in_seconds


def unplaced_batches() -> dict[str, Situation]:
    job = a_job(status=LOOKED)
    old = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.RUNNING)
    vanished = a_job(status=InferenceJobStatus(observed_generation=1, attempts=1, last_attempt=old))
    return {
        "new, and the scheduler has not spoken": Situation(observed(a_job()), {}, "InProgress", "", actions=()),
        "the scheduler has not spoken since": Situation(observed(job), {}, "Current", "", actions=()),
        "a queue, and the operator asks no Kueue": Situation(
            observed(a_job(queue_name="team")),
            waits("Accepted", "QueueUnavailable"),
            "InProgress",
            "Waiting",
            says="set kueue.enabled in the chart, or leave queueName out",
        ),
        "no room": Situation(observed(a_job()), opens("NoFreeCapacity", placed=False), "InProgress", "Waiting", scheduler=full()),
        "no node fits": Situation(
            observed(a_job()), opens("NoNodeFits", placed=False), "InProgress", "Waiting", scheduler=full(Reason.NO_NODE_FITS)
        ),
        "no room, and namespaces share": Situation(
            observed(a_job()), opens("FairShare", placed=False), "InProgress", "Waiting", scheduler=full(Reason.FAIR_SHARE)
        ),
        "the namespace's cap is reached": Situation(
            observed(a_job()),
            opens("NamespaceCapped", placed=False),
            "InProgress",
            "Waiting",
            scheduler=full(Reason.NAMESPACE_CAPPED),
        ),
        "no room and a deadline": Situation(
            observed(a_job(deadline_in=60)),
            opens("NoFreeCapacity", placed=False),
            "InProgress",
            "Waiting",
            scheduler=full(),
            recheck=in_seconds(61),
        ),
        "a place": Situation(
            observed(a_job()), opens("Starting"), "InProgress", "Starting", actions=("CreatePod", "WriteStatus"), scheduler=on("n")
        ),
        "a place in a known time": Situation(
            observed(a_job(deadline_in=60)),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("n", seconds=33.3),
        ),
        "firm and infeasible": Situation(
            observed(a_job(deadline_in=5, firm=True)),
            fails("DeadlineInfeasible"),
            "Failed",
            "Failed",
            scheduler=full(Reason.DEADLINE_INFEASIBLE, "set deadline to", final=True),
            events=("DeadlineInfeasible",),
        ),
        "a quota is in the way": Situation(
            observed(job, create_failure=a_create_failure()),
            opens("QuotaExceeded", placed=False),
            "InProgress",
            "Waiting",
            recheck=in_seconds(2),
            says="exceeded quota",
        ),
        "the API server refuses the pod": Situation(
            observed(job, create_failure=a_create_failure("denied by policy", reason=Reason.POD_REFUSED)),
            opens("PodRefused", placed=False),
            "InProgress",
            "Waiting",
            recheck=in_seconds(2),
            says="denied by policy",
        ),
        "the API server finds the pod invalid": Situation(
            observed(job, create_failure=a_create_failure("must be no more than the limit", reason=Reason.POD_INVALID)),
            {
                "Accepted": ("True", "Accepted"),
                "Placed": ("False", "PodInvalid"),
                "Ready": ("False", "PodInvalid"),
                "Succeeded": ("Unknown", "Running"),
                "Stalled": ("True", "PodInvalid"),
            },
            "Failed",
            "Waiting",
            recheck=in_seconds(300),
            says="must be no more than the limit; correct the field",
            events=("PodInvalid",),
        ),
        "a batch is scaled": Situation(
            observed(a_job(replicas=3)),
            {**opens("NoFreeCapacity", placed=False), "Accepted": ("True", "ReplicasLimited")},
            "InProgress",
            "Waiting",
            scheduler=full(),
        ),
        "the quota is tried again": Situation(
            observed(job, create_failure=a_create_failure(ago=3)),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("n"),
        ),
        "its pod has vanished": Situation(
            observed(vanished),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("n"),
        ),
    }


def placed_batches() -> dict[str, Situation]:
    job = a_job(status=LOOKED)
    due = a_job(deadline_in=60, status=LOOKED)
    firm = a_job(deadline_in=60, firm=True, status=LOOKED)
    pod = a_pod(job, seconds=33.3)
    unschedulable = PodProblem("Unschedulable", "0/3 nodes are available")
    preempted = AttemptStatus(
        number=1,
        pod="p",
        outcome=AttemptOutcome.DISRUPTED,
        reason="Preempted",
        message="makes room on node-1 for default/urgent",
        end_time=whole(NOW),
    )
    return {
        "its worker starts": Situation(observed(job, a_pod(job, phase=PENDING)), opens("Starting"), "InProgress", "Starting"),
        "its worker loads the model": Situation(
            observed(job, a_pod(job, ready=False)), opens("Starting"), "InProgress", "Starting"
        ),
        "its worker runs": Situation(observed(job, a_pod(job)), opens("Running"), "InProgress", "Running"),
        "its worker runs and a deadline": Situation(
            observed(due, a_pod(due, seconds=33.3)), opens("Running"), "InProgress", "Running", recheck=in_seconds(61)
        ),
        "its worker runs and a firm deadline": Situation(
            observed(firm, a_pod(firm, seconds=33.3)), opens("Running"), "InProgress", "Running", recheck=in_seconds(60)
        ),
        "its worker runs and tells": Situation(
            observed(
                due,
                a_pod(due, seconds=33.3, created_ago=40),
                readings={a_pod(due).uid: a_reading(progress=(3, 10), model=a_fact(), sketch={1: 5})},
            ),
            opens("Running"),
            "InProgress",
            "Running",
            recheck=in_seconds(61),
        ),
        "no image": Situation(
            observed(job, a_pod(job, phase=PENDING, problem=PodProblem("ImagePullBackOff", "back-off"))),
            opens("ImageUnavailable", placed=False),
            "InProgress",
            "Waiting",
            says="worker.image",
        ),
        "no volume": Situation(
            observed(job, a_pod(job, phase=PENDING, problem=PodProblem("Unschedulable", 'persistentvolumeclaim "x" not found'))),
            opens("VolumeUnavailable", placed=False),
            "InProgress",
            "Waiting",
            says="create the claim",
        ),
        "kube-scheduler finds no room": Situation(
            observed(job, a_pod(job, phase=PENDING, node=None, problem=unschedulable)),
            opens("Unschedulable", placed=False),
            "InProgress",
            "Waiting",
            says="0/3 nodes",
        ),
        "some other problem": Situation(
            observed(job, a_pod(job, phase=PENDING, problem=PodProblem("CreateContainerError", "oh"))),
            opens("Pending", placed=False),
            "InProgress",
            "Waiting",
            says="CreateContainerError",
        ),
        "it could not start in all its time": Situation(
            observed(job, a_pod(job, phase=PENDING, created_ago=601, problem=PodProblem("ImagePullBackOff", "back-off"))),
            opens("BackingOff", placed=False),
            "InProgress",
            "Waiting",
            actions=("DeletePod", "WriteStatus"),
            events=("AttemptFailed",),
            recheck=in_seconds(2),
            looks=2,
        ),
        "it has to make room": Situation(
            observed(
                a_job(items=10, status=replace(LOOKED, attempts=1, preemptions=1, last_attempt=preempted)), a_pod(a_job(items=10))
            ),
            opens("Preempted", placed=False),
            "InProgress",
            "Waiting",
            actions=("DeletePod", "WriteStatus"),
            says="for default/urgent",
        ),
        "its spec has changed": Situation(
            observed(job, a_pod(job, revision="old")),
            opens("Pending", placed=False),
            "InProgress",
            "Waiting",
            actions=("DeletePod", "WriteStatus"),
        ),
        "its node is out of reach": Situation(
            observed(job, pod, lost=[pod]),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("DeletePod", "CreatePod", "WriteStatus"),
            scheduler=on("n"),
        ),
        "its node is out of reach and there is no room": Situation(
            observed(job, pod, lost=[pod]),
            opens("NoFreeCapacity", placed=False),
            "InProgress",
            "Waiting",
            actions=("DeletePod", "WriteStatus"),
            scheduler=full(),
        ),
        "its worker does not answer": Situation(
            observed(job, a_pod(job), silent=frozenset({a_pod(job).uid})),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("DeletePod", "CreatePod", "WriteStatus"),
            says="attempt 2 starts on n; worker ",
            scheduler=on("n"),
        ),
        "its worker does not answer and there is no room elsewhere": Situation(
            observed(job, a_pod(job), silent=frozenset({a_pod(job).uid})),
            opens("Running"),
            "InProgress",
            "Running",
            says="does not answer",
            scheduler=full(),
        ),
        "its worker is on its way out": Situation(
            observed(job, replace(pod, deleting=True)), opens("Pending", placed=False), "InProgress", "Waiting"
        ),
    }


def ending_batches() -> dict[str, Situation]:
    job = a_job(status=LOOKED)
    due, late = a_job(deadline_in=60, status=LOOKED), a_job(deadline_in=-5, status=LOOKED)
    by_model = a_job(model="m", status=LOOKED)
    firm = a_job(deadline_in=0, firm=True, status=replace(LOOKED, start_time=NOW, progress=ProgressStatus(total=9, completed=4)))
    done = {"phase": PodPhase.SUCCEEDED, "report": a_report(model=a_fact())}
    one = a_job(max_attempts=1, status=LOOKED)
    return {
        "it is done": Situation(observed(job, a_pod(job, **done)), DONE, "Current", "Succeeded", says="all 10 items"),  # type: ignore[arg-type]
        "it is done in time": Situation(observed(due, a_pod(due, **done)), DONE, "Current", "Succeeded"),  # type: ignore[arg-type]
        "it is done late": Situation(observed(late, a_pod(late, **done)), DONE, "Current", "Succeeded"),  # type: ignore[arg-type]
        "it is done and was measured": Situation(
            observed(by_model, a_pod(by_model, model=a_model(), **done), model=a_model()),  # type: ignore[arg-type]
            DONE,
            "Current",
            "Succeeded",
            actions=("WriteModelStatus", "WriteStatus"),
        ),
        "it failed for good": Situation(
            observed(job, a_pod(job, **failure(WorkerReason.INPUT_INVALID, "line 3 is torn"))),  # type: ignore[arg-type]
            fails("InputInvalid"),
            "Failed",
            "Failed",
            says="line 3 is torn",
            events=("InputInvalid",),
        ),
        "it failed and backs off": Situation(
            observed(job, a_pod(job, **failure())),  # type: ignore[arg-type]
            opens("BackingOff", placed=False),
            "InProgress",
            "Waiting",
            recheck=whole(NOW) + timedelta(seconds=1),
            says="attempt 1 failed",
            events=("AttemptFailed",),
        ),
        "its attempts are used up": Situation(
            observed(one, a_pod(one, **failure())),  # type: ignore[arg-type]
            fails("WorkerFailed"),
            "Failed",
            "Failed",
            events=("WorkerFailed",),
        ),
        "its firm deadline passes": Situation(
            observed(firm, a_pod(firm)),
            fails("DeadlineExceeded"),
            "Failed",
            "Failed",
            actions=("DeletePod", "WriteStatus"),
            says="4 of 9 items",
            events=("DeadlineExceeded",),
        ),
        "its firm deadline passed before it began": Situation(
            observed(a_job(deadline_in=-1, firm=True)),
            fails("DeadlineExceeded", accepted=False),
            "Failed",
            "Failed",
            events=("DeadlineExceeded",),
        ),
        "it has no back end": Situation(
            observed(a_job(backend=Backend.TRITON)),
            fails("BackendUnavailable", accepted=False),
            "Failed",
            "Failed",
            events=("BackendUnavailable",),
        ),
        "its spec can't be read": Situation(
            observed(replace(a_job(), spec=None, invalid="model: Field required")),
            fails("InvalidSpec", accepted=False),
            "Failed",
            "Failed",
            says="model: Field required",
            events=("InvalidSpec",),
        ),
        "its model's version is unknown": Situation(
            observed(a_job(model="m", model_version="9"), model=a_model()),
            waits("Accepted", "ModelVersionUnknown"),
            "InProgress",
            "Waiting",
            says="it has 1",
        ),
        "its model is unknown": Situation(observed(a_job(model="m")), waits("Accepted", "ModelUnknown"), "InProgress", "Waiting"),
        "it is suspended": Situation(
            observed(a_job(suspend=True, deadline_in=60), a_pod(a_job())),
            SUSPENDED,
            "Current",
            "Suspended",
            actions=("DeletePod", "WriteStatus"),
            # Then that the attempt has ended is told.
            looks=2,
        ),
        "it is resumed": Situation(
            observed(job, a_pod(job, 1, phase=PodPhase.SUCCEEDED, report=a_report("Drained"))),
            opens("Starting"),
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("n"),
        ),
    }


def jobs_after_their_end() -> dict[str, Situation]:
    kept = {"Succeeded": ("True", "Succeeded")}
    job, short_lived = ended(a_job()), ended(a_job(ttl_seconds_after_finished=120))
    expired = ended(a_job(ttl_seconds_after_finished=10))
    return {
        "it is over": Situation(observed(job), kept, "Current", "Succeeded", actions=()),
        "it is over and a worker still lives": Situation(
            observed(job, a_pod(job)), kept, "Current", "Succeeded", actions=("DeletePod",)
        ),
        "it is over and its time to live is not": Situation(
            observed(short_lived), kept, "Current", "Succeeded", actions=(), recheck=whole(NOW) + timedelta(seconds=60)
        ),
        "its time to live is over": Situation(observed(expired), kept, "Terminating", "Succeeded", actions=("DeleteJob",)),
        "its spec changes after the end": Situation(observed(replace(job, generation=2)), kept, "Current", "Succeeded"),
        "it is going away": Situation(observed(a_job(deleting=True), a_pod(a_job())), {}, "Terminating", "", actions=()),
    }
