"""InferencePools: all workers of a model, by each protocol, and who picks among them. Pure.

A pool names its picker by a Service of its own namespace, so each namespace with pools has one that leads to the operator.
"""

from collections.abc import Iterable, Mapping

from inference_operator.api import names
from inference_operator.gateway.clusters import PORTS
from inference_operator.gateway.gatewayapi.objects import POOL, SERVICE, SLICE, Owned, Owners, manifest, pool_name
from inference_operator.gateway.manifests import Manifest
from inference_operator.gateway.snapshot import Service
from inference_operator.settings import EndpointPicker
from inference_operator.state.endpoints import LABEL_SERVICE, LABEL_WRITER, WRITER
from inference_operator.state.objects import Key

# By the addresses' family: the endpoints of the operator's replicas, as they stand in the slices of its own Service.
Replicas = Mapping[str, list[Manifest]]


def pools(services: Iterable[Service], owners: Owners, picker: EndpointPicker, replicas: Replicas) -> tuple[Owned, ...]:
    """The pools of each model, owned by the jobs of its default version, and what leads to the picker."""
    found: list[Owned] = []
    firsts: dict[str, Key] = {}
    for service in services:
        firsts.setdefault(service.namespace, service.jobs[0])
        if service.default:
            found += [_pool(service, protocol, owners, picker) for protocol in PORTS]
    return (*(one for job in firsts.values() for one in _to_picker(job, owners, picker, replicas)), *found)


def _pool(service: Service, protocol: str, owners: Owners, picker: EndpointPicker) -> Owned:
    spec = {
        "selector": {"matchLabels": names.serving(service.model)},
        "targetPorts": [{"number": PORTS[protocol]}],
        # HTTP is the default.
        **({"appProtocol": "kubernetes.io/h2c"} if protocol == "grpc" else {}),
        "endpointPickerRef": {
            "group": "",
            "kind": "Service",
            "name": picker.service,
            "port": {"number": picker.port},
            "failureMode": picker.failure_mode,
        },
    }
    return manifest(POOL, Key(service.namespace, pool_name(service, protocol)), service.jobs, owners, {"spec": spec})


def _to_picker(job: Key, owners: Owners, picker: EndpointPicker, replicas: Replicas) -> Iterable[Owned]:
    protocol = "https" if picker.tls else "kubernetes.io/h2c"
    port = {"name": "picker", "port": picker.port, "appProtocol": protocol, "protocol": "TCP"}
    key = Key(job.namespace, picker.service)
    yield manifest(SERVICE, key, [job], owners, {"spec": {"ports": [{**port, "targetPort": picker.port}]}})
    labels = {LABEL_SERVICE: picker.service, LABEL_WRITER: WRITER}
    for family, endpoints in sorted(replicas.items()):
        said: Manifest = {"addressType": family, "ports": [port], "endpoints": endpoints}
        yield manifest(SLICE, Key(job.namespace, f"{picker.service}-{family.lower()}"), [job], owners, said, labels)


def replicas_of(slices: Iterable[Manifest]) -> Replicas:
    """The replicas that answer, from the slices that Kubernetes writes for the operator's own Service."""
    found: dict[str, dict[str, Manifest]] = {}
    for one in slices:
        listed = one.get("endpoints")
        for endpoint in listed if isinstance(listed, list) else ():
            said = {
                field: endpoint[field]
                for field in ("addresses", "conditions", "targetRef", "nodeName", "zone")
                if field in endpoint
            }
            said["targetRef"] = {field: value for field, value in said.get("targetRef", {}).items() if field in _REFERENCE}
            found.setdefault(str(one["addressType"]), {})[endpoint["addresses"][0]] = said
    return {family: [known[address] for address in sorted(known)] for family, known in found.items()}


# A pod's resourceVersion changes with each word of its kubelet.
_REFERENCE = ("kind", "namespace", "name", "uid")
