"""Optimised graphs that are kept: used by who has written them, made anew by all others, and never in the way."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

from inference_worker.engines import graph_cache as module
from inference_worker.engines.graph_cache import DIRECTORY_VARIABLE, GraphCache, cache_for
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from tests.process import models

if TYPE_CHECKING:
    from pathlib import Path

MODEL = models.slow(width=8, steps=3)
DIGEST = f"sha256:{hashlib.sha256(MODEL).hexdigest()}"
CPU = ("CPUExecutionProvider",)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The graphs that sessions were made from."""
    seen: list[bytes] = []
    session = onnxruntime.InferenceSession

    def noting(data: bytes, *args: object, **more: object) -> onnxruntime.InferenceSession:
        seen.append(data)
        return session(data, *args, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", noting)
    return seen


def load(directory: Path, data: bytes = MODEL, digest: str = DIGEST) -> None:
    """Load with the cache; the model has to answer rightly, wherever its graph came from."""
    engine = OnnxEngine(data, providers=CPU, threads=1, cache=GraphCache(directory, digest))
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    (truth,) = onnxruntime.InferenceSession(MODEL, providers=list(CPU)).run(None, {"x": x})
    assert np.allclose(engine.run({"x": x})["y"], truth, rtol=1e-4)


def kept(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


def test_a_graph_is_kept_and_the_next_load_uses_it(directory: Path, opened: list[bytes]) -> None:
    load(directory)
    assert kept(directory) == [".mac", ".onnx"]
    opened.clear()

    load(directory)

    assert opened[0] == next(directory.glob("*.onnx")).read_bytes() != MODEL


FORGED = models.slow(width=8, steps=1)


def forge(directory: Path, graph: bytes = FORGED) -> None:
    """Put another graph in the place of the one that is kept, with every digest that an attacker can compute."""
    next(directory.glob("*.onnx")).write_bytes(graph)
    for mark in [*directory.glob("*.mac"), next(directory.glob("*.onnx")).with_suffix(".sha256")]:
        mark.write_text(hashlib.sha256(graph).hexdigest())


def test_a_graph_that_somebody_has_put_there_is_not_computed_in_the_name_of_a_verified_model(
    directory: Path, opened: list[bytes]
) -> None:
    """Another pod of the same user replaced graph and digest, and the status said Verified of what it had put there."""
    load(directory)
    forge(directory)
    opened.clear()

    load(directory)

    assert opened[0] == MODEL


def test_a_graph_of_another_model_with_its_own_mark_is_not_taken_for_this_ones(directory: Path) -> None:
    load(directory)
    graph, mark = next(directory.glob("*.onnx")), next(directory.glob("*.mac"))
    other = GraphCache(directory, "sha256:" + "0" * 64)
    other._path.write_bytes(graph.read_bytes())
    other._mark.write_bytes(mark.read_bytes())

    assert other.get() is None


def test_what_another_process_has_kept_is_made_again(directory: Path, monkeypatch: pytest.MonkeyPatch, opened: list[bytes]) -> None:
    load(directory)
    monkeypatch.setattr(module, "_KEY", bytes(32))
    opened.clear()

    load(directory)

    assert opened[0] == MODEL
    assert GraphCache(directory, DIGEST).get() is not None


def test_a_directory_on_a_claim_is_not_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pods mount it too, and no mode keeps out who has the same user."""
    monkeypatch.setattr(module, "VOLUME_ROOT", str(directory.parent))

    load(directory)

    assert kept(directory) == []


def test_another_model_has_another_place(directory: Path) -> None:
    load(directory)

    assert GraphCache(directory, "sha256:" + "0" * 64).get() is None
    assert GraphCache(directory, DIGEST).get() is not None


@pytest.mark.parametrize("change", ["runtime", "cpu"])
def test_another_runtime_or_cpu_makes_its_own(directory: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    load(directory)

    if change == "runtime":
        monkeypatch.setattr(onnxruntime, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(module, "_cpu_flags", lambda: "flags: fewer")

    assert GraphCache(directory, DIGEST).get() is None


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "mark", "no mark", "no graph"])
def test_a_damaged_graph_is_not_used_and_made_again(directory: Path, opened: list[bytes], damage: str) -> None:
    load(directory)
    graph, mark = next(directory.glob("*.onnx")), next(directory.glob("*.mac"))
    whole = graph.read_bytes()
    match damage:
        case "flipped":
            graph.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "cut":
            graph.write_bytes(whole[:-1])
        case "empty":
            graph.write_bytes(b"")
        case "mark":
            mark.write_text("0" * 64)
        case "no mark":
            mark.unlink()
        case "no graph":
            graph.unlink()
    opened.clear()

    load(directory)

    assert opened[0] == MODEL
    assert GraphCache(directory, DIGEST).get() is not None


def test_a_whole_file_that_is_no_graph_is_dropped_and_the_model_loads(directory: Path) -> None:
    load(directory)
    with GraphCache(directory, DIGEST).filling() as scratch:
        assert scratch is not None
        scratch.write_bytes(b"nonsense")

    load(directory)

    assert (GraphCache(directory, DIGEST).get() or b"nonsense") != b"nonsense"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_neither_read_nor_written(directory: Path, opened: list[bytes], mode: int) -> None:
    load(directory)
    directory.chmod(mode)
    before = {path: path.read_bytes() for path in directory.iterdir()}
    opened.clear()

    load(directory)

    assert opened[0] == MODEL
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_directory_of_somebody_elses_is_not_read(directory: Path) -> None:
    load(directory)
    os.chown(directory, 12345, 12345)

    assert GraphCache(directory, DIGEST).get() is None


def test_a_new_directory_is_private(directory: Path) -> None:
    load(directory / "inner")

    assert (directory / "inner").stat().st_mode & 0o777 == 0o700


def test_a_place_that_is_no_directory_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    load(tmp_path / "file")
    load(tmp_path / "file" / "below")


def test_a_full_disk_costs_nothing_but_time(directory: Path) -> None:
    scratch = GraphCache(directory, DIGEST)._scratch()
    assert scratch is not None
    scratch.symlink_to("/dev/full")

    load(directory)


def test_a_model_that_does_not_load_leaves_nothing_behind(directory: Path) -> None:
    with pytest.raises(WorkerError):
        load(directory, MODEL[:-10])

    assert kept(directory) == []


def test_what_is_left_of_a_start_that_was_killed_is_not_taken_for_a_graph(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    cache = GraphCache(directory, DIGEST)
    with cache.filling() as scratch:
        assert scratch is not None
        scratch.write_bytes(b"half a graph")
        assert cache.get() is None


def test_only_where_one_is_wanted_and_pays_there_is_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = bytes(module._WORTH_BYTES)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)

    assert cache_for(large, DIGEST) is None and cache_for(large, DIGEST, "") is None
    assert cache_for(large[:-1], DIGEST, str(tmp_path)) is None
    assert cache_for(large, DIGEST, str(tmp_path)) is not None
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    assert cache_for(large, DIGEST) is not None
