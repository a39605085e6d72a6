"""How much of the machine this container may really use. ONNX Runtime counts the host's CPUs and ignores the quota."""

import math
import os
from pathlib import Path


def usable_cpus(root: Path = Path("/sys/fs/cgroup")) -> int:
    """The smallest of the CPU quota (cgroup v2, then v1) and the affinity mask; at least one."""
    affinity = len(os.sched_getaffinity(0))
    quota = _quota_v2(root) or _quota_v1(root)
    return max(1, min(affinity, math.ceil(quota)) if quota else affinity)


def usable_memory_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """The smaller of the memory limit (cgroup v2, then v1) and what the machine has."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read(root / "memory.max") or _read(root / "memory" / "memory.limit_in_bytes")
    return min(machine, int(limit)) if limit is not None and limit.isdigit() else machine


def _quota_v2(root: Path) -> float | None:
    text = _read(root / "cpu.max")
    if text is None or text.startswith("max"):
        return None
    quota, period = text.split()
    return int(quota) / int(period)


def _quota_v1(root: Path) -> float | None:
    quota, period = _read(root / "cpu" / "cpu.cfs_quota_us"), _read(root / "cpu" / "cpu.cfs_period_us")
    if quota is None or period is None or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
