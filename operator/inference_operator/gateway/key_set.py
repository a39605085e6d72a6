"""The public keys of the tokens' issuer, as Envoy takes them: it refuses the whole listener for a set without a good one."""

import base64
import json
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

_CURVES = {"P-256": SECP256R1(), "P-384": SECP384R1(), "P-521": SECP521R1()}


def good_keys(text: str) -> str:
    """The keys of a set (JWKS, JSON) that verify a signature, as a set; empty where there are none.

    Symmetric ones are left out: whoever reads the set could sign by them.
    """
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    keys = found.get("keys") if isinstance(found, dict) else None
    good = [key for key in keys if isinstance(key, dict) and _is_good(key)] if isinstance(keys, list) else []
    return json.dumps({"keys": good}, sort_keys=True) if good else ""


def _is_good(key: Mapping[str, object]) -> bool:
    try:
        match key.get("kty"):
            case "RSA":
                RSAPublicNumbers(_number(key, "e"), _number(key, "n")).public_key()
            case "EC":
                EllipticCurvePublicNumbers(_number(key, "x"), _number(key, "y"), _CURVES[str(key.get("crv"))]).public_key()
            case "OKP":
                Ed25519PublicKey.from_public_bytes(_bytes(key, "x"))
            case _:
                return False
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _number(key: Mapping[str, object], part: str) -> int:
    return int.from_bytes(_bytes(key, part), "big")


def _bytes(key: Mapping[str, object], part: str) -> bytes:
    text = key[part]
    if not isinstance(text, str):
        raise TypeError(part)
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
