"""Registries that lie, ask too much or send too much: each is refused before it gets or gives what it should not."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
from typing import TYPE_CHECKING

import pytest

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import OciUri, parse_uri
from inference_worker import download, outbound
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds
from inference_worker.stores import registry
from inference_worker.stores.keys import Keys
from tests.unit.worker.conftest import answering, saying

if TYPE_CHECKING:
    from collections.abc import Callable

    Conversation = Callable[[socket.socket, bytes], None]

FILE = b"a model" * 100
R = WorkerReason
LOGIN = base64.b64encode(b"user:word").decode()
BOUNDS = Bounds((), 1 << 20, R.MODEL_NOT_FOUND, R.MODEL_TOO_LARGE)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def a_manifest(*, size: int = len(FILE), digest: str = digest_of(FILE), **more: object) -> bytes:
    layer = {"digest": digest, "size": size, "annotations": {"org.opencontainers.image.title": "m.onnx"}}
    return json.dumps({"schemaVersion": 2, "layers": [layer], **more}).encode()


def ok(body: bytes) -> Conversation:
    return saying(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}", body)


def challenge(words: str) -> Conversation:
    return saying(f"HTTP/1.1 401 Who\nWWW-Authenticate: {words}\nContent-Length: 0")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bytes, list[bytes]]]:
    """Fetch from a registry that holds these conversations; returns the file and the requests."""

    def fetch(
        *conversations: Conversation, text: str = "oci://r.example/net:v1", config: object = None
    ) -> tuple[bytes, list[bytes]]:
        uri = parse_uri(text)
        assert isinstance(uri, OciUri)
        keys = Keys("login", {".dockerconfigjson": json.dumps(config)} if config is not None else {})
        with answering(*conversations) as (port, seen):
            monkeypatch.setattr(outbound, "connected", lambda *_, **__: socket.create_connection(("127.0.0.1", port)))
            try:
                got = io.BytesIO()
                registry.fetch_into(got, uri, text, keys, BOUNDS)
                return got.getvalue(), seen
            except WorkerError as error:
                error.add_note(str(len(seen)))
                raise

    return fetch


def proofs(seen: list[bytes]) -> list[str]:
    heads = [head.decode().split("\r\n") for head in seen]
    return ["".join(line.partition(": ")[2] for line in lines if line.startswith("Authorization: ")) for lines in heads]


@pytest.mark.parametrize(
    ("auths", "sent"),
    [
        ({"r.example": {"auth": LOGIN}}, f"Basic {LOGIN}"),
        ({"https://r.example/v1/": {"auth": LOGIN}}, f"Basic {LOGIN}"),
        ({"R.example": {"username": "user", "password": "word"}}, f"Basic {LOGIN}"),
    ],
)
def test_a_registry_gets_the_entry_of_its_own_name(
    fetched: Callable[..., tuple[bytes, list[bytes]]], auths: object, sent: str
) -> None:
    data, seen = fetched(challenge('Basic realm="r"'), ok(a_manifest()), ok(FILE), config={"auths": auths})

    assert data == FILE and proofs(seen) == ["", sent, sent]


@pytest.mark.parametrize("name", ["other.example", "r.example:5000", "r.example.evil", "sub.r.example"])
def test_no_registry_gets_another_ones_password(fetched: Callable[..., tuple[bytes, list[bytes]]], name: str) -> None:
    with pytest.raises(WorkerError) as caught:
        fetched(challenge('Basic realm="r"'), ok(b"{}"), config={"auths": {name: {"auth": LOGIN}}})

    assert caught.value.reason is R.MODEL_ACCESS_DENIED and caught.value.__notes__ == ["1"]


@pytest.mark.parametrize("realm", ["http://t.example/token", "//t.example", "file:///etc", ""])
def test_a_password_goes_to_a_token_server_over_tls_alone(fetched: Callable[..., tuple[bytes, list[bytes]]], realm: str) -> None:
    with pytest.raises(WorkerError) as caught:
        fetched(challenge(f'Bearer realm="{realm}",service="s"'), ok(b"{}"), config={"auths": {"r.example": {"auth": LOGIN}}})

    assert caught.value.reason is R.MODEL_ACCESS_DENIED and caught.value.__notes__ == ["1"]


BEARER = challenge('Bearer realm="https://t.example/token",service="s"')
PINNED = f"oci://r.example/net@{digest_of(b'other')}"
LIES: dict[str, tuple[list[Conversation], str, WorkerReason, int]] = {
    "a challenge that never ends": ([BEARER, ok(b'{"token":"t"}'), BEARER], "", R.MODEL_ACCESS_DENIED, 3),
    "a token of several lines": ([BEARER, ok(b'{"token":"t\\r\\nX: y"}')], "", R.MODEL_UNREACHABLE, 2),
    "no token": ([BEARER, ok(b"{}")], "", R.MODEL_UNREACHABLE, 2),
    "a token without end": ([BEARER, ok(b" " * (1 << 20))], "", R.MODEL_UNREACHABLE, 2),
    "a manifest without end": ([ok(b" " * (5 << 20))], "", R.MODEL_UNREACHABLE, 1),
    "an index": ([ok(b'{"schemaVersion":2,"manifests":[]}')], "", R.MODEL_NOT_FOUND, 1),
    "no JSON": ([ok(b"<html>")], "", R.MODEL_NOT_FOUND, 1),
    "a digest that is a path": ([ok(a_manifest(digest="sha256:../../x"))], "", R.MODEL_NOT_FOUND, 1),
    "another manifest than the pinned one": ([ok(a_manifest())], PINNED, R.MODEL_CORRUPT, 1),
    "a layer over the limit": ([ok(a_manifest(size=2 << 20))], "", R.MODEL_TOO_LARGE, 1),
    "more than the manifest promises": ([ok(a_manifest(size=10)), ok(FILE)], "", R.MODEL_TOO_LARGE, 2),
    "other bytes than the manifest's": ([ok(a_manifest()), ok(bytes(len(FILE)))], "", R.MODEL_CORRUPT, 2),
}


@pytest.mark.parametrize("what", LIES)
def test_what_a_registry_says_is_held_to_what_it_may(fetched: Callable[..., tuple[bytes, list[bytes]]], what: str) -> None:
    conversations, text, reason, requests = LIES[what]
    with pytest.raises(WorkerError) as caught:
        fetched(*conversations, text=text or "oci://r.example/net:v1")

    assert caught.value.reason is reason, caught.value.message
    assert caught.value.__notes__ == [str(requests)]


def test_a_layer_that_breaks_off_after_its_tokens_end_goes_on_with_another(
    fetched: Callable[..., tuple[bytes, list[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens last for a minute or five, which a layer of some gigabytes outlasts."""
    monkeypatch.setattr(download, "_PAUSES", (0.0,))
    half, size = len(FILE) // 2, len(FILE)
    broken = saying(f'HTTP/1.1 200 OK\nETag: "a"\nContent-Length: {size}', FILE[:half])
    rest = f'HTTP/1.1 206 Part\nETag: "a"\nContent-Range: bytes {half}-{size - 1}/{size}\nContent-Length: {size - half}'

    def outlasting(connection: socket.socket, head: bytes) -> None:
        broken(connection, head)
        monkeypatch.setattr(registry, "_TOKEN_SECONDS", -1.0)

    got, seen = fetched(
        BEARER, ok(b'{"token":"one"}'), ok(a_manifest()), outlasting, ok(b'{"token":"two"}'), saying(rest, FILE[half:])
    )

    assert got == FILE
    assert proofs(seen) == ["", "", "Bearer one", "Bearer one", "", "Bearer two"]
