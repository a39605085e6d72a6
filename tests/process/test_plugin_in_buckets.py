"""`push` and `download` by s3fs against a real server of S3, and against one that refuses to tell what it has."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.cache import cache_root, digest, locked
from dev.venv import install
from tests.process.stores import KEY, SECRET, S3Server, answering, s3_server
from tests.unit.client.outputs import written

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "dev" / "requirements-s3fs.txt"
# What `download` asks a bucket by, without an API server: a plug-in in a process of its own has no other s3fs.
_FETCH = """
import json, sys
from pathlib import Path
from inference_client.bucket import bucket
from inference_client.client import Client
from inference_client.downloads import Wish, _fetched
from tests.unit.client.objects import a_job, succeeded
wish, job = Wish(Path(sys.argv[2])), a_job(*succeeded())
found = Client(None, "demo").run(_fetched(bucket(sys.argv[1]), job, wish, whole=True, over=lambda: False))
print(json.dumps({"items": found.items, "kept": found.kept}))
"""


@pytest.fixture(scope="module")
def s3fs() -> Path:
    """The folder of s3fs and what it needs, installed when missing."""
    folder = cache_root() / "s3fs" / digest([REQUIREMENTS.read_bytes(), sys.version.encode()])
    with locked("s3fs"):
        if not (folder / "complete").exists():
            install(REQUIREMENTS, folder)
            (folder / "complete").touch()
    return folder


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), written_to=True) as server:
        yield server


class Runner:
    """Runs Python with s3fs and the keys of a server."""

    def __init__(self, s3fs: Path, port: int) -> None:
        paths = (s3fs, ROOT, ROOT / "client", ROOT / "operator", ROOT / "protocol", ROOT / "worker-image")
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        off = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1", "AWS_CONFIG_FILE": os.devnull}
        address = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        self.environment = {**os.environ, **keys, **off, **address, "PYTHONPATH": ":".join(map(str, paths))}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=120)

    def push(self, file: Path, uri: str, *more: str) -> subprocess.CompletedProcess[str]:
        return self("-m", "kubectl_inference", "push", str(file), uri, "-o", "json", *more)


@pytest.fixture
def run(s3fs: Path, s3: S3Server) -> Runner:
    return Runner(s3fs, s3.port)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"a model")
    return path


# An upload of more than 50 MiB goes in several requests.
@pytest.mark.parametrize("size", [7, 60 << 20], ids=["one request", "several requests"])
def test_a_model_is_pushed_once_and_replaced_when_asked(run: Runner, s3: S3Server, model: Path, size: int) -> None:
    model.write_bytes(b"x" * size)
    uri = f"s3://models/{size}/model.onnx"

    done = run.push(model, uri)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["uri"] == uri
    assert (s3.folder / "models" / str(size) / "model.onnx").stat().st_size == size
    again = run.push(model, uri)
    assert again.returncode == 1 and "is there already" in again.stderr
    assert run.push(model, uri, "--force").returncode == 0


def refusing(asked: list[bytes]) -> Any:
    """A store that lets nobody look, and takes each write."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while head := lines.readline():
                size = 0
                while (line := lines.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                    if name.lower() == b"expect":
                        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                lines.read(size)
                asked.append(head.split()[0])
                code = b"200 OK" if head.startswith(b"PUT") else b"403 Forbidden"
                connection.sendall(b"HTTP/1.1 " + code + b'\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')

    return serve


def test_a_store_that_refuses_to_tell_is_not_written_to(s3fs: Path, model: Path) -> None:
    asked: list[bytes] = []
    with answering(refusing(asked)) as port:
        run = Runner(s3fs, port)
        done = run.push(model, "s3://models/m/model.onnx")

        assert done.returncode == 1 and "the store doesn't tell whether s3://models/m/model.onnx is there" in done.stderr, (
            done.stderr
        )
        assert b"HEAD" in asked and b"PUT" not in asked
        assert run.push(model, "s3://models/m/model.onnx", "--force").returncode == 0 and b"PUT" in asked


def test_an_output_is_fetched_from_a_bucket(s3fs: Path, tmp_path: Path) -> None:
    chunks = written(tmp_path / "made", b"one" * 1_000_000, b"two")
    with s3_server(tmp_path / "s3") as s3:
        run = Runner(s3fs, s3.port)
        for one in (tmp_path / "made").iterdir():
            s3.put("models", f"out/{one.name}", one.read_bytes())
        first, second = (run("-c", _FETCH, "s3://models/out/", str(tmp_path / "out")) for _ in range(2))
        missing = run("-c", _FETCH, "s3://models/nothing", str(tmp_path / "out"))

    assert first.returncode == 0, first.stderr
    assert (json.loads(first.stdout), json.loads(second.stdout)) == ({"items": 20, "kept": 0}, {"items": 20, "kept": 2})
    assert (tmp_path / "out" / chunks[0]["file"]).read_bytes() == b"one" * 1_000_000
    assert "NotFoundError: s3://models/nothing/manifest.json is not there" in missing.stderr
