"""This worker's certificate: its key is made here and never leaves the process, the operator's authority signs for it.

The worker proves itself by a token that the kubelet keeps new, and that is good for the operator's authority alone.
"""

import http.client
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from inference_protocol.messages import (
    CERTIFICATES_PATH,
    TOKEN_FILE,
    TRUST_FILE,
    CertificateRequest,
    IssuedCertificate,
    WorkerIdentity,
    encode,
)
from inference_protocol.spiffe import only_uri

_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER_BYTES = 64 << 10


class IdentityError(Exception):
    """There is no certificate now; the message says why. Asking again makes sense."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, and the CAs that are trusted, in PEM. `seconds` is how long it is good in all."""

    chain: str
    key: str = field(repr=False)
    trust: str
    seconds: float


def ask(told: WorkerIdentity, root: Path, *, trust: str = "") -> Issued:
    """Return a new certificate. `trust` are CAs beside those of the volume, which the pod got at its start. Raises IdentityError.

    Blocks for seconds.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    try:
        token = (root / TOKEN_FILE).read_text(encoding="ascii").strip()
        known = (root / TRUST_FILE).read_text(encoding="ascii") + trust
        answer = _answer(told, known, token, asked.public_bytes(serialization.Encoding.PEM).decode())
        issued = msgspec.json.decode(answer, type=IssuedCertificate)
        leaf = x509.load_pem_x509_certificate(issued.chain.encode())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise IdentityError(f"{told.issuer}: {type(error).__name__}: {error}"[:500]) from error
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    return Issued(issued.chain, pem, issued.trust, (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds())


def _answer(told: WorkerIdentity, trust: str, token: str, request: str) -> bytes:
    """What the authority answers; it is known by its name and by its SPIFFE ID before it sees the token."""
    context = ssl.create_default_context(cadata=trust)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    place = urlsplit(told.issuer)
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=_TIMEOUT_SECONDS, context=context)
    try:
        connection.connect()
        shown = only_uri(connection.sock.getpeercert())
        if shown != told.operator:
            raise IdentityError(f"{told.issuer} is {shown}, and not {told.operator}")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", CERTIFICATES_PATH, encode(CertificateRequest(request)), headers)
        response = connection.getresponse()
        body = response.read(_LONGEST_ANSWER_BYTES + 1)
        if response.status != 200 or len(body) > _LONGEST_ANSWER_BYTES:
            raise IdentityError(f"{told.issuer} answered {response.status}: {body[:200].decode(errors='replace')}")
        return body
    finally:
        connection.close()
