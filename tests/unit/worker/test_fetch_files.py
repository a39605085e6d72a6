"""Models that lie on a volume: whatever is wrong with the file is said in words, and never runs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from inference_protocol.messages import ModelSource, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded
from inference_worker.model import load as load_model
from tests.process import models

MODEL = models.matmul()
DIGEST = f"sha256:{hashlib.sha256(MODEL).hexdigest()}"
CPU = ("CPUExecutionProvider",)


def load(root: Path, uri: str = "pvc://data/m.onnx", *, digest: str | None = None, limit: int = 1 << 20) -> Loaded:
    source = ModelSource(name="net", version="1", uri=uri, digest=digest)
    config = WorkerConfig("team", "job", "uid", 1, source, CPU, batch_size=3, model_limit_bytes=limit)
    return load_model(config, source, root=root)


def refusal(root: Path, **given: object) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        load(root, **given)  # type: ignore[arg-type]
    assert len(caught.value.message) > 20
    return caught.value


def test_a_whole_model_with_its_digest_is_loaded(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(MODEL)

    loaded = load(root, digest=DIGEST)

    facts = loaded.facts
    assert (facts.digest, facts.provider, facts.batch_size) == (DIGEST, CPU[0], 3)
    assert facts.items_per_second is not None and facts.items_per_second > 0
    assert loaded.engine.run({"x": np.zeros((2, 4), np.float32)})["y"].shape == (2, 3)


def test_another_digest_than_asked_for_is_refused_with_both_in_the_message(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(MODEL)
    wanted = "sha256:" + "0" * 64

    error = refusal(root, digest=wanted)

    assert error.reason is WorkerReason.MODEL_DIGEST_MISMATCH and error.permanent
    assert wanted in error.message and DIGEST in error.message


@pytest.mark.parametrize("position", [0, 1, len(MODEL) // 2, len(MODEL) - 1])
def test_one_flipped_byte_does_not_pass_the_digest(root: Path, volume: Path, position: int) -> None:
    flipped = bytearray(MODEL)
    flipped[position] ^= 1
    (volume / "m.onnx").write_bytes(flipped)

    assert refusal(root, digest=DIGEST).reason is WorkerReason.MODEL_DIGEST_MISMATCH


def test_a_missing_model_says_to_check_claim_and_path(root: Path) -> None:
    error = refusal(root)

    assert error.reason is WorkerReason.MODEL_NOT_FOUND and error.permanent
    assert "pvc://data/m.onnx" in error.message and "check" in error.message


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (MODEL[:50], "whole"),
        (MODEL[:-1], "whole"),
        (bytes(range(256)) * 4, "ONNX"),
        (b"\0" * 4096, "ONNX"),
        (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "HTML"),
        (b'\n  {"error": "no such file"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b"PK\x03\x04" + b"zip" * 100, "ONNX"),
    ],
    ids=["empty", "cut", "cut by one byte", "bytes", "zeros", "html", "json", "lfs pointer", "zip"],
)
def test_a_file_that_is_no_model_is_called_what_it_is(root: Path, volume: Path, content: bytes, word: str) -> None:
    (volume / "m.onnx").write_bytes(content)

    error = refusal(root)

    other = word in ("HTML", "JSON") or content.startswith(b"PK")
    assert error.reason is (WorkerReason.MODEL_FORMAT_UNSUPPORTED if other else WorkerReason.MODEL_CORRUPT) and error.permanent
    assert word in error.message


def test_a_directory_is_no_model(root: Path, volume: Path) -> None:
    (volume / "m.onnx").mkdir()

    error = refusal(root)

    assert error.reason is WorkerReason.MODEL_NOT_FOUND and "regular file" in error.message


def test_a_pipe_is_no_model_and_is_not_waited_for(root: Path, volume: Path) -> None:
    os.mkfifo(volume / "m.onnx")

    assert refusal(root).reason is WorkerReason.MODEL_NOT_FOUND


def test_a_path_through_a_file_is_no_model(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(MODEL)

    assert refusal(root, uri="pvc://data/m.onnx/inner").reason is WorkerReason.MODEL_NOT_FOUND


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_model_says_that_the_worker_is_not_root(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(MODEL)
    (volume / "m.onnx").chmod(0)

    error = refusal(root)

    assert error.reason is WorkerReason.MODEL_NOT_FOUND and "non-root" in error.message


def test_a_model_over_the_limit_is_refused_before_it_is_read(root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (volume / "m.onnx").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))

    error = refusal(root)

    assert error.permanent and "limit" in error.message


def test_a_model_of_just_the_limit_is_loaded(root: Path, volume: Path) -> None:
    (volume / "m.onnx").write_bytes(MODEL)

    load(root, limit=len(MODEL))

    assert refusal(root, limit=len(MODEL) - 1).permanent


def test_a_name_too_long_for_the_file_system_is_not_found(root: Path) -> None:
    assert refusal(root, uri="pvc://data/" + "m" * 300).reason is WorkerReason.MODEL_NOT_FOUND


def test_a_symlink_loop_is_named_and_not_tried_again(root: Path, volume: Path) -> None:
    (volume / "m.onnx").symlink_to("n.onnx")
    (volume / "n.onnx").symlink_to("m.onnx")

    assert refusal(root).permanent


def test_a_file_in_the_image_is_loaded(root: Path, tmp_path: Path) -> None:
    (tmp_path / "built-in.onnx").write_bytes(MODEL)

    load(root, uri=f"file://{tmp_path}/built-in.onnx", digest=DIGEST)


def test_spaces_and_percent_escapes_in_a_path_are_followed(root: Path, volume: Path) -> None:
    (volume / "my models").mkdir()
    (volume / "my models" / "größe 1.onnx").write_bytes(MODEL)

    load(root, uri="pvc://data/my%20models/gr%C3%B6%C3%9Fe%201.onnx")
