"""The audit log as measurements: lines in, values out."""

import json
from typing import Any

import pytest

from bench.plane.audit import Watch, actor, by_name, events, parse, watches, writes


def a_line(verb: str = "patch", resource: str = "pods/status", name: str = "a", *, at: float = 0.0, **other: Any) -> bytes:
    """An event as the API server writes it, `at` seconds past the hour and answered two milliseconds later."""
    kind, _, subresource = resource.partition("/")
    event = {
        "kind": "Event",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "dev-admin", "groups": ["system:masters"]},
        "userAgent": "bench-kubelets",
        "objectRef": {"resource": kind, "subresource": subresource, "namespace": "default", "name": name},
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": f"2026-11-28T05:00:{at:09.6f}Z",
        "stageTimestamp": f"2026-11-28T05:00:{at + 0.002:09.6f}Z",
    }
    return json.dumps(event | other).encode() + b"\n"


def test_a_request_has_the_servers_clock_to_the_microsecond() -> None:
    (request,) = parse([a_line(at=1.25)])

    assert (request.actor, request.verb, request.resource, request.name) == ("bench-kubelets", "patch", "pods/status", "a")
    assert request.answered - request.received == pytest.approx(0.002, abs=1e-6)
    assert request.received % 60 == pytest.approx(1.25, abs=1e-6)


def test_watches_unanswered_requests_and_those_of_no_object_are_left_out() -> None:
    lines = [a_line("watch"), a_line(stage="ResponseStarted"), a_line("get", objectRef=None)]

    assert parse(lines) == []


def test_a_watch_begins_when_it_is_granted_and_ends_when_it_is_answered() -> None:
    lines = [
        a_line("watch", auditID="a", stage="ResponseStarted", at=1.0),
        a_line("watch", auditID="refused", stage="ResponseStarted", responseStatus={"code": 403}),
        a_line("watch", "nodes", auditID="b", stage="ResponseStarted", at=2.0),
        a_line("watch", auditID="a", at=5.0),
    ]

    first, second = watches(lines)

    assert (first.user, first.resource, second.resource, second.ended) == ("dev-admin", "pods", "nodes", None)
    assert first.ended is not None and first.ended - first.started == pytest.approx(4.0)
    assert second == Watch("dev-admin", "nodes", second.started)


@pytest.mark.parametrize(
    ("user", "agent", "expected"),
    [
        ("system:serviceaccount:kube-system:job-controller", "kube-controller-manager/v1.34.4 (linux/amd64)", "job-controller"),
        ("system:kube-scheduler", "kube-scheduler/v1.34.4", "kube-scheduler"),
        ("dev-admin", "Python/3.11 aiohttp/3.12.0", "inference-operator"),
        ("dev-admin", "kopf/1.45.2", "inference-operator"),
        ("dev-admin", "kueue/v0.17.0 (linux/amd64)", "kueue"),
        ("dev-admin", "", ""),
    ],
)
def test_who_asked(user: str, agent: str, expected: str) -> None:
    assert actor(user, agent) == expected


def test_writes_are_counted_by_actor_without_leases_events_and_reads() -> None:
    lines = [
        *(a_line(resource=resource) for resource in ("pods/status", "leases", "events")),
        *(a_line(verb) for verb in ("get", "list", "delete")),
    ]
    requests = parse(lines)

    assert writes(requests) == {("bench-kubelets", "patch", "pods/status"): 1, ("bench-kubelets", "delete", "pods/status"): 1}
    assert events(requests) == 1


def test_refused_writes_count_but_date_nothing() -> None:
    refused = a_line(at=1, responseStatus={"code": 409})
    requests = parse([refused, a_line(at=2), a_line(at=3)])

    assert sum(writes(requests).values()) == 3
    assert by_name(requests, "patch", "pods/status")["a"].received % 60 == pytest.approx(2)
    assert by_name(requests, "patch", "pods/status", last=True)["a"].received % 60 == pytest.approx(3)


def test_first_and_last_go_by_time_and_not_by_the_order_of_lines() -> None:
    requests = parse([a_line(at=3), a_line(at=1), a_line(at=2)])

    assert by_name(requests, "patch", "pods/status")["a"].received % 60 == pytest.approx(1)
    assert by_name(requests, "patch", "pods/status", last=True)["a"].received % 60 == pytest.approx(3)
