"""Audit logs and statuses are held against the operator: what a round of faults must not show."""

from dataclasses import replace

from bench.plane.audit import Request, Watch
from tests.chaos.claims import untrue
from tests.chaos.records import blind, charges, flood, overruled, refused

LEASE = Request("inference-operator", "update", "leases", "inference-system", "inference-operator", 200, 10.0, 10.1, pod="a")
WRITE = replace(LEASE, resource="inferencejobs/status", namespace="team", name="job", received=20.0, answered=20.1)


def test_who_holds_the_lease_writes() -> None:
    other = replace(LEASE, pod="b", received=30.0, answered=30.1)

    assert overruled([LEASE, WRITE, other, replace(WRITE, pod="b", received=40.0)]) == []


def test_a_write_after_another_led_is_told() -> None:
    other = replace(LEASE, pod="b", received=15.0, answered=15.1)

    (found,) = overruled([LEASE, other, WRITE])

    assert "a wrote update inferencejobs/status job 4.9 s after b led" in found


def test_what_was_refused_or_under_way_or_told_of_an_event_is_no_fault() -> None:
    other = replace(LEASE, pod="b", received=19.5, answered=19.6)
    late = replace(WRITE, received=25.0)

    assert (
        overruled([LEASE, other, WRITE, replace(late, code=409), replace(late, resource="events"), replace(late, verb="get")]) == []
    )


def test_a_write_that_was_held_back_on_its_way_may_come_late() -> None:
    other = replace(LEASE, pod="b", received=15.0, answered=15.1)

    assert overruled([LEASE, other, WRITE], [(14.0, 17.5)]) == []
    # It has come too late for that, or was sent after the other one led.
    assert len(overruled([LEASE, other, WRITE], [(14.0, 16.4)])) == 1
    assert len(overruled([LEASE, other, WRITE], [(15.2, 19.0)])) == 1


def test_who_asks_whether_somebody_may_ask_writes_nothing() -> None:
    other = replace(LEASE, pod="b", received=15.0, answered=15.1)

    assert overruled([LEASE, other, replace(WRITE, verb="create", resource="subjectaccessreviews", received=25.0)]) == []


def test_a_request_for_the_lease_that_was_refused_takes_nothing() -> None:
    assert overruled([LEASE, replace(LEASE, pod="b", received=15.0, code=409), WRITE]) == []


def test_requests_that_should_never_have_been_sent_are_counted() -> None:
    assert refused([WRITE, replace(WRITE, code=409), replace(WRITE, code=404)]) == []
    assert refused([replace(WRITE, code=403), replace(WRITE, code=403)]) == [
        "2 times the operator was refused: update inferencejobs/status, 403"
    ]


def test_an_api_server_that_starts_may_forbid_what_it_allows_later() -> None:
    listed = replace(WRITE, verb="list", resource="nodes", code=403, received=20.0)

    assert refused([listed, replace(listed, received=24.9)], [(15.0, 25.0)]) == []
    assert len(refused([listed, replace(listed, code=422)], [(20.1, 25.0)])) == 2
    assert len(refused([replace(listed, code=422)], [(15.0, 25.0)])) == 1


def test_only_pods_of_the_namespace_count_as_a_flood() -> None:
    pod = replace(WRITE, verb="create", resource="pods", code=403)

    assert flood([pod, replace(pod, namespace="other")], "team", 1) == []
    assert flood([pod, pod], "team", 1) == ["2 pods were created, of at most 1"]


def test_only_the_operators_requests_are_charged_in_the_order_of_their_arrival() -> None:
    other = replace(LEASE, pod="b", received=30.0, answered=30.1)
    kubelet = replace(WRITE, actor="kubelet", code=403)

    assert charges([other, kubelet, WRITE, LEASE], "team", faults=1, jobs=1) == []


def test_a_status_claims_no_more_than_is_on_disk() -> None:
    running = {"phase": "Running", "progress": {"total": 9, "completed": 5}}

    assert untrue({}, 0, published=False) == ""
    assert untrue({"phase": "Pending", "progress": None}, 0, published=False) == ""
    assert untrue(running, 5, published=False) == ""
    assert untrue(running, 4, published=False) == "5 items are completed by the status, and 4 are committed"
    assert "no manifest" in untrue(running | {"phase": "Succeeded"}, 5, published=False)
    assert untrue(running | {"phase": "Succeeded"}, 5, published=True) == ""


def test_who_lost_a_watch_is_blind_until_the_next_one_lasts() -> None:
    kubelet, proxy = Watch("system:node:cpu-1", "pods", 0.0, 50.0), Watch("system:kube-proxy", "endpointslices", 0.0)
    watches = [
        kubelet,
        replace(kubelet, started=80.0, ended=80.1),
        replace(kubelet, started=90.0, ended=None),
        replace(kubelet, resource="services", started=51.0),
        proxy,
        replace(proxy, started=130.0),
    ]

    assert sorted(blind(watches, [], 200.0)) == [(50.0, 90.0)]
    # Of an API server that was killed no watch has ended in the log.
    assert sorted(blind(watches, [100.0], 200.0)) == [(50.0, 90.0), (100.0, 130.0), (100.0, 200.0)]


def test_a_watch_that_is_followed_at_once_leaves_nobody_blind() -> None:
    first = Watch("system:kube-proxy", "endpointslices", 0.0, 50.0)

    assert blind([first, replace(first, started=50.5, ended=None)], [], 200.0) == []
