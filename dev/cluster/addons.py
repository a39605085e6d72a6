"""Objects that a fresh cluster gets: the default StorageClass and the cluster's DNS service."""

from dev.cluster.api import Api, Json
from dev.cluster.layout import CONTROL_ADDRESS, DNS_PORT, DNS_SERVICE_ADDRESS

STORAGE_CLASS = "shared"
PROVISIONER = "inference.myorg/dev-shared"
_READ = ["list", "watch"]
_DNS_RULES: list[Json] = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": _READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
]
_FIREWALL_RULES: list[Json] = [
    {"apiGroups": [""], "resources": ["services", "endpoints", "pods", "namespaces"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", *_READ]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _READ},
]


def apply_addons(api: Api) -> None:
    """Create or correct the objects."""
    for path, body in _objects():
        api.apply(path, body)


def _objects() -> list[tuple[str, Json]]:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    storage = f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE_CLASS}"
    system = "/api/v1/namespaces/kube-system/services/kube-dns"
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns"
    return [
        (storage, _storage_class()),
        (f"{rbac}/clusterroles/dev-coredns", _role("dev-coredns", _DNS_RULES)),
        (f"{rbac}/clusterrolebindings/dev-coredns", _binding("dev-coredns")),
        (f"{rbac}/clusterroles/dev-kube-router", _role("dev-kube-router", _FIREWALL_RULES)),
        (f"{rbac}/clusterrolebindings/dev-kube-router", _binding("dev-kube-router")),
        (system, _dns_service()),
        (slices, _dns_endpoint()),
    ]


def _storage_class() -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": annotations},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def _role(name: str, rules: list[Json]) -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _binding(name: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }


def _dns_service() -> Json:
    # No selector: the server is a process of the machine, named by the endpoint slice below.
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": DNS_PORT},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": DNS_PORT},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_SERVICE_ADDRESS, "ports": ports},
    }


def _dns_endpoint() -> Json:
    labels = {"kubernetes.io/service-name": "kube-dns"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_ADDRESS], "conditions": {"ready": True}}],
        "ports": [
            {"name": "dns", "port": DNS_PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "port": DNS_PORT, "protocol": "TCP"},
        ],
    }
