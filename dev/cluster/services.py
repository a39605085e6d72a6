"""Processes that serve the whole cluster: kube-proxy, DNS and this project's agent."""

import json
import sys
from pathlib import Path

from dev.cluster.control_plane import processes_of
from dev.cluster.files import write_versioned
from dev.cluster.layout import (
    CLUSTER_DOMAIN,
    CONTROL_ADDRESS,
    DNS_PORT,
    NODES,
    POD_RANGE,
    ControlPlane,
)
from dev.tools import ensure

_CHECKOUT = Path(__file__).resolve().parents[2]


def service_names() -> tuple[str, ...]:
    """Return the names in the order in which they are stopped."""
    return ("agent", "coredns", "kube-proxy")


def start_services(plane: ControlPlane) -> None:
    """Start what does not run yet."""
    processes = processes_of(plane.layout)
    config = plane.layout.config
    settings = json.dumps(_proxy_configuration(config))
    proxy_file = write_versioned(config, "kube-proxy", "json", settings)
    proxy = ensure("kubernetes") / "kube-proxy"
    processes.ensure("kube-proxy", [str(proxy), f"--config={proxy_file}"])
    dns_file = write_versioned(config, "coredns", "conf", _corefile(config))
    dns = ensure("coredns") / "coredns"
    processes.ensure("coredns", [str(dns), "-conf", str(dns_file)])
    processes.ensure(
        "agent",
        [sys.executable, "-m", "dev.cluster.agent", str(plane.layout.state)],
        env={"PYTHONPATH": str(_CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _proxy_configuration(config: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        # One proxy programs the one kernel that both nodes share; it takes the first node's name.
        "hostnameOverride": NODES[0].name,
        "bindAddress": NODES[0].address,
        # Node ports answer at the node's own address only, never at one that others can reach.
        "nodePortAddresses": ["primary"],
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(config / "proxy.kubeconfig")},
        "mode": "iptables",
        "clusterCIDR": POD_RANGE,
        "detectLocalMode": "ClusterCIDR",
        "iptables": {"minSyncPeriod": "0.1s"},
        # The machine's conntrack table is not ours to resize.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _corefile(config: Path) -> str:
    """Return two zones: the cluster's, and all the rest, refused at once and asked nowhere."""
    own = f"{CLUSTER_DOMAIN}:{DNS_PORT} in-addr.arpa:{DNS_PORT}"
    return f"""\
{own} {{
    bind {CONTROL_ADDRESS}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {config / "coredns.kubeconfig"}
        pods insecure
        ttl 5
    }}
    cache 5
}}
.:{DNS_PORT} {{
    bind {CONTROL_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
