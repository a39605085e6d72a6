"""InferenceModel: a model's versions, and what has been measured of them.

All types of one kind in one module, longer than others: a reader of the kind finds them in one place.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from inference_operator.accelerators import AUTO
from inference_operator.api.conditions import Condition
from inference_operator.api.job import Accelerator, Backend
from inference_operator.api.resources import Resources
from inference_operator.api.schema import Digest, Instant, ModelLocation, Rule, ShortText, VolumeLocation, api_type
from inference_operator.api.storage import Storage
from inference_operator.api.template import PodTemplate

KIND = "InferenceModel"
PLURAL = "inferencemodels"

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class QuantizationMethod(StrEnum):
    """How weights and activations become INT8."""

    DYNAMIC = "Dynamic"
    STATIC = "Static"


@api_type(
    Rule("self.method == 'Dynamic' || has(self.calibration)", "Static needs calibration: rows that look like what will be asked"),
)
class QuantizationSpec:
    """An INT8 variant that workers make of the verified file, and run only if it is accurate enough."""

    method: Annotated[QuantizationMethod, Field(description="Dynamic for MatMul-heavy nets, Static for convolutions.")]
    evaluation: Annotated[VolumeLocation, Field(description="Rows (.npy or .npz) that original and variant are compared on.")]
    calibration: Annotated[VolumeLocation | None, Field(description="Rows that ranges are taken from; Static needs them.")] = None
    labels: Annotated[VolumeLocation | None, Field(description="The true class of each row of evaluation, a .npy.")] = None
    max_drop: Annotated[float, Field(ge=0, lt=1, description="How far the accuracy may fall, with labels.")] = 0.01
    min_agreement: Annotated[float, Field(gt=0, le=1, description="Share of answers that must be the same, without labels.")] = 0.99


class Datatype(StrEnum):
    """The Open Inference Protocol's names of numbers."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"


@api_type()
class TensorSpec:
    """One input or output."""

    name: Annotated[str, Field(min_length=1, max_length=128, description="The name that callers use.")]
    datatype: Annotated[Datatype, Field(description="Its type, for example FP32.")]
    shape: Annotated[
        list[Annotated[int, Field(ge=-1, le=2**31 - 1)]],
        Field(
            max_length=16, description="Sizes; -1 where any is allowed. A first one of -1 counts rows.", json_schema_extra=_ATOMIC
        ),
    ]


@api_type(
    Rule(
        "self.inputs.all(t, self.inputs.exists_one(o, o.name == t.name)) && "
        "self.outputs.all(t, self.outputs.exists_one(o, o.name == t.name))",
        "each input and each output needs a name of its own",
    ),
)
class SignatureSpec:
    """What a TorchScript file takes and gives, in the order of forward's arguments and results."""

    inputs: Annotated[list[TensorSpec], Field(min_length=1, max_length=32, description="The arguments.", json_schema_extra=_ATOMIC)]
    outputs: Annotated[list[TensorSpec], Field(min_length=1, max_length=32, description="The results.", json_schema_extra=_ATOMIC)]


@api_type(
    Rule(
        "(self.?format.orValue('onnx') == 'torchscript') == has(self.signature)",
        "signature is for torchscript, whose files do not say what they take, and torchscript needs it",
    ),
    Rule("self.?format.orValue('onnx') == 'onnx' || !has(self.quantization)", "quantization is for onnx"),
    Rule(
        "!self.uri.matches('^(https?|s3|gs|hf|oci)://') || has(self.digest)",
        "a version fetched over the network needs its digest (sha256:HEX)",
    ),
    Rule("!has(self.storage) || self.uri.matches('^(s3|gs|hf|oci)://')", "storage is for s3://, gs://, hf:// and oci://"),
    Rule("!has(self.storage) || !has(self.storage.awsRoleArn) || self.uri.startsWith('s3://')", "storage.awsRoleArn is for s3://"),
)
class ModelVersion:
    """One immutable file."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$",
                               description="The version's name, for example 2.")]  # fmt: skip
    uri: Annotated[
        ModelLocation,
        Field(description="Where the file is: pvc://, s3://, gs://, hf://, oci://, https://, http:// or file://."),
    ]
    digest: Annotated[Digest | None, Field(description="sha256 of the file; workers refuse any other.")] = None
    format: Annotated[str, Field(pattern="^(onnx|torchscript)$", max_length=16, description="onnx or torchscript.")] = "onnx"
    quantization: Annotated[QuantizationSpec | None, Field(description="Run an INT8 variant in its place.")] = None
    signature: Annotated[SignatureSpec | None, Field(description="What a torchscript file takes and gives.")] = None
    signature_uri: Annotated[
        ModelLocation | None, Field(description="Where the signature is (a Sigstore bundle); else model.sig beside the file.")
    ] = None
    storage: Annotated[
        Storage | None, Field(description="How the store of an s3://, gs://, hf:// or oci:// location is asked.")
    ] = None


class Sharing(StrEnum):
    """Whose jobs a warm pool takes beside those of its own model."""

    NONE = "None"
    SAME_NAMESPACE = "SameNamespace"


@api_type(
    Rule("!has(self.max) || self.max >= self.min", "max must not be below min"),
    Rule(
        "self.?sharing.orValue('None') == 'None' || self.?backend.orValue('auto') in ['auto', 'onnx']",
        "sharing needs backend onnx: what a model takes in another server's memory is not known before it is there",
    ),
)
class WarmPool:
    """Workers kept loaded: batch jobs of this namespace that ask for nothing special run on them, without a pod of their own."""

    min: Annotated[int, Field(ge=0, le=100, description="Warm workers that are always kept.")] = 0
    max: Annotated[
        int | None,
        Field(
            ge=1,
            le=1000,
            description="Warm workers at most: as many as there are jobs, within the bounds. Otherwise the larger of min and 1.",
        ),
    ] = None
    idle_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="How long an idle worker over the minimum stays before it is given back.")
    ] = 300
    accelerator: Annotated[Accelerator, Field(description="Their class; auto takes the cheapest one with room.")] = AUTO
    backend: Annotated[
        Backend,
        Field(description="What computes in them; auto goes by the model's format. Jobs on another back end get their own pod."),
    ] = Backend.AUTO
    batch_size: Annotated[
        int,
        Field(ge=1, le=65536, description="The largest batch that they are warmed for; jobs with a larger one get their own pod."),
    ] = 32
    claims: Annotated[
        list[ShortText],
        Field(
            max_length=8,
            description="PersistentVolumeClaims that they mount for inputs and outputs; jobs on other claims get their own pod.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = Field(default_factory=list)
    sharing: Annotated[
        Sharing,
        Field(
            description="SameNamespace lets these workers load other models of the namespace too, within their memory; whichever "
            "was used longest ago goes first."
        ),
    ] = Sharing.NONE


@api_type()
class AcceleratorResources:
    """What a worker asks for on one accelerator class."""

    accelerator: Annotated[str, Field(min_length=1, max_length=63, description="The class, for example gpu.")]
    resources: Annotated[Resources, Field(description="What a worker asks for there.")]


@api_type()
class DeclaredProfile:
    """What is expected of a model on one accelerator class before anything is measured there."""

    accelerator: Annotated[str, Field(min_length=1, max_length=63, description="The class, for example gpu.")]
    backend: Annotated[Backend, Field(description="The back end that it is expected of; auto is any of which no more is said.")] = (
        Backend.AUTO
    )
    items_per_second: Annotated[float, Field(gt=0, description="Expected throughput of one worker.")]
    load_seconds: Annotated[float, Field(ge=0, description="Expected time from process start to warmed up.")] = 3.0


@api_type(
    Rule(
        "!has(self.defaultVersion) || self.versions.exists(v, v.name == self.defaultVersion)",
        "defaultVersion must name one of versions",
    ),
    Rule(
        # orValue hides a string's length from the API server, which then refuses the rule as too dear.
        "!has(self.declaredProfiles) || self.declaredProfiles.all(p, self.declaredProfiles.exists_one(o, o.accelerator == "
        "p.accelerator && (has(o.backend) ? o.backend : 'auto') == (has(p.backend) ? p.backend : 'auto')))",
        "declaredProfiles must name each pair of accelerator and backend once",
    ),
)
class InferenceModelSpec:
    """A model's versions and how to keep it warm."""

    versions: Annotated[
        list[ModelVersion],
        Field(min_length=1, max_length=64, description="The versions; each is one immutable file.", json_schema_extra=_BY_NAME),
    ]
    default_version: Annotated[ShortText | None, Field(description="Taken by jobs that name none; else the last listed.")] = None
    warm_pool: Annotated[WarmPool | None, Field(description="Workers kept loaded.")] = None
    declared_profiles: Annotated[
        list[DeclaredProfile],
        Field(
            max_length=8,
            description="Expected speed by accelerator class and back end; what workers measure takes its place.",
            # As a map it would need backend in each item, or a default there.
            json_schema_extra=_ATOMIC,
        ),
    ] = Field(default_factory=list)
    template: Annotated[
        PodTemplate | None, Field(description="What to add to the pods of its workers; a job's own template goes before it.")
    ] = None
    resources: Annotated[
        list[AcceleratorResources],
        Field(
            max_length=8,
            description="What workers ask for, by accelerator class.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["accelerator"]},
        ),
    ] = Field(default_factory=list)


def most_workers(pool: WarmPool) -> int:
    """How many warm workers there may be."""
    return pool.max if pool.max is not None else max(pool.min, 1)


@api_type()
class Profile:
    """What was measured of one file on one accelerator class and back end, at one batch size."""

    digest: Annotated[Digest, Field(description="The file that ran: of an INT8 variant its own digest.")]
    variant_of: Annotated[Digest | None, Field(description="The file that an INT8 variant was made of.")] = None
    accelerator: Annotated[str, Field(max_length=63, description="The class.")]
    backend: Annotated[Backend, Field(description="What computed.")] = Backend.ONNX
    batch_size: Annotated[int, Field(ge=1, description="The batch size.")]
    items_per_second: Annotated[float, Field(ge=0, description="Throughput of one worker.")]
    load_seconds: Annotated[float, Field(ge=0, description="From process start to warmed up.")]
    memory_bytes: Annotated[int, Field(ge=0, description="Resident memory after warm-up.")] = 0
    device_bytes: Annotated[int, Field(ge=0, description="Memory of the device that it took, warm-up included.")] = 0
    spread: Annotated[
        float | None,
        Field(
            ge=0,
            description="How far measurements differ, as the mean distance of their logarithms: 0.1 is about 10 %; none of one.",
        ),
    ] = None
    samples: Annotated[int, Field(ge=1, description="Measurements behind it.")] = 1
    observed_time: Annotated[Instant, Field(description="When it was last measured.")]


@api_type()
class WarmPoolStatus:
    """How the warm workers stand."""

    workers: Annotated[int, Field(ge=0, description="Workers that exist.")] = 0
    ready: Annotated[int, Field(ge=0, description="Workers that take tasks.")] = 0
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=16,
            description="Observations: Ready, which says why there are not as many workers as wanted.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)


@api_type()
class ModelUsage:
    """The jobs that use the model. While there are any, they are counted every half minute."""

    jobs: Annotated[int, Field(ge=0, description="Jobs of its namespace that name it and have not ended.")]
    names: Annotated[
        list[ShortText], Field(max_length=10, description="The first ten of them, by name.", json_schema_extra=_ATOMIC)
    ] = Field(default_factory=list)
    observed_time: Annotated[Instant, Field(description="When they were counted.")]


@api_type()
class InferenceModelStatus:
    """What is known of the model."""

    observed_generation: Annotated[int, Field(ge=0, description="The spec's generation that this status is about.")] = 0
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=16,
            description="Observations: Ready, which says whether its spec can be used, InUse, and Stalled.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
    versions: Annotated[
        str | None, Field(max_length=1024, description="The names of its versions, for people; programs read spec.versions.")
    ] = None
    default_version: Annotated[ShortText | None, Field(description="The version that jobs take which name none.")] = None
    usage: Annotated[ModelUsage | None, Field(description="The jobs that use it.")] = None
    warm_pool: Annotated[WarmPoolStatus | None, Field(description="How the warm workers stand.")] = None
    profiles: Annotated[
        list[Profile],
        Field(
            max_length=128,
            description="Measured speed by file, accelerator class, back end and batch size.",
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["digest", "accelerator", "backend", "batchSize"],
            },
        ),
    ] = Field(default_factory=list)
