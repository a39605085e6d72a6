"""Whether the URLs of a job keep to the hosts that the cluster lets workers talk to."""

from collections.abc import Iterator

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_protocol.hosts import host_fault
from inference_protocol.messages import BatchTask, ModelSource
from inference_protocol.uris import HttpUri, UriError, parse_uri

# Where OpenTelemetry posts traces.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def fetch_fault(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> str | None:
    """Return the first URL of a job that names a forbidden host, with why; None where all may be used."""
    faults = ((place, url_fault(url, settings)) for place, url in _urls(spec, source))
    return next((f"{place}: {fault}" for place, fault in faults if fault is not None), None)


def url_fault(url: str, settings: Settings) -> str | None:
    """Return why workers may not talk to where a URL leads; None where they may."""
    try:
        uri = parse_uri(url)
    except UriError as error:
        return str(error)
    return host_fault(uri.host, settings.fetch.allowed_hosts) if isinstance(uri, HttpUri) else f"{url!r} is no http(s) URL"


def fetch_from(source: ModelSource, task: BatchTask | None, *, traces: bool, settings: Settings) -> tuple[str, ...]:
    """Return the list that a worker needs for this: none where nothing of it is a URL, so that a new list rolls out no others."""
    read = (*(uri for _, uri in _files(source)), *([task.input_uri] if task is not None and task.input_uri is not None else []))
    return settings.fetch.allowed_hosts if traces or any(map(is_url, read)) else ()


def traces_to(template: PodTemplate) -> Iterator[tuple[str, str]]:
    """Yield the variables by which a job says where its traces go, with their values."""
    return ((variable.name, variable.value) for variable in template.env if variable.name in ENDPOINTS and variable.value)


def is_url(text: str) -> bool:
    """Whether a location is fetched over the network, however it is spelt."""
    try:
        return isinstance(parse_uri(text), HttpUri)
    except UriError:
        return False


def _files(source: ModelSource) -> Iterator[tuple[str, str]]:
    """Yield what is read to load a model and may be a URL, each with the word for it."""
    yield "model", source.uri
    if source.signature_uri is not None:
        yield "signatureUri", source.signature_uri


def _urls(spec: InferenceJobSpec, source: ModelSource) -> Iterator[tuple[str, str]]:
    yield from ((f"{field} {uri}", uri) for field, uri in _files(source) if is_url(uri))
    if spec.input is not None and spec.input.uri is not None and is_url(spec.input.uri):
        yield f"input.uri {spec.input.uri}", spec.input.uri
    for name, url in traces_to(spec.template or PodTemplate()):
        yield f"template.env {name}", url
