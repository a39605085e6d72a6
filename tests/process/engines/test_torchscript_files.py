"""What is no TorchScript, or not what its signature says, is refused before or right after PyTorch sees it, with a reason."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest
import torch

from inference_protocol.reasons import WorkerReason
from inference_worker.engines import torchscript as torchscript_engine
from inference_worker.errors import WorkerError
from tests.process.engines.makers import TWINS, Maker, Ports, signature
from tests.process.engines.modules import Matmul, Two, saved

MAKER = Maker("torchscript")
FOUR: Ports = (("x", "FP32", (-1, 4)),)
THREE: Ports = (("y", "FP32", (-1, 3)),)


class Trap:
    """A pickle that would run code; nobody may read it as one."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("the file was unpickled",)


def refused(data: bytes, described: object = None) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        MAKER.open_bytes(data, described or TWINS["matmul"].signature)  # type: ignore[arg-type]
    return caught.value


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in members.items():
            made.writestr(f"m/{name}", data)
    return buffer.getvalue()


def test_a_pickle_is_not_read() -> None:
    fault = refused(pickle.dumps(Trap()))

    assert fault.reason is WorkerReason.MODEL_CORRUPT
    assert "export the model with torch.jit.save" in fault.message


def test_an_archive_of_torch_save_is_not_read() -> None:
    buffer = io.BytesIO()
    torch.save({"weight": Trap()}, buffer)

    fault = refused(buffer.getvalue())

    assert fault.reason is WorkerReason.MODEL_CORRUPT
    assert "no TorchScript" in fault.message


def test_an_archive_that_only_looks_like_it_is_refused_by_pytorch() -> None:
    data = archive(**{"data.pkl": pickle.dumps(Trap()), "constants.pkl": b"\x80\x02).", "version": b"3\n", "code/a.py": b""})

    fault = refused(data)

    assert fault.reason is WorkerReason.MODEL_CORRUPT
    assert "PyTorch can't load the model" in fault.message


@pytest.mark.parametrize(
    ("module", "inputs", "outputs", "words"),
    [
        (Matmul, (("a", "FP32", (-1, 4)), ("b", "FP32", (-1, 4))), THREE, "takes 1 inputs (x), the signature has 2"),
        (Matmul, (("x", "FP32", (-1, 5)),), THREE, "refuses zeros of the signature's own shapes"),
        (Matmul, FOUR, (("y", "INT64", (-1, 3)),), "output 'y' is FP32 of shape [1, 3], not INT64"),
        (Matmul, FOUR, (("y", "FP32", (-1,)),), "not FP32 of [-1]"),
        (Two, (("x", "FP32", (-1, 2)),), THREE, "gives 2 outputs, the signature has 1"),
        (Matmul, (("x", "BYTES", (-1, 4)),), THREE, "'x' is BYTES, which PyTorch has no tensors of"),
    ],
)
def test_a_signature_that_is_another_models_is_refused(
    module: type[torch.nn.Module], inputs: Ports, outputs: Ports, words: str
) -> None:
    fault = refused(saved(module), signature(inputs, outputs))

    assert fault.reason is WorkerReason.SIGNATURE_MISMATCH
    assert words in fault.message
    assert fault.permanent


def test_without_a_signature_it_says_where_to_set_one() -> None:
    with pytest.raises(WorkerError) as caught:
        MAKER.open_bytes(saved(Matmul))

    assert caught.value.reason is WorkerReason.SIGNATURE_MISMATCH
    assert "set signature at its version in the InferenceModel" in caught.value.message


def test_an_image_without_pytorch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchscript_engine, "find_spec", lambda _: None)

    fault = refused(saved(Matmul))

    assert fault.reason is WorkerReason.BACKEND_MISSING
    assert "requirements-torchscript.txt" in fault.message
