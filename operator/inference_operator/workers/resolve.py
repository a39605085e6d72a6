"""Resolve a job once a look: every reference followed, every default filled in, or why it may not run.

All that is decided about a job takes a ResolvedJob, so that no decision has to ask again whether the spec can be read, which file
its model is, or what computes it. A warm pool resolves the job that its workers would be made for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inference_operator.accelerators import AUTO
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.model import ModelVersion
from inference_operator.runtime.memo import by_identity
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.types import Option
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Model
from inference_operator.state.observed import Observed
from inference_operator.state.volumes import Access
from inference_operator.workers import backend as backends
from inference_operator.workers.backend import BackendChoice
from inference_operator.workers.claims import claims
from inference_operator.workers.classes import unsuitable
from inference_operator.workers.devices import device_fault
from inference_operator.workers.fetch_rules import fetch_fault
from inference_operator.workers.identity import serving_tls
from inference_operator.workers.options import mounts_of, options
from inference_operator.workers.pod_template import with_model
from inference_operator.workers.source import begun_with, model_source, pinned_version, stand_in, trusted_source
from inference_operator.workers.template_hash import Revisions, service_revisions, task_revisions
from inference_operator.workers.template_rules import template_fault
from inference_protocol.messages import ModelSource
from inference_protocol.uris import UriError, is_uri, parse_uri


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job can't run. `final` means that nothing outside the job itself could cure it."""

    reason: Reason
    message: str
    final: bool


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A job that may run.

    `spec` has what its model adds to pods, too. `model` is the InferenceModel that it names, or what stands in for a deleted one,
    and `version` what it takes of it; both are None for a model by URI. `choice` is the back end (never AUTO) with its reason,
    `claims` the PersistentVolumeClaims that a worker mounts and whether it writes there, `revisions` the hashes of what its workers
    are made of, `options` the accelerator classes that it may run on, each with requirements and estimate; never empty.
    """

    job: Job
    spec: InferenceJobSpec
    model: Model | None
    version: ModelVersion | None
    source: ModelSource
    choice: BackendChoice
    claims: Mapping[str, bool]
    revisions: Revisions
    options: tuple[Option, ...]

    @property
    def backend(self) -> Backend:
        """What computes it; never AUTO."""
        return self.choice.backend

    def estimate_on(self, accelerator: str) -> Estimate | None:
        """What is expected of it on an accelerator class; None for a class that it may not run on."""
        return next((option.estimate for option in self.options if option.accelerator == accelerator), None)

    @property
    def one_pod(self) -> bool:
        """Whether only one worker can mount its claims at a time."""
        return any(access is Access.ONE_POD for _, access in self.options[0].requirements.claims)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the checks look at."""

    job: Job
    spec: InferenceJobSpec
    model: Model | None
    version: ModelVersion | None
    settings: Settings

    @property
    def choice(self) -> BackendChoice:
        """Its back end, whether this operator has it or not."""
        return backends.chosen(self.spec.backend, self.format)

    @property
    def format(self) -> str:
        """The format of its model's file."""
        return model_source(self.spec, self.version).format


@dataclass(frozen=True, slots=True)
class _References:
    """What a spec refers to, followed. See ResolvedJob."""

    spec: InferenceJobSpec
    model: Model | None
    version: ModelVersion | None
    source: ModelSource
    choice: BackendChoice
    claims: Mapping[str, bool]
    revisions: Revisions


_Check = Callable[[_Asked], Refusal | None]


def resolve(observed: Observed, spec: InferenceJobSpec, settings: Settings) -> ResolvedJob | Refusal:
    """Return the job with all that its spec refers to, or the first fault found."""
    job = observed.job
    found = (_follow_service if spec.input is None else _follow)(job, spec, observed.model, settings)
    if isinstance(found, Refusal):
        return found
    mounts = mounts_of(job.key.namespace, found.claims, observed.volumes, observed.claims)
    spec, model = found.spec, found.model
    return ResolvedJob(
        job=job,
        spec=spec,
        model=model,
        version=found.version,
        source=found.source,
        choice=found.choice,
        claims=found.claims,
        revisions=found.revisions,
        options=options(job, spec, model, found.source, found.choice.backend, settings, mounts),
    )


def _follow(job: Job, spec: InferenceJobSpec, model: Model | None, settings: Settings) -> _References | Refusal:
    model = model if model is not None else stand_in(job, spec)
    asked = _Asked(job, spec, model, pinned_version(job, spec, model), settings)
    refused = next((found for check in _CHECKS if (found := check(asked)) is not None), None)
    if refused is not None:
        return refused
    spec = with_model(spec, model)
    source = trusted_source(job, spec, asked.version, settings)
    choice = backends.chosen(spec.backend, source.format)
    mounts = claims(spec, source)
    if spec.input is None:
        revisions = service_revisions(job, spec, model, source, choice.backend, mounts=mounts, settings=settings)
    else:
        revisions = task_revisions(spec, source, choice.backend, settings)
    return _References(spec, model, asked.version, source, choice, mounts, revisions)


# A service is looked at many times between two changes of it, and hashing its pods is most of what a look would cost.
_follow_service = by_identity(2048)(_follow)


def _model_is_unknown(asked: _Asked) -> Refusal | None:
    if is_uri(asked.spec.model) or asked.model is not None:
        return None
    namespace = asked.job.key.namespace
    return Refusal(
        Reason.MODEL_UNKNOWN,
        f"there is no InferenceModel {asked.spec.model!r} in namespace {namespace}; create it and the job goes on",
        final=False,
    )


def _model_is_invalid(asked: _Asked) -> Refusal | None:
    model = asked.model
    if model is None or model.invalid is None:
        return None
    return Refusal(Reason.MODEL_UNKNOWN, f"InferenceModel {asked.spec.model!r} can't be read: {model.invalid}", final=False)


def _model_version_is_unknown(asked: _Asked) -> Refusal | None:
    model, spec = asked.model, asked.spec
    if model is None or asked.version is not None:
        return None
    known = ", ".join(v.name for v in model.spec.versions) if model.spec else ""
    begun = begun_with(asked.job, spec) if spec.model_version is None else None
    wanted = spec.model_version or begun or (model.spec.default_version if model.spec else None)
    text = f"InferenceModel {spec.model!r} has no version {wanted!r}; it has {known}"
    if begun is not None:
        text += "; the batch began with it: add it again to go on, or set modelVersion to start anew with another"
    return Refusal(Reason.MODEL_VERSION_UNKNOWN, text, final=False)


def _model_uri_is_forbidden(asked: _Asked) -> Refusal | None:
    source = model_source(asked.spec, asked.version)
    try:
        for uri in filter(None, (source.uri, source.signature_uri)):
            parse_uri(uri)
    except UriError as error:
        return Refusal(Reason.INVALID_SPEC, f"InferenceModel {asked.spec.model!r}: {error}", final=False)
    return None


def _digests_contradict(asked: _Asked) -> Refusal | None:
    spec, version = asked.spec, asked.version
    if version is None or not version.digest or not spec.model_digest or version.digest == spec.model_digest:
        return None
    return Refusal(
        Reason.INVALID_SPEC,
        f"modelDigest is {spec.model_digest}, but version {version.name!r} of {spec.model!r} has digest {version.digest}; "
        "correct modelDigest, or set modelVersion to the version that has it",
        final=False,
    )


def _backend_is_missing(asked: _Asked) -> Refusal | None:
    found = backends.fault(asked.choice, asked.format, asked.settings.backends)
    return Refusal(Reason.BACKEND_UNAVAILABLE, found, final=True) if found is not None else None


def _accelerator_is_unknown(asked: _Asked) -> Refusal | None:
    wanted, known = asked.spec.accelerator, asked.settings.accelerators
    if wanted == AUTO or wanted in known:
        return None
    return Refusal(
        Reason.ACCELERATOR_UNKNOWN,
        f"this cluster's operator knows no accelerator {wanted!r}; it has {', '.join(sorted(known))}, and auto for any of them",
        final=False,
    )


def _accelerator_is_unsuitable(asked: _Asked) -> Refusal | None:
    spec, backend, known = asked.spec, asked.choice.backend, asked.settings.accelerators
    allowed = sorted(known) if spec.accelerator == AUTO else [spec.accelerator]
    faults = {name: unsuitable(spec, backend, known[name]) for name in allowed}
    if not all(faults.values()):
        return None
    told = "; ".join(f"accelerator {name}: {fault}" for name, fault in faults.items())
    return Refusal(Reason.ACCELERATOR_UNSUITABLE, told, final=False)


def _template_is_forbidden(asked: _Asked) -> Refusal | None:
    found = template_fault(asked.spec, asked.settings, asked.model)
    return Refusal(Reason.TEMPLATE_FORBIDDEN, found, final=False) if found is not None else None


def _host_is_forbidden(asked: _Asked) -> Refusal | None:
    found = fetch_fault(with_model(asked.spec, asked.model), model_source(asked.spec, asked.version), asked.settings)
    return Refusal(Reason.HOST_FORBIDDEN, found, final=False) if found is not None else None


def _tls_is_for_callers_alone(asked: _Asked) -> Refusal | None:
    if serving_tls(asked.spec) is None or asked.settings.mutual_tls.enabled:
        return None
    text = "serve.tls needs mutual TLS between operator and workers: set mutualTLS.enabled in the chart, or leave serve.tls out"
    return Refusal(Reason.TLS_UNAVAILABLE, text, final=False)


def _device_is_another(asked: _Asked) -> Refusal | None:
    found = device_fault(asked.spec, asked.choice.backend, asked.model, asked.settings)
    if found is None:
        return None
    # What runs already goes on: an edit that can't be followed must not end it.
    final = found.of_job and asked.job.status.start_time is None
    return Refusal(Reason.INVALID_SPEC, found.message, final=final)


# In this order: each may rely on what those before it have found.
_CHECKS: tuple[_Check, ...] = (
    _model_is_unknown,
    _model_is_invalid,
    _model_version_is_unknown,
    _model_uri_is_forbidden,
    _digests_contradict,
    _backend_is_missing,
    _accelerator_is_unknown,
    _accelerator_is_unsuitable,
    _device_is_another,
    _template_is_forbidden,
    _host_is_forbidden,
    _tls_is_for_callers_alone,
)
