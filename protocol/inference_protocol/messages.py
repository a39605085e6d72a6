"""The records that cross the border between operator and worker, as JSON with camelCase names.

The module is longer than others: both sides find every record here.
"""

from typing import Annotated, Literal

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import STORAGE_FOLDER

CONFIG_VARIABLE = "INFERENCE_WORKER_CONFIG"
HTTP_PORT = 8000
GRPC_PORT = 8001
# Plain HTTP for the kubelet's probes, which have no certificate; nothing else is answered there.
HEALTH_PORT = 8002
# The operator's own, by mutual TLS: telemetry and tasks. Workers without an identity answer both on HTTP_PORT.
CONTROL_PORT = 8003
# Loopback of the pod only: callers go through the worker.
TRITON_PORT = 8010
TRITON_REPOSITORY = "/mnt/triton"
TELEMETRY_PATH = "/telemetry"
# What probes ask on HEALTH_PORT; the last is held until the model is loaded.
LIVE_PATH, READY_PATH, STARTED_PATH = "/livez", "/readyz", "/startedz"
# A warm worker is handed tasks here: POST a TaskOrder, or a TaskQuery to wait for one or to stop it; the answer is a TaskState.
TASKS_PATH = "/tasks"
TASK_WAIT_PATH = "/tasks/wait"
TASK_STOP_PATH = "/tasks/stop"
VOLUME_ROOT = "/mnt/volumes"
# Where a worker finds what it proves itself by, and what its callers are told and asked; files of one projected volume.
IDENTITY_ROOT = "/var/run/inference"
TOKEN_FILE, TRUST_FILE = "identity/token", "identity/trust.pem"
CERTIFICATE_FILE, KEY_FILE = "tls/tls.crt", "tls/tls.key"
CLIENT_CA_FILE, JWKS_FILE = "clients/ca.crt", "jwt/jwks.json"
# A worker POSTs a CertificateRequest here, with its token as bearer; the answer is an IssuedCertificate.
CERTIFICATES_PATH = "/v1/certificates"
# The kubelet cuts a termination message at 4096 bytes; the report has to stay whole.
TERMINATION_LIMIT_BYTES = 4000
# What a job without an output location may return through its status.
INLINE_OUTPUT_LIMIT_BYTES = 2048

Backend = Literal["onnx", "torchscript", "triton"]
InputFormat = Literal["auto", "npy", "npz", "jsonl", "csv", "files"]


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all records: immutable, unknown fields ignored so that either side may be newer."""


class Quantization(_Record, frozen=True):
    """Run an INT8 variant that the worker makes of the verified original, if it is accurate enough on the rows at `evaluation_uri`.

    With labels the accuracy may fall by `max_drop`; without, `min_agreement` of the answers must be the same.
    """

    method: Literal["dynamic", "static"]
    evaluation_uri: str
    calibration_uri: str | None = None
    labels_uri: str | None = None
    max_drop: float = 0.01
    min_agreement: float = 0.99


class TensorSignature(_Record, frozen=True):
    """One input or output: an Open Inference Protocol datatype, and a shape with -1 where a size is free."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ModelSignature(_Record, frozen=True):
    """What a model takes and gives, for files that do not say it themselves. Order counts: it is that of the arguments."""

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]


class Identity(_Record, frozen=True):
    """For whom a certificate of Sigstore is, and the OIDC issuer that says so. A subject that ends in * is a prefix."""

    subject: str
    issuer: str


class Trust(_Record, frozen=True):
    """Who may have signed a model, as the operator's settings say. Unless `required`, a model without a signature is taken too.

    `keys` are PEM by the names that a status shows. Certificates of `authorities` (PEM) have one of `subjects`. Keyless signatures
    have one of `identities`, and `root` is Sigstore's trusted root (JSON). `revoked` are NAME@VERSION.
    """

    required: bool
    keys: dict[str, str] = {}
    authorities: str = ""
    subjects: tuple[str, ...] = ()
    root: str = ""
    identities: tuple[Identity, ...] = ()
    revoked: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # A map has none, and sources of models are looked up by value.
        return hash((self.required, tuple(self.keys), self.authorities, self.subjects, self.identities, self.revoked))


class Storage(_Record, frozen=True):
    """How the store of an s3, gs, hf or oci location is asked.

    `secret` names the Secret whose keys (`storage.keys_of`) the worker finds in `folder` below IDENTITY_ROOT; empty where there is
    none. They go before `s3_endpoint`, `s3_region` and `hub_endpoint` of the settings. `aws_role` is assumed by the worker's own
    token.
    """

    secret: str = ""
    folder: str = STORAGE_FOLDER
    aws_role: str = ""
    s3_endpoint: str = ""
    s3_region: str = ""
    hub_endpoint: str = ""


class ModelSource(_Record, frozen=True):
    """Where a model comes from and what it must hash to (`digest` as `sha256:HEX`).

    `trust` travels with it, so that whatever loads the model knows who must have signed it; None where nobody has to. The signature
    is at `signature_uri`, or else beside the model's file as `model.sig`. `storage` is set for s3, gs, hf and oci locations.
    """

    name: str
    version: str
    uri: str
    digest: str | None = None
    format: str = "onnx"
    quantization: Quantization | None = None
    signature: ModelSignature | None = None
    signature_uri: str | None = None
    trust: Trust | None = None
    storage: Storage | None = None


class TritonServer(_Record, frozen=True):
    """The tritonserver beside the worker: where it listens on loopback, the repository that both see, and what runs ONNX in it."""

    platform: Literal["onnxruntime", "python"]
    repository: str
    port: int = TRITON_PORT
    startup_seconds: float = 120.0


class BatchTask(_Record, frozen=True):
    """Run a model once over every item of an input.

    Exactly one of `input_uri` and `input_data` (JSON lines, or CSV if `input_format` says so) is set. Without `output_uri` the
    answers go inline into the report. `input_storage` and `output_storage` are set for s3 and hf locations. `items_limit` is how
    many items can be answered by the firm `deadline` (RFC 3339): a worker that counts more refuses them before it runs one.
    """

    input_uri: str | None = None
    input_data: str | None = None
    input_format: InputFormat = "auto"
    input_digest: str | None = None
    allow_non_finite: bool = False
    output_uri: str | None = None
    input_storage: Storage | None = None
    output_storage: Storage | None = None
    items_limit: int | None = None
    deadline: str = ""


class WorkerIdentity(_Record, frozen=True):
    """Whom a worker asks for its certificate, and who may ask the worker.

    `issuer` is the https URL of the operator's authority, `operator` the SPIFFE ID that the operator's own certificate has.
    """

    issuer: str
    operator: str


class JwtRules(_Record, frozen=True):
    """Which tokens of callers are good: those of this issuer for one of these audiences, signed by a key of JWKS_FILE."""

    issuer: str
    audiences: tuple[str, ...]


class ServingTls(_Record, frozen=True):
    """How callers' ports speak TLS, and whom they admit.

    The certificate is that of CERTIFICATE_FILE where `own_certificate` is set, else the worker's identity. With
    `client_certificates` a certificate of CLIENT_CA_FILE admits, with `jwt` such a token; either does where both are set.
    """

    own_certificate: bool = False
    client_certificates: bool = False
    jwt: JwtRules | None = None


class FrameReuse(_Record, frozen=True):
    """When a stream's answer is used again: as long as a frame's structural similarity to the computed one is at least so much."""

    similarity: float = 0.95
    max_streams: int = 64
    max_bytes: int = 64 << 20
    max_age_seconds: float = 10.0


class AnswerCache(_Record, frozen=True):
    """How much of answers a worker keeps, and for how long, to give them again for the same bytes; `frames` for like ones."""

    max_bytes: int = 64 << 20
    max_age_seconds: float = 60.0
    frames: FrameReuse | None = None


class CertificateRequest(_Record, frozen=True):
    """What a worker asks the operator's authority: a PKCS #10 request in PEM. Only its public key counts."""

    request: Annotated[str, msgspec.Meta(max_length=4096)]


class IssuedCertificate(_Record, frozen=True):
    """A certificate with what stands between it and a trusted CA, and all the CAs that are trusted now. PEM."""

    chain: Annotated[str, msgspec.Meta(max_length=16384)]
    trust: Annotated[str, msgspec.Meta(max_length=32768)]


class WorkerConfig(_Record, frozen=True):
    """All that a worker is told.

    `providers` lists ONNX Runtime's execution providers in order of preference: the worker computes with the first that it can
    have, and with no other. `provider_options` are by their names; `devices` is how many devices the worker has.
    """

    namespace: str
    job: str
    uid: str
    attempt: int
    model: ModelSource
    providers: tuple[str, ...]
    provider_options: dict[str, dict[str, str]] = {}
    devices: int = 1
    batch_size: int = 1
    task: BatchTask | None = None
    drain_seconds: float = 20.0
    model_limit_bytes: int = 8 << 30
    # When the job was created, RFC 3339: tells which of two jobs of one name is the later.
    created: str = ""
    # Whether callers may load and unload models over the protocol's repository calls.
    model_control: Literal["none", "explicit"] = "none"
    # Whether callers may leave tensors in files below /dev/shm instead of sending them.
    shared_memory: bool = False
    # SHA-256 (hex) of the bearer token by which a worker is handed tasks while it runs; empty for workers that take none.
    task_token_digest: str = ""
    # Within this a request without a deadline is to be answered: what tasks may not make late. None where nobody says.
    latency_target_seconds: float | None = None
    # What computes; `triton` says where the server is, for the back end of that name.
    backend: Backend = "onnx"
    triton: TritonServer | None = None
    # How much of its device's memory one session of ONNX Runtime may take; all of it, where nothing is said.
    device_memory_bytes: int | None = None
    # Hosts that may be fetched from (`hosts.host_fault`); empty is every host.
    fetch_from: tuple[str, ...] = ()
    # Whether the job itself says where its traces go: then they go nowhere that could not be fetched from.
    guarded_traces: bool = False
    # The header by which traces tell sessions of callers; empty for none.
    session_header: str = ""
    # Without one, telemetry and tasks are asked in plain HTTP.
    identity: WorkerIdentity | None = None
    # Without it, callers' ports are plain.
    serving_tls: ServingTls | None = None
    # Without it, each request has a run.
    cache: AnswerCache | None = None


# Bounds, because a worker's word ends in a status that has them too: what breaks them is not taken.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Digest = Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$", max_length=71)]
# Characters. A worker cuts what it says (`cut`), since one text that is too long makes the whole record be refused.
MESSAGE_LENGTH = 4000
PROBLEM_LENGTH = 512
SIGNER_LENGTH = 512
# The last second of the year 9999, the last that an instant can name.
MOST_SECONDS = 253_402_300_799
# A uid of Kubernetes has 36 characters.
Identifier = Annotated[str, msgspec.Meta(max_length=128)]


class Progress(_Record, frozen=True):
    """Items (rows) of a batch task. `resumed` were committed by an earlier attempt."""

    total: Count
    completed: Count
    failed: Count = 0
    resumed: Count = 0


class Latency(_Record, frozen=True):
    """Quantiles in milliseconds over `count` requests (serve) or items (batch: an item waits for its whole batch)."""

    p50: Amount
    p95: Amount
    p99: Amount
    count: Count


class Signer(_Record, frozen=True):
    """Who signed a model: a key by its name, or the subject of a certificate. `verified` is when, in Unix seconds."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=SIGNER_LENGTH)]
    method: Literal["Key", "Certificate", "Keyless"]
    verified: Annotated[int, msgspec.Meta(ge=0, le=MOST_SECONDS)]


class ModelFacts(_Record, frozen=True):
    """What the worker found out about its model. Throughput is items per second at `batch_size`.

    `digest` is the verified file's; `variant` that of the INT8 variant which runs in its place; `backend` is what computed.
    `device_bytes` is what loading and warming it took of its device's memory, `device_free_bytes` what the device then had left;
    both are 0 where it runs on CPUs, or where no driver tells. `not_batched_because` says why requests do not share a run; it is
    empty where they do. `device_runs` says how a device that minds changing numbers of rows is spared them, and
    `not_captured_because` why not by captured runs; both are empty elsewhere. `not_cached_because` says why answers are not kept
    though the job has a cache. `signer` is None where no signature was asked for.
    """

    digest: Digest
    provider: Annotated[str, msgspec.Meta(max_length=128)]
    load_seconds: Amount
    warmup_seconds: Amount
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    memory_bytes: Count
    items_per_second: Amount | None = None
    variant: Digest | None = None
    backend: Backend = "onnx"
    device_bytes: Count = 0
    device_free_bytes: Count = 0
    not_batched_because: Annotated[str, msgspec.Meta(max_length=512)] = ""
    device_runs: Literal["", "Captured", "SessionPerSize", "OneSession"] = ""
    not_captured_because: Annotated[str, msgspec.Meta(max_length=512)] = ""
    not_cached_because: Annotated[str, msgspec.Meta(max_length=512)] = ""
    signer: Signer | None = None

    @property
    def start_seconds(self) -> float:
        """What it took from the start until the model could be asked."""
        return self.load_seconds + self.warmup_seconds


class DeviceReading(_Record, frozen=True):
    """What the driver's meters say of the device that a worker computes on; None where the device does not tell.

    `uuid` is as NVML writes it: `GPU-...`, and `MIG-...` of a part of a device. `utilization` is the share of the last moment in
    which the device computed. `energy_joules` is a counter since the driver was loaded, of the whole device whoever uses it.
    `age_seconds` is how long ago all this was read: a driver that hangs gives nothing newer.
    """

    uuid: Annotated[str, msgspec.Meta(max_length=128)]
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    driver: Annotated[str, msgspec.Meta(max_length=128)] = ""
    compute_capability: Annotated[str, msgspec.Meta(max_length=16)] = ""
    utilization: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    energy_joules: Amount | None = None
    watts: Amount | None = None
    age_seconds: Amount = 0.0


# A sketch clamps what it records to about 1,100 buckets (`inference_protocol.sketch`): more are no sketch.
SketchCounts = Annotated[dict[Annotated[int, msgspec.Meta(ge=-4096, le=4096)], Count], msgspec.Meta(max_length=2048)]


# A warm worker has 64 tasks that wait, and one that runs.
MOST_TASKS = 128
MOST_COLOCATED = 1024

# Of the Lease under which an operator gives an order: when it took it, in Unix milliseconds, and how often it changed hands. An
# operator that was paused has a lower one than its successor.
Epoch = tuple[Count, Count]


class TaskOrder(_Record, frozen=True):
    """A task for a warm worker: one attempt of one job. Ordering the same attempt twice is ordering it once.

    A worker refuses an `epoch` below the highest that it has seen. Operators from before there were any give none, and are obeyed.
    `memory_bytes`, and `device_bytes` of a device, are what a worker with this model is known to need, for one that has to load it
    beside its own; 0 is unknown. `fetch_from` is as in WorkerConfig.
    """

    namespace: str
    job: str
    uid: str
    attempt: int
    revision: str
    created: str
    model: ModelSource
    batch_size: int
    task: BatchTask
    memory_bytes: Count = 0
    device_bytes: Count = 0
    epoch: Epoch | None = None
    fetch_from: tuple[str, ...] = ()


class TaskQuery(_Record, frozen=True):
    """Which task is meant, and how many seconds its end is waited for. To stop it is an order, with an `epoch` as others have."""

    uid: str
    attempt: int
    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0
    epoch: Epoch | None = None


class TaskState(_Record, frozen=True):
    """How a task on a warm worker stands. `report` is set once it has ended; one that is `stopping` will end soon.

    `ran_seconds` is how long one that has ended took from its turn on, without the wait for those before it, and `ended_seconds`
    how long ago that was: who asks may have been away. `runs` and `computed_seconds` are what it has had of the device, without
    the waits behind requests.
    """

    uid: Identifier
    attempt: Count
    revision: Identifier
    state: Literal["Queued", "Running", "Ended"]
    progress: Progress | None = None
    report: "TerminationReport | None" = None
    stopping: bool = False
    ran_seconds: Amount | None = None
    ended_seconds: Amount | None = None
    runs: Count = 0
    computed_seconds: Amount = 0.0


class Telemetry(_Record, frozen=True):
    """A live worker's answer on TELEMETRY_PATH. `sketch` holds LatencySketch counts since the worker's start.

    `row_seconds` is what a row takes of this worker when there is always enough to do: its speed, whatever waits; None where it
    isn't known. `busy_seconds`, since the start too, is the time in which the runners computed, as a share of all of them: a
    worker whose every runner computes all the time gains one second a second.
    A warm worker tells the tasks that have not ended, how long it has had none, and the files of the models that it has loaded
    beside its own. `problem` is why nothing can be computed now. `device` is there where it computes on one.
    """

    ready: bool
    draining: bool
    model: ModelFacts | None = None
    progress: Progress | None = None
    sketch: SketchCounts = {}
    in_flight: Count = 0
    queued: Count = 0
    requests_total: Count = 0
    failed_total: Count = 0
    busy_seconds: Amount = 0.0
    row_seconds: Amount | None = None
    tasks: Annotated[tuple[TaskState, ...], msgspec.Meta(max_length=MOST_TASKS)] = ()
    idle_seconds: Amount | None = None
    colocated: Annotated[tuple[Digest, ...], msgspec.Meta(max_length=MOST_COLOCATED)] = ()
    problem: Annotated[str, msgspec.Meta(max_length=PROBLEM_LENGTH)] | None = None
    device: DeviceReading | None = None


class Rival(_Record, frozen=True):
    """The job whose attempt has claimed an output: its uid, and since when it outranks others, as its claim says."""

    uid: Annotated[str, msgspec.Meta(max_length=128)]
    created: Annotated[str, msgspec.Meta(max_length=64)]


class TerminationReport(_Record, frozen=True):
    """A worker's last words, left where the kubelet copies them into the pod's status."""

    outcome: Literal["Succeeded", "Failed", "Drained"]
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_LENGTH)]
    reason: WorkerReason | None = None
    model: ModelFacts | None = None
    progress: Progress | None = None
    latency: Latency | None = None
    output: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    rival: Rival | None = None


def cut(text: str, length: int) -> str:
    """The text, or as much of its beginning as `length` characters have room for."""
    return text if len(text) <= length else text[: length - 4] + " […]"


def encode(record: msgspec.Struct) -> bytes:
    """Compact JSON."""
    return msgspec.json.encode(record)


def encode_report(report: TerminationReport) -> bytes:
    """Compact JSON; a long message loses its tail so that all of it stays within TERMINATION_LIMIT_BYTES.

    Answers in place are limited by who makes them (`fits_inline`): they are never cut.
    """
    data = encode(report)
    if len(data) <= TERMINATION_LIMIT_BYTES:
        return data
    if report.output is not None and len(encode(_shortened(report, 0))) > TERMINATION_LIMIT_BYTES:
        # Whoever made these answers did not ask `fits_inline`: they go, rather than the whole report.
        return encode_report(msgspec.structs.replace(report, output=None, message=f"the answers do not fit; {report.message}"))
    # What a cut message costs depends on how much of it JSON has to escape, so the longest that fits is searched for.
    fits, too_long = 0, len(report.message)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if len(encode(_shortened(report, middle))) <= TERMINATION_LIMIT_BYTES:
            fits = middle
        else:
            too_long = middle
    return encode(_shortened(report, fits))


def _shortened(report: TerminationReport, length: int) -> TerminationReport:
    return msgspec.structs.replace(report, message=report.message[:length] + " […]")


def fits_inline(text: str) -> bool:
    """Whether answers may go into the report: as JSON text, with all that has to be escaped in it."""
    return len(msgspec.json.encode(text)) <= INLINE_OUTPUT_LIMIT_BYTES


def decode_report(text: str) -> TerminationReport | None:
    """Read a report; None when the text is not one (a container that died before it could speak).

    A reason that a newer worker knows and we do not is read as WORKER_FAILED: the message beside it says what it was.
    Fields that are nested without end raise RecursionError.
    """
    try:
        raw = msgspec.json.decode(text, type=dict[str, object])
        if "reason" in raw and raw["reason"] not in set(WorkerReason):
            raw["reason"] = WorkerReason.INTERNAL
        return msgspec.convert(raw, TerminationReport)
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError, RecursionError):
        return None
