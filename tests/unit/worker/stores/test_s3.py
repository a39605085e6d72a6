"""Requests of S3: signed as AWS signs them, to the server that is meant, by keys or a role that belong to the worker."""

from __future__ import annotations

import hashlib
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import S3Uri
from inference_worker import outbound
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds
from inference_worker.stores import s3
from inference_worker.stores.keys import Keys
from tests.unit.worker.conftest import answering, saying

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URI = S3Uri("examplebucket", "test.txt")
BOUNDS = Bounds((), 1 << 20, WorkerReason.MODEL_NOT_FOUND, WorkerReason.MODEL_TOO_LARGE)
ROLE = Storage(aws_role="arn:aws:iam::123456789012:role/models")
ANSWER = b"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>wJalr/EXAMPLE+KEY</SecretAccessKey><SessionToken>AQoD==</SessionToken>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


def keys(**values: str) -> Keys:
    return Keys("models", values)


def url(given: Keys, storage: Storage = Storage(), uri: S3Uri = URI) -> str:  # noqa: B008
    return s3.place(uri, "told", storage, given, BOUNDS).url


def test_a_request_is_signed_as_in_aws_own_example() -> None:
    """The GET with a range of "Signature Calculations for the Authorization Header" in the API reference of S3."""
    by = s3.Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    now = datetime(2013, 5, 24, tzinfo=UTC)

    found = s3.signed("https://examplebucket.s3.amazonaws.com/test.txt", {"Range": "bytes=0-9"}, by, "us-east-1", now)

    assert found["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


EXAMPLES: dict[str, tuple[str, str, dict[str, str], bytes, str]] = {
    "a PUT": (
        "PUT",
        "https://examplebucket.s3.amazonaws.com/test%24file.text",
        {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
        b"Welcome to Amazon S3.",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    ),
    "a list": (
        "GET",
        "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
        {},
        b"",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
}


@pytest.mark.parametrize("what", EXAMPLES)
def test_writes_and_lists_are_signed_as_in_aws_own_examples(what: str) -> None:
    method, address, headers, body, signature = EXAMPLES[what]
    by = s3.Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    now = datetime(2013, 5, 24, tzinfo=UTC)

    found = s3.signed(address, headers, by, "us-east-1", now, method=method, payload=hashlib.sha256(body).hexdigest())

    assert found["Authorization"].endswith(f"Signature={signature}")


def test_a_list_is_asked_for_with_a_sorted_query() -> None:
    access = s3.access("examplebucket", Storage(), keys(), BOUNDS)

    assert access.url("", {"prefix": "a b/", "delimiter": "/"}).endswith("/?delimiter=%2F&prefix=a%20b%2F")


def test_a_session_token_is_sent_and_signed() -> None:
    found = s3.signed("https://h/k", {}, s3.Credentials("k", "s", "token"), "eu", datetime(2026, 1, 1, tzinfo=UTC))

    assert found["x-amz-security-token"] == "token" and "x-amz-security-token," in found["Authorization"]


@pytest.mark.parametrize(
    ("given", "storage", "uri", "wanted"),
    [
        (keys(), Storage(), URI, "https://examplebucket.s3.us-east-1.amazonaws.com/test.txt"),
        (keys(AWS_REGION="eu-west-1\n"), Storage(s3_region="x"), URI, "https://examplebucket.s3.eu-west-1.amazonaws.com/test.txt"),
        (keys(), Storage(s3_region="eu-north-1"), S3Uri("a.b", "k"), "https://s3.eu-north-1.amazonaws.com/a.b/k"),
        (keys(), Storage(s3_endpoint="https://o:9000/"), URI, "https://o:9000/examplebucket/test.txt"),
        (keys(AWS_ENDPOINT_URL="http://own"), Storage(s3_endpoint="https://o"), URI, "http://own/examplebucket/test.txt"),
        (keys(), Storage(s3_endpoint="https://o"), S3Uri("bucket", "a b/ü+?.onnx"), "https://o/bucket/a%20b/%C3%BC%2B%3F.onnx"),
    ],
)
def test_the_secret_goes_before_the_settings_and_these_before_aws(given: Keys, storage: Storage, uri: S3Uri, wanted: str) -> None:
    assert url(given, storage, uri) == wanted


@pytest.mark.parametrize("region", ["evil.example/", "a b", "../x", "x@y"])
def test_a_region_is_not_a_way_to_another_host(region: str) -> None:
    with pytest.raises(WorkerError) as caught:
        url(keys(AWS_REGION=region))

    assert caught.value.reason is WorkerReason.MODEL_ACCESS_DENIED


def test_who_has_no_keys_asks_as_nobody_and_never_as_the_node() -> None:
    place = s3.place(URI, "told", Storage(), keys(), BOUNDS)

    assert place.authorize(place.url, {}) == {}


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "web-identity-token").write_text("header.payload.signature\n")
    monkeypatch.setenv("INFERENCE_IDENTITY_ROOT", str(tmp_path))


def to(port: int) -> Callable[..., socket.socket]:
    return lambda *_, **__: socket.create_connection(("127.0.0.1", port))


@pytest.mark.usefixtures("token")
def test_a_role_is_assumed_by_the_workers_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the token service: a server that answers as its reference says."""
    form = []

    def answer(connection: socket.socket, head: bytes) -> None:
        body = head.partition(b"\r\n\r\n")[2]
        form.append(parse_qs((body or connection.recv(65536)).decode()))
        saying(f"HTTP/1.1 200 OK\nContent-Length: {len(ANSWER)}", ANSWER)(connection, b"")

    with answering(answer) as (port, seen):
        monkeypatch.setattr(outbound, "connected", to(port))
        place = s3.place(URI, "told", ROLE, keys(), BOUNDS)

    assert seen[0].startswith(b"POST / HTTP/1.1\r\n") and b"Host: sts.us-east-1.amazonaws.com\r\n" in seen[0]
    assert form[0]["WebIdentityToken"] == ["header.payload.signature"] and form[0]["RoleArn"] == [ROLE.aws_role]
    found = place.authorize(place.url, {})
    assert "Credential=ASIAEXAMPLE/" in found["Authorization"] and found["x-amz-security-token"] == "AQoD=="


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("head", "body", "reason"),
    [
        ("HTTP/1.1 403 Forbidden\nContent-Length: 0", b"", WorkerReason.MODEL_ACCESS_DENIED),
        ("HTTP/1.1 500 Oops\nContent-Length: 0", b"", WorkerReason.MODEL_UNREACHABLE),
        ("HTTP/1.1 200 OK\nContent-Length: 7", b"<html/>", WorkerReason.MODEL_UNREACHABLE),
        ("HTTP/1.1 200 OK", ANSWER + ANSWER, WorkerReason.MODEL_UNREACHABLE),
        ("HTTP/1.1 200 OK", b" " * (1 << 20), WorkerReason.MODEL_UNREACHABLE),
    ],
)
def test_a_role_that_is_not_given_is_named(monkeypatch: pytest.MonkeyPatch, head: str, body: bytes, reason: WorkerReason) -> None:
    with answering(saying(head, body)) as (port, _):
        monkeypatch.setattr(outbound, "connected", to(port))
        with pytest.raises(WorkerError) as caught:
            s3.place(URI, "told", ROLE, keys(), BOUNDS)

    assert caught.value.reason is reason and "header.payload" not in caught.value.message
