"""The benchmark of back ends: a row for each back end that was measured, and targets only for what was."""

from typing import Any

from bench.backends.table import judge, tables


def a_round(side: str, rate: float, *, statuses: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    opened = {"p50Ms": 1.0, "p99Ms": 2.0, "statuses": statuses or {"200": 10}}
    figures = {"cpuMicroseconds": 100.0, "residentMib": 90.0, "readySeconds": 0.5, "batchEfficiency": 4.0}
    return {"scenario": "digits", "side": side, "requestsPerSecond": rate, "open": opened, **figures, **changes}


def test_a_back_end_has_a_row_with_median_and_range() -> None:
    rounds = [a_round("onnx", rate) for rate in (900.0, 1000.0, 1200.0)] + [a_round("triton", 500.0)]

    lines = list(tables(rounds))

    assert "| ONNX Runtime in the worker | 1,000 (900-1,200) | 1.00 (1.00-1.00) |" in lines[2]
    assert lines[3].startswith("| Triton beside it, Python back end | 500 |")
    assert len(lines) == 4


def test_what_was_not_measured_says_why() -> None:
    rounds = [a_round("onnx", 900.0), {"scenario": "failed", "side": "torchscript", "reason": "no PyTorch"}]

    assert list(tables(rounds))[-1] == "\n- not measured: torchscript: no PyTorch"
    assert {target.id for target in judge(rounds)} == {"backends.digits-failed"}


def test_targets_compare_medians_and_count_failures() -> None:
    targets = {
        target.id: target for target in judge([a_round("onnx", 400.0), a_round("triton", 500.0, statuses={"200": 9, "503": 1})])
    }

    assert (targets["backends.digits-triton"].value, targets["backends.digits-triton"].holds) == (0.8, False)
    assert (targets["backends.digits-failed"].value, targets["backends.digits-failed"].holds) == (1, False)
