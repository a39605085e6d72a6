"""InferenceJob: one piece of inference work with a deadline. With `input` it is a batch, without it serves."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from inference_operator.api.conditions import Condition
from inference_operator.api.schema import (
    Digest,
    Instant,
    LabelKey,
    LabelValue,
    Location,
    Message,
    Quantity,
    Rule,
    ShortText,
    api_type,
    validated,
)

KIND = "InferenceJob"
PLURAL = "inferencejobs"


class Accelerator(StrEnum):
    """What a job asks to run on."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


class DeadlinePolicy(StrEnum):
    """What happens to work that is not done by its deadline."""

    SOFT = "Soft"
    FIRM = "Firm"


class Backend(StrEnum):
    """What computes."""

    AUTO = "auto"
    ONNX = "onnx"
    TRITON = "triton"
    TORCHSCRIPT = "torchscript"


class AutoscalingMode(StrEnum):
    """Who writes `spec.replicas` after creation."""

    NONE = "None"
    HPA = "HPA"
    EXTERNAL = "External"


class ModelControl(StrEnum):
    """Whether callers may load and unload models."""

    NONE = "None"
    EXPLICIT = "Explicit"


class InputFormat(StrEnum):
    """How an input is to be read."""

    AUTO = "auto"
    NPY = "npy"
    NPZ = "npz"
    JSONL = "jsonl"
    FILES = "files"


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


@api_type(
    Rule("has(self.uri) != has(self.data)", "set exactly one of uri and data"),
    Rule("!has(self.uri) || !self.uri.matches('^https?://') || has(self.digest)", "an http(s) input needs its sha256 digest"),
)
class Input:
    """What a batch job reads: a location, or small JSON lines given in place."""

    uri: Annotated[Location | None, Field(description="A .npy, .npz or .jsonl file, or a directory of raw files.")] = None
    data: Annotated[
        str | None,
        Field(min_length=1, max_length=65536, description="JSON lines in place: one object of input names to values a line."),
    ] = None
    format: Annotated[InputFormat, Field(description="How to read it; auto goes by the name's ending.")] = InputFormat.AUTO
    digest: Annotated[Digest | None, Field(description="sha256 of the input, checked before it is read.")] = None
    items: Annotated[
        int | None,
        Field(ge=1, le=2**53, description="How many items it holds, if known: lets the deadline be judged before the first run."),
    ] = None
    allow_non_finite: Annotated[
        bool, Field(description="Let NaN and infinity through instead of refusing the input that holds them.")
    ] = False


@api_type()
class Output:
    """Where a batch job writes: a directory that gets numbered parts and a manifest."""

    uri: Annotated[Location, Field(description="A directory, as pvc://CLAIM/PATH.")]


@api_type(
    Rule("!has(self.maxReplicas) || self.maxReplicas >= self.minReplicas", "maxReplicas must not be below minReplicas"),
)
class Serve:
    """How a serving job is kept up."""

    min_replicas: Annotated[int, Field(ge=0, le=1000, description="Workers that are always kept.")] = 1
    max_replicas: Annotated[int | None, Field(ge=1, le=1000, description="Workers at most, for autoscaling.")] = None
    latency_target_milliseconds: Annotated[
        int | None, Field(ge=1, le=600_000, description="The 95th percentile of request latency to hold.")
    ] = None
    until: Annotated[Instant | None, Field(description="When serving ends by itself; without it, never.")] = None
    model_control: Annotated[
        ModelControl,
        Field(
            description="Explicit lets callers reload and unload the model by the protocol's repository calls; None refuses that."
        ),
    ] = ModelControl.NONE


@api_type(
    Rule("self.mode == 'None' || self.mode == 'External' || self.mode == 'HPA'", "mode is one of None, HPA and External"),
)
class Autoscaling:
    """Who moves the number of workers."""

    mode: Annotated[
        AutoscalingMode,
        Field(description="None keeps spec.replicas; HPA lets the operator make an autoscaler; External leaves it to yours."),
    ] = AutoscalingMode.NONE


@api_type()
class Resources:
    """What each worker container asks for, over the accelerator itself."""

    requests: Annotated[
        dict[LabelKey, Quantity], Field(max_length=8, description="Reserved on the node, for example cpu and memory.")
    ] = Field(default_factory=dict)
    limits: Annotated[
        dict[LabelKey, Quantity], Field(max_length=8, description="Never exceeded; by default memory is limited to its request.")
    ] = Field(default_factory=dict)


@api_type()
class Toleration:
    """A toleration as in core/v1."""

    key: Annotated[LabelKey | None, Field(description="The taint's key; none matches every key.")] = None
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$", max_length=8, description="Exists or Equal.")] = "Equal"
    value: Annotated[LabelValue | None, Field(description="The taint's value, for Equal.")] = None
    effect: Annotated[
        str | None,
        Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$", max_length=16, description="The taint's effect; none is all."),
    ] = None
    toleration_seconds: Annotated[int | None, Field(ge=0, description="How long NoExecute is tolerated.")] = None


@api_type()
class EnvironmentVariable:
    """A variable set in the worker container."""

    name: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=128, description="The variable's name.")]
    value: Annotated[str, Field(max_length=4096, description="Its value.")] = ""


@api_type()
class PodTemplate:
    """What users may add to worker pods. The security context is not among it: it stays restricted."""

    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32, description="Labels added to worker pods.")] = Field(
        default_factory=dict
    )
    annotations: Annotated[
        dict[LabelKey, Annotated[str, Field(max_length=4096)]], Field(max_length=32, description="Annotations added.")
    ] = Field(default_factory=dict)
    env: Annotated[
        list[EnvironmentVariable],
        Field(
            max_length=64,
            description="Environment of the worker container.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default_factory=list)
    priority_class_name: Annotated[ShortText | None, Field(description="The pods' PriorityClass.")] = None
    runtime_class_name: Annotated[ShortText | None, Field(description="The pods' RuntimeClass.")] = None
    image_pull_secrets: Annotated[
        list[ShortText],
        Field(max_length=8, description="Secrets to pull images with.", json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default_factory=list)


@api_type(
    Rule("!(has(self.input) && has(self.serve))", "a job either has an input (batch) or serves: set input or serve, not both"),
    Rule("!has(self.output) || has(self.input)", "output is for batch jobs: set input too, or leave output out"),
    Rule(
        "!has(self.input) || has(self.output) || has(self.input.data)",
        "a batch job with input.uri needs output.uri to write its answers to",
    ),
    Rule(
        "!self.model.contains('://') || !has(self.modelVersion)",
        "modelVersion picks a version of an InferenceModel; a model given as a URI has none",
    ),
    Rule(
        "!self.model.matches('^https?://') || has(self.modelDigest)",
        "a model fetched over http(s) needs modelDigest (sha256:HEX), so that what runs is what you meant",
    ),
    Rule("!has(self.autoscaling) || self.autoscaling.mode == 'None' || !has(self.input)", "autoscaling is for serving jobs"),
    Rule("has(self.input) == has(oldSelf.input)", "a job stays batch or serving for life; create another job instead"),
)
class InferenceJobSpec:
    """What to run, on what, and by when."""

    model: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2048,
            description="The name of an InferenceModel in this namespace, or a URI of an ONNX file.",
            json_schema_extra=validated(
                Rule(
                    "self.contains('://') ? self.matches('^(pvc|https|http|file)://[^ ]+$') && "
                    "!self.matches('(?i)(^|/)([.]|%2e){2}(/|$)') : self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
                    "must be an InferenceModel's name, or a URI (pvc://, https://, http://, file:///) without '..'",
                )
            ),
        ),
    ]
    model_version: Annotated[ShortText | None, Field(description="A version of the InferenceModel; its default otherwise.")] = None
    model_digest: Annotated[Digest | None, Field(description="Refuse any model file but this one.")] = None
    accelerator: Annotated[Accelerator, Field(description="gpu, cpu, or auto: the cheapest place that is in time.")] = (
        Accelerator.AUTO
    )
    deadline: Annotated[
        Instant | None,
        Field(description="When a batch must be finished, or a serving job ready. RFC 3339, for example 2026-04-02T12:00:00Z."),
    ] = None
    deadline_policy: Annotated[
        DeadlinePolicy, Field(description="Soft finishes late and says by how much; Firm stops and frees the device.")
    ] = DeadlinePolicy.SOFT
    priority: Annotated[int, Field(ge=0, le=1000, description="Higher goes first; equals go by deadline.")] = 0
    batch_size: Annotated[int, Field(ge=1, le=65536, description="The largest batch that is given to the model.")] = 1
    backend: Annotated[Backend, Field(description="What computes; auto goes by the model's format.")] = Backend.AUTO
    input: Annotated[Input | None, Field(description="What to run over; makes this a batch job.")] = None
    output: Annotated[Output | None, Field(description="Where a batch job writes its answers.")] = None
    serve: Annotated[Serve | None, Field(description="How a serving job is kept up.")] = None
    autoscaling: Annotated[Autoscaling | None, Field(description="Who moves the number of workers.")] = None
    replicas: Annotated[
        int,
        Field(ge=0, le=1000, description="Workers of a serving job. An autoscaler writes it through /scale: leave it out of Git."),
    ] = 1
    suspend: Annotated[bool, Field(description="Stop the workers and keep the job; a batch goes on where it was.")] = False
    ttl_seconds_after_finished: Annotated[
        int | None, Field(ge=0, le=31_536_000, description="Delete the job so long after it finished; never without it.")
    ] = None
    max_attempts: Annotated[int, Field(ge=1, le=100, description="How often a batch is tried before it fails.")] = 3
    resources: Annotated[Resources | None, Field(description="What each worker asks for.")] = None
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=32, description="Labels that a node must have.")] = Field(
        default_factory=dict
    )
    tolerations: Annotated[
        list[Toleration],
        Field(max_length=32, description="Taints to live with.", json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default_factory=list)
    template: Annotated[PodTemplate | None, Field(description="What to add to worker pods.")] = None


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
    """What a place would cost: total = latency + alpha * energy + beta * switch."""

    total: Annotated[float, Field(description="The sum that placement minimises, in seconds.")]
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
class Placement:
    """Where the work runs, and why there."""

    accelerator: Annotated[str, Field(max_length=63, description="The accelerator class.")]
    node: Annotated[ShortText, Field(description="The node.")]
    pod: Annotated[ShortText, Field(description="The worker pod; the newest of a serving job's.")]
    execution_provider: Annotated[
        str | None, Field(max_length=128, description="What really computes, as the worker reports it.")
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


@api_type()
class ModelStatus:
    """Which model really ran."""

    name: Annotated[ShortText, Field(description="The InferenceModel, or the URI's last part.")]
    version: Annotated[ShortText | None, Field(description="Its version.")] = None
    digest: Annotated[Digest | None, Field(description="sha256 of the file that was loaded.")] = None
    verified: Annotated[bool, Field(description="True when a digest was asked for and the loaded file has it.")] = False
    variant_digest: Annotated[Digest | None, Field(description="sha256 of the INT8 variant that ran in its place.")] = None
    backend: Annotated[Backend | None, Field(description="What computes it.")] = None
    backend_reason: Annotated[ShortText | None, Field(description="Why that back end.")] = None


@api_type()
class AttemptStatus:
    """The newest attempt of a batch."""

    number: Annotated[int, Field(ge=1, description="Counted from one.")]
    pod: Annotated[ShortText, Field(description="Its worker pod.")]
    outcome: Annotated[AttemptOutcome, Field(description="How it stands.")]
    reason: Annotated[str | None, Field(max_length=128, description="Why it ended so.")] = None
    message: Annotated[Message | None, Field(description="The worker's own words.")] = None
    end_time: Annotated[Instant | None, Field(description="When it ended.")] = None


@api_type()
class OutputStatus:
    """Where the answers are."""

    uri: Annotated[str | None, Field(max_length=2048, description="The directory with parts and manifest.")] = None
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


@api_type()
class QueueStatus:
    """How a job that waits for room stands. Written anew only when the expected start has moved by much."""

    position: Annotated[int, Field(ge=1, description="Its place among all that wait, by expected start.")]
    expected_start_time: Annotated[
        Instant | None, Field(description="When a place should be free for it; none where nothing known will free one in time.")
    ] = None


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
    progress: Annotated[ProgressStatus | None, Field(description="How far a batch is.")] = None
    energy: Annotated[EnergyStatus | None, Field(description="What a batch has cost, counted at each attempt's end.")] = None
    model: Annotated[ModelStatus | None, Field(description="Which model really ran.")] = None
    attempts: Annotated[int, Field(ge=0, description="Attempts that were started.")] = 0
    failed_attempts: Annotated[int, Field(ge=0, description="Attempts that failed by their own fault.")] = 0
    preemptions: Annotated[int, Field(ge=0, description="How often it made room for more urgent work.")] = 0
    last_attempt: Annotated[AttemptStatus | None, Field(description="The newest attempt of a batch.")] = None
    output: Annotated[OutputStatus | None, Field(description="Where the answers are.")] = None
    start_time: Annotated[Instant | None, Field(description="When the first worker was placed.")] = None
    completion_time: Annotated[Instant | None, Field(description="When the work ended, or first was ready to serve.")] = None
    replicas: Annotated[int, Field(ge=0, description="Workers that exist.")] = 0
    ready_replicas: Annotated[int, Field(ge=0, description="Workers that answer.")] = 0
    desired_replicas: Annotated[
        int | None, Field(ge=0, description="Workers of a serving job that the operator works towards: replicas within its bounds.")
    ] = None
    selector: Annotated[str | None, Field(max_length=1024, description="Selects the workers, for the scale subresource.")] = None
    endpoint: Annotated[str | None, Field(max_length=512, description="Where a serving job answers, inside the cluster.")] = None


def wanted_replicas(spec: InferenceJobSpec) -> int:
    """spec.replicas within the bounds of spec.serve."""
    serve = spec.serve or Serve()
    wanted = max(spec.replicas, serve.min_replicas)
    return min(wanted, serve.max_replicas) if serve.max_replicas is not None else wanted
