"""Reads a Sigstore bundle with a DSSE envelope: what was signed, by whom it claims to be, and what a transparency log says.

The format is `application/vnd.dev.sigstore.bundle.v0.3+json`. A field that is not of it refuses the bundle: nobody would check it.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from inference_worker.signing.strict import SignatureError, decode, unbase64

LIMIT_BYTES = 1 << 20
"""The longest bundle that is read: one of five thousand files."""
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

_MOST_CERTIFICATES = 8
_MOST_HASHES = 64


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of the bundle's records."""


class _PublicKey(_Strict, frozen=True):
    hint: str = ""


class _Certificate(_Strict, frozen=True):
    raw_bytes: str


class _Chain(_Strict, frozen=True):
    certificates: Annotated[tuple[_Certificate, ...], msgspec.Meta(min_length=1, max_length=_MOST_CERTIFICATES)]


class _LogId(_Strict, frozen=True):
    key_id: str


class _KindVersion(_Strict, frozen=True):
    kind: str
    version: str


class _Promise(_Strict, frozen=True):
    signed_entry_timestamp: str


class _Checkpoint(_Strict, frozen=True):
    envelope: str


# Protobuf's JSON writes a number of 64 bits as text.
_Number = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,18})$")]


class _Proof(_Strict, frozen=True):
    log_index: _Number
    root_hash: str
    tree_size: _Number
    checkpoint: _Checkpoint
    hashes: Annotated[tuple[str, ...], msgspec.Meta(max_length=_MOST_HASHES)] = ()


class _LogEntry(_Strict, frozen=True):
    log_index: _Number
    log_id: _LogId
    kind_version: _KindVersion
    integrated_time: _Number
    inclusion_promise: _Promise
    inclusion_proof: _Proof
    canonicalized_body: str


class _Material(_Strict, frozen=True):
    public_key: _PublicKey | None = None
    x509_certificate_chain: _Chain | None = None
    certificate: _Certificate | None = None
    tlog_entries: Annotated[tuple[_LogEntry, ...], msgspec.Meta(max_length=1)] = ()
    # Of an RFC 3161 authority. The log's own time is what counts here.
    timestamp_verification_data: msgspec.Raw | dict[str, object] | None = None


class _Signature(_Strict, frozen=True):
    sig: str
    keyid: str = ""


class _Envelope(_Strict, frozen=True):
    payload: str
    payload_type: str
    signatures: Annotated[tuple[_Signature, ...], msgspec.Meta(min_length=1, max_length=1)]


class _Bundle(_Strict, frozen=True):
    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line of a transparency log (Rekor), with the promise and the proof that it is in there. `time` is in Unix seconds."""

    index: int
    log_id: bytes
    kind: str
    time: int
    promise: bytes
    body: bytes
    proof_index: int
    tree_size: int
    root: bytes
    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle says; nothing of it is verified.

    One of three is there: a key's `hint` (empty where the signer gave none), a `chain` of DER certificates whose first signed, or
    such a `certificate` with its `entry` in a log.
    """

    payload: bytes
    signature: bytes
    hint: str | None = None
    chain: tuple[bytes, ...] = ()
    certificate: bytes | None = None
    entry: LogEntry | None = None

    @property
    def signed(self) -> bytes:
        """The bytes that were signed: the envelope's pre-authentication encoding (DSSE v1)."""
        return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(self.payload), self.payload)


def parse(data: bytes) -> Bundle:
    """Read a bundle. Raises SignatureError for anything but one signature over one in-toto statement."""
    if len(data) > LIMIT_BYTES:
        raise SignatureError(f"the bundle has more than {LIMIT_BYTES} bytes")
    raw = decode(data, _Bundle, "the bundle")
    if raw.media_type != MEDIA_TYPE:
        raise SignatureError(f"the bundle is of type {raw.media_type[:100]!r}, and must be of {MEDIA_TYPE!r}")
    envelope, material = raw.dsse_envelope, raw.verification_material
    if envelope.payload_type != PAYLOAD_TYPE:
        raise SignatureError(f"its payload is of type {envelope.payload_type[:100]!r}, and must be of {PAYLOAD_TYPE!r}")
    given = (material.public_key, material.x509_certificate_chain, material.certificate)
    if sum(part is not None for part in given) != 1:
        raise SignatureError("the bundle must have one of publicKey, x509CertificateChain and certificate")
    chain = material.x509_certificate_chain
    alone = material.certificate
    return Bundle(
        payload=unbase64(envelope.payload, "the payload"),
        signature=unbase64(envelope.signatures[0].sig, "the signature"),
        hint=material.public_key.hint if material.public_key is not None else None,
        chain=tuple(unbase64(each.raw_bytes, "a certificate") for each in chain.certificates) if chain is not None else (),
        certificate=unbase64(alone.raw_bytes, "the certificate") if alone is not None else None,
        entry=_entry(material.tlog_entries[0]) if material.tlog_entries else None,
    )


def _entry(raw: _LogEntry) -> LogEntry:
    proof = raw.inclusion_proof
    return LogEntry(
        index=int(raw.log_index),
        log_id=unbase64(raw.log_id.key_id, "the log's id"),
        kind=f"{raw.kind_version.kind} {raw.kind_version.version}",
        time=int(raw.integrated_time),
        promise=unbase64(raw.inclusion_promise.signed_entry_timestamp, "the log's promise"),
        body=unbase64(raw.canonicalized_body, "the log's entry"),
        proof_index=int(proof.log_index),
        tree_size=int(proof.tree_size),
        root=unbase64(proof.root_hash, "the log's root"),
        hashes=tuple(unbase64(each, "a hash of the log") for each in proof.hashes),
        checkpoint=proof.checkpoint.envelope,
    )
