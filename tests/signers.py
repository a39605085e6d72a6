"""Signers of models as the standard tool signs: with a key, with a certificate, and as a Sigstore of the tests' own."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from inference_protocol.messages import Identity, Trust

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SUBJECT, ISSUER = "release@example.com", "https://accounts.example.com"
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_OID, _ISSUER_PLAIN_OID = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8"), x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")

Document = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def statement(subject: str, files: Mapping[str, bytes], /, **changes: Any) -> bytes:
    """What the tool signs of a directory of this name; of one file its name is `.`."""
    resources = [{"name": name, "algorithm": "sha256", "digest": sha256(files[name]).hex()} for name in sorted(files)]
    whole = sha256(b"".join(bytes.fromhex(each["digest"]) for each in resources)).hex()
    predicate = {
        "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": [".git"]},
        "resources": resources,
    }
    return json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": subject, "digest": {"sha256": whole}}],
            "predicateType": "https://model_signing/signature/v1.0",
            "predicate": predicate,
            **changes,
        }
    ).encode()


def to_sign(payload: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def bundle(payload: bytes, signature: bytes, material: Document) -> Document:
    envelope = {"payload": b64(payload), "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": b64(signature), "keyid": ""}]}
    return {"mediaType": MEDIA_TYPE, "verificationMaterial": {"tlogEntries": [], **material}, "dsseEnvelope": envelope}


def encoded(document: Document) -> bytes:
    return json.dumps(document).encode()


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def signed(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass
class KeySigner:
    """One with a key."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    @property
    def trust(self) -> Trust:
        return Trust(required=True, keys={"release": public_pem(self.key)})

    def document(self, payload: bytes) -> Document:
        hint = sha256(public_pem(self.key).encode()).hex()
        return bundle(payload, signed(self.key, to_sign(payload)), {"publicKey": {"hint": hint}})

    def sign(self, subject: str, files: Mapping[str, bytes]) -> bytes:
        return encoded(self.document(statement(subject, files)))

    def sign_directory(self, directory: Path, subject: str) -> None:
        """Sign what is there now, as `model_signing sign key` does."""
        files = {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.suffix != ".sig"}
        (directory / "model.sig").write_bytes(self.sign(subject, files))


def certificate(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    start: datetime,
    end: datetime,
    subject: str | None = None,
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING,
) -> x509.CertificateBuilder:
    """A builder of an authority's certificate, or of one for signing where it has a subject."""
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer.subject if issuer is not None else own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=subject is None, path_length=None), critical=True)
        .add_extension(_usage(signs=subject is not None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if subject is None:
        return builder
    return builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False).add_extension(
        x509.SubjectAlternativeName([x509.RFC822Name(subject)]), critical=False
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    rest = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    return x509.KeyUsage(digital_signature=signs, key_cert_sign=not signs, crl_sign=not signs, **rest)


@dataclass
class CertificateSigner:
    """One with a certificate of an authority of its own."""

    subject: str = SUBJECT
    start: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(days=1))
    end: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(days=1))
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    root_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING

    @cached_property
    def root(self) -> x509.Certificate:
        years = timedelta(days=3650)
        now = datetime.now(UTC)
        builder = certificate(self.root_key, "root", None, self.root_key, start=now - years, end=now + years)
        return builder.sign(self.root_key, hashes.SHA256())

    @property
    def trust(self) -> Trust:
        return Trust(required=True, authorities=self.root.public_bytes(Encoding.PEM).decode(), subjects=(SUBJECT,))

    def sign(self, subject: str, files: Mapping[str, bytes]) -> bytes:
        leaf = certificate(
            self.key, "leaf", self.root, self.root_key, start=self.start, end=self.end, subject=self.subject, use=self.use
        )
        payload = statement(subject, files)
        chain = [{"rawBytes": b64(leaf.sign(self.root_key, hashes.SHA256()).public_bytes(Encoding.DER))}]
        return encoded(bundle(payload, signed(self.key, to_sign(payload)), {"x509CertificateChain": {"certificates": chain}}))


@dataclass
class Sigstore:
    """An authority of certificates, a log of them, and a log of signatures, all of the test's own."""

    authority: CertificateSigner = field(default_factory=CertificateSigner)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    @property
    def root(self) -> Document:
        """Its trusted_root.json."""
        period = {"start": "2021-01-01T00:00:00Z"}
        chain = {"certificates": [{"rawBytes": b64(self.authority.root.public_bytes(Encoding.DER))}]}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log(self.log, period)],
            "certificateAuthorities": [
                {"subject": {"organization": "t", "commonName": "t"}, "uri": "https://t", "certChain": chain, "validFor": period}
            ],
            "ctlogs": [_log(self.certificates, period)],
            "timestampAuthorities": [],
        }

    @property
    def trust(self) -> Trust:
        return Trust(required=True, root=json.dumps(self.root), identities=(Identity(SUBJECT, ISSUER),))

    def sign(self, subject: str, files: Mapping[str, bytes], **given: Any) -> bytes:
        return encoded(self.document(statement(subject, files), **given))

    def document(
        self,
        payload: bytes,
        *,
        by: str = SUBJECT,
        issuer: str = ISSUER,
        at: datetime | None = None,
        logged: bool = True,
        signs: bytes | None = None,
        lies: Mapping[str, Any] = MappingProxyType({}),
    ) -> Document:
        """A keyless bundle, its key certified for ten minutes and logged at that time.

        `signs` is another payload that the key signs, and `lies` what the log takes down in the place of the truth.
        """
        at = at or datetime.now(UTC).replace(microsecond=0)
        key = new_key()
        leaf = self._certified(key, by, issuer, at, logged=logged)
        signature = signed(key, to_sign(payload if signs is None else signs))
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": sha256(b"").hex()},
                "payloadHash": {"algorithm": "sha256", "value": sha256(payload).hex()},
                "signatures": [{"signature": b64(signature), "verifier": b64(leaf.public_bytes(Encoding.PEM))}],
                **lies,
            },
        }
        entry = self._entry(json.dumps(body, sort_keys=True, separators=(",", ":")).encode(), int(at.timestamp()))
        material = {"certificate": {"rawBytes": b64(leaf.public_bytes(Encoding.DER))}, "tlogEntries": [entry]}
        return bundle(payload, signature, material)

    def _certified(self, key: ec.EllipticCurvePrivateKey, by: str, issuer: str, at: datetime, *, logged: bool) -> x509.Certificate:
        end = at + timedelta(minutes=10)
        root, root_key = self.authority.root, self.authority.root_key
        told = issuer.encode()
        builder = certificate(key, "leaf", root, root_key, start=at, end=end, subject=by)
        for oid, value in ((_ISSUER_PLAIN_OID, told), (_ISSUER_OID, bytes((0x0C, len(told))) + told)):
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
        if not logged:
            return builder.sign(root_key, hashes.SHA256())
        body = builder.sign(root_key, hashes.SHA256()).tbs_certificate_bytes
        stamp = int(at.timestamp() * 1000).to_bytes(8)
        issuer_hash = sha256(public_der(root_key))
        entry = b"\0\0" + stamp + b"\0\1" + issuer_hash + len(body).to_bytes(3) + body + b"\0\0"
        signature = signed(self.certificates, entry)
        promise = b"\0" + sha256(public_der(self.certificates)) + stamp + b"\0\0" + b"\4\3" + len(signature).to_bytes(2) + signature
        listed = len(promise).to_bytes(2) + promise
        listed = len(listed).to_bytes(2) + listed
        extension = x509.UnrecognizedExtension(_SCT_LIST, bytes((0x04, len(listed))) + listed)
        return builder.add_extension(extension, critical=False).sign(root_key, hashes.SHA256())

    def _entry(self, body: bytes, time: int) -> Document:
        """Line 2 of 5 in the log."""
        log_id = sha256(public_der(self.log))
        promised = {"body": b64(body), "integratedTime": time, "logID": log_id.hex(), "logIndex": 1002}
        a, b, d, e = (sha256(b"\0" + bytes([i])) for i in range(4))
        left, right = _node(a, b), _node(sha256(b"\0" + body), d)
        root = _node(_node(left, right), e)
        note = f"log - 1\n5\n{b64(root)}\n"
        told = f"{note}\n\N{EM DASH} log {b64(log_id[:4] + signed(self.log, note.encode()))}\n"
        return {
            "logIndex": "1002",
            "logId": {"keyId": b64(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {
                "signedEntryTimestamp": b64(signed(self.log, json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()))
            },
            "inclusionProof": {
                "logIndex": "2",
                "rootHash": b64(root),
                "treeSize": "5",
                "hashes": [b64(d), b64(left), b64(e)],
                "checkpoint": {"envelope": told},
            },
            "canonicalizedBody": b64(body),
        }


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right)


def _log(key: ec.EllipticCurvePrivateKey, period: Document) -> Document:
    return {
        "baseUrl": "https://log.test",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {"rawBytes": b64(public_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": period},
        "logId": {"keyId": b64(sha256(public_der(key)))},
    }
