"""Keys of an issuer: one that is none would take the gateway from everybody."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from inference_operator.gateway.key_set import good_keys

RSA = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
EC = [ECAlgorithm.to_jwk(ec.generate_private_key(curve).public_key(), as_dict=True) for curve in (ec.SECP256R1(), ec.SECP384R1())]
OKP = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
GOOD = [{**key, "kid": str(number)} for number, key in enumerate((RSA, *EC, OKP))]


def kept(*keys: Any) -> list[Any]:
    text = good_keys(json.dumps({"keys": keys}))
    found: list[Any] = json.loads(text)["keys"] if text else []
    return found


def test_good_keys_stay_as_they_are() -> None:
    assert kept(*GOOD) == GOOD


@pytest.mark.parametrize(
    "key",
    [
        "none",
        {},
        {"kty": "oct", "k": "c2VjcmV0"},
        {**EC[0], "x": EC[0]["y"]},
        {**EC[0], "crv": "secp256k1"},
        {**RSA, "n": 5},
        {**RSA, "n": "?"},
        {"kty": "RSA"},
        {**OKP, "x": "AA"},
    ],
    # Made anew in each process: their texts are no names.
    ids=[
        "a text",
        "nothing",
        "symmetric",
        "a point off its curve",
        "another curve",
        "a number",
        "no number",
        "a part of a key",
        "too short",
    ],
)
def test_what_is_no_key_is_left_out_of_the_others(key: Any) -> None:
    assert kept(key, GOOD[0]) == [GOOD[0]] and kept(key) == []


@given(
    st.text()
    | st.recursive(st.none() | st.text() | st.integers(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)).map(json.dumps)
)
def test_any_text_is_a_set_or_none(text: str) -> None:
    assert good_keys(text) == ""
