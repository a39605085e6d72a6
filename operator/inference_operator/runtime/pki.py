"""X.509: authorities and what they sign, on P-256. PEM texts at the borders, since Secrets and the ssl module have these."""

import os
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate is good."""

    begin: datetime
    end: datetime

    @staticmethod
    def lasting(now: datetime, life: timedelta, *, backdated: timedelta) -> "Validity":
        """Return that of a certificate that is made now. Clocks differ: without some time before, it is not good yet for some."""
        return Validity(now - backdated, now + life)


def new_authority(name: str, validity: Validity) -> Pair:
    """Return a CA that signs itself, and signs no other CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, validity)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(pem(certificate), key_pem(key))


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key."""
    return ec.generate_private_key(ec.SECP256R1())


def sign(
    authority: Pair,
    key: CertificatePublicKeyTypes,
    *,
    subject: str,
    names: Sequence[x509.GeneralName],
    usages: Iterable[x509.ObjectIdentifier],
    validity: Validity,
) -> str:
    """Return a certificate for a public key. Without a subject its names are critical. Raises ValueError for no authority."""
    ca = x509.load_pem_x509_certificate(authority.certificate.encode())
    ca_key = serialization.load_pem_private_key(authority.key.encode(), password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is of another kind than ours")  # noqa: TRY004 -- what was read is no authority
    return pem(
        _builder(_name(subject), ca.subject, validity)
        .public_key(key)
        .add_extension(x509.SubjectAlternativeName(names), critical=not subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def validity_of(certificate: str) -> Validity:
    """Return from when to when the first certificate of a text is good. Raises ValueError for what is none."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    return Validity(found.not_valid_before_utc, found.not_valid_after_utc)


def load_chain(context: ssl.SSLContext, pair: Pair) -> None:
    """Give a context a certificate, from the next handshake on. Raises ssl.SSLError for one that is none.

    The ssl module reads files only: this one is in memory, and has no name.
    """
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{pair.certificate}\n{pair.key}\n")
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def pem(certificate: x509.Certificate) -> str:
    """Return a certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key as text, not encrypted."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """A CA's key signs certificates, any other what belongs to a handshake; neither does both."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: x509.Name, issuer: x509.Name, validity: Validity) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.begin)
        .not_valid_after(validity.end)
    )


def _name(common_name: str) -> x509.Name:
    # A common name ends at 64 characters; what is checked is the alternative name.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])] if common_name else [])
