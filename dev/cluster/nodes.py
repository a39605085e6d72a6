"""Start, watch and kill the nodes; a node is its containerd, its kubelet and the pods below."""

import subprocess
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from dev.cluster.api import Api, ApiError, Json
from dev.cluster.cgroups import ensure_cgroup, processes_in
from dev.cluster.control_plane import processes_of
from dev.cluster.layout import GPU_RESOURCE, ControlPlane, Layout, Node
from dev.cluster.network import end_silence, silence
from dev.cluster.node_config import (
    socket_of,
    write_containerd_configuration,
    write_kubelet_configuration,
)
from dev.cluster.processes import find_by_argument, kill_all
from dev.console import DevError, say, wait_until
from dev.images.pause import pause_image
from dev.tools import ensure

_KUBELET_RESTARTS = 10
_TASKS = "containerd-state/io.containerd.runtime.v2.task/k8s.io"


def containerd_name(node: Node) -> str:
    """Return the process name of a node's containerd."""
    return f"containerd-{node.name}"


def kubelet_name(node: Node) -> str:
    """Return the process name of a node's kubelet."""
    return f"kubelet-{node.name}"


def begin_node(plane: ControlPlane, node: Node) -> None:
    """Start the node's containerd and give it the pause image; needs no API server."""
    pause, archive = pause_image()
    folder = plane.layout.node(node.name)
    settings = write_containerd_configuration(node, folder, pause=pause)
    end_silence(node)
    ensure_cgroup(node.cgroup)
    processes = processes_of(plane.layout)
    name = containerd_name(node)
    if not processes.running(name):
        # A socket file of a killed containerd would look like a started one.
        socket_of(folder).unlink(missing_ok=True)
    processes.ensure(name, ["containerd", "--config", str(settings)])
    wait_until(
        name,
        lambda: _answers(folder),
        timeout_seconds=60,
        check_alive=lambda: processes.require(name),
    )
    import_image(plane.layout, node, name=pause, archive=archive)


def start_kubelet(plane: ControlPlane, node: Node) -> datetime | None:
    """Start the node's kubelet; return when that was, or None if it ran already."""
    # Transitions are written in whole seconds.
    began = datetime.now(UTC).replace(microsecond=0)
    folder = plane.layout.node(node.name)
    labels = ",".join(f"{key}={value}" for key, value in node.labels().items())
    started = processes_of(plane.layout).ensure(
        kubelet_name(node),
        [
            str(ensure("kubernetes") / "kubelet"),
            f"--config={write_kubelet_configuration(plane, node)}",
            f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-pki'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--node-labels={labels}",
        ],
    )
    return began if started else None


def await_nodes(plane: ControlPlane, api: Api, starts: Mapping[Node, datetime | None]) -> None:
    """Wait until the nodes are Ready, since their kubelets started, and offer their devices."""
    processes = processes_of(plane.layout)
    again: Counter[str] = Counter()

    def check() -> None:
        for node in starts:
            # A containerd that has just started may answer before its runtime service does, and a kubelet then ends.
            if not processes.running(kubelet_name(node)) and again[node.name] < _KUBELET_RESTARTS:
                again[node.name] += 1
                start_kubelet(plane, node)
            processes.require(kubelet_name(node))

    names = ", ".join(node.name for node in starts)
    wait_until(
        f"nodes {names} to be Ready",
        lambda: all(node_is_ready(api, node, since=since) for node, since in starts.items()),
        timeout_seconds=120,
        check_alive=check,
        poll_seconds=0.25,
    )


def node_is_ready(api: Api, node: Node, *, since: datetime | None = None) -> bool:
    """Tell whether the node is Ready and its devices are there to be asked for.

    A node that died a moment ago still says Ready; `since` asks for a sign of life after then.
    """
    try:
        status = api.get(f"/api/v1/nodes/{node.name}")["status"]
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        ready = conditions.get("Ready", {"status": "Unknown"})
        if ready["status"] != "True":
            return False
        # A new node becomes Ready before its lease exists; a returning one renews first.
        alive = since is None or max(_transition(ready), _last_renewal(api, node)) >= since
    except ApiError:
        return False
    return alive and int(status.get("allocatable", {}).get(GPU_RESOURCE, "0")) == node.gpus


def _transition(condition: Json) -> datetime:
    return datetime.fromisoformat(condition["lastTransitionTime"])


def _last_renewal(api: Api, node: Node) -> datetime:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    try:
        lease = api.get(f"{leases}/{node.name}")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return datetime.min.replace(tzinfo=UTC)
        raise
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def kill_node(layout: Layout, node: Node) -> None:
    """Let the node die as a machine does: kubelet, containerd, shims and containers at once, and without a farewell."""
    silence(node)
    processes_of(layout).stop(kubelet_name(node), containerd_name(node), kill=True)
    kill_containers(layout, node)


def kill_containers(layout: Layout, node: Node) -> None:
    """Kill the shims of the node's containerd and everything in the node's cgroup."""
    folder = layout.node(node.name)
    address = str(socket_of(folder))
    sockets = _shim_sockets(folder)
    for _ in range(3):
        doomed = [*find_by_argument("containerd-shim-runc-v2", address), *processes_in(node.cgroup)]
        if not doomed:
            break
        kill_all(doomed)
    for socket in sockets:
        socket.unlink(missing_ok=True)


def _shim_sockets(folder: Path) -> list[Path]:
    """Return the sockets of the node's shims; a killed shim cannot remove its own."""
    addresses = (file.read_text().strip() for file in (folder / _TASKS).glob("*/address"))
    found = (address.removeprefix("unix://") for address in addresses)
    return [Path(name) for name in found if name.startswith("/run/containerd/s/")]


def import_image(layout: Layout, node: Node, *, name: str, archive: Path) -> bool:
    """Import an archive into the node unless it has the image; return whether it was imported."""
    folder = layout.node(node.name)
    listed = _ctr(folder, "images", "list", "--quiet", f"name=={name}")
    if name in listed.stdout.split():
        return False
    result = _ctr(folder, "images", "import", str(archive))
    if result.returncode != 0:
        raise DevError(f"image {name} does not import into {node.name}: {result.stderr.strip()}")
    say(f"imported {name} into {node.name}")
    return True


def _answers(folder: Path) -> bool:
    return socket_of(folder).exists() and _ctr(folder, "version").returncode == 0


def _ctr(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", "--address", str(socket_of(folder)), "--namespace", "k8s.io", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
