"""Workers that are killed in the middle of a batch: in the end every item is answered, once, and rightly."""

from __future__ import annotations

import random
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnxruntime

from inference_protocol.messages import BatchTask, Rival
from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.harness import CPU, QUICK_COMMITS, Place, a_config, answers_in, committed, spans, until
from tests.process.patched import DIE_BEFORE_SYNC

if TYPE_CHECKING:
    from pathlib import Path

    from inference_protocol.messages import WorkerConfig
    from tests.process.harness import Worker

ITEMS = 4000
WIDTH = 64
TASK = BatchTask(input_uri="pvc://data/in.npy", output_uri="pvc://data/out")
# Hundreds of nodes cost some hundred microseconds on any machine: a run of all items takes a second at least.
SLOW = models.slow(width=WIDTH, steps=300)


def prepare(place: Place, model: bytes = SLOW, **changes: Any) -> tuple[np.ndarray, WorkerConfig]:
    x = np.random.default_rng(11).standard_normal((ITEMS, WIDTH)).astype(np.float32)
    place.put_array("in.npy", x)
    return x, a_config(place.put("m.onnx", model), task=TASK, **{"batch_size": 1, **changes})


def assert_whole(out: Path, x: np.ndarray) -> None:
    """Each item once, in order, and what bare ONNX Runtime gives."""
    ranges = list(spans(out))
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])] and ranges[-1][1] == ITEMS
    truth = onnxruntime.InferenceSession(SLOW, providers=[CPU]).run(None, {"x": x})[0]
    assert np.allclose(answers_in(out)["y"], truth, rtol=1e-3, atol=1e-4)
    assert not list(out.glob(".*.tmp"))


def test_a_batch_that_is_killed_again_and_again_ends_in_the_truth(place: Place) -> None:
    rng = random.Random(1)
    x, config = prepare(place)
    out = place.claim / "out"

    for attempt in range(1, 5):
        worker = place.start(msgspec.structs.replace(config, attempt=attempt), patches=QUICK_COMMITS)
        enough = committed(out) + rng.randint(0, 3)
        until(partial(beyond, worker, out, enough), "a commit")
        worker.kill()
        assert not (out / "manifest.json").exists()
    ended = place.run(msgspec.structs.replace(config, attempt=5, batch_size=100), patches=QUICK_COMMITS)

    assert (ended.code, ended.said.outcome) == (0, "Succeeded")
    assert ended.said.progress is not None and ended.said.progress.resumed > 0
    assert ended.said.progress.completed == ITEMS and len(list(spans(out))) >= 5
    assert_whole(out, x)


def beyond(worker: Worker, out: Path, count: int) -> bool:
    """Whether more than so many chunks are committed, or the worker is over."""
    return not worker.running or committed(out) > count


# 40 batches of 100 items, committed by eights: five parts, each with a sync of its file and one of its line.
COMMIT_BYTES = {
    "inference_worker.batch.task:_COMMIT_BYTES": 8 * 100 * WIDTH * 4,
    "inference_worker.batch.pipeline:_SEGMENT_BATCHES": 1,
}


def test_a_batch_that_dies_at_each_step_of_a_commit_ends_in_the_truth(place: Place) -> None:
    x, config = prepare(place, batch_size=100)
    out = place.claim / "out"
    deaths = [
        (1, 0),  # at the claim
        (3, 0),  # with a chunk's file that is not renamed
        (4, 0),  # with the file renamed, and its folder not on the disk
        (5, 1),  # with its line written
        (7, 2),  # one chunk later, in the next one's file
        (3, 2),  # with the lines that were taken over
        (12, 5),  # with the last line written
        (4, 5),  # in the summary
    ]
    for attempt, (sync, expected) in enumerate(deaths, start=1):
        worker = place.start(msgspec.structs.replace(config, attempt=attempt), patches={**COMMIT_BYTES, DIE_BEFORE_SYNC: sync})
        assert worker.ended().code == -signal.SIGKILL
        assert committed(out) == expected
        assert not (out / "manifest.json").exists()

    ended = place.run(msgspec.structs.replace(config, attempt=9), patches=COMMIT_BYTES)

    assert ended.said.progress is not None and (ended.said.progress.resumed, ended.said.outcome) == (ITEMS, "Succeeded")
    assert_whole(out, x)


def test_a_batch_that_is_told_to_stop_goes_on_in_the_next_attempt(place: Place) -> None:
    x, config = prepare(place)
    out = place.claim / "out"
    worker = place.start(config, patches=QUICK_COMMITS)
    until(lambda: not worker.running or committed(out) >= 2, "two commits")

    ended = worker.stop().ended()

    assert (ended.code, ended.said.outcome, ended.said.reason) == (0, "Drained", None)
    assert ended.said.progress is not None and 0 < ended.said.progress.completed < ITEMS
    assert not (out / "manifest.json").exists()
    again = place.run(msgspec.structs.replace(config, attempt=2, batch_size=100))
    assert again.said.progress is not None and again.said.progress.resumed == ended.said.progress.completed
    assert again.said.outcome == "Succeeded"
    assert_whole(out, x)


def test_a_worker_that_hung_while_another_took_over_stops_at_its_next_commit(place: Place) -> None:
    x, config = prepare(place)
    out = place.claim / "out"
    first = place.start(config, patches=QUICK_COMMITS)
    until(lambda: not first.running or committed(out) >= 1, "a commit")
    first.process.send_signal(signal.SIGSTOP)

    assert place.run(msgspec.structs.replace(config, attempt=2, batch_size=100)).said.outcome == "Succeeded"
    first.process.send_signal(signal.SIGCONT)
    ended = first.ended()

    assert (ended.code, ended.said.reason) == (1, WorkerReason.OUTPUT_CLAIMED) and "attempt 2" in ended.said.message
    assert_whole(out, x)


def test_attempts_that_were_replaced_and_other_jobs_write_nothing(place: Place) -> None:
    x, config = prepare(place, batch_size=100)
    assert place.run(msgspec.structs.replace(config, attempt=2)).code == 0

    late = place.start(config)
    other = place.start(msgspec.structs.replace(config, attempt=3, job="other", uid="uid-2"))
    assert late.ended().said.rival == Rival(config.uid, config.created)

    for ended, code, reason, word in (
        (late.ended(), 1, WorkerReason.OUTPUT_CLAIMED, "attempt 2"),
        (other.ended(), 2, WorkerReason.OUTPUT_CONFLICT, "team/job"),
    ):
        assert (ended.code, ended.said.reason) == (code, reason) and word in ended.said.message
    assert_whole(place.claim / "out", x)


def test_a_job_that_is_created_again_deletes_no_finished_answers(place: Place) -> None:
    x, config = prepare(place, batch_size=100, created="2026-04-02T12:00:00Z")
    out = place.claim / "out"
    assert place.run(config).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = msgspec.structs.replace(config, uid="uid-2", created="2026-04-02T13:00:00Z")

    same = place.run(again)
    place.put_array("in.npy", x + 1)
    other = place.run(msgspec.structs.replace(again, uid="uid-3"))

    assert same.said.outcome == "Succeeded" and same.said.progress is not None and same.said.progress.resumed == ITEMS
    assert (other.code, other.said.reason) == (2, WorkerReason.OUTPUT_CONFLICT) and "finished answers" in other.said.message
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert_whole(out, x)


def test_an_input_that_is_rewritten_between_attempts_is_not_mixed_with_the_old_one(place: Place) -> None:
    x, config = prepare(place)
    out = place.claim / "out"
    worker = place.start(config, patches=QUICK_COMMITS)
    until(lambda: not worker.running or committed(out) >= 1, "a commit")
    worker.kill()
    before = {path.name: path.read_bytes() for path in out.glob("chunk-*")}
    place.put_array("in.npy", x + 1)

    refused = place.run(msgspec.structs.replace(config, attempt=2, batch_size=100))

    assert (refused.code, refused.said.reason) == (2, WorkerReason.INPUT_CHANGED)
    assert {path.name: path.read_bytes() for path in out.glob("chunk-*")} == before
    place.put_array("in.npy", x)
    assert place.run(msgspec.structs.replace(config, attempt=3, batch_size=100)).said.outcome == "Succeeded"
    assert_whole(out, x)
