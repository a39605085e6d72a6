"""Whom the authority signs for: a worker pod that is known, and that proves by its token to be that pod.

What costs nothing is asked first. A token that doesn't name a known worker is not even shown to the API server, so that junk costs
it nothing; and what the token says counts only once the API server has verified it.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from inference_operator.errors import OperatorError
from inference_operator.identity.keyring import Keyring, Lifetimes
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.allowances import Allowances
from inference_operator.runtime.pki import sign
from inference_operator.state.objects import Key, Pod
from inference_protocol.messages import IssuedCertificate
from inference_protocol.spiffe import WorkerId

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_LONGEST_TOKEN = 8192
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_MOST_REVIEWS = 32
_RETRY_SECONDS = 2
# A worker asks once a day; one that starts with many others of its namespace asks within the burst, or comes again.
_ADDRESS_RATE, _ADDRESS_BURST, _MOST_ADDRESSES = 0.5, 5, 8192
_NAMESPACE_RATE, _NAMESPACE_BURST, _MOST_NAMESPACES = 10.0, 200, 4096


class IssueError(Exception):
    """No certificate. `retry` is whether coming again makes sense."""

    def __init__(self, status: HTTPStatus, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = _RETRY_SECONDS if retry else None


class _PodClaim(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Bound(msgspec.Struct, frozen=True):
    namespace: str
    pod: _PodClaim


class _Claims(msgspec.Struct, frozen=True):
    """What a projected token says of itself."""

    bound: _Bound = msgspec.field(name="kubernetes.io")
    aud: list[str] | str = ()  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Rules:
    """The audience of good tokens, and what certificates are like."""

    audience: str
    domain: str
    lifetimes: Lifetimes


class Issuer:
    """Answers workers. `pods` are those that the operator knows, `hosts` the names that a pod may show to callers."""

    def __init__(
        self,
        reviews: KubeClient,
        pod_of: Callable[[Key], Pod | None],
        hosts: Callable[[Pod], tuple[str, ...]],
        rules: Rules,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._reviews = reviews
        self._pod_of = pod_of
        self._hosts = hosts
        self._rules = rules
        self._now = now
        self._addresses: Allowances[str] = Allowances(_ADDRESS_RATE, _ADDRESS_BURST, monotonic, most=_MOST_ADDRESSES)
        # Whether somebody asks from the pod's own address: its token can be forged by all, and is not verified yet.
        self._namespaces: Allowances[tuple[str, bool]] = Allowances(
            _NAMESPACE_RATE, _NAMESPACE_BURST, monotonic, most=_MOST_NAMESPACES
        )
        self._under_way = 0

    async def issue(self, ring: Keyring, address: str, token: str, request: str) -> IssuedCertificate:
        """Return a certificate for who shows `token` from `address`. Raises IssueError."""
        if not self._addresses.take(address):
            raise IssueError(HTTPStatus.TOO_MANY_REQUESTS, "this address asks too often", retry=True)
        key = _public_key(request)
        claimed = _claims(token, self._rules.audience)
        pod = self._worker(Key(claimed.namespace, claimed.pod.name), claimed.pod.uid)
        if not self._namespaces.take((pod.key.namespace, address == pod.address)):
            raise IssueError(HTTPStatus.TOO_MANY_REQUESTS, "this namespace asks too often", retry=True)
        account = await self._verified(token, pod)
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(str(WorkerId(self._rules.domain, pod.key.namespace, account, pod.uid)))
        ]
        names += [x509.DNSName(name) for name in self._hosts(pod)]
        # Not to show to servers: a worker must never pass for the operator, or ask another worker in its name.
        certificate = sign(
            ring.signing,
            key,
            subject="",
            names=names,
            usages=[ExtendedKeyUsageOID.SERVER_AUTH],
            validity=self._rules.lifetimes.of_certificate(self._now()),
        )
        return IssuedCertificate(certificate, ring.trust)

    def _worker(self, key: Key, uid: str) -> Pod:
        pod = self._pod_of(key)
        if pod is None or pod.uid != uid or pod.worker is None or pod.over:
            # Its watch may be behind: a worker that has just started comes again.
            raise IssueError(HTTPStatus.FORBIDDEN, f"no worker {key} of this uid is known", retry=True)
        return pod

    async def _verified(self, token: str, pod: Pod) -> str:
        """The pod's ServiceAccount, once the API server has said that the token is this pod's and for us. Raises IssueError."""
        if self._under_way >= _MOST_REVIEWS:
            raise IssueError(HTTPStatus.SERVICE_UNAVAILABLE, "too many workers ask at this moment", retry=True)
        spec = {"token": token, "audiences": [self._rules.audience]}
        self._under_way += 1
        try:
            answer = await self._reviews.create(
                _REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
            )
        except OperatorError as error:
            raise IssueError(HTTPStatus.SERVICE_UNAVAILABLE, "the API server can't be asked now", retry=True) from error
        finally:
            self._under_way -= 1
        account = _account(answer.get("status") or {}, pod, self._rules.audience)
        if account is None:
            raise IssueError(HTTPStatus.UNAUTHORIZED, "to the API server the token isn't this pod's, or not for this audience")
        return account


def _account(status: Raw, pod: Pod, audience: str) -> str | None:
    """The ServiceAccount of a reviewed token; None unless it is good, this pod's, and for the audience."""
    user: Raw = status.get("user") or {}
    extra: Raw = user.get("extra") or {}
    kind, _, account = str(user.get("username", "")).rpartition(":")
    good = (
        status.get("authenticated") is True
        # An API server that knows no audiences names none: its word is not enough.
        and audience in (status.get("audiences") or ())
        and extra.get(_POD_NAME) == [pod.key.name]
        and extra.get(_POD_UID) == [pod.uid]
        and kind == f"system:serviceaccount:{pod.key.namespace}"
    )
    return account if good and account else None


def _claims(token: str, audience: str) -> _Bound:
    """What a token says of itself, which nobody has verified. Raises IssueError."""
    if len(token) > _LONGEST_TOKEN:
        raise IssueError(HTTPStatus.UNAUTHORIZED, "the token is too long")
    if not token.isascii():
        raise IssueError(HTTPStatus.UNAUTHORIZED, "this is no token of a pod")
    try:
        _, payload, _ = token.split(".")
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError) as error:
        raise IssueError(HTTPStatus.UNAUTHORIZED, "this is no token of a pod") from error
    if audience not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise IssueError(HTTPStatus.UNAUTHORIZED, "the token is for somebody else")
    return claims.bound


def _public_key(request: str) -> ec.EllipticCurvePublicKey:
    """The key of a request, whose owner has signed it. What else it asks for counts nothing. Raises IssueError."""
    try:
        asked = x509.load_pem_x509_csr(request.encode())
        key = asked.public_key()
        signed = asked.is_signature_valid
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise IssueError(HTTPStatus.BAD_REQUEST, "this is no certificate request") from error
    if not signed or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IssueError(HTTPStatus.BAD_REQUEST, "a request is signed by its own key, which is one of P-256")
    return key
