"""Files that ONNX Runtime refuses, or should: the worker says ModelCorrupt and never falls over."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker import device, model
from inference_worker.engines.engine import Engine
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.warmup import warm_up
from tests.process import models
from tests.process.harness import REPOSITORY, a_config

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.warmup import Warm

MODEL = models.matmul()
CPU = "CPUExecutionProvider"


def engine(data: bytes, providers: tuple[str, ...] = (CPU,)) -> Engine:
    return OnnxEngine(data, providers=providers, threads=1)


def refusal(data: bytes, providers: tuple[str, ...] = (CPU,)) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        engine(data, providers)
    return caught.value


def test_a_model_cut_at_any_byte_is_corrupt() -> None:
    reasons = {refusal(MODEL[:length]).reason for length in range(len(MODEL))}

    # Between two fields of the graph, what is left is a graph too.
    assert reasons <= {WorkerReason.MODEL_CORRUPT, WorkerReason.MODEL_INVALID}


def test_random_bytes_are_corrupt() -> None:
    rng = np.random.default_rng(1)

    reasons = {refusal(rng.bytes(int(rng.integers(1, 400)))).reason for _ in range(200)}

    assert reasons == {WorkerReason.MODEL_CORRUPT}


def load_with_flips(positions: range) -> set[str]:
    """Load with one bit flipped at each position: what came of it other than a loaded or a refused model."""
    problem = set()
    for position in positions:
        flipped = bytearray(MODEL)
        flipped[position] ^= 0x80
        try:
            engine(bytes(flipped))
        except WorkerError as error:
            assert error.reason.name.startswith("MODEL_")  # noqa: PT017
        except Exception as error:  # noqa: BLE001
            problem.add(type(error).__name__)
    return problem


def test_a_flipped_byte_either_loads_or_is_corrupt() -> None:
    assert load_with_flips(range(len(MODEL))) == set()


def test_an_output_that_is_no_tensor_says_how_to_export() -> None:
    error = refusal(models.sequence())

    assert error.reason is WorkerReason.MODEL_TYPE_UNSUPPORTED and "ConcatFromSequence" in error.message


def test_weights_outside_of_the_model_file_are_named(tmp_path: object) -> None:
    proto = onnx.load_from_string(MODEL)
    onnx.external_data_helper.convert_model_to_external_data(proto, location="w.bin", size_threshold=0)
    for tensor in proto.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, "w.bin")
        tensor.ClearField("raw_data")

    error = refusal(proto.SerializeToString())

    assert error.reason is WorkerReason.MODEL_DATA_MISSING and "w.bin" in error.message


def test_a_provider_that_this_runtime_lacks_is_an_error_that_lists_what_it_has() -> None:
    error = refusal(MODEL, ("TensorrtExecutionProvider", "CUDAExecutionProvider"))

    assert error.reason is WorkerReason.PROVIDER_UNAVAILABLE and error.permanent
    for lacks in ("TensorrtExecutionProvider", "CUDAExecutionProvider"):
        assert f"{lacks} is not in this worker's ONNX Runtime" in error.message and CPU in error.message


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_the_runtime_drops_without_a_word_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [CPU, "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: everything)
    monkeypatch.setattr(device, "why_absent", lambda: "")

    error = refusal(MODEL, ("CUDAExecutionProvider",))

    assert error.reason is WorkerReason.PROVIDER_UNAVAILABLE and "fell back" in error.message


def test_a_device_that_was_promised_and_is_absent_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [CPU, "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: everything)
    monkeypatch.setattr(device, "why_absent", lambda: "CUDA_VISIBLE_DEVICES is empty")

    error = refusal(MODEL, ("CUDAExecutionProvider",))

    assert error.reason is WorkerReason.PROVIDER_UNAVAILABLE and error.permanent
    assert error.message == "CUDAExecutionProvider was asked for, but CUDA_VISIBLE_DEVICES is empty"


def test_a_model_without_inputs_can_be_warmed_up() -> None:
    warm_up(engine(models.constant()), 4)


@pytest.mark.parametrize(
    ("data", "rows"),
    [(models.matmul(), None), (models.matmul(rows=5), 5), (models.add(rows=2), 2), (models.scaled(), None)],
    ids=["free", "fixed", "two fixed", "with a scalar"],
)
def test_the_number_of_rows_comes_from_the_graph(data: bytes, rows: int | None) -> None:
    assert engine(data).rows == rows


@pytest.mark.parametrize("name", ["identity", "matmul", "add", "named_label", "grand_total", "square_root", "scaled", "gather"])
def test_every_kind_of_model_is_warmed_up(name: str) -> None:
    rate = warm_up(engine(getattr(models, name)()), 4).items_per_second

    assert rate is not None and rate > 0


def test_every_datatype_is_warmed_up() -> None:
    for kind in models.BY_DATATYPE.values():
        warm = warm_up(engine(models.identity(kind)), 2)
        assert warm.items_per_second is not None and warm.layout.outputs == {"y": 0}


def test_a_model_with_texts_beside_bf16_is_refused() -> None:
    nodes = [onnx.helper.make_node("Identity", ["half"], ["h"]), onnx.helper.make_node("Identity", ["text"], ["t"])]
    kinds = {"half": onnx.TensorProto.BFLOAT16, "text": models.STRING}
    both = models.model(
        nodes,
        [models.tensor(name, kind, ["N", 1]) for name, kind in kinds.items()],
        [models.tensor(out, kind, ["N", 1]) for out, kind in zip("ht", kinds.values(), strict=True)],
    )

    with pytest.raises(WorkerError, match="BF16") as caught:
        engine(both)

    assert caught.value.reason is WorkerReason.MODEL_TYPE_UNSUPPORTED


def test_the_runtime_is_told_to_report_nothing_to_its_maker() -> None:
    program = "import inference_worker.engines.onnx, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment["PYTHONPATH"] = os.pathsep.join(str(REPOSITORY / part) for part in ("protocol", "worker-image"))

    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout

    assert said == "1\n"


def test_refused_feeds_are_the_callers_fault_and_broken_runs_are_not() -> None:
    gather = engine(models.gather())

    with pytest.raises(ValueError):
        engine(MODEL).run({"x": np.zeros((1, 9), np.float32)})
    with pytest.raises((ValueError, RuntimeError)):
        gather.run({"i": np.array([99], np.int64)})
    assert gather.run({"i": np.array([9], np.int64)})["y"].tolist() == [9]


def test_a_model_that_finds_no_memory_while_it_is_warmed_gives_back_what_it_has_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    opened = OnnxEngine(MODEL, providers=(CPU,), threads=1)
    monkeypatch.setattr(opened, "close", lambda: closed.append("closed"))

    def no_memory(*_: object, **__: object) -> Warm:
        raise WorkerError(WorkerReason.OUT_OF_MEMORY, "no run fits")

    monkeypatch.setattr(model, "open_engine", lambda _: opened)
    monkeypatch.setattr(model, "warm_up", no_memory)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "m.onnx").write_bytes(MODEL)
    config = a_config("pvc://data/m.onnx")
    with pytest.raises(WorkerError, match="no run fits"):
        model.load(config, config.model, root=tmp_path)

    assert closed == ["closed"]
