"""Requests of Cloud Storage: where they go, what a write asks for, and by whose word."""

from __future__ import annotations

import base64
import json
from http.client import HTTPMessage
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import GsUri
from inference_worker.errors import WorkerError
from inference_worker.stores import gcs
from inference_worker.stores.calls import Found, Request
from inference_worker.stores.keys import Keys

URI = GsUri("models", "a b/m.onnx")
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


ACCOUNT = {
    "type": "service_account",
    "client_email": "reader@project.iam.gserviceaccount.com",
    "private_key_id": "key-1",
    "private_key": pem(KEY),
    "token_uri": "https://oauth2.googleapis.com/token",
}


def keys(account: dict[str, str] | str | None = None, **values: str) -> Keys:
    text = account if isinstance(account, str) else json.dumps(account) if account is not None else ""
    return Keys("models", {"GOOGLE_APPLICATION_CREDENTIALS": text, **values})


def decoded(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=="))


def asked(request: Request) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(request.url).query).items()}


def test_nobody_asks_where_no_account_is_given() -> None:
    place = gcs.place(URI, "told", keys())

    assert place.url == "https://storage.googleapis.com/models/a%20b/m.onnx"
    assert place.authorize(place.url, {}) == {}


def test_a_token_is_signed_by_the_accounts_key_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.5)
    place = gcs.place(URI, "told", keys(ACCOUNT))

    head, claims, signature = place.authorize(place.url, {})["Authorization"].removeprefix("Bearer ").split(".")

    KEY.public_key().verify(base64.urlsafe_b64decode(signature + "=="), f"{head}.{claims}".encode(), PKCS1v15(), hashes.SHA256())
    assert decoded(head) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
    assert decoded(claims) == {
        "iss": ACCOUNT["client_email"],
        "sub": ACCOUNT["client_email"],
        "scope": "https://www.googleapis.com/auth/devstorage.read_write",
        "iat": 999_940,
        "exp": 1_003_540,
    }


FAULTS: dict[str, tuple[Keys, WorkerReason, str]] = {
    "a path": (keys("/var/secrets/key.json"), WorkerReason.MODEL_ACCESS_DENIED, "not a path"),
    "another kind": (keys({**ACCOUNT, "type": "external_account"}), WorkerReason.MODEL_ACCESS_DENIED, "external_account"),
    "half a key": (keys({**ACCOUNT, "private_key": "-----BEGIN"}), WorkerReason.MODEL_ACCESS_DENIED, "can't be read"),
    "a key of another kind": (
        keys({**ACCOUNT, "private_key": pem(ec.generate_private_key(ec.SECP256R1()))}),
        WorkerReason.MODEL_ACCESS_DENIED,
        "no RSA key",
    ),
    "in the clear": (keys(ACCOUNT, GCS_ENDPOINT_URL="http://store"), WorkerReason.MODEL_ACCESS_DENIED, "over https alone"),
    "no server": (keys(GCS_ENDPOINT_URL="store:443"), WorkerReason.URI_FORBIDDEN, "GCS_ENDPOINT_URL"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_wrong_with_an_account_is_said_without_its_key(what: str) -> None:
    given, reason, words = FAULTS[what]

    with pytest.raises(WorkerError) as caught:
        gcs.access(URI, given)

    assert caught.value.reason is reason and words in caught.value.message
    assert "PRIVATE" not in caught.value.message


@pytest.mark.parametrize(("mark", "generation"), [("", "0"), ("1796034757791632", "1796034757791632")])
def test_a_write_is_for_one_generation(mark: str, generation: str) -> None:
    request = gcs.access(URI, keys()).write("a/b c", "told", b"data", mark)

    assert (request.method, urlsplit(request.url).path) == ("POST", "/upload/storage/v1/b/models/o")
    assert asked(request) == {"uploadType": "media", "name": "a/b c", "ifGenerationMatch": generation}


def test_an_object_is_named_as_one_part_of_a_path() -> None:
    assert urlsplit(gcs.access(URI, keys()).removal("a/b c", "told").url).path == "/storage/v1/b/models/o/a%2Fb%20c"


def test_a_listed_object_is_fetched_as_it_was_listed() -> None:
    access = gcs.access(URI, keys())

    place = access.place("x", "told", "7")

    assert place.url.endswith("/models/x?generation=7") and place.pinned
    assert not access.place("x", "told").pinned


def test_a_page_has_names_generations_and_sizes() -> None:
    text = b'{"items": [{"name": "a/x", "generation": "7", "size": "12"}, {"name": "a/y"}], "nextPageToken": "t"}'
    access = gcs.access(URI, keys())

    assert access.page(text) == ([Found("a/x", "7", 12), Found("a/y", "", 0)], "t")
    assert access.page(b"{}") == ([], "")
    assert asked(access.listing("a/", "told", "t"))["pageToken"] == "t"
    for wrong in (b"<html>", b'{"items": 1}'):
        with pytest.raises(WorkerError) as caught:
            access.page(wrong)
        assert caught.value.reason is WorkerReason.MODEL_UNREACHABLE


@pytest.mark.parametrize(
    ("header", "data", "wanted"),
    [
        ("7", b"", "7"),
        (None, b'{"generation": "8"}', "8"),
        ("7\r\nx", b"", ""),
        (None, b'{"generation": "x"}', ""),
        (None, b"?", ""),
    ],
)
def test_a_mark_is_a_generation(header: str | None, data: bytes, wanted: str) -> None:
    headers = HTTPMessage()
    if header is not None:
        headers["x-goog-generation"] = header

    assert gcs.access(URI, keys()).mark(headers, data) == wanted
