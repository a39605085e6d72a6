"""A certificate authority for tests, and what it signs: PEM texts."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key."""

    chain: str
    key: str

    def put(self, folder: Path) -> Signed:
        """Write it as a Secret is mounted."""
        folder.mkdir(parents=True, exist_ok=True)
        # The certificate last: whoever reads in between has a pair that does not fit, which it has to live with.
        for name, text in (("tls.key", self.key), ("tls.crt", self.chain)):
            scratch = folder / f"{name}.new"
            scratch.write_text(text)
            scratch.rename(folder / name)
        return self

    def file(self, folder: Path, name: str) -> Path:
        """Write both into one file, as clients take it."""
        path = folder / f"{name}.pem"
        path.write_text(self.chain + self.key)
        return path


class Authority:
    """A CA."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._begun(self._name, self._key.public_key(), 3600.0)
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @classmethod
    def of(cls, certificate: str, key: str) -> Authority:
        """One that is there already."""
        found = cls.__new__(cls)
        found._certificate = x509.load_pem_x509_certificate(certificate.encode())
        found._name = found._certificate.subject
        loaded = serialization.load_pem_private_key(key.encode(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        found._key = loaded
        return found

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return _key_pem(self._key)

    def server(self, *names: str, uri: str | None = None, seconds: float = 600.0, rsa: bool = False) -> Signed:
        return self._signed(names, uri, seconds, ExtendedKeyUsageOID.SERVER_AUTH, rsa=rsa)

    def client(self, *names: str, uri: str | None = None, common: str | None = None, seconds: float = 600.0) -> Signed:
        return self._signed(names, uri, seconds, ExtendedKeyUsageOID.CLIENT_AUTH, common=common)

    def _signed(
        self,
        names: Sequence[str],
        uri: str | None,
        seconds: float,
        usage: x509.ObjectIdentifier,
        *,
        rsa: bool = False,
        common: str | None = None,
    ) -> Signed:
        from cryptography.hazmat.primitives.asymmetric import rsa as rsa_keys

        key = rsa_keys.generate_private_key(65537, 2048) if rsa else ec.generate_private_key(ec.SECP256R1())
        found: list[x509.GeneralName] = [_general(name) for name in names]
        found += [x509.UniformResourceIdentifier(uri)] if uri is not None else []
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common is not None else [])
        builder = self._begun(subject, key.public_key(), seconds).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        if found:
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=True)
        leaf = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False).sign(self._key, hashes.SHA256())
        return Signed(leaf.public_bytes(serialization.Encoding.PEM).decode(), _key_pem(key))

    def _begun(self, subject: x509.Name, key: object, seconds: float) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(seconds=60))
            .not_valid_after(now + dt.timedelta(seconds=seconds))
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: object) -> str:
    form = serialization.PrivateFormat.PKCS8
    text: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())  # type: ignore[attr-defined]
    return text.decode()
