"""Callers' tokens: known tricks, and what junk costs."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from inference_protocol.messages import JwtRules
from inference_worker.serve import jwt as tokens_of
from inference_worker.serve.jwt import Tokens

KEY = rsa.generate_private_key(65537, 2048)
RULES = JwtRules("https://issuer", ("net",))
NOW = 2_000_000_000.0


def keys(*more: dict[str, Any]) -> bytes:
    return json.dumps({"keys": [{**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "1"}, *more]}).encode()


def tokens() -> Tokens:
    made = Tokens(RULES)
    made.use(keys())
    return made


def token(*, algorithm: str = "RS256", key: Any = KEY, kid: str | None = "1", **claims: Any) -> str:
    usual = {"iss": RULES.issuer, "aud": "net", "exp": 4_000_000_000}
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode({**usual, **claims}, key, algorithm, headers)


def fault(told: Tokens, text: str) -> str | None:
    return told.fault({"authorization": f"Bearer {text}"})


def test_a_good_token_is_good_with_and_without_the_name_of_its_key() -> None:
    assert fault(tokens(), token()) is None
    assert fault(tokens(), token(kid=None)) is None
    assert fault(tokens(), token(aud=["other", "net"])) is None


def test_the_public_key_is_no_secret_to_sign_by() -> None:
    """CVE-2015-9235 and its kin: the key decides the algorithm, not the token."""
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = {"iss": RULES.issuer, "aud": "net", "exp": 4_000_000_000}
    signed = part({"alg": "HS256", "kid": "1"}) + b"." + part(claims)
    seal = base64.urlsafe_b64encode(hmac.new(public, signed, hashlib.sha256).digest()).rstrip(b"=")
    assert fault(tokens(), (signed + b"." + seal).decode()) is not None
    assert fault(tokens(), (part({"alg": "none"}) + b"." + part(claims) + b".").decode()) is not None


@pytest.mark.parametrize(
    "text",
    [
        token(kid="2"),
        token(algorithm="PS256"),
        token(key=rsa.generate_private_key(65537, 2048)),
        token(exp=1_000_000_000),
        token(iss="https://issuer/"),
        token(aud=[]),
        token(nbf=4_000_000_000),
        token()[:-4],
        "a" * 9000,
        "a.b",
    ],
)
def test_a_token_that_is_not_good_is_told_why(text: str) -> None:
    assert fault(tokens(), text)


def test_a_token_without_what_is_required_is_not_good() -> None:
    for missing in ("exp", "iss", "aud"):
        claims = {
            name: value for name, value in {"iss": RULES.issuer, "aud": "net", "exp": 4_000_000_000}.items() if name != missing
        }
        assert fault(tokens(), jwt.encode(claims, KEY, "RS256", {"kid": "1"})), missing


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"keys": [{}]}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', b"\xff", b" " * 70_000]
)
def test_what_is_no_set_of_public_keys_is_refused_and_the_one_before_stays(text: bytes) -> None:
    told = tokens()
    with pytest.raises(ValueError, match="JWK set"):
        told.use(text)
    assert fault(told, token()) is None


def test_a_junk_token_costs_few_checks_however_many_keys_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True) for _ in range(50)]
    told, checks = Tokens(RULES), 0
    told.use(keys(*many))
    real = jwt.decode

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal checks
        checks += 1
        return real(*arguments, **named)

    monkeypatch.setattr(jwt, "decode", counted)
    junk = token(algorithm="ES256", key=ec.generate_private_key(ec.SECP256R1()), kid=None)
    assert fault(told, junk)
    assert checks <= 4


def test_what_is_remembered_is_bounded_and_ends_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_of, "_MOST_KEPT", 3)
    now = [NOW]
    told = Tokens(RULES, now=lambda: now[0])
    told.use(keys())
    for number in range(10):
        assert fault(told, token(sub=str(number))) is None
    assert len(told._good) == 3
    now[0] += 61
    monkeypatch.setattr(jwt, "decode", _never)
    assert fault(told, token(sub="9")), "it is checked again"


def _never(*_: Any, **__: Any) -> Any:
    raise jwt.InvalidSignatureError
