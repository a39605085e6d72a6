"""Serving jobs that want an HPA, or have one: what their condition Autoscaled says, and what becomes of the HPA."""

from dataclasses import replace
from typing import Any

from inference_operator.api.job import Autoscaling, AutoscalingMode, Serve
from inference_operator.api.names import ANNOTATION_AUTOSCALER
from inference_operator.autoscaling.hpa import autoscaler_of
from inference_operator.state.load import Recommendation, Why
from inference_operator.state.objects import Job, MetricsApi, MetricsApiState
from inference_operator.state.observed import Observed
from inference_operator.workers.pod import Manifest
from tests.builders import SETTINGS, a_job, a_pod, an_autoscaler, observed, some_scaling_metrics
from tests.unit.jobs.situation import LOOKED, Situation, full, serves

SERVING = MetricsApi(MetricsApiState.SERVING)
RANGE = Serve(min_replicas=1, max_replicas=4, latency_target_milliseconds=100)


def wanting(serve: Serve = RANGE, mode: AutoscalingMode = AutoscalingMode.HPA, **more: Any) -> Job:
    """A serving job with a mode."""
    return a_job(serve=serve, status=LOOKED, autoscaling=Autoscaling(mode=mode), **more)


def seen(job: Job, **more: Any) -> Observed:
    """One worker that is ready and measured, and an API that serves."""
    return observed(job, a_pod(job), **{"metrics_api": SERVING, "scaling_metrics": some_scaling_metrics(), **more})


def hpa_of(job: Job) -> Manifest:
    assert job.spec is not None
    return autoscaler_of(job, job.spec, SETTINGS)


def ours(job: Job, **more: Any) -> Any:
    """The HPA that was made for the job as it is."""
    made = hpa_of(job)
    return an_autoscaler(
        job_uid=job.uid, **{"revision": made["metadata"]["annotations"][ANNOTATION_AUTOSCALER], "spec": made["spec"], **more}
    )


def without(spec: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in spec.items() if k != key}


def doubled(spec: dict[str, Any], key: str) -> dict[str, Any]:
    return {**spec, key: spec[key] * 2}


def says(status: str, reason: str) -> dict[str, tuple[str, str]]:
    return {**serves("True", "Serving"), "Autoscaled": (status, reason)}


def autoscaled_jobs() -> dict[str, Situation]:
    """By what is the case."""
    job = wanting()

    def no_hpa(found: Observed, reason: str, text: str, *, actions: tuple[str, ...] = ("WriteStatus",)) -> Situation:
        return Situation(found, says("False", reason), "Current", "Serving", says=text, actions=actions)

    def has_hpa(found: Observed, reason: str, text: str = "", *, actions: tuple[str, ...] = ("WriteStatus",)) -> Situation:
        return Situation(found, says("True", reason), "Current", "Serving", says=text, actions=actions)

    taken = MetricsApi(MetricsApiState.TAKEN, "Service monitoring/adapter (APIService v1beta1.custom.metrics.k8s.io)")
    return {
        "it wants an HPA, and the metric answers": has_hpa(
            seen(job), "FollowingLatency", "100 ms with 1 to 4", actions=("ApplyAutoscaler", "WriteStatus")
        ),
        "its HPA is as it should be": has_hpa(seen(job, autoscalers=(ours(job),)), "FollowingLatency"),
        "its HPA is of an older spec": has_hpa(
            seen(job, autoscalers=(ours(job, revision="old"),)), "FollowingLatency", actions=("ApplyAutoscaler", "WriteStatus")
        ),
        "its HPA was edited by somebody else": has_hpa(
            seen(job, autoscalers=(ours(job, spec={**hpa_of(job)["spec"], "maxReplicas": 40}),)),
            "FollowingLatency",
            actions=("ApplyAutoscaler", "WriteStatus"),
        ),
        "somebody else has taken the behaviour out of its HPA": has_hpa(
            seen(job, autoscalers=(ours(job, spec=without(hpa_of(job)["spec"], "behavior")),)),
            "FollowingLatency",
            actions=("ApplyAutoscaler", "WriteStatus"),
        ),
        "somebody else has added to its HPA": has_hpa(
            seen(job, autoscalers=(ours(job, spec={**hpa_of(job)["spec"], "more": 1}),)), "FollowingLatency"
        ),
        "somebody else has added a metric to its HPA": has_hpa(
            seen(job, autoscalers=(ours(job, spec=doubled(hpa_of(job)["spec"], "metrics")),)),
            "FollowingLatency",
            actions=("ApplyAutoscaler", "WriteStatus"),
        ),
        "it wants an HPA, and no worker was measured": no_hpa(
            seen(job, scaling_metrics=None), "NoMetricYet", "once the metric answers"
        ),
        "it wants an HPA, and the API is being registered": no_hpa(
            seen(job, metrics_api=MetricsApi(MetricsApiState.PENDING)), "NoMetricYet", "registered"
        ),
        "it has an HPA, and the API is registered anew": has_hpa(
            seen(job, metrics_api=MetricsApi(MetricsApiState.PENDING), autoscalers=(ours(job),)), "FollowingLatency"
        ),
        "it wants an HPA, and the API is off": no_hpa(
            seen(job, metrics_api=MetricsApi(MetricsApiState.DISABLED)), "MetricsApiDisabled", "customMetrics.enabled"
        ),
        "it wants an HPA, and the API is another's": no_hpa(
            seen(job, metrics_api=taken), "MetricsApiTaken", "Service monitoring/adapter"
        ),
        "it has an HPA, and the API is another's": no_hpa(
            seen(job, metrics_api=taken, autoscalers=(ours(job),)),
            "MetricsApiTaken",
            "monitoring/adapter",
            actions=("DeleteAutoscaler", "WriteStatus"),
        ),
        "it wants an HPA, and has no target": no_hpa(
            seen(wanting(Serve(max_replicas=4))), "LatencyTargetMissing", "latencyTargetMilliseconds"
        ),
        "it wants an HPA, and has no maximum": no_hpa(
            seen(wanting(Serve(latency_target_milliseconds=100))), "NoRange", "set serve.maxReplicas"
        ),
        "it wants an HPA, and its bounds are equal": no_hpa(
            seen(wanting(Serve(min_replicas=1, max_replicas=1, latency_target_milliseconds=100))), "NoRange", "raise it"
        ),
        "it wants an HPA, and has another's": no_hpa(
            seen(job, autoscalers=(an_autoscaler("mine"),)), "OtherAutoscaler", "HPA 'mine' is there already"
        ),
        "it wants an HPA, and its name is taken": no_hpa(
            seen(job, autoscalers=(an_autoscaler("job", target=None),)), "OtherAutoscaler", "HPA 'job'"
        ),
        "it wants an HPA, and KEDA has one": no_hpa(
            seen(job, autoscalers=(an_autoscaler("keda-hpa-q", scaled_object="q"),)), "OtherAutoscaler", "ScaledObject 'q'"
        ),
        "its target is below what the model takes": has_hpa(
            seen(
                job,
                autoscalers=(ours(job),),
                scaling_metrics=some_scaling_metrics(recommendation=Recommendation(1, Why.FLOOR, below_floor=True)),
            ),
            "LatencyTargetBelowFloor",
            "raise batchSize if requests have more than",
        ),
        "it wants more workers than there is place for": Situation(
            seen(wanting(replicas=2), autoscalers=(ours(job),)),
            {
                **serves("False", "NoFreeCapacity", moving=True, placed=("False", "NoFreeCapacity")),
                "Autoscaled": ("True", "CapacityLimited"),
            },
            "InProgress",
            "Serving",
            scheduler=full(),
            says="one waits",
        ),
        "it is left to others": has_hpa(
            seen(wanting(mode=AutoscalingMode.EXTERNAL), autoscalers=(an_autoscaler("mine"),)), "LeftToOthers", "'mine'"
        ),
        "it is left to others that are not there yet": has_hpa(
            seen(wanting(mode=AutoscalingMode.EXTERNAL)), "LeftToOthers", "an autoscaler of yours"
        ),
        "it had an HPA, and is left to others": has_hpa(
            seen(wanting(mode=AutoscalingMode.EXTERNAL), autoscalers=(ours(job),)),
            "LeftToOthers",
            actions=("DeleteAutoscaler", "WriteStatus"),
        ),
        "it had an HPA, and wants none": Situation(
            seen(wanting(mode=AutoscalingMode.NONE), autoscalers=(ours(job), an_autoscaler("mine"))),
            serves("True", "Serving"),
            "Current",
            "Serving",
            actions=("DeleteAutoscaler", "WriteStatus"),
        ),
        "it has an HPA, and is suspended": Situation(
            replace(seen(wanting(suspend=True), autoscalers=(ours(job),)), pods=()),
            {"Accepted": ("True", "Accepted"), "Suspended": ("True", "Suspended")},
            "Current",
            "Suspended",
            actions=("DeleteAutoscaler", "WriteStatus"),
        ),
    }
