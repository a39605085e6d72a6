"""The EndpointSlices of a serving job's Service: who is sent requests. Pure.

The Service has no selector, so that a worker that is suspected or drains leaves at once, and comes back as quickly. While nobody
else takes requests, those that were told to go keep them: they answer until most of their grace is over. While nobody is ready,
those that answer the operator take them: a kubelet that restarts says of its pods for a moment that they aren't ready.
"""

from inference_operator.api.job import wanted_replicas
from inference_operator.state.endpoints import (
    LABEL_SERVICE,
    LABEL_WRITER,
    WRITER,
    Endpoint,
    EndpointSlice,
    EndpointsObserved,
    Port,
    family_of,
)
from inference_operator.state.objects import Pod, PodPhase
from inference_operator.workers.actions import ApplySlice, DeleteSlice, EndpointsAction, TakeSelector
from inference_operator.workers.pod import Manifest, owner_reference
from inference_operator.workers.service import labels, ports

# Kubernetes' own controller fills slices up to the same number.
_EACH = 100
# Who writes slices for Services with a selector, and copies those of Services without one from their Endpoints.
_KUBERNETES = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def plan_endpoints(seen: EndpointsObserved) -> tuple[EndpointsAction, ...]:
    """Bring the slices to what they should say, and only then end what Kubernetes' own controller has written for the Service."""
    wanted = desired(seen)
    known = {one.key.name: one for one in seen.slices if one.ours}
    others = [one for one in seen.slices if one.writer in _KUBERNETES]
    actions: list[EndpointsAction] = []
    for name, says in wanted.items():
        before = known.get(name)
        if before is None or before.says != says:
            actions.append(
                ApplySlice(_manifest(seen, name, *says), before.uid if before is not None else None, _why(before, says[2]))
            )
    actions += [DeleteSlice(one.key, one.uid, "nobody is left in it") for name, one in known.items() if name not in wanted]
    if seen.selecting is not None or others:
        actions.append(TakeSelector(seen.service, seen.selecting, "the operator writes its endpoints"))
    actions += [DeleteSlice(one.key, one.uid, "the Service has no selector any more") for one in others]
    return tuple(actions)


def desired(seen: EndpointsObserved) -> dict[str, tuple[str, tuple[Port, ...], tuple[Endpoint, ...]]]:
    """Return what each slice should say, by its name. A worker's number says which slice it is in for as long as it lives."""
    takes = _takes(seen)
    distrusted = _distrusted(seen, takes)
    last = _last_ones(seen, takes)
    found: dict[str, tuple[str, list[Endpoint]]] = {}
    for pod in sorted(seen.pods, key=lambda pod: (pod.number, pod.key)):
        if pod.address is not None and _is_reached(pod):
            family = family_of(pod.address)
            name = f"{seen.service.name}-{family.lower()}-{pod.number // _EACH}"
            # One that was told to go says that it isn't ready, and answers whoever comes.
            serves = pod.uid in takes | last or (pod.ready and pod.deleting)
            serving = serves and pod.uid not in distrusted
            found.setdefault(name, (family, []))[1].append(_endpoint(pod, seen, serving=serving, last=pod.uid in last))
    return {name: (family, ports(seen.job), tuple(endpoints)) for name, (family, endpoints) in found.items()}


def _takes(seen: EndpointsObserved) -> frozenset[str]:
    """Return the workers that take requests: those that are ready, and where none is those that answer the operator."""
    living = [pod for pod in seen.pods if _is_reached(pod) and not pod.deleting]
    ready = frozenset(pod.uid for pod in living if pod.ready)
    return ready or seen.heard & {pod.uid for pod in living}


def _distrusted(seen: EndpointsObserved, takes: frozenset[str]) -> frozenset[str]:
    """Return the suspected workers that leave. When no other would be left, those stay that answer again, and else all.

    Suspicion alone never empties a Service.
    """
    stay = takes - seen.suspected or takes & seen.recovering
    return seen.suspected - stay if stay else frozenset()


def _last_ones(seen: EndpointsObserved, takes: frozenset[str]) -> frozenset[str]:
    """Return the workers that were told to go and take requests until another does, of a job that wants workers."""
    spec = seen.job.spec
    wanted = spec is not None and not spec.suspend and not seen.job.deleting and wanted_replicas(spec) > 0
    if not wanted or takes:
        return frozenset()
    going = frozenset(pod.uid for pod in seen.pods if pod.deleting and _is_reached(pod))
    return going - seen.suspected or going & seen.recovering or going


def _is_reached(pod: Pod) -> bool:
    return pod.address is not None and pod.phase is PodPhase.RUNNING and not pod.over


def _endpoint(pod: Pod, seen: EndpointsObserved, *, serving: bool, last: bool) -> Endpoint:
    return Endpoint(
        pod=pod.key.name,
        uid=pod.uid,
        address=pod.address or "",
        node=pod.node,
        zone=seen.zones.get(pod.node or ""),
        ready=serving and (last or not pod.deleting),
        serving=serving,
        terminating=pod.deleting,
    )


def _manifest(
    seen: EndpointsObserved, name: str, family: str, ports: tuple[Port, ...], endpoints: tuple[Endpoint, ...]
) -> Manifest:
    of_service = {LABEL_SERVICE: seen.service.name, LABEL_WRITER: WRITER}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": seen.service.namespace,
            "labels": {**labels(seen.job), **of_service},
            "ownerReferences": [owner_reference(seen.job)],
        },
        "addressType": family,
        "ports": [{"name": name, "port": port, "protocol": "TCP", "appProtocol": protocol} for name, port, protocol in ports],
        "endpoints": [_entry(one, seen.service.namespace) for one in endpoints],
    }


def _entry(one: Endpoint, namespace: str) -> Manifest:
    where = {"nodeName": one.node, "zone": one.zone}
    return {
        "addresses": [one.address],
        "conditions": {"ready": one.ready, "serving": one.serving, "terminating": one.terminating},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": one.pod, "uid": one.uid},
        **{key: value for key, value in where.items() if value is not None},
    }


def _why(before: EndpointSlice | None, endpoints: tuple[Endpoint, ...]) -> str:
    was = sum(one.ready for one in before.endpoints) if before is not None else 0
    return f"{was} -> {sum(one.ready for one in endpoints)} ready of {len(endpoints)} workers"
