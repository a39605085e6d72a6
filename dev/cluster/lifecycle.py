"""Bring the full cluster up, take it down and say how it is."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dev.cache import digest, locked, tree_digest
from dev.cluster.addons import apply_addons
from dev.cluster.api import api_as
from dev.cluster.cleanup import clean_nodes, has_run, left_behind, remove_state
from dev.cluster.control_plane import (
    await_control_plane,
    begin_control_plane,
    control_plane_names,
    processes_of,
    start_control_plane,
    start_controllers,
)
from dev.cluster.layout import NODES, ControlPlane, Layout, Node, Options, full_control_plane
from dev.cluster.network import ensure_network
from dev.cluster.nodes import (
    await_nodes,
    begin_node,
    containerd_name,
    kill_node,
    kubelet_name,
    node_is_ready,
    start_kubelet,
)
from dev.cluster.policies import NAME as POLICIES
from dev.cluster.policies import are_enforced, follow_options
from dev.cluster.services import service_names, start_services
from dev.console import DevError, say
from dev.packages import ensure_packages
from dev.tools import HERE as TOOLS
from dev.tools import ensure

_HERE = Path(__file__).resolve().parent


def up(layout: Layout, options: Options | None = None) -> Path:
    """Start what is missing until the cluster is healthy; return the administrator's kubeconfig.

    Without options a running cluster keeps those that it has.
    """
    require_root()
    with locked(_lock(layout)):
        plane = full_control_plane(layout, options or read_options(layout))
        if plane.options == read_options(layout) and _is_current(layout) and is_healthy(plane):
            return layout.kubeconfig
        _prepare(plane)
        _start(plane)
        layout.code_file.write_text(_code_digest())
    return layout.kubeconfig


def down(layout: Layout) -> None:
    """End every process of the cluster and remove all that it made."""
    require_root()
    with locked(_lock(layout)):
        processes = processes_of(layout)
        plane = full_control_plane(layout, Options())
        # Nothing of the state survives, so nobody needs time to put it in order.
        processes.stop(POLICIES, *service_names(), kill=True)
        for node in NODES:
            kill_node(layout, node)
        processes.stop(*control_plane_names(plane), kill=True)
        had_run = has_run(layout)
        clean_nodes(layout)
        remove_state(layout)
        rest = left_behind(layout, with_chains=had_run)
        if rest:
            raise DevError(f"left behind: {', '.join(rest)}")
        say("the cluster is gone")


def start_node(layout: Layout, node: Node) -> None:
    """Bring a killed node back and wait until it is Ready."""
    require_root()
    with locked(_lock(layout)):
        plane = full_control_plane(layout, read_options(layout))
        begin_node(plane, node)
        api = api_as(plane, "admin")
        await_nodes(plane, api, {node: start_kubelet(plane, node)})


def kill_api(layout: Layout) -> None:
    """End API server and etcd at once; all else goes on."""
    with locked(_lock(layout)):
        processes_of(layout).stop("kube-apiserver", "etcd", kill=True)


def freeze_api(layout: Layout, *, frozen: bool) -> None:
    """Have the API server stand still with all its connections, or go on."""
    with locked(_lock(layout)):
        processes_of(layout).signal("kube-apiserver", signal.SIGSTOP if frozen else signal.SIGCONT)


def start_api(layout: Layout) -> None:
    """Start them again, and those of their clients that have ended meanwhile; wait until the API answers."""
    with locked(_lock(layout)):
        plane = full_control_plane(layout, read_options(layout))
        start_control_plane(plane)
        start_services(plane)


def start_api_only(plane: ControlPlane, crds: Iterable[dict[str, Any]] = ()) -> Path:
    """Start a control plane without nodes, with these CRDs; needs no root when its state folder needs none."""
    with locked(_lock(plane.layout)):
        return start_control_plane(plane, crds)


def stop_api_only(plane: ControlPlane) -> None:
    """Stop a control plane without nodes and forget its state."""
    with locked(_lock(plane.layout)):
        processes_of(plane.layout).stop(*control_plane_names(plane), kill=True)
        shutil.rmtree(plane.layout.state, ignore_errors=True)


def status(plane: ControlPlane) -> dict[str, Any]:
    """Describe the cluster as data."""
    layout = plane.layout
    processes = processes_of(layout)
    return {
        "healthy": is_healthy(plane),
        "kubeconfig": str(layout.kubeconfig),
        "server": f"https://{plane.host}:{plane.api_port}",
        "auditLog": str(layout.audit_log),
        "state": str(layout.state),
        "volumes": str(layout.volumes),
        "options": asdict(plane.options),
        "processes": {
            record.name: {
                "pid": record.pid,
                "running": processes.running(record.name),
                "log": str(processes.log(record.name)),
            }
            for record in processes.records()
        },
    }


def is_healthy(plane: ControlPlane) -> bool:
    """Tell whether every process runs, the API answers and the nodes are Ready."""
    processes = processes_of(plane.layout)
    if not all(processes.running(name) for name in _process_names(plane)):
        return False
    api = api_as(plane, "admin")
    nodes = NODES if plane.has_nodes else ()
    return api.ready() and all(node_is_ready(api, node) for node in nodes)


def read_options(layout: Layout) -> Options:
    """Return the options of the running cluster, else the defaults."""
    try:
        return Options(**json.loads(layout.options_file.read_text()))
    except FileNotFoundError:
        return Options()


def require_root() -> None:
    """Refuse early: containers, bridges and mounts need root."""
    if os.geteuid() != 0:
        raise DevError("real nodes need root; without root there is `control-plane up`")


def _process_names(plane: ControlPlane) -> list[str]:
    """Return every process that has to run."""
    names = list(control_plane_names(plane))
    if plane.has_nodes:
        names += [*service_names(), *([POLICIES] if are_enforced(plane) else ())]
        for node in NODES:
            names += [containerd_name(node), kubelet_name(node)]
    return names


def _prepare(plane: ControlPlane) -> None:
    ensure_packages()
    for name in ("etcd", "kubernetes", "coredns"):
        ensure(name)
    layout = plane.layout
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o711)
    layout.volumes.mkdir(exist_ok=True, mode=0o711)
    processes = processes_of(layout)
    if not any(processes.running(record.name) for record in processes.records()):
        # Nothing of a former run lives: what it left in the kernel would only confuse this one.
        clean_nodes(layout)
    ensure_network()
    layout.options_file.write_text(json.dumps(asdict(plane.options)))


def _start(plane: ControlPlane) -> None:
    start = time.monotonic()
    say("starting the control plane and two nodes")
    begin_control_plane(plane)
    with ThreadPoolExecutor() as pool:
        nodes = [pool.submit(begin_node, plane, node) for node in NODES]
        await_control_plane(plane)
        for node in nodes:
            node.result()
    _say_since(start, "API server ready")
    start_controllers(plane)
    starts = {node: start_kubelet(plane, node) for node in NODES}
    api = api_as(plane, "admin")
    apply_addons(api)
    start_services(plane)
    await_nodes(plane, api, starts)
    follow_options(plane)
    _say_since(start, "nodes Ready")
    for name in _process_names(plane):
        processes_of(plane.layout).require(name)


def _is_current(layout: Layout) -> bool:
    """Tell whether the same code brought the cluster up; other code may configure it otherwise."""
    file = layout.code_file
    return file.exists() and file.read_text() == _code_digest()


def _code_digest() -> str:
    return tree_digest([_HERE, TOOLS], base=TOOLS.parent)


def _say_since(start: float, what: str) -> None:
    say(f"{what} after {time.monotonic() - start:.1f} s")


def _lock(layout: Layout) -> str:
    return f"cluster-{digest([str(layout.state).encode()])}"
