"""What a worker says to hosts, and tells of them: none that is not allowed is asked, and none's words end in a status."""

from __future__ import annotations

import hashlib
import socket
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_protocol.messages import BatchTask, ModelSource, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker import fetch
from inference_worker.batch.inputs import open_input
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from inference_worker.guarded_session import guarded_session
from inference_worker.model import load
from inference_worker.tracing import Tracer
from tests.process import models
from tests.unit.worker.conftest import answering, saying

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = b"somebody's secret"
DIGEST = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
WANTED = "sha256:" + "0" * 64
OK = f"HTTP/1.1 200 OK\nContent-Length: {len(BODY)}"
HOSTS = ("files.test",)

pytestmark = pytest.mark.usefixtures("loopback_allowed")


def refusal(url: str, hosts: tuple[str, ...] = HOSTS) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        fetch.read_model(url, digest=WANTED, limit=1 << 20, hosts=hosts)
    return caught.value


def moved(location: str) -> Callable[[socket.socket, bytes], None]:
    return saying(f"HTTP/1.1 302 Found\nLocation: {location}\nContent-Length: 0")


def test_a_host_that_is_not_listed_is_not_even_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("it asked for the address"))

    error = refusal("http://other.test/m.onnx")

    assert error.reason is WorkerReason.URI_FORBIDDEN and error.permanent
    assert "host other.test is not allowed; this cluster allows files.test" in error.message


def test_a_redirect_does_not_lead_off_the_list() -> None:
    """A server on the list sent the worker to any other host."""
    with answering(moved("http://other.test:1/inside")) as (port, seen):
        error = refusal(f"http://files.test:{port}/m.onnx")

    assert error.reason is WorkerReason.URI_FORBIDDEN and "host other.test is not allowed" in error.message
    assert len(seen) == 1


def test_a_listed_name_that_resolves_to_the_metadata_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    assert refusal("http://files.test/m.onnx").reason is WorkerReason.URI_FORBIDDEN


def test_a_listed_name_may_resolve_to_another_address_at_each_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look-up of a name is checked as the first was: it gave the metadata service once the first had passed."""
    addresses = iter(["127.0.0.1", "169.254.169.254"])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, port, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(addresses), port))]
    )

    with answering(moved("/latest/meta-data")) as (port, seen):
        error = refusal(f"http://files.test:{port}/m.onnx")

    assert error.reason is WorkerReason.URI_FORBIDDEN and len(seen) == 1


def test_a_models_worker_obeys_its_configurations_list(root: Path) -> None:
    source = ModelSource("net", "1", "http://other.test/m.onnx", WANTED)
    config = WorkerConfig("team", "job", "uid", 1, source, ("CPUExecutionProvider",), fetch_from=HOSTS)

    with pytest.raises(WorkerError, match=r"other\.test is not allowed"):
        load(config, source, root=root)


def test_an_input_is_fetched_from_listed_hosts_only(tmp_path: Path) -> None:
    task = BatchTask(input_uri="http://other.test/in.npy", input_digest=WANTED)

    with pytest.raises(WorkerError, match=r"other\.test is not allowed"):
        open_input(task, (TensorSpec("x", "FP32", np.dtype(np.float32), (None, 2)),), tmp_path, tmp_path, lambda: False, HOSTS)


def test_a_wrong_digest_does_not_tell_the_right_one_of_a_foreign_body() -> None:
    """The digest says whether the server holds a file that one has elsewhere, and finds short bodies by trying all."""
    with answering(saying(OK, BODY)) as (port, _):
        error = refusal(f"http://files.test:{port}/token")

    assert error.reason is WorkerReason.MODEL_DIGEST_MISMATCH and WANTED in error.message
    assert DIGEST.removeprefix("sha256:")[:8] not in error.message


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-SECRET_9.2\r\n",
        b"220 SECRET ESMTP\r\n",
        b"HTTP/1.1 403 SECRET\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://files.test:1/m?X-Amz-Signature=SECRET\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://user:SECRET@files.test:1/m\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://files.test/SECRET\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[SECRET\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
    ],
)
def test_what_a_server_says_is_not_told(answer: bytes) -> None:
    """A job could read banners of services that its author can't reach, and others' signed URLs."""
    with answering(lambda connection, _: connection.sendall(answer)) as (port, _):
        error = refusal(f"http://files.test:{port}/m.onnx")

    assert "SECRET" not in error.message and len(error.message) > 20


def test_a_model_on_a_claim_still_tells_both_digests(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(models.matmul())

    with pytest.raises(WorkerError, match=hashlib.sha256(models.matmul()).hexdigest()):
        fetch.read_model("pvc://data/m.onnx", digest=WANTED, limit=1 << 20, hosts=HOSTS, root=root)


@pytest.mark.parametrize("url", ["http://other.test/v1/traces", "http://169.254.169.254/latest", "http://metadata.test/"])
def test_traces_of_a_job_go_only_where_a_download_may_come_from(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    lookup = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: lookup("169.254.169.254", *a, **k))

    with pytest.raises(WorkerError) as caught, guarded_session(("files.test", "metadata.test", "169.254.169.254")) as session:
        session.post(url, data=b"spans", timeout=2)

    assert caught.value.reason is WorkerReason.URI_FORBIDDEN


def test_traces_of_a_job_reach_an_allowed_collector_and_follow_no_redirect_off_the_list() -> None:
    refused = pytest.raises(WorkerError, match=r"127\.0\.0\.1 is not allowed")
    with answering(moved("http://127.0.0.1:1/elsewhere")) as (port, seen), guarded_session(HOSTS) as session, refused:
        session.post(f"http://files.test:{port}/v1/traces", data=b"spans", timeout=2)

    assert b"/v1/traces" in seen[0]


def test_the_exporter_of_a_jobs_traces_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the session above would be of no use."""
    with answering(saying("HTTP/1.1 200 OK\nContent-Length: 0")) as (port, seen):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        guarded = Tracer({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_SAMPLER_ARG": "1"}, guarded=HOSTS)
        span = guarded.request({}, "net", "1")
        assert span is not None
        span.end(None, None)
        guarded.close()

    assert not seen
