"""Which models a warm worker drops for another: those used longest ago, and only as many as it must; and whom it can't take at all."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.messages import BatchTask, ModelSource, TaskOrder
from inference_protocol.reasons import WorkerReason
from inference_worker.colocated import ColocatedModels, FreeMemory, to_drop
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.builds(FreeMemory, st.integers(1, 100), st.integers(0, 100)))
NEEDED = st.builds(FreeMemory, st.integers(1, 400), st.integers(0, 400))
ROOM = st.builds(FreeMemory, st.integers(400, 800), st.integers(400, 800))


def total(*sizes: FreeMemory) -> FreeMemory:
    return FreeMemory(sum(size.process for size in sizes), sum(size.device for size in sizes))


@given(held=SIZES, needed=NEEDED, room=ROOM)
def test_as_few_as_possible_go_the_longest_unused_first(held: dict[str, FreeMemory], needed: FreeMemory, room: FreeMemory) -> None:
    dropped = to_drop(held, needed, room)

    assert dropped == list(held)[: len(dropped)]
    kept = [size for name, size in held.items() if name not in dropped]
    assert total(needed, *kept).fits(room)
    if dropped:
        assert not total(needed, *kept, held[dropped[-1]]).fits(room)


def test_nothing_is_dropped_for_nothing() -> None:
    assert to_drop({}, FreeMemory(10), FreeMemory(10)) == []
    assert to_drop({"a": FreeMemory(5, 3)}, FreeMemory(5, 1), FreeMemory(10, 4)) == []


@pytest.mark.parametrize("short", [FreeMemory(9, 20), FreeMemory(20, 9)], ids=["of the process", "of the device"])
def test_either_memory_that_is_short_makes_a_colocated_model_go(short: FreeMemory) -> None:
    assert to_drop({"a": FreeMemory(5, 5), "b": FreeMemory(1, 1)}, FreeMemory(5, 5), short) == ["a"]


async def _never(order: TaskOrder) -> Loaded:
    raise AssertionError(f"{order.job} is not to be loaded")


def refused(memory_bytes: int, device_bytes: int, *, on_device: bool) -> str:
    source = ModelSource("big", "1", "pvc://data/big.onnx", digest="sha256:" + "a" * 64)
    task = BatchTask(input_uri="pvc://data/in.npy")
    order = TaskOrder("n", "job", "uid", 1, "r", "", source, 8, task, memory_bytes, device_bytes)
    colocated = ColocatedModels(_never, FreeMemory(100, 50 if on_device else 0), on_device=on_device)
    with pytest.raises(WorkerError) as caught:
        asyncio.run(colocated.take(order))
    assert caught.value.reason is WorkerReason.OUT_OF_MEMORY
    return caught.value.message


@pytest.mark.parametrize(("memory_bytes", "device_bytes", "on_device"), [(0, 10, True), (10, 0, True), (0, 0, False)])
def test_what_was_not_measured_is_not_taken(memory_bytes: int, device_bytes: int, *, on_device: bool) -> None:
    assert "not known" in refused(memory_bytes, device_bytes, on_device=on_device)


def test_what_does_not_fit_is_told_with_what_there_is() -> None:
    on_cpu = refused(101, 0, on_device=False)
    on_device = refused(10, 51, on_device=True)

    assert on_cpu.endswith("needs 101 bytes, this worker has 100 bytes beside its own model")
    assert on_device.endswith(
        "needs 10 bytes and 51 on its device, this worker has 100 bytes and 50 on its device beside its own model"
    )
