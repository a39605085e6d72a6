"""Decide whether a job may run at all: checks in a row, each named after the fault that it finds. The first fault decides."""

from datetime import datetime

from inference_operator.api.conditions import Reason
from inference_operator.api.job import DeadlinePolicy, InferenceJobSpec
from inference_operator.settings import Settings
from inference_operator.state.kueue import GROUP, VERSION, KueueApi
from inference_operator.state.observed import Observed
from inference_operator.workers.resolve import Refusal, ResolvedJob, resolve
from inference_operator.workers.source import locations
from inference_protocol.uris import GsUri, OciUri, PvcUri, S3Uri, UriError, parse_uri


def admit(observed: Observed, settings: Settings, now: datetime) -> ResolvedJob | Refusal:
    """Return the resolved job, or the first fault that keeps it from running."""
    spec = observed.job.spec
    if spec is None:
        return Refusal(Reason.INVALID_SPEC, observed.job.invalid or "the spec can't be read", final=True)
    if (refused := _uri_leaves_its_volume(spec) or _input_is_in_a_registry(spec) or _output_is_nowhere(spec)) is not None:
        return refused
    refused = _firm_deadline_has_passed(observed, spec, now) or _nobody_queues(observed, spec, settings)
    return refused or resolve(observed, spec, settings)


def _uri_leaves_its_volume(spec: InferenceJobSpec) -> Refusal | None:
    for text in locations(spec):
        try:
            parse_uri(text)
        except UriError as error:
            return Refusal(Reason.INVALID_SPEC, str(error), final=True)
    return None


def _input_is_in_a_registry(spec: InferenceJobSpec) -> Refusal | None:
    given = spec.input.uri if spec.input is not None else None
    if given is None or not isinstance(parse_uri(given), OciUri):
        return None
    return Refusal(
        Reason.INVALID_SPEC, f"input.uri {given!r}: inputs are read from pvc://, s3://, gs://, hf:// and https://", final=True
    )


def _output_is_nowhere(spec: InferenceJobSpec) -> Refusal | None:
    if spec.output is None or isinstance(parse_uri(spec.output.uri), PvcUri | S3Uri | GsUri):
        return None
    told = f"output.uri {spec.output.uri!r} can't be written to; use pvc://CLAIM/PATH, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
    return Refusal(Reason.INVALID_SPEC, told, final=True)


def _nobody_queues(observed: Observed, spec: InferenceJobSpec, settings: Settings) -> Refusal | None:
    if spec.queue_name is None:
        return None
    if not settings.kueue.enabled:
        text = "this operator asks no Kueue: set kueue.enabled in the chart, or leave queueName out"
    elif observed.kueue.api is not KueueApi.SERVING:
        text = f"this cluster has no Kueue that serves {GROUP}/{VERSION} and may be read: install Kueue, or leave queueName out"
    else:
        return None
    return Refusal(Reason.QUEUE_UNAVAILABLE, f"queueName is {spec.queue_name!r}, but {text}", final=False)


def _firm_deadline_has_passed(observed: Observed, spec: InferenceJobSpec, now: datetime) -> Refusal | None:
    if spec.deadline_policy is not DeadlinePolicy.FIRM or spec.deadline is None or observed.job.status.start_time is not None:
        return None
    # Pods tell of a start that no status remembers: the operator was away.
    if spec.deadline > now or observed.attempts:
        return None
    return Refusal(
        Reason.DEADLINE_EXCEEDED,
        "the deadline had passed before the job could start, and deadlinePolicy is Firm; set a later deadline, or Soft to run late",
        final=True,
    )
