"""`python -m inference_worker.quantize`, as its page tells it, on the digits classifier."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from examples.models import digits
from examples.models.graphs import save
from inference_worker.quantize import __main__ as command
from inference_worker.quantize import method
from inference_worker.quantize.variant import digest_of
from tests.process.harness import REPOSITORY
from tests.unit.worker.quantize.test_method import environment, scrambled

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (REPOSITORY / "docs" / "tasks" / "quantize.md").read_text(encoding="utf-8")
COMMANDS = [block.replace("\\\n", " ").strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model, its training rows, and the held-out third with its labels."""
    made = tmp_path_factory.mktemp("digits")
    (pixels, truth), (heldout, labels) = digits.split()
    save(digits.write_graph(digits.train(pixels, truth)), made / "model.onnx")
    np.savez(made / "training.npz", pixels=pixels)
    np.savez(made / "heldout.npz", pixels=heldout)
    np.save(made / "labels.npy", labels)
    return made


@pytest.fixture
def run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command on the digits, with some options changed; None leaves one out."""
    usual = {
        "model": folder / "model.onnx",
        "output": tmp_path / "out.onnx",
        "method": "static",
        "calibration": folder / "training.npz",
        "evaluate": folder / "heldout.npz",
        "labels": folder / "labels.npy",
        "batch-size": 32,
    }

    def call(**changes: Any) -> tuple[int, str, str]:
        given = {**usual, **{name.replace("_", "-"): value for name, value in changes.items()}}
        code = command.main([text for name, value in given.items() if value is not None for text in (f"--{name}", str(value))])
        return code, *capsys.readouterr()

    return call


def report_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.with_name(output.name + ".quantization.json").read_text())
    return found


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: shlex.split(line)[6])
def test_a_command_of_the_page_does_what_the_page_says(folder: Path, line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "python"

    done = subprocess.run([sys.executable, *words[1:]], cwd=folder, env=environment(), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    output = folder / words[words.index("--output") + 1]
    assert report_of(output)["variantDigest"] == digest_of(output.read_bytes())
    assert report_of(output)["variantDigest"] in done.stdout


def test_the_page_has_both_methods_and_every_field_of_the_report(run: Callable[..., Any], tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    run()

    shown, written = json.loads(example), report_of(tmp_path / "out.onnx")
    assert len(COMMANDS) == 2
    assert shown.keys() == written.keys()
    assert shown["gate"].keys() == written["gate"].keys()
    assert shown["timing"].keys() == written["timing"].keys()
    assert (shown["gate"]["before"], shown["calibrationRows"]) == (round(written["gate"]["before"], 4), written["calibrationRows"])


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_digits_get_smaller_and_stay_right(run: Callable[..., Any], folder: Path, tmp_path: Path, how: str) -> None:
    code, said, _ = run(method=how)

    report = report_of(tmp_path / "out.onnx")
    assert code == 0
    assert report["verdict"] == "passed"
    assert report["gate"]["before"] - report["gate"]["after"] <= 0.01
    assert report["gate"]["after"] >= 0.95
    assert (tmp_path / "out.onnx").stat().st_size == report["variantBytes"] < 0.6 * (folder / "model.onnx").stat().st_size
    assert report["sourceDigest"] == digest_of((folder / "model.onnx").read_bytes())
    assert report["timing"]["beforeMs"] > 0
    assert report["variantDigest"] in said


def test_a_destroyed_variant_is_reported_and_not_written(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "build", lambda data, *_: method.Built(scrambled(data, lambda w: w[::-1].copy()), {"Gemm": 2}, ()))

    code, out, err = run()

    assert code == 3
    assert json.loads(out)["verdict"] == "refused"
    assert "accuracy 0.97" in err
    assert list(tmp_path.iterdir()) == []


def test_without_rows_nothing_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    code, _, err = run(evaluate=None, labels=None)

    assert code == 2
    assert "--evaluate" in err
    assert list(tmp_path.iterdir()) == []


def test_an_old_output_is_not_touched_by_a_failure(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_bytes(b"old")

    assert run(calibration=None)[0] == 2
    assert (tmp_path / "out.onnx").read_bytes() == b"old"


@pytest.mark.parametrize("option", ["model", "calibration", "evaluate", "labels"])
def test_a_missing_file_is_named(run: Callable[..., Any], tmp_path: Path, option: str) -> None:
    code, _, err = run(**{option: tmp_path / "nowhere.npy"})

    assert code == 2
    assert "nowhere.npy can't be read: No such file" in err


@pytest.mark.parametrize("option", ["calibration", "evaluate", "labels"])
@pytest.mark.parametrize("content", [b"", b"no array", np.array([{}], dtype=object).dumps()], ids=["empty", "text", "pickle"])
def test_a_file_that_holds_no_arrays_is_named(run: Callable[..., Any], tmp_path: Path, option: str, content: bytes) -> None:
    (tmp_path / "rows.npy").write_bytes(content)

    code, _, err = run(**{option: tmp_path / "rows.npy"})

    assert code == 2
    assert "rows.npy can't be read" in err


def test_labels_are_one_array(run: Callable[..., Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))

    code, _, err = run(labels=tmp_path / "two.npz")

    assert code == 2
    assert "2 arrays" in err


def test_an_output_that_can_not_be_written_is_told_before_the_work(run: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for output in (tmp_path / "missing" / "out.onnx", tmp_path / "file" / "out.onnx", tmp_path, folder / "model.onnx"):
        code, _, err = run(output=output, model=folder / "model.onnx")
        assert code == 1
        assert str(output) in err


def test_a_disk_that_fills_up_leaves_nothing_half_written(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    code, _, err = run()

    assert code == 1
    assert "No space left" in err
    assert list(tmp_path.iterdir()) == []


def test_bounds_that_bound_nothing_are_a_usage_error(run: Callable[..., Any]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(max_drop=2)

    assert caught.value.code == 2
