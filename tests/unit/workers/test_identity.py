"""What a worker proves itself by, what its callers' ports show, and what of Secrets comes into its pod."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from inference_operator.api.callers import Authentication, ClientCertificates, Jwt, ServeTls
from inference_operator.api.conditions import ConditionType, Reason, find
from inference_operator.api.job import Input, Output, Serve
from inference_operator.api.storage import SecretReference, Storage
from inference_operator.settings import MutualTls
from inference_operator.state.objects import Job, Key, PodPhase
from inference_operator.workers.identity import hosts, shown_names, volumes
from inference_operator.workers.resolve import Refusal, resolve
from inference_operator.workers.service import endpoint, service_manifest
from inference_protocol.messages import JwtRules, ServingTls, WorkerIdentity
from inference_protocol.spiffe import only_uri, worker_id
from tests.builders import SETTINGS, a_job, a_model, a_pod, a_version, observed, resolved_of
from tests.unit.scheduling.support import decide, status_of
from tests.unit.workers.test_pod import config_of, container_of, pod_of

MUTUAL = msgspec.structs.replace(SETTINGS, mutual_tls=MutualTls(enabled=True, namespace="ops", trust_domain="example.org"))
EVERYBODY = Serve(tls=ServeTls(secret_name="net-tls"))
KNOWN = Serve(
    tls=ServeTls(secret_name="net-tls"),
    authentication=Authentication(
        client_certificates=ClientCertificates(ca_secret_name="callers"),
        jwt=Jwt(issuer="https://issuer", audiences=["net"], jwks_secret_name="keys"),
    ),
)


def sources(job: Job, **changes: Any) -> list[dict[str, Any]]:
    volumes = {volume["name"]: volume for volume in pod_of(job, **changes)["spec"]["volumes"]}
    found: list[dict[str, Any]] = volumes["identity"]["projected"]["sources"] if "identity" in volumes else []
    return found


@pytest.mark.parametrize("job", [a_job(), a_job(serve=True)], ids=["batch", "service"])
def test_a_worker_is_given_a_token_for_the_operators_authority_alone(job: Job) -> None:
    token, trust = sources(job, settings=MUTUAL)

    assert token["serviceAccountToken"]["audience"] == "spiffe://example.org/ns/ops/sa/inference-operator/certificates"
    assert token["serviceAccountToken"]["expirationSeconds"] <= 3600
    assert trust["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.annotations['inference.myorg/trust']"
    assert pod_of(job, settings=MUTUAL)["spec"]["automountServiceAccountToken"] is False
    assert config_of(pod_of(job, settings=MUTUAL)).identity == WorkerIdentity(
        "https://inference-operator-authority.ops.svc:8444", "spiffe://example.org/ns/ops/sa/inference-operator"
    )


def test_a_worker_without_mutual_tls_has_no_token_and_no_volume() -> None:
    assert sources(a_job(serve=True)) == []
    assert config_of(pod_of(a_job(serve=True))).identity is None


def test_single_keys_of_the_secrets_that_a_job_names_come_into_its_pod() -> None:
    of_secrets = [one["secret"] for one in sources(a_job(serve=KNOWN), settings=MUTUAL) if "secret" in one]
    found = {one["name"]: [item["key"] for item in one["items"]] for one in of_secrets}

    assert found == {"net-tls": ["tls.crt", "tls.key"], "callers": ["ca.crt"], "keys": ["jwks.json"]}
    (mount,) = [m for m in container_of(pod_of(a_job(serve=KNOWN), settings=MUTUAL))["volumeMounts"] if m["name"] == "identity"]
    assert mount["readOnly"] is True


def test_a_service_that_waits_for_a_secret_says_for_which() -> None:
    """The kubelet alone knows that one is missing, and tells it in an event of the pod."""
    job = a_job(serve=KNOWN)
    seen = observed(job, a_pod(job, phase=PodPhase.PENDING, settings=MUTUAL))
    ready = find(status_of(decide(seen, settings=MUTUAL), seen).conditions, ConditionType.READY)

    assert ready is not None
    assert ready.message == (
        "0/1 workers of the newest revision ready; a worker starts only if there is "
        "Secret net-tls with tls.crt and tls.key, Secret callers with ca.crt, Secret keys with jwks.json"
    )


def test_the_worker_is_told_whom_to_let_in() -> None:
    assert config_of(pod_of(a_job(serve=EVERYBODY), settings=MUTUAL)).serving_tls == ServingTls(own_certificate=True)
    assert config_of(pod_of(a_job(serve=KNOWN), settings=MUTUAL)).serving_tls == ServingTls(
        own_certificate=True, client_certificates=True, jwt=JwtRules("https://issuer", ("net",))
    )
    assert config_of(pod_of(a_job(serve=True))).serving_tls is None


def test_a_service_with_tls_says_so() -> None:
    job = a_job("net", namespace="team", serve=EVERYBODY)

    assert {port["appProtocol"] for port in service_manifest(job)["spec"]["ports"]} == {"https"}
    assert endpoint(job).startswith("https://net")
    assert endpoint(job).split("/")[2].split(":")[0] in hosts(job.key)


def test_only_a_worker_of_the_jobs_own_namespace_shows_the_names_of_its_service() -> None:
    """A pod of another namespace may have the job's uid in its labels: it would be taken for the job's Service by every caller."""
    job = a_job("net", namespace="team", serve=Serve(tls=ServeTls()))
    worker = a_pod(job, revision="r")
    elsewhere = replace(worker, key=Key("attacker", worker.key.name))

    assert shown_names(worker, job) == hosts(job.key)
    assert "net.team.svc" in shown_names(worker, job)
    headless = a_job("net", namespace="team", serve=Serve(tls=ServeTls(), headless=True))
    assert "net-headless.team.svc" in shown_names(worker, headless)
    assert shown_names(elsewhere, job) == ()
    assert shown_names(worker, None) == ()
    for other in (EVERYBODY, True):
        assert shown_names(worker, a_job("net", namespace="team", serve=other)) == ()


@pytest.mark.parametrize("tls", [ServeTls(), ServeTls(secret_name="net-tls")])
def test_tls_for_callers_alone_is_refused_since_the_operator_could_not_ask_such_workers(tls: ServeTls) -> None:
    job = a_job(serve=Serve(tls=tls))
    assert job.spec is not None
    found = resolve(observed(job), job.spec, SETTINGS)

    assert isinstance(found, Refusal)
    assert (found.reason, found.final) == (Reason.TLS_UNAVAILABLE, False)
    assert not isinstance(resolve(observed(job), job.spec, MUTUAL), Refusal)


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://d/ns/a/sa/b/pod/",
        "spiffe://d/ns/a/b/sa/c/pod/u",
        "spiffe://d/ns/a/sa/b/pod/u/more",
        "spiffe://d/ns/a/sa/b",
        "https://d/ns/a/sa/b/pod/u",
        "spiffe://d/ns/a/sa/b/pod/u\n",
    ],
)
def test_what_names_no_worker_is_none(uri: str) -> None:
    assert worker_id(uri) is None


def test_a_workers_name_is_read_as_it_is_written() -> None:
    named = worker_id("spiffe://example.org/ns/team/sa/default/pod/0b6f-1")

    assert named is not None
    assert (named.namespace, named.uid) == ("team", "0b6f-1")
    assert str(named) == "spiffe://example.org/ns/team/sa/default/pod/0b6f-1"


def test_a_certificate_with_several_uris_names_nobody() -> None:
    assert only_uri({"subjectAltName": (("URI", "spiffe://a"), ("DNS", "b"))}) == "spiffe://a"
    assert only_uri({"subjectAltName": (("URI", "spiffe://a"), ("URI", "spiffe://b"))}) is None
    assert only_uri({}) is None
    assert only_uri(None) is None


def stored(uri: str, storage: Storage) -> list[dict[str, Any]]:
    version = replace(a_version(uri=uri), storage=storage)
    resolved = resolved_of(observed(a_job(model="m"), model=a_model("m", version)))
    return volumes(resolved.spec, resolved.source, SETTINGS)


BY_SECRET = Storage(secret_ref=SecretReference(name="models"))


@pytest.mark.parametrize(
    ("uri", "some"),
    [
        ("s3://models/m.onnx", {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_CA_BUNDLE"}),
        ("gs://models/m.onnx", {"GOOGLE_APPLICATION_CREDENTIALS", "GCS_ENDPOINT_URL"}),
        ("hf://org/net/m.onnx", {"HF_TOKEN"}),
        ("oci://r.example/net", {".dockerconfigjson"}),
    ],
)
def test_a_worker_is_shown_the_keys_of_its_store_and_no_others(uri: str, some: set[str]) -> None:
    """The rest of a Secret may be for anything, and a worker answers whoever reaches it."""
    (volume,) = stored(uri, BY_SECRET)
    ((_, secret),) = volume["projected"]["sources"][0].items()
    shown = {item["key"] for item in secret["items"]}

    assert secret["name"] == "models" and secret["optional"] is True
    assert some <= shown and (shown - some) <= {"ca.crt", "AWS_SESSION_TOKEN", "HF_ENDPOINT"}
    assert all(item["path"] == f"storage/{item['key']}" for item in secret["items"])


def test_a_role_is_assumed_by_a_token_for_the_token_service_alone() -> None:
    (volume,) = stored("s3://models/m.onnx", Storage(aws_role_arn="arn:aws:iam::123456789012:role/models"))
    token = volume["projected"]["sources"][0]["serviceAccountToken"]

    assert (token["audience"], token["path"]) == ("sts.amazonaws.com", "storage/web-identity-token")
    assert token["expirationSeconds"] <= 3600


def test_input_and_output_have_folders_of_their_own_and_one_token() -> None:
    """Two Secrets have the same keys, and a pod with one path twice is none."""
    role = Storage(secret_ref=SecretReference(name="answers"), aws_role_arn="arn:aws:iam::123456789012:role/answers")
    job = a_job(
        model="m", input=Input(uri="hf://org/rows/x.npy", storage=BY_SECRET), output=Output(uri="s3://answers/out", storage=role)
    )
    version = replace(a_version(uri="s3://models/m.onnx"), storage=role)
    resolved = resolved_of(observed(job, model=a_model("m", version)))

    (volume,) = volumes(resolved.spec, resolved.source, SETTINGS)
    sources = volume["projected"]["sources"]
    paths = [item["path"] for source in sources for item in source.get("secret", {}).get("items", [])]

    assert {path.partition("/")[0] for path in paths} == {"storage", "input-storage", "output-storage"}
    assert len(paths) == len(set(paths)) and "input-storage/HF_TOKEN" in paths
    assert [source["secret"]["name"] for source in sources if "secret" in source] == ["answers", "models", "answers"]
    assert len([source for source in sources if "serviceAccountToken" in source]) == 1


def test_a_model_without_storage_adds_nothing_to_its_pod() -> None:
    assert volumes(resolved_of(observed(a_job())).spec, resolved_of(observed(a_job())).source, SETTINGS) == []
