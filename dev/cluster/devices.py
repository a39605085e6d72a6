"""Keep simulated GPUs on their node: a kubelet that registers anew forgets foreign resources."""

from http import HTTPStatus

from dev.cluster.api import Api, ApiError, Json
from dev.cluster.layout import GPU_RESOURCE, Node


def offer_devices(api: Api, node: Node) -> None:
    """Write the node's device count into its status if it is not there."""
    try:
        status: Json = api.get(f"/api/v1/nodes/{node.name}").get("status", {})
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return
        raise
    wanted = str(node.gpus)
    places = ("capacity", "allocatable")
    if all(status.get(place, {}).get(GPU_RESOURCE) == wanted for place in places):
        return
    patch = {"status": {place: {GPU_RESOURCE: wanted} for place in places}}
    api.merge(f"/api/v1/nodes/{node.name}/status", patch)
