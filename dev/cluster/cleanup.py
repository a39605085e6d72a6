"""Remove what dead processes of a cluster left in the kernel and on the disk; safe to repeat."""

import errno
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from dev.cluster.cgroups import existing_cgroups, remove_cgroup
from dev.cluster.layout import NODES, Layout
from dev.cluster.network import leftovers, remove_network
from dev.cluster.nodes import kill_containers
from dev.cluster.policies import left_sets, remove_rules
from dev.console import DevError
from dev.tools import bin_folder

# Made by the daemons at fixed places, whatever their configuration says.
_FIXED_FOLDERS = (
    "/var/lib/cni/results",
    "/var/lib/cni",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
    "/var/log/containers",
)


def clean_nodes(layout: Layout) -> None:
    """Kill leftover containers; remove attachments, mounts, cgroups and network of the nodes."""
    for node in NODES:
        kill_containers(layout, node)
    _remove_attachments(layout)
    unmount_below(layout.state)
    for node in NODES:
        remove_cgroup(node.cgroup)
    _remove_log_links(layout)
    _remove_empty_folders()
    if has_run(layout):
        remove_rules()
    proxy = bin_folder("kubernetes") / "kube-proxy"
    remove_network(proxy if has_run(layout) and proxy.exists() else None)


def remove_state(layout: Layout) -> None:
    """Delete the state folder, but never through a mount that is still there."""
    unmount_below(layout.state)
    still = mounts_below(layout.state)
    if still:
        raise DevError(f"still mounted: {', '.join(map(str, still))}")
    shutil.rmtree(layout.state, ignore_errors=True)


def has_run(layout: Layout) -> bool:
    """Tell whether this state folder ever had processes."""
    return layout.run.is_dir()


def left_behind(layout: Layout, *, with_chains: bool) -> list[str]:
    """Name everything of the cluster that still exists."""
    cgroups = (str(path) for node in NODES for path in existing_cgroups(node.cgroup))
    state = [str(layout.state)] if layout.state.exists() else []
    return [
        *leftovers(with_chains=with_chains),
        *(left_sets() if with_chains else ()),
        *cgroups,
        *map(str, mounts_below(layout.state)),
        *state,
    ]


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points below a folder, the deepest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4].replace("\\040", " "))
        if point != folder and point.is_relative_to(folder):
            points.append(point)
    return points[::-1]


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder; a busy mount is detached and goes with its last user."""
    deadline = time.monotonic() + 5.0
    while (points := mounts_below(folder)) and time.monotonic() < deadline:
        for point in points:
            subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)


def _remove_attachments(layout: Layout) -> None:
    """Remove CNI's memory of pods whose network namespace was below our state folder."""
    for record in Path("/var/lib/cni/results").glob("*"):
        if f'"{layout.state}/' in record.read_text(errors="replace"):
            record.unlink(missing_ok=True)


def _remove_log_links(layout: Layout) -> None:
    """Remove the links that kubelets put into a folder shared by the whole machine."""
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(layout.state):
            link.unlink(missing_ok=True)


def _remove_stale_socket(path: Path) -> None:
    """Remove a kubelet's fixed socket when nobody listens there any more."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink(missing_ok=True)


def _remove_empty_folders() -> None:
    _remove_stale_socket(Path("/var/lib/kubelet/device-plugins/kubelet.sock"))
    for name in _FIXED_FOLDERS:
        # Not empty means that somebody else uses it.
        with suppress(OSError):
            Path(name).rmdir()
