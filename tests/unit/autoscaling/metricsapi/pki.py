"""Certificates for tests: a CA, and clients that it vouches for."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """A CA."""

    def __init__(self, name: str = "front-proxy-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = _builder(self._name, self._name).public_key(self._key.public_key()).add_extension(constraints, critical=True)
        self.pem = _pem(made.sign(self._key, hashes.SHA256()))

    def client(self, folder: Path, name: str, *, usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH) -> Path:
        """A file with certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _builder(subject, self._name).public_key(key.public_key())
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        file = folder / f"{name}-{id(self)}-{usage.dotted_string}.pem"
        file.write_text(_pem(made.sign(self._key, hashes.SHA256())) + text)
        return file


def client_context(ca: str, client: Path | None = None) -> ssl.SSLContext:
    """What a caller uses that trusts one CA."""
    context = ssl.create_default_context(cadata=ca)
    if client is not None:
        context.load_cert_chain(client)
    return context


def _builder(subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
