"""tritonserver and its model process die, idle and under load: ready tells the truth, callers are told, and all of it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from inference_protocol.messages import BatchTask
from tests.worker import models
from tests.worker.callers import INFER
from tests.worker.harness import CLAIM, QUICK_COMMITS, QUICK_DRAIN, Place, a_config, answers_in, committed, until
from tests.worker.tritons import Triton
from tests.worker.wire import get, post

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inference_protocol.messages import WorkerConfig
    from tests.worker.harness import Worker

BODY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


@pytest.fixture
def triton(tmp_path: Path) -> Iterator[Triton]:
    made = Triton(tmp_path / "beside")
    yield made
    made.end()


def told(place: Place, triton: Triton, data: bytes, **changes: object) -> WorkerConfig:
    return a_config(place.put("m.onnx", data), backend="triton", triton=triton.told, **changes)


def status(worker: Worker) -> int:
    return post(worker.port, INFER, BODY).status


def test_a_server_that_dies_takes_ready_with_it_and_both_come_back(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN).wait_ready()
    before = post(worker.port, INFER, BODY).json["outputs"]
    assert get(worker.port, "/telemetry").json["model"]["provider"].startswith("TritonServer 2.51")

    triton.kill()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")
    refused = post(worker.port, INFER, BODY)
    assert refused.status == 503
    assert "Triton" in refused.json["error"]
    assert worker.answers("/v2/health/live") == 200

    triton.restart()
    worker.wait_ready()
    assert post(worker.port, INFER, BODY).json["outputs"] == before
    assert worker.stop().ended().said.outcome == "Drained"


def test_a_model_process_that_dies_is_noticed_without_a_caller_and_replaced(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN).wait_ready()
    triton.wait()

    triton.kill_stubs()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")

    worker.wait_ready()
    assert status(worker) == 200
    assert worker.running


def test_a_batch_outlives_its_server_and_nothing_is_lost_or_doubled(place: Place, triton: Triton) -> None:
    rows = np.random.default_rng(5).standard_normal((6000, 64)).astype(np.float32)
    task = BatchTask(input_uri=place.put_array("rows.npy", rows), output_uri=f"pvc://{CLAIM}/out")
    config = told(place, triton, models.slow(), task=task, batch_size=4)
    out = place.claim / "out"
    worker = place.start(config, patches=QUICK_COMMITS)
    until(lambda: committed(out) > 2, "some parts")

    triton.kill()
    triton.restart()

    ended = worker.ended()
    assert ended.said.outcome == "Succeeded", ended.log
    assert ended.said.progress is not None and ended.said.progress.completed == 6000
    assert len(answers_in(out)["y"]) == 6000


def test_a_batch_whose_server_stays_away_ends_with_a_reason_and_the_next_attempt_goes_on(place: Place, triton: Triton) -> None:
    rows = np.random.default_rng(5).standard_normal((4000, 64)).astype(np.float32)
    task = BatchTask(input_uri=place.put_array("rows.npy", rows), output_uri=f"pvc://{CLAIM}/out")
    config = told(place, triton, models.slow(), task=task, batch_size=4)
    out = place.claim / "out"
    worker = place.start(config, patches={**QUICK_COMMITS, "inference_worker.triton.engine:_TASK_PATIENCE_SECONDS": 0.2})
    until(lambda: committed(out) > 2, "some parts")

    triton.kill()
    ended = worker.ended()
    assert ended.said.reason == "BackendUnreachable"
    assert ended.code == 1

    triton.restart()
    again = place.run(msgspec.structs.replace(config, attempt=2))
    assert again.said.outcome == "Succeeded"
    assert again.said.progress is not None and again.said.progress.resumed > 0
    assert len(answers_in(out)["y"]) == 4000


def test_a_server_that_never_comes_is_given_up_with_a_reason(place: Place, triton: Triton) -> None:
    triton.kill()
    config = told(place, triton, models.matmul())
    assert config.triton is not None
    config = msgspec.structs.replace(config, triton=msgspec.structs.replace(config.triton, startup_seconds=0.2))

    ended = place.run(config)

    assert ended.said.reason == "BackendUnreachable"
    assert "see the log of its container" in ended.said.message


def test_a_repository_that_cannot_be_written_is_told(place: Place, triton: Triton) -> None:
    config = told(place, triton, models.matmul())
    assert config.triton is not None
    blocked = triton.repository / "file"
    blocked.touch()

    ended = place.run(msgspec.structs.replace(config, triton=msgspec.structs.replace(config.triton, repository=str(blocked))))

    assert ended.said.reason == "RepositoryUnwritable"
    assert "Not a directory" in ended.said.message


def test_what_triton_refuses_is_told_in_its_own_words(place: Place, triton: Triton) -> None:
    config = told(place, triton, models.matmul())

    # A platform that this server has no back end for.
    assert config.triton is not None
    ended = place.run(msgspec.structs.replace(config, triton=msgspec.structs.replace(config.triton, platform="onnxruntime")))

    assert ended.said.reason == "ModelRefused"
    assert ended.code == 2
    assert "unable to find backend library for backend 'onnxruntime'" in ended.said.message
