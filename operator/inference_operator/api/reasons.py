"""Every reason that a condition may have from the operator, each with its meaning and its cure.

One closed list, somewhat longer than others: whoever adds a reason reads all that there are.
"""

from enum import StrEnum
from typing import Self

from inference_operator.api.condition_types import ConditionType
from inference_protocol.reasons import UNDESCRIBED, ReasonText, WorkerReason

# What a reason that asks for nothing has as its cure.
_NONE = "No action is needed."


class Reason(StrEnum):
    """Every reason that the operator itself gives, with its text; a worker's own words are `WorkerReason`.

    `types` are the conditions that have the reason first. Ready, Reconciling, Succeeded and Stalled repeat the reason of what is in
    the way. A reason without types stands in status.lastAttempt only.
    """

    text: ReasonText
    types: tuple[ConditionType, ...]

    # Without defaults a lookup by the word alone, Reason("Placed"), would not pass the type check.
    def __new__(cls, word: str, text: ReasonText = UNDESCRIBED, types: tuple[ConditionType, ...] = ()) -> Self:
        """Return the member: a plain string that carries its text and its condition types."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.text = text
        member.types = types
        return member

    ACCEPTED = "Accepted", ReasonText("The job is valid, and its model is known.", _NONE), (ConditionType.ACCEPTED,)
    REPLICAS_LIMITED = (
        "ReplicasLimited",
        ReasonText(
            "spec.replicas is beyond the bounds of serve, or is set for a batch, which runs one worker and none once it has ended.",
            "Change serve.minReplicas or serve.maxReplicas, split a batch into several jobs, or create an ended one anew.",
        ),
        (ConditionType.ACCEPTED,),
    )
    PRIORITY_LIMITED = (
        "PriorityLimited",
        ReasonText(
            "The job asks for a higher priority than its namespace may have, and has the highest that it may.",
            "Lower priority, or have the operator's setting namespaceLimits raised.",
        ),
        (ConditionType.ACCEPTED,),
    )
    INVALID_SPEC = (
        "InvalidSpec",
        ReasonText(
            "A field of the job, of its InferenceModel, or of the version that it uses has a value that can't be used.",
            "Correct the field that the message names.",
            final=True,
        ),
        (ConditionType.ACCEPTED,),
    )
    MODEL_DELETED = (
        "ModelDeleted",
        ReasonText(
            "The InferenceModel is deleted, and the job goes on with the version that it began with.",
            "Create the InferenceModel again, or let the job end.",
        ),
        (ConditionType.ACCEPTED,),
    )
    MODEL_UNKNOWN = (
        "ModelUnknown",
        ReasonText(
            "The job's namespace has no InferenceModel of this name, or one that can't be read.",
            "Create or correct the InferenceModel, or correct spec.model.",
        ),
        (ConditionType.ACCEPTED,),
    )
    MODEL_VERSION_UNKNOWN = (
        "ModelVersionUnknown",
        ReasonText(
            "The InferenceModel doesn't have the version that modelVersion or defaultVersion names.",
            "Add the version to the InferenceModel, or correct the name.",
        ),
        (ConditionType.ACCEPTED,),
    )
    TLS_UNAVAILABLE = (
        "TlsUnavailable",
        ReasonText(
            "The job wants TLS for its callers, and the operator can ask such workers by mutual TLS alone, which is off.",
            "Turn mutualTLS on in the chart, or leave serve.tls out.",
        ),
        (ConditionType.ACCEPTED,),
    )
    BACKEND_UNAVAILABLE = (
        "BackendUnavailable",
        ReasonText(
            "The back end doesn't take the model's format, or the operator has no image for it.",
            "Set backend to auto, or set the back end's image in the chart.",
            final=True,
        ),
        (ConditionType.ACCEPTED,),
    )
    ACCELERATOR_UNKNOWN = (
        "AcceleratorUnknown",
        ReasonText(
            "The operator's settings have no accelerator class of this name.",
            "Set accelerator to a class that the message lists, or add the class to the chart's accelerators.",
        ),
        (ConditionType.ACCEPTED,),
    )
    ACCELERATOR_UNSUITABLE = (
        "AcceleratorUnsuitable",
        ReasonText(
            "No accelerator class that the job allows suits its back end and its node selector.",
            "Change accelerator, backend or nodeSelector as the message says.",
        ),
        (ConditionType.ACCEPTED,),
    )
    TEMPLATE_FORBIDDEN = (
        "TemplateForbidden",
        ReasonText(
            "The job adds something to its pods that this cluster's administrator doesn't allow.",
            "Leave out what the message names, or have the operator's setting podTemplate allow it.",
        ),
        (ConditionType.ACCEPTED,),
    )
    HOST_FORBIDDEN = (
        "HostForbidden",
        ReasonText(
            "The job or its model names a URL on a host that this cluster's administrator doesn't allow.",
            "Use a host that the message lists, or have the operator's setting fetch.allowedHosts allow this one.",
        ),
        (ConditionType.ACCEPTED,),
    )
    QUEUE_UNAVAILABLE = (
        "QueueUnavailable",
        ReasonText(
            "The job names a queue of Kueue, and the operator asks no Kueue, or the cluster has none.",
            "Set kueue.enabled in the chart, install Kueue, or leave queueName out, as the message says.",
        ),
        (ConditionType.ACCEPTED,),
    )
    USABLE = (
        "Usable",
        ReasonText("The InferenceModel's spec can be used; the message names versions that can't.", _NONE),
        (ConditionType.READY,),
    )
    USED_BY_JOBS = (
        "UsedByJobs",
        ReasonText("Jobs that have not ended name the InferenceModel.", "Before you delete it, let the jobs in status.usage end."),
        (ConditionType.IN_USE,),
    )
    NOT_USED = (
        "NotUsed",
        ReasonText("No job that has not ended names the InferenceModel.", "No action is needed: it can be deleted."),
        (ConditionType.IN_USE,),
    )
    PLACED = "Placed", ReasonText("The job's workers have a place.", _NONE), (ConditionType.PLACED,)
    NAME_TAKEN = (
        "NameTaken",
        ReasonText(
            "Somebody else's object has the name that the job's pod, Service or HPA needs.",
            "Delete that object, or give the job another name.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    PENDING = (
        "Pending",
        ReasonText(
            "The scheduler has not decided yet, an earlier worker still ends, or the kubelet can't start the pod.",
            "Wait, and if the message quotes the kubelet, fix what it names.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    WAITING_FOR_QUOTA = (
        "WaitingForQuota",
        ReasonText(
            "The batch is in a queue of Kueue, which has not admitted it; the message has Kueue's words.",
            "Wait, or act on the message: create the LocalQueue, raise the ClusterQueue's quota, or the job's priority.",
        ),
        (ConditionType.PLACED,),
    )
    WORKLOAD_INACTIVE = (
        "WorkloadInactive",
        ReasonText(
            "The batch's Workload was made inactive by Kueue or by somebody else, so that Kueue doesn't admit it.",
            "Set spec.active of the Workload to true.",
        ),
        (ConditionType.PLACED,),
    )
    WORKLOAD_REFUSED = (
        "WorkloadRefused",
        ReasonText(
            "The API server refuses the Workload by which Kueue would queue the batch.",
            "Act on the message: a webhook of Kueue's, a quota on objects, or a policy refuses it.",
        ),
        (ConditionType.PLACED,),
    )
    NO_FREE_CAPACITY = (
        "NoFreeCapacity",
        ReasonText("No node that fits has room now, or no warm worker is free.", "Wait for room, raise priority, or add a node."),
        (ConditionType.PLACED,),
    )
    PROVISIONING = (
        "Provisioning",
        ReasonText(
            "No node has room in time, and a placeholder pod has the cluster's autoscaler add one.",
            "Wait for the node; should none come, read the events of the placeholder pod, and the autoscaler's log.",
        ),
        (ConditionType.PLACED,),
    )
    FAIR_SHARE = (
        "FairShare",
        ReasonText(
            "No node that fits has room now, and the namespace has its fair share, or one with less went first.",
            "Wait for room, end work of the namespace, or have its weight raised in namespaceLimits.",
        ),
        (ConditionType.PLACED,),
    )
    NAMESPACE_CAPPED = (
        "NamespaceCapped",
        ReasonText(
            "The namespace has as many workers or devices as the administrator allows it.",
            "Wait for one of them to end, end one, or have the operator's setting namespaceLimits raised.",
        ),
        (ConditionType.PLACED,),
    )
    NO_NODE_FITS = (
        "NoNodeFits",
        ReasonText(
            "No node could hold a worker, even when empty.", "Lower the request, change nodeSelector or tolerations, or add a node."
        ),
        (ConditionType.PLACED,),
    )
    DEADLINE_INFEASIBLE = (
        "DeadlineInfeasible",
        ReasonText(
            "The deadline is firm, and no place could meet it even if the work started now.",
            "Set a later deadline, or set deadlinePolicy to Soft.",
            final=True,
        ),
        (ConditionType.PLACED,),
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        ReasonText("A ResourceQuota of the namespace refuses an object of the job.", "Raise the quota, or delete what uses it up."),
        (ConditionType.PLACED, ConditionType.READY),
    )
    POD_REFUSED = (
        "PodRefused",
        ReasonText(
            "The API server refuses the job's pod, Service or HPA.", "Change the job, or the policy that the message names."
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    POD_INVALID = (
        "PodInvalid",
        ReasonText(
            "The API server finds the job's pod, Service or HPA invalid.",
            "Correct the field of the job, its model or its accelerator class that the message names.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        ReasonText(
            "kube-scheduler doesn't bind the pod to the node that the operator has chosen.",
            "Fix what kube-scheduler names in the message.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    IMAGE_UNAVAILABLE = (
        "ImageUnavailable",
        ReasonText(
            "The kubelet can't pull the image of the worker or of its back end.",
            "Correct the image in the chart, or set template.imagePullSecrets.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    VOLUME_UNAVAILABLE = (
        "VolumeUnavailable",
        ReasonText(
            "A PersistentVolumeClaim that the worker mounts doesn't exist or isn't bound.",
            "Create the claim in the job's namespace, or correct the pvc:// URI.",
        ),
        (ConditionType.PLACED, ConditionType.READY),
    )
    BACKING_OFF = (
        "BackingOff",
        ReasonText(
            "An attempt failed or was cut short, and the operator waits before the next one.",
            "Fix what the message names: the next attempt starts by itself.",
        ),
        (ConditionType.PLACED,),
    )
    PREEMPTED = (
        "Preempted",
        ReasonText(
            "The job makes room for work that can't be on time otherwise.",
            "Wait, or raise priority: the job continues after its last committed chunk.",
        ),
        (ConditionType.PLACED,),
    )
    STARTING = (
        "Starting",
        ReasonText(
            "A worker starts: its pod is created, and its model is loaded, verified and warmed up.",
            "Wait, and if it takes long, read the worker's log.",
        ),
        (ConditionType.READY,),
    )
    RUNNING = "Running", ReasonText("The batch is not done yet.", _NONE), (ConditionType.READY, ConditionType.SUCCEEDED)
    SERVING = (
        "Serving",
        ReasonText("All workers that are wanted answer, and have the newest revision.", _NONE),
        (ConditionType.READY,),
    )
    ROLLING_OUT = (
        "RollingOut",
        ReasonText(
            "The service answers, and workers of its newest revision take the place of older ones.", "Wait for the reason Serving."
        ),
        (ConditionType.READY,),
    )
    ADDING_WORKERS = (
        "AddingWorkers",
        ReasonText("The service answers, and workers that it lacks start.", "Wait for the reason Serving."),
        (ConditionType.READY,),
    )
    MODEL_CACHED = (
        "ModelCached",
        ReasonText("The nodes of the roll-out have its model in their caches.", _NONE),
        (ConditionType.PREFETCHED,),
    )
    PREFETCHING = (
        "Prefetching",
        ReasonText(
            "Caches of nodes fetch the model of the roll-out; its workers start there once they have it.",
            "Wait; after nodeCache.prefetchSeconds workers start all the same.",
        ),
        (ConditionType.PREFETCHED,),
    )
    PREFETCH_FAILED = (
        "PrefetchFailed",
        ReasonText(
            "A node's cache could not fetch the model of the roll-out; workers there fetch it themselves.",
            "Correct what the message names: the location, the digest, or the cache's size or network.",
        ),
        (ConditionType.PREFETCHED,),
    )
    NOT_PREFETCHED = (
        "NotPrefetched",
        ReasonText(
            "Caches don't fetch this model ahead: its digest is unknown, or it needs credentials or hosts that caches don't have.",
            "Give the model version a digest, or have fetch.allowedHosts list its host.",
        ),
        (ConditionType.PREFETCHED,),
    )
    SCALED_TO_ZERO = (
        "ScaledToZero",
        ReasonText("The service has no workers, and none are wanted.", "Set replicas above zero to serve again."),
        (ConditionType.READY,),
    )
    SUCCEEDED = (
        "Succeeded",
        ReasonText("All items of the batch are answered.", _NONE, final=True),
        (ConditionType.READY, ConditionType.SUCCEEDED),
    )
    ENDED = (
        "Ended",
        ReasonText("The service has ended at serve.until.", "Set a later serve.until to serve again.", final=True),
        (ConditionType.SUCCEEDED,),
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        ReasonText(
            "A firm deadline passed before the batch was done or the service was ready.",
            "Set a later deadline, or set deadlinePolicy to Soft: the edit runs the job anew.",
            final=True,
        ),
        (ConditionType.ACCEPTED, ConditionType.READY),
    )
    SUSPENDED = (
        "Suspended",
        ReasonText("spec.suspend has stopped the job; committed work is kept.", "Set suspend to false to continue."),
        (ConditionType.SUSPENDED,),
    )
    FOLLOWING_LATENCY = (
        "FollowingLatency",
        ReasonText("An HPA keeps the p95 latency at the target.", _NONE),
        (ConditionType.AUTOSCALED,),
    )
    NO_METRIC_YET = (
        "NoMetricYet",
        ReasonText(
            "No worker was measured yet, or the metrics API is being registered.",
            "Wait: the operator creates the HPA once the metric answers.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    METRICS_API_DISABLED = (
        "MetricsApiDisabled",
        ReasonText(
            "The operator doesn't serve custom.metrics.k8s.io.",
            "Set customMetrics.enabled in the chart, or set autoscaling.mode to External.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    METRICS_API_TAKEN = (
        "MetricsApiTaken",
        ReasonText(
            "Another provider serves custom.metrics.k8s.io, and a cluster has only one.",
            "Remove that provider, or set autoscaling.mode to External.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    LATENCY_TARGET_MISSING = (
        "LatencyTargetMissing",
        ReasonText(
            "autoscaling.mode is HPA, and the job has no latency target to scale by.", "Set serve.latencyTargetMilliseconds."
        ),
        (ConditionType.AUTOSCALED,),
    )
    LATENCY_TARGET_BELOW_FLOOR = (
        "LatencyTargetBelowFloor",
        ReasonText(
            "A request alone takes longer than the target, so more workers don't help.",
            "Raise serve.latencyTargetMilliseconds, raise batchSize if requests have more rows, or use a faster accelerator.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    NO_RANGE = (
        "NoRange",
        ReasonText(
            "serve.maxReplicas is not set, or leaves nothing to scale.",
            "Set serve.maxReplicas above serve.minReplicas and above 1, or set autoscaling.mode to None.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    CAPACITY_LIMITED = (
        "CapacityLimited",
        ReasonText(
            "The target takes more workers than the cluster has room for.",
            "Add a node, or wait: more workers are asked for when the waiting one has a place.",
        ),
        (ConditionType.AUTOSCALED,),
    )
    OTHER_AUTOSCALER = (
        "OtherAutoscaler",
        ReasonText("Another HPA, or a ScaledObject, scales the job already.", "Delete it, or set autoscaling.mode to External."),
        (ConditionType.AUTOSCALED,),
    )
    LEFT_TO_OTHERS = (
        "LeftToOthers",
        ReasonText("autoscaling.mode is External: an autoscaler of yours sets spec.replicas.", _NONE),
        (ConditionType.AUTOSCALED,),
    )
    WORKER_LOST = (
        "WorkerLost",
        ReasonText("The worker's pod or its node is gone.", "Wait for the next attempt: this one does not count as failed."),
    )


AnyReason = Reason | WorkerReason

# Reasons for which a worker waits until there is room for it.
NO_PLACE = frozenset(
    {Reason.NO_FREE_CAPACITY, Reason.PROVISIONING, Reason.FAIR_SHARE, Reason.NAMESPACE_CAPPED, Reason.NO_NODE_FITS}
)
