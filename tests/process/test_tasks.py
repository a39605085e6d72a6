"""A warm worker is handed tasks while it runs: one after the other, by whoever has its token, and each is told how it ended."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from inference_protocol.messages import (
    TASK_STOP_PATH,
    TASK_WAIT_PATH,
    TASKS_PATH,
    TELEMETRY_PATH,
    BatchTask,
    TaskOrder,
    TaskQuery,
    TaskState,
    Telemetry,
    encode,
)
from inference_protocol.reasons import WorkerReason
from inference_worker.cpu import usable_memory_bytes
from tests.process import models
from tests.process.callers import INFER
from tests.process.harness import (
    CLAIM,
    ON_DEVICE,
    ON_TRITON,
    QUICK_COMMITS,
    QUICK_DRAIN,
    Worker,
    a_config,
    answers_in,
    committed,
    until,
)
from tests.process.wire import Reply, Wire, get, post, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.harness import Place

TOKEN = "of this worker"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
MODEL = models.slow(width=16, steps=1)
SLOW = models.slow(width=256, steps=250)


def a_warm_worker(place: Place, *, model: bytes = MODEL, **changes: Any) -> Worker:
    config = a_config(place.put("m.onnx", model), batch_size=16, task_token_digest=DIGEST, **changes)
    return place.start(config, patches=QUICK_DRAIN | QUICK_COMMITS).wait_ready()


def an_order(place: Place, name: str = "first", *, rows: int = 40, width: int = 16, **changes: Any) -> TaskOrder:
    given = place.put_array(f"{name}.npy", np.full((rows, width), 0.5, np.float32))
    order = TaskOrder(
        namespace="team",
        job=name,
        uid=f"uid-of-{name}",
        attempt=1,
        revision="r",
        created="2026-04-02T12:00:00Z",
        model=a_config(f"pvc://{CLAIM}/m.onnx").model,
        batch_size=8,
        task=BatchTask(input_uri=given, output_uri=f"pvc://{CLAIM}/out/{name}"),
    )
    return msgspec.structs.replace(order, **changes)


def ask(worker: Worker, path: str, body: object, *, token: str | None = TOKEN) -> Reply:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return post(worker.port, path, msgspec.json.encode(body) if not isinstance(body, bytes) else body, headers)


def state(reply: Reply) -> TaskState:
    assert reply.status == 200, reply.body
    return msgspec.json.decode(reply.body, type=TaskState)


def end_of(worker: Worker, order: TaskOrder) -> TaskState:
    return state(ask(worker, TASK_WAIT_PATH, TaskQuery(uid=order.uid, attempt=order.attempt, seconds=60)))


def telemetry(worker: Worker) -> Telemetry:
    return msgspec.json.decode(get(worker.port, TELEMETRY_PATH).body, type=Telemetry)


def received(worker: Worker) -> int:
    """Requests that are answered, run or wait."""
    told = telemetry(worker)
    return told.requests_total + told.in_flight + told.queued


def test_tasks_are_run_one_after_the_other_and_their_answers_committed(place: Place) -> None:
    worker = a_warm_worker(place)
    orders = [an_order(place, f"job-{i}", rows=10 + i) for i in range(5)]
    for order in orders:
        assert state(ask(worker, TASKS_PATH, order)).revision == "r"

    for order in orders:
        ended = end_of(worker, order)
        assert ended.state == "Ended" and ended.report is not None and ended.report.outcome == "Succeeded"
        (answers,) = answers_in(place.claim / "out" / order.job).values()
        assert len(answers) == ended.report.progress.total if ended.report.progress else 0


def test_a_task_tells_how_long_it_ran_without_its_wait(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    begun = time.monotonic()
    orders = [an_order(place, "long", rows=4000, width=256), an_order(place, "short", width=256)]
    for order in orders:
        assert state(ask(worker, TASKS_PATH, order)).ran_seconds is None

    ends = [end_of(worker, order) for order in orders]
    long, short = (end.ran_seconds for end in ends)

    # The short one was ordered at once and waited for all of the long one: together they come to no more than the time that went by.
    assert long and short and short < long
    assert long + short <= time.monotonic() - begun
    # Asked again, it ended longer ago and has run no longer.
    again = end_of(worker, orders[0])
    assert again.ran_seconds == long and (again.ended_seconds or 0) > (ends[0].ended_seconds or 0)


def test_ordering_twice_is_ordering_once(place: Place) -> None:
    worker = a_warm_worker(place)
    order = an_order(place)
    ask(worker, TASKS_PATH, order)
    end_of(worker, order)

    again = state(ask(worker, TASKS_PATH, order))

    assert again.state == "Ended" and again.report is not None and again.report.outcome == "Succeeded"
    assert committed(place.claim / "out" / "first") == 1


def test_answers_without_an_output_come_back_in_the_report(place: Place) -> None:
    worker = a_warm_worker(place, model=models.identity())
    order = an_order(place, task=BatchTask(input_data='{"x": [1.0, 2.0]}\n{"x": [3.0, 4.0]}'))
    ask(worker, TASKS_PATH, order)

    report = end_of(worker, order).report

    assert report is not None and report.output is not None
    assert [json.loads(line) for line in report.output.splitlines()] == [{"y": [1.0, 2.0]}, {"y": [3.0, 4.0]}]


@pytest.mark.parametrize("path", [TASKS_PATH, TASK_WAIT_PATH, TASK_STOP_PATH])
@pytest.mark.parametrize("token", [None, "", "guessed", DIGEST])
def test_without_the_token_nothing_is_taken(shared_place: Place, path: str, token: str | None) -> None:
    worker = next((w for w in shared_place.workers if w.running), None) or a_warm_worker(shared_place)

    assert ask(worker, path, an_order(shared_place), token=token).status == 401
    assert telemetry(worker).tasks == ()


def test_a_worker_of_one_job_takes_no_tasks(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", MODEL)), patches=QUICK_DRAIN).wait_ready()

    assert ask(worker, TASKS_PATH, an_order(place)).status == 404


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"uid": 1}', b'{"uid": "u", "attempt": 1, "seconds": 1e9}', b"x" * 300_000], ids=str
)
def test_what_is_no_order_is_refused_and_harms_nobody(shared_place: Place, body: bytes) -> None:
    worker = next((w for w in shared_place.workers if w.running), None) or a_warm_worker(shared_place)

    assert ask(worker, TASKS_PATH, body).status in (400, 413)
    assert worker.answers("/v2/health/ready") == 200


@pytest.mark.parametrize("path", [TASK_WAIT_PATH, TASK_STOP_PATH])
def test_a_task_that_was_never_ordered_is_not_known(shared_place: Place, path: str) -> None:
    worker = next((w for w in shared_place.workers if w.running), None) or a_warm_worker(shared_place)

    assert ask(worker, path, TaskQuery(uid="nobody", attempt=1)).status == 404


def spoilt(place: Place, order: TaskOrder) -> TaskOrder:
    (place.claim / "first.npy").write_bytes(b"no array")
    return order


def of_another_model(place: Place, order: TaskOrder) -> TaskOrder:
    return msgspec.structs.replace(order, model=msgspec.structs.replace(order.model, uri=f"pvc://{CLAIM}/other.onnx"))


@pytest.mark.parametrize(
    ("change", "reason"), [(spoilt, WorkerReason.INPUT_INVALID), (of_another_model, WorkerReason.OUT_OF_MEMORY)]
)
def test_a_bad_task_fails_alone(place: Place, change: Callable[[Place, TaskOrder], TaskOrder], reason: WorkerReason) -> None:
    worker = a_warm_worker(place)
    bad, good = change(place, an_order(place)), an_order(place, "good")
    ask(worker, TASKS_PATH, bad)
    ask(worker, TASKS_PATH, good)

    failed, fine = end_of(worker, bad).report, end_of(worker, good).report

    assert failed is not None and (failed.outcome, failed.reason) == ("Failed", reason)
    assert fine is not None and fine.outcome == "Succeeded"


def test_a_stopped_task_commits_what_it_has_and_the_next_attempt_goes_on_there(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    order = an_order(place, rows=4000, width=256)
    ask(worker, TASKS_PATH, order)
    until(lambda: committed(place.claim / "out" / "first") > 1, "some chunks")
    told = state(ask(worker, TASK_STOP_PATH, TaskQuery(uid=order.uid, attempt=1)))
    ended = end_of(worker, order)
    stopped = ended.report

    assert (told.stopping, ended.stopping) == (True, False)
    assert stopped is not None and stopped.outcome == "Drained" and stopped.progress is not None
    assert 0 < stopped.progress.completed < 4000
    again = msgspec.structs.replace(order, attempt=2)
    ask(worker, TASKS_PATH, again)
    until(lambda: bool((tasks := telemetry(worker).tasks) and tasks[0].progress), "the next attempt's progress")
    (task,) = telemetry(worker).tasks
    assert task.progress is not None and task.progress.resumed == stopped.progress.completed


def test_a_task_that_waits_can_be_stopped_too(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    first, second = an_order(place, rows=4000, width=256), an_order(place, "second", width=256)
    ask(worker, TASKS_PATH, first)
    ask(worker, TASKS_PATH, second)

    stopped = state(ask(worker, TASK_STOP_PATH, TaskQuery(uid=second.uid, attempt=1)))

    assert stopped.report is not None and stopped.report.outcome == "Drained"
    assert stopped.ran_seconds == 0
    assert [task.uid for task in telemetry(worker).tasks] == [first.uid]


def test_a_worker_that_is_told_to_stop_commits_and_tells_whoever_waits(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    order, waiting = an_order(place, rows=4000, width=256), an_order(place, "second", width=256)
    ask(worker, TASKS_PATH, order)
    ask(worker, TASKS_PATH, waiting)
    until(lambda: committed(place.claim / "out" / "first") > 1, "some chunks")
    heard: dict[str, TaskState] = {}
    listeners = [threading.Thread(target=lambda o=o: heard.update({o.job: end_of(worker, o)})) for o in (order, waiting)]
    for listener in listeners:
        listener.start()

    ended = worker.stop().ended()
    for listener in listeners:
        listener.join()

    assert ended.code == 0 and ended.said.outcome == "Drained"
    assert all(told.report is not None and told.report.outcome == "Drained" for told in heard.values())
    assert heard["first"].report is not None and heard["first"].report.progress is not None
    assert heard["first"].report.progress.completed > 0


def test_a_serving_worker_with_a_task_answers_all_its_callers_before_it_ends(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW, latency_target_seconds=30.0)
    order = an_order(place, rows=8000, width=256)
    ask(worker, TASKS_PATH, order)
    until(lambda: committed(place.claim / "out" / "first") > 1, "some chunks")
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [16, 256], "data": [0.5] * 16 * 256}]}).encode()
    wires = [Wire(worker.port) for _ in range(8)]
    for wire in wires:
        wire.send(request("POST", INFER, body) * 20)
    until(lambda: received(worker) >= len(wires), "all of them to be in")

    worker.stop()

    assert [wire.read().status for wire in wires for _ in range(20)] == [200] * 20 * len(wires)
    ended = worker.ended()
    assert (ended.code, ended.said.outcome) == (0, "Drained")
    # The task was cut short, and had what it had committed.
    assert committed(place.claim / "out" / "first") > 1 and not (place.claim / "out" / "first" / "manifest.json").exists()


def test_a_task_tells_what_it_has_had_of_the_device_and_the_service_counts_none_of_it(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    order = an_order(place, rows=400, width=256)
    ask(worker, TASKS_PATH, order)

    ended, told = end_of(worker, order), telemetry(worker)

    assert ended.runs == 400 / 8 and 0 < ended.computed_seconds <= (ended.ran_seconds or 0)
    # What the HPA is scaled by: a background run must not look like load.
    assert (told.busy_seconds, told.requests_total, told.sketch) == (0.0, 0, {})


def test_an_idle_worker_says_for_how_long(place: Place) -> None:
    worker = a_warm_worker(place)
    until(lambda: (telemetry(worker).idle_seconds or 0) > 0.2, "idle time")
    order = an_order(place)
    ask(worker, TASKS_PATH, order)
    end_of(worker, order)

    idle = telemetry(worker).idle_seconds

    assert idle is not None


def test_a_full_queue_is_told_and_nothing_of_it_is_lost(place: Place) -> None:
    worker = a_warm_worker(place, model=SLOW)
    replies = [ask(worker, TASKS_PATH, an_order(place, f"j{i}", rows=64, width=256)) for i in range(70)]

    refused = [reply for reply in replies if reply.status != 200]
    assert refused and all(reply.status == 503 and reply.headers["retry-after"] for reply in refused)
    assert len(telemetry(worker).tasks) + sum(r.status != 200 for r in replies) <= 70


def test_orders_survive_the_round_trip_of_their_encoding(place: Place) -> None:
    order = an_order(place)

    assert msgspec.json.decode(encode(order), type=TaskOrder) == order


# Co-located models: tasks on other models.

COLOCATION = pytest.mark.skipif(ON_TRITON, reason="workers in front of Triton take no co-located models, see the test of that")


def a_colocated_order(
    place: Place, name: str, model: bytes, *, megabytes: int = 100, device_megabytes: int = 100, batch_size: int = 8
) -> TaskOrder:
    """An order on a model of its own, whose file has the name of the job."""
    uri = place.put(f"{name}.onnx", model)
    digest = "sha256:" + hashlib.sha256(model).hexdigest()
    source = msgspec.structs.replace(a_config(uri).model, name=name, digest=digest)
    device = {"device_bytes": device_megabytes << 20} if ON_DEVICE else {}
    return an_order(place, name, rows=10, model=source, memory_bytes=megabytes << 20, batch_size=batch_size, **device)


@COLOCATION
def test_another_model_is_loaded_once_and_its_tasks_are_done_by_it(place: Place) -> None:
    worker = a_warm_worker(place)
    order = a_colocated_order(place, "other", models.slow(width=16, steps=2))
    again = msgspec.structs.replace(
        order, uid="again", task=msgspec.structs.replace(order.task, output_uri=f"pvc://{CLAIM}/out/again")
    )

    for each in (order, again):
        ask(worker, TASKS_PATH, each)
    first, second = end_of(worker, order).report, end_of(worker, again).report

    assert first is not None and second is not None
    assert (first.outcome, second.outcome) == ("Succeeded", "Succeeded")
    assert first.model is not None and second.model is not None
    assert first.model.digest == second.model.digest == order.model.digest
    # Measured by one load, whose cost the second did not pay again.
    assert first.model.load_seconds == second.model.load_seconds
    assert first.model.memory_bytes == order.memory_bytes
    assert telemetry(worker).colocated == (order.model.digest,)
    assert telemetry(worker).model != first.model


@COLOCATION
def test_where_memory_is_short_the_longest_unused_colocated_model_goes(place: Place) -> None:
    room = usable_memory_bytes()
    worker = a_warm_worker(place)
    own = telemetry(worker).model
    assert own is not None
    half = (room - own.memory_bytes) // 2 >> 20
    orders = [a_colocated_order(place, f"other-{i}", models.slow(width=16, steps=2 + i), megabytes=half) for i in range(3)]
    for order in orders:
        ask(worker, TASKS_PATH, order)
        ended = end_of(worker, order).report
        assert ended is not None and ended.outcome == "Succeeded"

    assert set(telemetry(worker).colocated) == {order.model.digest for order in orders[1:]}


@COLOCATION
@pytest.mark.skipif(not ON_DEVICE, reason="WORKER_TEST_PROVIDER names the provider of a device that is here")
def test_where_the_devices_memory_is_short_the_longest_unused_colocated_model_goes(place: Place) -> None:
    worker = a_warm_worker(place)
    own = telemetry(worker).model
    assert own is not None and own.device_bytes and own.device_free_bytes > own.device_bytes
    half = own.device_free_bytes // 2 >> 20
    orders = [a_colocated_order(place, f"other-{i}", models.slow(width=16, steps=2 + i), device_megabytes=half) for i in range(3)]
    for order in orders:
        ask(worker, TASKS_PATH, order)
        ended = end_of(worker, order).report
        assert ended is not None and ended.outcome == "Succeeded" and ended.model is not None
        assert (ended.model.device_bytes, ended.model.device_free_bytes) == (order.device_bytes, 0)

    assert set(telemetry(worker).colocated) == {order.model.digest for order in orders[1:]}


def test_a_worker_on_cpus_tells_of_no_device(shared_place: Place) -> None:
    if ON_DEVICE:
        pytest.skip("this one has a device")
    facts = telemetry(a_warm_worker(shared_place)).model

    assert facts is not None and (facts.device_bytes, facts.device_free_bytes) == (0, 0)


@COLOCATION
def test_a_colocated_model_that_can_not_fit_is_refused_and_harms_nobody(place: Place) -> None:
    worker = a_warm_worker(place)
    small = a_colocated_order(place, "small", models.slow(width=16, steps=2))
    large = a_colocated_order(place, "large", models.slow(width=16, steps=3), megabytes=usable_memory_bytes() >> 20)
    for order in (small, large):
        ask(worker, TASKS_PATH, order)
        end_of(worker, order)

    refused = end_of(worker, large).report

    assert refused is not None and refused.reason is WorkerReason.OUT_OF_MEMORY and "beside its own model" in refused.message
    assert telemetry(worker).colocated == (small.model.digest,)


@COLOCATION
def test_a_colocated_model_with_a_larger_batch_is_loaded_anew(place: Place) -> None:
    worker = a_warm_worker(place)
    small = a_colocated_order(place, "other", models.slow(width=16, steps=2), batch_size=2)
    large = msgspec.structs.replace(small, attempt=2, batch_size=8)
    for order in (small, large):
        ask(worker, TASKS_PATH, order)
        ended = end_of(worker, order).report
        assert ended is not None and ended.model is not None and ended.model.batch_size == order.batch_size

    assert telemetry(worker).colocated == (small.model.digest,)


@COLOCATION
def test_a_corrupt_colocated_model_fails_alone(place: Place) -> None:
    worker = a_warm_worker(place)
    bad, good = a_colocated_order(place, "bad", b"no model"), an_order(place, "good")
    ask(worker, TASKS_PATH, bad)
    ask(worker, TASKS_PATH, good)

    failed, fine = end_of(worker, bad).report, end_of(worker, good).report

    assert failed is not None and (failed.outcome, failed.reason) == ("Failed", WorkerReason.MODEL_CORRUPT)
    assert fine is not None and fine.outcome == "Succeeded"
    assert telemetry(worker).colocated == ()


def test_an_operator_that_was_paused_and_succeeded_orders_and_stops_nothing(place: Place) -> None:
    """Two operators: the second leads, and the first wakes up with the decisions of before."""
    worker = a_warm_worker(place)
    first, second = (1_700_000_000, 1), (1_700_000_000, 2)
    done = an_order(place, "first", epoch=second)
    assert ask(worker, TASKS_PATH, done).status == 200
    late = an_order(place, "late", epoch=first)

    assert ask(worker, TASKS_PATH, late).status == 409
    assert ask(worker, TASK_STOP_PATH, TaskQuery(uid=done.uid, attempt=1, epoch=first)).status == 409

    # Whoever has no epoch is an operator from before there were any.
    for taken in (msgspec.structs.replace(late, epoch=None), an_order(place, "third", epoch=(1_700_000_001, 0))):
        assert ask(worker, TASKS_PATH, taken).status == 200
    ended = end_of(worker, done)
    assert ended.report is not None and ended.report.outcome == "Succeeded"
