"""Configuration files of a node's containerd, CNI and kubelet, as data."""

import json
from pathlib import Path

from dev.cluster.files import write_if_changed, write_versioned
from dev.cluster.layout import (
    CLUSTER_DOMAIN,
    DNS_SERVICE_ADDRESS,
    KUBELET_HEALTH_PORT,
    KUBELET_PORT,
    PREFIX,
    ControlPlane,
    Node,
    Options,
)
from dev.cluster.pki import write_kubeconfig

_CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{folder}/runc"
"""


def socket_of(folder: Path) -> Path:
    """Return the socket of the containerd that lives in a node's folder."""
    return folder / "containerd.sock"


def cni_network(node: Node) -> str:
    """Return the name under which CNI remembers this node's attachments."""
    return f"{PREFIX}-{node.name}"


def write_containerd_configuration(node: Node, folder: Path, *, pause: str) -> Path:
    """Write what containerd and the CNI plugins read; return containerd's file."""
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    write_if_changed(folder / "cni" / "10-bridge.conflist", json.dumps(_cni(node, folder)))
    settings = _CONTAINERD.format(folder=folder, pause=pause)
    return write_versioned(folder, "containerd", "toml", settings)


def write_kubelet_configuration(plane: ControlPlane, node: Node) -> Path:
    """Write what the kubelet reads; return its file."""
    folder = plane.layout.node(node.name)
    write_if_changed(folder / "resolv.conf", f"nameserver {DNS_SERVICE_ADDRESS}\n")
    identity = f"kubelet-{node.name}"
    write_kubeconfig(plane, identity=identity, target=folder / "kubelet.kubeconfig")
    return write_versioned(folder, "kubelet", "json", json.dumps(_kubelet(plane, node, folder)))


def _cni(node: Node, folder: Path) -> dict[str, object]:
    return {
        "cniVersion": "0.4.0",
        "name": cni_network(node),
        "plugins": [
            {
                "type": "bridge",
                "bridge": node.bridge,
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder / "ipam"),
                    "ranges": [[{"subnet": node.pod_subnet, "gateway": node.gateway}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _kubelet(plane: ControlPlane, node: Node, folder: Path) -> dict[str, object]:
    pki = plane.layout.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": KUBELET_PORT,
        "healthzBindAddress": node.address,
        "healthzPort": KUBELET_HEALTH_PORT,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"kubelet-{node.name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"kubelet-{node.name}.key"),
        "containerRuntimeEndpoint": f"unix://{socket_of(folder)}",
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "serializeImagePulls": False,
        # Signs of life every four seconds, so that a grace period may be short on a busy machine.
        "nodeLeaseDurationSeconds": 16,
        "maxPods": 110,
        **_restart_settings(plane.options),
        **_shared_machine_settings(node),
    }


def _restart_settings(options: Options) -> dict[str, object]:
    """Return what makes the kubelet start crashed containers again sooner than it does by itself."""
    period = options.max_container_restart_period
    if period == Options().max_container_restart_period:
        return {}
    return {"featureGates": {"KubeletCrashLoopBackOffMax": True}, "crashLoopBackOff": {"maxContainerRestartPeriod": period}}


def _shared_machine_settings(node: Node) -> dict[str, object]:
    """Return what differs from a kubelet that owns its machine."""
    settings: dict[str, object] = {
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        # Both nodes see the whole memory: each offers half of it, so that together they do not lie.
        "systemReserved": {"memory": f"{_total_memory_mib() // 2}Mi"},
        # The disk is the developer's and may be nearly full: no reason to evict a pod.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    if node.gpus:
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        settings["registerWithTaints"] = [taint]
    return settings


def _total_memory_mib() -> int:
    line = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(line.split()[1]) // 1024
