"""tritonserver and its model process die, idle and under load: ready tells the truth, callers are told, and all of it comes back."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnxruntime
import pytest

from bench.proc import cpu_seconds
from inference_protocol.messages import TASKS_PATH, BatchTask
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import EngineUnavailableError
from inference_worker.engines.triton import repository
from inference_worker.errors import WorkerError
from tests.process import callers, models, wire
from tests.process.callers import INFER
from tests.process.engines.makers import Maker
from tests.process.harness import CLAIM, QUICK_COMMITS, QUICK_DRAIN, Place, a_config, answers_in, committed, spans, until
from tests.process.reports.test_cancellation import counting as endless
from tests.process.test_tasks import SLOW, a_colocated_order, a_warm_worker, an_order, ask, end_of
from tests.process.tritons import Triton
from tests.process.wire import Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inference_protocol.messages import WorkerConfig
    from tests.process.harness import Worker

# Triton's own patience with a process that it starts is 30 s, and a worker's with Triton 60 s.
BACK_SECONDS = 150.0
BODY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


@pytest.fixture
def triton(tmp_path: Path) -> Iterator[Triton]:
    made = Triton(tmp_path / "beside")
    yield made
    made.end()
    sys.stderr.write(made.log)


def told(place: Place, triton: Triton, data: bytes, **changes: Any) -> WorkerConfig:
    return a_config(place.put("m.onnx", data), backend="triton", triton=triton.told, **changes)


def status(worker: Worker) -> int:
    return post(worker.port, INFER, BODY).status


def configuration_of(triton: Triton) -> Path:
    """The config.pbtxt of the model that a worker has written."""
    (path,) = triton.repository.glob("*/config.pbtxt")
    return path


def test_a_server_that_dies_takes_ready_with_it_and_both_come_back(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN).wait_ready()
    before = post(worker.port, INFER, BODY).json["outputs"]
    assert get(worker.port, "/telemetry").json["model"]["provider"].startswith("TritonServer 2.51")

    triton.kill()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")
    refused = post(worker.port, INFER, BODY)
    assert refused.status == 503
    assert "Triton" in refused.json["error"]
    assert "Triton" in get(worker.port, "/telemetry").json["problem"]
    assert worker.answers("/v2/health/live") == 200

    triton.restart()
    worker.wait_ready()
    assert post(worker.port, INFER, BODY).json["outputs"] == before
    assert worker.stop().ended().said.outcome == "Drained"


def test_a_model_process_that_dies_is_noticed_without_a_caller_and_replaced(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN).wait_ready()
    # It comes back in a moment, unless it is kept from that until it was looked at.
    path = configuration_of(triton)
    whole = path.read_text()
    path.write_text("nothing that Triton can read")

    triton.kill_stubs()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")

    path.write_text(whole)
    worker.wait_ready()
    assert status(worker) == 200
    assert worker.running


def test_a_batch_outlives_its_server_and_nothing_is_lost_or_doubled(place: Place, triton: Triton) -> None:
    rows = np.random.default_rng(5).standard_normal((6000, 64)).astype(np.float32)
    task = BatchTask(input_uri=place.put_array("rows.npy", rows), output_uri=f"pvc://{CLAIM}/out")
    config = told(place, triton, models.slow(), task=task, batch_size=4)
    out = place.claim / "out"
    worker = place.start(config, patches=QUICK_COMMITS)
    until(lambda: committed(out) > 2, "some chunks")

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
    worker = place.start(config, patches={**QUICK_COMMITS, "inference_worker.engines.triton.engine:_TASK_PATIENCE_SECONDS": 0.2})
    until(lambda: committed(out) > 2, "some chunks")

    triton.kill()
    ended = worker.ended()
    assert ended.said.reason == "BackendUnreachable"
    assert ended.code == 1

    triton.restart()
    again = place.run(msgspec.structs.replace(config, attempt=2))
    assert again.said.outcome == "Succeeded"
    assert again.said.progress is not None and again.said.progress.resumed > 0
    assert len(answers_in(out)["y"]) == 4000


def test_the_tasks_of_a_warm_worker_outlive_its_server_and_its_model_process(place: Place, triton: Triton) -> None:
    worker = a_warm_worker(place, model=SLOW, backend="triton", triton=triton.told)
    order = an_order(place, rows=6000, width=256)
    ask(worker, TASKS_PATH, order)
    out = place.claim / "out" / "first"

    def kill_and_restart() -> None:
        triton.kill()
        triton.restart()

    def until_beyond(done: int) -> None:
        until(lambda: committed(out) > done + 2, "some chunks")

    for strike in (triton.kill_stubs, kill_and_restart):
        until_beyond(committed(out))
        strike()
    report = end_of(worker, order).report

    assert report is not None and report.outcome == "Succeeded", worker.log
    assert report.model is not None and report.model.backend == "triton"
    assert len(answers_in(out)["y"]) == 6000
    assert worker.running


def test_a_warm_worker_in_front_of_triton_takes_no_colocated_models(place: Place, triton: Triton) -> None:
    worker = a_warm_worker(place, backend="triton", triton=triton.told)
    colocated = a_colocated_order(place, "other", models.slow(width=16, steps=2))
    ask(worker, TASKS_PATH, colocated)

    report = end_of(worker, colocated).report

    assert report is not None and report.reason is WorkerReason.OUT_OF_MEMORY
    assert "back end triton" in report.message
    assert len(triton.stubs()) == 1


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


def test_a_model_that_triton_refuses_is_told_in_its_own_words(place: Place, triton: Triton) -> None:
    # A size of 0 for good, which ONNX Runtime takes.
    ended = place.run(told(place, triton, models.identity(shape=["N", 0])))

    assert (ended.code, ended.said.reason) == (2, "ModelRefused")
    assert "Triton refuses the model: " in ended.said.message
    assert "dimension" in ended.said.message


def test_a_platform_that_triton_does_not_have_is_told_in_its_own_words(place: Place, triton: Triton) -> None:
    config = told(place, triton, models.matmul())

    assert config.triton is not None
    ended = place.run(msgspec.structs.replace(config, triton=msgspec.structs.replace(config.triton, platform="onnxruntime")))

    assert ended.said.reason == "ModelRefused"
    assert ended.code == 2
    assert "unable to find backend library for backend 'onnxruntime'" in ended.said.message


def test_under_load_the_loss_of_server_or_model_process_costs_nobody_a_wrong_answer(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, models.two_outputs(), batch_size=8), patches=QUICK_DRAIN).wait_ready()
    triton.wait()
    wrong: list[object] = []
    statuses: list[int] = []
    stopping = threading.Event()

    def call(number: int) -> None:
        for turn in itertools.count():
            if stopping.is_set():
                return
            rows = [[float(number), float(turn)]]
            reply = post(worker.port, INFER, infer_json(rows))
            statuses.append(reply.status)
            if reply.status == 200 and [out["data"] for out in reply.json["outputs"]] != [rows[0], [-number, -turn]]:
                wrong.append(reply.json)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: statuses.count(200) > 50, "load")
    triton.kill_stubs()
    until(lambda: 503 in statuses, "a caller who met the loss of the model process")
    worker.wait_ready(seconds=BACK_SECONDS)
    answered = statuses.count(200)
    until(lambda: statuses.count(200) > answered + 50, "load after the model process came back")
    triton.kill()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready without its server")
    triton.restart()
    worker.wait_ready(seconds=BACK_SECONDS)
    answered = statuses.count(200)
    until(lambda: statuses.count(200) > answered + 50, "load after the server came back")
    stopping.set()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert set(statuses) == {200, 503}
    assert callers.metric(worker, "inference_breaker_opened_total") == 0
    assert sum(callers.metric(worker, "inference_requests_total", code=str(code)) for code in (200, 503)) == len(statuses)


@pytest.mark.parametrize("victim", ["model process", "worker"])
def test_a_batch_outlives_what_runs_it_and_nothing_is_lost_or_doubled(place: Place, triton: Triton, victim: str) -> None:
    rows = np.random.default_rng(5).standard_normal((6000, 64)).astype(np.float32)
    task = BatchTask(input_uri=place.put_array("rows.npy", rows), output_uri=f"pvc://{CLAIM}/out")
    data = models.slow()
    config = told(place, triton, data, task=task, batch_size=4)
    out = place.claim / "out"
    worker = place.start(config, patches=QUICK_COMMITS)
    until(lambda: committed(out) > 2, "some chunks")

    if victim == "worker":
        worker.kill()
        worker = place.start(msgspec.structs.replace(config, attempt=2))
    else:
        triton.kill_stubs()

    ended = worker.ended()
    assert ended.said.outcome == "Succeeded", ended.log
    ends = list(spans(out))
    assert (ends[0][0], ends[-1][1]) == (0, len(rows))
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ends))
    truth = onnxruntime.InferenceSession(data).run(None, {"x": rows})[0]
    np.testing.assert_allclose(answers_in(out)["y"], truth, atol=1e-4)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda triton: configuration_of(triton).write_text("max_batch_size: many"), "config.pbtxt"),
        (
            lambda triton: (configuration_of(triton).parent / "1" / "model.onnx").write_bytes(b"not what was verified"),
            "was verified",
        ),
    ],
    ids=["configuration", "model"],
)
def test_a_repository_that_was_damaged_is_told_in_tritons_words(
    place: Place, triton: Triton, damage: Callable[[Triton], object], words: str
) -> None:
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN).wait_ready()
    damage(triton)
    triton.kill()
    triton.restart()

    until(lambda: worker.running and words in str(post(worker.port, INFER, BODY).json), "Triton's own words")

    assert worker.answers("/v2/health/ready") == 503


def test_a_worker_whose_server_stays_away_makes_room_for_another(place: Place, triton: Triton) -> None:
    patches = {**QUICK_DRAIN, "inference_worker.engines.triton.supervisor:_AWAY_SECONDS": 0.1}
    worker = place.start(told(place, triton, models.matmul()), patches=patches).wait_ready()

    triton.kill()
    ended = worker.ended()

    assert (ended.code, ended.said.reason) == (1, "BackendUnreachable")
    assert "stayed away" in ended.said.message


def test_a_configuration_that_triton_cannot_read_is_told_in_its_own_words(
    place: Place, triton: Triton, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton.wait()
    monkeypatch.setattr(repository, "configuration", lambda *_, **__: "max_batch_size: many")

    with pytest.raises(WorkerError) as caught:
        Maker("triton", triton.told).open("matmul")

    assert caught.value.reason is WorkerReason.MODEL_REFUSED
    assert "config.pbtxt" in caught.value.message
    assert list(triton.repository.iterdir()) == []


def test_a_repository_that_is_full_is_told_and_left_as_it_was(triton: Triton, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(WorkerError) as caught:
        Maker("triton", triton.told).open("matmul")

    assert caught.value.reason is WorkerReason.REPOSITORY_UNWRITABLE
    assert "No space left on device" in caught.value.message
    assert list(triton.repository.iterdir()) == []


QUICK_PROBES = {"inference_worker.engines.triton.supervisor:_PROBE_PATIENCE_SECONDS": 0.3}


def leave_a_run_behind(worker: Worker, triton: Triton) -> None:
    """Ask for what takes for ever, and go once it runs."""
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]},
        {"name": "times", "datatype": "INT64", "shape": [], "data": [1 << 40]},
    ]
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, json.dumps({"inputs": inputs}).encode()))
        before = sum(map(cpu_seconds, triton.stubs()))
        until(lambda: sum(map(cpu_seconds, triton.stubs())) > before + 0.2, "a run")


def test_a_run_that_goes_on_without_its_caller_takes_ready_with_it(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, endless()), patches=QUICK_DRAIN | QUICK_PROBES).wait_ready()
    leave_a_run_behind(worker, triton)

    until(lambda: worker.answers("/v2/health/ready") == 503, "not ready")
    assert "timed out" in get(worker.port, "/telemetry").json["problem"]


def test_a_model_that_does_not_load_anew_ends_the_worker_so_that_another_pod_takes_its_place(place: Place, triton: Triton) -> None:
    quick = {
        "inference_worker.engines.triton.supervisor:_AWAY_SECONDS": 0.5,
        "inference_worker.engines.triton.supervisor:_RELOAD_SHARE": 0.0,
    }
    worker = place.start(told(place, triton, models.matmul()), patches=QUICK_DRAIN | quick).wait_ready()
    (code,) = triton.repository.glob("*/1/model.py")
    code.write_text("import time\ntime.sleep(1 << 20)\n")

    triton.kill_stubs()
    ended = worker.ended()

    assert (ended.code, ended.said.reason) == (1, "BackendUnreachable")
    assert "has not loaded the model within 0.5 s" in ended.said.message


def test_a_model_is_loaded_anew_at_once_while_a_run_of_the_old_one_never_ends(place: Place, triton: Triton) -> None:
    worker = place.start(told(place, triton, endless(), model_control="explicit"), patches=QUICK_DRAIN).wait_ready()
    leave_a_run_behind(worker, triton)

    assert post(worker.port, "/v2/repository/models/net/load", b"{}").status == 200

    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]},
        {"name": "times", "datatype": "INT64", "shape": [], "data": [3]},
    ]
    assert post(worker.port, INFER, json.dumps({"inputs": inputs}).encode()).status == 200
    assert worker.answers("/v2/health/ready") == 200


def test_a_run_that_triton_never_answers_ends_when_the_model_comes_back(triton: Triton) -> None:
    triton.wait()
    engine = Maker("triton", triton.told).open("matmul")
    feeds = {"x": np.ones((1, 4), np.float32)}
    before = engine.run(feeds)
    for pid in triton.stubs():
        os.kill(pid, signal.SIGSTOP)

    with ThreadPoolExecutor(1) as threads:
        unanswered = threads.submit(engine.run, feeds)
        until(unanswered.running, "a run under way")
        (folder,) = triton.repository.iterdir()
        wire.post(triton.port, f"/v2/repository/models/{folder.name}/unload", b"")

        with pytest.raises(EngineUnavailableError):
            unanswered.result(timeout=60)
        until(lambda: engine.problem is None, "the model")
        assert {name: found.tolist() for name, found in engine.run(feeds).items()} == {n: f.tolist() for n, f in before.items()}
    engine.close()


def test_a_model_that_is_closed_leaves_neither_process_nor_files(triton: Triton) -> None:
    triton.wait()
    maker = Maker("triton", triton.told)
    for _ in range(3):
        engine = maker.open("matmul")
        assert len(triton.stubs()) == 1
        engine.close()

        until(lambda: not triton.stubs(), "the model's process has ended")
        assert list(triton.repository.iterdir()) == []
