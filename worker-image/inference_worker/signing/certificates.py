"""Certificates of signers: from which authority they are, for whom, and whether they are for signing."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, PolicyBuilder, Store, VerificationError

from inference_worker.signing.bundle import Bundle
from inference_worker.signing.keys import is_signed
from inference_worker.signing.strict import SignatureError


def certified(bundle: Bundle, authorities: str, subjects: Sequence[str], now: datetime) -> str:
    """Return for whom the certificate is that signed the bundle. Raises SignatureError.

    It has to be valid now: nothing in such a bundle proves that it was signed while it was.
    """
    if not bundle.chain:
        raise SignatureError("a signature by a certificate has its chain")
    leaf, *between = (certificate_of(data) for data in bundle.chain)
    roots = x509.load_pem_x509_certificates(authorities.encode()) if authorities else []
    chain_of(leaf, between, roots, now)
    if not is_signed(leaf.public_key(), bundle.signature, bundle.signed):
        raise SignatureError("the signature is not by the key of its certificate")
    return one_of(names_of(leaf), subjects)


def certificate_of(data: bytes) -> x509.Certificate:
    """Read a certificate (DER), all of it: what is within is read when it is asked for. Raises SignatureError."""
    try:
        found = x509.load_der_x509_certificate(data)
        _ = (found.public_key(), found.extensions, found.not_valid_after_utc)
    # Of several kinds, and not all are ValueErrors.
    except Exception as error:
        raise SignatureError("a certificate can't be read") from error
    return found


def chain_of(
    leaf: x509.Certificate, between: Iterable[x509.Certificate], roots: Iterable[x509.Certificate], at: datetime
) -> list[x509.Certificate]:
    """Return the chain from a certificate for signing to a root, all of it valid then. Raises SignatureError."""
    trusted = list(roots)
    if not trusted:
        raise SignatureError("the administrator trusts no authority of certificates")
    # The rules of the web but for what a certificate is for, which is looked at below.
    ca, end = (
        policy.may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, None)
        for policy in (ExtensionPolicy.webpki_defaults_ca(), ExtensionPolicy.webpki_defaults_ee())
    )
    verifier = PolicyBuilder().store(Store(trusted)).time(at).extension_policies(ca_policy=ca, ee_policy=end)
    try:
        chain = verifier.build_client_verifier().verify(leaf, list(between)).chain
        _require_for_signing(leaf)
    except (VerificationError, ValueError, x509.UnsupportedGeneralNameType) as error:
        raise SignatureError(f"its certificate is of no trusted authority, or not valid: {str(error)[:200]}") from error
    return chain


def _require_for_signing(leaf: x509.Certificate) -> None:
    try:
        usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
        extended = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise SignatureError("its certificate does not say that it is for signing") from error
    if not usage.digital_signature or ExtendedKeyUsageOID.CODE_SIGNING not in extended:
        raise SignatureError("its certificate is not for signing code")


def names_of(leaf: x509.Certificate) -> tuple[str, ...]:
    """Return for whom a certificate is: its alternative names that are an address, a URI or a host."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    kinds = (x509.RFC822Name, x509.UniformResourceIdentifier, x509.DNSName)
    return tuple(str(name.value) for name in found if isinstance(name, kinds))


def one_of(names: Sequence[str], subjects: Iterable[str]) -> str:
    """Return the one name of a certificate, which a trusted subject has to match. Raises SignatureError."""
    if len(names) != 1:
        raise SignatureError("its certificate must be for exactly one subject")
    if not any(is_like(names[0], subject) for subject in subjects):
        raise SignatureError(f"it is by {names[0][:200]!r}, whom the administrator doesn't trust")
    return names[0]


def is_like(name: str, pattern: str) -> bool:
    """Whether a name is the pattern, or begins with one that ends in *."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def key_bytes(certificate: x509.Certificate) -> bytes:
    """Return a certificate's key as DER."""
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
