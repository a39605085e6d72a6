"""etcd, API server, controller manager and scheduler as plain processes of the machine."""

import json
from collections.abc import Iterable
from pathlib import Path

from dev.cluster.api import Api, Json, api_as
from dev.cluster.files import write_if_changed
from dev.cluster.layout import CLUSTER_DOMAIN, POD_RANGE, SERVICE_RANGE, ClientLimits, ControlPlane, Layout
from dev.cluster.pki import ensure_pki, write_kubeconfig
from dev.cluster.processes import Processes
from dev.console import wait_until
from dev.tools import ensure

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    # Of endpoints all is kept: who was sent where tells why a request was lost.
    "rules": [
        {"level": "Request", "resources": [{"group": "discovery.k8s.io"}], "verbs": ["create", "patch", "update"]},
        {"level": "Metadata"},
    ],
}


def processes_of(layout: Layout) -> Processes:
    """Return the process table of a cluster."""
    return Processes(run=layout.run, logs=layout.logs)


def start_control_plane(plane: ControlPlane, crds: Iterable[Json] = ()) -> Path:
    """Start what does not run, wait for the API, return the administrator's kubeconfig.

    The garbage collector looks for new kinds every half minute; those of `crds` it knows from its start.
    """
    begin_control_plane(plane)
    await_control_plane(plane)
    install_crds(api_as(plane, "admin"), crds)
    start_controllers(plane)
    return plane.layout.kubeconfig


def install_crds(api: Api, crds: Iterable[Json]) -> None:
    """Create CustomResourceDefinitions, and wait until they are established."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = [api.create(path, crd)["metadata"]["name"] for crd in crds]

    def established() -> bool:
        # A fresh one has `conditions: null`.
        found = [api.get(f"{path}/{name}").get("status", {}).get("conditions") or () for name in names]
        return all(any(one["type"] == "Established" and one["status"] == "True" for one in those) for those in found)

    wait_until("the CRDs", established, timeout_seconds=60)


def begin_control_plane(plane: ControlPlane) -> None:
    """Write certificates and configuration; start etcd and the API server without waiting."""
    ensure_pki(plane)
    _write_configuration(plane)
    processes = processes_of(plane.layout)
    processes.ensure("etcd", _etcd(plane))
    processes.ensure("kube-apiserver", _api_server(plane, ensure("kubernetes")))


def start_controllers(plane: ControlPlane) -> None:
    """Start what speaks to the API server; before it is ready they would end: no permissions."""
    processes = processes_of(plane.layout)
    kubernetes = ensure("kubernetes")
    processes.ensure("kube-controller-manager", _controller_manager(plane, kubernetes))
    if plane.has_scheduler:
        processes.ensure("kube-scheduler", _scheduler(plane, kubernetes))


def await_control_plane(plane: ControlPlane) -> None:
    """Wait until the API server says that it is ready, or one of the two it needs has ended."""
    processes = processes_of(plane.layout)

    def check() -> None:
        processes.require("etcd")
        processes.require("kube-apiserver")

    api = api_as(plane, "admin")
    wait_until("the API server", api.ready, timeout_seconds=90, check_alive=check)


def control_plane_names(plane: ControlPlane) -> tuple[str, ...]:
    """Return the process names in the order in which they are stopped."""
    scheduler = ("kube-scheduler",) if plane.has_scheduler else ()
    return (*scheduler, "kube-controller-manager", "kube-apiserver", "etcd")


def _write_configuration(plane: ControlPlane) -> None:
    config = plane.layout.config
    config.mkdir(parents=True, exist_ok=True)
    write_if_changed(config / "audit-policy.json", json.dumps(_AUDIT_POLICY))
    for identity in ("controller-manager", "scheduler", "proxy", "coredns", "kube-router"):
        write_kubeconfig(plane, identity=identity, target=config / f"{identity}.kubeconfig")
    write_kubeconfig(plane, identity="admin", target=plane.layout.kubeconfig)


def _etcd(plane: ControlPlane) -> list[str]:
    client = f"http://127.0.0.1:{plane.etcd_port}"
    peer = f"http://127.0.0.1:{plane.etcd_port + 1}"
    return [
        str(ensure("etcd") / "etcd"),
        "--name=dev",
        f"--data-dir={plane.layout.state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=dev={peer}",
        # This data may be lost with the machine; a sync for every write costs most of the speed.
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={8 * 1024**3}",
        "--log-level=warn",
    ]


def _api_server(plane: ControlPlane, programs: Path) -> list[str]:
    pki = plane.layout.pki
    return [
        str(programs / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}",
        f"--bind-address={plane.host}",
        f"--advertise-address={plane.host}",
        f"--secure-port={plane.api_port}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--audit-policy-file={plane.layout.config / 'audit-policy.json'}",
        f"--audit-log-path={plane.layout.audit_log}",
        "--audit-log-maxsize=500",
        "--audit-log-maxbackup=1",
        *_kubelet_client_flags(pki),
        *_aggregation_flags(pki),
        *_node_flags(plane),
        *_priority_flags(plane),
    ]


def _kubelet_client_flags(pki: Path) -> list[str]:
    return [
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        # Without it logs and exec look the node's name up in DNS, where it does not exist.
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _aggregation_flags(pki: Path) -> list[str]:
    return [
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
    ]


def _node_flags(plane: ControlPlane) -> list[str]:
    if plane.has_nodes:
        return ["--enable-admission-plugins=NodeRestriction", "--allow-privileged=true"]
    # Nobody makes service accounts here, and a loopback address cannot be published as an endpoint.
    return ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]


def _priority_flags(plane: ControlPlane) -> list[str]:
    if not plane.one_priority_level:
        return []
    return ["--enable-priority-and-fairness=false", "--max-requests-inflight=800", "--max-mutating-requests-inflight=400"]


def _controller_manager(plane: ControlPlane, programs: Path) -> list[str]:
    pki = plane.layout.pki
    kubeconfig = plane.layout.config / "controller-manager.kubeconfig"
    return [
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.controller_manager_port}",
        f"--controllers={','.join(plane.controllers)}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--cluster-cidr={POD_RANGE}",
        "--allocate-node-cidrs=false",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--horizontal-pod-autoscaler-sync-period={plane.options.hpa_sync_period}",
        f"--node-monitor-grace-period={plane.options.node_monitor_grace_period}",
        f"--concurrent-job-syncs={plane.job_syncs}",
        *_limit_flags(plane.controller_limits),
    ]


def _scheduler(plane: ControlPlane, programs: Path) -> list[str]:
    kubeconfig = plane.layout.config / "scheduler.kubeconfig"
    return [
        str(programs / "kube-scheduler"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.scheduler_port}",
        "--leader-elect=false",
        *_limit_flags(plane.scheduler_limits),
    ]


def _limit_flags(limits: ClientLimits) -> list[str]:
    return [f"--kube-api-qps={limits.rate}", f"--kube-api-burst={limits.burst}"]
