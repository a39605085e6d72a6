"""Keyless signatures: by a key of minutes, certified by Sigstore for an identity, and written down in a public log.

Nothing is asked over the network. The log's own time says when it was signed, which its key has signed in turn; the certificate has
to be valid then. Entries of the kind `dsse 0.0.1` are read, as Rekor version 1 writes them.
"""

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from inference_protocol.messages import Identity
from inference_worker.signing import log_proofs
from inference_worker.signing.bundle import Bundle, LogEntry
from inference_worker.signing.certificates import certificate_of, chain_of, is_like, key_bytes, names_of
from inference_worker.signing.keys import is_signed
from inference_worker.signing.strict import SignatureError, decode, unbase64
from inference_worker.signing.trusted_root import Authority, TrustedRoot
from inference_worker.signing.trusted_root import parse as parse_root

_KIND = "dsse 0.0.1"
# Who says whom a certificate of Fulcio is for: as DER, and before that as plain text.
_ISSUER, _ISSUER_PLAIN = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8"), x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_UTF8_STRING = 0x0C


class _Hash(msgspec.Struct, frozen=True):
    algorithm: Literal["sha256"]
    value: str


class _Signature(msgspec.Struct, frozen=True):
    signature: str
    verifier: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    payload_hash: _Hash
    signatures: Annotated[tuple[_Signature, ...], msgspec.Meta(min_length=1, max_length=1)]


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    api_version: Literal["0.0.1"]
    kind: Literal["dsse"]
    spec: _Spec


def identified(bundle: Bundle, root: str, identities: Iterable[Identity]) -> str:
    """Return who signed a bundle, of the trusted identities. Raises SignatureError."""
    trusted = parse_root(root)
    if bundle.certificate is None or bundle.entry is None:
        raise SignatureError("a keyless signature has a certificate and one entry of a log")
    leaf = certificate_of(bundle.certificate)
    at = _logged(bundle, bundle.entry, leaf, trusted)
    log_proofs.require_certificate_logged(leaf, _issuer_of(leaf, trusted, at), trusted.certificates)
    if not is_signed(leaf.public_key(), bundle.signature, bundle.signed):
        raise SignatureError("the signature is not by the key of its certificate")
    return _one_of(leaf, identities)


def _logged(bundle: Bundle, entry: LogEntry, leaf: x509.Certificate, trusted: TrustedRoot) -> datetime:
    """When the log took the signature, which has to be this one."""
    log = trusted.entries.get(entry.log_id)
    at = datetime.fromtimestamp(entry.time, UTC) if entry.time < 1 << 34 else None
    if log is None or at is None or at not in log.period:
        raise SignatureError("its entry is of no log that the administrator's trusted root has")
    if entry.kind != _KIND:
        raise SignatureError(f"its log's entry is of kind {entry.kind[:50]!r}, and must be of {_KIND!r}")
    log_proofs.require_logged(entry, log.key)
    body = decode(entry.body, _Body, "its log's entry")
    written = body.spec.signatures[0]
    if body.spec.payload_hash.value != log_proofs.sha256(bundle.payload).hex():
        raise SignatureError("its log's entry is of another payload")
    if unbase64(written.signature, "the log's signature") != bundle.signature:
        raise SignatureError("its log's entry is of another signature")
    if unbase64(written.verifier, "the log's certificate").strip() != leaf.public_bytes(Encoding.PEM).strip():
        raise SignatureError("its log's entry is of another certificate")
    return at


def _issuer_of(leaf: x509.Certificate, trusted: TrustedRoot, at: datetime) -> bytes:
    """The key (DER) of who issued a certificate, all of its chain valid then."""
    fitting = [authority for authority in trusted.authorities if at in authority.period]
    if not fitting:
        raise SignatureError("the administrator's trusted root has no authority of certificates for that time")
    for authority in fitting[:-1]:
        with contextlib.suppress(SignatureError):
            return _issued_by(leaf, authority, at)
    return _issued_by(leaf, fitting[-1], at)


def _issued_by(leaf: x509.Certificate, authority: Authority, at: datetime) -> bytes:
    return key_bytes(chain_of(leaf, authority.chain[:-1], authority.chain[-1:], at)[1])


def _one_of(leaf: x509.Certificate, identities: Iterable[Identity]) -> str:
    names, issuer = names_of(leaf), _told_by(leaf)
    if len(names) != 1:
        raise SignatureError("its certificate must be for exactly one subject")
    if not any(is_like(names[0], each.subject) and issuer == each.issuer for each in identities):
        raise SignatureError(f"it is by {names[0][:200]!r}, as {issuer[:200]!r} says, whom the administrator doesn't trust")
    return names[0]


def _told_by(leaf: x509.Certificate) -> str:
    found = {each.oid: each.value.value for each in leaf.extensions if isinstance(each.value, x509.UnrecognizedExtension)}
    coded = found.get(_ISSUER)
    if coded is None:
        return found.get(_ISSUER_PLAIN, b"").decode(errors="replace")
    # A UTF8String of less than 128 bytes, or with its length in one byte or two.
    if len(coded) < 2 or coded[0] != _UTF8_STRING:
        raise SignatureError("its certificate does not say who knows its subject")
    more = coded[1] - 128 if coded[1] >= 128 else 0
    length = int.from_bytes(coded[2 : 2 + more]) if more else coded[1]
    text = coded[2 + more :]
    if more > 2 or len(text) != length:
        raise SignatureError("its certificate does not say who knows its subject")
    return text.decode(errors="replace")
