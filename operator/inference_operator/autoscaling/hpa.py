"""Whether a job has an HPA of ours, and what its condition Autoscaled says. Who moves spec.replicas is never the operator."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from inference_operator.api import names
from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import AutoscalingMode, InferenceJobSpec, Serve
from inference_operator.autoscaling.hpa_manifest import autoscaler
from inference_operator.settings import Settings
from inference_operator.state.objects import Autoscaler, Job, MetricsApiState
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import Action, ApplyAutoscaler, DeleteAutoscaler
from inference_operator.workers.creation import is_held_up
from inference_operator.workers.pod import Manifest


class HpaDecision(NamedTuple):
    """What to do about a job's HPA, and its condition Autoscaled; None where there is nothing to say."""

    actions: tuple[Action, ...] = ()
    condition: UndatedCondition | None = None


def decide_hpa(
    observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime, *, over: bool, no_place: bool
) -> HpaDecision:
    """Decide about the HPA. `over` says that the job ended, failed or sleeps, `no_place` that it has workers without a place."""
    mode = spec.autoscaling.mode if spec.autoscaling is not None else AutoscalingMode.NONE
    if mode is not AutoscalingMode.HPA or spec.input is not None:
        condition = _left_to(observed) if mode is AutoscalingMode.EXTERNAL else None
        return HpaDecision(removed(observed, f"autoscaling.mode is {mode.value}"), condition)
    if spec.suspend or over:
        # An HPA without workers can only complain.
        return HpaDecision(removed(observed, "the job has no workers"))
    fault = next((found for check in _CHECKS if (found := check(observed, spec)) is not None), None)
    if fault is not None:
        if fault.reason in _PASSING and _ours(observed) is not None:
            return HpaDecision((), _following(observed, spec, no_place=no_place))
        return HpaDecision(removed(observed, fault.message), fault)
    held_up = is_held_up(observed.autoscaler_failure, settings, now)
    actions = () if held_up else _applied(observed, spec, settings)
    return HpaDecision(actions, _following(observed, spec, no_place=no_place))


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


_CHECKS = (_no_target, _no_range, _other, _no_api, _no_metric)


def _following(observed: Observed, spec: InferenceJobSpec, *, no_place: bool) -> UndatedCondition:
    serve, scaling_metrics = _serve(spec), observed.scaling_metrics
    recommendation = scaling_metrics.recommendation if scaling_metrics is not None else None
    target = serve.latency_target_milliseconds
    if recommendation is not None and recommendation.below_floor:
        text = (
            f"a request alone takes longer than the target of {target} ms, so more workers would not help; raise "
            f"serve.latencyTargetMilliseconds, raise batchSize if requests have more than {spec.batch_size} rows (they are run one "
            "batch after the other), or take a quicker accelerator"
        )
        return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.LATENCY_TARGET_BELOW_FLOOR, text)
    if no_place:
        text = "more workers are wanted than there is place for; one waits, and more are asked for when it has found its place"
        return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.CAPACITY_LIMITED, text)
    text = f"an HPA keeps the 95th percentile at {target} ms with {max(1, serve.min_replicas)} to {serve.max_replicas} workers"
    return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.FOLLOWING_LATENCY, text)


def _left_to(observed: Observed) -> UndatedCondition:
    names_ = ", ".join(repr(a.key.name) for a in observed.autoscalers if not _is_ours(a, observed))
    text = f"spec.replicas is left to {f'HPA {names_}' if names_ else 'an autoscaler of yours'}"
    return UndatedCondition(ConditionType.AUTOSCALED, Truth.TRUE, Reason.LEFT_TO_OTHERS, text)


def autoscaler_of(job: Job, spec: InferenceJobSpec, settings: Settings) -> Manifest:
    """Return the HPA that a job asks for; it has a target and a range."""
    serve = _serve(spec)
    assert serve.max_replicas is not None and serve.latency_target_milliseconds is not None
    return autoscaler(
        job,
        # Not zero: a cluster allows that only with an alpha feature, and latency can't wake what does not answer.
        minimum=max(1, serve.min_replicas),
        maximum=serve.max_replicas,
        target_milliseconds=serve.latency_target_milliseconds,
        scale_down_seconds=settings.autoscaling.scale_down_seconds,
    )


def _applied(observed: Observed, spec: InferenceJobSpec, settings: Settings) -> tuple[Action, ...]:
    ours, manifest = _ours(observed), autoscaler_of(observed.job, spec, settings)
    if ours is None:
        return (ApplyAutoscaler(manifest, None, "the job has no HPA"),)
    if ours.revision != manifest["metadata"]["annotations"][names.ANNOTATION_AUTOSCALER]:
        return (ApplyAutoscaler(manifest, ours.uid, "the HPA is not what the job asks for"),)
    if not says(ours.spec, manifest["spec"]):
        return (ApplyAutoscaler(manifest, ours.uid, "somebody else has changed the HPA"),)
    return ()


def says(live: object, wanted: object) -> bool:
    """Whether all that is wanted stands there. What somebody added to it (a tolerance, say) is theirs."""
    if isinstance(wanted, dict):
        return isinstance(live, Mapping) and all(key in live and says(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        # Every list of an HPA's spec is one field to the API server.
        return isinstance(live, list) and len(live) == len(wanted) and all(map(says, live, wanted))
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
