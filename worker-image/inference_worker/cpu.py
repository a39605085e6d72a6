"""How many CPUs this container may really use. ONNX Runtime counts the host's and ignores the quota."""

import math
import os
from pathlib import Path


def usable_cpus(root: Path = Path("/sys/fs/cgroup")) -> int:
    """The smallest of the CPU quota (cgroup v2, then v1) and the affinity mask; at least one."""
    affinity = len(os.sched_getaffinity(0))
    quota = _quota_v2(root) or _quota_v1(root)
    return max(1, min(affinity, math.ceil(quota)) if quota else affinity)


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
