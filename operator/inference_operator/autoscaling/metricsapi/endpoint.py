"""The EndpointSlice of the metrics API's Service: the leader, and nobody else.

Kubernetes leaves a pod of a dead node in its slices until the node's grace period is over, 50 s by default. Until then every second
request for a metric fails, and no namespace can be deleted, because that asks every API of the cluster. A leader is followed within
seconds, so the Service has no selector, and whoever leads says where it leads.
"""

import logging
from dataclasses import dataclass

from inference_operator.api import names
from inference_operator.kube import paths
from inference_operator.kube.ports import ClaimingClient, Raw
from inference_operator.state.endpoints import LABEL_SERVICE, LABEL_WRITER, WRITER, family_of
from inference_operator.state.objects import Key

log = logging.getLogger(__name__)

PORT_NAME = "custom-metrics"


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the operator, and its address."""

    pod: str
    address: str


class LeaderEndpoint:
    """Leads the Service to this pod."""

    def __init__(self, kube: ClaimingClient, *, namespace: str, service: str, port: int, replica: Replica) -> None:
        """The Service belongs to the chart."""
        self._kube = kube
        self._service = Key(namespace, service)
        self._port = port
        self._replica = replica

    async def once(self) -> None:
        """Look where it leads, and correct that. Raises OperatorError."""
        service = await self._kube.get(f"{paths.services(self._service.namespace)}/{self._service.name}")
        wanted = leader_slice(self._service, service["metadata"]["uid"], self._replica, port=self._port)
        path = paths.one_slice(Key(self._service.namespace, wanted["metadata"]["name"]))
        applied = await self._kube.apply(path, wanted)
        log.debug("%s leads to %s", applied["metadata"]["name"], self._replica.address)


def leader_slice(service: Key, uid: str, replica: Replica, *, port: int) -> Raw:
    """Return the slice. Its name tells the family of its address, which no slice can change."""
    family = family_of(replica.address)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service.name}-{family.lower()}",
            "namespace": service.namespace,
            "labels": {LABEL_SERVICE: service.name, LABEL_WRITER: WRITER, names.LABEL_MANAGED_BY: names.MANAGED_BY},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service.name, "uid": uid}],
        },
        "addressType": family,
        "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP", "appProtocol": "https"}],
        "endpoints": [
            {
                "addresses": [replica.address],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "namespace": service.namespace, "name": replica.pod},
            }
        ],
    }
