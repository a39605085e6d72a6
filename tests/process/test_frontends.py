"""A worker whose callers are held by frontends: what they hear is what the worker says, also when a frontend dies."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from tests.process import models
from tests.process.callers import answer, stub, tensor_request
from tests.process.harness import QUICK_DRAIN, Worker, a_config, until
from tests.process.wire import Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from tests.process.harness import Place

INFER = "/v2/models/net/infer"
FRONTENDS = {FRONTENDS_VARIABLE: "2"}
# A frontend that a test stops is not taken for a silent one.
PATIENT = {"inference_worker.frontends.supervisor:_SILENT_SECONDS": 600.0}
WIDTH = 16384
# One row is 64 KiB: it goes by the arena.
WIDE = models.identity(shape=["N", WIDTH])
ROWS = np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH)


def frontends(worker: Worker) -> list[int]:
    """The processes, by what the kernel says."""
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"frontends" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def inode(caller: Wire) -> str:
    """The socket at the other end of a caller's (proc_net_tcp); by both ports, as one alone may be that of older connections."""
    wanted = caller.socket.getpeername()[1], caller.socket.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if tuple(int(address.rpartition(":")[2], 16) for address in fields[1:3]) == wanted:
            return fields[9]
    return "none"


def holds(pid: int, caller: Wire) -> bool:
    wanted = f"socket:[{inode(caller)}]"
    with contextlib.suppress(FileNotFoundError):
        return any(str(file.readlink()) == wanted for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


def gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("wide.onnx", WIDE)), variables=FRONTENDS).wait_ready()


def binary(rows: np.ndarray) -> tuple[bytes, dict[str, str]]:
    entry = f'{{"name":"x","datatype":"FP32","shape":[{len(rows)},{WIDTH}],"parameters":{{"binary_data_size":{rows.nbytes}}}}}'
    head = f'{{"inputs":[{entry}],"parameters":{{"binary_data_output":true}}}}'.encode()
    return head + rows.tobytes(), {"Inference-Header-Content-Length": str(len(head))}


def test_tensors_that_lie_in_shared_memory_are_answered_as_they_were_sent(worker: Worker) -> None:
    with Wire(worker.port) as wire, stub(worker) as grpc:
        for number in range(40):
            rows = ROWS + number
            reply = wire.post(INFER, *binary(rows))
            size = int(reply.headers["inference-header-content-length"])
            assert reply.status == 200 and reply.body[size:] == rows.tobytes()
            assert np.array_equal(answer(grpc.ModelInfer(tensor_request(rows))), rows)


def test_requests_in_one_packet_are_answered_in_their_order(worker: Worker) -> None:
    """Small ones go by the socket, large ones by the arena; refusals are among them."""
    asked = [request("GET", "/v2/health/ready"), request("POST", INFER, *binary(ROWS)), request("GET", "/nowhere")] * 5
    with Wire(worker.port) as wire:
        wire.send(b"".join(asked))
        statuses = [wire.read().status for _ in asked]

    assert statuses == [200, 200, 404] * 5


def test_callers_are_shared_evenly(worker: Worker) -> None:
    """Sixteen callers over gRPC may stay for days: all of them at one frontend would leave the others without work."""
    callers = [Wire(worker.port) for _ in range(8)] + [Wire(worker.grpc_port) for _ in range(8)]

    def shares() -> list[int]:
        return [sum(holds(pid, caller) for caller in callers) for pid in frontends(worker)]

    try:
        until(lambda: sum(shares()) == len(callers), "all callers at frontends")
        # One that has left is counted for a second.
        assert min(shares()) >= 6
    finally:
        for caller in callers:
            caller.__exit__(None, None, None)


def test_a_frontend_that_dies_takes_its_own_callers_and_no_others(worker: Worker) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(worker.port)) for _ in range(8)]
        assert {wire.get("/v2/health/ready").status for wire in wires} == {200}
        victim = frontends(worker)[0]
        taken = [holds(victim, wire) for wire in wires]
        os.kill(victim, signal.SIGKILL)
        until(lambda: gone(victim), "the end of the frontend")
        assert [ended(wire) for wire in wires] == taken and len(set(taken)) == 2
        assert wires[taken.index(False)].post(INFER, *binary(ROWS)).status == 200
    assert post(worker.port, INFER, *binary(ROWS)).status == 200
    until(lambda: len(frontends(worker)) == 2, "another frontend")


def answers(worker: Worker) -> bool:
    with contextlib.suppress(OSError), Wire(worker.port) as wire:
        return not ended(wire)
    return False


def ended(wire: Wire) -> bool:
    try:
        return wire.get("/v2/health/ready").status != 200
    except (OSError, ConnectionError, ValueError, IndexError):
        return True


def test_a_frontend_that_falls_silent_is_replaced(place: Place) -> None:
    patches = {"inference_worker.frontends.supervisor:_SILENT_SECONDS": 1.5}
    worker = place.start(a_config(place.put("wide.onnx", WIDE)), variables=FRONTENDS, patches=patches).wait_ready()
    stopped = children(worker)[0]
    os.kill(stopped, signal.SIGSTOP)

    until(lambda: gone(stopped), "the end of the silent one")
    # On a busy machine the other one may fall silent for so long, too, and take its callers along.
    until(lambda: len(children(worker)) == 2 and all(answers(worker) for _ in range(4)), "another frontend")


def children(worker: Worker) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()]


def busy(worker: Worker) -> int:
    """Requests that run or wait, by the worker's own word."""
    told = get(worker.port, "/telemetry").json
    return int(told.get("inFlight", 0)) + int(told.get("queued", 0))


def test_whoever_is_asking_when_the_worker_is_told_to_stop_has_an_answer(place: Place) -> None:
    width = 256
    config = a_config(place.put("slow.onnx", models.slow(width=width, steps=6000)), batch_size=1)
    worker = place.start(config, variables=FRONTENDS, patches=QUICK_DRAIN).wait_ready()
    held = children(worker)
    asked = [Wire(worker.port).send(request("POST", INFER, infer_json([[0.5] * width]))) for _ in range(6)]
    until(lambda: busy(worker) == 6, "requests at the model")
    worker.process.terminate()

    assert [wire.read().status for wire in asked] == [200] * 6
    assert worker.ended().said.outcome == "Drained"
    until(lambda: all(map(gone, held)), "the end of the frontends")


def test_frontends_end_with_a_worker_that_is_killed(place: Place) -> None:
    """Whoever is connected to them would wait for ever otherwise."""
    worker = place.start(a_config(place.put("wide.onnx", WIDE)), variables=FRONTENDS).wait_ready()
    held = frontends(worker)
    assert len(held) == 2
    worker.process.kill()

    until(lambda: all(map(gone, held)), "the end of the frontends")


def test_callers_of_a_frontend_that_is_behind_go_to_one_that_is_not(place: Place) -> None:
    """It has room for some hundred that it hasn't taken yet, and the fewest, so that all later ones were meant for it."""
    worker = place.start(a_config(place.put("wide.onnx", WIDE)), variables=FRONTENDS, patches=PATIENT).wait_ready()
    stopped = children(worker)[0]
    os.kill(stopped, signal.SIGSTOP)
    callers = [Wire(worker.port) for _ in range(900)]
    until(lambda: sum(holds_of(pid) for pid in children(worker) if pid != stopped) > 500, "those who found no room there")
    os.kill(stopped, signal.SIGCONT)

    assert {caller.get("/v2/health/ready").status for caller in callers} == {200}
    for caller in callers:
        caller.__exit__(None, None, None)


def test_callers_wait_while_no_frontend_has_room(place: Place) -> None:
    worker = place.start(a_config(place.put("wide.onnx", WIDE)), variables=FRONTENDS, patches=PATIENT).wait_ready()
    stopped = children(worker)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    callers = [Wire(worker.port) for _ in range(900)]
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)

    assert {caller.get("/v2/health/ready").status for caller in callers} == {200}
    for caller in callers:
        caller.__exit__(None, None, None)


def holds_of(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_connections_that_a_frontend_has_no_descriptor_for_do_not_hold_the_end(place: Place) -> None:
    """They were counted as on their way for good, so that the worker waited for them until its time was up."""
    config = a_config(place.put("wide.onnx", WIDE), drain_seconds=600.0)
    worker = place.start(config, variables=FRONTENDS, patches=QUICK_DRAIN).wait_ready()
    for pid in children(worker):
        most = holds_of(pid) + 4
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    callers = [Wire(worker.port) for _ in range(40)]
    until(lambda: sum(map(ended, callers)) >= 20, "those for whom there is none")
    for caller in callers:
        caller.__exit__(None, None, None)
    worker.process.terminate()

    assert worker.ended().said.outcome == "Drained"
