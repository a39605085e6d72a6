"""The tables: one row for all runs of a kind, void ones counted and left out."""

from typing import Any

from bench.plane.table import tables


def a_run(side: str, rate: float, *, void: bool = False) -> dict[str, Any]:
    return {
        "scenario": "burst",
        "limits": "shipped",
        "side": side,
        "void": void,
        "jobsPerSecond": rate,
        "toRunningSeconds": {"p50": 1.0},
        "toDoneSeconds": {"p99": 2.0},
        "ownCpuMsPerJob": 3.0,
        "cpuMsPerJob": {"kube-apiserver": 4.0, "etcd": 1.0},
        "writesPerJob": 5.0,
        "memory": {"inference-operator": {"peakMib": 80.0}, "kube-controller-manager": {"peakMib": 90.0}},
    }


def test_a_row_is_median_and_range_of_its_sound_runs() -> None:
    records = [a_run("ours", 40), a_run("ours", 50), a_run("ours", 30), a_run("ours", 1, void=True), a_run("job", 3)]

    lines = list(tables(records))

    assert "| shipped | ours | 4 (1) | 40 (30-50) | 1 | 2 | 3 | 5 | 5 | 80 |" in lines
    assert "| shipped | job | 1 (0) | 3 | 1 | 2 | 3 | 5 | 5 | 90 |" in lines


def test_a_kind_with_void_runs_alone_has_no_figures() -> None:
    assert "| shipped | ours | 1 (1) | - | - | - | - | - | - | - |" in list(tables([a_run("ours", 1, void=True)]))


def test_what_failed_and_what_was_not_run_has_no_table() -> None:
    assert list(tables([{"scenario": "deadlines", "failed": "DevError: gave up"}])) == []
