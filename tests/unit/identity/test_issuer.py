"""Whom the authority signs for: each way to get somebody else's certificate is tried."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from inference_operator.identity.issuer import IssueError, Issuer, Rules
from inference_operator.identity.keyring import Lifetimes, rotated
from inference_operator.state.objects import Pod, PodPhase
from tests.builders import a_job, a_pod, somebodys_pod
from tests.clock import Clock
from tests.unit.autoscaling.metricsapi.kube import FakeKube

NOW = datetime(2026, 4, 2, 12, tzinfo=UTC)
AUDIENCE = "spiffe://example.org/ns/ops/sa/op/certificates"
LIFETIMES = Lifetimes(timedelta(days=1), timedelta(days=365))
RING = rotated(None, NOW, LIFETIMES)
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
JOB = a_job("net", namespace="team", serve=True)
WORKER, OTHER = a_pod(JOB, 1), a_pod(JOB, 2)
HOSTS = ("net.team.svc",)


def request(key: Any = None, subject: str = "") -> str:
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)] if subject else [])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    if subject:
        wanted = [x509.DNSName("kubernetes.default.svc"), x509.UniformResourceIdentifier("spiffe://example.org/ns/ops/sa/op")]
        builder = builder.add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def token(pod: Pod, *, audience: str = AUDIENCE, uid: str | None = None) -> str:
    bound = {"namespace": pod.key.namespace, "pod": {"name": pod.key.name, "uid": uid or pod.uid}}
    claims = json.dumps({"aud": [audience], "kubernetes.io": bound}).encode()
    return "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".c2ln"


def review(pod: Pod = WORKER, **changes: Any) -> dict[str, Any]:
    extra = {"authentication.kubernetes.io/pod-name": [pod.key.name], "authentication.kubernetes.io/pod-uid": [pod.uid]}
    user = {"username": f"system:serviceaccount:{pod.key.namespace}:default", "extra": extra}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user, **changes}


class Authority:
    """An issuer with an API server that says what a test wants."""

    def __init__(self, status: dict[str, Any] | None = None, *pods: Pod) -> None:
        self.kube, self.clock = FakeKube(), Clock()
        self.kube.reviews[REVIEWS] = lambda spec: self.reviewed(spec, review() if status is None else status)
        known = {pod.key: pod for pod in pods or (WORKER, OTHER)}
        self.issuer = Issuer(
            self.kube,
            known.get,
            lambda _: HOSTS,
            Rules(AUDIENCE, "example.org", LIFETIMES),
            now=lambda: NOW,
            monotonic=self.clock.monotonic,
        )
        self.asked = 0

    def reviewed(self, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        assert spec["audiences"] == [AUDIENCE]
        return status

    async def issue(self, shown: str | None = None, asked: str | None = None, address: str = "10.0.0.1") -> x509.Certificate:
        issued = await self.issuer.issue(RING, address, token(WORKER) if shown is None else shown, asked or request())
        assert issued.trust == RING.trust
        return x509.load_pem_x509_certificate(issued.chain.encode())

    async def refused(self, shown: str | None = None, asked: str | None = None) -> HTTPStatus:
        with pytest.raises(IssueError) as caught:
            await self.issue(shown, asked)
        return caught.value.status


async def test_a_worker_gets_a_days_certificate_for_its_own_name_and_that_of_its_service() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    found = await Authority().issue(asked=request(key))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
        f"spiffe://example.org/ns/team/sa/default/pod/{WORKER.uid}"
    ]
    assert names.get_values_for_type(x509.DNSName) == list(HOSTS)
    assert found.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature, "as an X.509-SVID has to"
    assert found.not_valid_after_utc == NOW + timedelta(days=1)
    assert found.public_key() == key.public_key()
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(RING.signing.certificate.encode()))


async def test_what_a_request_asks_for_beside_its_key_counts_nothing() -> None:
    found = await Authority().issue(asked=request(subject="system:masters"))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert list(found.subject) == []
    assert names.get_values_for_type(x509.DNSName) == list(HOSTS)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usages = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH], "it must not open what the operator's certificate opens"


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False},
        {},
        review(audiences=["https://kubernetes.default.svc"]),
        review(audiences=[]),
        review(OTHER),
        review(authenticated="true"),
        review(user={"username": "system:serviceaccount:team:default", "extra": {}}),
        review(user={**review()["user"], "username": "system:serviceaccount:other:default"}),
        review(user={**review()["user"], "username": "system:serviceaccount:team:"}),
        review(user={**review()["user"], "username": "admin"}),
    ],
    ids=str,
)
async def test_a_token_that_the_api_server_does_not_confirm_gets_nothing(status: dict[str, Any]) -> None:
    assert await Authority(status).refused() == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("shown", ["", "junk", "a.b.c", "e30.e30.e30", "." * 9000, "e30." + "A" * 9000 + ".e30"])
async def test_what_is_no_token_of_a_pod_costs_the_api_server_nothing(shown: str) -> None:
    authority = Authority()

    assert await authority.refused(shown) == HTTPStatus.UNAUTHORIZED
    assert authority.asked == 0


async def test_a_workers_token_with_bytes_that_are_not_ascii_costs_the_api_server_nothing() -> None:
    authority = Authority()

    assert await authority.refused(token(WORKER) + "\udcff") == HTTPStatus.UNAUTHORIZED
    assert authority.asked == 0


async def test_a_token_for_another_audience_costs_the_api_server_nothing() -> None:
    authority = Authority()

    assert await authority.refused(token(WORKER, audience="https://kubernetes.default.svc")) == HTTPStatus.UNAUTHORIZED
    assert authority.asked == 0


async def test_a_pod_that_is_no_worker_or_over_or_another_gets_nothing_and_costs_nothing() -> None:
    over = a_pod(JOB, 3, phase=PodPhase.FAILED)
    authority = Authority(None, WORKER, over, somebodys_pod())
    for shown in (token(over), token(somebodys_pod()), token(OTHER), token(WORKER, uid="uid-of-its-predecessor")):
        assert await authority.refused(shown) == HTTPStatus.FORBIDDEN
    assert authority.asked == 0


async def test_a_key_of_another_kind_or_a_request_that_is_not_signed_by_it_is_refused() -> None:
    good = x509.load_pem_x509_csr(request().encode()).public_bytes(serialization.Encoding.DER)
    forged = base64.encodebytes(good[:-6] + bytes(byte ^ 1 for byte in good[-6:])).decode()
    authority = Authority()
    for asked in (
        "junk",
        request(rsa.generate_private_key(65537, 1024 * 2)),
        request(ec.generate_private_key(ec.SECP384R1())),
        f"-----BEGIN CERTIFICATE REQUEST-----\n{forged}-----END CERTIFICATE REQUEST-----\n",
    ):
        assert await authority.refused(asked=asked) == HTTPStatus.BAD_REQUEST
    assert authority.asked == 0


async def test_one_address_that_asks_again_and_again_keeps_nobody_else_out() -> None:
    authority = Authority()
    refused = 0
    for _ in range(100):
        try:
            await authority.issue()
        except IssueError as error:
            refused += error.status == HTTPStatus.TOO_MANY_REQUESTS and error.retry_after_seconds is not None
    assert (refused, authority.asked) == (95, 5)
    assert await authority.issue(address="10.0.0.2")


async def test_one_namespace_that_asks_again_and_again_keeps_no_other_out() -> None:
    authority = Authority()
    for number in range(200):
        await authority.issue(address=f"10.9.0.{number}")
    with pytest.raises(IssueError, match="this namespace asks too often"):
        await authority.issue(address="10.0.1.1")
    elsewhere = a_pod(a_job("b", namespace="b", serve=True))
    another = Authority(review(elsewhere), WORKER, elsewhere)
    another.issuer._namespaces = authority.issuer._namespaces
    assert await another.issue(token(elsewhere), address="10.9.1.1")


async def test_forged_tokens_of_a_namespace_from_elsewhere_keep_its_workers_out_of_nothing() -> None:
    """Who knows a pod's name and uid can write a token that says so; 300 from 300 addresses kept all workers of its namespace out."""
    at_home = replace(WORKER, address="10.1.2.3")
    authority = Authority({"authenticated": False}, at_home)
    for number in range(300):
        with pytest.raises(IssueError):
            await authority.issue(address=f"10.0.{number // 250}.{number % 250}")
    authority.kube.reviews[REVIEWS] = lambda spec: authority.reviewed(spec, review(at_home))

    assert await authority.issue(address="10.1.2.3")


async def test_an_api_server_that_is_away_refuses_for_now() -> None:
    authority = Authority()
    authority.kube.down = True
    with pytest.raises(IssueError) as caught:
        await authority.issue()
    assert caught.value.retry_after_seconds is not None
