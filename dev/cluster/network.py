"""The machine's side of the cluster network: a bridge for addresses, routes, a fence around pods.

Pods and services use private ranges. Every such packet must end on one of our bridges: a range is
routed there before anything uses it, and what would leave a pod by another device is refused.
"""

import shlex
import subprocess
from pathlib import Path

from dev.cluster.layout import (
    CONTROL_ADDRESS,
    CONTROL_BRIDGE,
    NODES,
    POD_RANGE,
    PREFIX,
    SERVICE_RANGE,
    Node,
)
from dev.console import DevError

_FENCE = "INFDEV-FENCE"
_FIREWALLS = ("iptables", "ip6tables")
# Higher than the metric of a pod bridge's own route, which must win.
_FALLBACK_METRIC = "4096"


def ensure_network() -> None:
    """Create bridge, addresses, routes, forwarding and the fence; what exists stays."""
    if not _device_exists(CONTROL_BRIDGE):
        _run("ip", "link", "add", CONTROL_BRIDGE, "type", "bridge")
    _run("ip", "link", "set", CONTROL_BRIDGE, "up")
    for address in (CONTROL_ADDRESS, *(node.address for node in NODES)):
        _run("ip", "address", "replace", f"{address}/32", "dev", CONTROL_BRIDGE)
    for target in (SERVICE_RANGE, POD_RANGE):
        _run("ip", "route", "replace", target, "dev", CONTROL_BRIDGE, "metric", _FALLBACK_METRIC)
    _set("net/ipv4/ip_forward", "1")
    # Replies between two pods of one bridge must pass conntrack, or services break between them.
    _set("net/bridge/bridge-nf-call-iptables", "1")
    _ensure_fence()


def remove_network(kube_proxy: Path | None) -> None:
    """Remove bridges, routes and rules; forwarding stays as it is, others may need it by now.

    Without a kube-proxy of ours its chains are a stranger's, and stay.
    """
    while _try("iptables", "-w", "-D", "FORWARD", "-j", _FENCE):
        pass
    _try("iptables", "-w", "-F", _FENCE)
    _try("iptables", "-w", "-X", _FENCE)
    if kube_proxy is not None and _kube_chains():
        _try(str(kube_proxy), "--cleanup")
        drop_chains()
    for node in NODES:
        end_silence(node)
    for device in _own_devices():
        _try("ip", "link", "delete", device)


def silence(node: Node) -> None:
    """Drop what goes to and comes from the pods of a node: a dead machine doesn't even say that a connection is closed."""
    for rule in _silent_rules(node):
        if not _try("iptables", "-w", "-t", "mangle", "-C", *rule):
            _run("iptables", "-w", "-t", "mangle", "-I", *rule)


def end_silence(node: Node) -> None:
    """Let the node's pods be heard again."""
    for rule in _silent_rules(node):
        while _try("iptables", "-w", "-t", "mangle", "-D", *rule):
            pass


def _silent_rules(node: Node) -> tuple[tuple[str, ...], ...]:
    # Before and after addresses of Services are translated, where a pod's own address is seen.
    return ("PREROUTING", "-s", node.pod_subnet, "-j", "DROP"), ("POSTROUTING", "-d", node.pod_subnet, "-j", "DROP")


def leftovers(*, with_chains: bool) -> list[str]:
    """Name the kernel's network objects of ours that still exist."""
    chains = _kube_chains() if with_chains else []
    return [*_own_devices(), *map("/".join, chains)]


def _ensure_fence() -> None:
    _try("iptables", "-w", "-N", _FENCE)
    if not _try("iptables", "-w", "-C", "FORWARD", "-j", _FENCE):
        _run("iptables", "-w", "-I", "FORWARD", "1", "-j", _FENCE)
    _run("iptables", "-w", "-F", _FENCE)
    own = f"{PREFIX}+"
    _run("iptables", "-w", "-A", _FENCE, "-s", POD_RANGE, "!", "-o", own, "-j", "REJECT")
    _run("iptables", "-w", "-A", _FENCE, "-d", POD_RANGE, "!", "-i", own, "-j", "REJECT")


def _kube_chains(prefixes: tuple[str, ...] = ("KUBE-",)) -> list[tuple[str, str, str]]:
    """Return (program, table, chain) of every chain that a part of Kubernetes made."""
    found = []
    for program in _FIREWALLS:
        for table in ("filter", "nat", "mangle"):
            names = (line.split()[1] for line in _rules(program, table) if line.startswith("-N "))
            found += [(program, table, name) for name in names if name.startswith(prefixes)]
    return found


def drop_chains(prefixes: tuple[str, ...] = ("KUBE-",)) -> None:
    """Remove chains, such as `kube-proxy --cleanup` leaves: first the jumps from built-in ones."""
    chains = _kube_chains(prefixes)
    for program, table in sorted({(program, table) for program, table, _ in chains}):
        for line in _rules(program, table):
            if line.startswith("-A ") and any(f" -j {prefix}" in line for prefix in prefixes):
                _try(program, "-w", "-t", table, "-D", *shlex.split(line)[1:])
    for action in ("-F", "-X"):
        for program, table, chain in chains:
            _try(program, "-w", "-t", table, action, chain)


def _rules(program: str, table: str) -> list[str]:
    command = [program, "-w", "-t", table, "-S"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    return listing.stdout.splitlines()


def _own_devices() -> list[str]:
    names = {CONTROL_BRIDGE, *(node.bridge for node in NODES)}
    return sorted(name for name in names if _device_exists(name))


def _device_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


def _set(key: str, value: str) -> None:
    path = Path("/proc/sys") / key
    if path.exists() and path.read_text().strip() != value:
        path.write_text(value)


def _try(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"{' '.join(command)}: {result.stderr.strip()}")
