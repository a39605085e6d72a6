"""Models out of an S3 server, a registry and a hub: the right one is served, and what is wrong is refused with its reason."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from tests.authority import Authority
from tests.process import models
from tests.process.harness import REPOSITORY, a_config
from tests.process.patched import LOOPBACK_ALLOWED
from tests.process.stores import KEY, SECRET, Registry, S3Server, line, registry, s3_server
from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.process.harness import Ended, Place, Worker

MODEL = models.matmul()
LARGE = 24 << 20
R = WorkerReason
QUICK: dict[str, Any] = {LOOPBACK_ALLOWED: True, "inference_worker.download:_PAUSES": [0.01, 0.01, 0.01]}
GIGABYTE = 1 << 30
MOST_MORE_BYTES = 64 << 20


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.put("models", "nets/1/model.onnx", MODEL)
        server.put("models", "nets/large.onnx", os.urandom(LARGE))
        yield server


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry"), authority) as server:
        server.push("team/net", "v1", {"model.onnx": MODEL})
        server.push("team/several", "v1", {"model.onnx": MODEL, "other.onnx": models.identity()})
        yield server


def started(
    place: Place,
    uri: str,
    keys: Mapping[str, str] | None,
    *,
    digest: str = digest_of(MODEL),
    patches: object = None,
    **changes: Any,
) -> Worker:
    """A worker with a Secret of these keys; of none where there are none."""
    root = place.root / "identity"
    (root / "storage").mkdir(parents=True, exist_ok=True)
    for key, text in (keys or {}).items():
        (root / "storage" / key).write_text(text)
    config = a_config(uri, digest=digest, **{"fetch_from": ("localhost",), **changes})
    storage = Storage(secret="models") if keys is not None else None
    config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, storage=storage))
    given = {**QUICK, **(patches or {})}  # type: ignore[dict-item]
    return place.start(config, patches=given, variables={"INFERENCE_IDENTITY_ROOT": str(root)})


def refused(place: Place, uri: str, keys: Mapping[str, str] | None, **given: Any) -> tuple[WorkerReason | None, str]:
    ended: Ended = started(place, uri, keys, **given).ended()
    assert SECRET not in ended.log and SECRET not in ended.said.message
    return ended.said.reason, ended.said.message


def keys_for(port: int, **changes: str) -> dict[str, str]:
    given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": f"http://localhost:{port}"}
    return {**given, **changes}


def test_a_model_of_a_bucket_is_served(place: Place, s3: S3Server) -> None:
    started(place, "s3://models/nets/1/model.onnx", keys_for(s3.port)).wait_ready()


def test_a_store_with_a_private_ca_is_trusted_by_the_secret_alone(place: Place, authority: Authority, tmp_path: Path) -> None:
    with s3_server(tmp_path, authority) as server:
        server.put("models", "m.onnx", MODEL)
        keys = keys_for(server.port, AWS_ENDPOINT_URL=f"https://localhost:{server.port}")
        reason, message = refused(place, "s3://models/m.onnx", keys)
        assert reason is R.MODEL_UNREACHABLE and "CERTIFICATE_VERIFY_FAILED" in message
        started(place, "s3://models/m.onnx", {**keys, "AWS_CA_BUNDLE": authority.pem}).wait_ready()


def test_weights_beside_a_model_come_from_the_same_bucket(place: Place, s3: S3Server) -> None:
    files = {name: (REPOSITORY / "tests" / "models" / name).read_bytes() for name in ("external.onnx", "external.onnx.data")}
    for name, data in files.items():
        s3.put("models", f"beside/{name}", data)
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))

    started(place, "s3://models/beside/external.onnx", keys_for(s3.port), digest=digest_of(lines.encode())).wait_ready()


WRONG: dict[str, tuple[str, dict[str, str] | None, dict[str, Any], WorkerReason, str]] = {
    "another digest": ("nets/1/model.onnx", {}, {"digest": digest_of(b"")}, R.MODEL_DIGEST_MISMATCH, "has another digest"),
    "a missing key": ("nets/2/model.onnx", {}, {}, R.MODEL_NOT_FOUND, "does not exist"),
    "another secret": ("nets/1/model.onnx", {"AWS_SECRET_ACCESS_KEY": "x"}, {}, R.MODEL_ACCESS_DENIED, "s3:GetObject"),
    "half a pair": ("nets/1/model.onnx", {"AWS_SECRET_ACCESS_KEY": ""}, {}, R.MODEL_ACCESS_DENIED, "AWS_SECRET_ACCESS_KEY"),
    "nobody who asks": ("nets/1/model.onnx", None, {}, R.URI_FORBIDDEN, "is not allowed"),
    "too large": ("nets/large.onnx", {}, {"model_limit_bytes": 1 << 20}, R.MODEL_TOO_LARGE, "the limit of 1048576"),
    "a host off the list": ("nets/1/model.onnx", {}, {"fetch_from": ("models.example",)}, R.URI_FORBIDDEN, "is not allowed"),
    "the metadata service": (
        "nets/1/model.onnx",
        {"AWS_ENDPOINT_URL": "http://169.254.169.254"},
        {"fetch_from": ()},
        R.URI_FORBIDDEN,
        "metadata service",
    ),
    "no URL": ("nets/1/model.onnx", {"AWS_ENDPOINT_URL": "file:///etc"}, {}, R.URI_FORBIDDEN, "no URL of a server"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_an_object_is_said(place: Place, s3: S3Server, what: str) -> None:
    key, keys, changes, reason, words = WRONG[what]
    with line(s3.port) as wire:
        found, message = refused(
            place, f"s3://models/{key}", {**keys_for(wire.port), **keys} if keys is not None else None, **changes
        )

    assert found is reason and words in message, message
    # What is too large is known from its head; the kernel's buffers are all that may have come.
    assert wire.sent < 8 << 20


def test_a_secret_that_is_not_there_is_named(place: Place) -> None:
    reason, message = refused(place, "s3://models/m.onnx", {})

    assert reason is R.MODEL_ACCESS_DENIED and "no Secret models with any of AWS_ACCESS_KEY_ID" in message


def test_a_broken_download_goes_on_where_it_broke(place: Place, s3: S3Server) -> None:
    data = MODEL + bytes(LARGE)
    s3.put("models", "padded.onnx", data)
    with line(s3.port, cut_after=4 << 20) as wire:
        # It need not be a model: that the digest is right is said by the fault that comes next.
        reason, message = refused(place, "s3://models/padded.onnx", keys_for(wire.port), digest=digest_of(data))

    assert reason in (R.MODEL_CORRUPT, R.MODEL_INVALID), message
    assert wire.connections == 2 and wire.sent < len(data) + (1 << 20)
    again = next(r for r in wire.requests if b"Range: bytes=" in r)
    assert b"If-Match: " in again


def test_a_file_that_is_replaced_between_two_ranges_is_refused(place: Place, s3: S3Server) -> None:
    s3.put("models", "changing.onnx", os.urandom(LARGE))
    with line(s3.port, cut_after=4 << 20, then=lambda: s3.put("models", "changing.onnx", os.urandom(LARGE))) as wire:
        reason, message = refused(place, "s3://models/changing.onnx", keys_for(wire.port))

    assert reason is R.MODEL_CHANGED and "replaced" in message, message
    assert wire.sent < 8 << 20


def test_a_line_that_always_breaks_is_given_up(place: Place, s3: S3Server) -> None:
    with line(s3.port, cut_after=1 << 20, always=True) as wire:
        reason, message = refused(place, "s3://models/nets/large.onnx", keys_for(wire.port))

    assert reason is R.MODEL_UNREACHABLE and "before the file did" in message, message
    assert wire.connections == 4


def test_a_store_that_drips_is_given_up(place: Place, s3: S3Server) -> None:
    slow = {"inference_worker.pace:_SLOW_SECONDS": 0.4, "inference_worker.download:_PAUSES": []}
    with line(s3.port, pause_seconds=0.02) as wire:
        reason, message = refused(place, "s3://models/nets/large.onnx", keys_for(wire.port), patches=slow)

    assert reason is R.MODEL_UNREACHABLE and "use a faster server" in message, message


def test_a_worker_that_is_told_to_stop_leaves_a_download(place: Place, s3: S3Server) -> None:
    with line(s3.port, pause_seconds=0.02) as wire:
        worker = started(place, "s3://models/nets/large.onnx", keys_for(wire.port)).wait_answering()

        assert worker.stop().ended(seconds=10).said.outcome == "Drained"


def https_server(
    answer: type[http.server.BaseHTTPRequestHandler], authority: Authority, folder: Path
) -> AbstractContextManager[int]:
    """A server of a test's own over TLS on loopback."""
    authority.server("localhost").put(folder)
    return serving(answer, tls=folder)


class Quiet(http.server.BaseHTTPRequestHandler):
    """What a stand-in does: answers with `said`, and remembers the requests."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]]

    def __init_subclass__(cls) -> None:
        cls.seen = []

    def log_message(self, *_: object) -> None:
        pass

    def said(self, status: int, body: bytes = b"", **headers: str) -> None:
        type(self).seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_an_s3_redirect_is_not_followed(place: Place, authority: Authority, tmp_path: Path) -> None:
    """Its signature is for one host, and a store that redirects is another region's."""

    class Elsewhere(Quiet):
        def do_GET(self) -> None:
            self.said(307, Location="https://elsewhere.example/models/m.onnx")

    with https_server(Elsewhere, authority, tmp_path / "tls") as port:
        keys = keys_for(port, AWS_ENDPOINT_URL=f"https://localhost:{port}", **{"ca.crt": authority.pem})
        reason, message = refused(place, "s3://models/m.onnx", keys, fetch_from=())

    assert reason is R.MODEL_UNREACHABLE and "307" in message and "elsewhere" not in message
    assert len(Elsewhere.seen) == 1


# The hub itself can't be reached from tests: this stand-in answers as it does, with a redirect to where large files are.


@pytest.mark.parametrize(
    ("to", "token", "reason", "words"),
    [
        ("/cdn/object?X-Signature=1", "hf_good", None, ""),
        ("https://elsewhere.example/object", "hf_good", R.URI_FORBIDDEN, "elsewhere.example is not allowed"),
        ("http://169.254.169.254/latest", "hf_good", R.URI_FORBIDDEN, "metadata service"),
        ("/cdn/object", "hf_bad", R.MODEL_ACCESS_DENIED, "HF_TOKEN"),
    ],
)
def test_a_file_of_a_hub_is_served_or_refused(
    place: Place, authority: Authority, tmp_path: Path, to: str, token: str, reason: WorkerReason | None, words: str
) -> None:
    class Hub(Quiet):
        def do_GET(self) -> None:
            if self.path.startswith("/cdn/"):
                self.said(200, MODEL, ETag='"1"')
            elif self.headers.get("Authorization") != "Bearer hf_good":
                self.said(401)
            else:
                self.said(302, Location=to)

    with https_server(Hub, authority, tmp_path / "tls") as port:
        keys = {"HF_TOKEN": token, "HF_ENDPOINT": f"https://localhost:{port}", "ca.crt": authority.pem}
        worker = started(place, "hf://org/net@v1.0/onnx/model.onnx", keys)
        if reason is None:
            worker.wait_ready()
        else:
            said = worker.ended().said
            assert said.reason is reason and words in said.message and token not in said.message, said.message

    assert Hub.seen[0][0] == "/org/net/resolve/v1.0/onnx/model.onnx"


def test_a_token_of_the_hub_is_not_sent_to_where_it_redirects(place: Place, authority: Authority, tmp_path: Path) -> None:
    class Cdn(Quiet):
        def do_GET(self) -> None:
            self.said(200, MODEL)

    with https_server(Cdn, authority, tmp_path / "cdn") as cdn:

        class Hub(Quiet):
            def do_GET(self) -> None:
                self.said(302, Location=f"https://localhost:{cdn}/object")

        with https_server(Hub, authority, tmp_path / "hub") as port:
            keys = {"HF_TOKEN": "hf_good", "HF_ENDPOINT": f"https://localhost:{port}", "ca.crt": authority.pem}
            started(place, "hf://org/net/model.onnx", keys).wait_ready()

    assert [proof for _, proof in Hub.seen] == ["Bearer hf_good"] and [proof for _, proof in Cdn.seen] == [None]


def registry_keys(server: Registry, **changes: str) -> dict[str, str]:
    return {".dockerconfigjson": server.docker_config, "ca.crt": server.authority.pem, **changes}


@pytest.mark.parametrize("reference", ["team/net:v1", "team/net:v1#model.onnx", "team/several:v1#model.onnx"])
def test_a_file_of_an_artifact_is_served(place: Place, artifacts: Registry, reference: str) -> None:
    started(place, f"oci://{artifacts.name}/{reference}", registry_keys(artifacts)).wait_ready()


def test_an_artifact_is_served_by_its_digest(place: Place, artifacts: Registry) -> None:
    digest = artifacts.push("team/pinned", "v1", {"model.onnx": MODEL})

    started(place, f"oci://{artifacts.name}/team/pinned@{digest}", registry_keys(artifacts)).wait_ready()


@pytest.mark.parametrize(
    ("reference", "keys", "reason", "words"),
    [
        ("team/net:v2", {}, R.MODEL_NOT_FOUND, "does not exist"),
        ("team/several:v1", {}, R.MODEL_NOT_FOUND, "has 2 files; name one"),
        ("team/several:v1#third.onnx", {}, R.MODEL_NOT_FOUND, "none of the 2 layers"),
        ("team/net:v1", {".dockerconfigjson": '{"auths":{}}'}, R.MODEL_ACCESS_DENIED, "nothing is known for localhost"),
        ("team/net:v1", {".dockerconfigjson": "{"}, R.MODEL_ACCESS_DENIED, "can't be read"),
        ("team/several:v1#other.onnx", {}, R.MODEL_DIGEST_MISMATCH, "has another digest"),
    ],
)
def test_what_is_wrong_with_an_artifact_is_said(
    place: Place, artifacts: Registry, reference: str, keys: dict[str, str], reason: WorkerReason, words: str
) -> None:
    found, message = refused(place, f"oci://{artifacts.name}/{reference}", registry_keys(artifacts, **keys))

    assert found is reason and words in message, message


# Stands in for registries whose tokens come from a server of their own, as those of the clouds do.


@pytest.mark.parametrize("lies", [False, True])
def test_a_registrys_challenge_is_answered_and_its_bytes_are_checked(
    place: Place, authority: Authority, tmp_path: Path, *, lies: bool
) -> None:
    layer = {"digest": digest_of(MODEL), "size": len(MODEL), "annotations": {"org.opencontainers.image.title": "model.onnx"}}

    class Tokens(Quiet):
        def do_GET(self) -> None:
            host = self.headers["Host"]
            if self.path.startswith("/token"):
                self.said(200, json.dumps({"token": "t0ken"}).encode())
            elif self.headers.get("Authorization") != "Bearer t0ken":
                self.said(401, WWW_Authenticate=f'Bearer realm="https://{host}/token",service="r",scope="ignored"')
            elif "/manifests/" in self.path:
                self.said(200, json.dumps({"schemaVersion": 2, "layers": [layer]}).encode())
            else:
                self.said(200, bytes(len(MODEL)) if lies else MODEL)

    with https_server(Tokens, authority, tmp_path / "tls") as port:
        server = Registry(port, authority)
        worker = started(place, f"oci://localhost:{port}/team/net:v1", registry_keys(server))
        if lies:
            assert worker.ended().said.reason is R.MODEL_CORRUPT
        else:
            worker.wait_ready()

    paths = [path.partition("?")[0] for path, _ in Tokens.seen]
    assert paths == ["/v2/team/net/manifests/v1", "/token", "/v2/team/net/manifests/v1", f"/v2/team/net/blobs/{layer['digest']}"]
    assert "scope=repository%3Ateam%2Fnet%3Apull" in Tokens.seen[1][0]
    assert (Tokens.seen[1][1] or "").startswith("Basic ")


PEAK = """
import json, resource, sys
from pathlib import Path
from tests.process.patched import allow_loopback
from tests.web import serving
from inference_protocol.messages import Storage
from inference_worker import fetch
from inference_worker.allocator import keep_freed_memory
import inference_worker.stores.registry
keep_freed_memory()
allow_loopback()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = peak()
found = fetch.read_model(sys.argv[1], digest=None, limit=4 << 30, hosts=("localhost",), storage=Storage(secret="models"))
print(json.dumps([len(found.data), peak() - before]))
"""


def test_a_gigabyte_takes_its_own_memory_and_little_more(s3: S3Server, tmp_path: Path) -> None:
    """Joining what had come made a second copy of it: a node that had room for the model killed its worker."""
    path = s3.folder / "models" / "gigabyte.onnx"
    with path.open("wb") as file:
        file.truncate(GIGABYTE)
    (tmp_path / "storage").mkdir()
    for key, text in keys_for(s3.port).items():
        (tmp_path / "storage" / key).write_text(text)
    variables = {
        **os.environ,
        "INFERENCE_IDENTITY_ROOT": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("protocol", "worker-image", "")),
    }
    command = [sys.executable, "-c", PEAK, "s3://models/gigabyte.onnx"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    path.unlink()

    assert done.returncode == 0, done.stderr
    size, more = json.loads(done.stdout)
    assert size == GIGABYTE and more <= GIGABYTE + MOST_MORE_BYTES, f"{(more - size) / 2**20:.0f} MiB more than the file"
