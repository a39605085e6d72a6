"""NetworkPolicies that hold: kube-router's firewall makes iptables rules and ipsets of them, for the pods of one node.

It takes only the pods of the node that it is told to be on for local, and a second one would remove the rules of the first from
the kernel that both nodes share. So it stands for the first node, and pods of the other are neither guarded nor held back.
"""

import subprocess

from dev.cluster.control_plane import processes_of
from dev.cluster.layout import NODES, SERVICE_RANGE, ControlPlane
from dev.cluster.network import drop_chains
from dev.packages import ensure_packages
from dev.tools import ensure

NAME = "kube-router"
NODE = NODES[0].name
_CHAINS = ("KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-")
_SETS = ("KUBE-SRC-", "KUBE-DST-")


def are_enforced(plane: ControlPlane) -> bool:
    """Tell whether the options ask for it."""
    return plane.options.network_policies == "on"


def follow_options(plane: ControlPlane) -> None:
    """Start the firewall, or end it and remove its rules."""
    processes = processes_of(plane.layout)
    if not are_enforced(plane):
        if processes.record(NAME) is not None:
            processes.stop(NAME)
            remove_rules()
        return
    ensure_packages(("ipset",))
    processes.ensure(
        NAME,
        [
            str(ensure("kube-router") / "kube-router"),
            f"--kubeconfig={plane.layout.config / 'kube-router.kubeconfig'}",
            f"--hostname-override={NODE}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--enable-cni=false",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--health-port=0",
        ],
    )


def remove_rules() -> None:
    """Remove the rules and sets that a firewall left: it takes nothing along."""
    drop_chains(_CHAINS)
    for name in left_sets():
        subprocess.run(["ipset", "destroy", name], capture_output=True, check=False)


def left_sets() -> list[str]:
    """Name the sets of a firewall that still exist."""
    try:
        listed = subprocess.run(["ipset", "list", "-name"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return [name for name in listed.stdout.split() if name.startswith(_SETS)]
