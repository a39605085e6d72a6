"""Signatures by elliptic curves, as the standard tools make them: each curve with the hash of its size."""

import hashlib
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key, load_pem_public_key

from inference_worker.signing.bundle import Bundle
from inference_worker.signing.strict import SignatureError

_HASHES: Mapping[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}


def signed_by(bundle: Bundle, keys: Mapping[str, str]) -> str:
    """Return the name of the key (PEM) that signed the bundle. Raises SignatureError where none of them did."""
    for name, pem in keys.items():
        key = load_pem_public_key(pem.encode())
        hint = hashlib.sha256(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
        # The hint only saves time: what counts is whose signature it is.
        if bundle.hint in ("", hint) and is_signed(key, bundle.signature, bundle.signed):
            return name
    raise SignatureError(f"it is by none of the keys that the administrator trusts ({', '.join(sorted(keys)) or 'none'})")


def is_signed(key: PublicKeyTypes, signature: bytes, data: bytes) -> bool:
    """Whether a key signed the data. A key of a kind that no standard tool uses has signed nothing."""
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
            return True
        if isinstance(key, ec.EllipticCurvePublicKey) and (algorithm := _HASHES.get(key.curve.name)) is not None:
            key.verify(signature, data, ec.ECDSA(algorithm))
            return True
    except InvalidSignature:
        pass
    return False


def key_of_der(data: bytes) -> PublicKeyTypes:
    """Read a public key. Raises SignatureError."""
    try:
        return load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError("a public key can't be read") from error
