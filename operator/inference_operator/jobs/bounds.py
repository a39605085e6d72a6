"""Says when a job asks for more than it gets: replicas beyond its bounds, or a priority above that of its namespace."""

from dataclasses import replace

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import InferenceJobSpec, Serve
from inference_operator.jobs.outcome import ACCEPTED
from inference_operator.namespace_limits import Limits

# What Accepted has as its reason where it is True, and nothing of the model is in the way.
_ACCEPTED = (Reason.ACCEPTED, Reason.REPLICAS_LIMITED, Reason.PRIORITY_LIMITED)


def bounded(
    conditions: tuple[UndatedCondition, ...], spec: InferenceJobSpec, namespace: str, limits: Limits
) -> tuple[UndatedCondition, ...]:
    """Return the conditions of a valid job; Accepted tells where its workers or its priority are not what was asked for."""
    found = [(Reason.REPLICAS_LIMITED, _why_not_all(spec)), (Reason.PRIORITY_LIMITED, _why_not_so_urgent(spec, namespace, limits))]
    reasons = [(reason, why) for reason, why in found if why is not None]
    if not reasons:
        return conditions
    text = "; ".join((ACCEPTED.message, *[why for _, why in reasons]))
    told = UndatedCondition(ConditionType.ACCEPTED, Truth.TRUE, reasons[0][0], text)
    return tuple(told if condition == ACCEPTED else condition for condition in conditions)


def bounded_after_the_end(condition: Condition, spec: InferenceJobSpec) -> Condition:
    """Return a condition of a job that has ended; Accepted tells that a number of workers which is asked for comes to nothing."""
    if condition.type != ConditionType.ACCEPTED or condition.reason not in _ACCEPTED:
        return condition
    if _why_not_all(spec) is None:
        return replace(condition, reason=Reason.ACCEPTED.value, message=ACCEPTED.message)
    text = (
        f"{ACCEPTED.message}; replicas is {spec.replicas}, but the job has ended and has no workers; create it anew to run it again"
    )
    return replace(condition, reason=Reason.REPLICAS_LIMITED.value, message=text)


def _why_not_so_urgent(spec: InferenceJobSpec, namespace: str, limits: Limits) -> str | None:
    if spec.priority <= limits.max_priority:
        return None
    return (
        f"priority is {spec.priority}, but jobs of namespace {namespace} have {limits.max_priority} at most, and so has this one; "
        f"set priority to {limits.max_priority}, or ask the administrator to raise maxPriority in namespaceLimits"
    )


def _why_not_all(spec: InferenceJobSpec) -> str | None:
    asked, serve = spec.replicas, spec.serve or Serve()
    if spec.input is not None:
        text = f"replicas is {asked}, but a batch runs one worker; split the input into several jobs to use more"
        return text if asked != 1 else None
    if serve.max_replicas is not None and asked > serve.max_replicas:
        return f"replicas is {asked}, above serve.maxReplicas {serve.max_replicas}; raise serve.maxReplicas to have more workers"
    # One is what a job has that says nothing of replicas.
    if asked < serve.min_replicas and asked != 1:
        return f"replicas is {asked}, below serve.minReplicas {serve.min_replicas}; lower serve.minReplicas to have fewer workers"
    return None
