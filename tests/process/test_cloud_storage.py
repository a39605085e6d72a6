"""Models, inputs and outputs in Cloud Storage, by real workers against a server of its API."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.harness import a_config, until
from tests.process.stores import GcsServer, gcs_server
from tests.process.test_batches_in_buckets import QUICK, SLOW, batch, npy, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place, Worker

R = WorkerReason


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        yield server


def started(place: Place, gcs: GcsServer, config: Any) -> Worker:
    for name in ("storage", "input-storage", "output-storage"):
        (place.root / "identity" / name).mkdir(parents=True, exist_ok=True)
        (place.root / "identity" / name / "GCS_ENDPOINT_URL").write_text(f"http://localhost:{gcs.port}")
    variables = {"INFERENCE_IDENTITY_ROOT": str(place.root / "identity")}
    return place.start(config, patches=QUICK, variables=variables)


def a_model(uri: str, data: bytes) -> Any:
    config = a_config(uri, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", fetch_from=("localhost",))
    return msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, storage=Storage(secret="models")))


def test_a_model_is_served_or_said_to_be_missing(place: Place, gcs: GcsServer) -> None:
    data = models.matmul()
    gcs.put("models", "nets/1 &/model.onnx", data)

    started(place, gcs, a_model("gs://models/nets/1%20%26/model.onnx", data)).wait_ready()

    ended = started(place, gcs, a_model("gs://models/nets/2/model.onnx", data)).ended()
    assert ended.said.reason is R.MODEL_NOT_FOUND and "gs://models/nets/2/model.onnx" in ended.said.message


def committed(gcs: GcsServer, folder: str) -> int:
    """Chunks that the manifests of all attempts name."""
    names = gcs.names("models", f"{folder}/attempts")
    lines = (line for name in names for line in gcs.found("models", f"{folder}/attempts/{name}").splitlines()[1:])
    return len({json.loads(line)["file"] for line in lines})


def test_a_batch_that_is_killed_goes_on(place: Place, gcs: GcsServer) -> None:
    gcs.put("models", "killed/in.npy", npy(rows()))
    config = batch(place, "gs://models/killed/in.npy", "gs://models/killed/out", SLOW)
    worker = started(place, gcs, config)
    until(lambda: not worker.running or committed(gcs, "killed/out") > 0, "a commit")
    worker.kill()

    ended = started(place, gcs, msgspec.structs.replace(config, attempt=2, batch_size=100)).ended()

    assert ended.said.outcome == "Succeeded" and ended.said.progress is not None and ended.said.progress.resumed > 0
    chunks = json.loads(gcs.get("models", "killed/out/manifest.json"))["chunks"]
    assert [chunk["start"] for chunk in chunks[1:]] == [chunk["end"] for chunk in chunks[:-1]]
    assert (chunks[0]["start"], chunks[-1]["end"]) == (0, len(rows()))
    read = partial(gcs.get, "models")
    assert all(hashlib.sha256(read(f"killed/out/{chunk['file']}")).hexdigest() == chunk["sha256"] for chunk in chunks)


def test_a_folder_of_raw_files_is_read_as_it_was_listed(place: Place, gcs: GcsServer) -> None:
    for i in range(5):
        gcs.put("models", f"raw/in/{i} &.bin", np.full(2, i, np.float32).tobytes())
    gcs.put("models", "raw/in/below/x.bin", b"not of this folder")
    config = batch(place, "gs://models/raw/in", "gs://models/raw/out", models.identity(), input_format="files")

    ended = started(place, gcs, config).ended()

    assert ended.said.outcome == "Succeeded" and ended.said.progress is not None and ended.said.progress.completed == 5


def test_a_bucket_that_is_not_there_is_said(place: Place, gcs: GcsServer) -> None:
    gcs.put("models", "in.npy", npy(np.ones((3, 2), np.float32)))

    ended = started(place, gcs, batch(place, "gs://models/in.npy", "gs://none-such/out", models.identity())).ended()

    assert ended.said.reason is R.OUTPUT_UNWRITABLE and "GCS_ENDPOINT_URL" in ended.said.message
