"""Where the cluster keeps its files and which addresses it uses; values only, nothing acts."""

import os
from dataclasses import dataclass, field
from pathlib import Path

# One prefix for every kernel object (bridges, cgroups), so that clean-up recognises its own.
PREFIX = "infdev"
CONTROL_BRIDGE = f"{PREFIX}0"
CONTROL_ADDRESS = "10.211.0.1"
POD_RANGE = "10.212.0.0/16"
SERVICE_RANGE = "10.213.0.0/16"
API_SERVICE_ADDRESS = "10.213.0.1"
DNS_SERVICE_ADDRESS = "10.213.0.10"
DNS_PORT = 10053
CLUSTER_DOMAIN = "cluster.local"
KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one cluster below one state folder."""

    state: Path

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.state / "pki"

    @property
    def run(self) -> Path:
        """One record a process: pid, start time, command."""
        return self.state / "run"

    @property
    def logs(self) -> Path:
        """Output of the processes."""
        return self.state / "logs"

    @property
    def config(self) -> Path:
        """Generated configuration files."""
        return self.state / "config"

    @property
    def volumes(self) -> Path:
        """Folders behind the claims of StorageClass shared."""
        return self.state / "volumes"

    @property
    def audit_log(self) -> Path:
        """Every request to the API server, at level Metadata, one JSON object a line."""
        return self.state / "audit.log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state / "kubeconfig"

    @property
    def options_file(self) -> Path:
        """The options of the running cluster, kept for an `up` that names none."""
        return self.state / "options.json"

    @property
    def code_file(self) -> Path:
        """The digest of the code that brought the cluster up."""
        return self.state / "code"

    def node(self, name: str) -> Path:
        """Return the folder of one node."""
        return self.state / "nodes" / name


def default_layout() -> Layout:
    """Return the layout that INFERENCE_DEV_STATE chooses."""
    return Layout(Path(os.environ.get("INFERENCE_DEV_STATE") or "/var/lib/inference-operator-dev"))


def api_only_layout() -> Layout:
    """Return the layout of the cluster without nodes; it lives beside the full one."""
    state = default_layout().state
    return Layout(state.with_name(f"{state.name}-api"))


@dataclass(frozen=True, slots=True)
class Options:
    """What a developer may choose for the full cluster."""

    # The controller manager's own default; shorter makes scaling tests quicker.
    hpa_sync_period: str = "15s"
    # How long an unreachable node stays Ready; the upstream default.
    node_monitor_grace_period: str = "50s"
    # The longest that the kubelet waits before it starts a crashed container again; the upstream default.
    max_container_restart_period: str = "300s"
    # Whether NetworkPolicies hold for pods of the first node: on or off.
    network_policies: str = "off"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Requests a second and at once of one component's client of the API server."""

    rate: int = 200
    burst: int = 400


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One control plane: addresses, ports and which controllers run."""

    layout: Layout
    host: str = CONTROL_ADDRESS
    api_port: int = 6443
    etcd_port: int = 23790
    controller_manager_port: int = 10257
    controllers: tuple[str, ...] = ("*",)
    # Without nodes: no admission of service accounts, no published endpoint.
    has_nodes: bool = True
    has_scheduler: bool = True
    scheduler_port: int = 10259
    # The controller manager's default of 20 requests a second is the bottleneck once hundreds of Jobs are made.
    controller_limits: ClientLimits = ClientLimits()
    scheduler_limits: ClientLimits = ClientLimits()
    # Jobs that the Job controller looks at side by side; its default.
    job_syncs: int = 5
    # Benchmarks: all clients wait in one line, instead of by who they are.
    one_priority_level: bool = False
    options: Options = field(default_factory=Options)


def full_control_plane(layout: Layout, options: Options) -> ControlPlane:
    """Return the control plane that serves real nodes."""
    return ControlPlane(layout=layout, options=options)


def api_only_control_plane(layout: Layout, *, port_base: int = 16443) -> ControlPlane:
    """Return a control plane on loopback for tests of API and scale; `port_base` moves it."""
    return ControlPlane(
        layout=layout,
        host="127.0.0.1",
        api_port=port_base,
        etcd_port=port_base + 1,
        controller_manager_port=port_base + 3,
        scheduler_port=port_base + 4,
        controllers=("job-controller", "garbage-collector-controller", "namespace-controller"),
        has_nodes=False,
        has_scheduler=False,
    )


@dataclass(frozen=True, slots=True)
class Node:
    """One real node: its own containerd, kubelet, bridge and subnet on the shared machine."""

    name: str
    address: str
    pod_subnet: str
    gateway: str
    bridge: str
    zone: str
    gpus: int = 0
    extra_labels: tuple[tuple[str, str], ...] = ()

    @property
    def cgroup(self) -> str:
        """The cgroup above all containers of this node."""
        return f"{PREFIX}-{self.name}"

    def labels(self) -> dict[str, str]:
        """Return the labels that the kubelet registers with."""
        place = {
            "topology.kubernetes.io/region": "local",
            "topology.kubernetes.io/zone": self.zone,
        }
        return {**place, **dict(self.extra_labels)}


NODES: tuple[Node, ...] = (
    Node(
        name="cpu-1",
        address="10.211.0.11",
        pod_subnet="10.212.1.0/24",
        gateway="10.212.1.1",
        bridge=f"{PREFIX}-cpu-1",
        zone="zone-a",
    ),
    Node(
        name="gpu-1",
        address="10.211.0.12",
        pod_subnet="10.212.2.0/24",
        gateway="10.212.2.1",
        bridge=f"{PREFIX}-gpu-1",
        zone="zone-b",
        gpus=4,
        # The product name says SIMULATED: nobody must take a number measured here for one of a GPU.
        extra_labels=(
            ("nvidia.com/gpu.present", "true"),
            ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-SIMULATED"),
            ("nvidia.com/gpu.count", "4"),
            ("nvidia.com/gpu.memory", "40960"),
        ),
    ),
)


def node_named(name: str) -> Node | None:
    """Return the node of that name, if there is one."""
    return next((node for node in NODES if node.name == name), None)
