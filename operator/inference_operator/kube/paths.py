"""Paths of the API."""

from inference_operator.api import job, model
from inference_operator.api.schema import API_VERSION
from inference_operator.state import kueue
from inference_operator.state.objects import Key


def namespaced(namespace: str | None, plural: str, *, core: bool = False) -> str:
    """A collection: of one namespace, or of all."""
    root = "/api/v1" if core else f"/apis/{API_VERSION}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def pods(namespace: str | None) -> str:
    """Pods."""
    return namespaced(namespace, "pods", core=True)


def pod(key: Key) -> str:
    """One pod."""
    return f"{pods(key.namespace)}/{key.name}"


def services(namespace: str | None) -> str:
    """Services."""
    return namespaced(namespace, "services", core=True)


def endpoints(key: Key) -> str:
    """The Endpoints of one Service."""
    return f"{namespaced(key.namespace, 'endpoints', core=True)}/{key.name}"


def slices(namespace: str | None) -> str:
    """EndpointSlices."""
    root = "/apis/discovery.k8s.io/v1"
    return f"{root}/namespaces/{namespace}/endpointslices" if namespace else f"{root}/endpointslices"


def one_slice(key: Key) -> str:
    """One EndpointSlice."""
    return f"{slices(key.namespace)}/{key.name}"


def nodes(_: str | None = None) -> str:
    """Nodes, which are in no namespace."""
    return "/api/v1/nodes"


def volumes(_: str | None = None) -> str:
    """PersistentVolumes, which are in no namespace."""
    return "/api/v1/persistentvolumes"


def claims(namespace: str | None) -> str:
    """PersistentVolumeClaims."""
    return namespaced(namespace, "persistentvolumeclaims", core=True)


def jobs(namespace: str | None) -> str:
    """InferenceJobs."""
    return namespaced(namespace, job.PLURAL)


def one_job(key: Key) -> str:
    """One InferenceJob."""
    return f"{jobs(key.namespace)}/{key.name}"


def models(namespace: str | None) -> str:
    """InferenceModels."""
    return namespaced(namespace, model.PLURAL)


def one_model(key: Key) -> str:
    """One InferenceModel."""
    return f"{models(key.namespace)}/{key.name}"


def events(namespace: str) -> str:
    """Events."""
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def lease(namespace: str, name: str) -> str:
    """One Lease."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def leases(namespace: str) -> str:
    """Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def autoscalers(namespace: str | None) -> str:
    """HorizontalPodAutoscalers."""
    root = "/apis/autoscaling/v2"
    return f"{root}/namespaces/{namespace}/horizontalpodautoscalers" if namespace else f"{root}/horizontalpodautoscalers"


def budgets(namespace: str | None) -> str:
    """PodDisruptionBudgets."""
    root = "/apis/policy/v1"
    return f"{root}/namespaces/{namespace}/poddisruptionbudgets" if namespace else f"{root}/poddisruptionbudgets"


def one_budget(key: Key) -> str:
    """One PodDisruptionBudget."""
    return f"{budgets(key.namespace)}/{key.name}"


def one_autoscaler(key: Key) -> str:
    """One HorizontalPodAutoscaler."""
    return f"{autoscalers(key.namespace)}/{key.name}"


def workloads(namespace: str | None) -> str:
    """Kueue's Workloads."""
    root = f"/apis/{kueue.GROUP}/{kueue.VERSION}"
    return f"{root}/namespaces/{namespace}/workloads" if namespace else f"{root}/workloads"


def one_workload(key: Key) -> str:
    """One Workload."""
    return f"{workloads(key.namespace)}/{key.name}"


def flavors(_: str | None = None) -> str:
    """Kueue's ResourceFlavors, which are in no namespace."""
    return f"/apis/{kueue.GROUP}/{kueue.VERSION}/resourceflavors"


def priority_classes(_: str | None = None) -> str:
    """PriorityClasses, which are in no namespace."""
    return "/apis/scheduling.k8s.io/v1/priorityclasses"
