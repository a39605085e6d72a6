"""The number of threads follows what the container may use, not what the host has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from inference_worker import cpu

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("6400000 100000", 8), ("", 8)],
)
def test_a_quota_of_cgroup_2_counts(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")

    assert cpu.usable_cpus(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("350000", 4), ("1000", 1)])
def test_a_quota_of_cgroup_1_counts(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")

    assert cpu.usable_cpus(tmp_path) == expected


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu.usable_cpus(tmp_path / "nothing") == 8
