"""The types of the API `inference.myorg/v1`, frozen. Made by `make crds`; edit the operator's api/ instead.

All types in one module, longer than others, as in the reference. Fields are strings where the API has a closed list, so that
the word of a newer operator is read as it is; the classes with the list's name hold the words.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all types of the API are: frozen, compared by value, written in camelCase without what is not set."""


class Resources(Value, frozen=True, kw_only=True):
    """What each worker container asks for, over the accelerator itself."""

    # Reserved on the node, for example cpu and memory.
    requests: Mapping[str, Any] = {}
    # Never exceeded; by default memory is limited to its request.
    limits: Mapping[str, Any] = {}


class AcceleratorResources(Value, frozen=True, kw_only=True):
    """What a worker asks for on one accelerator class."""

    # The class, for example gpu.
    accelerator: str
    # What a worker asks for there.
    resources: Resources


class CostTerms(Value, frozen=True, kw_only=True):
    """What a place would cost: its total is the sum of latencySeconds, energyJoules and switchSeconds, each times its weight."""

    # The sum that placement minimises, in seconds.
    total: float
    # What a second counts: less where the deadline leaves time.
    latency_weight: float = 1.0
    # What a joule counts, in seconds: the setting alpha.
    energy_weight: float = 0.0
    # What a second of loading counts beside: the setting beta.
    switch_weight: float = 0.0
    # Expected seconds until done there.
    latency_seconds: float
    # Modelled from the declared watts of the accelerator class.
    energy_joules: float
    # Seconds to load the model there; nothing on a warm worker.
    switch_seconds: float
    # True while no measurement of this model on this class stands behind it.
    estimated: bool


class Alternative(Value, frozen=True, kw_only=True):
    """A place that was not taken, and why."""

    # Its accelerator class.
    accelerator: str
    # The node; none when the reason holds for a whole class.
    node: str | None = None
    # Why it was not taken.
    reason: str
    # What it would have cost, where it could have run.
    cost: CostTerms | None = None


class FrameReuse(Value, frozen=True, kw_only=True):
    """When the answer to a stream's frame is used again for later ones."""

    # Least structural similarity (SSIM) to the frame that the answer was computed from; below it, a frame is computed anew.
    similarity: float = 0.95
    # Streams that each worker keeps a frame of.
    max_streams: int = 64
    # Memory of each worker for frames and their answers.
    max_bytes: int = 67108864
    # After so long, a frame is computed anew though the scene is still.
    max_age_seconds: int = 10


class AnswerCache(Value, frozen=True, kw_only=True):
    """What each worker keeps. Requests with a sequence_id, and models that answer the same differently, go past it."""

    # Memory of each worker for answers to the same bytes; it comes on top of what the model needs.
    max_bytes: int = 67108864
    # How old an answer may be that is given again.
    max_age_seconds: int = 60
    # Uses answers again for like frames of one stream (stream_id); {} is enough. Without it, bytes decide.
    frames: FrameReuse | None = None


class AttemptOutcome(StrEnum):
    """How an attempt stands. A disrupted one (node lost, preempted, moved) does not count against maxAttempts."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DISRUPTED = "Disrupted"


class AttemptStatus(Value, frozen=True, kw_only=True):
    """The newest attempt of a batch."""

    # Counted from one.
    number: int
    # Its worker pod.
    pod: str
    # How it stands.
    outcome: str
    # The node that it was on, or was given.
    node: str | None = None
    # Why it ended so.
    reason: str | None = None
    # The worker's own words.
    message: str | None = None
    # When it ended.
    end_time: datetime | None = None


class ClientCertificates(Value, frozen=True, kw_only=True):
    """Callers who are let in by a certificate."""

    # A Secret whose ca.crt has signed the callers' certificates.
    ca_secret_name: str


class Jwt(Value, frozen=True, kw_only=True):
    """Callers who are let in by a bearer token, which is checked without asking anybody."""

    # What iss has to be.
    issuer: str
    # What aud has to name one of.
    audiences: tuple[str, ...]
    # A Secret whose jwks.json has the issuer's public keys.
    jwks_secret_name: str


class Authentication(Value, frozen=True, kw_only=True):
    """Who is let in. Where both ways are set, either is enough."""

    # By a certificate.
    client_certificates: ClientCertificates | None = None
    # By a bearer token.
    jwt: Jwt | None = None


class AutoscalingMode(StrEnum):
    """Who writes `spec.replicas` after creation."""

    NONE = "None"
    HPA = "HPA"
    EXTERNAL = "External"


class Autoscaling(Value, frozen=True, kw_only=True):
    """Who moves the number of workers."""

    # None keeps spec.replicas; HPA lets the operator make an autoscaler; External leaves it to yours.
    mode: str = "None"


class Backend(StrEnum):
    """What computes."""

    AUTO = "auto"
    ONNX = "onnx"
    TRITON = "triton"
    TORCHSCRIPT = "torchscript"


class BackgroundTask(Value, frozen=True, kw_only=True):
    """A batch that runs in the slack of a service. Written anew only when its share has moved by much."""

    # The batch, an InferenceJob of the same namespace.
    job: str
    # The service's worker that runs it.
    pod: str
    # Runs of the model that it has had there.
    runs: int = 0
    # The share of the worker's time that these took; absent before the first.
    device_share: float | None = None
    # When this was measured.
    observed_time: datetime


class Truth(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Value, frozen=True, kw_only=True):
    """One observation about an object, in the form of meta/v1 Condition."""

    # What is observed.
    type: str
    # Whether it holds.
    status: str
    # Why, in one word of a closed list.
    reason: str
    # Why, and what to do about it, for people.
    message: str
    # When the status last changed.
    last_transition_time: datetime
    # The spec's generation that this speaks about.
    observed_generation: int = 0


class KeyFile(Value, frozen=True, kw_only=True):
    """A key that becomes a file."""

    # The key.
    key: str
    # The file, below the mount.
    path: str


class ConfigMapVolume(Value, frozen=True, kw_only=True):
    """A ConfigMap of the job's namespace as files."""

    # Which keys; all without it.
    items: tuple[KeyFile, ...] = ()
    # Its name.
    name: str
    # Whether the pod starts without it.
    optional: bool = False


class ContainerMount(Value, frozen=True, kw_only=True):
    """Where a container beside the worker finds a volume of the template."""

    # The volume.
    name: str
    # A path of the container's own.
    mount_path: str
    # Whether nobody writes there.
    read_only: bool = False


class FieldReference(Value, frozen=True, kw_only=True):
    """A field of the pod itself."""

    # For example metadata.name, spec.nodeName or metadata.labels['team'].
    field_path: str


class KeyReference(Value, frozen=True, kw_only=True):
    """A key of a Secret or a ConfigMap of the job's namespace."""

    # Its name.
    name: str
    # The key in it.
    key: str
    # Whether the pod starts without it.
    optional: bool = False


class VariableSource(Value, frozen=True, kw_only=True):
    """Where a variable's value comes from."""

    # A Secret's key; the setting podTemplate.secrets has to list the Secret.
    secret_key_ref: KeyReference | None = None
    # A ConfigMap's key.
    config_map_key_ref: KeyReference | None = None
    # A field of the pod.
    field_ref: FieldReference | None = None


class ContainerVariable(Value, frozen=True, kw_only=True):
    """A variable of a container beside the worker."""

    # Its name.
    name: str
    # Its value.
    value: str = ""
    # Where its value comes from instead.
    value_from: VariableSource | None = None


class Container(Value, frozen=True, kw_only=True):
    """A container beside the worker. It runs as restricted as the worker, and sees the template's volumes alone."""

    # In place of the image's entry point.
    command: tuple[str, ...] = ()
    # Arguments.
    args: tuple[str, ...] = ()
    # Variables.
    env: tuple[ContainerVariable, ...] = ()
    # Volumes of the template.
    volume_mounts: tuple[ContainerMount, ...] = ()
    # Its name.
    name: str
    # Its image; the setting podTemplate.images has to list it.
    image: str
    # Requests and limits; they count when a node is chosen. A device is none of its.
    resources: Resources | None = None


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


class DeadlinePolicy(StrEnum):
    """What happens to work that is not done by its deadline."""

    SOFT = "Soft"
    FIRM = "Firm"


class Outlook(StrEnum):
    """Whether the deadline will be, or was, kept."""

    UNKNOWN = "Unknown"
    ON_TIME = "OnTime"
    AT_RISK = "AtRisk"
    MISSED = "Missed"
    MET = "Met"


class DeadlineStatus(Value, frozen=True, kw_only=True):
    """How the job stands to its deadline."""

    # The deadline.
    time: datetime
    # When it will be finished or ready, as far as is known; the real time once it is.
    estimated_completion_time: datetime | None = None
    # Deadline less completion; negative is late.
    slack_seconds: int | None = None
    # OnTime, AtRisk, Missed, Met, or Unknown before there is a measurement.
    outlook: str


class DeclaredProfile(Value, frozen=True, kw_only=True):
    """What is expected of a model on one accelerator class before anything is measured there."""

    # The class, for example gpu.
    accelerator: str
    # The back end that it is expected of; auto is any of which no more is said.
    backend: str = "auto"
    # Expected throughput of one worker.
    items_per_second: float
    # Expected time from process start to warmed up.
    load_seconds: float = 3.0


class DeviceRuns(StrEnum):
    """How a device is spared what a change of the number of rows costs it."""

    CAPTURED = "Captured"
    SESSION_PER_SIZE = "SessionPerSize"
    ONE_SESSION = "OneSession"


class EmptyDirectory(Value, frozen=True, kw_only=True):
    """A directory that lives as long as the pod."""

    # As text; the kubelet ends a pod that holds more.
    size_limit: str = "1Gi"


class EnergyMeter(StrEnum):
    """Who reads the counter of a device."""

    EXPORTER = "Exporter"
    WORKER = "Worker"


class EnergySource(StrEnum):
    """Where a figure of energy comes from."""

    MODELLED = "Modelled"
    MEASURED = "Measured"


class EnergyStatus(Value, frozen=True, kw_only=True):
    """What the work has cost so far, all attempts together."""

    # Energy of the devices while they were held.
    joules: float
    # The same for each answered item, once there are any.
    joules_per_item: float | None = None
    # Measured: every attempt by its devices' own counters. Modelled: one attempt or more by the declared watts of its
    # accelerator class, times seconds.
    source: str = "Modelled"
    # Who read the last attempt's counters: Exporter (dcgm-exporter), or Worker (the worker itself, by NVML). Absent where the
    # source is Modelled.
    meter: str | None = None


class ObjectReference(Value, frozen=True, kw_only=True):
    """A Secret or a ConfigMap of the job's namespace."""

    # Its name.
    name: str
    # Whether the pod starts without it.
    optional: bool = False


class EnvironmentFrom(Value, frozen=True, kw_only=True):
    """All entries of a ConfigMap or a Secret, as variables of the worker container."""

    # Before each name; the setting podTemplate has to allow all names that begin so, as it allows APP_.
    prefix: str
    # A ConfigMap.
    config_map_ref: ObjectReference | None = None
    # A Secret; the setting podTemplate.secrets has to list it.
    secret_ref: ObjectReference | None = None


class EnvironmentVariable(Value, frozen=True, kw_only=True):
    """A variable set in the worker container."""

    # The variable's name: one of those that the setting podTemplate allows.
    name: str
    # Its value.
    value: str = ""
    # Where its value comes from instead.
    value_from: VariableSource | None = None


class HostAlias(Value, frozen=True, kw_only=True):
    """Names of hosts that the pod finds at an address, without DNS."""

    # The address.
    ip: str
    # The names; the setting podTemplate.hostAliases has to list each.
    hostnames: tuple[str, ...]


class InputFormat(StrEnum):
    """How an input is to be read."""

    AUTO = "auto"
    NPY = "npy"
    NPZ = "npz"
    JSONL = "jsonl"
    CSV = "csv"
    FILES = "files"


class SecretReference(Value, frozen=True, kw_only=True):
    """A Secret of the same namespace."""

    # Its name; the administrator's admissionPolicy.secrets has to list it.
    name: str


class Storage(Value, frozen=True, kw_only=True):
    """Who asks a store, and where the store is."""

    # Of s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_ENDPOINT_URL, AWS_REGION, AWS_CA_BUNDLE; of gs:
    # GOOGLE_APPLICATION_CREDENTIALS, GCS_ENDPOINT_URL; of hf: HF_TOKEN, HF_ENDPOINT; of oci: .dockerconfigjson; ca.crt of
    # all. Workers see no other key.
    secret_ref: SecretReference | None = None
    # The role that workers assume by a token of the namespace's ServiceAccount default; goes before keys.
    aws_role_arn: str | None = None


class Input(Value, frozen=True, kw_only=True):
    """What a batch job reads: a location, or a small text given in place."""

    # A .npy, .npz, .jsonl or .csv file, a directory of raw files, or another job's output; in a bucket too.
    uri: str | None = None
    # How the store of an s3://, gs:// or hf:// location is asked.
    storage: Storage | None = None
    # In place: JSON lines of objects from input names to values, or CSV if format says so.
    data: str | None = None
    # How to read it; auto goes by the name's ending.
    format: str = "auto"
    # sha256 of the input, checked before it is read.
    digest: str | None = None
    # How many items it holds, if known: lets the deadline be judged before a worker counts them.
    items: int | None = None
    # Let NaN and infinity through instead of refusing the input that holds them.
    allow_non_finite: bool = False


class Output(Value, frozen=True, kw_only=True):
    """Where a batch job writes: a directory that gets numbered chunks and two manifests."""

    # A directory, as pvc://CLAIM/PATH, or a folder in a bucket, as s3://BUCKET/FOLDER or gs://BUCKET/FOLDER.
    uri: str
    # How the store of an s3:// or gs:// location is asked.
    storage: Storage | None = None


class RunAs(Value, frozen=True, kw_only=True):
    """Who the pod's processes are. The setting podTemplate.ids has to allow each number."""

    # Further groups.
    supplemental_groups: tuple[int, ...] = ()
    # The user.
    run_as_user: int | None = None
    # The group.
    run_as_group: int | None = None
    # The group that volumes are given to.
    fs_group: int | None = None


class SecretVolume(Value, frozen=True, kw_only=True):
    """Keys of a Secret of the job's namespace as files."""

    # Its name; the setting podTemplate.secrets has to list it.
    secret_name: str
    # Which keys.
    items: tuple[KeyFile, ...]
    # Whether the pod starts without it.
    optional: bool = False


class Volume(Value, frozen=True, kw_only=True):
    """A volume of the pod."""

    # The name that mounts refer to.
    name: str
    # A directory of the pod's own.
    empty_dir: EmptyDirectory | None = None
    # A ConfigMap.
    config_map: ConfigMapVolume | None = None
    # A Secret.
    secret: SecretVolume | None = None


class VolumeMount(Value, frozen=True, kw_only=True):
    """Where the worker container finds a volume of the template."""

    # The volume.
    name: str
    # A path below /mnt/extra: nothing is mounted over the image or over what the operator mounts.
    mount_path: str
    # Whether nobody writes there.
    read_only: bool = False


class PodTemplate(Value, frozen=True, kw_only=True):
    """What users may add to worker pods, which stay at Pod Security's level restricted whatever it says."""

    # Labels added to worker pods.
    labels: Mapping[str, str] = {}
    # Annotations added.
    annotations: Mapping[str, str] = {}
    # Environment of the worker container.
    env: tuple[EnvironmentVariable, ...] = ()
    # Secrets to pull images with.
    image_pull_secrets: tuple[str, ...] = ()
    # Further variables of the worker container, from ConfigMaps and Secrets.
    env_from: tuple[EnvironmentFrom, ...] = ()
    # Volumes beside those of models and data.
    volumes: tuple[Volume, ...] = ()
    # Where the worker container finds them.
    volume_mounts: tuple[VolumeMount, ...] = ()
    # Containers that end before the worker starts, one after the other.
    init_containers: tuple[Container, ...] = ()
    # Containers that run beside the worker. They start before it, and end after it.
    sidecars: tuple[Container, ...] = ()
    # Hosts that the pods find without DNS.
    host_aliases: tuple[HostAlias, ...] = ()
    # The pods' PriorityClass.
    priority_class_name: str | None = None
    # The pods' RuntimeClass.
    runtime_class_name: str | None = None
    # The pods' ServiceAccount, for registries and identities of clouds. They get no token of it.
    service_account_name: str | None = None
    # Who their processes are.
    security_context: RunAs | None = None


class ModelControl(StrEnum):
    """Whether callers may load and unload models."""

    NONE = "None"
    EXPLICIT = "Explicit"


class TrafficDistribution(StrEnum):
    """Which workers an Envoy asks first."""

    PREFER_SAME_ZONE = "PreferSameZone"


class ServeGateway(Value, frozen=True, kw_only=True):
    """What the gateway does with requests for this version of the model. Of several jobs on one version, the first by name says."""

    # Share of the requests that name no version which this version gets once a worker is ready (a canary); the model's
    # default version gets the rest.
    traffic_percent: int | None = None
    # Share of the requests that name no version of which this version gets a copy; nobody sees its answers.
    mirror_percent: int = 0
    # Lets all workers go after so long without a request; the next through the gateway waits for a new one. It needs
    # minReplicas 0. Without it, workers stay.
    idle_seconds: int | None = None
    # Requests that one Envoy has under way here at most, for each protocol; more get 429 with Retry-After. Without it, the
    # workers alone say when they are full.
    max_parallel_requests: int | None = None
    # A header or metadata key, for example session-id. Requests with one value go to one worker, unless it has half as many
    # again as the others.
    affinity_header: str | None = None
    # PreferSameZone keeps requests in the Envoy's zone while most of the workers there are healthy.
    traffic_distribution: str | None = None


class ServeTls(Value, frozen=True, kw_only=True):
    """TLS on the ports of a serving job's workers. Without a Secret the operator's own authority signs for its Service's names."""

    # A Secret with tls.crt and tls.key, as cert-manager writes it; a changed one is taken up while running.
    secret_name: str | None = None


class SharedMemory(StrEnum):
    """Whether callers in the worker's pod may leave tensors in memory that they share with it."""

    NONE = "None"
    SYSTEM = "System"


class Slack(Value, frozen=True, kw_only=True):
    """What batches may have of a service's workers: the time that its requests leave."""

    # PersistentVolumeClaims that the workers mount for the inputs and outputs of batches, to read and write.
    claims: tuple[str, ...] = ()


class Serve(Value, frozen=True, kw_only=True):
    """How a serving job is kept up."""

    # Workers that are always kept.
    min_replicas: int = 1
    # Workers at most, for autoscaling.
    max_replicas: int | None = None
    # The 95th percentile of request latency to hold.
    latency_target_milliseconds: int | None = None
    # Makes a second Service, NAME-headless, whose name resolves to the workers' own addresses.
    headless: bool = False
    # When serving ends by itself; without it, never.
    until: datetime | None = None
    # Explicit lets callers reload and unload the model by the protocol's repository calls; None refuses that.
    model_control: str = "None"
    # System lets containers of the worker's pod leave tensors in /dev/shm; None refuses that.
    shared_memory: str = "None"
    # TLS for HTTP and gRPC; without it both are plain.
    tls: ServeTls | None = None
    # Who is let in; without it, whoever reaches the workers.
    authentication: Authentication | None = None
    # Lets batches of this namespace on the same model run on the workers, while no request would be late for it; {} is enough
    # for inputs and outputs in place. Without it, none does.
    slack: Slack | None = None
    # How the gateway, if it is enabled, leads callers here.
    gateway: ServeGateway | None = None
    # Lets workers give answers again; {} is enough for equal inputs.
    cache: AnswerCache | None = None


class Toleration(Value, frozen=True, kw_only=True):
    """A toleration as in core/v1."""

    # The taint's key, which must be there.
    key: str | None = None
    # Exists or Equal.
    operator: str = "Equal"
    # The taint's value, for Equal.
    value: str | None = None
    # The taint's effect; none is all.
    effect: str | None = None
    # How long NoExecute is tolerated; a service starts on no node that would end it.
    toleration_seconds: int | None = None


class InferenceJobSpec(Value, frozen=True, kw_only=True):
    """What to run, on what, and by when."""

    # Labels that a node must have.
    node_selector: Mapping[str, str] = {}
    # Taints to live with.
    tolerations: tuple[Toleration, ...] = ()
    # The name of an InferenceModel in this namespace, or a URI of an ONNX file.
    model: str
    # A version of the InferenceModel; its default otherwise.
    model_version: str | None = None
    # Refuse any model file but this one.
    model_digest: str | None = None
    # A class of the chart's accelerators, for example gpu, or auto: the cheapest place that is in time.
    accelerator: str = "auto"
    # When a batch must be finished, or a serving job ready. RFC 3339, for example 2026-04-02T12:00:00Z.
    deadline: datetime | None = None
    # Soft finishes late and says by how much; Firm stops and frees the device.
    deadline_policy: str = "Soft"
    # Higher goes first; equals share fairly between namespaces, and go by deadline inside one.
    priority: int = 0
    # The LocalQueue of Kueue in this namespace by which a batch is admitted; only where the chart enables it.
    queue_name: str | None = None
    # The largest batch that is given to the model.
    batch_size: int = 1
    # What computes; auto goes by the model's format.
    backend: str = "auto"
    # What to run over; makes this a batch job.
    input: Input | None = None
    # Where a batch job writes its answers.
    output: Output | None = None
    # How a serving job is kept up.
    serve: Serve | None = None
    # Who moves the number of workers.
    autoscaling: Autoscaling | None = None
    # Workers of a serving job. An autoscaler writes it through /scale: leave it out of Git.
    replicas: int = 1
    # Stop the workers and keep the job; a batch goes on where it was.
    suspend: bool = False
    # Delete the job so long after it finished; never without it.
    ttl_seconds_after_finished: int | None = None
    # How often a batch is tried before it fails.
    max_attempts: int = 3
    # What each worker asks for.
    resources: Resources | None = None
    # What to add to worker pods.
    template: PodTemplate | None = None


class LatencyStatus(Value, frozen=True, kw_only=True):
    """Measured latency in milliseconds: of requests when serving, of items in a batch (an item waits for its whole batch)."""

    # Median, milliseconds.
    p50: float
    # 95th percentile, milliseconds.
    p95: float
    # 99th percentile, milliseconds.
    p99: float
    # Observations.
    count: int
    # Over how long; none is the whole run.
    window_seconds: int | None = None
    # When this was measured.
    observed_time: datetime


class SigningMethod(StrEnum):
    """What a signature rests on."""

    KEY = "Key"
    CERTIFICATE = "Certificate"
    KEYLESS = "Keyless"


class SignatureStatus(Value, frozen=True, kw_only=True):
    """Who signed the model that ran."""

    # The key's name in the settings, or for whom the certificate is.
    signer: str
    # What the signature rests on.
    method: str
    # When a worker first verified it of this file.
    verified_time: datetime


class ModelStatus(Value, frozen=True, kw_only=True):
    """Which model really ran."""

    # The InferenceModel, or the URI's last part.
    name: str
    # Its version.
    version: str | None = None
    # sha256 of the file that was loaded.
    digest: str | None = None
    # True when a digest was asked for and the loaded file has it.
    verified: bool = False
    # Who signed it; absent where no signature is asked for.
    signature: SignatureStatus | None = None
    # sha256 of the INT8 variant that ran in its place.
    variant_digest: str | None = None
    # What computes it.
    backend: str | None = None
    # Why that back end.
    backend_reason: str | None = None
    # Why requests do not share a run; absent where they do, or before the model is loaded.
    not_batched_because: str | None = None
    # How the device is spared changes of the number of rows; absent on CPUs.
    device_runs: str | None = None
    # Why runs are not replayed from CUDA graphs; absent where they are, and on CPUs.
    not_captured_because: str | None = None
    # Why the service's cache is not used; absent where it is, and without one.
    not_cached_because: str | None = None


class OutputStatus(Value, frozen=True, kw_only=True):
    """Where the answers are."""

    # The directory with chunks and manifests.
    uri: str | None = None
    # Small answers in place, as JSON lines.
    data: str | None = None


class SlackPlacement(Value, frozen=True, kw_only=True):
    """The service in whose slack a batch runs."""

    # The serving InferenceJob, of the same namespace.
    service: str
    # The share of the worker's time that the batch was reckoned with when it was placed.
    share: float


class Placement(Value, frozen=True, kw_only=True):
    """Where the work runs, and why there."""

    # The best places not taken.
    alternatives: tuple[Alternative, ...] = ()
    # The accelerator class.
    accelerator: str
    # The node.
    node: str
    # The worker pod; the newest of a serving job's.
    pod: str
    # What really computes, as the worker reports it.
    execution_provider: str | None = None
    # Set where a batch runs behind the requests of a service; absent elsewhere.
    slack: SlackPlacement | None = None
    # What this place costs.
    cost: CostTerms
    # When this was decided.
    decision_time: datetime


class PreemptionStatus(Value, frozen=True, kw_only=True):
    """A preemption: when, and for the work of which namespace."""

    # When it was decided.
    time: datetime
    # The namespace of the job that needed the place.
    namespace: str


class ProgressStatus(Value, frozen=True, kw_only=True):
    """How far a batch is, in items."""

    # Items of the input.
    total: int
    # Items whose answers are committed.
    completed: int
    # Items that the model refused.
    failed: int = 0


class ProvisioningStatus(Value, frozen=True, kw_only=True):
    """New nodes of an accelerator class that the job has asked for by placeholder pods."""

    # The accelerator class.
    accelerator: str
    # When the node that is to come, or came last, was asked for.
    request_time: datetime | None = None
    # The node that came last, and took the job.
    node: str | None = None
    # From its request until the job had its place there.
    seconds: float | None = None
    # How often in a row no node came in time.
    timeouts: int = 0
    # When a node is asked for again, after one that did not come.
    retry_time: datetime | None = None
    # What kept the last node that did not come, as far as is known.
    message: str | None = None


class QueueStatus(Value, frozen=True, kw_only=True):
    """How a job that waits for room stands. Written anew only when the expected start has moved by much."""

    # Its place among all that wait, by expected start.
    position: int
    # When a place should be free for it; none where nothing known will free one in time.
    expected_start_time: datetime | None = None


class QuantizationMethod(StrEnum):
    """How weights and activations become INT8."""

    DYNAMIC = "Dynamic"
    STATIC = "Static"


class QuantizationSpec(Value, frozen=True, kw_only=True):
    """An INT8 variant that workers make of the verified file, and run only if it is accurate enough."""

    # Dynamic for MatMul-heavy nets, Static for convolutions.
    method: str
    # Rows (.npy or .npz) that original and variant are compared on.
    evaluation: str
    # Rows that ranges are taken from; Static needs them.
    calibration: str | None = None
    # The true class of each row of evaluation, a .npy.
    labels: str | None = None
    # How far the accuracy may fall, with labels.
    max_drop: float = 0.01
    # Share of answers that must be the same, without labels.
    min_agreement: float = 0.99


class TensorSpec(Value, frozen=True, kw_only=True):
    """One input or output."""

    # The name that callers use.
    name: str
    # Its type, for example FP32.
    datatype: str
    # Sizes; -1 where any is allowed. A first one of -1 counts rows.
    shape: tuple[int, ...]


class SignatureSpec(Value, frozen=True, kw_only=True):
    """What a TorchScript file takes and gives, in the order of forward's arguments and results."""

    # The arguments.
    inputs: tuple[TensorSpec, ...]
    # The results.
    outputs: tuple[TensorSpec, ...]


class ModelVersion(Value, frozen=True, kw_only=True):
    """One immutable file."""

    # The version's name, for example 2.
    name: str
    # Where the file is: pvc://, s3://, gs://, hf://, oci://, https://, http:// or file://.
    uri: str
    # sha256 of the file; workers refuse any other.
    digest: str | None = None
    # onnx or torchscript.
    format: str = "onnx"
    # Run an INT8 variant in its place.
    quantization: QuantizationSpec | None = None
    # What a torchscript file takes and gives.
    signature: SignatureSpec | None = None
    # Where the signature is (a Sigstore bundle); else model.sig beside the file.
    signature_uri: str | None = None
    # How the store of an s3://, gs://, hf:// or oci:// location is asked.
    storage: Storage | None = None


class ResolvedModel(Value, frozen=True, kw_only=True):
    """What a job that has begun has read of its InferenceModel, and goes on with should the InferenceModel be deleted."""

    # What the InferenceModel asks for, by accelerator class.
    resources: tuple[AcceleratorResources, ...] = ()
    # The InferenceModel.
    name: str
    # The version that workers are made of.
    version: ModelVersion
    # What the InferenceModel adds to its workers' pods.
    template: PodTemplate | None = None


class InferenceJobStatus(Value, frozen=True, kw_only=True):
    """What is so."""

    # Observations: Accepted, Placed, Ready, Succeeded, Suspended, Autoscaled, Reconciling, Stalled.
    conditions: tuple[Condition, ...] = ()
    # The spec's generation that this status is about.
    observed_generation: int = 0
    # One word for people; programs read the conditions.
    phase: str | None = None
    # The summary condition's reason, for people.
    reason: str | None = None
    # How the job stands to its deadline.
    deadline: DeadlineStatus | None = None
    # Where it runs, and why there.
    placement: Placement | None = None
    # Measured latency.
    latency: LatencyStatus | None = None
    # How it stands in the queue, while it waits for room.
    queue: QueueStatus | None = None
    # New nodes that the job has asked for, by accelerator class. Absent where it has asked for none.
    provisioning: tuple[ProvisioningStatus, ...] | None = ()
    # How far a batch is.
    progress: ProgressStatus | None = None
    # What a batch has cost, counted at each attempt's end.
    energy: EnergyStatus | None = None
    # Which model really ran.
    model: ModelStatus | None = None
    # What new workers are made of; from the first worker to the end, for jobs that name an InferenceModel.
    resolved_model: ResolvedModel | None = None
    # Attempts that were started.
    attempts: int = 0
    # Attempts, or workers of a service, that failed by their own fault; also workers that nodes turned away.
    failed_attempts: int = 0
    # How often it made room for more urgent work.
    preemptions: int = 0
    # The last time that it made room.
    last_preemption: PreemptionStatus | None = None
    # The newest attempt of a batch.
    last_attempt: AttemptStatus | None = None
    # Where the answers are.
    output: OutputStatus | None = None
    # Since when it claims its output from a later job of its name, which a restored etcd doesn't have.
    output_claim_time: datetime | None = None
    # When the first worker was placed.
    start_time: datetime | None = None
    # When all wanted workers of a serving job were first ready.
    ready_time: datetime | None = None
    # When the job ended.
    completion_time: datetime | None = None
    # A hash of the spec that the job ended with, without ttlSecondsAfterFinished.
    ended_spec: str | None = None
    # Workers that exist.
    replicas: int = 0
    # Workers that answer.
    ready_replicas: int = 0
    # Workers of a serving job that the operator works towards: replicas within its bounds.
    desired_replicas: int | None = None
    # Since when a serving job has no workers for want of requests; absent while it has.
    asleep_since: datetime | None = None
    # The asleepSince that a request has ended. Whichever replica of the operator holds the request writes it.
    woken_from: datetime | None = None
    # The revision that all workers of a serving job had last; a roll-out that ends changes it.
    current_revision: str | None = None
    # Selects the workers, for the scale subresource.
    selector: str | None = None
    # Batches that run in the slack of a service now: the first sixteen, by worker. Absent without any.
    background_tasks: tuple[BackgroundTask, ...] | None = ()
    # Where a serving job answers, inside the cluster.
    endpoint: str | None = None


class Sharing(StrEnum):
    """Whose jobs a warm pool takes beside those of its own model."""

    NONE = "None"
    SAME_NAMESPACE = "SameNamespace"


class WarmPool(Value, frozen=True, kw_only=True):
    """Workers kept loaded: batch jobs of this namespace that ask for nothing special run on them, without a pod of their own."""

    # PersistentVolumeClaims that they mount for inputs and outputs; jobs on other claims get their own pod.
    claims: tuple[str, ...] = ()
    # Warm workers that are always kept.
    min: int = 0
    # Warm workers at most: as many as there are jobs, within the bounds. Otherwise the larger of min and 1.
    max: int | None = None
    # How long an idle worker over the minimum stays before it is given back.
    idle_seconds: int = 300
    # Their class; auto takes the cheapest one with room.
    accelerator: str = "auto"
    # What computes in them; auto goes by the model's format. Jobs on another back end get their own pod.
    backend: str = "auto"
    # The largest batch that they are warmed for; jobs with a larger one get their own pod.
    batch_size: int = 32
    # SameNamespace lets these workers load other models of the namespace too, within their memory; whichever was used longest
    # ago goes first.
    sharing: str = "None"


class InferenceModelSpec(Value, frozen=True, kw_only=True):
    """A model's versions and how to keep it warm."""

    # Expected speed by accelerator class and back end; what workers measure takes its place.
    declared_profiles: tuple[DeclaredProfile, ...] = ()
    # What workers ask for, by accelerator class.
    resources: tuple[AcceleratorResources, ...] = ()
    # The versions; each is one immutable file.
    versions: tuple[ModelVersion, ...]
    # Taken by jobs that name none; else the last listed.
    default_version: str | None = None
    # Workers kept loaded.
    warm_pool: WarmPool | None = None
    # What to add to the pods of its workers; a job's own template goes before it.
    template: PodTemplate | None = None


class ModelUsage(Value, frozen=True, kw_only=True):
    """The jobs that use the model. While there are any, they are counted every half minute."""

    # The first ten of them, by name.
    names: tuple[str, ...] = ()
    # Jobs of its namespace that name it and have not ended.
    jobs: int
    # When they were counted.
    observed_time: datetime


class Profile(Value, frozen=True, kw_only=True):
    """What was measured of one file on one accelerator class and back end, at one batch size."""

    # The file that ran: of an INT8 variant its own digest.
    digest: str
    # The file that an INT8 variant was made of.
    variant_of: str | None = None
    # The class.
    accelerator: str
    # What computed.
    backend: str = "onnx"
    # The batch size.
    batch_size: int
    # Throughput of one worker.
    items_per_second: float
    # From process start to warmed up.
    load_seconds: float
    # Resident memory after warm-up.
    memory_bytes: int = 0
    # Memory of the device that it took, warm-up included.
    device_bytes: int = 0
    # How far measurements differ, as the mean distance of their logarithms: 0.1 is about 10 %; none of one.
    spread: float | None = None
    # Measurements behind it.
    samples: int = 1
    # When it was last measured.
    observed_time: datetime


class WarmPoolStatus(Value, frozen=True, kw_only=True):
    """How the warm workers stand."""

    # Observations: Ready, which says why there are not as many workers as wanted.
    conditions: tuple[Condition, ...] = ()
    # Workers that exist.
    workers: int = 0
    # Workers that take tasks.
    ready: int = 0


class InferenceModelStatus(Value, frozen=True, kw_only=True):
    """What is known of the model."""

    # Observations: Ready, which says whether its spec can be used, InUse, and Stalled.
    conditions: tuple[Condition, ...] = ()
    # Measured speed by file, accelerator class, back end and batch size.
    profiles: tuple[Profile, ...] = ()
    # The spec's generation that this status is about.
    observed_generation: int = 0
    # The names of its versions, for people; programs read spec.versions.
    versions: str | None = None
    # The version that jobs take which name none.
    default_version: str | None = None
    # The jobs that use it.
    usage: ModelUsage | None = None
    # How the warm workers stand.
    warm_pool: WarmPoolStatus | None = None


class Metadata(Value, frozen=True, kw_only=True):
    """What the API server knows of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class InferenceJob(Value, frozen=True, kw_only=True):
    """One piece of inference work with a deadline."""

    api_version: str = "inference.myorg/v1"
    kind: str = "InferenceJob"
    metadata: Metadata
    spec: InferenceJobSpec
    status: InferenceJobStatus = InferenceJobStatus()


class InferenceModel(Value, frozen=True, kw_only=True):
    """A model with its versions."""

    api_version: str = "inference.myorg/v1"
    kind: str = "InferenceModel"
    metadata: Metadata
    spec: InferenceModelSpec
    status: InferenceModelStatus = InferenceModelStatus()
