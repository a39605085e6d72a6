"""What the API server's audit log holds against the operator: pure, requests in, sentences out."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.plane.audit import Request, Watch
from examples.demo.cluster import RELEASE
from tests.chaos.verdict import Span

_OPERATOR = "inference-operator"
# Malformed, not allowed, or against the schema: no fault of a machine makes the operator send one.
_FORBIDDEN = 403
_NEVER = frozenset({400, 401, _FORBIDDEN, 405, 415, 422})
# Questions that are asked by a create: both replicas ask them, of whoever asks them for metrics.
_QUESTIONS = frozenset({"subjectaccessreviews", "tokenreviews"})
# What a leader had sent before it heard that another leads.
_UNDER_WAY_SECONDS = 1.0
# By what kube-proxy learns of workers, and kubelets of pods. Who lost his watch asks again after up to a minute (client-go's reflector).
_SIGHTS = (("system:kube-proxy", "endpointslices"), ("system:node:", "pods"))
_GLANCE_SECONDS = 1.0
# Pods that one fault may cost, so that a node or an admission that turns pods away isn't flooded with them.
_PODS_A_FAULT = 6


def charges(
    requests: Iterable[Request],
    namespace: str,
    *,
    faults: int,
    jobs: int,
    held: Sequence[Span] = (),
    away: Sequence[Span] = (),
) -> list[str]:
    """Return all that is wrong in the requests of a round, which had so many faults and jobs in one namespace.

    From when to when packets were `held` back, it may be that a request came long after it was sent. In the spans of `away` the API
    server was killed, and started again.
    """
    asked = sorted((one for one in requests if one.actor == _OPERATOR), key=lambda one: one.received)
    return [*refused(asked, away), *overruled(asked, held), *flood(asked, namespace, _PODS_A_FAULT * faults + 2 * jobs)]


def refused(requests: Iterable[Request], away: Sequence[Span] = ()) -> list[str]:
    """Requests that should never have been sent. An API server that starts knows no roles yet, and forbids what they allow."""
    asked = (one for one in requests if one.code != _FORBIDDEN or not any(begun <= one.received <= ended for begun, ended in away))
    found = Counter((one.verb, one.resource, one.code) for one in asked if one.code in _NEVER)
    return [f"{count} times the operator was refused: {verb} {resource}, {code}" for (verb, resource, code), count in found.items()]


def overruled(requests: Sequence[Request], held: Sequence[Span] = ()) -> list[str]:
    """Writes of a replica that were carried out after another had taken the Lease. Requests are in the order of their arrival.

    What was sent before and `held` back is none: TCP repeats it ever more seldom, up to as long again after the end.
    """
    led_since: list[tuple[float, str]] = []
    found = []
    for one in requests:
        if not (one.writes and one.succeeded and one.pod):
            continue
        if (one.resource, one.name) == ("leases", RELEASE):
            if not led_since or led_since[-1][1] != one.pod:
                led_since.append((one.answered, one.pod))
        elif one.resource not in {"leases", "events", *_QUESTIONS} and led_since:
            since, leader = led_since[-1]
            late = one.pod != leader and one.received > since + _UNDER_WAY_SECONDS
            if late and not any(begun <= since and one.received <= 2 * ended - begun + _UNDER_WAY_SECONDS for begun, ended in held):
                found.append(
                    f"{one.pod} wrote {one.verb} {one.resource} {one.name} {one.received - since:.1f} s after {leader} led"
                )
    return found


def flood(requests: Iterable[Request], namespace: str, most: int) -> list[str]:
    """More pods than what happened explains; those that were refused count."""
    made = sum(one.verb == "create" and one.resource == "pods" and one.namespace == namespace for one in requests)
    return [f"{made} pods were created, of at most {most}"] if made > most else []


def blind(watches: Iterable[Watch], outages: Iterable[float], until: float) -> list[Span]:
    """From when to when kube-proxy or a kubelet saw nothing new, `until` when where it still doesn't.

    `outages` are the instants at which the API server was killed, which ends all watches and writes nothing.
    """
    sights: dict[tuple[str, str], list[Watch]] = {}
    for one in watches:
        if any(one.user.startswith(user) and one.resource == resource for user, resource in _SIGHTS):
            sights.setdefault((one.user, one.resource), []).append(one)
    killed = tuple(outages)
    found = []
    for seen in sights.values():
        # One that ends at once has only told that it knows no such version any more.
        lasting = sorted(
            (one for one in seen if one.ended is None or one.ended - one.started > _GLANCE_SECONDS), key=lambda one: one.started
        )
        for end in sorted([*killed, *[one.ended for one in lasting if one.ended is not None]]):
            again = next((one.started for one in lasting if one.started >= end), until)
            if again - end > _GLANCE_SECONDS:
                found.append((end, again))
    return found
