"""InferenceJob: one piece of inference work with a deadline. With `input` it is a batch, without it serves.

The module is longer than others: nearly all that a user may write of a job stands here.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from inference_operator.accelerators import AUTO, NAME_LIMIT, NAME_PATTERN
from inference_operator.api.cache import AnswerCache
from inference_operator.api.callers import Authentication, ServeTls
from inference_operator.api.gateway import ServeGateway
from inference_operator.api.resources import Resources
from inference_operator.api.schema import (
    Digest,
    InputLocation,
    Instant,
    LabelKey,
    LabelValue,
    ObjectName,
    OutputLocation,
    Rule,
    ShortText,
    api_type,
    validated,
)
from inference_operator.api.storage import Storage
from inference_operator.api.template import PodTemplate, Toleration

KIND = "InferenceJob"
PLURAL = "inferencejobs"

# Open: which names there are says the operator's settings, not the schema.
Accelerator = Annotated[str, Field(pattern=NAME_PATTERN, min_length=1, max_length=NAME_LIMIT)]


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


class SharedMemory(StrEnum):
    """Whether callers in the worker's pod may leave tensors in memory that they share with it."""

    NONE = "None"
    SYSTEM = "System"


class InputFormat(StrEnum):
    """How an input is to be read."""

    AUTO = "auto"
    NPY = "npy"
    NPZ = "npz"
    JSONL = "jsonl"
    CSV = "csv"
    FILES = "files"


@api_type(
    Rule("has(self.uri) != has(self.data)", "set exactly one of uri and data"),
    Rule("!has(self.uri) || !self.uri.matches('^https?://') || has(self.digest)", "an http(s) input needs its sha256 digest"),
    Rule(
        "!has(self.storage) || (has(self.uri) && self.uri.matches('^(s3|gs|hf)://'))",
        "storage of an input is for s3://, gs:// and hf://",
    ),
    Rule(
        "!has(self.storage) || !has(self.storage.awsRoleArn) || (has(self.uri) && self.uri.startsWith('s3://'))",
        "storage.awsRoleArn is for s3://",
    ),
)
class Input:
    """What a batch job reads: a location, or a small text given in place."""

    uri: Annotated[
        InputLocation | None,
        Field(description="A .npy, .npz, .jsonl or .csv file, a directory of raw files, or another job's output; in a bucket too."),
    ] = None
    storage: Annotated[Storage | None, Field(description="How the store of an s3://, gs:// or hf:// location is asked.")] = None
    data: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=65536,
            description="In place: JSON lines of objects from input names to values, or CSV if format says so.",
        ),
    ] = None
    format: Annotated[InputFormat, Field(description="How to read it; auto goes by the name's ending.")] = InputFormat.AUTO
    digest: Annotated[Digest | None, Field(description="sha256 of the input, checked before it is read.")] = None
    items: Annotated[
        int | None,
        Field(
            ge=1,
            le=2**53,
            description="How many items it holds, if known: lets the deadline be judged before a worker counts them.",
        ),
    ] = None
    allow_non_finite: Annotated[
        bool, Field(description="Let NaN and infinity through instead of refusing the input that holds them.")
    ] = False


@api_type(
    Rule("!has(self.storage) || self.uri.matches('^(s3|gs)://')", "storage of an output is for s3:// and gs://"),
    Rule("!has(self.storage) || !has(self.storage.awsRoleArn) || self.uri.startsWith('s3://')", "storage.awsRoleArn is for s3://"),
)
class Output:
    """Where a batch job writes: a directory that gets numbered chunks and two manifests."""

    uri: Annotated[
        OutputLocation,
        Field(
            description="A directory, as pvc://CLAIM/PATH, or a folder in a bucket, as s3://BUCKET/FOLDER or gs://BUCKET/FOLDER."
        ),
    ]
    storage: Annotated[Storage | None, Field(description="How the store of an s3:// or gs:// location is asked.")] = None


@api_type()
class Slack:
    """What batches may have of a service's workers: the time that its requests leave."""

    claims: Annotated[
        list[ShortText],
        Field(
            max_length=8,
            description="PersistentVolumeClaims that the workers mount for the inputs and outputs of batches, to read and write.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = Field(default_factory=list)


@api_type(
    Rule("!has(self.maxReplicas) || self.maxReplicas >= self.minReplicas", "maxReplicas must not be below minReplicas"),
    Rule("!has(self.authentication) || has(self.tls)", "authentication needs tls: set tls too, {} for the operator's certificate"),
    Rule(
        "!has(self.gateway) || !has(self.gateway.idleSeconds) || self.minReplicas == 0", "gateway.idleSeconds needs minReplicas 0"
    ),
    Rule(
        "!has(self.slack) || has(self.latencyTargetMilliseconds)",
        "slack needs latencyTargetMilliseconds, which says when a request is late",
    ),
    Rule(
        "!has(self.slack) || !has(self.modelControl) || self.modelControl != 'Explicit'",
        "slack is not for services whose callers may unload the model: leave out slack, or set modelControl to None",
    ),
)
class Serve:
    """How a serving job is kept up."""

    min_replicas: Annotated[int, Field(ge=0, le=1000, description="Workers that are always kept.")] = 1
    max_replicas: Annotated[int | None, Field(ge=1, le=1000, description="Workers at most, for autoscaling.")] = None
    latency_target_milliseconds: Annotated[
        int | None, Field(ge=1, le=600_000, description="The 95th percentile of request latency to hold.")
    ] = None
    headless: Annotated[
        bool,
        Field(description="Makes a second Service, NAME-headless, whose name resolves to the workers' own addresses."),
    ] = False
    until: Annotated[Instant | None, Field(description="When serving ends by itself; without it, never.")] = None
    model_control: Annotated[
        ModelControl,
        Field(
            description="Explicit lets callers reload and unload the model by the protocol's repository calls; None refuses that."
        ),
    ] = ModelControl.NONE
    shared_memory: Annotated[
        SharedMemory,
        Field(description="System lets containers of the worker's pod leave tensors in /dev/shm; None refuses that."),
    ] = SharedMemory.NONE
    tls: Annotated[ServeTls | None, Field(description="TLS for HTTP and gRPC; without it both are plain.")] = None
    authentication: Annotated[
        Authentication | None, Field(description="Who is let in; without it, whoever reaches the workers.")
    ] = None
    slack: Annotated[
        Slack | None,
        Field(
            description="Lets batches of this namespace on the same model run on the workers, while no request would be late "
            "for it; {} is enough for inputs and outputs in place. Without it, none does."
        ),
    ] = None
    gateway: Annotated[ServeGateway | None, Field(description="How the gateway, if it is enabled, leads callers here.")] = None
    cache: Annotated[AnswerCache | None, Field(description="Lets workers give answers again; {} is enough for equal inputs.")] = (
        None
    )


@api_type(
    Rule("self.mode == 'None' || self.mode == 'External' || self.mode == 'HPA'", "mode is one of None, HPA and External"),
)
class Autoscaling:
    """Who moves the number of workers."""

    mode: Annotated[
        AutoscalingMode,
        Field(description="None keeps spec.replicas; HPA lets the operator make an autoscaler; External leaves it to yours."),
    ] = AutoscalingMode.NONE


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
        "!self.model.matches('^(https?|s3|gs|hf|oci)://') || has(self.modelDigest)",
        "a model fetched over the network needs modelDigest (sha256:HEX), so that what runs is what you meant",
    ),
    Rule("!has(self.autoscaling) || self.autoscaling.mode == 'None' || !has(self.input)", "autoscaling is for serving jobs"),
    Rule(
        "!has(self.queueName) || has(self.input)",
        "queueName is for batch jobs: set input too, or leave queueName out; the quota of services is namespaceLimits",
    ),
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
                    "self.contains('://') ? self.matches('^(pvc|s3|gs|hf|oci|https|http|file)://[^ ]+$') && "
                    "!self.matches('(?i)(^|/)([.]|%2e){2}(/|$)') : self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
                    "must be an InferenceModel's name (its version goes into modelVersion), "
                    "or a URI (pvc://, s3://, gs://, hf://, oci://, https://, http://, file:///) without '..'",
                )
            ),
        ),
    ]
    model_version: Annotated[ShortText | None, Field(description="A version of the InferenceModel; its default otherwise.")] = None
    model_digest: Annotated[Digest | None, Field(description="Refuse any model file but this one.")] = None
    accelerator: Annotated[
        Accelerator,
        Field(description="A class of the chart's accelerators, for example gpu, or auto: the cheapest place that is in time."),
    ] = AUTO
    deadline: Annotated[
        Instant | None,
        Field(description="When a batch must be finished, or a serving job ready. RFC 3339, for example 2026-04-02T12:00:00Z."),
    ] = None
    deadline_policy: Annotated[
        DeadlinePolicy, Field(description="Soft finishes late and says by how much; Firm stops and frees the device.")
    ] = DeadlinePolicy.SOFT
    priority: Annotated[
        int,
        Field(
            ge=0, le=1000, description="Higher goes first; equals share fairly between namespaces, and go by deadline inside one."
        ),
    ] = 0
    queue_name: Annotated[
        ObjectName | None,
        Field(
            description="The LocalQueue of Kueue in this namespace by which a batch is admitted; only where the chart enables it."
        ),
    ] = None
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


def wanted_replicas(spec: InferenceJobSpec) -> int:
    """spec.replicas within the bounds of spec.serve."""
    serve = spec.serve or Serve()
    wanted = max(spec.replicas, serve.min_replicas)
    return min(wanted, serve.max_replicas) if serve.max_replicas is not None else wanted
