"""A variant is made once, kept where nobody else can write, and never believed without its digest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest

from inference_worker.quantize import Bounds, Fault, QuantizeError, RefusedError, Variant, cache, quantize, variant_for
from inference_worker.quantize.variant import digest_of
from tests.unit.worker.quantize.test_method import BOUNDS, ROWS, perceptron

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = perceptron()


class Counted:
    """The real work, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(cache, "quantize", self)

    def __call__(self, *given: Any, **named: Any) -> Variant:
        self.times += 1
        return quantize(*given, **named)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def variant(folder: Path | None, **changes: Any) -> Variant:
    given: dict[str, Any] = {
        "method": "static",
        "calibration": ROWS,
        "evaluation": ROWS,
        "labels": None,
        "bounds": BOUNDS,
        **changes,
    }
    return variant_for(SOURCE, digest_of(SOURCE), cache=folder, **given)


def test_a_variant_is_made_once(tmp_path: Path, work: Counted) -> None:
    first, second = variant(tmp_path / "c"), variant(tmp_path / "c")

    assert work.times == 1
    assert first == second
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert sorted(path.suffix for path in (tmp_path / "c").iterdir()) == [".json", ".onnx"]


def test_without_a_cache_it_is_made_each_time(work: Counted) -> None:
    assert variant(None).digest == variant(None).digest
    assert work.times == 2


@pytest.mark.parametrize(
    "change",
    [
        {"method": "dynamic"},
        {"calibration": {"x": ROWS["x"][:100]}},
        {"evaluation": {"x": ROWS["x"][:150]}},
        {"calibration": {"x": ROWS["x"] * 2}},
        {"evaluation": {"": ROWS["x"]}},
        {"bounds": Bounds(min_agreement=0.9, batch_size=8)},
    ],
)
def test_whatever_decides_it_is_a_part_of_its_key(tmp_path: Path, work: Counted, change: dict[str, Any]) -> None:
    variant(tmp_path)

    variant(tmp_path, **change)

    assert work.times == 2


@pytest.mark.parametrize("name", ["processor", "digest"])
def test_another_cpu_or_runtime_makes_its_own(tmp_path: Path, work: Counted, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variant(tmp_path)

    if name == "processor":
        monkeypatch.setattr(cache, "processor", lambda: "another")
    else:
        monkeypatch.setattr(onnxruntime, "__version__", "0.0.0")
    variant(tmp_path)

    assert work.times == 2


@pytest.mark.parametrize("suffix", [".onnx", ".json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, work: Counted, suffix: str, content: bytes) -> None:
    first = variant(tmp_path)
    (entry,) = tmp_path.glob(f"*{suffix}")
    entry.write_bytes(content)

    again = variant(tmp_path)

    assert work.times == 2
    assert again.data == first.data
    assert variant(tmp_path) == again
    assert work.times == 2


def test_a_refused_variant_is_not_kept(tmp_path: Path) -> None:
    odd = {"x": np.full((200, 64), 1e-3, dtype=np.float32)}

    with pytest.raises(RefusedError):
        variant(tmp_path, calibration=odd)

    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_others_is_not_trusted(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "own").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "own")
    (tmp_path / "file").touch()

    for folder in (shared, link, tmp_path / "file", tmp_path / "missing" / "deep"):
        with pytest.raises(QuantizeError) as caught:
            variant(folder)
        assert caught.value.fault == Fault.CACHE_UNSAFE


def test_a_full_cache_costs_only_the_next_start(
    tmp_path: Path, work: Counted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "replace_file", full)

    with caplog.at_level(logging.WARNING):
        assert variant(tmp_path).report.verdict == "passed"

    assert "No space left" in caplog.text
    variant(tmp_path)
    assert work.times == 2
