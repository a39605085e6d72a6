"""The status of an InferenceJob: what the operator writes, and users read.

All types of the status in one module, longer than others: a reader finds them in one place.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from inference_operator.api.conditions import Condition
from inference_operator.api.job import Backend
from inference_operator.api.model import AcceleratorResources, ModelVersion
from inference_operator.api.schema import (
    Digest,
    Instant,
    Message,
    ShortText,
    api_type,
)
from inference_operator.api.template import PodTemplate


class Outlook(StrEnum):
    """Whether the deadline will be, or was, kept."""

    UNKNOWN = "Unknown"
    ON_TIME = "OnTime"
    AT_RISK = "AtRisk"
    MISSED = "Missed"
    MET = "Met"


class EnergySource(StrEnum):
    """Where a figure of energy comes from."""

    MODELLED = "Modelled"
    MEASURED = "Measured"


class EnergyMeter(StrEnum):
    """Who reads the counter of a device."""

    EXPORTER = "Exporter"
    WORKER = "Worker"


class Phase(StrEnum):
    """One word for people, derived from the conditions. No code reads it back from a status."""

    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class AttemptOutcome(StrEnum):
    """How an attempt stands. A disrupted one (node lost, preempted, moved) does not count against maxAttempts."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DISRUPTED = "Disrupted"


@api_type()
class DeadlineStatus:
    """How the job stands to its deadline."""

    time: Annotated[Instant, Field(description="The deadline.")]
    estimated_completion_time: Annotated[
        Instant | None, Field(description="When it will be finished or ready, as far as is known; the real time once it is.")
    ] = None
    slack_seconds: Annotated[int | None, Field(description="Deadline less completion; negative is late.")] = None
    outlook: Annotated[Outlook, Field(description="OnTime, AtRisk, Missed, Met, or Unknown before there is a measurement.")]


@api_type()
class CostTerms:
    """What a place would cost: its total is the sum of latencySeconds, energyJoules and switchSeconds, each times its weight."""

    total: Annotated[float, Field(description="The sum that placement minimises, in seconds.")]
    latency_weight: Annotated[float, Field(description="What a second counts: less where the deadline leaves time.")] = 1.0
    energy_weight: Annotated[float, Field(description="What a joule counts, in seconds: the setting alpha.")] = 0.0
    switch_weight: Annotated[float, Field(description="What a second of loading counts beside: the setting beta.")] = 0.0
    latency_seconds: Annotated[float, Field(description="Expected seconds until done there.")]
    energy_joules: Annotated[float, Field(description="Modelled from the declared watts of the accelerator class.")]
    switch_seconds: Annotated[float, Field(description="Seconds to load the model there; nothing on a warm worker.")]
    estimated: Annotated[bool, Field(description="True while no measurement of this model on this class stands behind it.")]


@api_type()
class Alternative:
    """A place that was not taken, and why."""

    accelerator: Annotated[str, Field(max_length=63, description="Its accelerator class.")]
    node: Annotated[ShortText | None, Field(description="The node; none when the reason holds for a whole class.")] = None
    reason: Annotated[str, Field(max_length=512, description="Why it was not taken.")]
    cost: Annotated[CostTerms | None, Field(description="What it would have cost, where it could have run.")] = None


@api_type()
class SlackPlacement:
    """The service in whose slack a batch runs."""

    service: Annotated[ShortText, Field(description="The serving InferenceJob, of the same namespace.")]
    share: Annotated[
        float, Field(gt=0, le=1, description="The share of the worker's time that the batch was reckoned with when it was placed.")
    ]


@api_type()
class Placement:
    """Where the work runs, and why there."""

    accelerator: Annotated[str, Field(max_length=63, description="The accelerator class.")]
    node: Annotated[ShortText, Field(description="The node.")]
    pod: Annotated[ShortText, Field(description="The worker pod; the newest of a serving job's.")]
    execution_provider: Annotated[
        str | None, Field(max_length=128, description="What really computes, as the worker reports it.")
    ] = None
    slack: Annotated[
        SlackPlacement | None, Field(description="Set where a batch runs behind the requests of a service; absent elsewhere.")
    ] = None
    cost: Annotated[CostTerms, Field(description="What this place costs.")]
    alternatives: Annotated[
        list[Alternative],
        Field(max_length=4, description="The best places not taken.", json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default_factory=list)
    decision_time: Annotated[Instant, Field(description="When this was decided.")]


@api_type()
class LatencyStatus:
    """Measured latency in milliseconds: of requests when serving, of items in a batch (an item waits for its whole batch)."""

    p50: Annotated[float, Field(description="Median, milliseconds.")]
    p95: Annotated[float, Field(description="95th percentile, milliseconds.")]
    p99: Annotated[float, Field(description="99th percentile, milliseconds.")]
    count: Annotated[int, Field(ge=0, description="Observations.")]
    window_seconds: Annotated[int | None, Field(ge=0, description="Over how long; none is the whole run.")] = None
    observed_time: Annotated[Instant, Field(description="When this was measured.")]


@api_type()
class ProgressStatus:
    """How far a batch is, in items."""

    total: Annotated[int, Field(ge=0, description="Items of the input.")]
    completed: Annotated[int, Field(ge=0, description="Items whose answers are committed.")]
    failed: Annotated[int, Field(ge=0, description="Items that the model refused.")] = 0


class DeviceRuns(StrEnum):
    """How a device is spared what a change of the number of rows costs it."""

    CAPTURED = "Captured"
    SESSION_PER_SIZE = "SessionPerSize"
    ONE_SESSION = "OneSession"


class SigningMethod(StrEnum):
    """What a signature rests on."""

    KEY = "Key"
    CERTIFICATE = "Certificate"
    KEYLESS = "Keyless"


@api_type()
class SignatureStatus:
    """Who signed the model that ran."""

    signer: Annotated[str, Field(max_length=512, description="The key's name in the settings, or for whom the certificate is.")]
    method: Annotated[SigningMethod, Field(description="What the signature rests on.")]
    verified_time: Annotated[Instant, Field(description="When a worker first verified it of this file.")]


@api_type()
class ModelStatus:
    """Which model really ran."""

    name: Annotated[ShortText, Field(description="The InferenceModel, or the URI's last part.")]
    version: Annotated[ShortText | None, Field(description="Its version.")] = None
    digest: Annotated[Digest | None, Field(description="sha256 of the file that was loaded.")] = None
    verified: Annotated[bool, Field(description="True when a digest was asked for and the loaded file has it.")] = False
    signature: Annotated[SignatureStatus | None, Field(description="Who signed it; absent where no signature is asked for.")] = None
    variant_digest: Annotated[Digest | None, Field(description="sha256 of the INT8 variant that ran in its place.")] = None
    backend: Annotated[Backend | None, Field(description="What computes it.")] = None
    backend_reason: Annotated[ShortText | None, Field(description="Why that back end.")] = None
    not_batched_because: Annotated[
        Message | None, Field(description="Why requests do not share a run; absent where they do, or before the model is loaded.")
    ] = None
    device_runs: Annotated[
        DeviceRuns | None, Field(description="How the device is spared changes of the number of rows; absent on CPUs.")
    ] = None
    not_captured_because: Annotated[
        Message | None, Field(description="Why runs are not replayed from CUDA graphs; absent where they are, and on CPUs.")
    ] = None
    not_cached_because: Annotated[
        Message | None, Field(description="Why the service's cache is not used; absent where it is, and without one.")
    ] = None


@api_type()
class ResolvedModel:
    """What a job that has begun has read of its InferenceModel, and goes on with should the InferenceModel be deleted."""

    name: Annotated[ShortText, Field(description="The InferenceModel.")]
    version: Annotated[ModelVersion, Field(description="The version that workers are made of.")]
    resources: Annotated[
        list[AcceleratorResources],
        Field(
            max_length=8,
            description="What the InferenceModel asks for, by accelerator class.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)
    template: Annotated[PodTemplate | None, Field(description="What the InferenceModel adds to its workers' pods.")] = None


@api_type()
class AttemptStatus:
    """The newest attempt of a batch."""

    number: Annotated[int, Field(ge=1, description="Counted from one.")]
    pod: Annotated[ShortText, Field(description="Its worker pod.")]
    outcome: Annotated[AttemptOutcome, Field(description="How it stands.")]
    node: Annotated[ShortText | None, Field(description="The node that it was on, or was given.")] = None
    reason: Annotated[str | None, Field(max_length=128, description="Why it ended so.")] = None
    message: Annotated[Message | None, Field(description="The worker's own words.")] = None
    end_time: Annotated[Instant | None, Field(description="When it ended.")] = None


@api_type()
class PreemptionStatus:
    """A preemption: when, and for the work of which namespace."""

    time: Annotated[Instant, Field(description="When it was decided.")]
    namespace: Annotated[ShortText, Field(description="The namespace of the job that needed the place.")]


@api_type()
class OutputStatus:
    """Where the answers are."""

    uri: Annotated[str | None, Field(max_length=2048, description="The directory with chunks and manifests.")] = None
    data: Annotated[str | None, Field(max_length=4096, description="Small answers in place, as JSON lines.")] = None


@api_type()
class EnergyStatus:
    """What the work has cost so far, all attempts together."""

    joules: Annotated[float, Field(ge=0, description="Energy of the devices while they were held.")]
    joules_per_item: Annotated[float | None, Field(ge=0, description="The same for each answered item, once there are any.")] = None
    source: Annotated[
        EnergySource,
        Field(
            description="Measured: every attempt by its devices' own counters. Modelled: one attempt or more by the declared watts "
            "of its accelerator class, times seconds."
        ),
    ] = EnergySource.MODELLED
    meter: Annotated[
        EnergyMeter | None,
        Field(
            description="Who read the last attempt's counters: Exporter (dcgm-exporter), or Worker (the worker itself, by NVML). "
            "Absent where the source is Modelled."
        ),
    ] = None


@api_type()
class BackgroundTask:
    """A batch that runs in the slack of a service. Written anew only when its share has moved by much."""

    job: Annotated[ShortText, Field(description="The batch, an InferenceJob of the same namespace.")]
    pod: Annotated[ShortText, Field(description="The service's worker that runs it.")]
    runs: Annotated[int, Field(ge=0, description="Runs of the model that it has had there.")] = 0
    device_share: Annotated[
        float | None,
        Field(ge=0, le=1, description="The share of the worker's time that these took; absent before the first."),
    ] = None
    observed_time: Annotated[Instant, Field(description="When this was measured.")]


@api_type()
class QueueStatus:
    """How a job that waits for room stands. Written anew only when the expected start has moved by much."""

    position: Annotated[int, Field(ge=1, description="Its place among all that wait, by expected start.")]
    expected_start_time: Annotated[
        Instant | None, Field(description="When a place should be free for it; none where nothing known will free one in time.")
    ] = None


@api_type()
class ProvisioningStatus:
    """New nodes of an accelerator class that the job has asked for by placeholder pods."""

    accelerator: Annotated[str, Field(max_length=63, description="The accelerator class.")]
    request_time: Annotated[Instant | None, Field(description="When the node that is to come, or came last, was asked for.")] = None
    node: Annotated[ShortText | None, Field(description="The node that came last, and took the job.")] = None
    seconds: Annotated[float | None, Field(ge=0, description="From its request until the job had its place there.")] = None
    timeouts: Annotated[int, Field(ge=0, description="How often in a row no node came in time.")] = 0
    retry_time: Annotated[Instant | None, Field(description="When a node is asked for again, after one that did not come.")] = None
    message: Annotated[Message | None, Field(description="What kept the last node that did not come, as far as is known.")] = None


@api_type()
class InferenceJobStatus:
    """What is so."""

    observed_generation: Annotated[int, Field(ge=0, description="The spec's generation that this status is about.")] = 0
    phase: Annotated[str | None, Field(max_length=32, description="One word for people; programs read the conditions.")] = None
    reason: Annotated[str | None, Field(max_length=128, description="The summary condition's reason, for people.")] = None
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=16,
            description="Observations: Accepted, Placed, Ready, Succeeded, Suspended, Autoscaled, Reconciling, Stalled.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
    deadline: Annotated[DeadlineStatus | None, Field(description="How the job stands to its deadline.")] = None
    placement: Annotated[Placement | None, Field(description="Where it runs, and why there.")] = None
    latency: Annotated[LatencyStatus | None, Field(description="Measured latency.")] = None
    queue: Annotated[QueueStatus | None, Field(description="How it stands in the queue, while it waits for room.")] = None
    provisioning: Annotated[
        list[ProvisioningStatus] | None,
        Field(
            max_length=16,
            description="New nodes that the job has asked for, by accelerator class. Absent where it has asked for none.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["accelerator"]},
        ),
    ] = None
    progress: Annotated[ProgressStatus | None, Field(description="How far a batch is.")] = None
    energy: Annotated[EnergyStatus | None, Field(description="What a batch has cost, counted at each attempt's end.")] = None
    model: Annotated[ModelStatus | None, Field(description="Which model really ran.")] = None
    resolved_model: Annotated[
        ResolvedModel | None,
        Field(description="What new workers are made of; from the first worker to the end, for jobs that name an InferenceModel."),
    ] = None
    attempts: Annotated[int, Field(ge=0, description="Attempts that were started.")] = 0
    failed_attempts: Annotated[
        int,
        Field(
            ge=0,
            description="Attempts, or workers of a service, that failed by their own fault; also workers that nodes turned away.",
        ),
    ] = 0
    preemptions: Annotated[int, Field(ge=0, description="How often it made room for more urgent work.")] = 0
    last_preemption: Annotated[PreemptionStatus | None, Field(description="The last time that it made room.")] = None
    last_attempt: Annotated[AttemptStatus | None, Field(description="The newest attempt of a batch.")] = None
    output: Annotated[OutputStatus | None, Field(description="Where the answers are.")] = None
    output_claim_time: Annotated[
        Instant | None,
        Field(description="Since when it claims its output from a later job of its name, which a restored etcd doesn't have."),
    ] = None
    start_time: Annotated[Instant | None, Field(description="When the first worker was placed.")] = None
    ready_time: Annotated[Instant | None, Field(description="When all wanted workers of a serving job were first ready.")] = None
    completion_time: Annotated[Instant | None, Field(description="When the job ended.")] = None
    ended_spec: Annotated[
        str | None,
        Field(max_length=64, description="A hash of the spec that the job ended with, without ttlSecondsAfterFinished."),
    ] = None
    replicas: Annotated[int, Field(ge=0, description="Workers that exist.")] = 0
    ready_replicas: Annotated[int, Field(ge=0, description="Workers that answer.")] = 0
    desired_replicas: Annotated[
        int | None, Field(ge=0, description="Workers of a serving job that the operator works towards: replicas within its bounds.")
    ] = None
    asleep_since: Annotated[
        Instant | None, Field(description="Since when a serving job has no workers for want of requests; absent while it has.")
    ] = None
    woken_from: Annotated[
        Instant | None,
        Field(
            description="The asleepSince that a request has ended. Whichever replica of the operator holds the request writes it."
        ),
    ] = None
    current_revision: Annotated[
        str | None,
        Field(
            max_length=63, description="The revision that all workers of a serving job had last; a roll-out that ends changes it."
        ),
    ] = None
    selector: Annotated[str | None, Field(max_length=1024, description="Selects the workers, for the scale subresource.")] = None
    background_tasks: Annotated[
        list[BackgroundTask] | None,
        Field(
            max_length=16,
            description="Batches that run in the slack of a service now: the first sixteen, by worker. Absent without any.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = None
    endpoint: Annotated[str | None, Field(max_length=512, description="Where a serving job answers, inside the cluster.")] = None
