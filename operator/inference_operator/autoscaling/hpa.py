"""Whether a job has an HPA of ours, and what its condition Autoscaled says. Who moves spec.replicas is never the operator."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from inference_operator.api import names
from inference_operator.api.conditions import NO_PLACE, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import AutoscalingMode, InferenceJobSpec, Serve
from inference_operator.autoscaling.hpa_manifest import autoscaler
from inference_operator.jobs.demand import create_retry_time
from inference_operator.jobs.outcome import Outcome
from inference_operator.settings import Settings
from inference_operator.state.objects import Autoscaler, Job, MetricsApiState, Observed
from inference_operator.workers.actions import Action, ApplyAutoscaler, DeleteAutoscaler
from inference_operator.workers.pod import Manifest


def autoscaled(outcome: Outcome, observed: Observed, settings: Settings, now: datetime) -> Outcome:
    """Add what autoscaling asks for to what was decided about the job."""
    spec = observed.job.spec
    mode = spec.autoscaling.mode if spec is not None and spec.autoscaling is not None else AutoscalingMode.NONE
    if spec is None or outcome.silent:
        return outcome
    if mode is not AutoscalingMode.HPA or spec.input is not None:
        condition = _left_to(observed) if mode is AutoscalingMode.EXTERNAL else None
        return _with(outcome, removed(observed, f"autoscaling.mode is {mode.value}"), condition)
    if spec.suspend or outcome.phase in ("Failed", "Succeeded"):
        # An HPA without workers can only complain.
        return _with(outcome, removed(observed, "the job has no workers"), None)
    pending = next((found for check in _OBSTACLES if (found := check(observed, spec)) is not None), None)
    if pending is not None:
        keeps = pending.reason in _PASSING and _ours(observed) is not None
        actions = () if keeps else removed(observed, pending.message)
        return _with(outcome, actions, _following(outcome, observed, spec) if keeps else pending)
    held_up = observed.create_failure is not None and create_retry_time(observed, settings) > now
    return _with(outcome, () if held_up else _applied(observed, settings), _following(outcome, observed, spec))


# In the way of a new HPA, but no reason to take one away that is there.
_PASSING = frozenset({Reason.NO_METRIC_YET})


def _no_target(observed: Observed, spec: InferenceJobSpec) -> UndatedCondition | None:  # noqa: ARG001 -- checks share a form
    if _serve(spec).latency_target_milliseconds is not None:
        return None
    return _not(Reason.LATENCY_TARGET_MISSING, "set serve.latencyTargetMilliseconds: the HPA scales by it")


def _no_range(observed: Observed, spec: InferenceJobSpec) -> UndatedCondition | None:  # noqa: ARG001
    serve = _serve(spec)
    if serve.max_replicas is None:
        return _not(Reason.NO_RANGE, "set serve.maxReplicas: without it there is nothing to scale to")
    if serve.max_replicas <= max(1, serve.min_replicas):
        text = f"serve.maxReplicas ({serve.max_replicas}) leaves nothing to scale: raise it, or set autoscaling.mode to None"
        return _not(Reason.NO_RANGE, text)
    return None


def _other(observed: Observed, spec: InferenceJobSpec) -> UndatedCondition | None:  # noqa: ARG001
    found = next((a for a in observed.autoscalers if not _is_ours(a, observed)), None)
    if found is None:
        return None
    if found.scaled_object is not None:
        who = f"KEDA's ScaledObject {found.scaled_object!r} (HPA {found.key.name!r})"
    else:
        who = f"HPA {found.key.name!r}"
    text = f"{who} is there already and is left alone; delete it, or set autoscaling.mode to External"
    return _not(Reason.OTHER_AUTOSCALER, text)


def _no_api(observed: Observed, spec: InferenceJobSpec) -> UndatedCondition | None:  # noqa: ARG001
    api = observed.metrics_api
    match api.state:
        case MetricsApiState.DISABLED:
            text = "the operator does not serve custom.metrics.k8s.io: set customMetrics.enabled in the chart, or use External"
            return _not(Reason.METRICS_API_DISABLED, text)
        case MetricsApiState.TAKEN:
            text = (
                f"custom.metrics.k8s.io is served by {api.owner}, and a cluster has one provider: remove it, or set "
                "autoscaling.mode to External and scale by its metrics"
            )
            return _not(Reason.METRICS_API_TAKEN, text)
        case MetricsApiState.PENDING:
            return _not(Reason.NO_METRIC_YET, "the metrics API is being registered")
    return None


def _no_metric(observed: Observed, spec: InferenceJobSpec) -> UndatedCondition | None:  # noqa: ARG001
    if observed.scaling_metrics is not None and observed.scaling_metrics.known:
        return None
    return _not(Reason.NO_METRIC_YET, "no worker was measured yet; the HPA is made once the metric answers")


_OBSTACLES = (_no_target, _no_range, _other, _no_api, _no_metric)


def _following(outcome: Outcome, observed: Observed, spec: InferenceJobSpec) -> UndatedCondition:
    serve, scaling_metrics = _serve(spec), observed.scaling_metrics
    recommendation = scaling_metrics.recommendation if scaling_metrics is not None else None
    target = serve.latency_target_milliseconds
    if recommendation is not None and recommendation.below_floor:
        text = (
            f"the model alone takes longer than the target of {target} ms, so more workers would not help; "
            "raise serve.latencyTargetMilliseconds, or take a quicker accelerator"
        )
        return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.LATENCY_TARGET_BELOW_FLOOR, text)
    if any(f.type is ConditionType.PLACED and f.reason in NO_PLACE for f in outcome.conditions):
        text = "more workers are wanted than there is place for; one waits, and more are asked for when it has found its place"
        return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.CAPACITY_LIMITED, text)
    text = f"an HPA keeps the 95th percentile at {target} ms with {max(1, serve.min_replicas)} to {serve.max_replicas} workers"
    return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.FOLLOWING_LATENCY, text)


def _left_to(observed: Observed) -> UndatedCondition:
    names_ = ", ".join(repr(a.key.name) for a in observed.autoscalers if not _is_ours(a, observed))
    text = f"spec.replicas is left to {f'HPA {names_}' if names_ else 'an autoscaler of yours'}"
    return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.LEFT_TO_OTHERS, text)


def autoscaler_of(job: Job, settings: Settings) -> Manifest:
    """The HPA that a job asks for; it has a target and a range."""
    serve = _serve(job.spec) if job.spec is not None else Serve()
    assert serve.max_replicas is not None and serve.latency_target_milliseconds is not None
    return autoscaler(
        job,
        # Not zero: a cluster allows that only with an alpha feature, and latency can't wake what does not answer.
        minimum=max(1, serve.min_replicas),
        maximum=serve.max_replicas,
        target_milliseconds=serve.latency_target_milliseconds,
        scale_down_seconds=settings.autoscaling.scale_down_seconds,
    )


def _applied(observed: Observed, settings: Settings) -> tuple[Action, ...]:
    ours, manifest = _ours(observed), autoscaler_of(observed.job, settings)
    if ours is None:
        return (ApplyAutoscaler(manifest, None, "the job has no HPA"),)
    if ours.revision != manifest["metadata"]["annotations"][names.ANNOTATION_AUTOSCALER]:
        return (ApplyAutoscaler(manifest, ours.uid, "the HPA is not what the job asks for"),)
    if not _says(ours.spec, manifest["spec"]):
        return (ApplyAutoscaler(manifest, ours.uid, "somebody else has changed the HPA"),)
    return ()


def _says(live: object, wanted: object) -> bool:
    """Whether all that is wanted stands there. What somebody added to it (a tolerance, say) is theirs."""
    if isinstance(wanted, dict):
        return isinstance(live, Mapping) and all(key in live and _says(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        # Every list of an HPA's spec is one field to the API server.
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_says, live, wanted))
    return live == wanted


def removed(observed: Observed, why: str) -> tuple[Action, ...]:
    """Take our HPA away, if there is one."""
    return tuple(DeleteAutoscaler(a.key, a.uid, why) for a in observed.autoscalers if _is_ours(a, observed))


def _ours(observed: Observed) -> Autoscaler | None:
    return next((a for a in observed.autoscalers if _is_ours(a, observed)), None)


def _is_ours(autoscaler_: Autoscaler, observed: Observed) -> bool:
    return autoscaler_.job_uid == observed.job.uid


def _serve(spec: InferenceJobSpec) -> Serve:
    return spec.serve or Serve()


def _not(reason: Reason, text: str) -> UndatedCondition:
    return UndatedCondition(ConditionType.AUTOSCALED, Truth.FALSE, reason, text)


def _with(outcome: Outcome, actions: tuple[Action, ...], condition: UndatedCondition | None) -> Outcome:
    more = (condition,) if condition is not None else ()
    return replace(outcome, actions=(*outcome.actions, *actions), conditions=(*outcome.conditions, *more))
