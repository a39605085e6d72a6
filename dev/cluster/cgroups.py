"""The cgroup above all containers of a node: in every v1 hierarchy, or in the unified one."""

import time
from collections.abc import Iterator
from pathlib import Path

from dev.cluster.processes import Record, start_ticks

_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Return the mount points below which a node's cgroup has to exist."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return sorted(path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink())


def ensure_cgroup(name: str) -> None:
    """Create the cgroup; a cpuset of version 1 starts empty and would refuse every process."""
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            target = folder / file
            if target.exists() and not target.read_text().strip():
                target.write_text((hierarchy / file).read_text())


def processes_in(name: str) -> Iterator[Record]:
    """Find every process in the cgroup or below it."""
    seen: set[int] = set()
    for hierarchy in hierarchies():
        for file in (hierarchy / name).rglob("cgroup.procs"):
            for pid in _read_pids(file):
                ticks = start_ticks(pid)
                if ticks is not None and pid not in seen:
                    seen.add(pid)
                    yield Record(name=name, pid=pid, start_ticks=ticks, argv=())


def remove_cgroup(name: str) -> None:
    """Remove the cgroup and all below it; the kernel needs a moment after the last process."""
    for hierarchy in hierarchies():
        deadline = time.monotonic() + 3.0
        while (hierarchy / name).exists() and time.monotonic() < deadline:
            if not _remove_tree(hierarchy / name):
                time.sleep(0.05)


def existing_cgroups(name: str) -> list[Path]:
    """Return where the cgroup still exists."""
    return [hierarchy / name for hierarchy in hierarchies() if (hierarchy / name).exists()]


def _remove_tree(folder: Path) -> bool:
    try:
        for child in folder.iterdir():
            if child.is_dir():
                _remove_tree(child)
        folder.rmdir()
    except OSError:
        return False
    return True


def _read_pids(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text().split()]
    except OSError:
        return []
