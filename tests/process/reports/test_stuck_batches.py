"""A batch whose model never returns is given up with a reason, in a worker of its own and in a warm one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from inference_protocol.messages import TASK_WAIT_PATH, TASKS_PATH, BatchTask, TaskQuery
from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.harness import QUICK_COMMITS, QUICK_DRAIN, a_config, until
from tests.process.test_tasks import DIGEST, an_order, ask, end_of, state, telemetry

if TYPE_CHECKING:
    from tests.process.harness import Place

QUICK: dict[str, Any] = {
    "inference_worker.batching.in_flight:STUCK_SECONDS": 1.0,
    "inference_worker.batching.in_flight:FIRST_SECONDS": 1.0,
    "inference_worker.batch.running:LOOK_SECONDS": 0.1,
    # What is answered before is committed, item by item.
    "inference_worker.batch.pipeline:_SEGMENT_BATCHES": 1,
    "inference_worker.batch.task:_COMMIT_BYTES": 1,
    **QUICK_COMMITS,
    **QUICK_DRAIN,
}
BAD = 32


def endless(place: Place, name: str) -> None:
    x = np.zeros((80, 2), np.float32)
    x[BAD] = 1000.0
    place.put_array(name, x)


def test_a_batch_whose_model_never_returns_ends_with_a_reason_and_goes_on_from_its_last_commit(place: Place) -> None:
    endless(place, "in.npy")
    task = BatchTask(input_uri="pvc://data/in.npy", output_uri="pvc://data/out")
    config = a_config(place.put("m.onnx", models.endless()), task=task)

    for attempt, resumed in ((1, 0), (2, BAD)):
        ended = place.run(msgspec.structs.replace(config, attempt=attempt), patches=QUICK)
        assert (ended.code, ended.said.outcome, ended.said.reason) == (1, "Failed", WorkerReason.MODEL_HUNG)
        assert "a run of 1 rows has not ended for" in ended.said.message
        assert ended.said.progress is not None
        assert (ended.said.progress.resumed, ended.said.progress.completed) == (resumed, BAD)


def test_a_warm_worker_whose_task_hangs_says_so_and_takes_no_other(place: Place) -> None:
    config = a_config(place.put("m.onnx", models.endless()), batch_size=8, task_token_digest=DIGEST)
    worker = place.start(config, patches=QUICK).wait_ready()
    hanging, waiting = an_order(place, "hanging", width=2), an_order(place, "waiting", width=2)
    endless(place, "hanging.npy")
    for order in (hanging, waiting):
        ask(worker, TASKS_PATH, order)

    report = end_of(worker, hanging).report
    assert report is not None and (report.outcome, report.reason) == ("Failed", WorkerReason.MODEL_HUNG)
    assert worker.answers("/v2/health/live") == 503 and worker.answers("/v2/health/ready") == 503
    assert not telemetry(worker).ready
    assert state(ask(worker, TASK_WAIT_PATH, TaskQuery(uid=waiting.uid, attempt=1, seconds=0))).state == "Queued"

    # Nothing of what hangs keeps it from its end.
    until(lambda: not worker.stop().running, "its end")
    assert (worker.ended().code, worker.ended().said.outcome) == (0, "Drained")
