"""Where the URLs of a job lead: none to a host that the administrator doesn't allow, in whichever field it stands."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Input, Output
from inference_operator.api.pod_parts import EnvironmentVariable
from inference_operator.api.template import PodTemplate
from inference_operator.settings import ConfigurationError, Fetching, Settings, load_settings
from inference_operator.state.objects import Job, Model
from inference_operator.warmpools.eligibility import task_order
from inference_operator.workers.config import worker_config
from inference_operator.workers.environment import environment
from inference_operator.workers.resolve import Refusal, ResolvedJob, resolve
from inference_protocol.messages import Storage, WorkerConfig
from tests.builders import DIGEST, SETTINGS, a_job, a_model, a_version, observed, resolved_of

LISTED, OTHER = "https://models.example/m.onnx", "https://other.example/m.onnx"
HOSTS = ("models.example", "*.svc")
ALLOWING = msgspec.structs.replace(SETTINGS, fetch=Fetching(HOSTS))


def looked_at(job: Job, settings: Settings = ALLOWING, model: Model | None = None) -> ResolvedJob | Refusal:
    assert job.spec is not None
    return resolve(observed(job, model=model), job.spec, settings)


def told(resolved: ResolvedJob, settings: Settings) -> WorkerConfig:
    spec, of_class = resolved.spec, settings.accelerators["cpu"]
    return worker_config(resolved.job, spec, resolved.source, of_class, number=1, settings=settings, backend=resolved.backend)


def traced(url: str, name: str = "OTEL_EXPORTER_OTLP_ENDPOINT") -> Job:
    return a_job(template=PodTemplate(env=[EnvironmentVariable(name=name, value=url)]))


FIELDS = {
    "model": lambda url: (a_job(model=url, model_digest=DIGEST), None),
    "a model's version": lambda url: (a_job(model="m"), a_model("m", a_version(uri=url))),
    "a signature": lambda url: (a_job(model="m"), a_model("m", replace(a_version(uri="pvc://data/m.onnx"), signature_uri=url))),
    "input.uri": lambda url: (a_job(input=Input(uri=url, digest=DIGEST)), None),
    "traces": lambda url: (traced(url), None),
    "traces alone": lambda url: (traced(url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), None),
}


@pytest.mark.parametrize("field", FIELDS)
def test_no_field_of_a_job_names_a_host_that_is_not_allowed(field: str) -> None:
    """A job could have its worker ask any address of the cluster's network, and learn what answers there."""
    job, model = FIELDS[field](OTHER)

    found = looked_at(job, model=model)

    assert isinstance(found, Refusal) and (found.reason, found.final) == (Reason.HOST_FORBIDDEN, False)
    assert "host other.example is not allowed; this cluster allows models.example, *.svc" in found.message
    for url in (LISTED, "http://minio.storage.svc:9000/m.onnx"):
        job, model = FIELDS[field](url)
        assert isinstance(looked_at(job, model=model), ResolvedJob)


@pytest.mark.parametrize("field", ["model", "a model's version", "a signature"])
def test_no_registry_is_named_that_is_not_allowed(field: str) -> None:
    job, model = FIELDS[field]("oci://other.example:5000/net:v1")

    found = looked_at(job, model=model)

    assert isinstance(found, Refusal) and found.reason is Reason.HOST_FORBIDDEN
    job, model = FIELDS[field]("oci://models.example/net:v1")
    assert isinstance(looked_at(job, model=model), ResolvedJob)


@pytest.mark.parametrize("uri", ["s3://models/m.onnx", "gs://models/m.onnx", "hf://org/net/m.onnx", "oci://models.example/net"])
def test_a_worker_is_told_the_list_for_stores_too(uri: str) -> None:
    """Where a bucket or a hub is the worker learns from a Secret: it alone can hold the list against that."""
    resolved = resolved_of(observed(a_job(model="m"), model=a_model("m", a_version(uri=uri))), ALLOWING)

    assert told(resolved, ALLOWING).fetch_from == HOSTS


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("s3://models/m.onnx", Storage(s3_endpoint="https://o", s3_region="eu")),
        ("gs://models/m.onnx", None),
        ("hf://org/net/m.onnx", Storage(hub_endpoint="https://hub")),
        ("oci://models.example/net", None),
        ("pvc://data/m.onnx", None),
    ],
)
def test_a_source_has_what_the_settings_say_of_its_own_store_and_of_no_other(uri: str, wanted: Storage | None) -> None:
    """A new endpoint of one store rolled out the services that read from another."""
    fetch = Fetching(s3_endpoint="https://o", s3_region="eu", hub_endpoint="https://hub")
    settings = msgspec.structs.replace(SETTINGS, fetch=fetch)
    seen = observed(a_job(model="m"), model=a_model("m", a_version(uri=uri)))

    assert resolved_of(seen, settings).source.storage == wanted
    assert resolved_of(seen).source.storage is None


def test_workers_are_told_of_the_administrators_proxy_by_names_that_no_job_sets() -> None:
    settings = msgspec.structs.replace(SETTINGS, fetch=Fetching(https_proxy="http://proxy:3128", no_proxy=("*.svc", "10.0.0.1")))
    job = a_job()
    resolved = resolved_of(observed(job))
    config = worker_config(job, resolved.spec, resolved.source, settings.accelerators["cpu"], number=1, settings=settings)

    told = {one["name"]: one.get("value") for one in environment(job, config, PodTemplate(), settings)}

    assert (told["INFERENCE_HTTPS_PROXY"], told["INFERENCE_NO_PROXY"]) == ("http://proxy:3128", "*.svc,10.0.0.1")
    assert "INFERENCE_HTTPS_PROXY" not in {one["name"] for one in environment(job, config, PodTemplate(), SETTINGS)}


@pytest.mark.parametrize(
    ("fetch", "words"),
    [
        ("{httpsProxy: 'socks5://p:1'}", "fetch.httpsProxy"),
        ("{httpsProxy: 'http://user:secret@p:1'}", "without a password"),
        ("{httpsProxy: 'http://p:1', noProxy: ['http://x']}", "fetch.noProxy"),
    ],
)
def test_a_wrong_proxy_is_told_at_the_start(tmp_path: Path, fetch: str, words: str) -> None:
    (tmp_path / "settings.yaml").write_text(f"fetch: {fetch}\n")

    with pytest.raises(ConfigurationError, match=words):
        load_settings(tmp_path / "settings.yaml")


def test_a_task_is_told_where_its_stores_are_and_which_hosts_it_may_ask() -> None:
    settings = msgspec.structs.replace(SETTINGS, fetch=Fetching(("o.example",), s3_endpoint="https://o.example"))
    job = a_job(input=Input(uri="pvc://data/in.npy"), output=Output(uri="s3://answers/out"))
    resolved = resolved_of(observed(job), settings)

    config = worker_config(job, resolved.spec, resolved.source, settings.accelerators["cpu"], number=1, settings=settings)

    assert config.task is not None and config.task.input_storage is None
    assert config.task.output_storage == Storage(s3_endpoint="https://o.example")
    assert config.fetch_from == ("o.example",)


@pytest.mark.parametrize("url", ["HTTPS://other.example/m", " https://other.example/m", "https://OTHER.example./m"])
def test_no_spelling_of_a_url_passes_the_list_by(url: str) -> None:
    """The API server's pattern refuses the first two; should it ever not, a worker without the list would fetch anything."""
    job, model = FIELDS["a model's version"](url)

    assert isinstance(looked_at(job, model=model), Refusal)


@pytest.mark.parametrize("field", FIELDS)
def test_without_a_list_any_host_may_be_named(field: str) -> None:
    job, model = FIELDS[field](OTHER)

    assert isinstance(looked_at(job, SETTINGS, model), ResolvedJob)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "http://[::1]:4318", "http://[64:ff9b::a9fe:a9fe]/", "file:///tmp/x", "nonsense"]
)
@pytest.mark.parametrize("hosts", [(), ("169.254.169.254", "::1")], ids=["no list", "listed"])
def test_traces_are_not_posted_to_the_metadata_service_whatever_the_list_says(url: str, hosts: tuple[str, ...]) -> None:
    """A worker posted to any address, with headers of the job's choice."""
    found = looked_at(traced(url), msgspec.structs.replace(SETTINGS, fetch=Fetching(hosts)))

    assert isinstance(found, Refusal) and found.reason is Reason.HOST_FORBIDDEN


@pytest.mark.parametrize("field", FIELDS)
def test_a_worker_is_told_the_list_since_names_and_redirects_change(field: str) -> None:
    job, model = FIELDS[field](LISTED)
    resolved = resolved_of(observed(job, model=model), ALLOWING)

    assert told(resolved, ALLOWING).fetch_from == HOSTS
    assert told(resolved, ALLOWING).guarded_traces is field.startswith("traces")
    if not field.startswith("traces"):
        assert task_order(resolved, 1, "cpu", settings=ALLOWING).fetch_from == HOSTS


def test_a_new_list_rolls_out_no_service_without_a_url() -> None:
    service, by_url = a_job(serve=True), a_job(serve=True, model=LISTED, model_digest=DIGEST)

    before, after = (resolved_of(observed(service), settings) for settings in (SETTINGS, ALLOWING))
    assert before.revisions == after.revisions
    before, after = (resolved_of(observed(by_url), settings) for settings in (SETTINGS, ALLOWING))
    assert before.revisions != after.revisions


@pytest.mark.parametrize("name", ["s3Endpoint", "hubEndpoint"])
def test_an_endpoint_that_is_no_url_ends_the_operator_at_its_start(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(msgspec.yaml.encode({"fetch": {name: "objects.example:9000"}}))

    with pytest.raises(ConfigurationError, match=f"fetch.{name}: it is no URL"):
        load_settings(file)


@pytest.mark.parametrize("entry", ["*", "https://models.example", "*.0.0.7", "10.0.0.0/8"])
def test_a_list_with_an_entry_that_cannot_be_meant_ends_the_operator_at_its_start(tmp_path: Path, entry: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(msgspec.yaml.encode({"fetch": {"allowedHosts": ["models.example", entry]}}))

    with pytest.raises(ConfigurationError, match=re.escape(f"fetch.allowedHosts: {entry!r}")):
        load_settings(file)
