"""What our cluster-scoped objects belong to, so that Kubernetes collects them when Helm removes the release."""

from inference_operator.kube.ports import KubeClient, Raw

_API = "rbac.authorization.k8s.io/v1"


async def owners(kube: KubeClient, name: str) -> list[Raw]:
    """Owner references to the release's ClusterRole; none where the operator was told of none. Raises OperatorError.

    A cluster-scoped object may only belong to another such, and the release has no other that comes and goes with the metrics API.
    """
    if not name:
        return []
    role = await kube.get(f"/apis/{_API}/clusterroles/{name}")
    return [{"apiVersion": _API, "kind": "ClusterRole", "name": name, "uid": role["metadata"]["uid"]}]
