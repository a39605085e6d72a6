"""May a job run at all: checks in a row, each named after the fault that it finds. The first one that finds something decides."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Accelerator, DeadlinePolicy, InferenceJobSpec
from inference_operator.settings import Settings
from inference_operator.state.objects import Observed
from inference_operator.workers import backend
from inference_operator.workers.source import locations, model_source, pinned_version
from inference_protocol.uris import PvcUri, UriError, is_uri, parse_uri


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job can't run. `final` means that nothing outside the job itself could cure it."""

    reason: Reason
    message: str
    final: bool


Check = Callable[[Observed, InferenceJobSpec, Settings, datetime], Refusal | None]


def refusal(observed: Observed, settings: Settings, now: datetime) -> Refusal | None:
    """The first fault; None when the job may run."""
    spec = observed.job.spec
    if spec is None:
        return Refusal(Reason.INVALID_SPEC, observed.job.invalid or "the spec can't be read", final=True)
    return next((found for check in CHECKS if (found := check(observed, spec, settings, now))), None)


def _uri_leaves_its_volume(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    for text in locations(spec):
        try:
            parse_uri(text)
        except UriError as error:
            return Refusal(Reason.INVALID_SPEC, str(error), final=True)
    return None


def _output_is_no_volume(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if spec.output is not None and not isinstance(parse_uri(spec.output.uri), PvcUri):
        return Refusal(Reason.INVALID_SPEC, f"output.uri {spec.output.uri!r} can't be written to; use pvc://CLAIM/PATH", final=True)
    return None


def _model_is_unknown(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if is_uri(spec.model) or observed.model is not None:
        return None
    return Refusal(
        Reason.MODEL_UNKNOWN,
        f"there is no InferenceModel {spec.model!r} in namespace {observed.job.key.namespace}; create it and the job goes on",
        final=False,
    )


def _model_is_invalid(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if observed.model is None or observed.model.invalid is None:
        return None
    return Refusal(Reason.MODEL_UNKNOWN, f"InferenceModel {spec.model!r} can't be read: {observed.model.invalid}", final=False)


def _model_version_is_unknown(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if observed.model is None or pinned_version(observed, spec) is not None:
        return None
    known = ", ".join(v.name for v in observed.model.spec.versions) if observed.model.spec else ""
    return Refusal(
        Reason.MODEL_VERSION_UNKNOWN,
        f"InferenceModel {spec.model!r} has no version {spec.model_version!r}; it has {known}",
        final=False,
    )


def _model_uri_is_forbidden(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    text = model_source(observed).uri
    try:
        parse_uri(text)
    except UriError as error:
        return Refusal(Reason.INVALID_SPEC, f"InferenceModel {spec.model!r}: {error}", final=False)
    return None


def _digests_contradict(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    version = pinned_version(observed, spec)
    if version is None or not version.digest or not spec.model_digest or version.digest == spec.model_digest:
        return None
    return Refusal(
        Reason.INVALID_SPEC,
        f"modelDigest is {spec.model_digest}, but version {version.name!r} of {spec.model!r} is {version.digest}; pin one",
        final=False,
    )


def _backend_is_missing(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    kind = model_source(observed).format
    found = backend.fault(backend.chosen(spec.backend, kind), kind, settings.backends)
    return Refusal(Reason.BACKEND_UNAVAILABLE, found, final=True) if found is not None else None


def _accelerator_is_unknown(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if spec.accelerator is Accelerator.AUTO or spec.accelerator.value in settings.accelerators:
        return None
    known = ", ".join(sorted(settings.accelerators))
    return Refusal(
        Reason.ACCELERATOR_UNKNOWN,
        f"this cluster's operator knows no accelerator {spec.accelerator.value!r}; it has {known}",
        final=False,
    )


def _firm_deadline_has_passed(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> Refusal | None:
    if spec.deadline_policy is not DeadlinePolicy.FIRM or spec.deadline is None or observed.job.status.start_time is not None:
        return None
    # Pods tell of a start that no status remembers: the operator was away.
    if spec.deadline > now or observed.pods:
        return None
    return Refusal(
        Reason.DEADLINE_EXCEEDED,
        "the deadline had passed before the job could start, and deadlinePolicy is Firm; set a later deadline, or Soft to run late",
        final=True,
    )


CHECKS: tuple[Check, ...] = (
    _uri_leaves_its_volume,
    _output_is_no_volume,
    _model_is_unknown,
    _model_is_invalid,
    _model_version_is_unknown,
    _model_uri_is_forbidden,
    _digests_contradict,
    _backend_is_missing,
    _accelerator_is_unknown,
    _firm_deadline_has_passed,
)
