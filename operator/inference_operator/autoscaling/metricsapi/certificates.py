"""The server's certificate: made here, kept in a Secret that all replicas share, renewed before it ends, reloaded while running.

A CA of ten years signs it, and its key stays in the Secret: a renewed certificate is trusted without a new caBundle. The Secret
itself is made, empty, by whoever installs the operator. With cert-manager (or anybody) filling it, it is only read here.
"""

import base64
import binascii
import logging
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.pki import Pair, Validity, key_pem, load_chain, new_authority, new_key, pem

log = logging.getLogger(__name__)

CA_DAYS, LEAF_DAYS, RENEW_DAYS = 3650, 365, 60
# Clocks differ: a certificate of now would not be valid yet for some.
_BACKDATED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Bundle:
    """PEM texts. `ca_key` is None where somebody else issues."""

    certificate: str
    key: str
    ca: str
    ca_key: str | None = None


def host(service: str, namespace: str) -> str:
    """The name that the aggregator checks."""
    return f"{service}.{namespace}.svc"


def issue(names_: tuple[str, ...], now: datetime, before: Bundle | None = None) -> Bundle:
    """A new certificate; of the CA of `before` while that lives long enough, else of a new one."""
    ca, ca_key = _kept_ca(before, now) or _new_ca(now)
    key = new_key()
    leaf = (
        _builder(_name(names_[0]), ca.subject, now, LEAF_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names_]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Bundle(pem(leaf), key_pem(key), pem(ca), key_pem(ca_key))


def is_due(bundle: Bundle, names_: tuple[str, ...], now: datetime) -> bool:
    """Whether a new certificate is needed: it ends soon, is for another name, or can't be read."""
    try:
        leaf = x509.load_pem_x509_certificate(bundle.certificate.encode())
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(bundle.ca.encode()))
        key = serialization.load_pem_private_key(bundle.key.encode(), password=None)
        belongs = key.public_key() == leaf.public_key()
    except Exception:  # noqa: BLE001 -- whatever is wrong with it, a new one is right
        return True
    return not belongs or not set(names_) <= set(found) or leaf.not_valid_after_utc - now < timedelta(days=RENEW_DAYS)


def load(context: ssl.SSLContext, bundle: Bundle) -> None:
    """Have a context use the certificate from the next handshake on. Raises ssl.SSLError for one that is none."""
    load_chain(context, Pair(bundle.certificate, bundle.key))


class Certificates:
    """The Secret."""

    def __init__(self, kube: KubeClient, *, namespace: str, secret: str, service: str, makes: bool) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
        self._names = (host(service, namespace), f"{service}.{namespace}", service)
        self._makes = makes

    async def current(self, now: datetime) -> Bundle | None:
        """What the Secret holds, renewed when due; None while somebody else has still to fill it. Raises OperatorError.

        Two replicas that make one at the same time meet at the Secret's version: the second takes what the first has written.
        """
        try:
            secret = await self._kube.get(self._path)
        except NotFoundError as error:
            if self._makes:
                raise RetryableError(f"there is no {self._path}; an upgrade of the release makes it") from error
            return None
        found = read_secret(secret)
        if not self._makes or (found is not None and not is_due(found, self._names, now)):
            return found
        made = issue(self._names, now, found)
        log.info("a new certificate for %s", self._names[0])
        try:
            await self._kube.replace(self._path, {**secret, "data": _data(made)})
        except ConflictError:
            return read_secret(await self._kube.get(self._path))
        return made


def _data(bundle: Bundle) -> dict[str, str]:
    texts = {"tls.crt": bundle.certificate, "tls.key": bundle.key, "ca.crt": bundle.ca, "ca.key": bundle.ca_key or ""}
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def read_secret(secret: Raw) -> Bundle | None:
    """The bundle in a Secret; None for one that is not filled."""
    data: dict[str, str] = secret.get("data") or {}
    try:
        texts = {key: base64.b64decode(data.get(key) or "").decode() for key in ("tls.crt", "tls.key", "ca.crt", "ca.key")}
    except (binascii.Error, UnicodeDecodeError):
        return None
    if not texts["tls.crt"] or not texts["tls.key"]:
        return None
    # Without a CA of its own a certificate has to be trusted as it is.
    return Bundle(texts["tls.crt"], texts["tls.key"], texts["ca.crt"] or texts["tls.crt"], texts["ca.key"] or None)


def _kept_ca(before: Bundle | None, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    if before is None or before.ca_key is None:
        return None
    try:
        ca, key = _read_authority(before.ca, before.ca_key)
    except ValueError:
        return None
    lives = ca.not_valid_after_utc - now > timedelta(days=LEAF_DAYS + RENEW_DAYS)
    return (ca, key) if lives else None


def _new_ca(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    validity = Validity.lasting(now, timedelta(days=CA_DAYS), backdated=_BACKDATED)
    made = new_authority("inference-operator-ca", validity)
    return _read_authority(made.certificate, made.key)


def _read_authority(certificate: str, key: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Raises ValueError for what is none."""
    read = serialization.load_pem_private_key(key.encode(), password=None)
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is of another kind than ours")  # noqa: TRY004 -- what was read is no authority
    return x509.load_pem_x509_certificate(certificate.encode()), read


def _builder(subject: x509.Name, issuer: x509.Name, now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    # A common name ends at 64 characters; what is checked is the alternative name.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
