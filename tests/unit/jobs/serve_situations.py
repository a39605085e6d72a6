"""Situations of serving jobs."""

from dataclasses import replace
from datetime import timedelta

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Serve
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, ResolvedModel
from inference_operator.state.objects import PodProblem
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, a_create_failure, a_job, a_model, a_pod, a_version, observed, whole
from tests.unit.jobs.situation import LOOKED, PENDING, SUSPENDED, Situation, fails, failure, full, on, partly, serves
from tests.unit.scheduling.support import in_seconds


def serving_jobs() -> dict[str, Situation]:
    two = a_job(serve=True, replicas=2, status=LOOKED)
    new = a_job(serve=True, replicas=2)
    one = a_job(serve=True, status=LOOKED)
    old = (a_pod(two, 1, revision="old"), a_pod(two, 2, revision="old"))
    zero = a_job(serve=Serve(min_replicas=0), replicas=0, status=LOOKED)
    over = a_job(serve=Serve(until=whole(NOW)), status=LOOKED)
    firm = a_job(serve=True, deadline_in=0, firm=True, status=replace(LOOKED, start_time=NOW))
    lost = failure(WorkerReason.MODEL_NOT_FOUND)
    model = a_model("m", a_version("1"))
    known = ResolvedModel(name="m", version=a_version("1"))
    named = a_job(model="m", serve=True, status=replace(LOOKED, attempts=1, resolved_model=known))
    creating = ("CreatePod", "CreatePod", "WriteStatus")
    return {
        "it is to serve": Situation(
            observed(new, has_service=False),
            serves("False", "Starting", moving=True),
            "InProgress",
            "Starting",
            actions=("CreateService", *creating),
            scheduler=on("a", "b"),
            looks=2,
        ),
        "it is to serve and only half has room": Situation(
            observed(new),
            serves("False", "Starting", moving=True),
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=partly("a"),
            looks=3,
        ),
        "it is to serve and nothing has room": Situation(
            observed(new),
            serves("False", "NoFreeCapacity", moving=True, placed=("False", "NoFreeCapacity")),
            "InProgress",
            "Waiting",
            scheduler=full(),
        ),
        "it serves and its model is deleted": Situation(
            observed(named, a_pod(named, model=model)),
            {**serves("True", "Serving"), "Accepted": ("True", "ModelDeleted")},
            "Current",
            "Serving",
            says="InferenceModel 'm' is deleted; the job goes on with version '1' as it was",
        ),
        "its worker is lost and its model is deleted": Situation(
            observed(named),
            {**serves("False", "Starting", moving=True), "Accepted": ("True", "ModelDeleted")},
            "InProgress",
            "Starting",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("a"),
            looks=2,
        ),
        "its workers start": Situation(
            observed(two, a_pod(two, 1), a_pod(two, 2, phase=PENDING)),
            serves("False", "Starting", moving=True),
            "InProgress",
            "Serving",
            says="1/2 workers of the newest revision ready",
        ),
        "it serves": Situation(
            observed(two, a_pod(two, 1), a_pod(two, 2)),
            serves("True", "Serving"),
            "Current",
            "Serving",
            says="2/2 workers ready",
        ),
        "one of its workers has no image": Situation(
            observed(two, a_pod(two, 1), a_pod(two, 2, phase=PENDING, problem=PodProblem("ErrImagePull", "no"))),
            serves("False", "ImageUnavailable", moving=True),
            "InProgress",
            "Serving",
        ),
        "it is rolled out": Situation(
            observed(two, *old),
            serves("True", "RollingOut", moving=True),
            "InProgress",
            "Serving",
            actions=creating,
            scheduler=on("a", "b"),
            looks=2,
        ),
        "it is rolled out and there is no room beside": Situation(
            observed(two, *old),
            serves("True", "NoFreeCapacity", moving=True, placed=("False", "NoFreeCapacity")),
            "InProgress",
            "Serving",
            actions=("DeletePod", "WriteStatus"),
            scheduler=full(),
            looks=3,
        ),
        "its rollout has one new worker": Situation(
            observed(two, *old, a_pod(two, 3), a_pod(two, 4, phase=PENDING)),
            serves("True", "RollingOut", moving=True),
            "InProgress",
            "Serving",
            actions=("DeletePod", "WriteStatus"),
            looks=2,
        ),
        "it is scaled up": Situation(
            observed(two, a_pod(two, 1)),
            serves("False", "Starting", moving=True),
            "InProgress",
            "Serving",
            actions=("CreatePod", "WriteStatus"),
            scheduler=on("a"),
            looks=2,
        ),
        "it has served, and lacks a worker": Situation(
            observed(replace(two, status=replace(LOOKED, ready_time=whole(NOW))), a_pod(two, 1), a_pod(two, 2, phase=PENDING)),
            serves("True", "AddingWorkers", moving=True),
            "InProgress",
            "Serving",
        ),
        "it is scaled down": Situation(
            observed(one, a_pod(one, 1), a_pod(one, 2)),
            serves("True", "Serving"),
            "Current",
            "Serving",
            actions=("DeletePod", "WriteStatus"),
            looks=2,
        ),
        "it is scaled to zero": Situation(
            observed(zero, a_pod(zero)),
            {"Accepted": ("True", "Accepted"), "Ready": ("True", "ScaledToZero")},
            "Current",
            "ScaledToZero",
            actions=("DeletePod", "WriteStatus"),
            looks=2,
        ),
        "its time to serve is over": Situation(
            observed(over, a_pod(over)),
            {"Accepted": ("True", "Accepted"), "Succeeded": ("True", "Ended")},
            "Current",
            "Succeeded",
            actions=("DeletePod", "WriteStatus"),
        ),
        "it was not ready by its firm deadline": Situation(
            observed(firm, a_pod(firm, phase=PENDING)),
            fails("DeadlineExceeded"),
            "Failed",
            "Failed",
            actions=("DeletePod", "WriteStatus"),
            events=("DeadlineExceeded",),
        ),
        "the node of one of its workers is out of reach": Situation(
            observed(two, a_pod(two, 1), a_pod(two, 2), lost=[a_pod(two, 2)]),
            serves("False", "Starting", moving=True),
            "InProgress",
            "Serving",
            actions=("CreatePod", "DeletePod", "WriteStatus"),
            scheduler=on("b"),
            looks=2,
        ),
        "its worker failed": Situation(
            observed(one, a_pod(one, **failure())),  # type: ignore[arg-type]
            serves("False", "WorkerFailed", moving=True, placed=("False", "WorkerFailed")),
            "InProgress",
            "Waiting",
            recheck=whole(NOW) + timedelta(seconds=1),
            events=("AttemptFailed",),
        ),
        "its worker failed again": Situation(
            observed(
                a_job(
                    serve=True,
                    status=replace(
                        LOOKED,
                        failed_attempts=1,
                        attempts=1,
                        last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.FAILED, reason="WorkerFailed"),
                    ),
                ),
                a_pod(one, 2, **failure()),  # type: ignore[arg-type]
            ),
            serves("False", "WorkerFailed", moving=True, placed=("False", "WorkerFailed")),
            "InProgress",
            "Waiting",
            events=("AttemptFailed",),
        ),
        "its model is gone for good": Situation(
            observed(one, a_pod(one, **lost)),  # type: ignore[arg-type]
            {
                "Accepted": ("True", "Accepted"),
                "Placed": ("False", "ModelNotFound"),
                "Ready": ("False", "ModelNotFound"),
                "Stalled": ("True", "ModelNotFound"),
            },
            "Failed",
            "Failed",
            events=("ModelNotFound",),
        ),
        "its service's name is taken": Situation(
            observed(
                one,
                has_service=False,
                create_failure=a_create_failure("a Service 'job' of somebody else exists", reason=Reason.NAME_TAKEN),
            ),
            serves("False", "NameTaken", moving=True, placed=("False", "NameTaken")),
            "InProgress",
            "Waiting",
            recheck=in_seconds(2),
            says="of somebody else",
        ),
        "a quota keeps a worker out": Situation(
            observed(two, a_pod(two, 1), create_failure=a_create_failure()),
            serves("False", "QuotaExceeded", moving=True, placed=("False", "QuotaExceeded")),
            "InProgress",
            "Serving",
            recheck=in_seconds(2),
        ),
        "the API server finds a worker invalid": Situation(
            observed(one, create_failure=a_create_failure("must be no more than the limit", reason=Reason.POD_INVALID)),
            {**serves("False", "PodInvalid", placed=("False", "PodInvalid")), "Stalled": ("True", "PodInvalid")},
            "Failed",
            "Failed",
            recheck=in_seconds(300),
            says="must be no more than the limit; correct the field",
            events=("PodInvalid",),
        ),
        "one worker too many is invalid and the others answer": Situation(
            observed(two, a_pod(two, 1), create_failure=a_create_failure("no", reason=Reason.POD_INVALID)),
            serves("False", "PodInvalid", moving=True, placed=("False", "PodInvalid")),
            "InProgress",
            "Serving",
            recheck=in_seconds(300),
        ),
        "it serves, is suspended": Situation(
            observed(a_job(serve=True, suspend=True, status=LOOKED), a_pod(one)),
            SUSPENDED,
            "Current",
            "Suspended",
            actions=("DeletePod", "WriteStatus"),
        ),
    }
