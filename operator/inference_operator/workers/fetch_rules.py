"""Whether the URLs of a job keep to the hosts that the cluster lets workers talk to."""

from collections.abc import Iterator

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_protocol.hosts import host_fault
from inference_protocol.messages import BatchTask, ModelSource
from inference_protocol.uris import HttpUri, OciUri, RemoteUri, Uri, UriError, parse_uri

# Where OpenTelemetry posts traces.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def fetch_fault(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> str | None:
    """Return the first URL of a job that names a forbidden host, with why; None where all may be used."""
    found = _faults(spec, source, settings)
    return next((f"{place}: {fault}" for place, fault in found if fault is not None), None)


def url_fault(url: str, settings: Settings) -> str | None:
    """Return why workers may not talk to where a URL leads; None where they may."""
    try:
        uri = parse_uri(url)
    except UriError as error:
        return str(error)
    return host_fault(uri.host, settings.fetch.allowed_hosts) if isinstance(uri, HttpUri) else f"{url!r} is no http(s) URL"


def fetch_from(source: ModelSource, task: BatchTask | None, *, traces: bool, settings: Settings) -> tuple[str, ...]:
    """Return the list that a worker needs for this: none where nothing of it is remote, so that a new list rolls out no others."""
    of_task = (task.input_uri, task.output_uri) if task is not None else ()
    named = (*(uri for _, uri in _files(source)), *(uri for uri in of_task if uri is not None))
    return settings.fetch.allowed_hosts if traces or any(map(_is_remote, named)) else ()


def traces_to(template: PodTemplate) -> Iterator[tuple[str, str]]:
    """Yield the variables by which a job says where its traces go, with their values."""
    return ((variable.name, variable.value) for variable in template.env if variable.name in ENDPOINTS and variable.value)


def location_fault(text: str, settings: Settings) -> str | None:
    """Return why workers may not fetch from where a location leads; None where they may, or where only they can tell."""
    match _parsed(text):
        case HttpUri(host=host) | OciUri(host=host):
            return host_fault(host, settings.fetch.allowed_hosts)
        case _:
            return None


def _is_remote(text: str) -> bool:
    """Whether a location is fetched over the network, however it is spelt."""
    return isinstance(_parsed(text), RemoteUri)


def _parsed(text: str) -> Uri | None:
    try:
        return parse_uri(text)
    except UriError:
        return None


def _files(source: ModelSource) -> Iterator[tuple[str, str]]:
    """Yield what is read to load a model and may be a URL, each with the word for it."""
    yield "model", source.uri
    if source.signature_uri is not None:
        yield "signatureUri", source.signature_uri


def _faults(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield each place that a job names, with why it may not."""
    given = spec.input.uri if spec.input is not None else None
    files = (*_files(source), *([("input.uri", given)] if given is not None else []))
    yield from ((f"{field} {text}", location_fault(text, settings)) for field, text in files)
    traces = traces_to(spec.template or PodTemplate())
    yield from ((f"template.env {name}", url_fault(url, settings)) for name, url in traces)
