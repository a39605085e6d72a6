"""Says when spec.replicas asks for what can't be: beyond the bounds of a service, or of a batch, which runs one worker."""

from dataclasses import replace

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import InferenceJobSpec, Serve
from inference_operator.jobs.outcome import ACCEPTED


def bounded(conditions: tuple[UndatedCondition, ...], spec: InferenceJobSpec) -> tuple[UndatedCondition, ...]:
    """Return the conditions of a valid job; Accepted tells where its number of workers is not the one that was asked for."""
    why = _why_not_all(spec)
    if why is None:
        return conditions
    told = UndatedCondition(ConditionType.ACCEPTED, Truth.TRUE, Reason.REPLICAS_LIMITED, f"{ACCEPTED.message}; {why}")
    return tuple(told if condition == ACCEPTED else condition for condition in conditions)


def bounded_after_the_end(condition: Condition, spec: InferenceJobSpec) -> Condition:
    """Return a condition of a job that has ended; Accepted tells that a number of workers which is asked for comes to nothing."""
    if condition.type != ConditionType.ACCEPTED or condition.reason not in (Reason.ACCEPTED, Reason.REPLICAS_LIMITED):
        return condition
    if _why_not_all(spec) is None:
        return replace(condition, reason=Reason.ACCEPTED.value, message=ACCEPTED.message)
    text = (
        f"{ACCEPTED.message}; replicas is {spec.replicas}, but the job has ended and has no workers; create it anew to run it again"
    )
    return replace(condition, reason=Reason.REPLICAS_LIMITED.value, message=text)


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
