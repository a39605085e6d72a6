"""The environment of the worker container: the administrator's, what the job may add, and last its configuration."""

from typing import Any

from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.state.objects import Job
from inference_operator.workers.template_pod import variables
from inference_protocol.hosts import NO_PROXY_VARIABLE, PROXY_VARIABLE
from inference_protocol.messages import CONFIG_VARIABLE, WorkerConfig, encode

Manifest = dict[str, Any]


def environment(job: Job, config: WorkerConfig, template: PodTemplate, settings: Settings) -> list[Manifest]:
    """Return the variables. What is not allowed is left out, whoever lets such a job come so far."""
    return [
        *_tracing(job, settings),
        *variables(template, settings),
        *_proxy(settings),
        {"name": CONFIG_VARIABLE, "value": encode(config).decode()},
    ]


def _proxy(settings: Settings) -> list[Manifest]:
    fetch = settings.fetch
    if not fetch.https_proxy:
        return []
    told = {PROXY_VARIABLE: fetch.https_proxy, NO_PROXY_VARIABLE: ",".join(fetch.no_proxy)}
    return [{"name": name, "value": value} for name, value in told.items() if value]


def _tracing(job: Job, settings: Settings) -> list[Manifest]:
    tracing = settings.tracing
    if not tracing.endpoint:
        return []
    attributes = f"k8s.namespace.name={job.key.namespace},inference.job={job.key.name}"
    return [
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": tracing.endpoint},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": str(tracing.ratio)},
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": attributes},
    ]
