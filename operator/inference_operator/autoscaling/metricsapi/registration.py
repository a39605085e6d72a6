"""The APIServices that send custom.metrics.k8s.io to us. A cluster has one provider: the group is taken only while it is free.

Both versions are looked at, since the HPA's client picks one for the whole group: v1beta2 of ours beside another's v1beta1 would
take every custom metric of the cluster away from that other.
"""

import base64
import logging

from inference_operator.api import names
from inference_operator.autoscaling.metricsapi.documents import METRICS_GROUP, VERSIONS
from inference_operator.autoscaling.metricsapi.owner import owners
from inference_operator.errors import ConflictError, NotFoundError
from inference_operator.kube.ports import ClaimingClient, Raw
from inference_operator.state.objects import MetricsApi, MetricsApiState

log = logging.getLogger(__name__)

API = "apiregistration.k8s.io/v1"
PATH = f"/apis/{API}/apiservices"
_PRIORITIES = {"v1beta2": 200, "v1beta1": 100}


class Registration:
    """Claims the group, keeps the claim right, and steps back for others."""

    def __init__(self, kube: ClaimingClient, *, namespace: str, service: str, owner: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._service = service
        self._owner = owner

    async def once(self, ca: str, leader: str | None = None) -> MetricsApi:
        """Look, and do what is missing; `ca` is the PEM text that our certificate is checked by. Raises OperatorError.

        `leader` is the replica that answers, once the cluster sends to it. A new one is written down: the API server asks for what
        an API has when the APIService changes, and else in a minute, for which no namespace could be deleted if it had asked a
        dead replica.
        """
        found = {version: await self._get(version) for version in VERSIONS}
        others = [raw for raw in found.values() if raw is not None and not self._is_ours(raw)]
        if others:
            for raw in found.values():
                if raw is not None and self._is_ours(raw):
                    log.warning("%s is given up: %s is served by somebody else", raw["metadata"]["name"], METRICS_GROUP)
                    await self._kube.delete(f"{PATH}/{raw['metadata']['name']}", uid=raw["metadata"]["uid"])
            return MetricsApi(MetricsApiState.TAKEN, describe(others[0]))
        owned_by = await owners(self._kube, self._owner)
        try:
            present = [await self._claim(version, raw, ca, owned_by, leader) for version, raw in found.items()]
        except ConflictError:
            # Somebody was quicker: the next look says who.
            return MetricsApi(MetricsApiState.PENDING)
        serving = all(_is_available(raw) for raw in present)
        return MetricsApi(MetricsApiState.SERVING if serving else MetricsApiState.PENDING)

    async def _get(self, version: str) -> Raw | None:
        try:
            return await self._kube.get(f"{PATH}/{version}.{METRICS_GROUP}")
        except NotFoundError:
            return None

    async def _claim(self, version: str, found: Raw | None, ca: str, owned_by: list[Raw], leader: str | None) -> Raw:
        known = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_LEADER) if found is not None else None
        wanted = self._document(version, ca, owned_by, leader or known)
        if found is None:
            log.info("%s is registered", wanted["metadata"]["name"])
            return await self._kube.claim(f"{PATH}/{wanted['metadata']['name']}", wanted)
        if _claims(found) == _claims(wanted):
            return found
        log.info("%s is brought up to date", wanted["metadata"]["name"])
        metadata = {**wanted["metadata"], "resourceVersion": found["metadata"]["resourceVersion"], "uid": found["metadata"]["uid"]}
        return await self._kube.replace(f"{PATH}/{wanted['metadata']['name']}", {**wanted, "metadata": metadata})

    def _document(self, version: str, ca: str, owned_by: list[Raw], leader: str | None) -> Raw:
        return {
            "apiVersion": API,
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{METRICS_GROUP}",
                "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY},
                **({"annotations": {names.ANNOTATION_LEADER: leader}} if leader is not None else {}),
                **({"ownerReferences": owned_by} if owned_by else {}),
            },
            "spec": {
                "group": METRICS_GROUP,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": _PRIORITIES[version],
                "service": {"namespace": self._namespace, "name": self._service, "port": 443},
                "caBundle": base64.b64encode(ca.encode()).decode(),
            },
        }

    def _is_ours(self, raw: Raw) -> bool:
        """Whether it leads to our Service, or to what our release called it before."""
        service, metadata = raw["spec"].get("service") or {}, raw["metadata"]
        if service.get("namespace") != self._namespace:
            return False
        released = any(owner["name"] == self._owner for owner in metadata.get("ownerReferences", []))
        labelled = (metadata.get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
        return bool(service.get("name") == self._service or (released and labelled))


def _claims(raw: Raw) -> object:
    """What of an APIService is ours to say."""
    spec = raw["spec"]
    owners = [owner["uid"] for owner in raw["metadata"].get("ownerReferences", [])]
    leader = (raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_LEADER)
    return owners, spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify", False), leader


def _is_available(raw: Raw) -> bool:
    conditions = (raw.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)


def describe(raw: Raw) -> str:
    """Who holds an APIService, in words."""
    service = raw["spec"].get("service")
    who = f"Service {service.get('namespace')}/{service.get('name')}" if service else "the API server itself"
    return f"{who} (APIService {raw['metadata']['name']})"
