"""TorchScript runs from buffers. No device is needed: without one the same calls copy within the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.engines.engine import Cancellation, RunCancelledError
from inference_worker.engines.torch_staging import TorchStaging

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from inference_worker.engines.torch_staging import TorchStage

ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


def doubled(arguments: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    (x,) = arguments
    return {"y": x * 2, "z": x + 1}


def staged(staging: TorchStaging, x: np.ndarray) -> TorchStage:
    stage = staging.stage([("x", x.shape, x.dtype)], wait=False)
    assert stage is not None
    np.copyto(stage.feeds["x"], x)
    return stage


def test_the_next_run_is_copied_in_before_the_last_one_is_copied_out() -> None:
    staging = TorchStaging(doubled, device="cpu")
    with staged(staging, ROWS[:4]) as first, staged(staging, ROWS) as second:
        assert staging.stage([("x", (1, 4), ROWS.dtype)], wait=False) is None
        first.start()
        second.start()
        later, earlier = second.answers(), first.answers(("y",))

    assert np.array_equal(later["y"], ROWS * 2) and np.array_equal(later["z"], ROWS + 1)
    assert earlier.keys() == {"y"} and np.array_equal(earlier["y"], ROWS[:4] * 2)
    with staged(staging, ROWS[6:]) as third:
        third.start()
        assert np.array_equal(third.answers()["y"], ROWS[6:] * 2) and third.seconds > 0


def test_a_fault_is_told_and_leaves_the_buffers_to_others() -> None:
    def refuses(arguments: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        raise RuntimeError("no")

    staging = TorchStaging(refuses, device="cpu")
    for _ in range(4):
        with staged(staging, ROWS) as stage:
            stage.start()
            with pytest.raises(RuntimeError, match="no"):
                stage.answers()


def test_a_run_whose_callers_left_before_its_turn_is_not_computed() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with staged(TorchStaging(doubled, device="cpu"), ROWS) as stage:
        stage.start(cancellation)
        with pytest.raises(RunCancelledError):
            stage.answers()


def test_a_run_for_whose_buffers_there_is_no_room_is_computed_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page-locked memory is bounded by the host, not by the device: the request is answered all the same."""
    staging = TorchStaging(doubled, device="cpu")
    monkeypatch.setattr(
        "inference_worker.engines.torch_staging._Set.place", lambda *_: (_ for _ in ()).throw(RuntimeError("no room"))
    )

    assert staging.stage([("x", ROWS.shape, ROWS.dtype)], wait=False) is None
