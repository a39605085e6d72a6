"""Who has to sign which models: the administrator's rules, and what a worker is told of them.

Only the settings say so. No author of a job or a model can add a signer, or leave one out.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from inference_operator.template_limits import matches
from inference_protocol.messages import SIGNER_LENGTH, Identity, Trust

# What the standard tool signs with.
_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})
# It travels in a worker's environment beside the rest of its configuration, where the kernel takes 128 KiB.
_LIMIT_BYTES = 32 << 10


class SigningCertificates(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Signers with a certificate of an authority of your own."""

    # The authorities' root certificates, PEM.
    authorities: str = ""
    # For whom a certificate may be: an e-mail address, a URI or a host; one that ends in * stands for a prefix.
    subjects: tuple[str, ...] = ()


class SigningIdentity(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One that signs without a key of its own."""

    # For whom the certificate is: an e-mail address or a workflow; one that ends in * stands for a prefix.
    subject: str
    # The OIDC issuer that says so.
    issuer: str


class KeylessSigning(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Signers that Sigstore certifies by their identity."""

    # Sigstore's trusted_root.json, as text: workers fetch none.
    trusted_root: str = ""
    # Who may sign.
    identities: tuple[SigningIdentity, ...] = ()


class SignatureRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who may sign some models. A name that ends in * stands for a prefix."""

    # The namespaces that it is about.
    namespaces: tuple[str, ...] = ("*",)
    # The InferenceModels there; a model by URI has the name of its file. Authors choose names, so only * is a bound for them.
    models: tuple[str, ...] = ("*",)
    # Whether a model without a signature is refused. One with a wrong signature always is.
    required: bool = True
    # Public keys (PEM, of P-256, P-384 or P-521), by the names that statuses show.
    keys: dict[str, str] = {}
    # Certificates: {authorities, subjects}.
    certificates: SigningCertificates = SigningCertificates()
    # Sigstore's identities: {trustedRoot, identities: [{subject, issuer}]}.
    keyless: KeylessSigning = KeylessSigning()
    # Versions that are refused though they are signed, as NAME@VERSION.
    revoked: tuple[str, ...] = ()


def trust_for(namespace: str, model: str, rules: Iterable[SignatureRule]) -> Trust | None:
    """Return who may sign a model, by the first rule that is about it; None where nobody has to."""
    rule = next((r for r in rules if matches(namespace, r.namespaces) and matches(model, r.models)), None)
    return _trust(rule) if rule is not None and (rule.required or _signers(rule)) else None


def signatures_fault(rules: Iterable[SignatureRule]) -> str | None:
    """Return what is wrong with the first rule that can't be used, with its place; None where all can."""
    found = (f"modelSignatures[{i}]: {fault}" for i, rule in enumerate(rules) for fault in _faults(rule))
    return next(found, None)


def _trust(rule: SignatureRule) -> Trust:
    return Trust(
        required=rule.required,
        keys=rule.keys,
        authorities=rule.certificates.authorities,
        subjects=rule.certificates.subjects,
        root=rule.keyless.trusted_root,
        identities=tuple(Identity(each.subject, each.issuer) for each in rule.keyless.identities),
        revoked=rule.revoked,
    )


def _signers(rule: SignatureRule) -> bool:
    return bool(rule.keys or rule.certificates.subjects or rule.keyless.identities)


def _faults(rule: SignatureRule) -> Iterator[str]:
    if rule.required and not _signers(rule):
        yield "a signature is required, and nobody may sign; add keys, certificates.subjects or keyless.identities"
    for name, pem in rule.keys.items():
        if not name or len(name) > SIGNER_LENGTH:
            yield f"keys: a name has 1 to {SIGNER_LENGTH} characters"
        if (fault := _key_fault(pem)) is not None:
            yield f"keys.{name}: {fault}"
    yield from _certificate_faults(rule.certificates)
    yield from _keyless_faults(rule.keyless)
    if any("@" not in each for each in rule.revoked):
        yield "revoked: write each as NAME@VERSION"
    if len(msgspec.json.encode(_trust(rule))) > _LIMIT_BYTES:
        yield f"it has more than {_LIMIT_BYTES} bytes; split it by namespaces, or leave out of trustedRoot what has ended"


def _key_fault(pem: str) -> str | None:
    if "PRIVATE" in pem:
        return "this is a private key; give the public key, and sign with another one from now on"
    try:
        key = load_pem_public_key(pem.encode())
    except ValueError as error:
        return f"no public key in PEM: {error}"
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        return f"a key has one of the curves {', '.join(sorted(_CURVES))}"
    return None


def _certificate_faults(given: SigningCertificates) -> Iterator[str]:
    if bool(given.authorities) != bool(given.subjects):
        yield "certificates: authorities and subjects go together"
    if any(subject.strip("*") == "" for subject in given.subjects):
        yield "certificates.subjects: name each; * alone would trust whomever the authority certifies"
    try:
        _ = x509.load_pem_x509_certificates(given.authorities.encode()) if given.authorities else None
    except ValueError as error:
        yield f"certificates.authorities: no certificates in PEM: {error}"


def _keyless_faults(given: KeylessSigning) -> Iterator[str]:
    if bool(given.trusted_root) != bool(given.identities):
        yield "keyless: trustedRoot and identities go together"
    if any(each.subject.strip("*") == "" or not each.issuer for each in given.identities):
        yield "keyless.identities: name a subject and its issuer; * alone would trust everybody whom the issuer knows"
    if given.trusted_root and not _is_trusted_root(given.trusted_root):
        yield "keyless.trustedRoot: no trusted_root.json of Sigstore, with tlogs, ctlogs and certificateAuthorities"


def _is_trusted_root(text: str) -> bool:
    try:
        root: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(root, dict) and all(root.get(part) for part in ("tlogs", "ctlogs", "certificateAuthorities"))
